//! Reads items whose first byte determines their end, several at once, for the strict check.

use super::item::short_bytes;

/// A short text that is a map's key.
pub(super) struct Key {
    /// Its length in bytes, its head among them.
    pub(super) bytes: usize,
    /// Its first eight bytes as a number: that of a lower key is not higher.
    pub(super) order: u64,
}

impl Key {
    /// The key at `at`, if it is short and ASCII, and its number is above that of the last one.
    #[inline]
    pub(super) fn at(bytes: &[u8], at: usize, last: u64) -> Option<Self> {
        let window = bytes.get(at..)?.first_chunk::<SHORT_BYTES_MAX>()?;
        if !matches!(window[0], 0x60..0x78) {
            return None;
        }
        let bytes = 1 + usize::from(window[0] & 0x1f);
        let word = u64::from_be_bytes(window.as_chunks().0[0]);
        let order = if bytes <= 8 { word & LEADING_BYTES[bytes & 0x0f] } else { word };
        if order <= last || order & HIGH_BITS != 0 || bytes > 8 && !is_ascii(&window[..bytes]) {
            return None;
        }
        Some(Self { bytes, order })
    }

    /// Whether the value under it is payload.
    #[inline]
    pub(super) const fn is_payload(&self) -> bool {
        const EXT: u64 = u64::from_be_bytes(*b"\x63ext\0\0\0\0");
        const PARAMS: u64 = u64::from_be_bytes(*b"\x66params\0");
        const RESULT: u64 = u64::from_be_bytes(*b"\x66result\0");
        const DETAILS: u64 = u64::from_be_bytes(*b"\x67details");
        matches!(self.order, EXT | PARAMS | RESULT | DETAILS)
    }
}

/// How many bytes the item at `at` has, if it is short and, if text, ASCII, and does not stand near the end of the input.
#[inline]
pub(super) fn value_bytes(bytes: &[u8], at: usize) -> Option<usize> {
    short_value_bytes(bytes.get(at..)?.first_chunk()?)
}

#[inline]
fn short_value_bytes(window: &[u8; SHORT_BYTES_MAX]) -> Option<usize> {
    if !matches!(window[0], 0x60..0x78) {
        return short_bytes(window[0]);
    }
    let bytes = 1 + usize::from(window[0] & 0x1f);
    let is_ascii = if bytes <= 8 {
        u64::from_le_bytes(window.as_chunks().0[0]) & LEADING_HIGH_BITS[bytes & 0x0f] == 0
    } else {
        is_ascii(window.get(..bytes)?)
    };
    if is_ascii { Some(bytes) } else { None }
}

/// Items of an array that stand next to each other.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Where the next one starts.
    pub(super) at: usize,
    /// How many are left.
    pub(super) left: usize,
    /// How many items the message may have besides, those in these among them.
    pub(super) items_left: usize,
}

impl Run {
    /// What is left behind those maps at its start of which `map_end` knows where they end.
    #[inline(never)]
    pub(super) fn behind_maps(mut self, bytes: &[u8]) -> Self {
        while self.left > 0
            && let Some(&first @ 0xa0..0xb8) = bytes.get(self.at)
            && let Some(items_left) = self.items_left.checked_sub(1 + 2 * usize::from(first & 0x1f))
            && let Some(end) = map_end(bytes, self.at)
        {
            self = Self { at: end, left: self.left - 1, items_left };
        }
        self
    }
}

/// Where the map at `start` ends, if each of its pairs is a text of at most seven bytes and a short value, and the keys
/// stand in ascending order.
#[inline]
fn map_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (head, mut rest) = bytes.get(start..)?.split_first()?;
    let mut last = 0;
    for _ in 0..head & 0x1f {
        let window = rest.first_chunk::<PAIR_BYTES_MAX>()?;
        if !matches!(window[0], 0x60..0x68) {
            return None;
        }
        let key_bytes = 1 + usize::from(window[0] & 0x07);
        let order = u64::from_be_bytes(window.as_chunks().0[0]) & LEADING_BYTES[key_bytes];
        if order <= last || order & HIGH_BITS != 0 {
            return None;
        }
        last = order;
        // No short item has more bytes than the mask leaves, which shows that the window has as many.
        let value_bytes = short_value_bytes(window[key_bytes..].first_chunk()?)? & 0x1f;
        rest = &rest[key_bytes + value_bytes..];
    }
    Some(bytes.len() - rest.len())
}

/// End of the text at `start` whose length stands in one byte of its own, if it is ASCII.
#[inline]
pub(super) fn ascii_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (head, rest) = bytes.get(start..)?.split_first_chunk::<2>()?;
    let text = rest.get(..usize::from(head[1]))?;
    is_long_ascii(text).then_some(start + 2 + text.len())
}

/// Whether no byte is above 127. They are looked at in wide steps, those at the end twice.
#[inline]
fn is_long_ascii(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk() {
        return text.as_chunks().0.iter().all(is_wide_ascii) && is_wide_ascii(last);
    }
    match (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        (Some(first), Some(last)) => is_ascii(first) && is_ascii(last),
        _ => text.is_ascii(),
    }
}

#[inline]
fn is_wide_ascii(bytes: &[u8; 32]) -> bool {
    // Counted, because compilers know how to do that for many at once.
    bytes.iter().filter(|byte| byte.is_ascii()).count() == bytes.len()
}

/// The first eight bytes as a number, as if zeros stood behind the last one.
#[inline]
pub(super) fn leading_bytes(item: &[u8]) -> u64 {
    match item.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => item.iter().rev().fold(0, |all, byte| all >> 8 | u64::from(*byte) << 56),
    }
}

const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Bytes of the longest item whose first byte tells where it ends.
const SHORT_BYTES_MAX: usize = 24;

/// Bytes of a word, and as many again as a number below 32 may say.
const PAIR_BYTES_MAX: usize = 8 + 32;

/// The first so many bytes of a word.
const LEADING_BYTES: [u64; 16] = {
    let mut leading = [u64::MAX; 16];
    let mut bytes = 0;
    while bytes < 8 {
        leading[bytes] = !(u64::MAX >> (8 * bytes));
        bytes += 1;
    }
    leading
};

/// The high bits of the first so many bytes of a word, of which the first is the lowest.
const LEADING_HIGH_BITS: [u64; 16] = {
    let mut high = [0; 16];
    let mut bytes = 0;
    while bytes < high.len() {
        high[bytes] = LEADING_BYTES[bytes].swap_bytes() & HIGH_BITS;
        bytes += 1;
    }
    high
};

/// Whether no byte of a short item is above 127. They are looked at eight at a time, those at the end twice.
#[inline]
pub(super) fn is_ascii(item: &[u8]) -> bool {
    if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        let between = item.get(8..16).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let all = u64::from_ne_bytes(*first) | u64::from_ne_bytes(between) | u64::from_ne_bytes(*last);
        return all & HIGH_BITS == 0;
    }
    if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        return u64::from(u32::from_ne_bytes(*first) | u32::from_ne_bytes(*last)) & HIGH_BITS == 0;
    }
    item.iter().fold(0, |all, byte| all | byte) < 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_short_item_is_looked_at() {
        // A short item has 24 bytes at most, its head among them.
        for length in 0..=24 {
            let mut item = vec![0x7f; length];
            assert!(is_ascii(&item), "{length}");
            for at in 0..length {
                item[at] = 0x80;
                assert!(!is_ascii(&item), "{length} {at}");
                item[at] = 0x7f;
            }
        }
    }
}
