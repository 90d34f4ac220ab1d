//! Answers `/v1/operator`: how the sidecar's parts are, its policy, and what the agent requires, for the person who runs it.
//!
//! [`Operator`] is what a sidecar must tell and account for. A request with the header `Capd-Operator` says that a person
//! acts with the tool of that name, so what the request does is audited.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use super::Api;
use super::body::{self, Json};
use super::call;
use super::problem::Problem;
use capd_proto::code::Code;

/// What a sidecar tells whoever runs it.
pub(crate) trait Operator: Send + Sync + 'static {
    /// How its parts are, and the paths to peers with QUIC links: round trip, and packets since they opened. **Shape:**
    /// `{"parts": [{"name", "state", "detail"}], "draining", "paths": [{"did", "round_trip_us", "sent", "lost"}]}`.
    fn status(&self) -> Value;

    /// The rules in force. **Shape:** `{"rules": [{"id", "origin", "policy"}], "warnings": [text], "unused": [id],
    /// "overruled": [{"capability", "caller", "permits", "forbids"}]}`. Takes long where there are many rules.
    fn policy(&self) -> Value;

    /// What the agent requires, and how each provider stands. **Shape:** `{"requires": [{"requirement", "providers":
    /// [{"id", "provider", "state", "findings"}]}]}`.
    fn requires(&self) -> Value;

    /// Every key that runs. **Shape:** `{"keys": [{"key", "value", "origin"}]}`.
    fn configuration(&self) -> Value;

    /// Logs by these levels until the next reload. **Errors:** what is wrong with them.
    fn log(&self, levels: &str) -> Result<(), String>;

    /// A person acted.
    fn acted(&self, act: &Act<'_>);
}

/// Something that a person did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act<'a> {
    /// The tool, as it names itself.
    pub(crate) with: &'a str,
    /// What was done.
    pub(crate) action: &'static str,
    /// The capability that was called.
    pub(crate) capability: Option<&'a str>,
    /// The call that was made or cancelled.
    pub(crate) call: Option<&'a capd_proto::envelope::MessageId>,
}

pub(super) async fn status(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    api.operated(|operator| operator.status()).await
}

pub(super) async fn policy(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    api.operated(|operator| operator.policy()).await
}

pub(super) async fn requires(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    api.operated(|operator| operator.requires()).await
}

pub(super) async fn configuration(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    api.operated(|operator| operator.configuration()).await
}

/// Changes what is logged. **Shape:** `{"levels"}`, as `CAPD_LOG` has them.
pub(super) async fn log(State(api): State<Arc<Api>>, head: HeaderMap, body: Body) -> Result<Json, Problem> {
    let with = tool(&head)?.unwrap_or("HTTP");
    let asked = body::document(&api.read(&head, body).await?)?;
    let levels = asked["levels"]
        .as_str()
        .ok_or_else(|| Problem::bad("levels: a text is expected, such as \"debug\""))?;
    let stopping = || Problem::refused(Code::UNAVAILABLE, "the sidecar is stopping");
    let operator = api.operator.upgrade().ok_or_else(stopping)?;
    operator.log(levels).map_err(Problem::bad)?;
    operator.acted(&Act { with, action: "log", capability: None, call: None });
    Ok(Json(json!({"levels": levels})))
}

/// The tool with which a person acts, if the request says so. **Errors:** 400 for a name that no record has.
pub(super) fn tool(head: &HeaderMap) -> Result<Option<&str>, Problem> {
    let name = call::text(head, &OPERATOR)?;
    match name {
        Some(name) if name.is_empty() || name.len() > TOOL_BYTES_MAX => {
            Err(Problem::bad(format!("Capd-Operator: {name:?}; accepted: 1 to {TOOL_BYTES_MAX} characters")))
        }
        name => Ok(name),
    }
}

impl Api {
    /// What the sidecar tells, found away from the links.
    async fn operated(
        &self,
        ask: impl FnOnce(&dyn Operator) -> Value + Send + 'static,
    ) -> Result<Json, Problem> {
        let stopping = || Problem::refused(Code::UNAVAILABLE, "the sidecar is stopping");
        let operator = self.operator.upgrade().ok_or_else(stopping)?;
        self.system.tasks.compute(move || ask(&*operator)).await.map(Json).ok_or_else(stopping)
    }

    /// Accounts for what a person did.
    pub(super) fn acted(&self, act: &Act<'_>) {
        if let Some(operator) = self.operator.upgrade() {
            operator.acted(act);
        }
    }
}

/// Says that a person acts, and with which tool.
const OPERATOR: HeaderName = HeaderName::from_static("capd-operator");
/// Longest name of a tool.
const TOOL_BYTES_MAX: usize = 64;
