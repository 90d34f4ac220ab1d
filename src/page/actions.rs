//! Does what is asked by a button: a call, a cancel, a reload, a drain, other levels of the log, a ping. The sidecar audits all that
//! change anything.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use super::Shown;
use super::configuration;
use super::fault::{Fault, Json};
use super::lists::name_or_id;
use super::serve::document;
use super::sidecar::{request, said};

/// Calls a capability; the events of the call are the answer while it runs, as the sidecar's HTTP API sends them.
///
/// **Shape:** `{"capability", "params", ? "version", ? "timeout", ? "to", ? "key"}`.
pub(super) async fn call(State(shown): State<Arc<Shown>>, body: Body) -> Result<Response, Fault> {
    let asked = document(body).await?;
    let text = |key: &str| asked[key].as_str().filter(|text| !text.is_empty());
    let capability = name_or_id(text("capability").unwrap_or_default())?;
    let path = format!("/v1/call/{capability}?{}", query(&text));
    let mut call = request(Method::POST, &path, Body::from(asked["params"].to_string()))?;
    let fields = call.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(key) = text("key") {
        fields.insert("idempotency-key", HeaderValue::from_str(key).map_err(Fault::bad)?);
    }
    let answer = shown.sidecar.ask(call).await?;
    let (head, body) = answer.into_parts();
    if head.status.is_success() {
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        return Ok(response);
    }
    let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await;
    let problem: Value =
        body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
    Err(said(head.status, &problem))
}

/// What a call is made with, as the API takes it.
fn query<'a>(text: &dyn Fn(&str) -> Option<&'a str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for key in ["version", "timeout", "to"] {
        if let Some(value) = text(key) {
            query.append_pair(key, value);
        }
    }
    query.finish()
}

/// Cancels a call. **Shape:** `{"call"}`.
pub(super) async fn cancel(State(shown): State<Arc<Shown>>, body: Body) -> Result<Json, Fault> {
    let asked = document(body).await?;
    let id: MessageId = asked["call"].as_str().unwrap_or_default().parse().map_err(Fault::bad)?;
    let answer =
        shown.sidecar.ask(request(Method::DELETE, &format!("/v1/calls/{id}"), Body::empty())?).await?;
    answered(answer).await
}

/// Applies the configuration's file as a whole. The sidecar audits it with what it changed.
pub(super) async fn reload(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    let reloaded = shown.sidecar.connect().await?.reload(false).await.map_err(configuration::misread)?;
    Ok(Json(configuration::difference(&reloaded)))
}

/// Makes the sidecar take no new calls. The sidecar audits it. **Shape:** `{"made", "executing"}` out: calls in flight.
pub(super) async fn drain(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    let draining = shown.sidecar.connect().await?.drain().await?;
    Ok(Json(json!({"made": draining.made, "executing": draining.executing})))
}

/// Measures the round trip to a peer's sidecar. **Shape:** `{"to"}` in, `{"ms"}` out.
pub(super) async fn ping(State(shown): State<Arc<Shown>>, body: Body) -> Result<Json, Fault> {
    let asked = document(body).await?;
    let to: Did = asked["to"].as_str().unwrap_or_default().parse().map_err(Fault::bad)?;
    let took = shown.sidecar.connect().await?.ping(&to, PING_TIMEOUT).await?;
    Ok(Json(json!({"ms": took.as_secs_f64() * 1_000.0})))
}

/// Changes what is logged until the next reload. **Shape:** `{"levels"}`.
pub(super) async fn log(State(shown): State<Arc<Shown>>, body: Body) -> Result<Json, Fault> {
    let asked = document(body).await?;
    let body = Body::from(json!({"levels": asked["levels"]}).to_string());
    let mut change = request(Method::POST, "/v1/operator/log", body)?;
    change.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answered(shown.sidecar.ask(change).await?).await
}

/// The whole of a small answer. **Errors:** what the sidecar says.
async fn answered(answer: axum::http::Response<hyper::body::Incoming>) -> Result<Json, Fault> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await;
    let told: Value =
        body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
    if head.status.is_success() { Ok(Json(told)) } else { Err(said(head.status, &told)) }
}

/// Time for a round trip to a peer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest refusal that is read. **Units:** bytes.
const PROBLEM_BYTES_MAX: usize = 1024 * 1024;
