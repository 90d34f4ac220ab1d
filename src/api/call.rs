//! `POST /v1/call/{name}`: params in, one result or error out, at once, as events, or later.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use capd_proto::capability::{CapabilityName, Range};
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::limits::TTL_MS_MAX;
use serde_json::{Value, json};

use super::body::{self, Json};
use super::calls::{Call, Ended, Events};
use super::problem::Problem;
use super::query::{self, Query};
use super::{Api, sse};
use crate::client::{Answer, CallRequest, Target, Trace};

pub(super) async fn call(
    State(api): State<Arc<Api>>,
    Path(target): Path<String>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let asked = Asked::read(&target, &uri, &head)?;
    let params = body::payload(&api.read(&head, body).await?)?;
    let call = api.make(&asked, params).await?;
    Ok(match asked.wants {
        Wants::Later => later(&call),
        Wants::Events => sse::response(Events { call, after: 0 }),
        Wants::Result { cbor } => {
            let ended = call.ended().await;
            answered(&call, &ended, cbor)
        }
    })
}

/// What a request asks for.
struct Asked {
    target: Target,
    /// As the path names it.
    capability: String,
    to: Option<Did>,
    timeout: Option<Duration>,
    ttl: Option<Duration>,
    thread: Option<Vec<u8>>,
    trace: Trace,
    wants: Wants,
}

/// How the answer is to come.
#[derive(Clone, Copy)]
enum Wants {
    Result { cbor: bool },
    Events,
    Later,
}

impl Asked {
    fn read(target: &str, uri: &Uri, head: &HeaderMap) -> Result<Self, Problem> {
        let query = Query::read(uri.query(), &["version", "timeout", "to"])?;
        let text = |name: &HeaderName| text(head, name);
        let timeout = query.duration("timeout")?;
        let ttl = text(&TTL)?.map(|text| {
            let accepted = "a whole number and ms, s, m, h or d, of at most 30 days";
            query::duration(text)
                .filter(|ttl| *ttl <= Duration::from_millis(TTL_MS_MAX))
                .ok_or_else(|| Problem::bad(format!("Capd-Ttl: {text:?}; accepted: {accepted}")))
        });
        Ok(Self {
            target: self::target(target, query.text("version"))?,
            capability: target.to_owned(),
            to: query.parsed("to")?,
            timeout,
            ttl: ttl.transpose()?,
            thread: text(&THREAD)?.map(|text| text.as_bytes().to_vec()),
            trace: Trace {
                parent: text(&TRACEPARENT)?.map(str::to_owned),
                state: text(&TRACESTATE)?.map(str::to_owned),
            },
            wants: Wants::of(head),
        })
    }

    fn request(&self, params: Vec<u8>) -> CallRequest {
        let mut request = CallRequest::new(self.target.clone()).params_cbor(params).trace(self.trace.clone());
        if let Some(to) = &self.to {
            request = request.to(to.clone());
        }
        if let Some(timeout) = self.timeout {
            request = request.timeout(timeout);
        }
        if let Some(thread) = &self.thread {
            request = request.thread_id(thread.clone());
        }
        match self.ttl {
            Some(ttl) => request.ttl(ttl),
            None => request,
        }
    }
}

impl Wants {
    fn of(head: &HeaderMap) -> Self {
        let lists = |name: HeaderName, wanted: &str| {
            head.get_all(name)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
                .any(|item| item.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted))
        };
        if lists(header::ACCEPT, "text/event-stream") {
            Self::Events
        } else if lists(PREFER, "respond-async") {
            Self::Later
        } else {
            Self::Result { cbor: lists(header::ACCEPT, CBOR) }
        }
    }
}

impl Api {
    /// Makes a call, and follows it.
    async fn make(self: &Arc<Self>, asked: &Asked, params: Vec<u8>) -> Result<Arc<Call>, Problem> {
        let client = self.client().await?;
        let handle = client.call(asked.request(params)).map_err(|error| Problem::of_request(&error))?;
        self.follow(handle, asked.capability.clone(), false)
    }
}

