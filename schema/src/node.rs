//! Presents received CBOR as the values that the `jsonschema` crate walks, by implementing its `Json` traits.

use std::borrow::Cow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::rc::Rc;

use capd_proto::cbor::Kind;
use jsonschema::error::ValidationErrorKind;
use jsonschema::json::{self, JsonNumber, NodeIdentity};
use jsonschema::{JsonType, ValidationError};
use jsonschema_value::LazyInstance;
use serde_json::Value;

use super::memo::Memo;
use super::name::{Copies, Name, Tally};
use super::number::Number;
use super::sets::{Set, Sets, TooLarge};
use super::steps::{Steps, Tolls};
use super::values::{Items, Members, Values};

/// The representation: JSON values as CBOR has them. **Source:** PROTOCOL 10.
pub(super) struct Cbor;

/// Values and, while errors are gathered, how many were made.
pub(super) struct Document<'a> {
    values: Values<'a>,
    /// Errors that may be made before containers look empty and the walk runs out.
    errors_max: Cell<u64>,
    errors: Cell<u64>,
    /// Steps of one error, whose path is written and sorted.
    error_steps: u64,
    steps: Rc<Steps>,
    /// While errors are gathered, what is spent on names in them.
    copies: Option<Copies>,
    is_cut: Cell<bool>,
    sets: Sets,
    /// The set that had no room, and the steps that were left then.
    too_large: Cell<Option<(TooLarge, u64)>>,
    memo: Memo,
}

/// Why a walk was ended.
pub(super) enum Ended {
    /// It took more steps than it may.
    Steps,
    /// It would have collected more than it may.
    Sets(TooLarge),
}

/// One value of a document.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    document: &'a Document<'a>,
    /// Where it stands in the payload.
    at: u32,
}

impl<'a> Document<'a> {
    /// A document whose verdict is asked for; it is walked to its end, or as far as `steps` go.
    pub(super) fn new(values: Values<'a>, steps: Rc<Steps>, sets: Sets, memo: Memo) -> Self {
        Self { sets, memo, ..Self::within(values, steps) }
    }

    /// A document that is walked as far as `steps` go, whatever is collected.
    pub(super) fn within(values: Values<'a>, steps: Rc<Steps>) -> Self {
        Self {
            values,
            errors_max: Cell::new(u64::MAX),
            errors: Cell::new(0),
            error_steps: ERROR_STEPS,
            steps,
            copies: None,
            is_cut: Cell::new(false),
            sets: Sets::default(),
            too_large: Cell::new(None),
            memo: Memo::default(),
        }
    }

    /// The steps that a walk over it takes from.
    pub(super) fn steps(&self) -> &Steps {
        &self.steps
    }

    /// A document known to be invalid: each error made on it carries its number, counted from 0, as its instance,
    /// and from `errors_max` on nothing further is looked at. A path is no longer than `path_bytes`.
    pub(super) fn bounded(
        values: Values<'a>,
        steps: Rc<Steps>,
        (sets, memo): (Sets, Memo),
        (errors_max, path_bytes): (u64, usize),
        copies: Copies,
    ) -> Self {
        Self {
            errors_max: Cell::new(errors_max),
            error_steps: ERROR_STEPS + PATH_STEPS_A_BYTE * path_bytes as u64,
            copies: Some(copies),
            ..Self::new(values, steps, sets, memo)
        }
    }

    /// Runs a walk over the document and ends it when it takes or collects more than it may.
    ///
    /// A small schema can ask for a number of visits that grows with each level of a payload. The validating crate has no
    /// way to stop. So from then on each value looks like null, and nothing is in it; what the crate makes of that is
    /// dropped.
    pub(super) fn walk<T>(&'a self, work: impl FnOnce(Node<'a>) -> T) -> Result<T, Ended> {
        let made = self.steps.during(|| work(self.root()));
        if let Some((too_large, left)) = self.too_large.take() {
            self.steps.resume(left);
            return Err(Ended::Sets(too_large));
        }
        if self.steps.is_over() { Err(Ended::Steps) } else { Ok(made) }
    }

    /// Ends the walk: a set has no room.
    #[cold]
    fn end_for(&self, too_large: TooLarge) {
        if !self.steps.is_over() {
            self.too_large.set(Some((too_large, self.steps.pause())));
        }
    }

    /// The value as a whole.
    pub(super) fn root(&'a self) -> Node<'a> {
        Node { document: self, at: 0 }
    }

    /// While errors are gathered, what is spent on names in them.
    pub(super) fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// Ends the walk: no further name may be copied.
    #[cold]
    pub(super) fn cut(&self) {
        if !self.is_spent() {
            self.errors_max.set(self.errors.get());
            self.is_cut.set(true);
        }
    }

    /// Whether what an error says holds. From the last that may be made on containers look empty; the one that lists the
    /// names or items for which the walk was cut lists those that were seen, unless it is a schema that says which names
    /// belong there.
    pub(super) fn holds(&self, error: &ValidationError<'_>) -> bool {
        let is_list = match error.kind() {
            ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::UnevaluatedItems { .. } => true,
            ValidationErrorKind::UnevaluatedProperties { .. } => {
                self.copies().is_some_and(|copies| !copies.is_value_first())
            }
            _ => false,
        };
        let further = u64::from(self.is_cut.get() && is_list);
        error.instance().as_u64().is_some_and(|number| number < self.errors_max.get() + further)
    }

    /// Whether as many errors were made as may be.
    fn is_spent(&self) -> bool {
        self.errors.get() >= self.errors_max.get()
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
        let steps = Steps::current();
        steps.take(STRING_NODE_STEPS);
        f(Document::within(Values::bare(string), steps).root())
    }
}

