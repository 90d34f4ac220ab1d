//! Answers `/v1/calls`: the calls that this sidecar knows, made and served; one call, its events, its end, its cancel.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::limits::QUERY_LIMIT_MAX;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::body::Json;
use super::calls::{Call, Ended, Events};
use super::operator::{self, Act};
use super::problem::Problem;
use super::query::{Query, duration};
use super::{Api, call, sse};
use crate::client::{CallFilter, CallState, CancelState, ClientError, call_json};

pub(super) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Json, Problem> {
    let known = ["role", "state", "capability", "since", "limit", "cursor"];
    let query = Query::read(uri.query(), &known)?;
    let limit = query.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=QUERY_LIMIT_MAX).contains(&limit) {
        return Err(Problem::bad(format!("limit={limit}; accepted: 1 to {QUERY_LIMIT_MAX}")));
    }
    let since = query.text("since").map(|text| since_ms(text, api.system.clock.wall_ms())).transpose()?;
    let filter = CallFilter {
        side: query.parsed("role")?,
        state: query.parsed("state")?,
        capability: query.text("capability").map(str::to_owned),
        since_ms: since,
    };
    let cursor = query.text("cursor").map(|text| {
        let cursor = URL_SAFE_NO_PAD.decode(text).map(Bytes::from);
        cursor.map_err(|_| Problem::bad("the cursor is not one that was given out"))
    });
    let client = api.client().await?;
    let page = client.calls_where(&filter, cursor.transpose()?.as_ref(), Some(limit)).await;
    let page = page.map_err(|error| Problem::of_request(&error))?;
    let mut document = json!({"calls": page.calls.iter().map(call_json).collect::<Vec<_>>()});
    if let Some(cursor) = page.next_cursor {
        document["next_cursor"] = URL_SAFE_NO_PAD.encode(cursor).into();
    }
    Ok(Json(document))
}

pub(super) async fn one(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = parsed(&id)?;
    let client = api.client().await?;
    let known = client.calls_of(id).await.map_err(|error| Problem::of_request(&error))?.calls;
    let mut bytes = 0;
    let mut document = match api.calls.get(&id) {
        Some(call) => {
            let ended = call.is_ended();
            bytes = ended.as_ref().map_or(0, |ended| ended.bytes());
            api.apart(bytes, move || state(&call, ended.as_deref())).await
        }
        // Made by a former process of this sidecar, or by somebody else's request.
        None => match api.keys.of_call(&id) {
            Some(key) => match api.keys.recorded(&key).await {
                Some(ended) => {
                    bytes = ended.bytes();
                    let call = Call::new(id, key.terms.capability.clone());
                    api.apart(bytes, move || state(&call, Some(&ended))).await
                }
                // Whoever gives the key again learns more.
                None => json!({"call": id.to_string(), "capability": key.terms.capability}),
            },
            None if known.is_empty() => return Err(unknown(id)),
            None => json!({"call": id.to_string()}),
        },
    };
    if document.get("state").is_none() {
        let is_over = known.iter().all(|call| call.state == CallState::Finished);
        document["state"] = match (known.first(), is_over) {
            (None, _) => "unknown",
            (Some(_), true) => "finished",
            (Some(_), false) => "running",
        }
        .into();
        if let Some(capability) = known.first().and_then(|call| call.capability.as_deref()) {
            document["capability"] = capability.into();
        }
    }
    document["known"] = known.iter().map(call_json).collect();
    Ok(api.apart(bytes, move || Json(document).into_response()).await)
}

pub(super) async fn events(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    head: HeaderMap,
) -> Result<Response, Problem> {
    let id = parsed(&id)?;
    let after = match call::text(&head, &LAST_EVENT_ID)? {
        None | Some("") => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Problem::bad(format!("Last-Event-ID: {text:?} is no number that an event had")))?,
    };
    let call = api.calls.get(&id).ok_or_else(|| unknown(id))?;
    Ok(sse::response(Events { call, after }, &api.system.tasks))
}

pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    head: HeaderMap,
) -> Result<Response, Problem> {
    let (id, tool) = (parsed(&id)?, operator::tool(&head)?);
    if api.calls.get(&id).is_some_and(|call| call.is_ended().is_some()) {
        return Err(finished(id));
    }
    let client = api.client().await?;
    match client.cancel(id).await {
        Ok(CancelState::Cancelling) => {
            if let Some(with) = tool {
                api.acted(&Act { with, action: "cancel", capability: None, call: Some(&id) });
            }
            let document = json!({"call": id.to_string(), "state": "cancelling"});
            Ok((StatusCode::ACCEPTED, Json(document)).into_response())
        }
        Ok(CancelState::Finished) => Err(finished(id)),
        Ok(CancelState::Unknown) => Err(unknown(id)),
        Err(error @ ClientError::Refused(_)) => Err(Problem::of_request(&error).about(id)),
        Err(error) => Err(Problem::of_call(&error, id)),
    }
}

/// What is known of a call by its id.
pub(super) enum Found {
    /// All that it said, or how it ended.
    Call(Arc<Call>),
    /// It runs, and nobody follows it here.
    Running,
    /// It does not run, and nobody has recorded its answer.
    Over,
}

impl Api {
    /// **Errors:** the refusal of a call that nobody knows.
    pub(super) async fn found(&self, id: MessageId) -> Result<Found, Problem> {
        let known = self.client().await?.calls_of(id).await;
        let known = known.map_err(|error| Problem::of_request(&error))?.calls;
        if let Some(call) = self.calls.get(&id) {
            return Ok(Found::Call(call));
        }
        if let Some(key) = self.keys.of_call(&id) {
            if let Some(ended) = self.keys.recorded(&key).await {
                let call = Call::new(id, key.terms.capability.clone());
                call.tell_ended(ended);
                return Ok(Found::Call(Arc::new(call)));
            }
        } else if known.is_empty() {
            return Err(unknown(id));
        }
        let is_over = known.iter().all(|call| call.state == CallState::Finished);
        Ok(if is_over { Found::Over } else { Found::Running })
    }
}

/// How a call stands that was made over HTTP.
fn state(call: &Call, ended: Option<&Ended>) -> Value {
    let mut document = json!({
        "call": call.id.to_string(),
        "capability": call.capability,
        "state": if ended.is_some() { "finished" } else { "running" },
    });
    match ended.map(|ended| &ended.outcome) {
        None => {}
        Some(Err(error)) => document["error"] = Problem::of_call(error, call.id).json(),
        Some(Ok(answer)) => {
            document["capability"] = call::chosen(call, answer).into();
            document["execution_ms"] = answer.execution_time_ms.into();
            match answer.json() {
                Some(result) => document["result"] = result,
                None => document["error"] = call::not_json(call.id).json(),
            }
        }
    }
    document
}

/// A time so long ago, or a time of RFC 3339. **Units:** milliseconds since the Unix epoch.
fn since_ms(text: &str, now_ms: u64) -> Result<u64, Problem> {
    if let Some(ago) = duration(text) {
        return Ok(now_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
    }
    let at = OffsetDateTime::parse(text, &Rfc3339);
    // No call is older than 1970: before it, all are meant.
    let ms = at.map(|at| u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0));
    ms.map_err(|_| {
        let accepted = "how long ago (30s, 2m, 24h), or a time (2026-11-21T12:00:00Z)";
        Problem::bad(format!("since={text:?}; accepted: {accepted}"))
    })
}

fn parsed(id: &str) -> Result<MessageId, Problem> {
    id.parse().map_err(|error| Problem::bad(format!("the call {id:?}: {error}")))
}

fn unknown(id: MessageId) -> Problem {
    let detail =
        "no such call is known here; a call is known until its time has passed, to the sidecar that runs it";
    Problem::refused(Code::BAD_REQUEST, detail).status(StatusCode::NOT_FOUND).about(id)
}

fn finished(id: MessageId) -> Problem {
    let detail = "the call has ended already; GET /v1/calls/{id} tells how";
    Problem::bad(detail).status(StatusCode::CONFLICT).details(json!({"state": "finished"})).about(id)
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Calls on a page, unless the request says otherwise.
const LIMIT_DEFAULT: u64 = 100;
