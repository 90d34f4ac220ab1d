//! Finds the file that a command's first word starts, or why there is none.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{inherited_environment, script};

/// Why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// No folder of PATH has such a file.
    #[error("is in no folder of PATH")]
    NotInPath,
    /// There is no such file.
    #[error("does not exist")]
    Missing,
    /// It has no right to be executed.
    #[error("is not executable")]
    NotExecutable,
    /// It is not a file.
    #[error("is a directory")]
    Directory,
    /// It cannot be examined.
    #[error("cannot be found: {0}")]
    Unreadable(ErrorKind),
    /// It is a script, and the program of its first line cannot be started.
    #[error("is a script, and its interpreter {interpreter:?} {error}")]
    Interpreter {
        /// The program of the line `#!`.
        interpreter: String,
        /// What is wrong with it.
        error: Box<ProgramError>,
    },
}

impl ProgramError {
    /// What a start of it fails with.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::NotInPath | Self::Missing => ErrorKind::NotFound,
            Self::NotExecutable | Self::Directory => ErrorKind::PermissionDenied,
            Self::Unreadable(kind) => *kind,
            Self::Interpreter { error, .. } => error.kind(),
        }
    }
}

/// The file that a command in `dir` starts by the name `program`: relative to `dir` if it is a path, otherwise the
/// first match in the PATH of commands.
///
/// **Errors:** why none can be started.
pub fn find(program: &str, dir: &Path) -> Result<PathBuf, ProgramError> {
    let environment = inherited_environment();
    let path = environment.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path.as_os_str());
    find_in(program, dir, path)
}

/// The same, with this PATH.
pub(super) fn find_in(program: &str, dir: &Path, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let file = file_in(program, dir, path)?;
    check_interpreters(&file, dir, path)?;
    Ok(file)
}

/// Fails where the file is a script that the system cannot run.
fn check_interpreters(file: &Path, dir: &Path, path: Option<&OsStr>) -> Result<(), ProgramError> {
    let mut script = file.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let Some(interpreter) = script::interpreter(&script) else { return Ok(()) };
        let found = |name: &str| {
            file_in(name, dir, path).map_err(|error| ProgramError::Interpreter {
                interpreter: name.to_owned(),
                error: Box::new(error),
            })
        };
        // A name without a folder is a file beside the command.
        script = found(&dir.join(&interpreter.file).to_string_lossy())?;
        if let Some(sought) = &interpreter.sought {
            script = found(sought)?;
        }
    }
    Ok(())
}

/// The same, whatever runs it.
pub(super) fn file_in(program: &str, dir: &Path, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if program.contains('/') {
        let file = dir.join(program);
        return executable(&file).map(|()| file);
    }
    let mut nearest = ProgramError::NotInPath;
    for folder in path.into_iter().flat_map(std::env::split_paths) {
        let file = dir.join(folder).join(program);
        match executable(&file) {
            Ok(()) => return Ok(file),
            // A file of that name that nobody may execute is more likely meant than none.
            Err(ProgramError::NotExecutable) => nearest = ProgramError::NotExecutable,
            Err(_) => {}
        }
    }
    Err(nearest)
}

fn executable(file: &Path) -> Result<(), ProgramError> {
    let is_runnable = |found: &Metadata| found.permissions().mode() & 0o111 != 0;
    match file.metadata() {
        Ok(found) if found.is_dir() => Err(ProgramError::Directory),
        Ok(found) if found.is_file() && is_runnable(&found) && access(file, Access::EXEC_OK).is_ok() => {
            Ok(())
        }
        Ok(_) => Err(ProgramError::NotExecutable),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => ProgramError::Missing,
            kind => ProgramError::Unreadable(kind),
        }),
    }
}

/// Scripts that are the interpreter of another one, as many as the system follows.
pub(super) const SCRIPTS_MAX: usize = 4;
