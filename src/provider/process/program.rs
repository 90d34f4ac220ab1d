//! Finds the file that a command's first word starts, or why there is none.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::inherited_environment;

/// Why a program cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
}

impl ProgramError {
    /// What a start of it fails with.
    pub(super) const fn kind(self) -> ErrorKind {
        match self {
            Self::NotInPath | Self::Missing => ErrorKind::NotFound,
            Self::NotExecutable | Self::Directory => ErrorKind::PermissionDenied,
            Self::Unreadable(kind) => kind,
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
