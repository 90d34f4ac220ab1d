//! Checks untrusted bytes: "one item that PROTOCOL 5 accepts", or the first offending byte, out.

mod quick;

use super::checked::Span;
use super::ends::Ends;
use super::error::{Error, ErrorKind};
use super::item::{Head, INDEFINITE, head_at, indefinite_string_end, short_end, string_end};
use super::keys::Keys;
use super::reader::Reader;
use super::short::is_ascii;
use crate::limits::{CBOR_CONTAINER_ITEMS_MAX, CBOR_DEPTH_MAX, CBOR_ITEMS_MAX, CBOR_MAP_KEYS_BYTES_MAX};

/// Where tags are allowed. **Source:** PROTOCOL 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagPolicy {
    /// Anywhere.
    Anywhere,
    /// Only inside the values of `params`, `result`, `details` and `ext`.
    UnderPayloadKeys,
}

/// Checks that `bytes` are exactly one item that PROTOCOL 5 accepts, tags anywhere.
///
/// Cost is linear in the bytes; nothing is allocated unless a map's keys are out of order or not in shortest form.
///
/// **Errors:** the first offending byte; code 1001. **Source:** PROTOCOL 5.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    check_within(bytes, 0)
}

/// Checks like [`check`], but as if the item stood within so many containers, each of which counts as an item.
///
/// **Errors:** the first offending byte; code 1001. **Source:** PROTOCOL 5.
pub fn check_within(bytes: &[u8], containers: usize) -> Result<(), Error> {
    let mut checker = Checker::new(bytes, TagPolicy::Anywhere);
    checker.count(containers);
    let end = checker.item(0, containers)?;
    checker.end(end)
}

/// The strict walk behind [`check`], for decoders that check items as they meet them.
///
/// One checker serves one message: it counts the message's items, and the bytes of its keys that hold maps, across calls.
#[derive(Debug)]
pub struct Checker<'a> {
    bytes: &'a [u8],
    items_left: usize,
    map_keys_bytes_left: usize,
    tags: TagPolicy,
    payload: Span,
    /// Where maps end whose keys are out of order, as long as no other such map is around them.
    ends: Ends,
    /// The error that [`Refused`] means, once it is returned.
    refusal: Error,
    #[cfg(test)]
    is_plain: bool,
}

/// The walk has ended at an error, which the checker has: the results of many calls fit in registers without it.
#[derive(Clone, Copy, Debug)]
struct Refused;

impl<'a> Checker<'a> {
    /// A checker for the message in `bytes`.
    pub const fn new(bytes: &'a [u8], tags: TagPolicy) -> Self {
        Self {
            bytes,
            items_left: CBOR_ITEMS_MAX,
            map_keys_bytes_left: CBOR_MAP_KEYS_BYTES_MAX,
            tags,
            payload: Span::NONE,
            ends: Ends::none(),
            refusal: Error::new(0, ErrorKind::Truncated),
            #[cfg(test)]
            is_plain: false,
        }
    }

    /// Sets where tags are allowed in the items checked from here on.
    pub const fn set_tags(&mut self, tags: TagPolicy) {
        self.tags = tags;
    }

    /// Counts items that somebody else has checked; no more than a message may have.
    pub(crate) const fn count(&mut self, items: usize) {
        self.items_left -= items;
    }

    /// The longest value of `params`, `result`, `details` or `ext` that was checked, where tags may only stand in these.
    pub(crate) const fn payload(&self) -> Span {
        self.payload
    }

    /// Checks that the message is exactly one item.
    pub fn whole(mut self) -> Result<(), Error> {
        let end = self.item(0, 0)?;
        self.end(end)
    }

