//! Finds what a failed command was kept from: its words on stderr and its confinement in; a path and the permission that
//! opens it, out.
//!
//! The kernel tells the command alone that it refused, and only what a program writes says which file it was. So this is
//! for the owner's log and `capctl doctor`, never for callers: what a program writes may be what a caller sent.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::files::resolved;
use super::{Confinement, Files, KERNEL, User, runtime};

/// What confinement kept a command from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A file, and the permission that opens it.
    File(PathBuf, &'static str),
    /// One of the sidecar's own files, which no permission opens.
    Hidden(PathBuf),
    /// A socket of the internet.
    Socket,
    /// A unix socket.
    UnixSocket,
}

impl Denied {
    /// The permission to declare; none where none helps.
    pub const fn permission(&self) -> Option<&'static str> {
        match self {
            Self::File(_, permission) => Some(permission),
            Self::Hidden(_) => None,
            Self::Socket => Some("network:read"),
            Self::UnixSocket => Some("network:unix"),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, _) | Self::Hidden(path) => write!(f, "{}", path.display()),
            Self::Socket => f.write_str("a socket"),
            Self::UnixSocket => f.write_str("a unix socket"),
        }
    }
}

impl Confinement {
    /// What `program`, which ran in `dir` with this PATH and failed, was kept from; none if its words name nothing.
    pub fn denied(&self, stderr: &[u8], program: &Path, dir: &Path, path: Option<&OsStr>) -> Option<Denied> {
        let stderr = &stderr[stderr.len().saturating_sub(STDERR_BYTES_MAX)..];
        let text = String::from_utf8_lossy(stderr);
        let refusals = || text.lines().rev().filter(|line| says_any(line, &REFUSALS));
        // A filter of system calls refused it, so the path of the socket is no file that was closed.
        if says_any(&text, &FILTERED) && says_any(&text, &UNIX_SOCKETS) {
            return (!self.sockets.unix).then_some(Denied::UnixSocket);
        }
        if refusals().next().is_some() {
            let open = self.open(program, dir, path);
            let paths = refusals().flat_map(paths).take(PATHS_MAX);
            if let Some(denied) = paths.filter_map(|named| self.judged(&dir.join(named), &open)).next() {
                return Some(denied);
            }
        }
        let is_socket = !self.sockets.internet
            && (says_any(&text, &UNRESOLVED) || refusals().next().is_some() && says_any(&text, &SOCKETS));
        is_socket.then_some(Denied::Socket)
    }

    /// What it may read without a permission, resolved.
    fn open(&self, program: &Path, dir: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
        let resolved = |root: &PathBuf| root.canonicalize().ok();
        let is_hidden = |path: &PathBuf| self.ground.hidden.iter().any(|hidden| path.starts_with(hidden));
        let needed = runtime::needs(program, dir, path);
        let named = self.ground.readable.iter().filter_map(resolved).chain(dir.join(program).canonicalize());
        named.chain(needed.iter().filter_map(resolved).filter(|path| !is_hidden(path))).collect()
    }

    /// Whether it was confinement that kept it from this path.
    fn judged(&self, path: &Path, open: &[PathBuf]) -> Option<Denied> {
        let path = resolved(path);
        let is_beneath = |root: &PathBuf| path.starts_with(root);
        if self.ground.hidden.iter().any(is_beneath) && !open.contains(&path) {
            return Some(Denied::Hidden(path));
        }
        if KERNEL.iter().any(|folder| path.starts_with(folder)) {
            return None;
        }
        let is_readable = self.files != Files::None || open.iter().any(is_beneath);
        let user = self.ground.user;
        let permission = if !is_readable && may(user, &path, Access::READ_OK) {
            "filesystem:read"
        } else if self.files != Files::Write && self.may_write(user, &path) {
            "filesystem:write"
        } else {
            // The system's own permissions kept it out.
            return None;
        };
        Some(Denied::File(path, permission))
    }

    fn may_write(&self, user: Option<User>, path: &Path) -> bool {
        match path.exists() {
            true => may(user, path, Access::WRITE_OK),
            false => path.parent().is_some_and(|folder| may(user, folder, Access::WRITE_OK)),
        }
    }
}

/// Whether the user of commands may use the file, but for confinement.
fn may(user: Option<User>, path: &Path, right: Access) -> bool {
    let Some(user) = user else { return access(path, right).is_ok() };
    let Ok(found) = path.metadata() else { return false };
    let bit = if right == Access::READ_OK { 0o4 } else { 0o2 };
    let shift = match (found.uid() == user.uid, found.gid() == user.gid) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    found.mode() & (bit << shift) != 0
}