impl<'a> Node<'a> {
    fn values(self) -> &'a Values<'a> {
        &self.document.values
    }

    fn kind(self) -> Kind {
        if self.take(1) { self.values().kind(self.at) } else { Kind::Null }
    }

    /// Takes steps; `false` once the walk has ended.
    #[inline]
    fn take(self, steps: u64) -> bool {
        self.document.steps.take(steps)
    }

    fn at(self, at: u32) -> Self {
        Self { at, ..self }
    }

    fn text(self) -> Cow<'a, str> {
        self.values().text(self.at)
    }

    fn number(self) -> Option<Number> {
        let argument = || self.values().head(self.at).argument;
        let number = match self.kind() {
            Kind::Unsigned => Some(Number::Unsigned(argument())),
            Kind::Negative => i64::try_from(argument()).ok().map(|number| Number::Negative(-1 - number)),
            Kind::Float => self.values().reader(self.at).float().ok().map(Number::Float),
            _ => None,
        }?;
        let toll = self.document.steps.tolls.number;
        self.take(if toll > 0 { u64::from(toll) + number.bits() / DIVIDED_BITS_A_STEP } else { 1 });
        Some(number)
    }

    fn boolean(self) -> bool {
        self.values().reader(self.at).bool().unwrap_or_default()
    }

    fn items(self) -> Elements<'a> {
        Elements { node: self, items: self.values().items(self.at), last: self.at }
    }

    fn members(self) -> Entries<'a> {
        let begun = self.document.copies().map(Copies::begin).unwrap_or_default();
        Entries { node: self, members: self.values().members(self.at), begun, last: self.at }
    }

    /// The value of the object under `key`.
    fn member(self, key: &[u8]) -> Option<Self> {
        if !self.take(2) {
            return None;
        }
        let (found, looks) = self.values().member(self.at, key);
        let is_taken = self.take(looks * (1 + key.len() as u64 / KEY_BYTES_A_STEP));
        found.filter(|_| is_taken).map(|value| self.at(value))
    }

    /// Takes the steps of reading the text or byte string that it is, and of its content.
    fn take_text(self, bytes_a_step: u64) {
        self.take(self.values().bytes(self.at) / bytes_a_step);
    }

    fn count(self) -> usize {
        self.values().count(self.at)
    }

    /// Equality as JSON Schema has it: numbers by value, objects in any order.
    fn equals(self, other: Self) -> bool {
        let kinds = (self.kind(), other.kind());
        if is_text(kinds.0) && is_text(kinds.1) {
            self.take_text(bytes_a_step(kinds.0, COMPARED_BYTES_A_STEP));
            other.take_text(bytes_a_step(kinds.1, COMPARED_BYTES_A_STEP));
            return self.values().key(self.at) == other.values().key(other.at);
        }
        match kinds {
            (Kind::Null, Kind::Null) => true,
            (Kind::Bool, Kind::Bool) => self.boolean() == other.boolean(),
            (Kind::Array, Kind::Array) => {
                self.count() == other.count() && self.items().zip(other.items()).all(|(a, b)| a.equals(b))
            }
            (Kind::Map, Kind::Map) => {
                self.count() == other.count()
                    && self.values().members(self.at).all(|(key, value)| {
                        let same = other.member(&self.values().key(key));
                        same.is_some_and(|same| self.at(value).equals(same))
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
        match self.kind() {
            Kind::Bool => (1u8, self.boolean()).hash(state),
            Kind::Text | Kind::Bytes => {
                self.take_text(WRITTEN_BYTES_A_STEP);
                (2u8, self.values().key(self.at)).hash(state);
            }
            Kind::Array => {
                (3u8, self.count()).hash(state);
                self.items().for_each(|item| item.hash_into(keys, state));
            }
            Kind::Map => {
                (4u8, self.count()).hash(state);
                let members = self.values().members(self.at).map(|(key, value)| {
                    let mut state = keys.build_hasher();
                    self.take(HASH_STEPS);
                    self.at(key).take_text(WRITTEN_BYTES_A_STEP);
                    self.values().key(key).hash(&mut state);
                    self.at(value).hash_into(keys, &mut state);
                    state.finish()
                });
                // The sum is the same in any order of the members.
                state.write_u64(members.fold(0, u64::wrapping_add));
            }
            Kind::Unsigned | Kind::Negative | Kind::Float => {
                // Equal numbers are equal as floats; adding zero takes the sign from a negative zero.
                let float = self.number().and_then(|number| number.as_f64()).unwrap_or_default() + 0.0;
                (5u8, float.to_bits()).hash(state);
            }
            Kind::Null | Kind::Tag | Kind::Undefined | Kind::Simple | Kind::Break => state.write_u8(0),
        }
    }
}

/// How many code points are encoded in `utf8`.
pub(super) fn code_points(utf8: &[u8]) -> u64 {
    if utf8.is_ascii() {
        return utf8.len() as u64;
    }
    // Every code point has one byte that continues no other.
    utf8.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64
}

/// Whether JSON has it as a string.
const fn is_text(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Bytes)
}

/// Bytes of a string that are looked at in one step, of which there are so many in a text; a byte string is written anew.
const fn bytes_a_step(kind: Kind, of_text: u64) -> u64 {
    if matches!(kind, Kind::Text) { of_text } else { WRITTEN_BYTES_A_STEP }
}

impl<'a> json::Node<'a, Cbor> for Node<'a> {
    type Object = Container<'a>;
    type Array = Container<'a>;
    type Number = Number;

    fn as_object(&self) -> Option<Container<'a>> {
        (self.kind() == Kind::Map).then(|| Container::of(*self))
    }

    fn as_array(&self) -> Option<Container<'a>> {
        (self.kind() == Kind::Array).then(|| Container::of(*self))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let kind = self.kind();
        if !is_text(kind) {
            return None;
        }
        if kind == Kind::Bytes {
            self.take_text(WRITTEN_BYTES_A_STEP);
        }
        let text = self.text();
        self.take(self.document.steps.tolls.string.steps(text.len())).then_some(text)
    }

    fn as_number(&self) -> Option<Number> {
        self.number()
    }

    fn as_boolean(&self) -> Option<bool> {
        (self.kind() == Kind::Bool).then(|| self.boolean())
    }

    fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    fn is_string(&self) -> bool {
        is_text(self.kind())
    }

    fn json_type(&self) -> JsonType {
        match self.kind() {
            Kind::Bool => JsonType::Boolean,
            Kind::Unsigned | Kind::Negative | Kind::Float => JsonType::Number,
            Kind::Text | Kind::Bytes => JsonType::String,
            Kind::Array => JsonType::Array,
            Kind::Map => JsonType::Object,
            Kind::Null | Kind::Tag | Kind::Undefined | Kind::Simple | Kind::Break => JsonType::Null,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let kind = self.kind();
        is_text(kind).then(|| {
            self.take_text(bytes_a_step(kind, COUNTED_BYTES_A_STEP));
            code_points(&self.values().key(self.at))
        })
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match (self.kind(), expected) {
            (Kind::Null, Value::Null) => true,
            (Kind::Bool, Value::Bool(expected)) => self.boolean() == *expected,
            (kind @ (Kind::Text | Kind::Bytes), Value::String(expected)) => {
                if kind == Kind::Bytes {
                    self.take_text(WRITTEN_BYTES_A_STEP);
                }
                self.take(expected.len() as u64 / COMPARED_BYTES_A_STEP);
                *self.values().key(self.at) == *expected.as_bytes()
            }
            (Kind::Array, Value::Array(expected)) => {
                self.count() == expected.len()
                    && self.items().zip(expected).all(|(item, expected)| item.equals_value(expected))
            }
            (Kind::Map, Value::Object(expected)) => {
                self.count() == expected.len()
                    && expected.iter().all(|(key, expected)| {
                        self.member(key.as_bytes()).is_some_and(|value| value.equals_value(expected))
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
        // While errors are gathered, `unevaluatedItems` alone asks: for each item that it refuses, of which the number is
        // told.
        if let Some(copies) = self.document.copies() {
            let is_last = copies.take_item();
            if is_last {
                self.document.cut();
            }
            return Cow::Owned(Value::Bool(is_last));
        }
        Cow::Owned(match self.kind() {
            Kind::Bool => Value::Bool(self.boolean()),
            Kind::Text | Kind::Bytes => Value::String(self.text().into_owned()),
            Kind::Array => Value::Array(self.items().map(|item| item.to_value().into_owned()).collect()),
            Kind::Map => Value::Object(
                self.members()
                    .map(|(name, value)| (Cow::from(name).into_owned(), value.to_value().into_owned()))
                    .collect(),
            ),
            Kind::Unsigned | Kind::Negative | Kind::Float => {
                self.number().map_or(Value::Null, |number| Value::Number(number.to_number().into_owned()))
            }
            Kind::Null | Kind::Tag | Kind::Undefined | Kind::Simple | Kind::Break => Value::Null,
        })
    }

    fn lazy_value(&self) -> LazyInstance<'a> {
        // Messages never quote a payload, so an error carries its number in place of a copy of the value.
        self.take(self.document.error_steps);
        let number = self.document.errors.get();
        self.document.errors.set(number.saturating_add(1));
        if let Some(copies) = self.document.copies() {
            copies.keep(self.at);
        }
        LazyInstance::Ready(Cow::Owned(Value::from(number)))
    }

    fn identity(&self) -> Option<NodeIdentity> {
        let Tolls { identity, circles, .. } = self.document.steps.tolls;
        let is_taken = self.take(2 + u64::from(identity));
        // Once the walk has ended nothing is entered but what is applied to the same value, so only a circle needs it.
        (is_taken || circles)
            .then(|| NodeIdentity::new(self.values().input().as_ptr().addr() + self.at as usize))
    }

    fn container_identity(&self) -> Option<NodeIdentity> {
        let is_container = matches!(self.kind(), Kind::Array | Kind::Map);
        let Memo { bytes_min } = self.document.memo;
        let is_large = || bytes_min == 0 || (self.values().after(self.at) - self.at) as usize >= bytes_min;
        if is_container && is_large() { self.identity() } else { None }
    }
}

/// An array or an object.
pub(super) struct Container<'a> {
    node: Node<'a>,
    /// What the crate collects from it for as long as it holds this.
    set: Set,
}

impl<'a> Container<'a> {
    fn of(node: Node<'a>) -> Self {
        Self { node, set: Set::default() }
    }

    fn sets(&self) -> &'a Sets {
        &self.node.document.sets
    }

    /// Steps of going through a flag for each of `count` items, if it is an array: the crate looks at no value meanwhile, so all of
    /// them are taken before.
    fn flags_steps(&self, count: usize) -> u64 {
        let schemas = u64::from(self.node.document.steps.tolls.flags);
        let is_array = schemas > 0 && self.node.values().kind(self.node.at) == Kind::Array;
        if is_array { schemas.saturating_mul(count as u64) / FLAGS_A_STEP } else { 0 }
    }

    fn len(&self) -> usize {
        let (at, count) = (self.node.at, self.node.count());
        if !self.node.take(1 + self.flags_steps(count)) {
            return 0;
        }
        let steps = |steps| self.node.take(steps);
        match self.set.measure(self.sets(), self.node.values(), at, count, steps) {
            // The crate makes room for as many as there are.
            Ok(()) if self.node.document.steps.is_over() => 0,
            Ok(()) => count,
            Err(too_large) => {
                self.node.document.end_for(too_large);
                0
            }
        }
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        self.set.give_back(self.sets(), || self.node.values().kind(self.node.at) == Kind::Array);
    }
}

impl<'a> json::Object<'a, Cbor> for Container<'a> {
    type Node = Node<'a>;
    type MemberName = Name<'a>;
    type MembersIter = Entries<'a>;

    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, key: &Box<[u8]>) -> Option<Node<'a>> {
        self.set.look(self.sets());
        self.sets().ask(self.node.values(), self.node.at, key);
        let found = self.node.member(key);
        found.filter(|value| value.take(self.node.document.steps.tolls.value.into()))
    }

    fn members(&self) -> Entries<'a> {
        self.node.take(1);
        self.set.look(self.sets());
        self.node.members()
    }
}

