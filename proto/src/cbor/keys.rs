//! Sorts the pairs of one checked map by the order of deterministic encoding (RFC 8949 4.2.1).
//!
//! The order is a list of key offsets, 4 bytes each: a message may consist of keys, and its size must bound the cost of
//! sorting them. Keys are compared in place, in any encoding. The exception is a key that contains a map and is not in
//! deterministic form: it is rewritten once, and [`CBOR_MAP_KEYS_BYTES_MAX`](crate::limits::CBOR_MAP_KEYS_BYTES_MAX)
//! bounds all such keys.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, RandomState};

use super::deterministic::{deterministic_at, is_deterministic};
use super::ends::Ends;
use super::error::Error;
use super::item::{head_at, skip_at, string_end};
use super::order::compare;
use super::reader::Reader;

/// Counts the pairs from `reader`'s position on, of which a head promised `left`, and says whether their keys stand in
/// order already.
pub(super) fn survey(
    mut reader: Reader<'_>,
    mut left: Option<u64>,
    ends: &Ends,
) -> Result<(usize, bool), Error> {
    let (mut count, mut is_in_order, mut last) = (0, true, None);
    while reader.has_next(&mut left) {
        let key = reader.skip()?;
        ends.skip(&mut reader)?;
        count += 1;
        is_in_order =
            is_in_order && !is_rewritten(key) && last.is_none_or(|last| compare(last, key) == Ordering::Less);
        last = Some(key);
    }
    Ok((count, is_in_order))
}

/// The keys of one map, in order.
pub(super) struct Keys<'a> {
    input: &'a [u8],
    /// The position of each key: in the input, or after it in `rewritten`.
    keys: Vec<u32>,
    /// Keys in deterministic form, each preceded by its offset in the input.
    rewritten: Vec<u8>,
    end: usize,
}

impl<'a> Keys<'a> {
    /// The keys of the `count` pairs from `reader`'s position on, of which a head promised `left`, past values
    /// whose `ends` are known. Those that hold a map, and where they stand, are given to `on_map_key` before any is written
    /// anew.
    pub(super) fn in_order(
        reader: &Reader<'a>,
        mut left: Option<u64>,
        count: usize,
        ends: &Ends,
        mut on_map_key: impl FnMut(usize, &[u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (input, mut reader) = (reader.input(), *reader);
        let mut ordered = Self { input, keys: Vec::with_capacity(count), rewritten: Vec::new(), end: 0 };
        let (mut rewritten_bytes, mut is_even) = (0, true);
        while reader.has_next(&mut left) {
            let start = reader.position();
            ordered.keys.push(start as u32);
            let key = reader.skip()?;
            is_even &= key.len() <= EVEN_BYTES_MAX;
            if holds_map(key) {
                on_map_key(start, key)?;
                if !is_deterministic(key) {
                    // A length may take a byte more in definite form, where it counts at least 256 items.
                    rewritten_bytes += START_BYTES + key.len() + key.len() / 256;
                }
            }
            ends.skip(&mut reader)?;
        }
        ordered.end = reader.position();
        if rewritten_bytes > 0 {
            ordered.rewrite(rewritten_bytes)?;
        }
        let mut keys = std::mem::take(&mut ordered.keys);
        if !is_even {
            shuffle(&mut keys);
        }
        keys.sort_unstable_by(|a, b| {
            compare(ordered.key(*a), ordered.key(*b)).then_with(|| ordered.start(*a).cmp(&ordered.start(*b)))
        });
        ordered.keys = keys;
        Ok(ordered)
    }

    /// Writes keys anew that cannot be compared where they stand, which takes at most so many bytes.
    fn rewrite(&mut self, bytes_max: usize) -> Result<(), Error> {
        self.rewritten.reserve_exact(bytes_max);
        for key in &mut self.keys {
            let start = *key as usize;
            if is_rewritten(&self.input[start..skip_at(self.input, start, 0)?]) {
                self.rewritten.extend_from_slice(&key.to_be_bytes());
                *key = (self.input.len() + self.rewritten.len()) as u32;
                deterministic_at(self.input, start, &mut self.rewritten)?;
            }
        }
        Ok(())
    }

    /// Where each pair stands in the input, in the order of the keys, and its key if that has been written anew.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
        self.keys.iter().map(|key| {
            let is_rewritten = *key as usize >= self.input.len();
            (self.start(*key), is_rewritten.then(|| item(self.key(*key))))
        })
    }

    /// Where a key stands in the input, and where it stands once more.
    pub(super) fn repeated(&self) -> Option<[usize; 2]> {
        let is_repeated = |pair: &&[u32]| compare(self.key(pair[0]), self.key(pair[1])) == Ordering::Equal;
        self.keys.windows(2).find(is_repeated).map(|pair| [self.start(pair[0]), self.start(pair[1])])
    }

    /// The offset behind the map.
    pub(super) const fn end(&self) -> usize {
        self.end
    }

    /// Where in the input a key stands.
    fn start(&self, key: u32) -> usize {
        match (key as usize).checked_sub(self.input.len()) {
            None => key as usize,
            Some(at) => {
                let start =
                    self.rewritten[..at].last_chunk().expect("each rewritten key has its start before it");
                u32::from_be_bytes(*start) as usize
            }
        }
    }

    /// Bytes that begin with a key.
    fn key(&self, at: u32) -> &[u8] {
        match (at as usize).checked_sub(self.input.len()) {
            None => &self.input[at as usize..],
            Some(at) => &self.rewritten[at..],
        }
    }
}

/// The item that `bytes` begin with, which has been skipped or written before.
fn item(bytes: &[u8]) -> &[u8] {
    &bytes[..skip_at(bytes, 0, 0).unwrap_or(bytes.len())]
}

/// Puts keys in an order that nobody can foresee.
///
/// A key of indefinite length may be walked to its end each time it is compared. How often a sort compares each key with
/// others depends on where it stands, and whoever knew that could have the longest one compared with all the others.
fn shuffle(keys: &mut [u32]) {
    let random = RandomState::new();
    for at in 1..keys.len() {
        keys.swap(at, random.hash_one(at) as usize % (at + 1));
    }
}

/// Whether a key must be written anew to be compared.
fn is_rewritten(key: &[u8]) -> bool {
    holds_map(key) && !is_deterministic(key)
}

/// Whether a key is a map, or has one in it.
fn holds_map(key: &[u8]) -> bool {
    let mut at = 0;
    // Heads follow each other, but for the content of strings.
    while let Ok(head) = head_at(key, at) {
        at = match head.major {
            5 => return true,
            2 | 3 if !head.is_indefinite() => match string_end(key, at, head) {
                Ok(end) => end,
                Err(_) => return false,
            },
            _ => at + head.head_bytes,
        };
    }
    false
}

/// An offset, as it stands before a rewritten key.
const START_BYTES: usize = size_of::<u32>();
/// Longest key that may be compared any number of times, in bytes.
const EVEN_BYTES_MAX: usize = 64;
