//! Implements `metrics`: a sidecar in; its counters and the use of its limits out.

use capd::admin;
use capd_proto::message::{MetricFamily, MetricValue};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::{Sidecar, output};

/// Prints the sidecar's metrics as Prometheus reads them, or as JSON.
pub(crate) async fn run(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let families = sidecar.connect().await?.metrics().await?;
    if json {
        for family in &families {
            output::print_json(&document(family))?;
        }
        return Ok(());
    }
    output::print(&admin::text(&families))
}

/// A metric as it came over the wire.
fn document(family: &MetricFamily<'_>) -> Value {
    let samples: Vec<_> = family
        .samples
        .iter()
        .map(|sample| {
            let labels = sample.labels.iter().map(|(name, value)| (name.to_string(), json!(value)));
            let labels: Map<_, _> = labels.collect();
            let value = match sample.value {
                MetricValue::Uint(value) => json!(value),
                MetricValue::Float(value) => json!(value),
            };
            let mut told = json!({"labels": labels, "value": value});
            if let Some(part) = sample.part {
                told["part"] = json!(part.as_str());
            }
            told
        })
        .collect();
    json!({"name": family.name, "type": family.kind.as_str(), "help": family.help, "samples": samples})
}
