//! What the sidecar lists and describes in; the same as JSON, as `capctl --json` and the HTTP API show it, out.

use capd_proto::message::ListedPeer;
use serde_json::{Value, json};

use super::{Description, Offer, SchemaSide};
use crate::schema::Fingerprint;

/// A descriptor as JSON: what came over the wire.
pub fn descriptor_json(offer: &Offer) -> Value {
    offer.json().unwrap_or_else(|| json!({"id": offer.id().to_string()}))
}

/// The hashes that a descriptor says, in the spelling of `capctl hash`: key, name for people, and hash of each.
pub fn descriptor_hashes(offer: &Offer) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let descriptor = &offer.descriptor;
    [("static_hash", "static hash", descriptor.static_hash), ("lineage", "lineage", descriptor.lineage)]
        .into_iter()
        .filter_map(|(key, name, hash)| Some((key, name, Fingerprint(hash?).to_string())))
}

/// A peer as it came over the wire.
pub fn peer_json(peer: &ListedPeer<'_>) -> Value {
    let mut document = json!({"did": peer.did, "state": peer.state.as_str(), "links": peer.links});
    if let Some(reason) = &peer.reason {
        document["reason"] = json!(reason);
    }
    document
}

impl Description {
    /// What one agent declares, with both schemas and the hashes.
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
    /// Whether payloads are checked, against what, or why not.
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

    /// The schema itself, if its document is there and is JSON.
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
