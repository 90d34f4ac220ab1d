//! Reads the first line of a script: a file in; the interpreter that runs it, out.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What runs a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interpreter {
    /// The file after `#!`.
    pub(super) file: PathBuf,
    /// The program that this file looks for in PATH, if it is `env`.
    pub(super) sought: Option<String>,
}

/// The interpreter of `file`; none if it is no script, or cannot be read.
pub(super) fn interpreter(file: &Path) -> Option<Interpreter> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    File::open(file).ok()?.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    parse(&head)
}

fn parse(head: &[u8]) -> Option<Interpreter> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim();
    let (file, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if file.is_empty() {
        return None;
    }
    let file = PathBuf::from(file);
    let is_env = file.file_name().is_some_and(|name| name == "env");
    let sought = is_env.then(|| sought(argument.trim())).flatten();
    Some(Interpreter { file, sought })
}

/// The program that `env` runs with this argument.
fn sought(argument: &str) -> Option<String> {
    let words = match argument.strip_prefix("-S").or_else(|| argument.strip_prefix("--split-string=")) {
        Some(words) => words,
        // The system passes everything behind the interpreter as one argument.
        None if argument.starts_with('-') => return None,
        None => return (!argument.is_empty()).then(|| argument.to_owned()),
    };
    let mut words = words.split_ascii_whitespace().filter(|word| !word.contains('='));
    words.next().filter(|word| !word.starts_with('-')).map(str::to_owned)
}

/// What the system reads of a file before it decides how to run it.
const HEAD_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_names_the_interpreter() {
        let cases = [
            ("#!/bin/sh\necho", Some(("/bin/sh", None))),
            ("#! /opt/py/bin/python -u\n", Some(("/opt/py/bin/python", None))),
            ("#!/usr/bin/env python3\n", Some(("/usr/bin/env", Some("python3")))),
            ("#!/usr/bin/env -S A=b node --flag\n", Some(("/usr/bin/env", Some("node")))),
            ("#!/usr/bin/env -i\n", Some(("/usr/bin/env", None))),
            ("#!/usr/bin/env\n", Some(("/usr/bin/env", None))),
            ("#!\n", None),
            ("\x7fELF", None),
            ("", None),
        ];
        for (head, expected) in cases {
            let found = parse(head.as_bytes());
            let found = found.as_ref().map(|found| (found.file.to_str().unwrap(), found.sought.as_deref()));
            assert_eq!(found, expected, "{head:?}");
        }
    }
}
