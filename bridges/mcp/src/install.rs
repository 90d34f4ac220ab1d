//! Writes the configuration of MCP clients: which client in; the entry that starts `capd-mcp serve`, printed or merged, out.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// A client that starts MCP servers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientProgram {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code, for the project in the current folder.
    ClaudeCode,
    /// Visual Studio Code, for the workspace in the current folder.
    Vscode,
    /// Cursor.
    Cursor,
}

/// Why a configuration was not written.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The environment does not say where it is.
    #[error("HOME is not set, so the client's configuration cannot be found")]
    NoHome,
    /// It cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is not what the client writes.
    #[error("{}: {problem}; the file was not changed", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The client's file.
    pub path: PathBuf,
    /// The file as it was before.
    pub copy: Option<PathBuf>,
}

impl ClientProgram {
    /// The client's file.
    ///
    /// **Errors:** [`InstallError::NoHome`].
    pub fn path(self, home: Option<&Path>, folder: &Path) -> Result<PathBuf, InstallError> {
        let home = || home.ok_or(InstallError::NoHome);
        Ok(match self {
            Self::ClaudeDesktop if cfg!(target_os = "macos") => {
                home()?.join("Library/Application Support/Claude/claude_desktop_config.json")
            }
            Self::ClaudeDesktop => home()?.join(".config/Claude/claude_desktop_config.json"),
            Self::ClaudeCode => folder.join(".mcp.json"),
            Self::Vscode => folder.join(".vscode/mcp.json"),
            Self::Cursor => home()?.join(".cursor/mcp.json"),
        })
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor => "mcpServers",
        }
    }

    /// The whole configuration of a client that has no other server.
    pub fn configuration(self, name: &str, program: &Path, arguments: &[String]) -> Value {
        json!({self.key(): {name: self.entry(program, arguments)}})
    }

    fn entry(self, program: &Path, arguments: &[String]) -> Value {
        let entry = json!({"command": program.display().to_string(), "args": arguments});
        match self {
            Self::Vscode | Self::ClaudeCode => {
                let mut entry = entry;
                entry["type"] = "stdio".into();
                entry
            }
            Self::ClaudeDesktop | Self::Cursor => entry,
        }
    }

    /// Puts the entry into the client's file beside what is there, and keeps a copy of the file as it was.
    ///
    /// **Errors:** [`InstallError`]; the file is as it was then.
    pub fn write(
        self,
        path: &Path,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<Written, InstallError> {
        let failed = |error| InstallError::File { path: path.to_owned(), error };
        let wrong = |problem: String| InstallError::Shape { path: path.to_owned(), problem };
        let before = match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let known = match &before {
            None => json!({}),
            Some(text) if text.trim().is_empty() => json!({}),
            Some(text) => serde_json::from_str(text)
                .map_err(|error| wrong(format!("not JSON, perhaps because of comments: {error}")))?,
        };
        let Value::Object(mut root) = known else { return Err(wrong("not a JSON object".to_owned())) };
        let servers = root.entry(self.key()).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(servers) = servers else {
            return Err(wrong(format!("{:?} is no object", self.key())));
        };
        servers.insert(name.to_owned(), self.entry(program, arguments));
        let text = format!("{:#}\n", Value::Object(root));
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let copy = match before {
            Some(before) if before != text => Some(keep(path, &before).map_err(failed)?),
            _ => None,
        };
        replace(path, &text).map_err(failed)?;
        Ok(Written { path: path.to_owned(), copy })
    }
}

/// Writes what a file held into a new one beside it.
fn keep(path: &Path, text: &str) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for number in 0..COPIES_MAX {
        let number = if number == 0 { String::new() } else { format!(".{number}") };
        let copy = path.with_file_name(format!("{name}.before-capd{number}"));
        match fs::File::create_new(&copy) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(copy);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{COPIES_MAX} copies of it are there already; remove some"),
    ))
}

/// Replaces a file as a whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| {
        // The error to report is the first one.
        let _ = fs::remove_file(&temporary);
    })
}

/// Copies that are kept of one file.
const COPIES_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_merged_and_the_old_file_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = ClientProgram::Cursor.path(Some(dir.path()), Path::new("/nowhere")).unwrap();
        let arguments = ["serve".to_owned()];
        let write =
            |program: &str| ClientProgram::Cursor.write(&path, "capd", Path::new(program), &arguments);
        assert_eq!(write("/a").unwrap().copy, None);
        let read = || serde_json::from_str::<Value>(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read(), ClientProgram::Cursor.configuration("capd", Path::new("/a"), &arguments));
        let before = r#"{"theme": "dark", "mcpServers": {"other": {"command": "x"}, "capd": {}}}"#;
        fs::write(&path, before).unwrap();
        let written = write("/b").unwrap();
        assert_eq!(fs::read_to_string(written.copy.unwrap()).unwrap(), before);
        let merged = read();
        assert_eq!(
            (&merged["theme"], &merged["mcpServers"]["other"]["command"]),
            (&json!("dark"), &json!("x"))
        );
        assert_eq!(merged["mcpServers"]["capd"]["command"], "/b");
        assert_eq!(write("/b").unwrap().copy, None, "what does not change needs no copy");
        assert!(write("/c").unwrap().copy.is_some());
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        for before in ["// a comment\n{}", "[]", r#"{"servers": 1}"#] {
            fs::write(&path, before).unwrap();
            let refused = ClientProgram::Vscode.write(&path, "capd", Path::new("/a"), &[]).unwrap_err();
            assert!(refused.to_string().contains("was not changed"), "{refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn each_client_has_its_own_file_and_key() {
        let path = |client: ClientProgram| client.path(Some(Path::new("/h")), Path::new("/p")).unwrap();
        assert_eq!(path(ClientProgram::ClaudeCode), Path::new("/p/.mcp.json"));
        assert_eq!(path(ClientProgram::Vscode), Path::new("/p/.vscode/mcp.json"));
        assert_eq!(path(ClientProgram::Cursor), Path::new("/h/.cursor/mcp.json"));
        let entry = ClientProgram::Vscode.configuration("capd", Path::new("/b"), &["serve".to_owned()]);
        assert_eq!(
            entry,
            json!({"servers": {"capd": {"type": "stdio", "command": "/b", "args": ["serve"]}}})
        );
        assert!(matches!(ClientProgram::Cursor.path(None, Path::new("/p")), Err(InstallError::NoHome)));
    }
}
