//! Counts how many schemas one place of a document applies to a value, and how deeply they nest.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::FOLLOWED_LEVELS_MAX;
use super::targets::Targets;

/// The schemas that one value is held against, references followed, each as often as it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) all: usize,
    /// Of those, schemas that hold nothing against a value which would be seen there.
    pub(super) unseen: usize,
    /// Most of them that stand in one another.
    pub(super) nested: usize,
}

impl Spread {
    const NONE: Self = Self { all: 0, unseen: 0, nested: 0 };
    const ONE: Self = Self { all: 1, unseen: 1, nested: 1 };
    /// More than any.
    pub(super) const ENDLESS: Self = Self { all: usize::MAX, unseen: usize::MAX, nested: usize::MAX };

    fn add(&mut self, below: Self) {
        self.all = self.all.saturating_add(below.all);
        self.unseen = self.unseen.saturating_add(below.unseen);
        self.nested = self.nested.max(below.nested.saturating_add(1));
    }

    fn widen(&mut self, other: Self) {
        self.all = self.all.max(other.all);
        self.unseen = self.unseen.max(other.unseen);
        self.nested = self.nested.max(other.nested);
    }
}

/// How many schemas one value is held against, from each place where a value meets a schema.
///
/// Definitions that each name the next one twice double this with every step, in a document of a few lines.
pub(super) struct Spreads<'s, 't> {
    targets: &'t Targets<'s>,
    /// By the address of an object.
    known: HashMap<*const Value, Spread>,
    /// By a reference's text; none while it is being followed.
    references: HashMap<&'s str, Option<Spread>>,
    widest: Widest,
}

/// The widest places of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widest {
    /// Of all.
    pub(super) all: Spread,
    /// Of those where what is in a payload is held against a schema.
    pub(super) below: Spread,
    /// Most schemas beside one `unevaluatedItems`, itself among them.
    pub(super) flags: usize,
    /// Whether references lead in a circle on one value.
    pub(super) circles: bool,
}

impl Widest {
    const NONE: Self = Self { all: Spread::NONE, below: Spread::NONE, flags: 0, circles: false };
    /// Wider than any.
    pub(super) const ENDLESS: Self =
        Self { all: Spread::ENDLESS, below: Spread::ENDLESS, flags: usize::MAX, circles: true };
}

impl<'s, 't> Spreads<'s, 't> {
    /// The widest places of a document.
    pub(super) fn widest(schema: &'s Value, targets: &'t Targets<'s>) -> Widest {
        let (known, references) = (HashMap::new(), HashMap::new());
        let mut spreads = Self { targets, known, references, widest: Widest::NONE };
        spreads.everywhere(schema, true);
        let mut all = spreads.at(schema, 0);
        all.widen(spreads.widest.below);
        Widest { all, ..spreads.widest }
    }

    /// `is_once` where the payload as a whole is held against a schema, and nothing that is in it.
    fn everywhere(&mut self, value: &'s Value, is_once: bool) {
        match value {
            Value::Object(members) => {
                // From below, so that each is walked once.
                for (key, member) in members {
                    let is_in_place =
                        matches!(key.as_str(), "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else");
                    self.everywhere(member, is_once && is_in_place);
                    if let ("$ref" | "$dynamicRef", Value::String(reference)) = (key.as_str(), member) {
                        // It may lead back to where the payload as a whole is.
                        let target = self.target(reference, 0);
                        self.widest.below.widen(target);
                    }
                }
                if !is_once {
                    let here = self.at(value, 0);
                    self.widest.below.widen(here);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.everywhere(item, is_once)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn at(&mut self, value: &'s Value, level: usize) -> Spread {
        let Value::Object(members) = value else { return Spread::ONE };
        if level > FOLLOWED_LEVELS_MAX {
            return Spread::ENDLESS;
        }
        let address: *const Value = value;
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let mut spread = Spread { unseen: usize::from(!is_seen(members)), ..Spread::ONE };
        for (key, member) in members {
            match (key.as_str(), member) {
                ("$ref" | "$dynamicRef", Value::String(reference)) => {
                    spread.add(self.target(reference, level + 1));
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                    branches.iter().for_each(|branch| spread.add(self.at(branch, level + 1)));
                }
                ("not" | "if" | "then" | "else", branch) => spread.add(self.at(branch, level + 1)),
                ("dependentSchemas" | "dependencies", Value::Object(branches)) => {
                    branches.values().for_each(|branch| spread.add(self.at(branch, level + 1)));
                }
                _ => {}
            }
        }
        if members.get("unevaluatedItems").is_some_and(|schema| *schema != true) {
            self.widest.flags = self.widest.flags.max(spread.all);
        }
        self.known.insert(address, spread);
        spread
    }

    fn target(&mut self, reference: &'s str, level: usize) -> Spread {
        if let Some(known) = self.references.get(reference) {
            self.widest.circles |= known.is_none();
            // No circle is entered twice.
            return known.unwrap_or(Spread::ONE);
        }
        self.references.insert(reference, None);
        let mut spread = Spread::ONE;
        for target in self.targets.find(reference) {
            spread.widen(self.at(target, level));
        }
        self.references.insert(reference, Some(spread));
        spread
    }
}

/// Whether a schema looks at any value for itself, besides what its branches do.
fn is_seen(members: &Map<String, Value>) -> bool {
    members.iter().any(|(key, value)| match key.as_str() {
        "type" | "enum" | "const" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => true,
        "multipleOf" | "minLength" | "maxLength" | "pattern" => true,
        "properties" => value.as_object().is_some_and(|properties| !properties.is_empty()),
        "required" => value.as_array().is_some_and(|names| !names.is_empty()),
        _ => false,
    })
}
