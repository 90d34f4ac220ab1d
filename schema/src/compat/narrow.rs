//! Narrows a schema by a feature to give up, and proves that the result is smaller.

use serde_json::{Map, Value, json};

use super::place::Step;
use super::work::Work;
use crate::subtype::{Compiled, Verdict as Proof};

/// A schema under further conditions.
#[derive(Debug)]
pub(super) struct Narrowed<'s> {
    document: &'s Value,
    conditions: Vec<Value>,
    pub(super) compiled: Compiled,
}

impl<'s> Narrowed<'s> {
    /// The schema with `conditions`; `None` when that does not compile, or the work has ended.
    pub(super) fn new(document: &'s Value, conditions: Vec<Value>, work: &mut Work) -> Option<Self> {
        let compiled = work.compile(&under(document, &conditions))?;
        Some(Self { document, conditions, compiled })
    }

    /// The same under one condition more.
    ///
    /// `None` unless that rules `witness` out, and leaves payloads in which `way` can still be gone.
    pub(super) fn without(
        &self,
        condition: Value,
        witness: &Value,
        way: &[Step],
        work: &mut Work,
    ) -> Option<Self> {
        let conditions: Vec<_> = self.conditions.iter().cloned().chain([condition]).collect();
        let narrowed = Self::new(self.document, conditions, work)?;
        if !excludes(&narrowed.compiled, witness, work)? {
            return None;
        }
        narrowed.reaches(way, work)?.then_some(narrowed)
    }

    /// Whether some payload goes the whole way; `None` when that is not decided.
    pub(super) fn reaches(&self, way: &[Step], work: &mut Work) -> Option<bool> {
        let conditions = self.conditions.iter().cloned().chain([passes(way)]).collect();
        let those = Self::new(self.document, conditions, work)?;
        is_empty(&those.compiled, work).map(|is_empty| !is_empty)
    }
}

/// `inner`, said of what stands behind a way.
pub(super) fn at(steps: &[Step], inner: Value) -> Value {
    steps.iter().rev().fold(inner, |inner, step| match step {
        Step::Declared(name) => json!({"properties": member(name, inner)}),
        Step::Open { declared, .. } => {
            let named: Map<_, _> = declared.iter().map(|name| (name.clone(), Value::Bool(true))).collect();
            json!({"properties": named, "additionalProperties": inner})
        }
        Step::Item => json!({"items": inner}),
    })
}

/// That a payload has something behind a way.
fn passes(steps: &[Step]) -> Value {
    steps.iter().rev().fold(Value::Bool(true), |inner, step| match step {
        Step::Declared(name) | Step::Open { name, .. } => {
            json!({"type": "object", "required": [name], "properties": member(name, inner)})
        }
        Step::Item => json!({"type": "array", "minItems": 1, "items": inner}),
    })
}

fn member(name: &str, schema: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), schema)])
}

/// A document with conditions added beside what it says; references into it go on to lead where they led.
fn under(document: &Value, conditions: &[Value]) -> Value {
    let Value::Object(members) = document else {
        let first = [document.clone()];
        return json!({"allOf": first.iter().chain(conditions).collect::<Vec<_>>()});
    };
    let mut members = members.clone();
    let mut all = match members.remove("allOf") {
        Some(Value::Array(all)) => all,
        Some(_) | None => Vec::new(),
    };
    // Draft-07 reads nothing beside a reference, so that it cannot stay where it is.
    if let Some(reference) = members.remove("$ref") {
        all.push(json!({"$ref": reference}));
    }
    all.extend(conditions.iter().cloned());
    if !all.is_empty() {
        members.insert("allOf".to_owned(), Value::Array(all));
    }
    Value::Object(members)
}

/// Whether no value fits; `None` when that is not decided.
fn is_empty(schema: &Compiled, work: &mut Work) -> Option<bool> {
    let nothing = work.compile(&Value::Bool(false))?;
    match work.prove(schema, &nothing) {
        Proof::Proven => Some(true),
        Proof::Refuted { .. } => Some(false),
        Proof::Unknown { .. } => None,
    }
}

/// Whether a value does not fit; `None` when that is not decided.
fn excludes(schema: &Compiled, value: &Value, work: &mut Work) -> Option<bool> {
    let just_it = work.compile(&json!({"const": value}))?;
    match work.prove(&just_it, schema) {
        Proof::Proven => Some(false),
        Proof::Refuted { .. } => Some(true),
        Proof::Unknown { .. } => None,
    }
}
