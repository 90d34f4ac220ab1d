//! What a caller says of a call, and what it gets: a [`CallRequest`], [`Progress`], an [`Answer`].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::{CapabilityId, CapabilityName, Range, Version};
use capd_proto::cbor::Writer;
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits::{EXT_AFFINITY, EXT_BUILT_AGAINST, EXT_CALL, EXT_KEY};
use capd_proto::message;
use capd_proto::negotiate::{Negotiate, SessionId};
use serde_json::Value;

use super::{BuiltAgainst, ClientError};

/// Which capability is called. **Source:** PROTOCOL 7.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Exactly this name and version.
    Id(CapabilityId),
    /// A name; with neither `version` nor `negotiate` the request's session must pin the version.
    Name {
        /// The name.
        name: CapabilityName,
        /// Exactly this version.
        version: Option<Version>,
        /// Let the executor choose.
        negotiate: Option<Negotiate>,
    },
}

impl Target {
    /// The highest version in `range`.
    pub fn in_range(name: CapabilityName, range: Range) -> Self {
        let negotiate = Negotiate { range: Some(range), ..Negotiate::default() };
        Self::Name { name, version: None, negotiate: Some(negotiate) }
    }

    /// The highest release.
    pub fn newest(name: CapabilityName) -> Self {
        // PROTOCOL 6: a range whose comparators name no pre-release picks none.
        Self::in_range(name, ANY_RELEASE.parse().expect("a constant that a test parses"))
    }
}

/// A session that pins a version. **Source:** PROTOCOL 7.5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name: what [`CallRequest::session`] takes.
    pub id: SessionId,
    /// The capability it is about.
    pub capability: CapabilityName,
    /// The pinned version.
    pub agreed_version: Version,
    /// **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

/// A target as invokes name it: written once, however often the request is made.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Id(Arc<str>),
    Name {
        name: CapabilityName,
        version: Option<Arc<str>>,
        negotiate: Option<Negotiate>,
    },
    /// A call that was made before: it is named in `ext`.
    Call(MessageId),
}

impl From<Target> for Named {
    fn from(target: Target) -> Self {
        match target {
            Target::Id(id) => Self::Id(id.to_string().into()),
            Target::Name { name, version, negotiate } => {
                let version = version.map(|version| version.to_string().into());
                Self::Name { name, version, negotiate }
            }
        }
    }
}

/// One call to be made.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub(super) target: Named,
    pub(super) to: Option<Did>,
    pub(super) params: Bytes,
    pub(super) timeout: Option<Duration>,
    pub(super) ttl: Option<Duration>,
    pub(super) session: Option<SessionId>,
    pub(super) thread_id: Option<Bytes>,
    pub(super) id: Option<MessageId>,
    pub(super) trace: Trace,
    pub(super) affinity: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
    pub(super) built_against: Option<BuiltAgainst>,
    /// How long its answer is waited for; otherwise what `timeout` says, and a little more.
    pub(super) wait: Option<Duration>,
}

/// The trace that a call belongs to. **Source:** W3C Trace Context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// `traceparent`, as written.
    pub parent: Option<String>,
    /// `tracestate`, as written.
    pub state: Option<String>,
}

impl Trace {
    /// What stands of it in an envelope's `ext`.
    pub(super) fn of(envelope: &Envelope<'_>) -> Self {
        let text = |key| envelope.ext_text(key).map(Cow::into_owned);
        Self { parent: text(TRACEPARENT), state: text(TRACESTATE) }
    }
}

impl CallRequest {
    /// A call of `target` with `null` for params, to whichever agent the sidecar chooses.
    pub fn new(target: Target) -> Self {
        Self::of(target.into())
    }

    /// A question for a call that was made before. **Source:** PROTOCOL 7.3.
    pub(super) fn known(call: MessageId) -> Self {
        Self::of(Named::Call(call))
    }

