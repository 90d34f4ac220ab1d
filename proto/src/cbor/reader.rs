//! Borrowed bytes in, one item at a time out: the pull reader.

use std::borrow::Cow;

use super::checked::{Checked, Span};
use super::error::{Error, ErrorKind};
use crate::limits::CBOR_DEPTH_MAX;

/// The type of the next item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Major type 0.
    Unsigned,
    /// Major type 1.
    Negative,
    /// Major type 2.
    Bytes,
    /// Major type 3.
    Text,
    /// Major type 4.
    Array,
    /// Major type 5.
    Map,
    /// Major type 6.
    Tag,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
    /// `undefined`.
    Undefined,
    /// A half, single or double precision float.
    Float,
    /// Another simple value.
    Simple,
    /// The end of an indefinite-length item.
    Break,
}

impl Kind {
    /// The type of the item whose first byte this is.
    #[inline]
    pub const fn of(first: u8) -> Self {
        match (first >> 5, first & 0x1f) {
            (0, _) => Self::Unsigned,
            (1, _) => Self::Negative,
            (2, _) => Self::Bytes,
            (3, _) => Self::Text,
            (4, _) => Self::Array,
            (5, _) => Self::Map,
            (6, _) => Self::Tag,
            (_, 20 | 21) => Self::Bool,
            (_, 22) => Self::Null,
            (_, 23) => Self::Undefined,
            (_, 25..=27) => Self::Float,
            (_, INDEFINITE) => Self::Break,
            _ => Self::Simple,
        }
    }
}

/// One decoded head: major type, additional information, argument, and its own length.
///
/// **Shape:** `info` 31 is an indefinite length (or break), whose `argument` is 0. **Source:** RFC 8949 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Major type, 0 to 7.
    pub major: u8,
    /// Additional information, 0 to 27 or 31.
    pub info: u8,
    /// The argument's value.
    pub argument: u64,
    /// Length of the head, in bytes.
    pub head_bytes: usize,
}

impl Head {
    /// Whether the head opens an item of indefinite length, or is the break that ends one.
    #[inline]
    pub const fn is_indefinite(self) -> bool {
        self.info == INDEFINITE
    }

    /// Whether the argument stands in its shortest form.
    #[inline]
    pub const fn is_shortest(self) -> bool {
        match self.info {
            24 => self.argument >= 24,
            25 => self.argument > 0xff,
            26 => self.argument > 0xffff,
            27 => self.argument > 0xffff_ffff,
            _ => true,
        }
    }

    /// The type of the item that it opens.
    #[inline]
    pub const fn kind(self) -> Kind {
        Kind::of(self.major << 5 | self.info)
    }
}

pub(crate) const INDEFINITE: u8 = 31;

/// How many bytes the item takes that opens with this one, where that alone tells it and tells that JSON has the like: as it
/// does of most items, which are integers, `false`, `true`, `null` and short strings.
#[inline]
pub const fn short_bytes(first: u8) -> Option<usize> {
    match SHORT_BYTES[first as usize] {
        0 => None,
        bytes => Some(bytes as usize),
    }
}

const SHORT_BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut first = 0;
    while first < bytes.len() {
        bytes[first] = match first {
            0x00..0x18 | 0x20..0x38 | 0xf4..0xf7 => 1,
            // A negative number of eight bytes may be below every `i64`.
            0x18..0x1c | 0x38..0x3b => 1 + (1 << (first & 0x03)),
            0x40..0x58 | 0x60..0x78 => 1 + (first as u8 & 0x1f),
            _ => 0,
        };
        first += 1;
    }
    bytes
};

/// Decodes the head at `offset`.
#[inline]
pub(crate) fn head_at(bytes: &[u8], offset: usize) -> Result<Head, Error> {
    let Some(&first) = bytes.get(offset) else {
        return Err(Error::new(offset, ErrorKind::Truncated));
    };
    let (major, info) = (first >> 5, first & 0x1f);
    if info < 24 {
        return Ok(Head { major, info, argument: u64::from(info), head_bytes: 1 });
    }
    long_head_at(bytes, offset, major, info)
}

