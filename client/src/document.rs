//! Converts the sidecar's lists and descriptions to the JSON of `capctl --json` and the HTTP API.

use capd_proto::message::{CallTimeline, ListedCall, ListedPeer};
use serde_json::{Map, Value, json};

use super::{Description, Offer, SchemaSide};

/// A descriptor as JSON, as received.
pub fn descriptor_json(offer: &Offer) -> Value {
    offer.json().unwrap_or_else(|| json!({"id": offer.id().to_string()}))
}

/// The hashes in a descriptor, spelled as in `capctl hash`: key, readable name, and hash of each.
pub fn descriptor_hashes(offer: &Offer) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let descriptor = &offer.descriptor;
    [("static_hash", "static hash", descriptor.static_hash), ("lineage", "lineage", descriptor.lineage)]
        .into_iter()
        .filter_map(|(key, name, hash)| Some((key, name, hex(&hash?))))
}

/// A peer as JSON, as received.
pub fn peer_json(peer: &ListedPeer<'_>) -> Value {
    let mut document = json!({"did": peer.did, "state": peer.state.as_str(), "links": peer.links});
    if let Some(name) = &peer.name {
        document["name"] = json!(name);
    }
    if let Some(reason) = &peer.reason {
        document["reason"] = json!(reason);
    }
    document
}

/// A call as JSON, as received.
pub fn call_json(call: &ListedCall<'_>) -> Value {
    let mut document = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            document.insert(key.to_owned(), value);
        }
    };
    put("id", Some(json!(call.id.to_string())));
    put("from", Some(json!(call.from)));
    put("role", Some(json!(call.role.as_str())));
    put("state", Some(json!(call.state.as_str())));
    put("capability", call.capability.as_deref().map(Value::from));
    put("peer", call.peer.as_deref().map(Value::from));
    put("made_at_ms", Some(json!(call.id.ts_ms())));
    put("started_at_ms", call.started_at_ms.map(Value::from));
    put("deadline_at_ms", call.deadline_at_ms.map(Value::from));
    put("finished_at_ms", call.finished_at_ms.map(Value::from));
    put("expires_at_ms", Some(json!(call.expires_at_ms)));
    put("status", call.status.map(|status| json!(status.as_str())));
    put("code", call.code.map(|code| json!(code.0)));
    put("bytes", call.bytes.map(Value::from));
    put("waiters", Some(json!(call.waiters)));
    put("journaled", Some(json!(call.journaled)));
    put("timeline", call.timeline.as_deref().map(timeline_json));
    Value::Object(document)
}

fn timeline_json(timeline: &CallTimeline<'_>) -> Value {
    let known = |pairs: Vec<(&str, Option<Value>)>| -> Value {
        let known = pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Object(known.collect())
    };
    let phases = timeline.phases.iter().map(|phase| {
        known(vec![
            ("name", Some(json!(phase.name))),
            ("begin_us", Some(json!(phase.begin_us))),
            ("end_us", phase.end_us.map(Value::from)),
        ])
    });
    let tries = timeline.tries.iter().map(|one| {
        known(vec![
            ("begin_us", Some(json!(one.begin_us))),
            ("end_us", one.end_us.map(Value::from)),
            ("peer", one.peer.as_deref().map(Value::from)),
            ("link", one.link.as_deref().map(Value::from)),
            ("outcome", one.outcome.map(|outcome| json!(outcome.as_str()))),
            ("code", one.code.map(|code| json!(code.0))),
        ])
    });
    known(vec![
        ("trace", Some(json!(timeline.trace))),
        ("sampled", Some(json!(timeline.sampled))),
        ("came_at_ms", Some(json!(timeline.came_at_ms))),
        ("took_us", timeline.took_us.map(Value::from)),
        ("link", timeline.link.as_deref().map(Value::from)),
        ("phases", Some(phases.collect())),
        ("tries", Some(tries.collect())),
        ("tries_omitted", Some(timeline.tries_omitted).filter(|omitted| *omitted > 0).map(Value::from)),
        ("joined", Some(json!(timeline.joined))),
        ("replays", Some(json!(timeline.replays))),
    ])
}

impl Description {
    /// One agent's declaration, with both schemas and the hashes.
    pub fn json(&self) -> Value {
        let mut document = json!({
            "descriptor": descriptor_json(&self.offer),
            "input": self.input.json(),
            "output": self.output.json(),
        });
        for (key, _, hash) in descriptor_hashes(&self.offer) {
            document[key] = hash.into();
        }
        document
    }
}

impl SchemaSide {
    /// Whether payloads are checked, and against which schema, or why not.
    pub fn json(&self) -> Value {
        match self {
            Self::Checked { hash, document } => {
                json!({"checked": true, "hash": hash.to_string(), "schema": schema(document)})
            }
            Self::Undeclared => json!({"checked": false, "reason": "no schema is declared"}),
            Self::Unknown { uri } => {
                json!({"checked": false, "reason": "the sidecar has no schema under this URI", "uri": uri})
            }
            Self::Unavailable { hash, reason } => {
                json!({"checked": true, "hash": hash.to_string(), "unavailable": reason})
            }
        }
    }

    /// The schema itself, if its document is available as JSON.
    pub fn schema(&self) -> Option<Value> {
        match self {
            Self::Checked { document, .. } => serde_json::from_slice(document).ok(),
            Self::Undeclared | Self::Unknown { .. } | Self::Unavailable { .. } => None,
        }
    }
}

/// A schema document as JSON; one that is not JSON is shown as text.
fn schema(document: &[u8]) -> Value {
    serde_json::from_slice(document).unwrap_or_else(|_| String::from_utf8_lossy(document).into_owned().into())
}

/// A hash as `capctl hash` spells it.
fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
