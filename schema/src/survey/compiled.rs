//! Counts the schemas that the crate compiles for a document.
//!
//! The crate compiles each once, except those that `unevaluatedProperties` and `unevaluatedItems` follow to find what
//! they evaluate. There, a reference compiles the branches of its target again in place, with their contents.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::FOLLOWED_LEVELS_MAX;
use super::targets::Targets;

/// What is counted of each object, by its address; nothing while that is being counted, which a circle comes back to.
type Known = HashMap<*const Value, usize>;

pub(super) struct Compiled<'s, 't> {
    targets: &'t Targets<'s>,
    whole: Known,
    branch: Known,
    evaluated: Known,
    followed: Known,
}

impl<'s, 't> Compiled<'s, 't> {
    /// Schemas that are compiled.
    pub(super) fn count(schema: &'s Value, targets: &'t Targets<'s>) -> usize {
        let mut compiled = Self {
            targets,
            whole: Known::new(),
            branch: Known::new(),
            evaluated: Known::new(),
            followed: Known::new(),
        };
        compiled.whole(schema, 0)
    }

    /// What a schema takes with all in it.
    fn whole(&mut self, value: &'s Value, level: usize) -> usize {
        self.counted(
            value,
            level,
            |compiled| &mut compiled.whole,
            |compiled, members| {
                let inside = compiled.sum(members.values(), level, Self::whole);
                let evaluated =
                    if is_unevaluated(members) { compiled.evaluated(value, level + 1) } else { 0 };
                inside.saturating_add(evaluated)
            },
        )
    }

    /// The same of a branch, of which whatever looks at the same value is compiled by then.
    fn branch(&mut self, value: &'s Value, level: usize) -> usize {
        self.counted(
            value,
            level,
            |compiled| &mut compiled.branch,
            |compiled, members| {
                let mut sum = if is_unevaluated(members) { compiled.followed(value, level + 1) } else { 0 };
                for (key, member) in members {
                    let is_in_place = in_place(key, member).next().is_some();
                    let count = if is_in_place { Self::branch } else { Self::whole };
                    sum = sum.saturating_add(count(compiled, member, level + 1));
                }
                sum
            },
        )
    }

    /// What it takes to tell what a schema evaluates, where that is asked for the first time.
    fn evaluated(&mut self, value: &'s Value, level: usize) -> usize {
        self.counted(
            value,
            level,
            |compiled| &mut compiled.evaluated,
            |compiled, members| {
                let mut sum = 0_usize;
                for (key, member) in members {
                    let branches: Vec<_> = in_place(key, member).collect();
                    sum = sum.saturating_add(compiled.sum(branches.iter().copied(), level, Self::branch));
                    sum = sum.saturating_add(compiled.sum(branches.into_iter(), level, Self::evaluated));
                    let reference = compiled.target(key, member, level, Self::evaluated);
                    sum = sum.saturating_add(reference);
                    if matches!(
                        key.as_str(),
                        "additionalProperties" | "patternProperties" | "contains" | "items" | "prefixItems"
                    ) {
                        sum = sum.saturating_add(compiled.whole(member, level + 1));
                    }
                }
                sum
            },
        )
    }

    /// The same, where all that it meets is compiled.
    fn followed(&mut self, value: &'s Value, level: usize) -> usize {
        self.counted(
            value,
            level,
            |compiled| &mut compiled.followed,
            |compiled, members| {
                let mut sum = 0_usize;
                for (key, member) in members {
                    sum = sum.saturating_add(compiled.sum(in_place(key, member), level, Self::followed));
                    sum = sum.saturating_add(compiled.target(key, member, level, Self::followed));
                }
                sum
            },
        )
    }

    /// What is counted of an object, and one for itself; what it counts of an array is that of its items.
    fn counted(
        &mut self,
        value: &'s Value,
        level: usize,
        known: impl Fn(&mut Self) -> &mut Known,
        count: impl Fn(&mut Self, &'s Map<String, Value>) -> usize,
    ) -> usize {
        if level > FOLLOWED_LEVELS_MAX {
            return usize::MAX;
        }
        match value {
            Value::Bool(_) => 1,
            Value::Array(items) => items.iter().fold(0, |sum: usize, item| {
                sum.saturating_add(match item {
                    Value::Object(members) => self.object(item, members, &known, &count),
                    item => usize::from(item.is_boolean()),
                })
            }),
            Value::Object(members) => self.object(value, members, &known, &count),
            Value::Null | Value::Number(_) | Value::String(_) => 0,
        }
    }

    fn object(
        &mut self,
        value: &'s Value,
        members: &'s Map<String, Value>,
        known: &impl Fn(&mut Self) -> &mut Known,
        count: &impl Fn(&mut Self, &'s Map<String, Value>) -> usize,
    ) -> usize {
        let address: *const Value = value;
        if let Some(known) = known(self).get(&address) {
            return *known;
        }
        known(self).insert(address, 0);
        let sum = count(self, members).saturating_add(1);
        known(self).insert(address, sum);
        sum
    }

    fn sum(
        &mut self,
        values: impl Iterator<Item = &'s Value>,
        level: usize,
        count: fn(&mut Self, &'s Value, usize) -> usize,
    ) -> usize {
        values.fold(0, |sum, value| sum.saturating_add(count(self, value, level + 1)))
    }

    /// What is counted of a reference's target.
    fn target(
        &mut self,
        key: &str,
        member: &Value,
        level: usize,
        count: fn(&mut Self, &'s Value, usize) -> usize,
    ) -> usize {
        let ("$ref" | "$dynamicRef", Value::String(reference)) = (key, member) else { return 0 };
        let targets = self.targets.find(reference);
        targets.into_iter().map(|target| count(self, target, level + 1)).max().unwrap_or(0)
    }
}

/// The schemas of a keyword that look at the same value.
fn in_place<'s>(keyword: &str, value: &'s Value) -> Box<dyn Iterator<Item = &'s Value> + 's> {
    match (keyword, value) {
        ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => Box::new(branches.iter()),
        ("if" | "then" | "else" | "not", branch) => Box::new(std::iter::once(branch)),
        ("dependentSchemas", Value::Object(branches)) => Box::new(branches.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn is_unevaluated(members: &Map<String, Value>) -> bool {
    let asks = |keyword: &str| members.get(keyword).is_some_and(|schema| *schema != true);
    asks("unevaluatedProperties") || asks("unevaluatedItems")
}