#[inline]
fn long_head_at(bytes: &[u8], offset: usize, major: u8, info: u8) -> Result<Head, Error> {
    let after = &bytes[offset + 1..];
    let argument = match info {
        24 => after.first().map(|&byte| (u64::from(byte), 1)),
        25 => after.first_chunk().map(|chunk| (u64::from(u16::from_be_bytes(*chunk)), 2)),
        26 => after.first_chunk().map(|chunk| (u64::from(u32::from_be_bytes(*chunk)), 4)),
        27 => after.first_chunk().map(|chunk| (u64::from_be_bytes(*chunk), 8)),
        INDEFINITE if matches!(major, 2..=5 | 7) => {
            return Ok(Head { major, info, argument: 0, head_bytes: 1 });
        }
        _ => return Err(Error::new(offset, ErrorKind::ReservedHead)),
    };
    let Some((argument, argument_bytes)) = argument else {
        return Err(Error::new(offset, ErrorKind::Truncated));
    };
    if major == 7 && info == 24 && argument < 32 {
        return Err(Error::new(offset, ErrorKind::InvalidSimple));
    }
    Ok(Head { major, info, argument, head_bytes: 1 + argument_bytes })
}

/// A pull reader over borrowed CBOR bytes.
///
/// Each call reads one item, or one head of a container, and moves behind it. It checks bounds and types; that text
/// is UTF-8 and that keys are unique is [`check`](super::check)'s work, except that [`text`](Self::text) never
/// returns text that is not UTF-8. A failed call leaves the position where it was.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// An item whose end is known.
    known: Span,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, known: Span::NONE }
    }

    /// A reader of an item that passes over its payload in one step.
    #[inline]
    pub const fn over(item: Checked<'a>) -> Self {
        Self { bytes: item.bytes(), position: 0, known: item.payload() }
    }

    /// Offset of the next item, in bytes.
    #[inline]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Moves to an offset that [`position`](Self::position) gave earlier.
    #[inline]
    pub const fn set_position(&mut self, position: usize) {
        self.position = position;
    }

    /// All the bytes that the reader was made over.
    #[inline]
    pub const fn input(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether every byte has been read.
    #[inline]
    pub const fn is_at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// The next head, without moving.
    #[inline]
    pub fn head(&self) -> Result<Head, Error> {
        head_at(self.bytes, self.position)
    }

    /// The next item's type, without moving.
    #[inline]
    pub fn kind(&self) -> Result<Kind, Error> {
        self.head().map(Head::kind)
    }

    /// An unsigned integer.
    #[inline]
    pub fn uint(&mut self) -> Result<u64, Error> {
        let head = self.expect(0, "an unsigned integer")?;
        self.position += head.head_bytes;
        Ok(head.argument)
    }

    /// An integer of major type 0 or 1; its range is −2⁶⁴ to 2⁶⁴−1.
    #[inline]
    pub fn int(&mut self) -> Result<i128, Error> {
        let head = self.head()?;
        let value = match head.major {
            0 => i128::from(head.argument),
            1 => -1 - i128::from(head.argument),
            _ => return Err(self.expected("an integer")),
        };
        self.position += head.head_bytes;
        Ok(value)
    }

    /// Text; borrowed when its length is definite.
    #[inline]
    pub fn text(&mut self) -> Result<Cow<'a, str>, Error> {
        let start = self.position;
        match self.string(3, "text")? {
            Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Cow::Borrowed(text)),
                Err(_) => Err(self.rewind(start, ErrorKind::InvalidUtf8)),
            },
            Cow::Owned(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Cow::Owned(text)),
                Err(_) => Err(self.rewind(start, ErrorKind::InvalidUtf8)),
            },
        }
    }

    /// A key that is text, as its UTF-8: to be held against names, which takes less than reading [`text`](Self::text).
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Cow<'a, [u8]>, Error> {
        if let Some(0x60..0x78) = self.bytes.get(self.position)
            && let Some(end) = short_end(self.bytes, self.position)
        {
            let start = self.position + 1;
            self.position = end;
            return Ok(Cow::Borrowed(&self.bytes[start..end]));
        }
        self.string(3, "text")
    }

    /// A byte string; borrowed when its length is definite.
    #[inline]
    pub fn bytes(&mut self) -> Result<Cow<'a, [u8]>, Error> {
        self.string(2, "a byte string")
    }

    /// The head of an array: its number of elements, or `None` for an indefinite length.
    #[inline]
    pub fn array(&mut self) -> Result<Option<u64>, Error> {
        self.container(4, "an array")
    }

    /// The head of a map: its number of pairs, or `None` for an indefinite length.
    #[inline]
    pub fn map(&mut self) -> Result<Option<u64>, Error> {
        self.container(5, "a map")
    }

    /// A tag's number; the tagged item follows.
    #[inline]
    pub fn tag(&mut self) -> Result<u64, Error> {
        let head = self.expect(6, "a tag")?;
        self.position += head.head_bytes;
        Ok(head.argument)
    }

    /// `true` or `false`.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.bytes.get(self.position) {
            Some(0xf4) => {
                self.position += 1;
                Ok(false)
            }
            Some(0xf5) => {
                self.position += 1;
                Ok(true)
            }
            _ => Err(self.expected("true or false")),
        }
    }

    /// `null`.
    #[inline]
    pub fn null(&mut self) -> Result<(), Error> {
        match self.bytes.get(self.position) {
            Some(0xf6) => {
                self.position += 1;
                Ok(())
            }
            _ => Err(self.expected("null")),
        }
    }

    /// A float of any width.
    pub fn float(&mut self) -> Result<f64, Error> {
        let head = self.expect(7, "a float")?;
        let value = match head.info {
            25 => f64::from(half::f16::from_bits(head.argument as u16)),
            26 => f64::from(f32::from_bits(head.argument as u32)),
            27 => f64::from_bits(head.argument),
            _ => return Err(self.expected("a float")),
        };
        self.position += head.head_bytes;
        Ok(value)
    }

    /// Any simple value but a float, by its number (`false` is 20, `true` 21, `null` 22, `undefined` 23).
    pub fn simple(&mut self) -> Result<u8, Error> {
        let head = self.expect(7, "a simple value")?;
        if head.info > 24 {
            return Err(self.expected("a simple value"));
        }
        self.position += head.head_bytes;
        Ok(head.argument as u8)
    }

    /// Whether a break is next.
    #[inline]
    pub fn at_break(&self) -> bool {
        self.bytes.get(self.position) == Some(&0xff)
    }

    /// Moves over a break, if one is next, and says whether it did.
    #[inline]
    pub fn take_break(&mut self) -> bool {
        let found = self.at_break();
        self.position += usize::from(found);
        found
    }

    /// Whether a container has a further element, given what its head said; counts `left` down, and moves over the
    /// break that ends an indefinite one.
    #[inline]
    pub fn has_next(&mut self, left: &mut Option<u64>) -> bool {
        match left {
            Some(0) => false,
            Some(count) => {
                *count -= 1;
                true
            }
            None => !self.take_break(),
        }
    }

    /// One item of any type, as its raw bytes.
    #[inline]
    pub fn skip(&mut self) -> Result<&'a [u8], Error> {
        let start = self.position;
        let end = match self.known.end_from(start) {
            Some(end) => end,
            None => skip_at(self.bytes, start, 0)?,
        };
        self.position = end;
        Ok(&self.bytes[start..end])
    }

    #[inline]
    fn expect(&self, major: u8, what: &'static str) -> Result<Head, Error> {
        let head = self.head()?;
        if head.major == major { Ok(head) } else { Err(self.expected(what)) }
    }

    #[inline]
    fn container(&mut self, major: u8, what: &'static str) -> Result<Option<u64>, Error> {
        let head = self.expect(major, what)?;
        self.position += head.head_bytes;
        Ok(if head.is_indefinite() { None } else { Some(head.argument) })
    }

    #[inline]
    fn string(&mut self, major: u8, what: &'static str) -> Result<Cow<'a, [u8]>, Error> {
        let head = self.expect(major, what)?;
        if head.is_indefinite() {
            return self.chunks(major);
        }
        let start = self.position + head.head_bytes;
        let end = string_end(self.bytes, self.position, head)?;
        self.position = end;
        Ok(Cow::Borrowed(&self.bytes[start..end]))
    }

    fn chunks(&mut self, major: u8) -> Result<Cow<'a, [u8]>, Error> {
        let end = indefinite_string_end(self.bytes, self.position, major)?;
        let mut joined = Vec::with_capacity(end - self.position);
        self.join_chunks(major, &mut joined)?;
        Ok(Cow::Owned(joined))
    }

    /// Appends the chunks of a string of indefinite length to `out`.
    pub(crate) fn join_chunks(&mut self, major: u8, out: &mut Vec<u8>) -> Result<(), Error> {
        let end = indefinite_string_end(self.bytes, self.position, major)?;
        let mut at = self.position + 1;
        while self.bytes[at] != 0xff {
            let head = head_at(self.bytes, at)?;
            let chunk_end = string_end(self.bytes, at, head)?;
            out.extend_from_slice(&self.bytes[at + head.head_bytes..chunk_end]);
            at = chunk_end;
        }
        self.position = end;
        Ok(())
    }

    fn expected(&self, what: &'static str) -> Error {
        let kind = if self.is_at_end() { ErrorKind::Truncated } else { ErrorKind::Expected(what) };
        Error::new(self.position, kind)
    }

    fn rewind(&mut self, start: usize, kind: ErrorKind) -> Error {
        self.position = start;
        Error::new(start, kind)
    }
}

