//! Answers `POST /v1/call/{name}`: params in; one result or error out, at once, as events, or later.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capd_proto::cbor::json::to_json_text;
use capd_proto::envelope::MessageId;
use capd_proto::limits::{AFFINITY_BYTES_MAX, TTL_MS_MAX};
use capd_proto::message::ContentHash;
use serde_json::{Value, json};

use super::body::{self, Json, Text};
use super::calls::{Call, Ended, Events};
use super::keys::{self, Key};
use super::operator::{self, Act};
use super::problem::Problem;
use super::query::{self, Query};
use super::terms::Terms;
use super::{Api, record, schemas, sse};
use crate::client::{Answer, CallRequest, Trace};

pub(super) async fn call(
    State(api): State<Arc<Api>>,
    Path(target): Path<String>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (asked, wants) = (Asked::read(&target, &uri, &head)?, Wants::of(&head));
    let tool = operator::tool(&head)?;
    let read = api.read(&head, body).await?;
    let params = api.apart(read.len(), move || body::payload(&read)).await?.into();
    let call = api.begin(asked, params).await?;
    if let Some(with) = tool {
        let capability = Some(target.split(':').next().unwrap_or(&target));
        api.acted(&Act { with, action: "call", capability, call: Some(&call.id) });
    }
    Ok(match wants {
        Wants::Later => later(&call),
        Wants::Events => sse::response(Events { call, after: 0 }, &api.system.tasks),
        Wants::Result { cbor } => {
            let ended = call.ended().await;
            let bytes = if cbor { 0 } else { ended.bytes() };
            api.apart(bytes, move || answered(&call, &ended, cbor)).await
        }
    })
}

/// What a request asks for.
pub(super) struct Asked {
    pub(super) terms: Terms,
    pub(super) ttl: Option<Duration>,
    pub(super) trace: Trace,
    /// What the call is to be kept together with at one provider.
    pub(super) affinity: Option<String>,
    pub(super) key: Option<String>,
    /// Both schemas that the caller's code was built against.
    pub(super) built: Option<[Option<ContentHash>; 2]>,
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
        let text = |name: &HeaderName| Ok(text(head, name)?.map(str::to_owned));
        let timeout = query.duration("timeout")?;
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let ttl = text(&TTL)?.map(|text| {
            let accepted = "a whole number and ms, s, m, h or d, from 1 second to 30 days";
            query::duration(&text)
                .filter(|ttl| (TTL_MIN..=Duration::from_millis(TTL_MS_MAX)).contains(ttl))
                .ok_or_else(|| Problem::bad(format!("Capd-Ttl: {text:?}; accepted: {accepted}")))
        });
        let terms = Terms {
            capability: target.to_owned(),
            version: query.text("version").map(str::to_owned),
            timeout_ms,
            to: query.text("to").map(str::to_owned),
            thread: text(&THREAD)?,
        };
        // What is wrong with them is told before a key is kept for them.
        terms.request(Bytes::new())?;
        Ok(Self {
            terms,
            ttl: ttl.transpose()?,
            trace: Trace { parent: text(&TRACEPARENT)?, state: text(&TRACESTATE)? },
            affinity: text(&AFFINITY)?.map(checked_affinity).transpose()?,
            key: text(&KEY)?,
            built: text(&BUILT_AGAINST)?.map(|text| schemas::built_against(&text)).transpose()?,
        })
    }
}

impl Asked {
    /// The request with what does not say which call it is: a repeat with the same key may have it otherwise.
    fn hint(&self, request: CallRequest) -> CallRequest {
        let request = request.trace(self.trace.clone());
        match &self.affinity {
            Some(affinity) => request.affinity(affinity.as_str()),
            None => request,
        }
    }
}

fn checked_affinity(text: String) -> Result<String, Problem> {
    if (1..=AFFINITY_BYTES_MAX).contains(&text.len()) {
        return Ok(text);
    }
    Err(Problem::bad(format!("Capd-Affinity: {} bytes; accepted: 1 to {AFFINITY_BYTES_MAX}", text.len())))
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
    /// Makes a call once what it was built against is proven, and follows it.
    pub(super) async fn begin(
        self: &Arc<Self>,
        mut asked: Asked,
        params: Bytes,
    ) -> Result<Arc<Call>, Problem> {
        // A key that is known may have run: what its provider has become since refuses nothing.
        let is_known = asked.key.as_deref().is_some_and(|key| self.keys.is_known(key));
        if let Some(built) = asked.built.filter(|_| !is_known) {
            self.prove(&self.client().await?, built, &mut asked.terms).await?;
        }
        self.make(&asked, params).await
    }

    /// Makes a call, and follows it; one whose key is known is found again.
    async fn make(self: &Arc<Self>, asked: &Asked, params: Bytes) -> Result<Arc<Call>, Problem> {
        let Some(text) = &asked.key else {
            let request = asked.hint(asked.terms.request(params)?);
            let request = match asked.ttl {
                Some(ttl) => request.ttl(ttl),
                None => request,
            };
            return self.send(request, asked.terms.capability.clone(), None).await;
        };
        let ttl = asked.ttl.unwrap_or(keys::TTL_DEFAULT);
        let mut key = self.keys.claim(text, &asked.terms, &params, ttl).await?;
        let mut turn = Arc::clone(&key.turn).lock_owned().await;
        // Its call was refused while this one waited for its turn: that key stands for nothing any more.
        while !self.keys.holds(&key) {
            key = self.keys.claim(text, &asked.terms, &params, ttl).await?;
            turn = Arc::clone(&key.turn).lock_owned().await;
        }
        let _turn = turn;
        let capability = key.terms.capability.clone();
        if let Some(call) = self.calls.get(&key.id) {
            match call.is_ended() {
                None => return Ok(call),
                Some(ended) if record::written(&ended.outcome).is_some() => {
                    let outcome = ended.outcome.clone();
                    return self.replay(key.id, capability, Ended { outcome, replayed: true });
                }
                // It may be known by now how it ended.
                Some(_) => {}
            }
        }
        if let Some(ended) = self.keys.recorded(&key).await {
            return self.replay(key.id, capability, ended);
        }
        let ttl = key.ttl().min(self.options().key_ttl_max);
        let request = asked.hint(key.terms.request(params)?.id(key.id).ttl(ttl));
        self.send(request, capability, Some(&key)).await
    }

    async fn send(
        self: &Arc<Self>,
        request: CallRequest,
        capability: String,
        key: Option<&Arc<Key>>,
    ) -> Result<Arc<Call>, Problem> {
        let client = self.client().await?;
        let handle = client.call(request).map_err(|error| Problem::of_request(&error))?;
        self.follow(handle, capability, key)
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
        Ok(answer) => match to_json_text(&answer.result) {
            Ok(result) => Text(result).into_response(),
            Err(_) => not_json(call.id).into_response(),
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
const BUILT_AGAINST: HeaderName = HeaderName::from_static("capd-built-against");
const AFFINITY: HeaderName = HeaderName::from_static("capd-affinity");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const THREAD: HeaderName = HeaderName::from_static("capd-thread");
const TTL: HeaderName = HeaderName::from_static("capd-ttl");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Shortest time to ask about a call: a call may not expire before it is sent.
const TTL_MIN: Duration = Duration::from_secs(1);
/// The media type of a result as it came.
const CBOR: &str = "application/cbor";
