//! Compares what a server lists with what was approved: the lock and a list in; what is served, and the lock to keep, out.
//!
//! | the tool | what is served | what waits for approval |
//! | --- | --- | --- |
//! | the same | it | nothing |
//! | schemas compatible by proof | the new schemas with the approved words, as the next minor or patch version | its new words |
//! | schemas incompatible, or not proven | nothing: calls are 5002 | the new form, as the next major version |
//! | words or annotations alone | what was approved | the new words, as the next patch version |
//! | gone, or malformed | nothing: calls are 5002 | nothing |
//! | new after the first import | nothing | it, as 1.0.0 |

use std::collections::BTreeMap;

use capd_proto::capability::{CapabilityName, Version};
use capd_proto::limits::NAME_BYTES_MAX;
use capd_schema::compat::version::Bump;
use capd_schema::compat::{Compatibility, Contract, Lost, Outcome, Refutation, Terms, compare, version};

use super::kind::Kind;
use super::lock::{Change, Entry, Lock, Pending};
use super::tool::{Listed, Tool};
use super::words::{with_words_of, without_words};

/// What became of each tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Why calls of a tool are refused, by the tool's name; a tool that is not here is served.
    pub unserved: BTreeMap<String, String>,
    /// What is worth a line of the log.
    pub news: Vec<String>,
}

/// Holds a list against the lock, and changes the lock to what it is from here on. `is_first` when there was no lock.
pub fn reconcile(lock: &mut Lock, is_first: bool, namespace: &str, listed: &Listed) -> Reconciled {
    let (kind, item) = (listed.kind, listed.kind.item);
    let mut done = Reconciled::default();
    for tool in &listed.tools {
        match lock.entry_mut(&tool.name) {
            Some(entry) => compare_entry(kind, entry, tool, &mut done),
            None => match capability_of(kind, lock, namespace, &tool.name) {
                Ok(capability) => add(kind, lock, tool, capability, is_first, &mut done),
                Err(reason) => {
                    done.unserved.insert(tool.name.clone(), reason.clone());
                    done.news.push(format!("{item} {:?} is not served: {reason}", tool.name));
                }
            },
        }
    }
    for quarantined in &listed.quarantined {
        let (name, reason) = (&quarantined.name, &quarantined.reason);
        done.news.push(format!("{item} {name:?} is quarantined: {reason}"));
        if listed.tools.iter().all(|tool| tool.name != *name) && lock.entry(name).is_some() {
            done.unserved.insert(
                name.clone(),
                format!("the {} lists a form of it that is malformed: {reason}", kind.peer),
            );
        }
    }
    for entry in &lock.tools {
        let is_listed = listed.tools.iter().any(|tool| tool.name == entry.name);
        if !is_listed && !done.unserved.contains_key(&entry.name) {
            done.unserved.insert(entry.name.clone(), format!("the {} no longer lists it", kind.peer));
            done.news.push(format!("{item} {:?} is gone", entry.name));
        }
    }
    lock.tools.sort_by(|a, b| a.name.cmp(&b.name));
    done
}

fn add(kind: &Kind, lock: &mut Lock, tool: &Tool, capability: String, is_first: bool, done: &mut Reconciled) {
    if !is_first {
        let reason = format!("it is new and waits for approval: run {} approve", kind.program);
        done.news.push(format!("{} {:?} is new and waits for approval", kind.item, tool.name));
        done.unserved.insert(tool.name.clone(), reason);
    }
    lock.tools.push(Entry {
        name: tool.name.clone(),
        capability,
        version: "1.0.0".to_owned(),
        hash: tool.hash(),
        idempotent: false,
        approved: is_first,
        definition: tool.definition(),
        pending: None,
    });
}

fn compare_entry(kind: &Kind, entry: &mut Entry, tool: &Tool, done: &mut Reconciled) {
    let (item, program) = (kind.item, kind.program);
    let name = tool.name.clone();
    if !entry.approved {
        // Nobody has seen it yet, so its newest form is what there is to approve.
        (entry.hash, entry.definition) = (tool.hash(), tool.definition());
        done.unserved.insert(name, format!("it is new and waits for approval: run {program} approve"));
        return;
    }
    if tool.hash() == entry.hash {
        // It is as it was approved, perhaps once more.
        entry.pending = None;
        return;
    }
    let known = match entry.tool() {
        Ok(known) => known,
        // The lock file was checked when it was read.
        Err(problem) => {
            done.unserved.insert(name, problem);
            return;
        }
    };
    let (old, new) = match (contract(kind, &known), contract(kind, tool)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(problem), _) | (_, Err(problem)) => {
            done.unserved.insert(name, problem);
            return;
        }
    };
    let at: Version = entry.version.parse().expect("the lock file was checked when it was read");
    let step = version::needed(&old, &new);
    if step == Some(Bump::Major) {
        let why = why(&compare(&old, &new));
        let pending = pending(tool, Change::Incompatible, &why, next(&at, Bump::Major));
        let is_news = entry.pending.as_ref() != Some(&pending);
        entry.pending = Some(pending);
        let reason = format!("its schemas have changed incompatibly ({why}); run {program} approve");
        if is_news {
            done.news.push(format!("{item} {name:?} waits for approval: {reason}"));
        }
        done.unserved.insert(name, reason);
        return;
    }
    if let Some(step) = step {
        let served = served(tool, &known);
        let from = std::mem::replace(&mut entry.version, next(&at, step));
        done.news.push(format!(
            "{item} {name:?} is served as {} instead of {from}: its schemas have changed compatibly; {}",
            entry.version,
            difference(&known, &served)
        ));
        (entry.hash, entry.definition) = (served.hash(), served.definition());
    }
    if tool.hash() == entry.hash {
        entry.pending = None;
        return;
    }
    let at = entry.version.parse::<Version>().expect("it was made from one");
    let why = words(&entry.tool().unwrap_or(known), tool);
    let pending = pending(tool, Change::Words, &why, next(&at, Bump::Patch));
    if entry.pending.as_ref() != Some(&pending) {
        done.news
            .push(format!("{item} {name:?} keeps its approved words; the new ones wait for approval: {why}"));
    }
    entry.pending = Some(pending);
}

