//! A schema document in; what bounds the work of compiling it and of walking a payload with it out.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// What a document holds.
pub(super) struct Survey {
    /// Levels of nesting.
    pub(super) depth: usize,
    /// Regular expressions.
    pub(super) patterns: usize,
    /// Schemas that one value of a payload is held against, each as often as it is reached.
    pub(super) spread: usize,
    /// Schema levels that a walk may nest.
    pub(super) levels: Levels,
    /// Whether members that nothing else looked at are held against a schema.
    pub(super) has_unevaluated: bool,
    /// What references lead to, by how they say so.
    pub(super) targets: usize,
    /// What may be collected to tell which of it nothing else looked at.
    pub(super) collects: Collects,
}

/// What may be collected while a payload is walked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Collects {
    /// Names of objects.
    pub(super) names: bool,
    /// A flag for each item of an array.
    pub(super) items: bool,
}

/// Schema levels that a walk may nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Levels {
    /// No reference leads back: the longest way down, whatever the payload.
    Fixed(usize),
    /// A reference may lead back: at most so many for each level of the payload, since none is entered twice on one
    /// value.
    EachPayloadLevel(usize),
}

impl Levels {
    /// Levels on a payload nested `height` deep.
    pub(super) fn under(self, height: usize) -> usize {
        match self {
            Self::Fixed(levels) => levels,
            Self::EachPayloadLevel(levels) => levels.saturating_mul(height + 1),
        }
    }
}

impl Collects {
    /// Whether anything is.
    pub(super) fn any(self) -> bool {
        self.names || self.items
    }
}

impl Survey {
    /// Looks through a whole document.
    pub(super) fn of(schema: &Value) -> Self {
        let mut count = Count::default();
        count.take(schema, 1);
        let mut ways = Ways { schema, longest: HashMap::new() };
        let levels = match ways.below(schema) {
            Some(levels) => Levels::Fixed(levels),
            None => Levels::EachPayloadLevel(count.objects),
        };
        let mut spreads = Spreads { schema, known: HashMap::new(), widest: 0 };
        spreads.everywhere(schema, 0);
        Self {
            depth: count.depth,
            patterns: count.patterns,
            spread: spreads.widest,
            levels,
            has_unevaluated: count.has_unevaluated,
            targets: count.targets.len(),
            collects: count.collects,
        }
    }
}

#[derive(Default)]
struct Count<'s> {
    depth: usize,
    patterns: usize,
    objects: usize,
    has_unevaluated: bool,
    targets: HashSet<&'s str>,
    collects: Collects,
}

impl<'s> Count<'s> {
    fn take(&mut self, value: &'s Value, depth: usize) {
        self.depth = self.depth.max(depth);
        match value {
            Value::Object(members) => {
                self.objects += 1;
                for (key, member) in members {
                    // `true` asks for nothing.
                    self.collects.names |= key == "unevaluatedProperties" && *member != true;
                    self.collects.items |= key == "unevaluatedItems" && *member != true;
                    if let ("$ref" | "$dynamicRef", Some(target)) = (key.as_str(), member.as_str()) {
                        self.targets.insert(target);
                    }
                    match key.as_str() {
                        "pattern" if member.is_string() => self.patterns += 1,
                        "unevaluatedProperties" => self.has_unevaluated |= member.is_object(),
                        "patternProperties" => self.patterns += member.as_object().map_or(0, Map::len),
                        _ => {}
                    }
                    self.take(member, depth + 1);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.take(item, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The longest way down from each target of a reference.
struct Ways<'s> {
    schema: &'s Value,
    /// By the target's address; `None` while it is being looked at, which a circle comes back to.
    longest: HashMap<*const Value, Option<usize>>,
}

/// Levels that are followed down at once, which bounds this walk's own stack; a longer way counts as endless.
const FOLLOWED_LEVELS_MAX: usize = 1_000;

impl Ways<'_> {
    /// The longest way down from `value`; `None` when it may be endless or cannot be told.
    fn below(&mut self, value: &Value) -> Option<usize> {
        self.down(value, 0)
    }

    fn down(&mut self, value: &Value, level: usize) -> Option<usize> {
        if level > FOLLOWED_LEVELS_MAX {
            return None;
        }
        let mut longest = 0;
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let way = match (key.as_str(), member) {
                        ("$ref", Value::String(reference)) => self.target(reference, level + 1)?,
                        // The document's own name changes nothing for `#/…`; one further inside does.
                        ("$id", Value::String(_)) if level == 0 => 0,
                        ("$dynamicRef" | "$recursiveRef" | "$id", Value::String(_)) => return None,
                        _ => self.down(member, level + 1)?,
                    };
                    longest = longest.max(way);
                }
            }
            Value::Array(items) => {
                for item in items {
                    longest = longest.max(self.down(item, level + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Some(longest + 1)
    }

    fn target(&mut self, reference: &str, level: usize) -> Option<usize> {
        // Anchors and other documents' names are not followed here; such schemas are counted as if they circled.
        let target = self.schema.pointer(reference.strip_prefix('#')?)?;
        let key: *const Value = target;
        if let Some(known) = self.longest.get(&key) {
            return *known;
        }
        self.longest.insert(key, None);
        let way = self.down(target, level)?;
        self.longest.insert(key, Some(way));
        Some(way)
    }
}

/// How many schemas one value is held against, from each place where a value meets a schema.
///
/// Definitions that each name the next one twice double this with every step, in a document of a few lines.
struct Spreads<'s> {
    schema: &'s Value,
    /// By the address of a reference's target; 1 while it is being looked at, since no circle is entered twice.
    known: HashMap<*const Value, usize>,
    widest: usize,
}

impl Spreads<'_> {
    fn everywhere(&mut self, value: &Value, level: usize) {
        let spread = self.at(value, level);
        self.widest = self.widest.max(spread);
        match value {
            Value::Object(members) => members.values().for_each(|member| self.everywhere(member, level)),
            Value::Array(items) => items.iter().for_each(|item| self.everywhere(item, level)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn at(&mut self, value: &Value, level: usize) -> usize {
        if level > FOLLOWED_LEVELS_MAX {
            return usize::MAX;
        }
        let Value::Object(members) = value else { return 1 };
        let mut spread = 1_usize;
        for (key, member) in members {
            let more = match (key.as_str(), member) {
                ("$ref", Value::String(reference)) => self.target(reference, level + 1),
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => branches
                    .iter()
                    .fold(0, |sum: usize, branch| sum.saturating_add(self.at(branch, level + 1))),
                ("not" | "if" | "then" | "else", branch) => self.at(branch, level + 1),
                ("dependentSchemas" | "dependencies", Value::Object(branches)) => branches
                    .values()
                    .fold(0, |sum: usize, branch| sum.saturating_add(self.at(branch, level + 1))),
                _ => 0,
            };
            spread = spread.saturating_add(more);
        }
        spread
    }

    fn target(&mut self, reference: &str, level: usize) -> usize {
        let Some(target) = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer))
        else {
            return 1;
        };
        let key: *const Value = target;
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.known.insert(key, 1);
        let spread = self.at(target, level);
        self.known.insert(key, spread);
        spread
    }
}
