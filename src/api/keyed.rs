//! A call with a key, or the id of a known call, that came over a local link in; the messages that answer it out.
//!
//! It is the same call as `POST /v1/call/{name}` with an `Idempotency-Key`, made by the same code: a key that was given
//! over the one is known over the other (PROTOCOL 7.3).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::limits::{EXT_CALL, EXT_CAPABILITY_ID, EXT_REPLAYED};
use capd_proto::message::{
    CallError, CapResult, ContentHash, ErrorBody, InputRequired, Processing, Progress as Percent, Type,
};
use serde_json::json;

use super::Api;
use super::call::Asked;
use super::calls::{Call, Ended, Told};
use super::history::Found;
use super::problem::Problem;
use super::terms::Terms;
use crate::client::{Answer, ClientError, Progress, Trace, WireError, to_cbor};

/// A call with a key, as an invoke asks for it.
pub(crate) struct KeyedCall {
    /// A name or an id.
    pub(crate) capability: String,
    /// A range of versions, with a name.
    pub(crate) version: Option<String>,
    pub(crate) timeout: Option<Duration>,
    /// The agent to call, instead of the sidecar's choice.
    pub(crate) to: Option<String>,
    pub(crate) thread: Option<String>,
    /// How long the key is kept.
    pub(crate) ttl: Duration,
    pub(crate) trace: Trace,
    pub(crate) affinity: Option<String>,
    pub(crate) key: String,
    /// Both schemas that the caller's code was built against.
    pub(crate) built: Option<[Option<ContentHash>; 2]>,
    pub(crate) params: Bytes,
}

/// Takes each message that answers one invoke: type, body, and `ext` where there is one.
pub(crate) trait Answers: Fn(Type, &[u8], Option<&[u8]>) + Send + Sync {}

impl<F: Fn(Type, &[u8], Option<&[u8]>) + Send + Sync> Answers for F {}

impl Api {
    /// Makes the call that a key stands for, or finds it again, and answers: ACK once the key is on disk and the call on
    /// its way, then what it says, then its one CAP_RESULT. A refusal is one ERROR.
    pub(crate) async fn keyed(self: Arc<Self>, keyed: KeyedCall, answers: impl Answers) {
        let call = match self.begin_keyed(keyed).await {
            Ok(call) => call,
            Err(problem) => return refuse(&problem, &answers),
        };
        follow(&call, &answers).await;
    }

    /// Answers with a call that was made over HTTP or with a key: what it says, then its one CAP_RESULT. Where only its
    /// state is known, an error result says so; for an unknown call, one ERROR.
    pub(crate) async fn known(self: Arc<Self>, id: MessageId, answers: impl Answers) {
        match self.found(id).await {
            Ok(Found::Call(call)) => follow(&call, &answers).await,
            Ok(Found::Running) => {
                let details = to_cbor(&json!({"final": false, "retry_after_seconds": RETRY_SECONDS}));
                let message = "the call still runs, and its end is not followed here; ask again later";
                unrecorded(id, Code::TIMEOUT, message, Some(details), &answers);
            }
            Ok(Found::Over) => {
                let message =
                    "the sidecar has no record of the call's answer; make the call again with its key";
                unrecorded(id, Code::INTERRUPTED, message, None, &answers);
            }
            Err(problem) => refuse(&problem, &answers),
        }
    }

    /// Keeps a schema that the agent's code was built against. **Errors:** the code and the words of its ERROR.
    pub(crate) fn keep(&self, hash: ContentHash, document: Bytes) -> Result<(), (Code, String)> {
        self.keep_schema(hash, document).map_err(|problem| {
            let (code, message, _) = problem.wire();
            (code, message.to_owned())
        })
    }

    async fn begin_keyed(self: &Arc<Self>, keyed: KeyedCall) -> Result<Arc<Call>, Problem> {
        let timeout_ms = keyed.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let terms = Terms {
            capability: keyed.capability,
            version: keyed.version,
            timeout_ms,
            to: keyed.to,
            thread: keyed.thread,
        };
        // What is wrong with them is told before a key is kept for them.
        terms.request(Bytes::new())?;
        let asked = Asked {
            terms,
            ttl: Some(keyed.ttl),
            trace: keyed.trace,
            affinity: keyed.affinity,
            key: Some(keyed.key),
            built: keyed.built,
        };
        self.begin(asked, keyed.params).await
    }
}

/// Passes on everything that a call says, to its end.
async fn follow(call: &Call, answers: &impl Answers) {
    let mut after = 0;
    while let Some((number, told, ended)) = call.told_after(after).await {
        after = number;
        match (told, ended) {
            (Told::End, Some(ended)) => return end(call, &ended, answers),
            (Told::Accepted | Told::End, _) => answers(Type::Ack, &EMPTY_MAP, Some(&ack_ext(call))),
            (Told::Progress(progress), _) => tell(&progress, call.id, answers),
        }
    }
}

