//! Holds what is declared against what was served before: both in; what has changed under one version and breaks its
//! callers, a sentence each, out.
//!
//! The state folder keeps what was served last, by the declaration and by agents, so that a start finds what changed while
//! the sidecar was down.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use capd_proto::message::{Descriptor, SchemaSource};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::daemon::context::{Ctx, lock};
use crate::declaration::{self, Declaration, Declared};
use crate::schema::Artifacts;
use crate::schema::compat::{self, Contract, Outcome, Terms, Verdict, version};

/// The schemas that were served last, by id.
#[derive(Default, Deserialize, Serialize)]
struct Former {
    capabilities: BTreeMap<String, Schemas>,
}

/// The schemas of one capability, as they were written.
#[derive(PartialEq, Deserialize, Serialize)]
struct Schemas {
    input: Option<String>,
    output: Option<String>,
}

/// What of a declaration breaks callers of the one before under the same version, a sentence each.
pub(in crate::daemon) fn broken(config: &Config, declaration: &Declaration) -> Vec<String> {
    // What cannot be read says nothing; it is written anew when this is served.
    let former = read(&config.agent.dir.join(BY_DECLARATION)).unwrap_or_default();
    declaration
        .capabilities
        .iter()
        .filter_map(|declared| former.broken(&declared.id.to_string(), &Schemas::of(declared)))
        .collect()
}

/// Keeps what is served. A state folder that cannot be written to costs a later start these sentences, no more.
pub(in crate::daemon) fn keep(config: &Config, declaration: &Declaration) {
    // A simulated machine has no folders.
    if !config.agent.dir.is_dir() {
        return;
    }
    let capabilities =
        declaration.capabilities.iter().map(|declared| (declared.id.to_string(), Schemas::of(declared)));
    write_or_tell(&config.agent.dir.join(BY_DECLARATION), &Former { capabilities: capabilities.collect() });
}

/// What agents declare over their links, on its way to what is kept of it.
#[derive(Default)]
pub(super) struct ByAgents(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_at_work: bool,
    declared: BTreeMap<String, Schemas>,
}

impl ByAgents {
    /// Takes what an agent declares. The log is told of what breaks callers, and it is kept, while the agent goes on.
    pub(super) fn take(
        self: &Arc<Self>,
        ctx: &Arc<Ctx>,
        declared: &[Arc<Descriptor>],
        artifacts: &Artifacts,
    ) {
        let dir = ctx.config().agent.dir.clone();
        // A simulated machine has no folders.
        if !dir.is_dir() {
            return;
        }
        let with_schemas = |descriptor: &Arc<Descriptor>| {
            Some((descriptor.id.to_string(), Schemas::of_descriptor(descriptor, artifacts)?))
        };
        let begins = {
            let mut waiting = lock(&self.0);
            waiting.declared.extend(declared.iter().filter_map(with_schemas));
            !std::mem::replace(&mut waiting.is_at_work, true)
        };
        if begins {
            let (all, tasks) = (Arc::clone(self), ctx.tasks.clone());
            // Files and proofs are slow, and links are not to wait for them.
            ctx.spawn(async move {
                tasks.compute(move || all.work(&dir.join(BY_AGENTS))).await;
            });
        }
    }

    fn work(&self, path: &Path) {
        loop {
            let declared = {
                let mut waiting = lock(&self.0);
                waiting.is_at_work = !waiting.declared.is_empty();
                std::mem::take(&mut waiting.declared)
            };
            if declared.is_empty() {
                return;
            }
            let mut former = read(path).unwrap_or_default();
            for sentence in declared.iter().filter_map(|(id, schemas)| former.broken(id, schemas)) {
                tracing::warn!("{sentence}");
            }
            if former.take(declared) {
                write_or_tell(path, &former);
            }
        }
    }
}

impl Former {
    fn broken(&self, id: &str, now: &Schemas) -> Option<String> {
        let former = self.capabilities.get(id).filter(|former| *former != now)?;
        let found = compat::compare(&former.contract(), &now.contract());
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
        Some(format!(
            "{id} breaks its callers under the version that they know: {told}. Declare the change as a {needed} version, or \
             take it back; capctl check tells before a start"
        ))
    }

