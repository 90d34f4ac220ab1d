//! Finds every subschema that describes one place of a payload.
//!
//! Branches of `allOf`, `anyOf`, `oneOf`, `then` and `else` all count: a place shows what a schema knows, not what it
//! accepts. Every decision based on a place is proven afterwards.

use std::collections::BTreeSet;

use serde_json::Value;

use super::work::Work;

/// The subschemas that speak about one place of a payload.
#[derive(Clone, Debug, Default)]
pub(super) struct Place<'s> {
    schemas: Vec<Spoken<'s>>,
    /// Their addresses.
    known: BTreeSet<usize>,
}

/// A subschema and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Spoken<'s> {
    pub(super) schema: &'s Value,
    /// JSON pointer into the document.
    pub(super) pointer: String,
}

/// One step into a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To the property of a declared name.
    Declared(String),
    /// To a property that no `properties` names, beside those that some does.
    Open { name: String, declared: BTreeSet<String>, patterns: BTreeSet<String> },
    /// To an item.
    Item,
}

/// Most subschemas that are looked at in one place.
const SCHEMAS_MAX: usize = 1_024;

impl<'s> Place<'s> {
    /// The payload itself.
    pub(super) fn root(document: &'s Value) -> Self {
        let mut place = Self::default();
        place.add(document, document, String::new());
        place
    }

    /// The subschemas, references and branches taken apart.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Spoken<'s>> {
        self.schemas.iter()
    }

    /// How many they are.
    pub(super) const fn width(&self) -> usize {
        self.schemas.len()
    }

    /// The names that some `properties` lists.
    pub(super) fn declared(&self) -> BTreeSet<String> {
        self.members("properties").map(|(name, _)| name.clone()).collect()
    }

    /// The patterns that some `patternProperties` lists.
    pub(super) fn patterns(&self) -> BTreeSet<String> {
        self.members("patternProperties").map(|(name, _)| name.clone()).collect()
    }

    /// Whether names that no `properties` lists have a schema of their own.
    pub(super) fn is_map(&self) -> bool {
        let is_schema = |spoken: &Spoken<'_>| {
            let additional = spoken.schema.get("additionalProperties").and_then(Value::as_object);
            additional.is_some_and(|schema| !schema.is_empty())
        };
        self.schemas.iter().any(is_schema) || self.members("patternProperties").next().is_some()
    }

    /// How a payload goes from here to the property `name`.
    pub(super) fn step(&self, name: &str) -> Step {
        let declared = self.declared();
        if declared.contains(name) {
            Step::Declared(name.to_owned())
        } else {
            Step::Open { name: name.to_owned(), declared, patterns: self.patterns() }
        }
    }

    /// The place behind a step; an item is the one at `index`.
    pub(super) fn after(&self, document: &'s Value, step: &Step, index: usize) -> Self {
        let mut place = Self::default();
        for Spoken { schema, pointer } in &self.schemas {
            match step {
                Step::Declared(name) => {
                    if let Some(inner) = schema.get("properties").and_then(|members| members.get(name)) {
                        place.add(document, inner, format!("{pointer}/properties/{}", escaped(name)));
                    }
                }
                Step::Open { .. } => {
                    if let Some(inner) = schema.get("additionalProperties") {
                        place.add(document, inner, format!("{pointer}/additionalProperties"));
                    }
                    let patterns = schema.get("patternProperties").and_then(Value::as_object);
                    for (name, inner) in patterns.into_iter().flatten() {
                        place.add(document, inner, format!("{pointer}/patternProperties/{}", escaped(name)));
                    }
                }
                Step::Item => place.add_item(document, schema, pointer, index),
            }
        }
        place
    }

    fn add_item(&mut self, document: &'s Value, schema: &'s Value, pointer: &str, index: usize) {
        let tuple = |key: &'static str| {
            let item = schema.get(key)?.as_array()?.get(index)?;
            Some((item, format!("{pointer}/{key}/{index}")))
        };
        let rest = |key: &'static str| {
            let item = schema.get(key).filter(|item| !item.is_array())?;
            Some((item, format!("{pointer}/{key}")))
        };
        let found = tuple("prefixItems").or_else(|| tuple("items"));
        let found = found.or_else(|| rest("items")).or_else(|| rest("additionalItems"));
        if let Some((item, pointer)) = found {
            self.add(document, item, pointer);
        }
    }

    fn add(&mut self, document: &'s Value, schema: &'s Value, pointer: String) {
        if self.schemas.len() >= SCHEMAS_MAX || !self.known.insert(std::ptr::from_ref(schema).addr()) {
            return;
        }
        self.schemas.push(Spoken { schema, pointer: pointer.clone() });
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
        if let Some(to) = reference
            && let Some(target) = document.pointer(to)
        {
            self.add(document, target, to.to_owned());
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let branches = schema.get(key).and_then(Value::as_array);
            for (index, branch) in branches.into_iter().flatten().enumerate() {
                self.add(document, branch, format!("{pointer}/{key}/{index}"));
            }
        }
        for key in ["then", "else"] {
            if let Some(branch) = schema.get(key) {
                self.add(document, branch, format!("{pointer}/{key}"));
            }
        }
    }

    fn members(&self, key: &'static str) -> impl Iterator<Item = (&'s String, &'s Value)> {
        self.schemas.iter().filter_map(move |spoken| spoken.schema.get(key)?.as_object()).flatten()
    }
}

fn escaped(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// The way of a JSON pointer into `payload`, as far as it leads, and the places along it, the payload's own first.
///
/// The second is one longer than the first. A pointer to a missing property leads to where it would stand. `None` when
/// the work has ended.
pub(super) fn way<'s>(
    document: &'s Value,
    payload: &Value,
    pointer: &str,
    work: &mut Work,
) -> Option<(Vec<Step>, Vec<Place<'s>>)> {
    let mut places = vec![Place::root(document)];
    let mut steps = Vec::new();
    let mut at = payload;
    let tokens = pointer.strip_prefix('/').filter(|rest| !rest.is_empty());
    for token in tokens.into_iter().flat_map(|rest| rest.split('/')) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let place = &places[steps.len()];
        if !work.look(place.width()) {
            return None;
        }
        let (step, index, inner) = match at {
            Value::Object(members) => (place.step(&token), 0, members.get(&token)),
            Value::Array(items) => {
                let index = token.parse::<usize>().unwrap_or(usize::MAX);
                (Step::Item, index, items.get(index))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => break,
        };
        let Some(inner) = inner else { break };
        let next = place.after(document, &step, index);
        places.push(next);
        steps.push(step);
        at = inner;
    }
    Some((steps, places))
}

/// The JSON pointer of a way, `/` for the payload itself; `*` for what has no one name.
pub(super) fn pointer(steps: &[Step]) -> String {
    let mut pointer = String::new();
    for step in steps {
        match step {
            Step::Declared(name) => capd_proto::cbor::json::push_token(&mut pointer, name),
            Step::Open { .. } | Step::Item => pointer.push_str("/*"),
        }
    }
    if pointer.is_empty() { "/".to_owned() } else { pointer }
}

/// What stands at the end of a way into `payload`, `None` when it leads nowhere.
pub(super) fn value_at<'p>(payload: &'p Value, pointer: &str, depth: usize) -> Option<&'p Value> {
    let mut at = payload;
    for token in pointer.strip_prefix('/')?.split('/').take(depth) {
        let token = token.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
            Value::Object(members) => members.get(&token)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(at)
}
