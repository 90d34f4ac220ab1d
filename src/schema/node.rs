//! A tape in; the values that the `jsonschema` crate walks out: its `Json` traits over received CBOR.

use std::borrow::Cow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::panic::{self, AssertUnwindSafe};

use jsonschema::JsonType;
use jsonschema::json::{self, JsonNumber, NodeIdentity};
use jsonschema_value::LazyInstance;
use serde_json::Value;

use super::number::Number;
use super::tape::{Entry, Members, Values};

/// The representation: JSON values as CBOR has them. **Source:** PROTOCOL 10.
pub(super) struct Cbor;

/// Values and, while errors are gathered, how many were made.
pub(super) struct Document<'a> {
    values: Values<'a>,
    /// Errors that may be made before containers look empty and the walk runs out; `None` is no bound.
    errors_max: Option<u64>,
    errors: Cell<u64>,
    steps_left: Cell<u64>,
}

/// The walk took more steps than it may.
pub(super) struct Exhausted;

/// One value of a document.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    document: &'a Document<'a>,
    index: u32,
}

impl<'a> Document<'a> {
    /// A document whose verdict is asked for; it is walked to its end.
    pub(super) fn new(values: Values<'a>) -> Self {
        // Far above what a schema of honest size asks of each value.
        const STEPS_BASE: u64 = 1_000_000;
        const STEPS_PER_ENTRY: u64 = 250;
        let steps = STEPS_BASE + STEPS_PER_ENTRY * values.entries.len() as u64;
        Self { values, errors_max: None, errors: Cell::new(0), steps_left: Cell::new(steps) }
    }

    /// A document that is walked as far as `steps` go.
    pub(super) fn within(values: Values<'a>, steps: u64) -> Self {
        Self { values, errors_max: None, errors: Cell::new(0), steps_left: Cell::new(steps) }
    }

    /// Steps that are left of those.
    pub(super) fn steps_left(&self) -> u64 {
        self.steps_left.get()
    }

    /// A document known to be invalid: each error made on it carries its number, counted from 0, as its instance,
    /// and from `errors_max` on nothing further is looked at.
    pub(super) fn bounded(values: Values<'a>, errors_max: u64) -> Self {
        Self { errors_max: Some(errors_max), ..Self::new(values) }
    }

    /// Runs a walk over the document and ends it when it takes more steps than it may.
    ///
    /// A small schema can ask for a number of visits that doubles with each of its definitions. The validating
    /// crate has no way to stop, so the walk is unwound from the next value it looks at.
    pub(super) fn walk<T>(&'a self, work: impl FnOnce(Node<'a>) -> T) -> Result<T, Exhausted> {
        // Nothing of the walk is used after it unwound.
        panic::catch_unwind(AssertUnwindSafe(|| work(self.root()))).or_else(|cause| match cause.downcast() {
            Ok(exhausted) => Err(*exhausted),
            Err(other) => panic::resume_unwind(other),
        })
    }

    fn step(&self) {
        match self.steps_left.get().checked_sub(1) {
            Some(left) => self.steps_left.set(left),
            // No panic hook runs: this is an answer, not a fault.
            None => panic::resume_unwind(Box::new(Exhausted)),
        }
    }

    /// The value as a whole.
    pub(super) fn root(&'a self) -> Node<'a> {
        Node { document: self, index: 0 }
    }

    fn is_spent(&self) -> bool {
        self.errors_max.is_some_and(|max| self.errors.get() >= max)
    }
}

impl json::Json for Cbor {
    type Node<'a> = Node<'a>;
    type PreparedKey = Box<[u8]>;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> Box<[u8]> {
        key.as_bytes().into()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Node<'_>) -> T) -> T {
        // A name is a key of a recorded object, whose length fits.
        let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
        let entries = [Entry::Text { at: 0, length, joined: true }];
        let values = Values { input: &[], entries: &entries, order: &[], joined: string };
        f(Document::new(values).root())
    }
}