    /// The known call that this asks for.
    pub(super) const fn known_call(&self) -> Option<MessageId> {
        match self.target {
            Named::Call(call) => Some(call),
            Named::Id(_) | Named::Name { .. } => None,
        }
    }

    fn of(target: Named) -> Self {
        let params = Bytes::from_static(&[CBOR_NULL]);
        Self {
            target,
            to: None,
            params,
            timeout: None,
            ttl: None,
            session: None,
            thread_id: None,
            id: None,
            trace: Trace::default(),
            affinity: None,
            key: None,
            built_against: None,
            wait: None,
        }
    }

    /// The `ext` that says what the body does not; none when there is nothing to say.
    ///
    /// **Errors:** [`ClientError::Invalid`] for a schema whose hash is none.
    pub(super) fn ext(&self) -> Result<Option<Vec<u8>>, ClientError> {
        enum Field<'a> {
            Text(&'a str),
            Bytes([u8; 32]),
            Call(MessageId),
        }
        let hashes = self.built_against.as_ref().map(BuiltAgainst::hashes).transpose()?.unwrap_or_default();
        let [input, output] = hashes.map(|hash| hash.map(Field::Bytes));
        // In the order of deterministic CBOR.
        let fields = [
            (EXT_KEY, self.key.as_deref().map(Field::Text)),
            (EXT_CALL, self.known_call().map(Field::Call)),
            (TRACESTATE, self.trace.state.as_deref().map(Field::Text)),
            (TRACEPARENT, self.trace.parent.as_deref().map(Field::Text)),
            (EXT_AFFINITY, self.affinity.as_deref().map(Field::Text)),
            (EXT_BUILT_AGAINST[0], input),
            (EXT_BUILT_AGAINST[1], output),
        ];
        let fields: Vec<_> = fields.into_iter().filter_map(|(key, field)| Some((key, field?))).collect();
        if fields.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(fields.len() as u64);
        for (key, field) in fields {
            match field {
                Field::Text(text) => writer.text(key).text(text),
                Field::Bytes(bytes) => writer.text(key).bytes(&bytes),
                Field::Call(call) => writer.text(key).bytes(call.as_bytes()),
            };
        }
        Ok(Some(out))
    }

    /// The agent to call, instead of the sidecar's choice.
    pub fn to(self, agent: Did) -> Self {
        Self { to: Some(agent), ..self }
    }

    /// Params as JSON.
    pub fn params_json(self, params: &Value) -> Self {
        let mut bytes = Vec::new();
        from_json(params, &mut bytes);
        Self { params: bytes.into(), ..self }
    }

    /// Params as one CBOR item, sent as it is. [`Client::call`](crate::Client::call) refuses anything else.
    pub fn params_cbor(self, params: impl Into<Bytes>) -> Self {
        Self { params: params.into(), ..self }
    }

    /// How long the call may take; otherwise what the capability declares.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// How long after it was first made the call may be asked about again: its invoke's `ttl`. Otherwise an hour, or, for
    /// a call with a timeout, a minute more than that. It caps the timeout, and whoever runs the call remembers it for
    /// so long.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The session that pins the version.
    pub fn session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// The thread that the call belongs to.
    pub fn thread_id(self, thread_id: impl Into<Bytes>) -> Self {
        Self { thread_id: Some(thread_id.into()), ..self }
    }

