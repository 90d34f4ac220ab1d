//! Reads the audit log, from a sidecar or a file alike: a question in, pages of entries out.

use std::path::Path;

use capd::client::Client;
use capd::net::System;
use capd::store::audit::chain::{Entry, Head};
use capd::store::audit::{
    AuditCounters, AuditFile, AuditStorage as _, Filter, Page, Pruned, Query, page, prune,
};
use capd::store::{StoreError, StoreErrorKind};
use capd_proto::capability::CapabilityName;
use capd_proto::limits::QUERY_LIMIT_MAX;
use capd_proto::message::{AuditPage, AuditPruneRequest, AuditRequest};
use serde_json::Value;

use crate::Sidecar;
use crate::capability::Wanted;
use crate::failure::{Exit, Failure};

/// Where a log is read.
pub(super) enum Source {
    /// Through the sidecar that writes it.
    Sidecar(Client),
    /// The file itself, written or not.
    File(AuditFile),
}

impl Source {
    /// The log of a file, or else of the sidecar.
    ///
    /// **Errors:** as for a link to it, or the file cannot be used; one that is damaged is a broken chain.
    pub(super) async fn of(sidecar: &Sidecar, file: Option<&Path>, writes: bool) -> Result<Self, Failure> {
        let Some(file) = file else { return sidecar.connect_for_people().await.map(Self::Sidecar) };
        let opened = if writes { AuditFile::write(file, None) } else { AuditFile::read(file) };
        opened.map(Self::File).map_err(|error| match error.kind() {
            StoreErrorKind::Corrupt => failure(error),
            _ => Failure::usage(error.to_string()),
        })
    }

    /// The DID of the peer that the command line means. A file has no names, and may have peers that are gone.
    pub(super) async fn peer(&self, text: String) -> Result<String, Failure> {
        match self {
            Self::Sidecar(client) => Ok(crate::names::find(client, &text).await?.to_string()),
            Self::File(_) => Ok(text),
        }
    }

    /// The name that the command line means, or the namespace as it is. **Errors:** usage, or not found.
    pub(super) async fn capability(&self, text: String) -> Result<String, Failure> {
        if text.ends_with('*') {
            return Ok(text);
        }
        let wanted = Wanted::of_all_versions(&text, "the audit log")?;
        match self {
            Self::Sidecar(client) => Ok(wanted.name(client).await?.to_string()),
            Self::File(_) if text.parse::<CapabilityName>().is_ok() => Ok(text),
            Self::File(_) => Err(Failure::usage(format!("{text:?} is no whole name"))
                .hint("without --file, the sidecar finds a name by its end")),
        }
    }

    /// The records behind `after` that fit the filter, or every entry.
    pub(super) async fn page(
        &mut self,
        after: u64,
        filter: Option<&Filter>,
    ) -> Result<(Page, AuditCounters), Failure> {
        match self {
            Self::Sidecar(client) => {
                let filter = filter.cloned().unwrap_or_default();
                let request = AuditRequest {
                    after: Some(after),
                    limit: Some(QUERY_LIMIT_MAX),
                    kind: filter.kind.map(|kind| kind.as_str().into()),
                    since_ms: filter.since_ms,
                    capability: filter.capability.as_deref().map(Into::into),
                    peer: filter.peer.as_deref().map(Into::into),
                };
                let page = client.audit(&request).await?;
                if page.next.is_some_and(|next| next <= after) {
                    let said = "a page whose cursor does not advance".to_owned();
                    return Err(capd::client::ClientError::Answer(said).into());
                }
                Ok(of_wire(page))
            }
            Self::File(file) => {
                let (rows_max, bytes_max) = (ROWS_MAX, usize::MAX);
                let query = Query { after, rows_max, bytes_max, filter: filter.cloned() };
                let page = page(file, &query).map_err(failure)?;
                Ok((page, AuditCounters::default()))
            }
        }
    }

    /// One step of pruning behind `after`.
    pub(super) async fn prune(&mut self, after: u64, before_ms: u64) -> Result<Pruned, Failure> {
        match self {
            Self::Sidecar(client) => {
                let request = AuditPruneRequest { after: Some(after), before_ms };
                let pruned = client.audit_prune(request).await?;
                Ok(Pruned { records: pruned.pruned, next: pruned.next.filter(|next| *next > after) })
            }
            Self::File(file) => {
                let tenant = tenant(file)?;
                prune(file, &tenant, after, before_ms, now_ms()).map_err(failure)
            }
        }
    }
}

/// The time of day. **Units:** milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    System::real().clock.wall_ms()
}

/// Whose records a file has, as its last one says.
fn tenant(file: &mut AuditFile) -> Result<String, Failure> {
    let head = file.head().map_err(failure)?;
    let last = file.read(head.seq.saturating_sub(1), 1, usize::MAX).map_err(failure)?;
    let record = last.first().and_then(|entry| serde_json::from_str::<Value>(entry.record.as_deref()?).ok());
    let tenant = record.as_ref().and_then(|record| record["tenantId"].as_str());
    Ok(tenant.unwrap_or("default").to_owned())
}

fn of_wire(page: AuditPage<'static>) -> (Page, AuditCounters) {
    let entries = page.rows.into_iter().map(|row| Entry {
        seq: row.seq,
        prev_hash: row.prev_hash,
        record: row.record.map(std::borrow::Cow::into_owned),
        record_hash: row.hash,
    });
    let (entries, head) = (entries.collect(), Head { seq: page.head, hash: page.head_hash });
    let counters = AuditCounters { written: page.written, lost: page.lost, ..AuditCounters::default() };
    (Page { entries, next: page.next, head }, counters)
}

fn failure(error: StoreError) -> Failure {
    let failure = Failure::unexpected(error.to_string());
    match error.kind() {
        StoreErrorKind::Corrupt => failure.exit(Exit::SchemaViolation),
        StoreErrorKind::Locked => failure.exit(Exit::Unavailable),
        _ => failure,
    }
}

/// Most entries of a file at once.
const ROWS_MAX: usize = 1_000;