impl<'a> Node<'a> {
    fn values(self) -> Values<'a> {
        self.document.values
    }

    fn entry(self) -> Entry {
        self.document.step();
        self.values().entries[self.index as usize]
    }

    fn at(self, index: u32) -> Self {
        Self { index, ..self }
    }

    fn text(self) -> Cow<'a, str> {
        // Checked input is UTF-8, so this borrows.
        String::from_utf8_lossy(self.values().text(self.index))
    }

    fn number(self) -> Option<Number> {
        match self.entry() {
            Entry::Unsigned(number) => Some(Number::Unsigned(number)),
            Entry::Negative(number) => Some(Number::Negative(number)),
            Entry::Float(number) => Some(Number::Float(number)),
            Entry::Null
            | Entry::Bool(_)
            | Entry::Text { .. }
            | Entry::Array { .. }
            | Entry::Object { .. } => None,
        }
    }

    fn items(self, count: u32) -> Elements<'a> {
        Elements { next: self.at(self.index + 1), left: count }
    }

    fn members(self, count: u32) -> Entries<'a> {
        Entries { node: self, members: self.values().members(self.index, count) }
    }

    /// Equality as JSON Schema has it: numbers by value, objects in any order.
    fn equals(self, other: Self) -> bool {
        match (self.entry(), other.entry()) {
            (Entry::Null, Entry::Null) => true,
            (Entry::Bool(a), Entry::Bool(b)) => a == b,
            (Entry::Text { .. }, Entry::Text { .. }) => {
                self.values().text(self.index) == other.values().text(other.index)
            }
            (Entry::Array { count: a, .. }, Entry::Array { count: b, .. }) => {
                a == b && self.items(a).zip(other.items(b)).all(|(a, b)| a.equals(b))
            }
            (Entry::Object { count: a, .. }, Entry::Object { count: b, .. }) => {
                a == b
                    && self.values().members(self.index, a).all(|key| {
                        let same = other.values().member(other.index, self.values().text(key));
                        same.is_some_and(|same| self.at(key + 1).equals(other.at(same)))
                    })
            }
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.equals(b),
                (Some(_), None) | (None, Some(_)) | (None, None) => false,
            },
        }
    }

    /// Hashes so that equal values hash alike.
    fn hash_into(self, keys: &RandomState, state: &mut impl Hasher) {
        match self.entry() {
            Entry::Null => state.write_u8(0),
            Entry::Bool(truth) => (1u8, truth).hash(state),
            Entry::Text { .. } => (2u8, self.values().text(self.index)).hash(state),
            Entry::Array { count, .. } => {
                (3u8, count).hash(state);
                self.items(count).for_each(|item| item.hash_into(keys, state));
            }
            Entry::Object { count, .. } => {
                (4u8, count).hash(state);
                let members = self.values().members(self.index, count).map(|key| {
                    let mut state = keys.build_hasher();
                    self.values().text(key).hash(&mut state);
                    self.at(key + 1).hash_into(keys, &mut state);
                    state.finish()
                });
                // The sum is the same in any order of the members.
                state.write_u64(members.fold(0, u64::wrapping_add));
            }
            Entry::Unsigned(_) | Entry::Negative(_) | Entry::Float(_) => {
                // Equal numbers are equal as floats; adding zero takes the sign from a negative zero.
                let float = self.number().and_then(|number| number.as_f64()).unwrap_or_default() + 0.0;
                (5u8, float.to_bits()).hash(state);
            }
        }
    }
}

