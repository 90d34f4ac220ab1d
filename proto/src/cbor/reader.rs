//! Reads borrowed bytes, one item at a time: the pull reader.

use std::borrow::Cow;

use super::checked::{Checked, Span};
use super::error::{Error, ErrorKind};
use super::item::{Head, Kind, head_at, indefinite_string_end, short_end, skip_at, string_end};

/// A pull reader over borrowed CBOR bytes.
///
/// Each call reads one item, or one head of a container, and moves past it. It checks bounds and types.
/// [`check`](super::check) verifies UTF-8 and unique keys, but [`text`](Self::text) also never returns text that is not
/// UTF-8. A failed call does not move.
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

    /// A reader of an item that skips its payload in one step.
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

    /// Skips a break if one is next, and returns whether it did.
    #[inline]
    pub fn take_break(&mut self) -> bool {
        let found = self.at_break();
        self.position += usize::from(found);
        found
    }

    /// Whether a container has a further element. `left` is the count from its head and is decremented; the break that
    /// ends an indefinite container is skipped.
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
