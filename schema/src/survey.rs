//! Bounds the work of compiling a schema document, and of checking a payload with it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::number::Number;
use super::validator::REFERRED_MAX;
use compiled::Compiled;
use spread::{Spreads, Widest};
use targets::Targets;

mod compiled;
mod spread;
mod targets;

/// What a document holds.
pub(super) struct Survey<'s> {
    /// Levels of nesting.
    pub(super) depth: usize,
    /// Regular expressions, those that strings are matched with.
    pub(super) patterns: Vec<&'s str>,
    /// Those that names are matched with.
    pub(super) name_patterns: Vec<&'s str>,
    /// Schemas that are compiled, some of them more than once.
    pub(super) compiled: usize,
    /// Bytes of the pointers to all that is in it: each schema that is compiled has its own.
    pub(super) pointer_bytes: usize,
    /// Schemas that references may lead to, each reference with all that bear its name.
    pub(super) referred: usize,
    /// Most bits between one and a number that others are divided by, if there is one.
    pub(super) divisor_bits: Option<u64>,
    /// Schemas that one value of a payload is held against, each as often as it is reached.
    pub(super) spread: usize,
    /// Most of those that are held against one array beside one `unevaluatedItems`.
    pub(super) flags: usize,
    /// Whether references lead in a circle on one value.
    pub(super) circles: bool,
    /// Most of those that are in one another.
    pub(super) nested: usize,
    /// The same where what is in a payload is held against them, and how many no look at the value shows.
    pub(super) nested_below: usize,
    pub(super) unseen_below: usize,
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

impl<'s> Survey<'s> {
    /// Looks through a whole document.
    pub(super) fn of(schema: &'s Value) -> Self {
        let mut count = Count::default();
        count.take(schema, 1, 0);
        let mut ways = Ways { schema, longest: HashMap::new() };
        let levels = match ways.below(schema) {
            Some(levels) => Levels::Fixed(levels),
            None => Levels::EachPayloadLevel(count.objects),
        };
        let targets = Targets::of(schema);
        let referred = count.targets.len().saturating_mul(targets.widest());
        let is_followed = referred <= REFERRED_MAX;
        let widest = if is_followed { Spreads::widest(schema, &targets) } else { Widest::ENDLESS };
        let Widest { all: spread, below, flags, circles } = widest;
        let compiled = if is_followed { Compiled::count(schema, &targets) } else { usize::MAX };
        // What is compiled once more stands at a pointer that may be as long as any.
        let more = compiled.saturating_sub(count.schemas).saturating_mul(count.longest_pointer);
        Self {
            depth: count.depth,
            patterns: count.patterns,
            name_patterns: count.name_patterns,
            compiled,
            referred,
            pointer_bytes: count.pointer_bytes.saturating_add(more),
            divisor_bits: count.divisor_bits,
            spread: spread.all,
            flags,
            circles,
            nested: spread.nested,
            unseen_below: below.unseen,
            nested_below: below.nested,
            levels,
            has_unevaluated: count.has_unevaluated,
            targets: count.targets.len(),
            collects: count.collects,
        }
    }

    /// All regular expressions.
    pub(super) fn patterns(&self) -> usize {
        self.patterns.len() + self.name_patterns.len()
    }
}

#[derive(Default)]
struct Count<'s> {
    depth: usize,
    patterns: Vec<&'s str>,
    name_patterns: Vec<&'s str>,
    objects: usize,
    /// Objects, and booleans.
    schemas: usize,
    pointer_bytes: usize,
    longest_pointer: usize,
    divisor_bits: Option<u64>,
    has_unevaluated: bool,
    targets: HashSet<&'s str>,
    collects: Collects,
}

impl<'s> Count<'s> {
    fn take(&mut self, value: &'s Value, depth: usize, pointer_bytes: usize) {
        self.depth = self.depth.max(depth);
        self.pointer_bytes = self.pointer_bytes.saturating_add(pointer_bytes);
        self.longest_pointer = self.longest_pointer.max(pointer_bytes);
        match value {
            Value::Object(members) => {
                self.objects += 1;
                self.schemas += 1;
                for (key, member) in members {
                    self.member(key, member);
                    self.take(member, depth + 1, pointer_bytes + 1 + key.len());
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| self.take(item, depth + 1, pointer_bytes + INDEX_BYTES));
            }
            Value::Bool(_) => self.schemas += 1,
            Value::Null | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn member(&mut self, key: &str, member: &'s Value) {
        // `true` asks for nothing.
        self.collects.names |= key == "unevaluatedProperties" && *member != true;
        self.collects.items |= key == "unevaluatedItems" && *member != true;
        match (key, member) {
            ("$ref" | "$dynamicRef", Value::String(target)) => drop(self.targets.insert(target)),
            ("pattern", Value::String(pattern)) => self.patterns.push(pattern),
            ("patternProperties", Value::Object(patterns)) => {
                self.name_patterns.extend(patterns.keys().map(String::as_str));
            }
            ("unevaluatedProperties", Value::Object(_)) => self.has_unevaluated = true,
            ("multipleOf", Value::Number(divisor)) => {
                self.divisor_bits = self.divisor_bits.max(Number::of(divisor).map(Number::bits));
            }
            _ => {}
        }
    }
}

/// Bytes of the step of a pointer to an item.
const INDEX_BYTES: usize = 4;

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
