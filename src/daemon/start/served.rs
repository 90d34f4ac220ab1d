//! Keeps which declared capabilities are served, and replaces them by those of another declaration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capd_proto::capability::CapabilityId;
use capd_proto::message::{ContentHash, Descriptor, HashAlg, SchemaSource};
use sha2::{Digest as _, Sha256};

use super::StartError;
use super::contract::{requirements, schema_error};
use super::hashes::hashes;
use super::processes::{folder, place};
use crate::config::Config;
use crate::daemon::executor::{Place, Prepared};
use crate::daemon::sidecar::Sidecar;
use crate::declaration::{Declaration, Declared, SchemaSource as Schema};
use crate::registry::snapshot::ProviderId;
use crate::schema::Fingerprint;
use crate::schema::drift::Requirement;

/// What a declaration has served.
#[derive(Default)]
pub(super) struct Served {
    place: Option<Placed>,
    by_id: BTreeMap<CapabilityId, Serving>,
    /// Schemas of the declaration.
    schemas: BTreeSet<ContentHash>,
    /// What it requires, as it is told.
    requires: BTreeSet<String>,
}

/// Where commands run, and what decides that.
#[derive(Clone)]
struct Placed {
    dir: PathBuf,
    has_commands: bool,
    place: Arc<Place>,
}

struct Serving {
    term: Term,
    provider: ProviderId,
}

/// What a provider is made from: one of the same is the same.
#[derive(Clone, PartialEq)]
struct Term {
    declared: Declared,
    hashes: Option<(Fingerprint, Fingerprint)>,
    /// Of the file with its headers.
    headers: Option<[u8; 32]>,
    message_bytes_max: u32,
}

/// Another declaration, ready to be served.
pub(super) struct Plan {
    place: Option<Placed>,
    added: Vec<(CapabilityId, Term, Prepared)>,
    withdrawn: Vec<CapabilityId>,
    schemas: BTreeSet<ContentHash>,
    requirements: Vec<Requirement>,
    requires: BTreeSet<String>,
    /// Entries before and after, of those that differ.
    pub(super) changes: Vec<(Option<String>, Option<String>)>,
}

impl Plan {
    /// Schemas of the declaration.
    pub(super) fn schemas(&self) -> BTreeSet<ContentHash> {
        self.schemas.clone()
    }
}

impl Served {
    /// Makes ready what a declaration adds to what is served. Nothing is served yet; schemas that are not used after all
    /// are to be [released](Served::release).
    pub(super) fn prepare(
        &self,
        sidecar: &Arc<Sidecar>,
        config: &Config,
        declaration: Option<&Declaration>,
        helper: Option<&PathBuf>,
    ) -> Result<Plan, StartError> {
        let requirements = requirements(declaration, &sidecar.directory.artifacts)?;
        let requires = requirements.iter().map(told).collect();
        let mut plan = Plan {
            place: None,
            added: Vec::new(),
            withdrawn: Vec::new(),
            schemas: declaration.map(schemas).unwrap_or_default(),
            changes: changed(&self.requires, &requires),
            requirements,
            requires,
        };
        let mut terms = BTreeMap::new();
        if let Some(declaration) = declaration {
            let placed = self.placed(sidecar, config, declaration, helper)?;
            let hashes = hashes(declaration)?;
            for declared in &declaration.capabilities {
                let term = Term {
                    declared: declared.clone(),
                    hashes: hashes.of(&declared.id).map(|hashed| (hashed.static_hash, hashed.lineage)),
                    headers: headers(declared, &placed.dir),
                    message_bytes_max: config.limits.msg_size_bytes_max,
                };
                terms.insert(declared.id.clone(), term);
            }
            let is_moved = self.place.as_ref().is_some_and(|known| !Arc::ptr_eq(&known.place, &placed.place));
            for (id, term) in &terms {
                let known = self.by_id.get(id);
                if known.is_some_and(|known| known.term == *term && !is_moved) {
                    continue;
                }
                let prepared = sidecar.executor.prepare_declared(&term.declared, term.hashes, &placed.place);
                let prepared = prepared.map_err(|(schema, error)| match schema {
                    Some(schema) => schema_error(id, schema, &error),
                    None => StartError::System(error),
                })?;
                let Some(prepared) = prepared else { continue };
                let from = known.map(|_| id.to_string());
                let to = if from.is_some() { format!("{id} (changed)") } else { id.to_string() };
                plan.changes.push((from, Some(to)));
                plan.added.push((id.clone(), term.clone(), prepared));
            }
            plan.place = Some(placed);
        }
        let is_served = |id: &CapabilityId| {
            terms.get(id).is_some_and(|term| term.declared.command.is_some() || term.declared.http.is_some())
        };
        for id in self.by_id.keys().filter(|id| !is_served(id)) {
            plan.changes.push((Some(id.to_string()), None));
            plan.withdrawn.push(id.clone());
        }
        Ok(plan)
    }

