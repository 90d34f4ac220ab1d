//! Accepts payloads in one pass over their CBOR, or leaves the decision open.
//!
//! Most payloads fit, and most schemas only list an object's members and their types. For those a verdict needs no
//! index, no memory, and nothing of the `jsonschema` crate. This module refuses nothing: whatever a shape cannot
//! decide, [`validator`](super::validator) decides, with all violations. Any doubt about the document or the payload
//! therefore returns early.

use std::cmp::Ordering;

use capd_proto::cbor::{Kind, Reader, short_bytes};
use capd_proto::limits::CBOR_DEPTH_MAX;

use super::node::code_points;

mod compile;
#[cfg(test)]
mod tests;

/// What certainly fits a document.
#[derive(Debug)]
pub(super) struct Quick {
    /// [`ANY`] and [`NEVER`] first.
    shapes: Box<[Shape]>,
    root: u32,
}

impl Quick {
    /// Whether a payload certainly fits.
    ///
    /// **Shape:** `payload` is one CBOR item that [`capd_proto::cbor::check`] accepts.
    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        let mut walk = Walk { shapes: &self.shapes, input: payload, at: 0 };
        walk.value(self.root, 0).is_some() && walk.at == payload.len()
    }
}

/// What the values that fit one schema are.
#[derive(Debug)]
struct Shape {
    /// A bit for each type; with none of them nothing is decided.
    types: u8,
    /// The texts and integers of `enum` or `const`.
    literals: Option<Box<Literals>>,
    /// The least and the greatest integer.
    integers: (i128, i128),
    /// Code points of a text.
    chars: Counts,
    items: Counts,
    members: Counts,
    /// The shape of each item.
    item: u32,
    /// The shape of each member that is no property.
    additional: u32,
    /// In order of their names.
    properties: Box<[Property]>,
    /// A bit for each property that must be there.
    required: u64,
}

#[derive(Debug)]
struct Property {
    name: Text,
    key: Key,
    shape: u32,
    /// Its bit among those that must be there.
    required: u64,
}

/// Each in order.
#[derive(Debug, Default)]
struct Literals {
    texts: Vec<Text>,
    integers: Vec<i128>,
}

impl Literals {
    #[inline]
    fn has(&self, text: &[u8]) -> bool {
        // So few are found faster one by one.
        if self.texts.len() <= 8 {
            self.texts.iter().any(|one| one.is(text))
        } else {
            self.texts.binary_search_by(|one| one.cmp(text)).is_ok()
        }
    }
}

/// A text, and what of it is compared in one step.
#[derive(Debug)]
struct Text {
    start: u64,
    bytes: Box<[u8]>,
}

/// A name as the item that it is where its length stands in the first byte, and what of it is compared in one step.
#[derive(Debug)]
struct Key {
    start: u64,
    mask: u64,
    item: Box<[u8]>,
}

impl Key {
    fn of(name: &str) -> Self {
        if name.len() >= 24 {
            // No first bytes are this one's.
            return Self { start: 1, mask: 0, item: Box::default() };
        }
        let item = [&[0x60 | name.len() as u8], name.as_bytes()].concat();
        let word = |byte_of: fn(u8) -> u8| {
            let mut word = [0; size_of::<u64>()];
            word.iter_mut().zip(&item).for_each(|(to, byte)| *to = byte_of(*byte));
            u64::from_ne_bytes(word)
        };
        Self { start: word(|byte| byte), mask: word(|_| u8::MAX), item: item.into() }
    }

    /// Whether the item is at the start of `rest`, as long as that is no shorter than what is compared.
    #[inline]
    fn begins(&self, rest: &[u8]) -> bool {
        let start = |first: &[u8; 8]| u64::from_ne_bytes(*first) & self.mask;
        rest.first_chunk().is_some_and(|first| start(first) == self.start)
            && (self.item.len() <= size_of::<u64>() || rest.starts_with(&self.item))
    }
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    min: u64,
    max: u64,
}

impl Counts {
    const ALL: Self = Self { min: 0, max: u64::MAX };

    fn has(self, count: u64) -> bool {
        (self.min..=self.max).contains(&count)
    }

    /// Whether there are so many code points in UTF-8.
    fn has_chars_of(self, text: &[u8]) -> bool {
        // Each takes one to four bytes, which mostly tells enough.
        let bytes = text.len() as u64;
        let least = bytes.div_ceil(4);
        (least >= self.min && bytes <= self.max)
            || (bytes >= self.min && least <= self.max && self.has(code_points(text)))
    }
}

impl Text {
    fn of(text: &str) -> Self {
        Self { start: start(text.as_bytes()), bytes: text.as_bytes().into() }
    }

    #[inline]
    fn is(&self, text: &[u8]) -> bool {
        self.bytes.len() == text.len()
            && self.start == start(text)
            && (text.len() <= size_of::<u64>() || *self.bytes == *text)
    }

    /// The order of keys in deterministic CBOR (RFC 8949 4.2.1): shorter ones first.
    fn cmp(&self, text: &[u8]) -> Ordering {
        self.bytes.len().cmp(&text.len()).then_with(|| (*self.bytes).cmp(text))
    }
}

/// A number that no other text of this length has, if that is at most eight bytes.
#[inline]
fn start(text: &[u8]) -> u64 {
    if let Some(first) = text.first_chunk() {
        return u64::from_le_bytes(*first);
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
    }
    text.iter().fold(0, |start, byte| start << 8 | u64::from(*byte))
}

impl Shape {
    fn any() -> Self {
        Self {
            types: u8::MAX,
            literals: None,
            integers: (i128::MIN, i128::MAX),
            chars: Counts::ALL,
            items: Counts::ALL,
            members: Counts::ALL,
            item: ANY,
            additional: ANY,
            properties: Box::default(),
            required: 0,
        }
    }