/// An error result for a call of which the answer is not known here.
fn unrecorded(call: MessageId, code: Code, message: &str, details: Option<Bytes>, answers: &impl Answers) {
    let mut body = Vec::new();
    CapResult::error(CallError::new(code, message, details.as_deref())).encode(&mut body);
    answers(Type::CapResult, &body, Some(&call_ext(call)));
}

fn refuse(problem: &Problem, answers: &impl Answers) {
    let (code, message, details) = problem.wire();
    let details = details.map(to_cbor);
    let wire = WireError { code, message: message.to_owned(), details };
    error(&wire, None, answers);
}

fn error(error: &WireError, ext: Option<&[u8]>, answers: &impl Answers) {
    let mut body = ErrorBody::new(error.code, error.message.as_str());
    body.details = error.details.as_deref();
    let mut written = Vec::new();
    body.encode(&mut written);
    answers(Type::Error, &written, ext);
}

fn tell(progress: &Progress, call: MessageId, answers: &impl Answers) {
    let mut body = Vec::new();
    let typ = match progress {
        Progress::Processing { status_text, eta_ms, cancellable } => {
            let status_text = status_text.as_deref().map(Into::into);
            Processing { status_text, eta_ms: *eta_ms, cancellable: *cancellable }.encode(&mut body);
            Type::Processing
        }
        Progress::Progress { pct } => {
            Percent { progress_pct: *pct }.encode(&mut body);
            Type::Progress
        }
        Progress::InputRequired { prompt } => {
            let prompt = prompt.as_str().into();
            InputRequired { prompt, options: None, timeout_ms: None }.encode(&mut body);
            Type::InputRequired
        }
    };
    answers(typ, &body, Some(&call_ext(call)));
}

fn end(call: &Call, ended: &Ended, answers: &impl Answers) {
    let failed = |wire: &WireError| {
        let mut body = Vec::new();
        let details = wire.details.as_deref();
        CapResult::error(CallError::new(wire.code, &wire.message, details)).encode(&mut body);
        answers(Type::CapResult, &body, Some(&result_ext(call, None, ended.replayed)));
    };
    match &ended.outcome {
        Ok(answer) => {
            let mut result = CapResult::success(&answer.result);
            result.execution_time_ms = answer.execution_time_ms;
            result.cost_estimate = answer.cost_estimate.as_deref();
            let mut body = Vec::with_capacity(answer.result.len() + RESULT_FIELDS_BYTES);
            result.encode(&mut body);
            answers(Type::CapResult, &body, Some(&result_ext(call, Some(answer), ended.replayed)));
        }
        Err(ClientError::Refused(wire)) => error(wire, Some(&call_ext(call.id)), answers),
        Err(ClientError::Result(wire)) => failed(wire),
        Err(ClientError::Unsent(_) | ClientError::Invalid(_)) => {
            let outcome = ended.outcome.as_ref().err().map(|error| Problem::of_call(error, call.id));
            outcome.iter().for_each(|problem| refuse(problem, answers));
        }
        Err(error @ ClientError::Timeout { .. }) => failed(&not_final(Code::TIMEOUT, error)),
        Err(
            error @ (ClientError::Closed(_)
            | ClientError::Connect { .. }
            | ClientError::Owner { .. }
            | ClientError::Answer(_)),
        ) => failed(&not_final(Code::INTERRUPTED, error)),
    }
}

/// An error result that says that another answer may come. **Source:** PROTOCOL 8.
fn not_final(code: Code, error: &ClientError) -> WireError {
    let details = Some(to_cbor(&json!({"final": false})));
    WireError { code, message: error.to_string(), details }
}

/// The `ext` that names the call. **Shape:** `{"capd-call": bstr .size 16}`.
fn call_ext(call: MessageId) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).map(1).text(EXT_CALL).bytes(call.as_bytes());
    out
}

/// The `ext` of an ACK: the call, and what the invoke called.
fn ack_ext(call: &Call) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(2).text(EXT_CALL).bytes(call.id.as_bytes()).text(EXT_CAPABILITY_ID).text(&call.capability);
    out
}

/// The `ext` of a result: the call, and what a result that a peer sends says there.
fn result_ext(call: &Call, answer: Option<&Answer>, replayed: bool) -> Vec<u8> {
    let is_deprecated = answer.is_some_and(|answer| answer.is_deprecated);
    let capability = answer.and_then(|answer| answer.capability.as_deref());
    let fields = 1 + u64::from(is_deprecated) + u64::from(capability.is_some()) + u64::from(replayed);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    // In the order of deterministic CBOR.
    writer.map(fields).text(EXT_CALL).bytes(call.id.as_bytes());
    if is_deprecated {
        writer.text("deprecated").bool(true);
    }
    if let Some(capability) = capability {
        writer.text(EXT_CAPABILITY_ID).text(capability);
    }
    if replayed {
        writer.text(EXT_REPLAYED).bool(true);
    }
    out
}

/// The body of an ACK.
const EMPTY_MAP: [u8; 1] = [0xa0];
/// When to ask again for the end of a call that nobody follows here. **Units:** seconds.
const RETRY_SECONDS: u64 = 1;
/// Bytes to begin with for a result's other fields.
const RESULT_FIELDS_BYTES: usize = 64;