    /// Serves the capabilities of a plan in place of those that are withdrawn or changed, whose calls in flight go on.
    pub(super) fn commit(&mut self, sidecar: &Arc<Sidecar>, plan: Plan) {
        let (mut withdrawn, mut prepared, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for id in &plan.withdrawn {
            withdrawn.extend(self.by_id.remove(id).map(|serving| serving.provider));
        }
        for (id, term, ready) in plan.added {
            withdrawn.extend(self.by_id.remove(&id).map(|serving| serving.provider));
            if let Some(placed) = &plan.place {
                placed.place.tell(&term.declared);
            }
            prepared.push(ready);
            terms.push((id, term));
        }
        if !prepared.is_empty() || !withdrawn.is_empty() {
            let providers = sidecar.executor.serve_prepared(prepared, &withdrawn);
            let serving = terms.into_iter().zip(providers);
            self.by_id.extend(serving.map(|((id, term), provider)| (id, Serving { term, provider })));
        }
        if self.requires != plan.requires {
            sidecar.caller.replace_requirements(plan.requirements);
        }
        let former = std::mem::replace(&mut self.schemas, plan.schemas);
        (self.place, self.requires) = (plan.place, plan.requires);
        self.release(sidecar, &former);
    }

    /// Lets go of schemas that neither the declaration nor an agent has any more.
    pub(super) fn release(&self, sidecar: &Sidecar, schemas: &BTreeSet<ContentHash>) {
        let snapshot = sidecar.directory.snapshot();
        let of = |descriptor: &Arc<Descriptor>| {
            let sides = [&descriptor.input_schema, &descriptor.output_schema];
            sides.map(|side| match side {
                Some(SchemaSource::Ref(schema)) => Some(schema.hash),
                Some(SchemaSource::Url(_)) | None => None,
            })
        };
        let used: BTreeSet<_> = snapshot.local().flat_map(of).flatten().collect();
        for hash in schemas.iter().filter(|hash| !self.schemas.contains(hash) && !used.contains(hash)) {
            sidecar.directory.artifacts.release(hash);
        }
    }

    /// Where commands run: what it was, unless something that decides it is different.
    fn placed(
        &self,
        sidecar: &Arc<Sidecar>,
        config: &Config,
        declaration: &Declaration,
        helper: Option<&PathBuf>,
    ) -> Result<Placed, StartError> {
        let dir = folder(config)?;
        let is_command = |declared: &Declared| declared.command.is_some();
        let has_commands = declaration.capabilities.iter().any(is_command);
        let is_same = |known: &&Placed| known.dir == dir && (known.has_commands || !has_commands);
        if let Some(known) = self.place.as_ref().filter(is_same) {
            return Ok(known.clone());
        }
        let place = Arc::new(place(sidecar, config, &dir, has_commands, helper.cloned())?);
        Ok(Placed { dir, has_commands, place })
    }
}

/// Every schema of a declaration.
pub(super) fn schemas(declaration: &Declaration) -> BTreeSet<ContentHash> {
    let declared = declaration.capabilities.iter().flat_map(|one| [&one.input_schema, &one.output_schema]);
    let required = declaration.requires.iter().flat_map(|one| [&one.input_schema, &one.output_schema]);
    let hash = |schema: &Schema| ContentHash::of(HashAlg::Sha256, &schema.bytes);
    declared.chain(required).flatten().map(hash).collect()
}

/// The digest of what calls of a program that listens are asked with; the provider reads it when it is made.
fn headers(declared: &Declared, dir: &Path) -> Option<[u8; 32]> {
    let file = declared.http.as_ref()?.headers_file.as_ref()?;
    std::fs::read(dir.join(file)).ok().map(|text| Sha256::digest(text).into())
}

fn told(requirement: &Requirement) -> String {
    let needed = &requirement.needed;
    let mut text = format!("requires {requirement}");
    for (side, schema) in [("input", &needed.input), ("output", &needed.output)] {
        if let Some(schema) = schema {
            text += &format!(" {side} {}", schema.hash());
        }
    }
    text
}

fn changed(from: &BTreeSet<String>, to: &BTreeSet<String>) -> Vec<(Option<String>, Option<String>)> {
    let removed = from.difference(to).map(|text| (Some(text.clone()), None));
    removed.chain(to.difference(from).map(|text| (None, Some(text.clone())))).collect()
}
