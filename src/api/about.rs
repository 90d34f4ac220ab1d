//! Answers `GET /v1/self`: the sidecar's identity, its capabilities and its peers.

use std::sync::Arc;

use axum::extract::State;
use capd_proto::capability::CapabilityPattern;
use serde_json::json;

use super::Api;
use super::body::Json;
use super::capabilities::everything;
use super::problem::Problem;
use crate::client::peer_json;

pub(super) async fn about(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    let client = api.client().await?;
    let offers = everything(&client, CapabilityPattern::Any).await?;
    let mut served: Vec<_> =
        offers.iter().filter(|offer| offer.is_local).map(|offer| offer.id().to_string()).collect();
    served.dedup();
    let peers = client.peers().await.map_err(|error| Problem::of_request(&error))?;
    let peers: Vec<_> = peers.iter().map(peer_json).collect();
    Ok(Json(json!({
        "did": client.did().as_str(),
        "name": api.options().agent_name,
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": served,
        "peers": peers,
    })))
}
