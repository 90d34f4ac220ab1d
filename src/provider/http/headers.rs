//! Reads a file of header fields. They may be secrets: nothing here shows a value.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use axum::http::{HeaderName, HeaderValue};

/// Why a file's fields cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum HeadersError {
    /// It cannot be read.
    #[error("headersFile {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others may read it.
    #[error("headersFile {path}: others may read it (mode {mode:04o}); run chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A line is not a field.
    #[error("headersFile {path}:{line}: no \"Name: value\", or a field that capd writes itself")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}

/// Reads a file with one `Name: value` a line; empty lines and lines that begin with `#` are ignored.
///
/// **Errors:** [`HeadersError`].
pub fn load(path: &Path) -> Result<Vec<(HeaderName, HeaderValue)>, HeadersError> {
    let unreadable = |error| HeadersError::Unreadable { path: path.to_owned(), error };
    let mode = std::fs::metadata(path).map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(HeadersError::Exposed { path: path.to_owned(), mode });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| field(line).ok_or_else(|| HeadersError::Line { path: path.to_owned(), line: at }))
        .collect()
}

fn field(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::try_from(name.trim()).ok()?;
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    let is_ours = OURS.contains(&name.as_str()) || name.as_str().starts_with("capd-");
    (!is_ours).then_some((name, value))
}

/// Fields that say how a request is framed, or what it is.
const OURS: [&str; 6] =
    ["host", "content-length", "content-type", "transfer-encoding", "connection", "traceparent"];

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_of_fields_is_private_and_has_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headers");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            load(&path)
        };
        let fields = write("# a comment\n\nAuthorization: Bearer secret\nX-One:1\n", 0o600).unwrap();
        assert_eq!(fields.len(), 2);
        assert!(!format!("{fields:?}").contains("secret"));
        assert!(matches!(write("A: b", 0o640), Err(HeadersError::Exposed { mode: 0o640, .. })));
        for odd in ["Host: x", "no field", "A b: c", "Capd-Call: 1", "A: \u{1}"] {
            assert!(matches!(write(odd, 0o600), Err(HeadersError::Line { line: 1, .. })), "{odd}");
        }
    }
}