impl<'a> json::Array<'a, Cbor> for Container<'a> {
    type Node = Node<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.len()
    }

    fn elements(&self) -> Elements<'a> {
        self.node.take(1);
        self.node.items()
    }

    fn is_unique(&self) -> bool {
        // Comparing each with each is cheaper than hashing up to here.
        const PAIRWISE_COUNT_MAX: usize = 16;
        let (items, count) = (self.node.items(), self.node.count());
        if count <= PAIRWISE_COUNT_MAX {
            let mut first = items;
            while let Some(item) = first.next() {
                if first.clone().any(|later| item.equals(later)) {
                    return false;
                }
            }
            return true;
        }
        // Random keys: a peer cannot choose values whose hashes meet. One half of a hash says in which round a value is
        // held against others, the other half tells it from most of them.
        let keys = RandomState::new();
        let room = HASHES_BYTES_MIN + self.node.values().input().len() / 8;
        let rounds = (count * size_of::<(u32, u32)>()).div_ceil(room) as u64;
        let mut hashed: Vec<(u32, u32)> = Vec::new();
        (0..rounds).all(|round| {
            let hashes = items.clone().filter_map(|item| {
                self.node.take(HASH_STEPS);
                let mut state = keys.build_hasher();
                item.hash_into(&keys, &mut state);
                let hash = state.finish();
                ((hash >> 32) % rounds == round).then_some((hash as u32, item.at))
            });
            hashed.clear();
            hashed.extend(hashes);
            self.node.take(hashed.len() as u64 * SORTED_STEPS);
            hashed.sort_unstable();
            hashed.chunk_by(|a, b| a.0 == b.0).all(|alike| {
                let pairs = alike
                    .iter()
                    .enumerate()
                    .flat_map(|(at, a)| alike[at + 1..].iter().map(move |b| (a.1, b.1)));
                pairs.into_iter().all(|(a, b)| !self.node.at(a).equals(self.node.at(b)))
            })
        })
    }
}