fn says_any(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// What may be paths in a line: everything in quotes, and words that begin with `/`.
fn paths(line: &str) -> Vec<&str> {
    let quoted = ['\'', '"', '`'].into_iter().flat_map(|quote| line.split(quote).skip(1).step_by(2));
    let words = line.split(|c: char| c.is_whitespace() || "\"'`,:;()<>[]{}|=".contains(c));
    let words = words.filter(|word| word.starts_with('/'));
    quoted.chain(words).filter(|path| !path.is_empty() && path.len() <= PATH_BYTES_MAX).collect()
}

/// How programs say that the system refused them something; in small letters.
const REFUSALS: [&str; 4] = ["permission denied", "eacces", "operation not permitted", "eperm"];
/// How programs say that a filter of system calls refused them something.
const FILTERED: [&str; 2] = ["operation not permitted", "eperm"];
/// Words of those who wanted a socket.
const SOCKETS: [&str; 5] = ["socket", "connect", "urlopen", "network", "dial"];
/// Words of those who wanted a unix socket.
const UNIX_SOCKETS: [&str; 5] = ["af_unix", "unix socket", "dial unix", "unix://", ".sock "];
/// How programs say that they found no host, because they had no socket to ask with.
const UNRESOLVED: [&str; 4] = ["name resolution", "resolve host", "eai_again", "getaddrinfo"];
/// Most of stderr that is read.
const STDERR_BYTES_MAX: usize = 16 * 1024;
/// Paths that are looked at.
const PATHS_MAX: usize = 64;
/// Longest path of Linux.
const PATH_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::super::{Ground, ResourceLimits};
    use super::*;

    fn confinement(permissions: &[&str], readable: &Path, hidden: &Path) -> Confinement {
        let limits =
            ResourceLimits { memory_bytes_max: 1, file_bytes_max: 1, open_files_max: 1, processes_max: None };
        let ground = Ground {
            readable: vec![readable.to_owned(), "/usr".into()],
            hidden: vec![hidden.to_owned()],
            user: None,
            limits,
        };
        let permissions: Vec<String> = permissions.iter().map(|text| (*text).to_owned()).collect();
        Confinement::of(&permissions, ground)
    }

    #[test]
    fn words_of_programs_say_which_file_and_which_permission() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        for name in ["agent", "state", "data"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for name in ["state/key", "data/a b.csv"] {
            std::fs::write(at(name), "").unwrap();
        }
        let said = |permissions: &[&str], text: String| {
            let confinement = confinement(permissions, &at("agent"), &at("state"));
            confinement.denied(text.as_bytes(), Path::new("/usr/bin/env"), &at("agent"), None)
        };
        let data = at("data/a b.csv");
        let python = format!("PermissionError: [Errno 13] Permission denied: '{}'\n", data.display());
        let read = Denied::File(data.clone(), "filesystem:read");
        assert_eq!(said(&[], python.clone()), Some(read.clone()));
        let node = format!("Error: EACCES: permission denied, open '{}'\n    at x\n", data.display());
        assert_eq!(said(&["network:read"], node), Some(read));
        // It may read it, so it wanted to write.
        let write = Denied::File(data, "filesystem:write");
        assert_eq!(said(&["filesystem:read"], python.clone()), Some(write));
        assert_eq!(said(&["filesystem:write"], python), None);
        let made = format!("sh: 1: cannot create {}: Permission denied", at("agent/out").display());
        assert_eq!(said(&[], made), Some(Denied::File(at("agent/out"), "filesystem:write")));
        let relative = "PermissionError: [Errno 13] Permission denied: 'out.txt'".to_owned();
        assert_eq!(said(&[], relative), Some(Denied::File(at("agent/out.txt"), "filesystem:write")));
        let key = format!("cat: {}: Permission denied", at("state/key").display());
        assert_eq!(said(&["filesystem:write"], key), Some(Denied::Hidden(at("state/key"))));
        // What is not there was not kept from it.
        assert_eq!(said(&[], "open /nonexistent/a/b: permission denied".to_owned()), None);
        assert_eq!(said(&[], format!("no such file: {}", at("data/a b.csv").display())), None);
    }

    #[test]
    fn words_about_sockets_say_which_permission() {
        let nothing = Path::new("/nonexistent");
        let said = |permissions: &[&str], text: &str| {
            let confinement = confinement(permissions, nothing, nothing);
            confinement.denied(text.as_bytes(), Path::new("/usr/bin/env"), nothing, None)
        };
        let python = "  File \"/usr/lib/python3/socket.py\", line 1\nPermissionError: [Errno 1] Operation not permitted";
        assert_eq!(said(&[], python), Some(Denied::Socket));
        assert_eq!(said(&["network:read"], python), None);
        assert_eq!(said(&[], "curl: (6) Could not resolve host: example.org"), Some(Denied::Socket));
        assert_eq!(said(&[], "Operation not permitted"), None);
        let unix =
            "    s = socket.socket(socket.AF_UNIX)\nPermissionError: [Errno 1] Operation not permitted";
        let node = "Error: connect EPERM /run/x.sock - Local (undefined:undefined)";
        for text in [unix, node] {
            assert_eq!(said(&[], text), Some(Denied::UnixSocket), "{text}");
            assert_eq!(said(&["network:read"], text), Some(Denied::UnixSocket), "{text}");
            assert_eq!(said(&["network:unix"], text), None, "{text}");
        }
    }
}
