//! Encodes the operations `audit` and `audit-prune` of REQUEST and RESPONSE, which read and prune the audit log.
//!
//! They are extensions of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_bytes, read_map, required};
use crate::cbor::{Reader, Writer};

/// A query for entries of the audit log, page by page. Without a filter it asks for every entry, otherwise for the
/// records that match all filters.
///
/// **Shape:** `{"op": "audit", ? "after": uint, ? "limit": uint, ? "kind": tstr, ? "since_ms": uint, ? "capability": tstr,
/// ? "peer": tstr}`. **Units:** milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRequest<'a> {
    /// Only entries after this place.
    pub after: Option<u64>,
    /// Most entries on the page.
    pub limit: Option<u64>,
    /// Only records of this kind.
    pub kind: Option<Cow<'a, str>>,
    /// Only records from this moment on.
    pub since_ms: Option<u64>,
    /// Only records about the capability of this name, or of a namespace: `org.example.*`.
    pub capability: Option<Cow<'a, str>>,
    /// Only records about this other agent.
    pub peer: Option<Cow<'a, str>>,
}

/// One page of the audit log, which may be empty without being the last.
///
/// **Shape:** `{"op": "audit", "rows": [* audit-row], ? "next": uint, "head": uint, ? "head_hash": bstr .size 32,
/// "written": uint, "lost": uint}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage<'a> {
    /// The entries, in the order of the chain.
    pub rows: Vec<AuditRow<'a>>,
    /// The `after` of the next page; none on the last one.
    pub next: Option<u64>,
    /// The chain's last place when the page was read; 0 if the chain is empty.
    pub head: u64,
    /// The hash there.
    pub head_hash: Option<[u8; HASH_BYTES]>,
    /// Records written since the sidecar started.
    pub written: u64,
    /// Records since then that could not be written.
    pub lost: u64,
}

/// One entry of the chain.
///
/// **Shape:** `{"seq": uint, "hash": bstr .size 32, ? "record": tstr, ? "prev_hash": bstr .size 32}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow<'a> {
    /// Its place, from 1 on.
    pub seq: u64,
    /// Its hash.
    pub hash: [u8; HASH_BYTES],
    /// The record in canonical JSON; none if it was pruned.
    pub record: Option<Cow<'a, str>>,
    /// The hash of the entry before it; none for the first.
    pub prev_hash: Option<[u8; HASH_BYTES]>,
}

/// One step of pruning, after the place `after`. **Shape:** `{"op": "audit-prune", ? "after": uint, "before_ms":
/// uint}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditPruneRequest {
    /// Where the step begins.
    pub after: Option<u64>,
    /// Records older than this are removed. **Units:** milliseconds since the Unix epoch.
    pub before_ms: u64,
}

/// What a step of pruning did. **Shape:** `{"op": "audit-prune", "pruned": uint, ? "next": uint}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditPruned {
    /// Records that were removed.
    pub pruned: u64,
    /// Where the next step begins; none after the last step.
    pub next: Option<u64>,
}

impl<'a> AuditRequest<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut request = Self::default();
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"after" => request.after = Some(reader.uint()?),
                b"limit" => request.limit = Some(reader.uint()?),
                b"kind" => request.kind = Some(reader.text()?),
                b"since_ms" => request.since_ms = Some(reader.uint()?),
                b"capability" => request.capability = Some(reader.text()?),
                b"peer" => request.peer = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(request)
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        map.text_if("kind", self.kind.as_deref());
        map.text_if("peer", self.peer.as_deref());
        map.uint_if("after", self.after);
        map.uint_if("limit", self.limit);
        map.uint_if("since_ms", self.since_ms);
        map.text_if("capability", self.capability.as_deref());
    }
}

impl<'a> AuditPage<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut rows, mut head, mut written, mut lost) = (None, None, None, None);
        let mut page = Self::default();
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"rows" => rows = Some(read_array(reader, AuditRow::read)?),
                b"next" => page.next = Some(reader.uint()?),
                b"head" => head = Some(reader.uint()?),
                b"head_hash" => page.head_hash = Some(read_hash(reader, "head_hash")?),
                b"written" => written = Some(reader.uint()?),
                b"lost" => lost = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            rows: required(rows, "rows")?,
            head: required(head, "head")?,
            written: required(written, "written")?,
            lost: required(lost, "lost")?,
            ..page
        })
    }

    /// The same page, owned.
    pub fn into_owned(self) -> AuditPage<'static> {
        let rows = self.rows.into_iter().map(|row| AuditRow {
            seq: row.seq,
            hash: row.hash,
            record: row.record.map(|record| Cow::Owned(record.into_owned())),
            prev_hash: row.prev_hash,
        });
        AuditPage {
            rows: rows.collect(),
            next: self.next,
            head: self.head,
            head_hash: self.head_hash,
            written: self.written,
            lost: self.lost,
        }
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        map.uint("head", self.head);
        map.uint("lost", self.lost);
        map.uint_if("next", self.next);
        let out = map.key_then("rows");
        Writer::new(out).array(self.rows.len() as u64);
        for row in &self.rows {
            row.write(out);
        }
        map.uint("written", self.written);
        map.bytes_if("head_hash", self.head_hash.as_ref());
    }
}

impl<'a> AuditRow<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut seq, mut hash, mut record, mut prev_hash) = (None, None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"seq" => seq = Some(reader.uint()?),
                b"hash" => hash = Some(read_hash(reader, "hash")?),
                b"record" => record = Some(reader.text()?),
                b"prev_hash" => prev_hash = Some(read_hash(reader, "prev_hash")?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { seq: required(seq, "seq")?, hash: required(hash, "hash")?, record, prev_hash })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint("seq", self.seq);
        map.bytes("hash", &self.hash);
        map.text_if("record", self.record.as_deref());
        map.bytes_if("prev_hash", self.prev_hash.as_ref());
    }
}

impl AuditPruneRequest {
    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let (mut after, mut before_ms) = (None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"after" => after = Some(reader.uint()?),
                b"before_ms" => before_ms = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { after, before_ms: required(before_ms, "before_ms")? })
    }

    pub(super) fn write(self, map: &mut MapWriter<'_>) {
        map.text("op", OP_PRUNE);
        map.uint_if("after", self.after);
        map.uint("before_ms", self.before_ms);
    }
}

impl AuditPruned {
    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let (mut pruned, mut next) = (None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"pruned" => pruned = Some(reader.uint()?),
                b"next" => next = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { pruned: required(pruned, "pruned")?, next })
    }

    pub(super) fn write(self, map: &mut MapWriter<'_>) {
        map.text("op", OP_PRUNE);
        map.uint_if("next", self.next);
        map.uint("pruned", self.pruned);
    }
}

fn read_hash(reader: &mut Reader<'_>, field: &'static str) -> Result<[u8; HASH_BYTES], BodyError> {
    read_bytes(reader, field, "32 bytes")
}

/// The operation that asks for entries.
pub(super) const OP: &str = "audit";
/// The operation that removes old ones.
pub(super) const OP_PRUNE: &str = "audit-prune";
/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;
