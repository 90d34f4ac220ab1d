//! Reads the head of one item: an offset in; the item's type, its head and its end out.

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

    /// Whether the argument has its shortest form.
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

    /// The type of the item that the head opens.
    #[inline]
    pub const fn kind(self) -> Kind {
        Kind::of(self.major << 5 | self.info)
    }
}

pub(crate) const INDEFINITE: u8 = 31;

/// The length of an item with this first byte, if the byte alone determines the length and the item has a JSON
/// equivalent. It does for most items: integers, `false`, `true`, `null` and short strings.
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
    skip_with(bytes, start, depth, &|_| None)
}

/// The same, past the containers whose ends are `known` by where they begin.
#[inline]
pub(super) fn skip_with(
    bytes: &[u8],
    start: usize,
    depth: usize,
    known: &impl Fn(usize) -> Option<usize>,
) -> Result<usize, Error> {
    let mut at = start;
    let mut left: u64 = 1;
    while left > 0 {
        left -= 1;
        #[cfg(test)]
        SKIPPED.set(SKIPPED.get() + 1);
        if let Some(end) = short_end(bytes, at) {
            at = end;
            continue;
        }
        let head = head_at(bytes, at)?;
        if let 4..=6 = head.major
            && let Some(end) = known(at)
        {
            at = end;
            continue;
        }
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
                    at = skip_with(bytes, at, depth + 1, known)?;
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

#[cfg(test)]
thread_local! {
    /// Heads that this thread has walked over to find the ends of items.
    pub(super) static SKIPPED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
