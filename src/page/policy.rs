//! Tells the rules in force, and why a caller may or may not call a capability.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use capd_proto::capability::CapabilityName;
use capd_proto::identity::Did;
use serde_json::json;

use super::Shown;
use super::fault::{Fault, Json};
use super::lists::parameters;

pub(super) async fn rules(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    shown.sidecar.get("/v1/operator/policy").await.map(Json)
}

/// **Shape:** `{"decisions": [{"capability", "action", "allowed", "rules", "missing", "reason"}]}` for the parameters `caller`,
/// `capability` and, if it is not the sidecar's own agent, `provider`.
pub(super) async fn why(State(shown): State<Arc<Shown>>, uri: Uri) -> Result<Json, Fault> {
    let asked = parameters(&uri);
    let text = |key: &str| asked.get(key).map(|text| text.trim()).unwrap_or_default();
    let did = |key: &str| {
        Did::parse(text(key))
            .map_err(|error| Fault::bad(format!("{key}: {:?} is no DID: {error}", text(key))))
    };
    let name = text("capability").split(':').next().unwrap_or_default();
    let name: CapabilityName =
        name.parse().map_err(|error| Fault::bad(format!("capability: {name:?}: {error}")))?;
    let caller = did("caller")?;
    let provider = if text("provider").is_empty() { None } else { Some(did("provider")?) };
    let why = shown.sidecar.connect().await?.policy_why(&caller, &name, provider.as_ref()).await?;
    let decisions = why.decisions.iter().map(|decision| {
        json!({
            "capability": decision.capability,
            "action": decision.action,
            "allowed": decision.allowed,
            "rules": decision.rules,
            "missing": decision.missing,
            "reason": decision.reason,
        })
    });
    Ok(Json(json!({"decisions": decisions.collect::<Vec<_>>()})))
}
