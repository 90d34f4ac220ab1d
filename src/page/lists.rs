//! Passes on what the sidecar's HTTP API tells of calls and capabilities.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use capd_proto::capability::{CapabilityId, CapabilityName};
use capd_proto::envelope::MessageId;

use super::Shown;
use super::fault::{Fault, Json};

pub(super) async fn about(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    shown.sidecar.get("/v1/self").await.map(Json)
}

pub(super) async fn capabilities(State(shown): State<Arc<Shown>>, uri: Uri) -> Result<Json, Fault> {
    shown.sidecar.get(&with_query("/v1/capabilities", &uri)).await.map(Json)
}

pub(super) async fn capability(
    State(shown): State<Arc<Shown>>,
    Path(id): Path<String>,
) -> Result<Json, Fault> {
    let id = name_or_id(&id)?;
    shown.sidecar.get(&format!("/v1/capabilities/{id}")).await.map(Json)
}

pub(super) async fn calls(State(shown): State<Arc<Shown>>, uri: Uri) -> Result<Json, Fault> {
    shown.sidecar.get(&with_query("/v1/calls", &uri)).await.map(Json)
}

pub(super) async fn call(State(shown): State<Arc<Shown>>, Path(id): Path<String>) -> Result<Json, Fault> {
    let id: MessageId = id.parse().map_err(Fault::bad)?;
    shown.sidecar.get(&format!("/v1/calls/{id}")).await.map(Json)
}

/// A text that is a capability's name, or its id, and so can stand in a path. **Errors:** 400.
pub(super) fn name_or_id(text: &str) -> Result<String, Fault> {
    let parsed = match text.contains(':') {
        true => text.parse::<CapabilityId>().map(|id| id.to_string()).map_err(|error| error.to_string()),
        false => {
            text.parse::<CapabilityName>().map(|name| name.to_string()).map_err(|error| error.to_string())
        }
    };
    // A version's build may hold a plus sign, which a path may as well.
    parsed.map_err(|error| Fault::bad(format!("{text:?}: {error}")))
}

/// The parameters of a request; of one that stands twice, the last.
pub(super) fn parameters(uri: &Uri) -> BTreeMap<String, String> {
    form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
}

fn with_query(path: &str, uri: &Uri) -> String {
    uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}
