//! Finds the head or the end of the item at a position.

use crate::cbor;

/// The first bytes of an item. **Source:** RFC 8949 3.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) major: u8,
    /// Additional information: the low five bits of the first byte.
    pub(super) info: u8,
    /// The argument; 0 where the length is indefinite.
    pub(super) argument: u64,
    /// Where the head ends.
    pub(super) next: usize,
}

impl Head {
    pub(super) fn is_indefinite(&self) -> bool {
        self.info == 31
    }
}

/// The byte that ends a container or string of indefinite length.
pub(super) const BREAK: u8 = 0xff;

/// `None` where the bytes end, or hold no head of an item (a break is none).
#[inline]
pub(super) fn head(bytes: &[u8], at: usize) -> Option<Head> {
    let first = *bytes.get(at)?;
    let (major, info) = (first >> 5, first & 31);
    if info < 24 {
        return Some(Head { major, info, argument: u64::from(info), next: at + 1 });
    }
    // The hashes and keys of our messages have this head.
    if info == 24 && major != 7 {
        return Some(Head { major, info, argument: u64::from(*bytes.get(at + 1)?), next: at + 2 });
    }
    long_head(bytes, at, major, info)
}

fn long_head(bytes: &[u8], at: usize, major: u8, info: u8) -> Option<Head> {
    let rest = bytes.get(at + 1..)?;
    let (argument, width) = match info {
        24 => (u64::from(*rest.first()?), 1),
        25 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
        26 => (u64::from(u32::from_be_bytes(*rest.first_chunk()?)), 4),
        27 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        31 if (2..=5).contains(&major) => (0, 0),
        _ => return None,
    };
    // RFC 8949 3.3: simple values below 32 have no two-byte form.
    if major == 7 && info == 24 && argument < 32 {
        return None;
    }
    Some(Head { major, info, argument, next: at + 1 + width })
}

/// The end of the item at `at`; `None` when it is not well-formed.
#[inline]
pub(super) fn skip(bytes: &[u8], at: usize) -> Option<usize> {
    let head = head(bytes, at)?;
    match head.major {
        0 | 1 | 7 => Some(head.next),
        2 | 3 if !head.is_indefinite() => string_end(bytes, &head),
        _ => skip_nested(bytes, at),
    }
}

#[inline]
pub(super) fn string_end(bytes: &[u8], head: &Head) -> Option<usize> {
    let length = usize::try_from(head.argument).ok()?;
    (length <= bytes.len() - head.next).then(|| head.next + length)
}

/// Items that are still to come, in as many containers as may nest without a stack: only an indefinite length needs one.
fn skip_nested(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut left: u64 = 1;
    while left > 0 {
        left -= 1;
        // Most items are small numbers and short strings, whose first byte tells where they end.
        if let Some(end) = cbor::short_end(bytes, at) {
            at = end;
            continue;
        }
        let head = head(bytes, at)?;
        at = head.next;
        match head.major {
            0 | 1 | 7 => {}
            2 | 3 if head.is_indefinite() => at = chunks_end(bytes, at, head.major)?,
            2 | 3 => at = string_end(bytes, &head)?,
            4 | 5 if head.is_indefinite() => at = skip_indefinite(bytes, at, head.major == 5, 1)?,
            // Each item has a byte at least, so the sum stays below 2^64 whatever the heads claim.
            4 if head.argument <= (bytes.len() - at) as u64 => left += head.argument,
            5 if head.argument <= (bytes.len() - at) as u64 / 2 => left += 2 * head.argument,
            6 => left += 1,
            _ => return None,
        }
    }
    Some(at)
}

/// The end of an indefinite array or map whose first item is at `at`.
fn skip_indefinite(bytes: &[u8], mut at: usize, map: bool, nested: usize) -> Option<usize> {
    // Indefinite containers recurse; the bound is the protocol's for any nesting.
    if nested > crate::limits::CBOR_DEPTH_MAX {
        return None;
    }
    let mut count = 0usize;
    while *bytes.get(at)? != BREAK {
        at = skip_within(bytes, at, nested)?;
        count += 1;
    }
    (!map || count.is_multiple_of(2)).then_some(at + 1)
}

/// As [`skip_nested`], inside `nested` indefinite containers.
fn skip_within(bytes: &[u8], mut at: usize, nested: usize) -> Option<usize> {
    let mut left: u64 = 1;
    while left > 0 {
        let head = head(bytes, at)?;
        left -= 1;
        at = match head.major {
            4 | 5 if head.is_indefinite() => skip_indefinite(bytes, head.next, head.major == 5, nested + 1)?,
            4..=6 => {
                let items = match head.major {
                    4 => head.argument,
                    5 => head.argument.checked_mul(2)?,
                    _ => 1,
                };
                if items > (bytes.len() - head.next) as u64 {
                    return None;
                }
                left += items;
                head.next
            }
            _ => skip(bytes, at)?,
        };
    }
    Some(at)
}

/// The end of an indefinite string whose first chunk is at `at`.
fn chunks_end(bytes: &[u8], mut at: usize, major: u8) -> Option<usize> {
    while *bytes.get(at)? != BREAK {
        at = chunk(bytes, at, major)?.end;
    }
    Some(at + 1)
}

fn chunk(bytes: &[u8], at: usize, major: u8) -> Option<std::ops::Range<usize>> {
    let head = head(bytes, at)?;
    if head.major != major || head.is_indefinite() {
        return None;
    }
    let end = string_end(bytes, &head)?;
    Some(head.next..end)
}

/// The chunks of the string at `at`: one where its length is definite. Ends early where it is not well-formed.
pub(super) fn chunks(bytes: &[u8], at: usize) -> impl Iterator<Item = &[u8]> {
    let first = head(bytes, at);
    let indefinite = first.is_some_and(|head| head.is_indefinite());
    let mut position = first.map(|head| if indefinite { head.next } else { at });
    std::iter::from_fn(move || {
        let head = first?;
        let range = chunk(bytes, position?, head.major)?;
        position = indefinite.then_some(range.end);
        bytes.get(range)
    })
}
