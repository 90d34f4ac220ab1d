//! Reads the audit log: pages from the newest record back, the check of its chain, and all of it for a file.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use bytes::Bytes;
use capd_proto::message::{AuditPage, AuditRequest, AuditRow};
use futures_util::stream::unfold;
use serde_json::{Value, json};

use super::Shown;
use super::fault::{Fault, Json};
use super::lists::parameters;
use crate::client::Client;
use crate::store::audit::chain::{Break, Entry, Head, Verifier, hex};

/// Records that match the filters, newest first: those before the place `before`, or the last ones.
///
/// **Shape:** `{"records": [{"seq", "hash", "record"}], ? "before", "head", "written", "lost"}`. `before` leads to the next
/// page, which may be empty without being the last.
pub(super) async fn records(State(shown): State<Arc<Shown>>, uri: Uri) -> Result<Json, Fault> {
    let asked = parameters(&uri);
    let number = |key: &str| {
        asked
            .get(key)
            .map(|text| text.parse::<u64>().map_err(|_| Fault::bad(format!("{key}={text:?} is no number"))))
            .transpose()
    };
    let text = |key: &str| asked.get(key).filter(|text| !text.is_empty()).map(|text| text.as_str().into());
    let wanted = AuditRequest {
        kind: text("kind"),
        since_ms: number("since_ms")?,
        capability: text("capability"),
        peer: text("peer"),
        limit: Some(WINDOW),
        after: None,
    };
    let client = shown.sidecar.connect().await?;
    let end = client
        .audit(&AuditRequest { after: Some(u64::MAX), limit: Some(1), ..AuditRequest::default() })
        .await?;
    let mut before = number("before")?.unwrap_or(end.head + 1).min(end.head + 1);
    let mut found = Vec::new();
    // A filter that little passes is looked for in few steps, and the browser asks on.
    for _ in 0..STEPS_MAX {
        if before <= 1 || found.len() >= RECORDS_MAX {
            break;
        }
        let first = before.saturating_sub(WINDOW).max(1);
        let mut window = within(&client, &wanted, first, before).await?;
        window.extend(found);
        found = window;
        before = first;
    }
    found.reverse();
    let mut document = json!({"records": found, "head": end.head, "written": end.written, "lost": end.lost});
    if before > 1 {
        document["before"] = before.into();
    }
    Ok(Json(document))
}

/// Records at the places from `first` on, and before `before`.
async fn within(
    client: &Client,
    wanted: &AuditRequest<'_>,
    first: u64,
    before: u64,
) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    let mut after = first - 1;
    loop {
        let page = client.audit(&AuditRequest { after: Some(after), ..wanted.clone() }).await?;
        let rows = page.rows.iter().filter(|row| row.seq < before && row.record.is_some());
        found.extend(rows.map(shown_row));
        match page.next.filter(|next| *next > after && *next + 1 < before) {
            Some(next) => after = next,
            None => return Ok(found),
        }
    }
}

fn shown_row(row: &AuditRow<'_>) -> Value {
    // What is no JSON is shown as it is.
    let record = row.record.as_deref().unwrap_or_default();
    let record: Value = serde_json::from_str(record).unwrap_or_else(|_| record.into());
    json!({"seq": row.seq, "hash": hex(&row.hash), "record": record})
}

/// **Shape:** `{"ok": true, "records", "pruned", "lost", "head": {"seq", "hash"}}`, or `{"ok": false, "seq", "what"}`.
pub(super) async fn check(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    let client = shown.sidecar.connect().await?;
    let (mut verifier, mut after) = (Verifier::default(), 0);
    let verdict = loop {
        let page = page(&client, after).await?;
        let broken = page.rows.iter().map(entry).find_map(|entry| verifier.take(&entry).err());
        if let Some(broken) = broken {
            break Err(broken);
        }
        match page.next {
            Some(next) => after = next,
            None => break verifier.finish(&Head { seq: page.head, hash: page.head_hash }),
        }
    };
    Ok(Json(match verdict {
        Ok(summary) => json!({
            "ok": true,
            "records": summary.records,
            "pruned": summary.pruned,
            "lost": summary.lost,
            "head": {"seq": summary.head.seq, "hash": summary.head.hash.map(|hash| hex(&hash))},
        }),
        Err(Break { seq, what }) => json!({"ok": false, "seq": seq, "what": what}),
    }))
}

/// Every entry as a line of JSON, as `capctl audit export` writes it.
pub(super) async fn export(State(shown): State<Arc<Shown>>) -> Result<Response, Fault> {
    let client = shown.sidecar.connect().await?;
    let pieces = unfold((client, Some(0)), |(client, after)| async move {
        let page = page(&client, after?).await;
        // A reader learns by the end of the stream that it broke off: an export without its end fails the check.
        let page = page.ok()?;
        let lines: String = page.rows.iter().map(|row| format!("{}\n", entry(row).to_json())).collect();
        Some((Ok::<_, Infallible>(Bytes::from(lines)), (client, page.next)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// The entries behind a place. **Errors:** as the sidecar gives them; a page that does not advance.
async fn page(client: &Client, after: u64) -> Result<AuditPage<'static>, Fault> {
    let page = client.audit(&AuditRequest { after: Some(after), ..AuditRequest::default() }).await?;
    match page.next {
        Some(next) if next <= after => {
            Err(Fault::away("the sidecar sent a page of its audit log that does not advance"))
        }
        _ => Ok(page),
    }
}

fn entry(row: &AuditRow<'_>) -> Entry {
    Entry {
        seq: row.seq,
        prev_hash: row.prev_hash,
        record: row.record.as_deref().map(str::to_owned),
        record_hash: row.hash,
    }
}

/// Places that one step looks back. Ours: as many as the sidecar reads at once.
const WINDOW: u64 = 1_000;
/// Records of a page from which on no further step is made.
const RECORDS_MAX: usize = 200;
/// Most steps of one page.
const STEPS_MAX: usize = 10;