    fn never() -> Self {
        Self { types: 0, ..Self::any() }
    }

    fn has(&self, types: u8) -> bool {
        self.types & types != 0
    }

    /// Where the property of that name stands.
    fn property(&self, name: &[u8]) -> Option<usize> {
        self.properties.binary_search_by(|property| property.name.cmp(name)).ok()
    }
}

/// The one pass over a payload. `None` is: not decided.
struct Walk<'a> {
    shapes: &'a [Shape],
    input: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn value(&mut self, shape: u32, depth: usize) -> Option<()> {
        let first = *self.input.get(self.at)?;
        if shape == ANY
            && let Some(bytes) = short_bytes(first)
        {
            // One that ends behind the input is not decided where the next look finds nothing.
            self.at += bytes;
            return Some(());
        }
        let shape = self.shapes.get(shape as usize)?;
        match Kind::of(first) {
            Kind::Text if shape.has(STRING) => self.string(shape),
            Kind::Unsigned | Kind::Negative if shape.has(INTEGER) => self.integer(shape),
            Kind::Array if shape.has(ARRAY) => self.array(shape, depth + 1),
            Kind::Map if shape.has(OBJECT) => self.object(shape, depth + 1),
            Kind::Float if shape.has(FLOAT) => self.float(),
            Kind::Bool | Kind::Null if shape.has(simple(first)) => {
                self.at += 1;
                Some(())
            }
            // JSON has byte strings in another form, and the rest not at all.
            _ => None,
        }
    }

    #[inline]
    fn integer(&mut self, shape: &Shape) -> Option<()> {
        let (major, argument) = self.head()?;
        let integer = match major {
            0 => i128::from(argument),
            _ => i128::from(-1 - i64::try_from(argument).ok()?),
        };
        let (least, greatest) = shape.integers;
        let is_listed = |literals: &Literals| literals.integers.binary_search(&integer).is_ok();
        let fits = least <= integer && integer <= greatest && shape.literals.as_deref().is_none_or(is_listed);
        fits.then_some(())
    }

    fn float(&mut self) -> Option<()> {
        let mut reader = self.reader();
        let is_finite = reader.float().ok()?.is_finite();
        self.at = reader.position();
        is_finite.then_some(())
    }

    #[inline]
    fn string(&mut self, shape: &Shape) -> Option<()> {
        let text = self.text()?;
        let fits =
            shape.chars.has_chars_of(text) && shape.literals.as_deref().is_none_or(|all| all.has(text));
        fits.then_some(())
    }

    fn array(&mut self, shape: &Shape, depth: usize) -> Option<()> {
        let count = self.open(shape.items, depth)?;
        for _ in 0..count {
            self.value(shape.item, depth)?;
        }
        Some(())
    }

    fn object(&mut self, shape: &Shape, depth: usize) -> Option<()> {
        let count = self.open(shape.members, depth)?;
        let (mut next, mut found) = (0, 0);
        for _ in 0..count {
            let rest = self.input.get(self.at..)?;
            // Both sides are mostly in one order.
            let property = match shape.properties.get(next) {
                Some(property) if property.key.begins(rest) => {
                    self.at += property.key.item.len();
                    next += 1;
                    Some(property)
                }
                _ => {
                    let name = self.text()?;
                    shape.property(name).map(|at| {
                        next = at + 1;
                        &shape.properties[at]
                    })
                }
            };
            let member = match property {
                Some(property) => {
                    found |= property.required;
                    property.shape
                }
                None => shape.additional,
            };
            self.value(member, depth)?;
        }
        (found == shape.required).then_some(())
    }

    /// Items or members of the container that is next.
    #[inline]
    fn open(&mut self, counts: Counts, depth: usize) -> Option<u64> {
        let (_, count) = self.head()?;
        (depth <= CBOR_DEPTH_MAX && counts.has(count)).then_some(count)
    }

    /// The bytes of the text that is next, and in one piece.
    #[inline]
    fn text(&mut self) -> Option<&'a [u8]> {
        let (major, argument) = self.head()?;
        let end = self.at.checked_add(usize::try_from(argument).ok()?)?;
        let text = self.input.get(self.at..end).filter(|_| major == 3)?;
        self.at = end;
        Some(text)
    }

    /// The major type and argument of the head that is next, of definite length.
    #[inline]
    fn head(&mut self) -> Option<(u8, u64)> {
        let first = *self.input.get(self.at)?;
        let argument = first & 0x1f;
        if argument >= 24 {
            return self.long_head();
        }
        self.at += 1;
        Some((first >> 5, u64::from(argument)))
    }

    #[inline(never)]
    fn long_head(&mut self) -> Option<(u8, u64)> {
        let head = self.reader().head().ok().filter(|head| !head.is_indefinite())?;
        self.at += head.head_bytes;
        Some((head.major, head.argument))
    }

    #[inline]
    fn reader(&self) -> Reader<'a> {
        let mut reader = Reader::new(self.input);
        reader.set_position(self.at);
        reader
    }
}

/// The type of the `false`, `true` or `null` that this byte is.
const fn simple(first: u8) -> u8 {
    match first {
        0xf4 => FALSE,
        0xf5 => TRUE,
        _ => NULL,
    }
}

const NULL: u8 = 1;
const FALSE: u8 = 1 << 1;
const TRUE: u8 = 1 << 2;
const INTEGER: u8 = 1 << 3;
const FLOAT: u8 = 1 << 4;
const STRING: u8 = 1 << 5;
const ARRAY: u8 = 1 << 6;
const OBJECT: u8 = 1 << 7;

/// The shape of whatever JSON has.
const ANY: u32 = 0;
/// The shape of what is not decided, or fits nowhere.
const NEVER: u32 = 1;
