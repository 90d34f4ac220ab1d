//! Tells where the sidecar stands in its fleet, and how the fleet's registry is. Asking that asks the registry.

use std::sync::Arc;

use axum::extract::State;
use capd_proto::message::FleetRequest;
use serde_json::{Value, json};

use super::Shown;
use super::fault::{Fault, Json};

/// **Shape:** `{"cell", "health", "detail", "registry", "version", "error", "revision", "took_ms", "incarnation", "generation",
/// "stale_ms", "revocations_age_ms", "frozen", "refused": [{"why", "count"}]}`, or null outside of any fleet.
pub(super) async fn report(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    let report = shown.sidecar.connect().await?.fleet(&FleetRequest::Status).await?;
    if report.cell.is_empty() {
        return Ok(Json(Value::Null));
    }
    let refused = report.refused.iter().map(|(why, count)| json!({"why": why, "count": count}));
    Ok(Json(json!({
        "cell": report.cell,
        "health": report.health,
        "detail": report.detail,
        "registry": report.registry,
        "version": report.version,
        "error": report.error,
        "revision": report.revision,
        "took_ms": report.took_us.map(|took_us| took_us as f64 / 1_000.0),
        "incarnation": report.incarnation,
        "generation": report.generation,
        "stale_ms": report.stale_ms,
        "revocations_age_ms": report.revocations_age_ms,
        "frozen": report.is_frozen,
        "refused": refused.collect::<Vec<_>>(),
    })))
}
