//! Hashes records into a chain, and finds the first entry that was changed. It does no I/O.
//!
//! **Shape:** `record_hash = SHA-256(hex(prev_hash) ‖ "\n" ‖ canonical record)`, written as lowercase hexadecimal
//! digits; the first `prev_hash` is the empty text.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Kind;

/// A record's hash.
pub type Hash = [u8; 32];

/// A place of the chain: a record with its hashes, or its tombstone after pruning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1 on without gaps.
    pub seq: u64,
    /// The hash of the entry before it; none for the first.
    pub prev_hash: Option<Hash>,
    /// The canonical record; none for a tombstone.
    pub record: Option<String>,
    /// Its own hash.
    pub record_hash: Hash,
}

/// The end of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The last entry's place; 0 if there is none.
    pub seq: u64,
    /// The last entry's hash.
    pub hash: Option<Hash>,
}

/// The content of a verified chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records.
    pub records: u64,
    /// Tombstones.
    pub pruned: u64,
    /// Lost records, as later records report.
    pub lost: u64,
    /// Its end.
    pub head: Head,
}

/// The first place that was altered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// The place.
    pub seq: u64,
    /// What is wrong there.
    pub what: String,
}

/// Verifies entries in order, from the first on. It only keeps the runs of tombstones that no record has named yet.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    summary: Summary,
    /// Tombstones that wait for the record of their pruning, as first and last places.
    unnamed: Vec<(u64, u64)>,
}

/// The hash of a canonical record after `prev`.
pub fn record_hash(prev: Option<&Hash>, canonical: &str) -> Hash {
    let mut hasher = Sha256::new();
    if let Some(prev) = prev {
        hasher.update(hex(prev));
    }
    hasher.update(b"\n");
    hasher.update(canonical);
    hasher.finalize().into()
}

/// Lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
        text
    })
}

impl Entry {
    /// **Shape:** `{"seq", "prev_hash", "record", "record_hash"}`; a tombstone has `"pruned": true` in place of the record.
    pub fn to_json(&self) -> Value {
        let prev_hash = self.prev_hash.as_ref().map(|hash| hex(hash)).unwrap_or_default();
        let mut entry =
            json!({"seq": self.seq, "prev_hash": prev_hash, "record_hash": hex(&self.record_hash)});
        match &self.record {
            // What is not JSON any more is shown as it is.
            Some(record) => {
                entry["record"] = serde_json::from_str(record).unwrap_or_else(|_| record.as_str().into());
            }
            None => entry["pruned"] = true.into(),
        }
        entry
    }

    /// Its approximate size in memory and on a page, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.record.as_ref().map_or(0, String::len) + ENTRY_BYTES
    }
}

impl Head {
    /// The entry of the next record.
    pub fn after(&mut self, canonical: &str) -> Entry {
        let record_hash = record_hash(self.hash.as_ref(), canonical);
        let entry = Entry {
            seq: self.seq + 1,
            prev_hash: self.hash,
            record: Some(canonical.to_owned()),
            record_hash,
        };
        *self = Self { seq: entry.seq, hash: Some(record_hash) };
        entry
    }
}

impl Verifier {
    /// Verifies the next entry. **Errors:** it does not follow from the entry before.
    pub fn take(&mut self, entry: &Entry) -> Result<(), Break> {
        let head = &mut self.summary.head;
        let expected = head.seq + 1;
        if entry.seq != expected {
            return Err(Break::at(
                expected,
                if entry.seq > expected {
                    format!("it is missing: the next row is {}", entry.seq)
                } else {
                    format!("row {} is in its place", entry.seq)
                },
            ));
        }
        if entry.prev_hash != head.hash {
            return Err(Break::at(entry.seq, "its prev_hash is not the record_hash of the row before"));
        }
        *head = Head { seq: entry.seq, hash: Some(entry.record_hash) };
        let Some(record) = &entry.record else {
            self.summary.pruned += 1;
            match self.unnamed.last_mut() {
                Some((_, last)) if *last + 1 == entry.seq => *last = entry.seq,
                _ => self.unnamed.push((entry.seq, entry.seq)),
            }
            return Ok(());
        };
        if record_hash(entry.prev_hash.as_ref(), record) != entry.record_hash {
            return Err(Break::at(
                entry.seq,
                "its record does not have its record_hash: one of them was changed",
            ));
        }
        self.summary.records += 1;
        let Ok(record) = serde_json::from_str::<Value>(record) else {
            return Err(Break::at(entry.seq, "its record is not JSON"));
        };
        match record["kind"].as_str() {
            Some(kind) if kind == Kind::Pruned.as_str() => self.name(&record, entry.seq),
            Some(kind) if kind == Kind::Lost.as_str() => {
                self.summary.lost = self.summary.lost.saturating_add(record["records"].as_u64().unwrap_or(0));
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(Break::at(entry.seq, "its record has no kind")),
        }
    }

    /// Finishes after the last entry. **Errors:** entries are missing at the end, or a tombstone was not made by
    /// pruning.
    pub fn finish(self, head: &Head) -> Result<Summary, Break> {
        let found = self.summary.head;
        if found.seq < head.seq {
            return Err(Break::at(
                found.seq + 1,
                format!("it is missing, and so is what follows, up to row {}", head.seq),
            ));
        }
        if found != *head {
            return Err(Break::at(
                found.seq,
                format!("the file's own end of the chain is row {}, or another hash", head.seq),
            ));
        }
        match self.unnamed.first() {
            Some((first, _)) => {
                Err(Break::at(*first, "its record was erased, and no audit_pruned record says so"))
            }
            None => Ok(self.summary),
        }
    }

    /// A record of pruning: it names the places that it emptied.
    fn name(&mut self, record: &Value, seq: u64) -> Result<(), Break> {
        let ranges = record["ranges"].as_array().map(Vec::as_slice).unwrap_or_default();
        for range in ranges {
            let (Some(first), Some(last)) = (range[0].as_u64(), range[1].as_u64()) else {
                return Err(Break::at(seq, "its ranges are not pairs of places"));
            };
            let unnamed = std::mem::take(&mut self.unnamed);
            for (start, end) in unnamed {
                if start < first {
                    self.unnamed.push((start, end.min(first - 1)));
                }
                if end > last {
                    self.unnamed.push((start.max(last.saturating_add(1)), end));
                }
            }
        }
        Ok(())
    }
}

impl Break {
    /// What is wrong at a place.
    pub fn at(seq: u64, what: impl fmt::Display) -> Self {
        Self { seq, what: what.to_string() }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: {}", self.seq, self.what)
    }
}

/// An entry's bytes without its record's.
const ENTRY_BYTES: usize = 160;
