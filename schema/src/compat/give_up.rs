//! Finds what a caller can give up: a payload that the provider refuses in; features to drop, so that it is never sent,
//! out.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Refutation;
use super::lost::Feature;
use super::narrow::{Narrowed, at};
use super::place::{self, Place, Step};
use super::work::Work;

/// What is given up, where, and what is left.
pub(super) struct GivenUp<'s> {
    pub(super) path: String,
    pub(super) feature: Feature,
    pub(super) narrowed: Narrowed<'s>,
}

/// Where a payload is refused, as the caller's schema sees it.
struct Site<'a, 's> {
    narrowed: &'a Narrowed<'s>,
    refutation: &'a Refutation,
    steps: Vec<Step>,
    places: Vec<Place<'s>>,
}

/// The least that a caller can give up: looked for where the payload is refused, and from there outwards.
///
/// A value of an enum or one of several types at the place itself; a branch of an `anyOf` or `oneOf`; an optional
/// property; being open for properties that it does not declare. What is required cannot be given up.
pub(super) fn least<'s>(
    document: &'s Value,
    narrowed: &Narrowed<'s>,
    refutation: &Refutation,
    work: &mut Work,
) -> Option<GivenUp<'s>> {
    let (steps, places) = place::way(document, &refutation.witness, &refutation.path, work)?;
    let site = Site { narrowed, refutation, steps, places };
    // Where a property is refused for its name, giving up one of its values is of no use.
    let is_by_name = NAME_RULES.contains(&refutation.rule.as_str());
    let of_value = if is_by_name { None } else { site.value(work).or_else(|| site.one_type(work)) };
    of_value.or_else(|| {
        let mut outwards = (0..=site.steps.len()).rev();
        outwards.find_map(|depth| site.alternative(depth, work).or_else(|| site.property(depth, work)))
    })
}

/// Being open at the innermost object on the way that lets in what is refused.
pub(super) fn openness<'s>(
    document: &'s Value,
    narrowed: &Narrowed<'s>,
    refutation: &Refutation,
    work: &mut Work,
) -> Option<(GivenUp<'s>, String)> {
    let (steps, places) = place::way(document, &refutation.witness, &refutation.path, work)?;
    let site = Site { narrowed, refutation, steps, places };
    (1..=site.steps.len()).rev().find_map(|depth| match &site.steps[depth - 1] {
        Step::Open { name, .. } => Some((site.closed(depth, work)?, name.clone())),
        Step::Declared(_) | Step::Item => None,
    })
}

impl<'s> Site<'_, 's> {
    fn try_without(&self, depth: usize, inner: Value, way: &[Step], work: &mut Work) -> Option<Narrowed<'s>> {
        self.narrowed.without(at(&self.steps[..depth], inner), &self.refutation.witness, way, work)
    }

    fn value_at(&self, depth: usize) -> Option<&Value> {
        place::value_at(&self.refutation.witness, &self.refutation.path, depth)
    }

    /// Gives up the enum's value that stands there.
    fn value(&self, work: &mut Work) -> Option<GivenUp<'s>> {
        let depth = self.steps.len();
        let value = self.value_at(depth)?;
        let is_listed = self.places[depth].schemas().any(|spoken| {
            let listed = spoken.schema.get("enum").and_then(Value::as_array);
            listed.is_some_and(|listed| listed.contains(value)) || spoken.schema.get("const") == Some(value)
        });
        if !is_listed {
            return None;
        }
        let narrowed = self.try_without(depth, json!({"not": {"const": value}}), &self.steps, work)?;
        Some(GivenUp { path: place::pointer(&self.steps), feature: Feature::Value(value.clone()), narrowed })
    }

    /// Gives up the type of what stands there, where the schema names others beside it.
    fn one_type(&self, work: &mut Work) -> Option<GivenUp<'s>> {
        let depth = self.steps.len();
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for spoken in self.places[depth].schemas() {
            match spoken.schema.get("type") {
                Some(Value::String(one)) => drop(named.insert(one)),
                Some(Value::Array(several)) => named.extend(several.iter().filter_map(Value::as_str)),
                Some(_) | None => {}
            }
        }
        let value = self.value_at(depth)?;
        let kind = *named.iter().find(|kind| is_of(value, kind))?;
        if named.len() < 2 {
            return None;
        }
        let narrowed = self.try_without(depth, json!({"not": {"type": kind}}), &self.steps, work)?;
        let feature = Feature::Type(kind.to_owned());
        Some(GivenUp { path: place::pointer(&self.steps), feature, narrowed })
    }

    /// Gives up a branch at `depth` that the payload is in.
    fn alternative(&self, depth: usize, work: &mut Work) -> Option<GivenUp<'s>> {
        let way = &self.steps[..depth];
        self.places[depth].schemas().find_map(|spoken| {
            ["anyOf", "oneOf"].into_iter().find_map(|key| {
                let branches = spoken.schema.get(key)?.as_array()?;
                branches.iter().enumerate().find_map(|(index, branch)| {
                    let narrowed = self.try_without(depth, json!({"not": branch}), way, work)?;
                    let feature = Feature::Alternative(format!("{}/{key}/{index}", spoken.pointer));
                    Some(GivenUp { path: place::pointer(way), feature, narrowed })
                })
            })
        })
    }

    /// Gives up the property that the way goes through to `depth`.
    fn property(&self, depth: usize, work: &mut Work) -> Option<GivenUp<'s>> {
        match self.steps.get(depth.checked_sub(1)?)? {
            Step::Declared(name) => {
                let none = Map::from_iter([(name.clone(), Value::Bool(false))]);
                let way = &self.steps[..depth - 1];
                let narrowed = self.try_without(depth - 1, json!({"properties": none}), way, work)?;
                let path = place::pointer(&self.steps[..depth]);
                Some(GivenUp { path, feature: Feature::Property, narrowed })
            }
            Step::Open { .. } => self.closed(depth, work),
            Step::Item => None,
        }
    }

    /// Gives up properties beside the declared ones in the object before `depth`.
    fn closed(&self, depth: usize, work: &mut Work) -> Option<GivenUp<'s>> {
        let Step::Open { declared, patterns, .. } = &self.steps[depth - 1] else { return None };
        let all = |names: &BTreeSet<String>| -> Map<String, Value> {
            names.iter().map(|name| (name.clone(), Value::Bool(true))).collect()
        };
        let way = &self.steps[..depth - 1];
        // A name that fits a pattern is open as well, but given up only when it has to be.
        let kept = json!({"properties": all(declared), "patternProperties": all(patterns), "additionalProperties": false});
        let less = json!({"properties": all(declared), "additionalProperties": false});
        let narrowed = self
            .try_without(depth - 1, kept, way, work)
            .or_else(|| self.try_without(depth - 1, less, way, work))?;
        Some(GivenUp { path: place::pointer(way), feature: Feature::Undeclared, narrowed })
    }
}

/// Keywords that refuse a property for its name.
const NAME_RULES: &[&str] =
    &["additionalProperties", "unevaluatedProperties", "propertyNames", "falseSchema"];

fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => {
            let is_whole = !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0);
            kind == "number" || (kind == "integer" && is_whole)
        }
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}
