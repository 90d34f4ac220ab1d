//! Reads file text, variables and flags into settings by key, with their origin; a mistake for everything else.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, OTHER_VARIABLES};
use super::value::{self, Value};
use super::{Mistake, kubernetes};

/// The origin of a value or a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// A line of the file, counted from 1; 0 is the file as a whole.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag, by its dotted key.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(key) => write!(f, "flag {key}"),
        }
    }
}

/// What the layers set, by key; a later layer replaces an earlier one.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings(BTreeMap<&'static str, (Value, Origin)>);

impl Settings {
    /// The value of `path` and where it was set, if a layer did.
    pub(super) fn get(&self, path: &str) -> Option<&(Value, Origin)> {
        self.0.get(path)
    }

    /// Where `path` was set.
    pub(super) fn origin(&self, path: &str) -> Origin {
        self.get(path).map_or(Origin::Default, |(_, origin)| origin.clone())
    }
}

/// Largest configuration file, in bytes; ours, far above any real one.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the file, bounded.
pub(super) fn read(path: &Path) -> Result<String, Mistake> {
    let wrong = |problem: String| Mistake {
        origin: Origin::File { path: path.to_owned(), line: 0 },
        key: String::new(),
        problem,
        accepted: format!("a readable TOML file of at most {FILE_BYTES_MAX} bytes, in UTF-8"),
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| wrong(format!("cannot be opened: {error}")))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        Ok(length) if length as u64 > FILE_BYTES_MAX => Err(wrong("too large".into())),
        Ok(_) => Ok(text),
    }
}

/// Lays the file's keys into `settings`.
pub(super) fn from_file(path: &Path, text: &str, settings: &mut Settings, mistakes: &mut Vec<Mistake>) {
    let origin = |offset: usize| Origin::File { path: path.to_owned(), line: line_of(text, offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        mistakes.push(Mistake {
            origin: origin(error.span().map_or(0, |span| span.start)),
            key: String::new(),
            problem: error.message().to_owned(),
            accepted: "TOML 1.1, each key once".into(),
        });
    }
    if !errors.is_empty() {
        return;
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let mut take = |key: &'static Key, value: &toml::Spanned<DeValue<'_>>, mistakes: &mut Vec<Mistake>| {
        match value::from_toml(key.kind, value, base) {
            Ok(read) => {
                settings.0.insert(key.path, (read, origin(value.span().start)));
            }
            Err(wrong) => mistakes.push(mistake(key, origin(wrong.span.start), wrong.problem)),
        }
    };
    for (name, value) in table.get_ref() {
        let section = name.get_ref().as_ref();
        match (Key::find(section), value.get_ref()) {
            (Some(key), _) => take(key, value, mistakes),
            (None, DeValue::Table(entries)) if is_section(section) => {
                for (entry, value) in entries {
                    let dotted = format!("{section}.{}", entry.get_ref());
                    match Key::find(&dotted) {
                        Some(key) => take(key, value, mistakes),
                        None => mistakes.push(unknown(&dotted, origin(entry.span().start))),
                    }
                }
            }
            (None, _) => mistakes.push(unknown(section, origin(name.span().start))),
        }
    }
}

/// Lays the `CAPD_*` variables into `settings`; gives those that Kubernetes makes, which are none of ours.
pub(super) fn from_environment(
    environment: &[(String, String)],
    settings: &mut Settings,
    mistakes: &mut Vec<Mistake>,
) -> Vec<String> {
    let mut ignored = Vec::new();
    let ours = environment.iter().filter(|(name, _)| name.starts_with("CAPD_"));
    for (name, text) in ours.filter(|(name, _)| OTHER_VARIABLES.iter().all(|(other, _)| other != name)) {
        let origin = Origin::Environment(name.clone());
        match KEYS.iter().find(|key| key.variable() == *name) {
            Some(key) => text_value(key, text, origin, settings, mistakes),
            None if kubernetes::makes(name, text) => ignored.push(name.clone()),
            None => {
                let known: Vec<_> = KEYS.iter().map(Key::variable).collect();
                let meant = crate::text::nearest(name, known.iter().map(String::as_str));
                mistakes.push(Mistake {
                    problem: with_nearest("unknown variable", meant),
                    accepted: near(meant.unwrap_or(name), known.iter().cloned()),
                    origin,
                    key: name.clone(),
                });
            }
        }
    }
    ignored
}

/// Lays the flags into `settings`.
pub(super) fn from_overrides(
    overrides: &[(String, String)],
    settings: &mut Settings,
    mistakes: &mut Vec<Mistake>,
) {
    for (path, text) in overrides {
        let origin = Origin::Flag(path.clone());
        match Key::find(path) {
            Some(key) => text_value(key, text, origin, settings, mistakes),
            None => mistakes.push(unknown(path, origin)),
        }
    }
}

fn text_value(
    key: &'static Key,
    text: &str,
    origin: Origin,
    settings: &mut Settings,
    mistakes: &mut Vec<Mistake>,
) {
    match value::from_text(key.kind, text) {
        Ok(read) => {
            settings.0.insert(key.path, (read, origin));
        }
        Err(problem) => mistakes.push(mistake(key, origin, problem)),
    }
}

fn mistake(key: &Key, origin: Origin, problem: String) -> Mistake {
    Mistake { origin, key: key.path.into(), problem, accepted: key.kind.accepted() }
}

fn unknown(path: &str, origin: Origin) -> Mistake {
    let keys = || KEYS.iter().map(|key| key.path);
    let sections = keys().filter_map(|key| key.split_once('.')).map(|(section, _)| section);
    let meant = crate::text::nearest(path, keys().chain(sections));
    Mistake {
        origin,
        key: path.into(),
        problem: with_nearest("unknown key", meant),
        accepted: near(meant.unwrap_or(path), keys().map(str::to_owned)),
    }
}

/// What is wrong with a word, and which one was probably meant.
fn with_nearest(problem: &str, meant: Option<&str>) -> String {
    meant.map_or_else(|| problem.to_owned(), |meant| format!("{problem}; did you mean {meant:?}?"))
}

fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.path.split_once('.').is_some_and(|(section, _)| section == name))
}

/// The names beside the one asked for: its section's, or all when it names no section we have.
fn near(wanted: &str, names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let separator = if wanted.starts_with("CAPD_") { "__" } else { "." };
    let section = wanted.split_once(separator).map_or(wanted, |(section, _)| section);
    let prefix = format!("{section}{separator}");
    let siblings: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect();
    if siblings.is_empty() { names.join(", ") } else { siblings.join(", ") }
}

/// The line of a byte offset, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
