//! Holds a declaration against the one that was served before: both in; what has changed under one version and breaks
//! its callers, a sentence each, out.
//!
//! The state folder keeps what was served last, so that a start finds what changed while the sidecar was down.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::declaration::{Declaration, Declared, SchemaSource};
use crate::schema::compat::{self, Contract, Outcome, Terms, Verdict, version};

/// The schemas that were served last, by id.
#[derive(Default, Deserialize, Serialize)]
struct Former {
    capabilities: BTreeMap<String, Schemas>,
}

/// The schemas of one capability, as they were written.
#[derive(Deserialize, Serialize)]
struct Schemas {
    input: Option<String>,
    output: Option<String>,
}

/// What of a declaration breaks callers of the one before under the same version, a sentence each.
pub(super) fn broken(config: &Config, declaration: &Declaration) -> Vec<String> {
    // What cannot be read says nothing; it is written anew when this is served.
    let former = read(&file(config)).unwrap_or_default();
    let broken = |declared: &Declared| former.capabilities.get(&declared.id.to_string())?.broken(declared);
    declaration.capabilities.iter().filter_map(broken).collect()
}

/// Keeps what is served. A state folder that cannot be written to costs a later start these sentences, no more.
pub(super) fn keep(config: &Config, declaration: &Declaration) {
    let path = file(config);
    // A simulated machine has no folders.
    if !config.agent.dir.is_dir() {
        return;
    }
    let capabilities =
        declaration.capabilities.iter().map(|declared| (declared.id.to_string(), Schemas::of(declared)));
    let kept = write(&path, &Former { capabilities: capabilities.collect() });
    if let Err(error) = kept {
        tracing::warn!(%error, file = %path.display(), "what is declared cannot be kept: a later start cannot say what changed");
    }
}

impl Schemas {
    fn of(declared: &Declared) -> Self {
        let text = |schema: &Option<SchemaSource>| {
            Some(String::from_utf8_lossy(&schema.as_ref()?.bytes).into_owned())
        };
        Self { input: text(&declared.input_schema), output: text(&declared.output_schema) }
    }

    fn is_of(&self, declared: &Declared) -> bool {
        let is_same = |former: &Option<String>, now: &Option<SchemaSource>| {
            former.as_ref().map(String::as_bytes) == now.as_ref().map(|schema| &*schema.bytes)
        };
        is_same(&self.input, &declared.input_schema) && is_same(&self.output, &declared.output_schema)
    }

    fn broken(&self, declared: &Declared) -> Option<String> {
        if self.is_of(declared) {
            return None;
        }
        let former = Contract { input: terms(self.input.as_deref()), output: terms(self.output.as_deref()) };
        let source = |schema: &Option<SchemaSource>| {
            schema.as_ref().map_or(Terms::Undeclared, |schema| Terms::read_foreign(&schema.bytes))
        };
        let now = Contract { input: source(&declared.input_schema), output: source(&declared.output_schema) };
        let found = compat::compare(&former, &now);
        // A caller that sends or reads what the other side ignores loses something, and breaks on nothing.
        let is_refused = |outcome: &Outcome| {
            outcome.verdict() == Verdict::Incompatible
                || outcome.lost().iter().any(|lost| lost.refutation.is_some())
        };
        if !is_refused(&found.requests) && !is_refused(&found.results) {
            return None;
        }
        let [requests, results] = [("requests", &found.requests), ("results", &found.results)]
            .map(|(what, outcome)| outcome.sentences(what));
        let told = [requests, results].concat().join("; ");
        let needed = version::of_change(found.verdict(), Verdict::Incompatible);
        let id = &declared.id;
        Some(format!(
            "{id} breaks its callers under the version that they know: {told}. Declare the change as a {needed} version, or \
             take it back; capctl check tells before a start"
        ))
    }
}

fn terms(schema: Option<&str>) -> Terms {
    schema.map_or(Terms::Undeclared, |text| Terms::read_foreign(text.as_bytes()))
}

fn file(config: &Config) -> PathBuf {
    config.agent.dir.join("declared.json")
}

fn read(path: &Path) -> io::Result<Former> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes beside the name and renames, so that the name never shows a part.
fn write(path: &Path, former: &Former) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&temporary)?.write_all(&serde_json::to_vec(former)?)?;
    fs::rename(&temporary, path)
}

/// More than the largest declaration has.
const FILE_BYTES_MAX: u64 = 1 << 30;
