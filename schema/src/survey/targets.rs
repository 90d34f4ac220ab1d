//! Finds the schemas that each reference of a document may lead to.

use std::collections::HashMap;

use serde_json::Value;

use crate::profile::percent_decoded;

/// Where the references of a document may lead. What is told may be too much: a name is not resolved, but all that bear one
/// are taken for it.
pub(super) struct Targets<'s> {
    /// The document, and what in it is a resource of its own.
    roots: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> Targets<'s> {
    pub(super) fn of(schema: &'s Value) -> Self {
        let mut targets = Self { roots: vec![schema], anchors: HashMap::new() };
        targets.take(schema, true);
        targets
    }

    fn take(&mut self, value: &'s Value, is_root: bool) {
        match value {
            Value::Object(members) => {
                let text = |name: &str| members.get(name).and_then(Value::as_str);
                if let Some(id) = text("$id") {
                    match id.split_once('#') {
                        // Draft-07 names places with it.
                        Some((_, anchor)) if !anchor.is_empty() => self.name(anchor, value),
                        _ if !is_root => self.roots.push(value),
                        _ => {}
                    }
                }
                for anchor in ["$anchor", "$dynamicAnchor"].into_iter().filter_map(text) {
                    self.name(anchor, value);
                }
                members.values().for_each(|member| self.take(member, false));
            }
            Value::Array(items) => items.iter().for_each(|item| self.take(item, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn name(&mut self, anchor: &'s str, schema: &'s Value) {
        self.anchors.entry(anchor).or_default().push(schema);
    }

    /// Most that one reference may lead to.
    pub(super) fn widest(&self) -> usize {
        self.anchors.values().map(Vec::len).fold(self.roots.len(), usize::max)
    }

    /// What a reference may lead to.
    pub(super) fn find(&self, reference: &str) -> Vec<&'s Value> {
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let Some(fragment) = percent_decoded(fragment) else { return Vec::new() };
        if fragment.is_empty() {
            // Within a resource of its own it leads to that one.
            return self.roots.clone();
        }
        if fragment.starts_with('/') {
            return self.roots.iter().filter_map(|root| root.pointer(&fragment)).collect();
        }
        self.anchors.get(fragment.as_str()).cloned().unwrap_or_default()
    }
}