/// The capability that a path and perhaps a range of versions stand for.
pub(super) fn target(text: &str, version: Option<&str>) -> Result<Target, Problem> {
    let bad = |error: &dyn std::fmt::Display| Problem::bad(format!("{text:?}: {error}"));
    if text.contains(':') {
        if version.is_some() {
            return Err(Problem::bad("an id has its version already: give ?version= with a name only"));
        }
        return Ok(Target::Id(text.parse().map_err(|error| bad(&error))?));
    }
    let name: CapabilityName = text.parse().map_err(|error| bad(&error))?;
    match version {
        None => Ok(Target::newest(name)),
        Some(range) => {
            let parsed: Result<Range, _> = range.parse();
            let range = parsed.map_err(|error| Problem::bad(format!("version={range:?}: {error}")))?;
            Ok(Target::in_range(name, range))
        }
    }
}

/// A field of a request's head that is text. **Errors:** 400 for one that is not.
pub(super) fn text<'a>(head: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let text = |value: &'a HeaderValue| {
        std::str::from_utf8(value.as_bytes())
            .map_err(|_| Problem::bad(format!("the header {name} is not UTF-8")))
    };
    head.get(name).map(text).transpose()
}

/// The capability that served a call, as far as that is known.
pub(super) fn chosen(call: &Call, answer: &Answer) -> String {
    answer.capability.clone().unwrap_or_else(|| call.capability.clone())
}

/// A result that JSON has no place for.
pub(super) fn not_json(call: MessageId) -> Problem {
    let detail = "the call succeeded, and its result has no form in JSON; ask for it with \"Accept: application/cbor\"";
    Problem::bad(detail).status(StatusCode::NOT_ACCEPTABLE).failed().about(call)
}

/// The answer to a call that has ended.
pub(super) fn answered(call: &Call, ended: &Ended, cbor: bool) -> Response {
    let mut response = match &ended.outcome {
        Err(error) => Problem::of_call(error, call.id).into_response(),
        Ok(answer) if cbor => {
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(CBOR))];
            (kind, answer.result.clone()).into_response()
        }
        Ok(answer) => match answer.json() {
            Some(result) => Json(result).into_response(),
            None => not_json(call.id).into_response(),
        },
    };
    let fields = response.headers_mut();
    put(fields, CALL, &call.id.to_string());
    if let Ok(answer) = &ended.outcome {
        put(fields, CAPABILITY, &chosen(call, answer));
        if let Some(ms) = answer.execution_time_ms {
            fields.insert(EXECUTION_MS, ms.into());
        }
        if answer.is_deprecated {
            fields.insert(DEPRECATION, HeaderValue::from_static("true"));
        }
    }
    if ended.replayed {
        fields.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// The answer to a call that is asked about later.
fn later(call: &Call) -> Response {
    let place = format!("/v1/calls/{}", call.id);
    let document: Value = json!({"call": call.id.to_string(), "location": place});
    let mut response = (StatusCode::ACCEPTED, Json(document)).into_response();
    let fields = response.headers_mut();
    put(fields, header::LOCATION, &place);
    put(fields, CALL, &call.id.to_string());
    fields.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    response
}

/// A field that consists of what a header may hold; any other is left out.
fn put(fields: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        fields.insert(name, value);
    }
}

pub(super) const CALL: HeaderName = HeaderName::from_static("capd-call");
const CAPABILITY: HeaderName = HeaderName::from_static("capd-capability");
const EXECUTION_MS: HeaderName = HeaderName::from_static("capd-execution-ms");
const REPLAYED: HeaderName = HeaderName::from_static("capd-replayed");
const THREAD: HeaderName = HeaderName::from_static("capd-thread");
const TTL: HeaderName = HeaderName::from_static("capd-ttl");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The media type of a result as it came.
const CBOR: &str = "application/cbor";