    /// The trace that the call belongs to.
    pub fn trace(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    /// The affinity that the call has: idempotent calls of one affinity go to the same provider for as long as the sidecar has a
    /// link to it. **Shape:** 1 to 255 bytes; the sidecar refuses any other with 4001. It is a name such as a customer's or a
    /// document's.
    pub fn affinity(self, affinity: impl Into<Arc<str>>) -> Self {
        Self { affinity: Some(affinity.into()), ..self }
    }

    /// The idempotency key that the call has: its sidecar keeps it on disk for the call's [`ttl`](Self::ttl), 24 h where none
    /// is set, and never has two calls under it. **Source:** PROTOCOL 7.3.
    pub fn key(self, key: impl Into<Arc<str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The schemas that the call was built against; it needs a [`key`](Self::key). A refusal that lists
    /// `unknown_schemas` asks for [`Client::put_schema`](crate::Client::put_schema).
    pub fn built_against(self, schemas: BuiltAgainst) -> Self {
        Self { built_against: Some(schemas), ..self }
    }

    /// The call's id, to repeat a call whose answer was lost: under the same id it runs once.
    ///
    /// Everything else must be as it was the first time. The time in the id is the invoke's `ts`, so that `ts + ttl` is
    /// the same too, and a repeat past it is refused with 1003 and not run once more. **Source:** PROTOCOL 5, 8.
    pub fn id(self, id: MessageId) -> Self {
        Self { id: Some(id), ..self }
    }
}

/// What a call says while it runs. **Source:** PROTOCOL 7.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// PROCESSING: it has been taken up.
    Processing {
        /// Words for people.
        status_text: Option<String>,
        /// **Units:** milliseconds from here.
        eta_ms: Option<u64>,
        /// Whether cancelling it would have an effect.
        cancellable: Option<bool>,
    },
    /// PROGRESS: so much is done.
    Progress {
        /// **Units:** percent, 0 to 100.
        pct: u8,
    },
    /// INPUT_REQUIRED: it waits for somebody.
    InputRequired {
        /// What is asked.
        prompt: String,
    },
}

impl From<message::Processing<'_>> for Progress {
    fn from(body: message::Processing<'_>) -> Self {
        let status_text = body.status_text.map(Cow::into_owned);
        Self::Processing { status_text, eta_ms: body.eta_ms, cancellable: body.cancellable }
    }
}

impl From<message::Progress> for Progress {
    fn from(body: message::Progress) -> Self {
        Self::Progress { pct: body.progress_pct }
    }
}

impl From<message::InputRequired<'_>> for Progress {
    fn from(body: message::InputRequired<'_>) -> Self {
        Self::InputRequired { prompt: body.prompt.into_owned() }
    }
}

/// The good end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// **Shape:** one CBOR item.
    pub result: Bytes,
    /// The agent that answered.
    pub from: Did,
    /// How long it says that it took. **Units:** milliseconds.
    pub execution_time_ms: Option<u64>,
    /// What it says that the call cost. **Shape:** a CBOR map from a unit's name to a number.
    pub cost_estimate: Option<Bytes>,
    /// Whether the version that served is deprecated. **Source:** PROTOCOL 7.5.
    pub is_deprecated: bool,
    /// Which capability served it, where the call left the choice open and the executor says so.
    pub capability: Option<String>,
    /// Whether the call's [key](CallRequest::key) was given before, and this is what was recorded then.
    pub is_replayed: bool,
}

impl Answer {
    /// The result as JSON; `None` when it does not fit, which only a capability without a schema makes happen.
    pub fn json(&self) -> Option<Value> {
        to_json(&self.result).ok()
    }

    /// What the call cost, as JSON.
    pub fn cost_json(&self) -> Option<Value> {
        self.cost_estimate.as_ref().and_then(|cost| to_json(cost).ok())
    }
}

/// The `ext` fields of a trace. **Source:** PROTOCOL 5.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// CBOR's `null`, the params of a call without any. **Source:** PROTOCOL 10.
const CBOR_NULL: u8 = 0xf6;
/// Every version that is no pre-release.
const ANY_RELEASE: &str = ">=0.0.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_is_no_pre_release() {
        let Target::Name { negotiate: Some(negotiate), .. } =
            Target::newest("org.example.a".parse().unwrap())
        else {
            panic!("not negotiated");
        };
        let range = negotiate.range.unwrap();
        assert!(range.matches(&"0.0.0".parse().unwrap()) && range.matches(&"99.0.0".parse().unwrap()));
        assert!(!range.matches(&"1.0.0-rc.1".parse().unwrap()));
    }
}
