//! Items whose first byte tells where they end in, what the strict check wants to know of them out, in a few wide looks.

use super::item::short_bytes;

/// Where so many pairs end, if each is a short text and a short value, as most are that are nested most deeply, and the keys
/// stand in ascending order. Others, and those at the end of the input, are to be looked at one by one.
#[inline(never)]
pub(super) fn pairs_end(bytes: &[u8], start: usize, pairs: u64) -> Option<usize> {
    let (mut at, mut last) = (start, 0);
    for _ in 0..pairs {
        let rest = bytes.get(at..)?;
        let key = rest.first_chunk()?;
        if !matches!(key[0], 0x60..0x78) {
            return None;
        }
        let key_bytes = 1 + usize::from(key[0] & 0x1f);
        // A key's first eight bytes as a number: of two different ones, that of the lower key is lower.
        let order = word(key, 0) & LEADING_BYTES[key_bytes];
        if order <= last || high_bits(key, key_bytes) != 0 {
            return None;
        }
        let value = rest.get(key_bytes..)?;
        let value_bytes = short_bytes(*value.first()?)?;
        if value_bytes > value.len()
            || value[0] >> 5 == 3 && high_bits(value.first_chunk()?, value_bytes) != 0
        {
            return None;
        }
        last = order;
        at += key_bytes + value_bytes;
    }
    Some(at)
}

/// A short item and what stands behind it.
type Window = [u8; SHORT_BYTES_MAX];

#[inline]
fn word(window: &Window, nth: usize) -> u64 {
    u64::from_be_bytes(window.as_chunks().0[nth])
}

/// What there is of bytes above 127 among the first so many.
#[inline]
fn high_bits(window: &Window, bytes: usize) -> u64 {
    let high = &HIGH_BITS[bytes];
    word(window, 0) & high[0] | word(window, 1) & high[1] | word(window, 2) & high[2]
}

/// Bytes of the longest item whose first byte tells where it ends.
const SHORT_BYTES_MAX: usize = 24;

/// The first so many bytes of a word.
const LEADING_BYTES: [u64; SHORT_BYTES_MAX + 1] = {
    let mut leading = [u64::MAX; SHORT_BYTES_MAX + 1];
    let mut bytes = 0;
    while bytes < 8 {
        leading[bytes] = !(u64::MAX >> (8 * bytes));
        bytes += 1;
    }
    leading
};

/// The high bits of the first so many bytes of a window.
const HIGH_BITS: [[u64; SHORT_BYTES_MAX / 8]; SHORT_BYTES_MAX + 1] = {
    let mut high = [[0; SHORT_BYTES_MAX / 8]; SHORT_BYTES_MAX + 1];
    let mut bytes = 1;
    while bytes < high.len() {
        let mut at = 0;
        while at < bytes {
            high[bytes][at / 8] |= 0x80 << (56 - at % 8 * 8);
            at += 1;
        }
        bytes += 1;
    }
    high
};

/// Whether no byte of a short item is above 127. They are looked at eight at a time, those at the end twice.
#[inline]
pub(super) fn is_ascii(item: &[u8]) -> bool {
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        let between = item.get(8..16).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let all = u64::from_ne_bytes(*first) | u64::from_ne_bytes(between) | u64::from_ne_bytes(*last);
        return all & HIGH == 0;
    }
    if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        return u64::from(u32::from_ne_bytes(*first) | u32::from_ne_bytes(*last)) & HIGH == 0;
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