/// End of the definite-length string whose head stands at `offset`.
#[inline]
pub(crate) fn string_end(bytes: &[u8], offset: usize, head: Head) -> Result<usize, Error> {
    let start = offset + head.head_bytes;
    let left = (bytes.len() - start) as u64;
    if head.argument > left {
        return Err(Error::new(offset, ErrorKind::LengthBeyondInput));
    }
    Ok(start + head.argument as usize)
}

/// End of the indefinite-length string whose head stands at `offset`.
pub(crate) fn indefinite_string_end(bytes: &[u8], offset: usize, major: u8) -> Result<usize, Error> {
    let mut at = offset + 1;
    loop {
        let head = head_at(bytes, at)?;
        if head.kind() == Kind::Break {
            return Ok(at + 1);
        }
        if head.major != major || head.is_indefinite() {
            return Err(Error::new(at, ErrorKind::InvalidChunk));
        }
        at = string_end(bytes, at, head)?;
    }
}

/// End of the item at `start`, if its first byte tells it and it stands in the input.
#[inline]
pub(crate) fn short_end(bytes: &[u8], start: usize) -> Option<usize> {
    let end = start + short_bytes(*bytes.get(start)?)?;
    (end <= bytes.len()).then_some(end)
}

/// End of the item at `start`; nested indefinite-length containers count against the depth bound.
pub(crate) fn skip_at(bytes: &[u8], start: usize, depth: usize) -> Result<usize, Error> {
    let mut at = start;
    let mut left: u64 = 1;
    while left > 0 {
        left -= 1;
        if let Some(end) = short_end(bytes, at) {
            at = end;
            continue;
        }
        let head = head_at(bytes, at)?;
        match head.major {
            2 | 3 if head.is_indefinite() => at = indefinite_string_end(bytes, at, head.major)?,
            2 | 3 => at = string_end(bytes, at, head)?,
            4 | 5 if head.is_indefinite() => {
                if depth >= CBOR_DEPTH_MAX {
                    return Err(Error::new(at, ErrorKind::TooDeep));
                }
                at += 1;
                let mut items = 0u64;
                while bytes.get(at) != Some(&0xff) {
                    at = skip_at(bytes, at, depth + 1)?;
                    items += 1;
                }
                if head.major == 5 && items % 2 == 1 {
                    return Err(Error::new(at, ErrorKind::UnexpectedBreak));
                }
                at += 1;
            }
            4 | 5 => {
                let items = head.argument.saturating_mul(u64::from(head.major) - 3);
                at += head.head_bytes;
                if items > (bytes.len() - at) as u64 {
                    return Err(Error::new(at - head.head_bytes, ErrorKind::LengthBeyondInput));
                }
                left += items;
            }
            6 => {
                at += head.head_bytes;
                left += 1;
            }
            7 if head.is_indefinite() => return Err(Error::new(at, ErrorKind::UnexpectedBreak)),
            _ => at += head.head_bytes,
        }
    }
    Ok(at)
}