    /// Checks that the message is exactly one map, and hands each checked key, with the offset and the depth of its
    /// value, to `on_pair`, which checks the value and returns the offset behind it.
    pub(crate) fn whole_map(
        &mut self,
        on_pair: impl FnMut(&mut Self, &'a [u8], usize, usize) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let head = head_at(self.bytes, 0)?;
        if head.major != 5 {
            return Err(Error::new(0, ErrorKind::Expected("a map")));
        }
        self.items_left -= 1;
        let end = self.pairs(0, head, 0, on_pair)?;
        self.end(end)
    }

    fn end(&self, end: usize) -> Result<(), Error> {
        if end < self.bytes.len() { Err(Error::new(end, ErrorKind::TrailingBytes)) } else { Ok(()) }
    }

    /// Checks the item at `start`, inside `depth` containers, and returns the offset after it.
    #[inline]
    pub fn item(&mut self, start: usize, depth: usize) -> Result<usize, Error> {
        self.walk(start, depth).map_err(|Refused| self.refusal)
    }

    #[cold]
    const fn refuse(&mut self, error: Error) -> Refused {
        self.refusal = error;
        Refused
    }

    #[inline]
    fn walk(&mut self, start: usize, depth: usize) -> Result<usize, Refused> {
        // Most items of a message are small numbers and short strings, whose first byte tells where they end.
        if self.items_left > 0
            && let Some(end) = short_end(self.bytes, start)
            && let item = &self.bytes[start..end]
            && (item[0] >> 5 != 3 || is_ascii(item))
        {
            self.items_left -= 1;
            return Ok(end);
        }
        self.any_item(start, depth)
    }

    /// Whether items may be taken in few steps: always, but where a test holds that against the plain walk.
    const fn is_quick(&self) -> bool {
        #[cfg(test)]
        return !self.is_plain;
        #[cfg(not(test))]
        true
    }

    #[inline(never)]
    fn plain_item(&mut self, start: usize, depth: usize) -> Result<usize, Error> {
        let head = head_at(self.bytes, start)?;
        self.items_left = match self.items_left.checked_sub(1) {
            Some(left) => left,
            None => return Err(Error::new(start, ErrorKind::TooManyItems)),
        };
        match head.major {
            0 | 1 => Ok(start + head.head_bytes),
            2 if head.is_indefinite() => indefinite_string_end(self.bytes, start, 2),
            2 => string_end(self.bytes, start, head),
            3 => self.plain_text(start, head),
            4 => self.plain_array(start, head, depth),
            5 => self.pairs(start, head, depth, |checker, key, at, depth| checker.map_value(at, key, depth)),
            6 => {
                if self.tags == TagPolicy::UnderPayloadKeys {
                    return Err(Error::new(start, ErrorKind::TagNotAllowed));
                }
                self.item(start + head.head_bytes, enter(start, depth)?)
            }
            _ if head.is_indefinite() => Err(Error::new(start, ErrorKind::UnexpectedBreak)),
            _ => Ok(start + head.head_bytes),
        }
    }

    #[inline]
    fn plain_text(&self, start: usize, head: Head) -> Result<usize, Error> {
        if head.is_indefinite() {
            return self.text_chunks(start);
        }
        let end = string_end(self.bytes, start, head)?;
        let text = &self.bytes[start + head.head_bytes..end];
        // Most text is ASCII, which is seen in large steps.
        if text.is_ascii() || std::str::from_utf8(text).is_ok() {
            Ok(end)
        } else {
            Err(Error::new(start, ErrorKind::InvalidUtf8))
        }
    }

    fn text_chunks(&self, start: usize) -> Result<usize, Error> {
        let end = indefinite_string_end(self.bytes, start, 3)?;
        let mut at = start + 1;
        while at + 1 < end {
            // RFC 8949 3.2.3: each chunk is valid UTF-8 by itself.
            at = self.plain_text(at, head_at(self.bytes, at)?)?;
        }
        Ok(end)
    }

    fn plain_array(&mut self, start: usize, head: Head, depth: usize) -> Result<usize, Error> {
        let depth = enter(start, depth)?;
        let mut at = start + head.head_bytes;
        let mut left = container(self.bytes, start, head, 1)?;
        let mut count = 0usize;
        while has_next(self.bytes, &mut at, &mut left) {
            count = bounded(start, count)?;
            at = self.item(at, depth)?;
        }
        Ok(at)
    }

    #[inline]
    fn pairs(
        &mut self,
        start: usize,
        head: Head,
        depth: usize,
        mut on_pair: impl FnMut(&mut Self, &'a [u8], usize, usize) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let bytes = self.bytes;
        let depth = enter(start, depth)?;
        let first_key = start + head.head_bytes;
        let mut at = first_key;
        let mut left = container(self.bytes, start, head, 2)?;
        let (mut count, mut ascending) = (0usize, true);
        let mut last_key: &[u8] = &[];
        while has_next(self.bytes, &mut at, &mut left) {
            count = bounded(start, count)?;
            let key_start = at;
            at = self.item(at, depth)?;
            let key = &bytes[key_start..at];
            // Strictly ascending encodings in one form each cannot repeat; anything else is looked at again below.
            ascending = ascending && precedes(last_key, key) && is_plain_key(key);
            last_key = key;
            at = on_pair(self, key, at, depth)?;
        }
        if !ascending {
            self.unique_keys(first_key, count)?;
            self.ends.enclose(start, at);
        }
        Ok(at)
    }

    fn map_value(&mut self, at: usize, key: &[u8], depth: usize) -> Result<usize, Error> {
        if self.tags == TagPolicy::UnderPayloadKeys && is_payload_key(key) {
            return self.payload_value(at, depth).map_err(|Refused| self.refusal);
        }
        self.item(at, depth)
    }

    /// Finds a key that stands twice among the `count` checked pairs of the map whose first key is at `first`.
    #[cold]
    fn unique_keys(&mut self, first: usize, count: usize) -> Result<(), Error> {
        let mut reader = Reader::new(self.bytes);
        reader.set_position(first);
        // Keys that hold maps may have to be written anew, so they are counted before that.
        let keys = Keys::in_order(&reader, Some(count as u64), count, &self.ends, |start, key| {
            let left = self.map_keys_bytes_left.checked_sub(key.len());
            self.map_keys_bytes_left = left.ok_or(Error::new(start, ErrorKind::MapKeysTooLarge))?;
            Ok(())
        })?;
        let Some(pair) = keys.repeated() else { return Ok(()) };
        let is_one_form = pair.iter().all(|at| is_plain_key(&self.bytes[*at..]));
        Err(Error::new(if is_one_form { pair[1] } else { first }, ErrorKind::DuplicateKey))
    }
}

/// Whether the value under an encoded key is payload.
#[inline]
fn is_payload_key(key: &[u8]) -> bool {
    match key.len() {
        4 => key == b"\x63ext",
        7 => key == b"\x66params" || key == b"\x66result",
        8 => key == b"\x67details",
        _ => false,
    }
}

/// Whether `last` stands before `key` in bytewise order. Keys are short and mostly differ in their first byte, so a
/// loop here costs less than a call.
#[inline]
fn precedes(last: &[u8], key: &[u8]) -> bool {
    match last.iter().zip(key).find(|(last, key)| last != key) {
        Some((last, key)) => last < key,
        None => last.len() < key.len(),
    }
}

/// Whether a key's bytes are its only acceptable spelling: an integer or definite string with the shortest head.
#[inline]
fn is_plain_key(key: &[u8]) -> bool {
    if matches!(key.first(), Some(0x00..0x18 | 0x20..0x38 | 0x40..0x58 | 0x60..0x78)) {
        return true;
    }
    match head_at(key, 0) {
        Ok(head) => head.major < 4 && head.info != INDEFINITE && head.is_shortest(),
        Err(_) => false,
    }
}

#[inline]
fn enter(start: usize, depth: usize) -> Result<usize, Error> {
    if depth >= CBOR_DEPTH_MAX { Err(Error::new(start, ErrorKind::TooDeep)) } else { Ok(depth + 1) }
}

/// How many elements or pairs a container's head promises, refused when the bytes left cannot hold them.
#[inline]
fn container(bytes: &[u8], start: usize, head: Head, items_each: u64) -> Result<Option<u64>, Error> {
    if head.is_indefinite() {
        return Ok(None);
    }
    let left = (bytes.len() - start - head.head_bytes) as u64;
    if head.argument.saturating_mul(items_each) > left {
        return Err(Error::new(start, ErrorKind::LengthBeyondInput));
    }
    Ok(Some(head.argument))
}

#[inline]
fn has_next(bytes: &[u8], at: &mut usize, left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => false,
        Some(count) => {
            *count -= 1;
            true
        }
        None if bytes.get(*at) == Some(&0xff) => {
            *at += 1;
            false
        }
        None => true,
    }
}

#[inline]
fn bounded(start: usize, count: usize) -> Result<usize, Error> {
    if count >= CBOR_CONTAINER_ITEMS_MAX {
        return Err(Error::new(start, ErrorKind::ContainerTooLarge));
    }
    Ok(count + 1)
}

#[cfg(test)]
mod tests;
