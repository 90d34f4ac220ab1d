//! Writes a comparison as JSON: what `capctl --json` prints and the page shows.

use serde_json::{Value, json};

use super::{Compatibility, Feature, Outcome, Refutation};

impl Compatibility {
    /// Both directions.
    ///
    /// **Shape:** `{"verdict", "requests": outcome, "results": outcome}`, where an outcome is `{"verdict"}` with `path`,
    /// `construct` and `reason` if it is unknown, `path`, `rule` and `witness` if it is refuted, and `lost` if it is partial.
    pub fn json(&self) -> Value {
        json!({
            "verdict": self.verdict().as_str(),
            "requests": outcome_json(&self.requests),
            "results": outcome_json(&self.results),
        })
    }
}

fn outcome_json(outcome: &Outcome) -> Value {
    let mut document = json!({"verdict": outcome.verdict().as_str()});
    match outcome {
        Outcome::Full => {}
        Outcome::Unknown { path, construct, reason } => {
            document["path"] = json!(path);
            document["construct"] = json!(construct);
            document["reason"] = json!(reason);
        }
        Outcome::Incompatible(refutation) => add(&mut document, refutation),
        Outcome::Partial(lost) => {
            let lost: Vec<_> = lost
                .iter()
                .map(|lost| {
                    let (kind, says) = (lost.feature.kind(), lost.feature.to_string());
                    let mut entry = json!({"path": lost.path, "kind": kind, "message": says});
                    match &lost.feature {
                        Feature::Value(value) => entry["value"] = value.clone(),
                        Feature::Type(kind) => entry["type"] = json!(kind),
                        Feature::Alternative(pointer) => entry["alternative"] = json!(pointer),
                        Feature::Property | Feature::Ignored | Feature::Undeclared | Feature::Absent => {}
                    }
                    if let Some(refutation) = &lost.refutation {
                        let mut refuted = json!({});
                        add(&mut refuted, refutation);
                        entry["refuted"] = refuted;
                    }
                    entry
                })
                .collect();
            document["lost"] = lost.into();
        }
    }
    document
}

fn add(document: &mut Value, refutation: &Refutation) {
    document["path"] = json!(refutation.path);
    document["rule"] = json!(refutation.rule);
    document["witness"] = refutation.witness.clone();
}
