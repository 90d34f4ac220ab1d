//! Chooses the sidecar: flags, environment and contexts.toml in; the sidecar to use, and why, out.
//!
//! **Shape:** `current = "NAME"` and tables `[context.NAME]` with `socket`, or `address` and `token_file`. The first
//! source that is set wins as a whole: flags, `CAPD_SOCKET`, `CAPD_CONTEXT`, `current`, capd's default socket.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use capd::client::Endpoint;
use serde::{Deserialize, Serialize};

use crate::args::SidecarArgs;
use crate::failure::Failure;

/// What of the process's environment counts.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// contexts.toml.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context that applies when nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// Each context by its name.
    #[serde(default, rename = "context")]
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// One context: exactly one of `socket` and `address`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The sidecar to speak to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its socket, or its address and token file.
    pub(crate) entry: Entry,
    /// What named it, for people.
    pub(crate) source: String,
}

impl Choice {
    /// What the client library connects to. **Errors:** usage, when the token file cannot be read.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        match (&self.entry.socket, self.entry.address, &self.entry.token_file) {
            (Some(socket), ..) => Ok(Endpoint::Unix(socket.clone())),
            (None, Some(addr), Some(token_file)) => {
                let token = fs::read(token_file).map_err(|error| {
                    Failure::usage(format!("token file {}: {error}", token_file.display()))
                })?;
                Ok(Endpoint::Tcp { addr, token: token.trim_ascii().to_vec() })
            }
            (None, Some(_), None) => {
                Err(Failure::usage("an address needs --token-file PATH, or CAPD_TOKEN_FILE"))
            }
            (None, None, _) => Err(Failure::usage(format!("{}: neither socket nor address", self.source))),
        }
    }

    /// The socket path or the address, for people.
    pub(crate) fn place(&self) -> String {
        match (&self.entry.socket, self.entry.address) {
            (Some(socket), _) => socket.display().to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => "nowhere".to_owned(),
        }
    }
}

/// Chooses the sidecar. **Errors:** usage: contexts.toml is broken or lacks the context, or nothing says where.
pub(crate) fn choose(flags: &SidecarArgs, variables: Variables<'_>) -> Result<Choice, Failure> {
    let variable = |name: &str| variables(name).filter(|value| !value.is_empty());
    let token_file = || variable("CAPD_TOKEN_FILE").map(PathBuf::from);
    if let Some(socket) = &flags.socket {
        return Ok(of_socket(socket.clone(), "--socket"));
    }
    if let Some(address) = flags.address {
        let token_file = flags.token_file.clone().or_else(token_file);
        let entry = Entry { address: Some(address), token_file, ..Entry::default() };
        return Ok(Choice { entry, source: "--address".to_owned() });
    }
    let (name, source) = if let Some(name) = &flags.context {
        (Some(name.clone()), "--context")
    } else if let Some(socket) = variable("CAPD_SOCKET") {
        return Ok(of_socket(socket.into(), "CAPD_SOCKET"));
    } else if let Some(name) = variable("CAPD_CONTEXT") {
        (Some(name.to_string_lossy().into_owned()), "CAPD_CONTEXT")
    } else {
        (None, "current context")
    };
    let file = path(variables);
    let contexts = file.as_deref().map(load).transpose()?.unwrap_or_default();
    let Some(name) = name.or(contexts.current) else {
        return state_dir(variables).map(|dir| of_socket(dir.join("capd.sock"), "default")).ok_or_else(
            || {
                Failure::usage("no sidecar is named: use --socket PATH, or set CAPD_SOCKET")
                    .hint(HINT_CONTEXT)
            },
        );
    };
    let Some(entry) = contexts.entries.get(&name) else {
        return Err(unknown(&name, file.as_deref(), contexts.entries.keys()).because(source));
    };
    let mut entry = entry.clone();
    if entry.address.is_some() && entry.token_file.is_none() {
        entry.token_file = token_file();
    }
    Ok(Choice { entry, source: format!("context {name:?} ({source})") })
}

/// Where contexts.toml stands, if the environment has a home.
pub(crate) fn path(variables: Variables<'_>) -> Option<PathBuf> {
    base_dir(variables, "XDG_CONFIG_HOME", ".config").map(|dir| dir.join("capd/contexts.toml"))
}

