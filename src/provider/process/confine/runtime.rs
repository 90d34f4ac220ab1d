//! Lists what a program needs beside its own file: its interpreter, and the folders of a Python that is not the system's.
//!
//! A virtual environment, and a Python of pyenv, uv or conda, live where their owner put them. Of their folders only those
//! that hold programs and modules are listed, so that an environment in somebody's home opens nothing else of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::super::{program, script};

/// The files and folders that `program` reads to run; `path` is the PATH that it has, and `dir` its working directory.
pub(super) fn needs(program: &Path, dir: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut file = dir.join(program);
    for _ in 0..=program::SCRIPTS_MAX {
        found.push(file.clone());
        found.extend(python(&file));
        let Some(interpreter) = script::interpreter(&file) else { break };
        file = dir.join(interpreter.file);
        if let Some(sought) = interpreter.sought {
            found.push(file);
            let Ok(sought) = program::file_in(&sought, dir, path) else { break };
            file = sought;
        }
    }
    found
}

/// What a Python of this file reads; nothing of a file that is none.
fn python(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // The environment is where the command is named, and its Python is where that link leads.
    for file in [Some(file.to_owned()), file.canonicalize().ok()].into_iter().flatten() {
        let Some(folder) = file.parent() else { continue };
        let Some(prefix) = folder.parent() else { continue };
        if let Ok(settings) = std::fs::read_to_string(prefix.join("pyvenv.cfg")) {
            found.extend(ENVIRONMENT.map(|name| prefix.join(name)));
            found.extend(home(&settings).and_then(Path::parent).into_iter().flat_map(installation));
        }
        if folder.ends_with("shims") && prefix.join("libexec/pyenv").is_file() {
            found.push(prefix.to_owned());
        }
        let is_python = file.file_name().and_then(OsStr::to_str).is_some_and(is_python);
        if is_python {
            found.extend(installation(prefix));
        }
    }
    found
}

/// The folder of programs that an environment was made from.
fn home(settings: &str) -> Option<&Path> {
    let mut pairs = settings.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(key, _)| key.trim() == "home").map(|(_, home)| Path::new(home.trim()))
}

fn is_python(name: &str) -> bool {
    ["python", "pypy"].iter().any(|python| name.starts_with(python))
}

/// The folders of a Python that is installed under `prefix`; nothing if none is.
fn installation(prefix: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let has_modules = names.take(ENTRIES_MAX).any(|entry| entry.file_name().to_str().is_some_and(is_python));
    if !has_modules {
        return Vec::new();
    }
    INSTALLATION.iter().map(|name| prefix.join(name)).collect()
}

/// What stands in a virtual environment.
const ENVIRONMENT: [&str; 5] = ["pyvenv.cfg", "bin", "lib", "lib64", "include"];
/// What stands under the prefix of a Python.
const INSTALLATION: [&str; 3] = ["bin", "lib", "lib64"];
/// Entries of a folder `lib` that are looked at.
const ENTRIES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// An executable file with its folders.
    fn program(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn an_environment_is_its_folders_and_those_of_its_python() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        program(&at("base/bin/python3.11"), "");
        std::fs::create_dir_all(at("base/lib/python3.11")).unwrap();
        std::fs::create_dir_all(at("home/bin")).unwrap();
        symlink(at("base/bin/python3.11"), at("home/bin/python")).unwrap();
        std::fs::write(at("home/secret"), "").unwrap();
        let home = format!("home = {}\nversion = 3.11\n", at("base/bin").display());
        std::fs::write(at("home/pyvenv.cfg"), home).unwrap();
        let script = format!("#!{}\n", at("home/bin/python").display());
        program(&at("agent/count"), &script);
        for command in [at("home/bin/python"), at("agent/count")] {
            let found = needs(&command, &dir, None);
            for needed in ["home/pyvenv.cfg", "home/lib", "home/bin", "base/lib", "base/bin"] {
                assert!(found.contains(&at(needed)), "{needed}: {found:?}");
            }
            let opens = |path: &PathBuf| found.iter().any(|root| path.starts_with(root));
            assert!(!opens(&at("home/secret")) && !opens(&at("base/share")), "{found:?}");
        }
    }

    #[test]
    fn a_shim_of_pyenv_needs_all_of_pyenv_and_other_programs_only_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        program(&at("pyenv/shims/python3"), "#!/bin/sh\n");
        program(&at("pyenv/libexec/pyenv"), "");
        program(&at("agent/count"), "#!/usr/bin/env python3\n");
        program(&at("home/bin/tool"), "");
        std::fs::create_dir_all(at("home/lib/python3.11")).unwrap();
        let path = at("pyenv/shims");
        let found = needs(&at("agent/count"), &dir, Some(path.as_os_str()));
        for needed in [at("pyenv"), at("pyenv/shims/python3"), "/bin/sh".into(), "/usr/bin/env".into()] {
            assert!(found.contains(&needed), "{found:?}");
        }
        assert_eq!(needs(Path::new("home/bin/tool"), &dir, None), [at("home/bin/tool")]);
    }
}