impl<'a> json::Node<'a, Cbor> for Node<'a> {
    type Object = Container<'a>;
    type Array = Container<'a>;
    type Number = Number;

    fn as_object(&self) -> Option<Container<'a>> {
        let Entry::Object { count, .. } = self.entry() else { return None };
        Some(Container { node: *self, count })
    }

    fn as_array(&self) -> Option<Container<'a>> {
        let Entry::Array { count, .. } = self.entry() else { return None };
        Some(Container { node: *self, count })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.is_string().then(|| self.text())
    }

    fn as_number(&self) -> Option<Number> {
        self.number()
    }

    fn as_boolean(&self) -> Option<bool> {
        let Entry::Bool(truth) = self.entry() else { return None };
        Some(truth)
    }

    fn is_null(&self) -> bool {
        matches!(self.entry(), Entry::Null)
    }

    fn is_string(&self) -> bool {
        matches!(self.entry(), Entry::Text { .. })
    }

    fn json_type(&self) -> JsonType {
        match self.entry() {
            Entry::Null => JsonType::Null,
            Entry::Bool(_) => JsonType::Boolean,
            Entry::Unsigned(_) | Entry::Negative(_) | Entry::Float(_) => JsonType::Number,
            Entry::Text { .. } => JsonType::String,
            Entry::Array { .. } => JsonType::Array,
            Entry::Object { .. } => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        // Every code point has one byte that continues no other.
        let starts = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64;
        self.is_string().then(|| starts(self.values().text(self.index)))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match (self.entry(), expected) {
            (Entry::Null, Value::Null) => true,
            (Entry::Bool(truth), Value::Bool(expected)) => truth == *expected,
            (Entry::Text { .. }, Value::String(expected)) => {
                self.values().text(self.index) == expected.as_bytes()
            }
            (Entry::Array { count, .. }, Value::Array(expected)) => {
                count as usize == expected.len()
                    && self.items(count).zip(expected).all(|(item, expected)| item.equals_value(expected))
            }
            (Entry::Object { count, .. }, Value::Object(expected)) => {
                count as usize == expected.len()
                    && expected.iter().all(|(key, expected)| {
                        let found = self.values().member(self.index, key.as_bytes());
                        found.is_some_and(|index| self.at(index).equals_value(expected))
                    })
            }
            (_, Value::Number(expected)) => self
                .number()
                .zip(Number::of(expected))
                .is_some_and(|(number, expected)| number.equals(expected)),
            _ => false,
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(match self.entry() {
            Entry::Null => Value::Null,
            Entry::Bool(truth) => Value::Bool(truth),
            Entry::Text { .. } => Value::String(self.text().into_owned()),
            Entry::Array { count, .. } => {
                Value::Array(self.items(count).map(|item| item.to_value().into_owned()).collect())
            }
            Entry::Object { count, .. } => Value::Object(
                self.members(count)
                    .map(|(name, value)| (name.into_owned(), value.to_value().into_owned()))
                    .collect(),
            ),
            Entry::Unsigned(_) | Entry::Negative(_) | Entry::Float(_) => {
                self.number().map_or(Value::Null, |number| Value::Number(number.to_number().into_owned()))
            }
        })
    }

    fn lazy_value(&self) -> LazyInstance<'a> {
        // Messages never quote a payload, so an error carries its number in place of a copy of the value.
        let number = self.document.errors.get();
        self.document.errors.set(number.saturating_add(1));
        LazyInstance::Ready(Cow::Owned(Value::from(number)))
    }

    fn identity(&self) -> Option<NodeIdentity> {
        self.document.step();
        let entry: *const Entry = &self.values().entries[self.index as usize];
        Some(NodeIdentity::new(entry.addr()))
    }
}

/// An array or an object.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    node: Node<'a>,
    count: u32,
}

impl<'a> json::Object<'a, Cbor> for Container<'a> {
    type Node = Node<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = Entries<'a>;

    fn len(&self) -> usize {
        self.count as usize
    }

    fn get(&self, key: &Box<[u8]>) -> Option<Node<'a>> {
        self.node.values().member(self.node.index, key).map(|index| self.node.at(index))
    }

    fn members(&self) -> Entries<'a> {
        self.node.members(self.count)
    }
}

impl<'a> json::Array<'a, Cbor> for Container<'a> {
    type Node = Node<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.count as usize
    }

    fn elements(&self) -> Elements<'a> {
        self.node.items(self.count)
    }

    fn is_unique(&self) -> bool {
        // Comparing each with each is cheaper than hashing up to here.
        const PAIRWISE_COUNT_MAX: u32 = 16;
        let items = self.node.items(self.count);
        if self.count <= PAIRWISE_COUNT_MAX {
            let mut first = items;
            while let Some(item) = first.next() {
                if first.clone().any(|later| item.equals(later)) {
                    return false;
                }
            }
            return true;
        }
        // Random keys: a peer cannot choose values whose hashes meet.
        let keys = RandomState::new();
        let mut hashed: Vec<(u64, u32)> = items
            .map(|item| {
                let mut state = keys.build_hasher();
                item.hash_into(&keys, &mut state);
                (state.finish(), item.index)
            })
            .collect();
        hashed.sort_unstable();
        hashed.chunk_by(|a, b| a.0 == b.0).all(|alike| {
            let pairs =
                alike.iter().enumerate().flat_map(|(at, a)| alike[at + 1..].iter().map(move |b| (a.1, b.1)));
            pairs.into_iter().all(|(a, b)| !self.node.at(a).equals(self.node.at(b)))
        })
    }
}

/// The elements of an array.
#[derive(Clone)]
pub(super) struct Elements<'a> {
    next: Node<'a>,
    left: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.next.document.is_spent() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let item = self.next;
        self.next = item.at(item.values().after(item.index));
        Some(item)
    }
}

/// The members of an object.
pub(super) struct Entries<'a> {
    node: Node<'a>,
    members: Members<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Cow<'a, str>, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.node.document.is_spent() {
            return None;
        }
        let key = self.members.next()?;
        Some((self.node.at(key).text(), self.node.at(key + 1)))
    }
}
