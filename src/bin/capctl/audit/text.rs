//! Prints audit records as a table.

use capd::store::audit::Kind;
use capd::store::audit::chain::Entry;
use serde_json::Value;

use crate::{output, time};

/// A row for each record, under a heading if it is the first table.
pub(super) fn table(entries: &[&Entry], has_heading: bool) -> String {
    let rows: Vec<_> = entries.iter().map(|entry| row(entry)).collect();
    let table = output::table(&["ROW", "TIME", "KIND", "CAPABILITY", "PEER", "ID", "WHAT"], &rows);
    match (has_heading, table.split_once('\n')) {
        (false, Some((_, rows))) => rows.to_owned(),
        (true, _) | (false, None) => table,
    }
}

fn row(entry: &Entry) -> Vec<String> {
    let record = entry.record.as_deref().and_then(|record| serde_json::from_str::<Value>(record).ok());
    let record = record.unwrap_or_default();
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
    vec![
        entry.seq.to_string(),
        record["ts"].as_u64().map(time::utc).unwrap_or_default(),
        text("kind"),
        text("capabilityName"),
        text("peerId"),
        text("correlationId"),
        what(&record),
    ]
}

/// What happened, in a few words.
fn what(record: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let first = |list: &Value| -> (Value, String) {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let more = match list.len() {
            0 | 1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        (list.first().cloned().unwrap_or_default(), more)
    };
    let kind = record["kind"].as_str().and_then(|kind| kind.parse().ok());
    match kind {
        Some(Kind::SchemaViolation) => {
            let (violation, more) = first(&record["violations"]);
            let (path, message) = (text(&violation["path"]), text(&violation["message"]));
            format!("{}: {path} {message}{more}", text(&record["side"]))
        }
        Some(Kind::Drift) => {
            let (finding, more) = first(&record["findings"]);
            let (side, path, rule) = (text(&finding["side"]), text(&finding["path"]), text(&finding["rule"]));
            format!("{}: {side} {path} {rule}{more}", record["code"])
        }
        Some(Kind::Denied | Kind::BindingMismatch) if record["count"].is_u64() => {
            let span_ms = record["lastAt"].as_u64().zip(record["firstAt"].as_u64());
            let span_ms = span_ms.map_or(0, |(last, first)| last.saturating_sub(first));
            let typ = record["messageType"].as_str().unwrap_or("messages");
            format!(
                "{typ}: {} more within {} s, {}",
                record["count"],
                span_ms.div_ceil(1_000),
                record["code"]
            )
        }
        Some(Kind::Denied) => format!("{}: {}", text(&record["messageType"]), text(&record["reason"])),
        Some(Kind::BindingMismatch) => format!("from {}", text(&record["from"])),
        Some(Kind::RawResult) => format!("{} bytes", record["bytes"]),
        Some(Kind::Operator) => format!("{} with {}", text(&record["action"]), text(&record["tool"])),
        Some(Kind::Lost) => format!("{} records could not be written", record["records"]),
        Some(Kind::Reloaded) => {
            let (change, _) = first(&record["changes"]);
            let more = record["changeCount"].as_u64().unwrap_or(1).saturating_sub(1);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            format!("{}{more}", text(&change["key"]))
        }
        Some(Kind::Restored) => format!("a backup of {}", text(&record["created"])),
        Some(Kind::Pruned) => format!("{} records were removed", record["records"]),
        Some(
            Kind::DuplicateResult
            | Kind::LateResult
            | Kind::Interrupted
            | Kind::Replaced
            | Kind::SplitIdentity
            | Kind::FleetRefused,
        )
        | None => text(&record["reason"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_is_told_in_a_few_words() {
        for (record, told) in [
            (
                json!({"kind": "capability_schema_violation", "side": "request", "violations": [{"path": "/a", "message": "is required"}, {}]}),
                "request: /a is required, and 1 more",
            ),
            (
                json!({"kind": "drift", "code": 4902, "findings": [{"side": "response", "path": "/b", "rule": "enum"}]}),
                "4902: response /b enum",
            ),
            (
                json!({"kind": "denied", "messageType": "PING", "reason": "not authorized"}),
                "PING: not authorized",
            ),
            (
                json!({"kind": "denied", "messageType": "CAP_INVOKE", "code": 3001, "count": 9, "firstAt": 5, "lastAt": 2_005}),
                "CAP_INVOKE: 9 more within 2 s, 3001",
            ),
            (
                json!({"kind": "denied", "code": 3005, "count": 9, "firstAt": 5, "lastAt": 5}),
                "messages: 9 more within 0 s, 3005",
            ),
            (json!({"kind": "binding_mismatch", "from": "did:key:x"}), "from did:key:x"),
            (
                json!({"kind": "configuration_reloaded", "changes": [{"key": "peers"}], "changeCount": 3}),
                "peers, and 2 more",
            ),
            (json!({"kind": "raw_result", "bytes": 7}), "7 bytes"),
            (json!({"kind": "late_result", "reason": "the call had ended"}), "the call had ended"),
            (json!({"kind": "operator", "action": "cancel", "tool": "capd-page"}), "cancel with capd-page"),
            (json!({"kind": "audit_lost", "records": 3}), "3 records could not be written"),
            (
                json!({"kind": "state_restored", "created": "2026-11-26T07:02:11Z"}),
                "a backup of 2026-11-26T07:02:11Z",
            ),
            (json!({"kind": "audit_pruned", "records": 3}), "3 records were removed"),
            (json!({"kind": "of a later capd"}), ""),
        ] {
            assert_eq!(what(&record), told, "{record}");
        }
    }
}