    /// Adds what agents declare now, and gives up what there is no room for, of others first. `false` if nothing has changed.
    fn take(&mut self, declared: BTreeMap<String, Schemas>) -> bool {
        if declared.iter().all(|(id, schemas)| self.capabilities.get(id) == Some(schemas)) {
            return false;
        }
        let others = std::mem::take(&mut self.capabilities);
        let others = others.into_iter().filter(|(id, _)| !declared.contains_key(id)).collect::<Vec<_>>();
        let mut room = AGENTS_BYTES_MAX;
        for (id, schemas) in declared.into_iter().chain(others) {
            let bytes = id.len() + schemas.bytes() + ENTRY_BYTES;
            if bytes <= room {
                room -= bytes;
                self.capabilities.insert(id, schemas);
            }
        }
        true
    }
}

impl Schemas {
    fn of(declared: &Declared) -> Self {
        let text =
            |schema: &Option<declaration::SchemaSource>| schema.as_ref().map(|schema| text(&schema.bytes));
        Self { input: text(&declared.input_schema), output: text(&declared.output_schema) }
    }

    /// `None` while a schema's bytes are not here.
    fn of_descriptor(descriptor: &Descriptor, artifacts: &Artifacts) -> Option<Self> {
        let document = |source: &Option<SchemaSource>| {
            let found = match source {
                None => return Some(None),
                Some(SchemaSource::Url(uri)) => artifacts.find_uri(uri),
                Some(SchemaSource::Ref(schema)) => artifacts.find(&schema.hash),
            };
            found.map(|artifact| Some(text(artifact.document())))
        };
        Some(Self {
            input: document(&descriptor.input_schema)?,
            output: document(&descriptor.output_schema)?,
        })
    }

    fn contract(&self) -> Contract {
        let terms = |schema: &Option<String>| {
            schema.as_ref().map_or(Terms::Undeclared, |text| Terms::read_foreign(text.as_bytes()))
        };
        Contract { input: terms(&self.input), output: terms(&self.output) }
    }

    fn bytes(&self) -> usize {
        [&self.input, &self.output].into_iter().flatten().map(String::len).sum()
    }
}

fn text(document: &[u8]) -> String {
    String::from_utf8_lossy(document).into_owned()
}

fn read(path: &Path) -> io::Result<Former> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn write_or_tell(path: &Path, former: &Former) {
    if let Err(error) = write(path, former) {
        tracing::warn!(%error, file = %path.display(), "what is declared cannot be kept: a later start cannot say what changed");
    }
}

/// Writes beside the name and renames, so that the name never shows a part.
fn write(path: &Path, former: &Former) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&temporary)?.write_all(&serde_json::to_vec(former)?)?;
    fs::rename(&temporary, path)
}

/// What the declaration served last.
const BY_DECLARATION: &str = "declared.json";
/// What agents served last over their links.
const BY_AGENTS: &str = "declared-by-agents.json";
/// More than the largest declaration has.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most that is kept of what agents declare: an agent may declare other names each time.
const AGENTS_BYTES_MAX: usize = 16 << 20;
/// What one entry counts for beside its texts.
const ENTRY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(ids: impl IntoIterator<Item = usize>, schema: &str) -> BTreeMap<String, Schemas> {
        let schemas = || Schemas { input: Some(schema.to_owned()), output: None };
        ids.into_iter().map(|id| (format!("org.example.c{id}:1.0.0"), schemas())).collect()
    }

    #[test]
    fn what_agents_served_is_bounded_and_what_they_serve_now_comes_first() {
        let mut former = Former::default();
        assert!(former.take(declared(0..3, "{}")));
        assert!(!former.take(declared(1..3, "{}")), "nothing new");
        assert_eq!(former.capabilities.len(), 3, "agents that are away are remembered");
        let large = "x".repeat(AGENTS_BYTES_MAX / 4);
        assert!(former.take(declared(10..13, &large)));
        assert_eq!(former.capabilities.len(), 6);
        assert!(former.take(declared(20..23, &large)));
        let mut expected = declared(0..3, "{}");
        expected.extend(declared(20..23, &large));
        assert!(former.capabilities == expected, "those of large schemas that were away make room");
    }
}