/// Reads contexts.toml; a file that is not there has no contexts. Relative paths in it start at its directory.
///
/// **Errors:** usage, with file, line and key.
pub(crate) fn load(file: &Path) -> Result<Contexts, Failure> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contexts::default()),
        Err(error) => return Err(Failure::usage(format!("{}: {error}", file.display()))),
    };
    let mut contexts: Contexts = toml::from_str(&text)
        .map_err(|error| Failure::usage(format!("{}: {}", file.display(), error.to_string().trim_end())))?;
    let dir = file.parent().unwrap_or(Path::new(""));
    for (name, entry) in &mut contexts.entries {
        if entry.socket.is_some() == entry.address.is_some() {
            let wrong = if entry.socket.is_some() { "both" } else { "neither" };
            let at = format!("{}: [context.{name}] has {wrong} of socket and address", file.display());
            return Err(Failure::usage(at)
                .hint("accepted: socket = \"PATH\", or address = \"IP:PORT\" and token_file"));
        }
        for path in [&mut entry.socket, &mut entry.token_file].into_iter().flatten() {
            *path = dir.join(&path);
        }
    }
    Ok(contexts)
}

/// Writes contexts.toml as a whole, so that a reader sees the old or the new one.
pub(crate) fn store(file: &Path, contexts: &Contexts) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::unexpected(format!("{}: {error}", file.display()));
    let text = toml::to_string(contexts).map_err(|error| failed(io::Error::other(error)))?;
    let dir = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    let temporary = dir.join(format!(".contexts.{}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut new| new.write_all(text.as_bytes()).and_then(|()| new.sync_all()))
        .and_then(|()| fs::rename(&temporary, file));
    written.map_err(|error| {
        // The error to report is the first one.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

/// The entry that `context set` writes: what the flags name, with absolute paths. **Errors:** usage.
pub(crate) fn entry_of(flags: &SidecarArgs) -> Result<Entry, Failure> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
    };
    let entry = Entry {
        socket: flags.socket.as_ref().map(absolute).transpose()?,
        address: flags.address,
        token_file: flags.token_file.as_ref().map(absolute).transpose()?,
    };
    if entry.socket.is_none() && entry.address.is_none() {
        return Err(Failure::usage(
            "name the sidecar: --socket PATH, or --address IP:PORT with --token-file PATH",
        ));
    }
    Ok(entry)
}

/// A context that contexts.toml does not have.
pub(crate) fn unknown<'a>(
    name: &str,
    file: Option<&Path>,
    known: impl Iterator<Item = &'a String>,
) -> Failure {
    let known: Vec<_> = known.map(String::as_str).collect();
    let place = file.map_or_else(|| "contexts.toml".to_owned(), |file| file.display().to_string());
    let failure = Failure::usage(format!("no context {name:?} in {place}"));
    if known.is_empty() {
        failure.hint(HINT_CONTEXT)
    } else {
        let meant = capd::text::nearest(name, known.iter().copied());
        failure.hint(match meant {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("known contexts: {}", known.join(", ")),
        })
    }
}

fn of_socket(socket: PathBuf, source: &str) -> Choice {
    Choice { entry: Entry { socket: Some(socket), ..Entry::default() }, source: source.to_owned() }
}

/// Where capd keeps its state, its socket among it, unless its configuration says otherwise.
fn state_dir(variables: Variables<'_>) -> Option<PathBuf> {
    base_dir(variables, "XDG_STATE_HOME", ".local/state").map(|dir| dir.join("capd"))
}

fn base_dir(variables: Variables<'_>, name: &str, under_home: &str) -> Option<PathBuf> {
    let variable = |name: &str| variables(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable(name).or_else(|| variable("HOME").map(|home| home.join(under_home)))
}

const HINT_CONTEXT: &str = "write one: capctl context set NAME --socket PATH";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
current = "a"
[context.a]
socket = "a.sock"
[context.b]
address = "127.0.0.1:7003"
token_file = "/t"
[context.c]
address = "127.0.0.1:7004"
"#;

    struct World {
        dir: tempfile::TempDir,
        set: Vec<(&'static str, &'static str)>,
    }

    impl World {
        fn new(text: Option<&str>, set: &[(&'static str, &'static str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            if let Some(text) = text {
                fs::create_dir(dir.path().join("capd")).unwrap();
                fs::write(dir.path().join("capd/contexts.toml"), text).unwrap();
            }
            Self { dir, set: set.to_vec() }
        }

        fn variable(&self, name: &str) -> Option<OsString> {
            if name == "XDG_CONFIG_HOME" {
                return Some(self.dir.path().into());
            }
            self.set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
        }

        fn choose(&self, flags: &SidecarArgs) -> Result<Choice, Failure> {
            choose(flags, &|name| self.variable(name))
        }
    }

    fn context(name: &str) -> SidecarArgs {
        SidecarArgs { context: Some(name.to_owned()), ..SidecarArgs::default() }
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let all = World::new(Some(TEXT), &[("CAPD_SOCKET", "/env"), ("CAPD_CONTEXT", "b")]);
        let socket = SidecarArgs { socket: Some("/flag".into()), ..SidecarArgs::default() };
        assert_eq!(all.choose(&socket).unwrap().place(), "/flag");
        assert_eq!(all.choose(&context("b")).unwrap().place(), "127.0.0.1:7003");
        assert_eq!(all.choose(&SidecarArgs::default()).unwrap().place(), "/env");
        let named = World::new(Some(TEXT), &[("CAPD_SOCKET", ""), ("CAPD_CONTEXT", "b")]);
        assert_eq!(named.choose(&SidecarArgs::default()).unwrap().place(), "127.0.0.1:7003");
        let file = World::new(Some(TEXT), &[]);
        let choice = file.choose(&SidecarArgs::default()).unwrap();
        assert_eq!(choice.entry.socket, Some(file.dir.path().join("capd/a.sock")));
        assert_eq!(choice.source, "context \"a\" (current context)");
    }

    #[test]
    fn without_a_context_the_socket_is_where_capd_puts_it() {
        let home = World::new(None, &[("HOME", "/home/a")]);
        assert_eq!(
            home.choose(&SidecarArgs::default()).unwrap().place(),
            "/home/a/.local/state/capd/capd.sock"
        );
        let state = World::new(None, &[("HOME", "/home/a"), ("XDG_STATE_HOME", "/state")]);
        assert_eq!(state.choose(&SidecarArgs::default()).unwrap().place(), "/state/capd/capd.sock");
        assert!(World::new(None, &[]).choose(&SidecarArgs::default()).is_err());
    }

    #[test]
    fn an_address_takes_its_token_file_from_flag_context_or_environment() {
        let world = World::new(Some(TEXT), &[("CAPD_TOKEN_FILE", "/env")]);
        let token_file = |flags| world.choose(&flags).unwrap().entry.token_file.unwrap();
        assert_eq!(token_file(context("b")), Path::new("/t"));
        assert_eq!(token_file(context("c")), Path::new("/env"));
        let address = SidecarArgs { address: Some("127.0.0.1:1".parse().unwrap()), ..SidecarArgs::default() };
        assert_eq!(token_file(address), Path::new("/env"));
        let bare = World::new(Some(TEXT), &[]).choose(&context("c")).unwrap();
        assert!(bare.endpoint().unwrap_err().to_string().contains("--token-file"));
    }

    #[test]
    fn a_token_is_what_the_file_holds_without_its_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "abc\n").unwrap();
        let addr = "127.0.0.1:1".parse().unwrap();
        let entry = Entry { address: Some(addr), token_file: Some(file), ..Entry::default() };
        let choice = Choice { entry, source: String::new() };
        assert_eq!(choice.endpoint().unwrap(), Endpoint::Tcp { addr, token: b"abc".to_vec() });
    }

    #[test]
    fn a_broken_file_is_refused_with_line_and_key() {
        for (text, said) in [
            ("current = 1", "line 1"),
            ("[context.a]\nsocket = \"/a\"\npath = \"/b\"", "path"),
            ("[context.a]\nsocket = \"/a\"\naddress = \"127.0.0.1:1\"", "both of socket and address"),
            ("[context.a]", "neither of socket and address"),
            ("[context.a]\naddress = \"localhost:1\"", "line 2"),
        ] {
            let error = World::new(Some(text), &[]).choose(&context("a")).unwrap_err();
            assert!(error.to_string().contains(said), "{text:?}: {error}");
            assert!(error.to_string().contains("contexts.toml"), "{text:?}: {error}");
        }
        let error = World::new(Some(TEXT), &[]).choose(&context("z")).unwrap_err();
        assert!(error.to_string().contains("no context \"z\""), "{error}");
    }

    #[test]
    fn a_stored_file_reads_back_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("capd/contexts.toml");
        let mut contexts = Contexts { current: Some("b".to_owned()), ..Contexts::default() };
        contexts.entries.insert("b".to_owned(), Entry { socket: Some("/b.sock".into()), ..Entry::default() });
        store(&file, &contexts).unwrap();
        assert_eq!(load(&file).unwrap(), contexts);
        assert_eq!(fs::read_dir(dir.path().join("capd")).unwrap().count(), 1);
    }
}