/// Steps of an error, and of each byte of its path.
const ERROR_STEPS: u64 = 60;
const PATH_STEPS_A_BYTE: u64 = 4;
/// Steps of a name that becomes a value of its own.
const STRING_NODE_STEPS: u64 = 8;
/// Steps of a hash besides those of its bytes, and of an item among those that are sorted.
const HASH_STEPS: u64 = 4;
const SORTED_STEPS: u64 = 4;
/// Bytes that are compared, counted, or hashed and written anew, in one step; bytes of a key for which another step is
/// taken with each that it is compared with.
const COMPARED_BYTES_A_STEP: u64 = 64;
const COUNTED_BYTES_A_STEP: u64 = 16;
const WRITTEN_BYTES_A_STEP: u64 = 4;
const KEY_BYTES_A_STEP: u64 = 64;
/// Bits between two numbers that a division takes a step for.
const DIVIDED_BITS_A_STEP: u64 = 12;
/// Flags of items that the crate goes through in one step.
const FLAGS_A_STEP: u64 = 8;

/// Bytes of hashes that are kept at once for the items of an array, and more by the payload's size.
const HASHES_BYTES_MIN: usize = 8 * 1024;

/// The elements of an array.
#[derive(Clone)]
pub(super) struct Elements<'a> {
    node: Node<'a>,
    items: Items<'a>,
    /// Where the last one stands, or else the array.
    last: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.node.document.is_spent() {
            return None;
        }
        let at = self.items.next()?;
        let steps = skipped(&mut self.last, at) + u64::from(self.node.document.steps.tolls.value);
        self.node.take(steps).then(|| self.node.at(at))
    }
}

/// The members of an object.
pub(super) struct Entries<'a> {
    node: Node<'a>,
    members: Members<'a>,
    begun: Tally,
    /// Where the last key stands, or else the object.
    last: u32,
}

/// Steps of going on to what stands at `at`. What is longer than that has its end noted, or its length at its head.
fn skipped(last: &mut u32, at: u32) -> u64 {
    const BYTES_MAX: u32 = 128;
    const BYTES_A_STEP: u32 = 8;
    let bytes = at - std::mem::replace(last, at);
    u64::from(1 + bytes.min(BYTES_MAX) / BYTES_A_STEP)
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Name<'a>, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.node.document.is_spent() {
            return None;
        }
        let (key, value) = self.members.next()?;
        let name = u64::from(value - key) / 8;
        let steps = 1 + skipped(&mut self.last, key) + name + u64::from(self.node.document.steps.tolls.value);
        if !self.node.take(steps) {
            return None;
        }
        Some((Name::new(self.node.at(key).text(), self.node.document), self.node.at(value)))
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        if let Some(copies) = self.node.document.copies() {
            copies.end(self.node.at, self.begun);
        }
    }
}
