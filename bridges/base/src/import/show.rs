//! Shows a lock file to people: what is served, what waits, and how it differs.

use serde_json::Value;

use super::kind::Kind;
use super::lock::{Change, Entry, Lock, Pending};
use crate::text;

/// One line for each tool, and one for what waits of it.
pub fn status(lock: &Lock, kind: &Kind) -> String {
    let mut out = String::new();
    for entry in &lock.tools {
        let state = if entry.approved { "served" } else { "waits for approval" };
        let idempotent = if entry.idempotent { ", idempotent" } else { "" };
        out += &line(&format!(
            "{}:{}  {state}{idempotent}  ({} {:?})",
            entry.capability, entry.version, kind.item, entry.name
        ));
        if let Some(pending) = &entry.pending {
            out += &line(&format!("  {}", what_waits(pending)));
        }
    }
    let waiting = lock.tools.iter().filter(|entry| is_waiting(entry)).count();
    out += &match waiting {
        0 => format!("{} {}s, nothing waits for approval\n", lock.tools.len(), kind.item),
        waiting => format!(
            "{} {}s, {waiting} wait for approval: read them with {2} diff, then run {2} approve\n",
            lock.tools.len(),
            kind.item,
            kind.program
        ),
    };
    out
}

/// Each change that waits, member by member.
pub fn diff(lock: &Lock, kind: &Kind) -> String {
    let mut out = String::new();
    for entry in lock.tools.iter().filter(|entry| is_waiting(entry)) {
        let old = if entry.approved { parsed(&entry.definition) } else { Value::Null };
        let (new, what) = match &entry.pending {
            Some(pending) => (parsed(&pending.definition), what_waits(pending)),
            None => (parsed(&entry.definition), "is new".to_owned()),
        };
        out += &line(&format!("{} ({} {:?}) {what}", entry.capability, kind.item, entry.name));
        differences("", &old, &new, &mut out);
    }
    if out.is_empty() { "nothing waits for approval\n".to_owned() } else { out }
}

fn is_waiting(entry: &Entry) -> bool {
    !entry.approved || entry.pending.is_some()
}

fn what_waits(pending: &Pending) -> String {
    match pending.change {
        Change::Incompatible => {
            format!("is not served: incompatible, {} waits for approval: {}", pending.version, pending.why)
        }
        Change::Words => format!("keeps its words: {} waits for approval: {}", pending.version, pending.why),
    }
}

fn parsed(definition: &str) -> Value {
    serde_json::from_str(definition).unwrap_or(Value::Null)
}

fn differences(pointer: &str, old: &Value, new: &Value, out: &mut String) {
    if old == new {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for name in names {
            let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            let member = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or(Value::Null);
            differences(&pointer, &member(old), &member(new), out);
        }
        return;
    }
    if !old.is_null() {
        *out += &line(&format!("  - {pointer}: {old}"));
    }
    if !new.is_null() {
        *out += &line(&format!("  + {pointer}: {new}"));
    }
}

/// A line in which foreign text steers no terminal.
fn line(content: &str) -> String {
    format!("{}\n", text::line(content))
}
