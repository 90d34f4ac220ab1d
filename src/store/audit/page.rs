//! Reads one page of entries, or makes one step of pruning. Each costs a bounded amount of work.

use std::str::FromStr as _;

use serde_json::Value;

use super::chain::{Entry, Head};
use super::{AuditStorage, Kind, Record, StoreError};

/// A query for entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only entries after this place; 0 for all.
    pub after: u64,
    /// Most entries on the page.
    pub rows_max: usize,
    /// Bytes after which a page ends; it has at least one entry.
    pub bytes_max: usize,
    /// The filter; without one every entry, including tombstones.
    pub filter: Option<Filter>,
}

/// Selects the records that match all fields. A tombstone matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this kind.
    pub kind: Option<Kind>,
    /// From this moment on. **Units:** milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// About the capability of this name, or of a namespace: `org.example.*`.
    pub capability: Option<String>,
    /// About this other agent.
    pub peer: Option<String>,
}

/// Entries, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The matching entries.
    pub entries: Vec<Entry>,
    /// Where the next page begins; none after the last page.
    pub next: Option<u64>,
    /// The end of the chain when the page was read.
    pub head: Head,
}

/// What one step of pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Records that are tombstones from here on.
    pub records: u64,
    /// Where the next step begins; none after the last step.
    pub next: Option<u64>,
}

/// One page of `storage`. A page may be empty without being the last: it examines a bounded number of entries.
///
/// **Errors:** the storage cannot be read.
pub fn page(storage: &mut impl AuditStorage, query: &Query) -> Result<Page, StoreError> {
    let bytes_max = query.bytes_max.min(SCAN_BYTES_MAX);
    // What is filtered out is not counted, so more is looked at than is given.
    let (rows_scanned, bytes_scanned) = match query.filter {
        Some(_) => (SCAN_ROWS_MAX, SCAN_BYTES_MAX),
        None => (query.rows_max.min(SCAN_ROWS_MAX), bytes_max),
    };
    let mut scanned = storage.read(query.after, rows_scanned, bytes_scanned)?;
    // The end is read behind the rows: what another process appends meanwhile is not taken for missing.
    let mut head = storage.head()?;
    if scanned.is_empty() && head.seq > query.after {
        scanned = storage.read(query.after, rows_scanned, bytes_scanned)?;
        head = storage.head()?;
    }
    let last = scanned.last().map(|entry| entry.seq);
    let mut page = Page { entries: Vec::new(), next: last.filter(|last| *last < head.seq), head };
    let mut bytes = 0;
    for entry in scanned {
        if query.filter.as_ref().is_some_and(|filter| !filter.fits(&entry)) {
            continue;
        }
        bytes += entry.len_bytes();
        if !page.entries.is_empty() && (bytes > bytes_max || page.entries.len() >= query.rows_max) {
            page.next = page.entries.last().map(|entry| entry.seq);
            break;
        }
        page.entries.push(entry);
    }
    Ok(page)
}

/// Empties records after the place `after` that are older than `before_ms`, and appends a record that names them.
/// Records of earlier prunings stay, because tombstones are verified by them.
///
/// **Units:** milliseconds since the Unix epoch. **Errors:** the storage cannot be read or written.
pub fn prune(
    storage: &mut impl AuditStorage,
    tenant: &str,
    after: u64,
    before_ms: u64,
    now_ms: u64,
) -> Result<Pruned, StoreError> {
    let head = storage.head()?;
    let scanned = storage.read(after, SCAN_ROWS_MAX, SCAN_BYTES_MAX)?;
    let mut places: Vec<(u64, u64)> = Vec::new();
    let mut pruned = Pruned::default();
    let mut reached = after;
    for entry in &scanned {
        let is_due = entry.record.as_deref().and_then(fields).is_some_and(|record| {
            record["kind"] != Kind::Pruned.as_str() && record["ts"].as_u64().is_some_and(|ts| ts < before_ms)
        });
        if is_due {
            let count = places.len();
            match places.last_mut() {
                Some((_, last)) if *last + 1 == entry.seq => *last = entry.seq,
                // One record names a bounded number of places.
                _ if count >= RANGES_MAX => break,
                _ => places.push((entry.seq, entry.seq)),
            }
            pruned.records += 1;
        }
        reached = entry.seq;
    }
    if !places.is_empty() {
        let ranges: Vec<Value> = places.iter().map(|(first, last)| [*first, *last].to_vec().into()).collect();
        let note = Record::new(Kind::Pruned, now_ms)
            .with("olderThan", before_ms)
            .with("records", pruned.records)
            .with("ranges", ranges);
        storage.erase(&places, &note.canonical(tenant))?;
    }
    pruned.next = Some(reached).filter(|reached| *reached < head.seq && *reached > after);
    Ok(pruned)
}

impl Filter {
    /// Whether an entry matches.
    pub fn fits(&self, entry: &Entry) -> bool {
        let Some(record) = entry.record.as_deref().and_then(fields) else { return false };
        let text = |key: &str| record[key].as_str();
        let is_kind = |kind| text("kind").is_some_and(|text| Kind::from_str(text) == Ok(kind));
        self.kind.is_none_or(is_kind)
            && self.since_ms.is_none_or(|since_ms| record["ts"].as_u64().is_some_and(|ts| ts >= since_ms))
            && self.peer.as_deref().is_none_or(|peer| text("peerId") == Some(peer))
            && self.capability.as_deref().is_none_or(|wanted| {
                text("capabilityName").is_some_and(|name| match wanted.strip_suffix('*') {
                    Some(namespace) => name.starts_with(namespace),
                    None => name == wanted,
                })
            })
    }
}

fn fields(record: &str) -> Option<Value> {
    serde_json::from_str(record).ok()
}

/// Entries looked at for one page or one step of pruning. Ours: some milliseconds of the one thread that also writes.
const SCAN_ROWS_MAX: usize = 4_096;
/// Bytes looked at for one page or one step of pruning.
const SCAN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Runs of places that one record of pruning names.
const RANGES_MAX: usize = 64;