/// The new schemas with the words that were approved.
fn served(new: &Tool, approved: &Tool) -> Tool {
    let none = serde_json::Value::Null;
    let output = new.output.as_ref();
    Tool {
        name: new.name.clone(),
        description: approved.description.clone(),
        input: with_words_of(&new.input, &approved.input),
        output: output.map(|schema| with_words_of(schema, approved.output.as_ref().unwrap_or(&none))),
        annotations: approved.annotations.clone(),
    }
}

fn pending(tool: &Tool, change: Change, why: &str, version: String) -> Pending {
    Pending { change, why: why.to_owned(), version, hash: tool.hash(), definition: tool.definition() }
}

/// What a tool asserts, words apart.
fn contract(kind: &Kind, tool: &Tool) -> Result<Contract, String> {
    let read = |document: &str| {
        Terms::read(document.as_bytes()).map_err(|error| format!("its schema cannot be compared: {error}"))
    };
    let output = tool
        .output
        .as_ref()
        .map_or_else(|| kind.result_schema.to_owned(), |schema| without_words(schema).to_string());
    Ok(Contract { input: read(&without_words(&tool.input).to_string())?, output: read(&output)? })
}

/// What is not compatible, with a witness where there is one.
fn why(found: &Compatibility) -> String {
    let said =
        [("arguments", &found.requests), ("result", &found.results)].map(|(side, outcome)| match outcome {
            Outcome::Full => None,
            Outcome::Partial(lost) => {
                let lost: Vec<_> = lost.iter().map(lost_feature).collect();
                Some(format!("{side}: {}", lost.join(", ")))
            }
            Outcome::Unknown { reason, .. } => Some(format!("{side}: {reason}")),
            Outcome::Incompatible(refutation) => Some(format!("{side}: {}", refuted(refutation))),
        });
    said.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn lost_feature(lost: &Lost) -> String {
    match &lost.refutation {
        Some(refutation) => format!("{} {}: {}", lost.path, lost.feature, refuted(refutation)),
        None => format!("{} {}", lost.path, lost.feature),
    }
}

fn refuted(refutation: &Refutation) -> String {
    let mut witness = refutation.witness.to_string();
    if witness.len() > WITNESS_BYTES_MAX {
        witness = "a large value".to_owned();
    }
    format!("{witness} breaks {} at {}", refutation.rule, refutation.path)
}

/// Where the schemas differ, for the log.
fn difference(old: &Tool, new: &Tool) -> String {
    let properties = |tool: &Tool| -> Vec<String> {
        let named = tool.input["properties"].as_object();
        named.into_iter().flat_map(|named| named.keys().cloned()).collect()
    };
    let (old, new) = (properties(old), properties(new));
    let added: Vec<_> = new.iter().filter(|name| !old.contains(name)).map(String::as_str).collect();
    if added.is_empty() {
        return "it accepts at least what it did".to_owned();
    }
    format!("it has the further arguments {}", added.join(", "))
}

/// Which words differ.
fn words(old: &Tool, new: &Tool) -> String {
    let changed = [
        ("description", old.description != new.description),
        ("annotations", old.annotations != new.annotations),
        ("words of inputSchema", old.input != new.input),
        ("words of outputSchema", old.output != new.output),
    ];
    let names: Vec<_> = changed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    names.join(", ")
}

fn next(version: &Version, step: Bump) -> String {
    let (major, minor, patch) = (version.major(), version.minor(), version.patch());
    match step {
        Bump::Major => format!("{}.0.0", major + 1),
        Bump::Minor => format!("{major}.{}.0", minor + 1),
        Bump::Patch => format!("{major}.{minor}.{}", patch + 1),
    }
}

/// The capability of a new tool: what a label cannot hold becomes `-`, and of two names that meet the second gets a number.
fn capability_of(kind: &Kind, lock: &Lock, namespace: &str, name: &str) -> Result<String, String> {
    let label: String =
        name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    let label = match label.trim_matches('-') {
        "" => kind.item,
        label => label,
    };
    let is_free = |capability: &String| lock.tools.iter().all(|entry| entry.capability != *capability);
    let numbered = (2..).map(|number| format!("{namespace}.{label}-{number}"));
    let capability = std::iter::once(format!("{namespace}.{label}")).chain(numbered).find(is_free);
    let capability = capability.unwrap_or_default();
    match CapabilityName::check(&capability) {
        Ok(()) => Ok(capability),
        Err(error) if capability.len() > NAME_BYTES_MAX => {
            Err(format!("its capability's name has more than {NAME_BYTES_MAX} bytes: {error}"))
        }
        Err(error) => Err(format!("{capability} is no capability's name: {error}")),
    }
}

/// Longest witness that a reason quotes.
const WITNESS_BYTES_MAX: usize = 300;

#[cfg(test)]
#[path = "drift_tests.rs"]
mod tests;
