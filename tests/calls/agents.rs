//! Agents on a local link: one that calls and one that serves, each by raw frames.

use std::path::Path;

use ciborium::Value;

use crate::support::{BytePeer, Message, Sidecar, field, map, set};

pub const PROCESSING: u64 = 0x09;
pub const PROGRESS: u64 = 0x0a;
pub const INPUT_REQUIRED: u64 = 0x0b;
pub const ERROR: u64 = 0x0f;
pub const REQUEST: u64 = 0x11;
pub const RESPONSE: u64 = 0x12;
pub const CAP_QUERY: u64 = 0x20;
pub const CAP_DECLARE: u64 = 0x21;
pub const CAP_INVOKE: u64 = 0x22;
pub const CAP_RESULT: u64 = 0x23;
pub const DOC_REQUEST: u64 = 0x31;
pub const DOC_SEND: u64 = 0x30;

/// An agent that calls.
pub struct Caller {
    pub link: BytePeer,
    /// What came while something else was waited for.
    kept: Vec<Message>,
}

impl Caller {
    pub fn of(sidecar: &Sidecar) -> Self {
        Self::at(&sidecar.socket)
    }

    /// The same at this socket.
    pub fn at(socket: &Path) -> Self {
        Self { link: BytePeer::open(socket), kept: Vec::new() }
    }

    /// Sends CAP_INVOKE to whoever serves it, and returns its id.
    pub fn invoke(&mut self, body: Value) -> Vec<u8> {
        self.link.send(CAP_INVOKE, body)
    }

    /// Sends CAP_INVOKE to one sidecar.
    pub fn invoke_at(&mut self, did: &str, body: Value) -> Vec<u8> {
        let mut envelope = self.link.envelope(CAP_INVOKE, body);
        set(&mut envelope, "to", did.into());
        self.link.send_envelope(&envelope)
    }

    /// The next message about `id`, of any type.
    pub fn about(&mut self, id: &[u8]) -> Message {
        let is_about = |message: &Message| message.reply_to().as_deref() == Some(id);
        if let Some(at) = self.kept.iter().position(is_about) {
            return self.kept.remove(at);
        }
        loop {
            let message = self.link.message();
            if is_about(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    /// The CAP_RESULT of `id`, which must be what comes next about it.
    pub fn result(&mut self, id: &[u8]) -> Message {
        let message = self.about(id);
        assert_eq!(message.typ(), CAP_RESULT, "{message:?}");
        message
    }

    /// The ERROR of `id`, which must be what comes next about it.
    pub fn error(&mut self, id: &[u8]) -> Message {
        let message = self.about(id);
        assert_eq!(message.typ(), ERROR, "{message:?}");
        message
    }

    /// Calls, and returns the result.
    pub fn call(&mut self, body: Value) -> Value {
        let id = self.invoke(body);
        success(&self.result(&id)).clone()
    }

    /// The `state` of the answer to a cancel of `target`.
    pub fn cancel(&mut self, target: &[u8]) -> String {
        let body = map([("op", "cancel".into()), ("target", Value::Bytes(target.to_vec()))]);
        let id = self.link.send(REQUEST, body);
        self.cancel_state(&id)
    }

    /// The `state` of the answer to the cancel request `id`.
    pub fn cancel_state(&mut self, id: &[u8]) -> String {
        let answer = self.about(id);
        assert_eq!(answer.typ(), RESPONSE, "{answer:?}");
        field(answer.body(), "state").and_then(Value::as_text).unwrap().to_owned()
    }

    /// Asserts that nothing has come that nobody waited for.
    #[track_caller]
    pub fn heard_nothing_more(&mut self) {
        let late = self.link.ping();
        assert!(self.kept.is_empty() && late.is_empty(), "{:?} {late:?}", self.kept);
    }
}

/// An agent that serves.
pub struct Provider {
    pub link: BytePeer,
}

impl Provider {
    /// Declares these descriptors; they are served when this returns.
    pub fn of(sidecar: &Sidecar, descriptors: Vec<Value>) -> Self {
        Self::at(&sidecar.socket, descriptors)
    }

    /// The same at this socket.
    pub fn at(socket: &Path, descriptors: Vec<Value>) -> Self {
        let mut provider = Self { link: BytePeer::open(socket) };
        provider.declare(descriptors);
        provider
    }

    /// Declares something else in place of what was served.
    pub fn declare(&mut self, descriptors: Vec<Value>) {
        self.link.send(CAP_DECLARE, map([("capabilities", Value::Array(descriptors))]));
        assert_eq!(types(&self.link.ping()), [0; 0], "the declaration is refused");
    }

    /// The next call.
    pub fn taken(&mut self) -> Message {
        let message = self.link.message();
        assert_eq!(message.typ(), CAP_INVOKE, "{message:?}");
        message
    }

    /// Answers with this result.
    pub fn succeed(&mut self, call: &Message, result: Value) -> Vec<u8> {
        self.link.answer(call, CAP_RESULT, map([("status", "success".into()), ("result", result)]))
    }

    /// Answers with this error.
    pub fn fail(&mut self, call: &Message, code: u64) -> Vec<u8> {
        let error = map([("code", code.into()), ("message", "as told".into())]);
        self.link.answer(call, CAP_RESULT, map([("status", "error".into()), ("error", error)]))
    }

    /// Takes one call and answers it with its params.
    pub fn echo(&mut self) -> Message {
        let call = self.taken();
        let params = field(call.body(), "params").unwrap().clone();
        self.succeed(&call, params);
        call
    }

    /// The next message, which must be the request to cancel `call`.
    pub fn is_told_to_cancel(&mut self, call: &Message) {
        let message = self.link.message();
        assert_eq!(message.typ(), REQUEST, "{message:?}");
        assert_eq!(field(message.body(), "op").and_then(Value::as_text), Some("cancel"));
        assert_eq!(field(message.body(), "target").and_then(Value::as_bytes), Some(&call.id()));
    }

    /// The next message, which must be ERROR `code` about the message `id`.
    pub fn is_refused(&mut self, id: &[u8], code: u64) {
        let message = self.link.message();
        assert_eq!((message.typ(), message.code()), (ERROR, Some(code)), "{message:?}");
        assert_eq!(message.reply_to().as_deref(), Some(id));
    }

    /// Asserts that nothing has come that nobody waited for.
    #[track_caller]
    pub fn heard_nothing_more(&mut self) {
        assert_eq!(types(&self.link.ping()), [0; 0]);
    }
}

fn types(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(Message::typ).collect()
}

/// The result of a CAP_RESULT that is a success.
#[track_caller]
pub fn success(message: &Message) -> &Value {
    let status = field(message.body(), "status").and_then(Value::as_text);
    assert_eq!(status, Some("success"), "{message:?}");
    field(message.body(), "result").unwrap()
}

/// The code of a CAP_RESULT that is an error.
#[track_caller]
pub fn failure(message: &Message) -> u64 {
    let status = field(message.body(), "status").and_then(Value::as_text);
    assert_eq!((message.typ(), status), (CAP_RESULT, Some("error")), "{message:?}");
    message.code().unwrap()
}

/// The code of the ERROR that a 5902 which is not the last word stands in the place of.
#[track_caller]
pub fn unknown_for(message: &Message) -> Option<u64> {
    assert_eq!(failure(message), 5902, "{message:?}");
    let details = of_error(message, "details").expect("it has details");
    assert_eq!(field(details, "final"), Some(&Value::Bool(false)));
    let code = field(field(details, "error")?, "code")?;
    Some(code.as_integer().unwrap().try_into().unwrap())
}

/// A field of a CAP_RESULT's error or of an ERROR.
pub fn of_error<'a>(message: &'a Message, key: &str) -> Option<&'a Value> {
    field(field(message.body(), "error").unwrap_or(message.body()), key)
}

/// CAP_INVOKE's body for a capability id.
pub fn by_id(id: &str, params: Value) -> Value {
    map([("id", id.into()), ("params", params)])
}

/// A time limit that is meant to pass, in milliseconds, and that leaves a busy machine the time for what comes before.
pub const SOON_MS: u64 = 1_500;

/// The same with a time limit.
pub fn within(id: &str, params: Value, timeout_ms: u64) -> Value {
    map([("id", id.into()), ("params", params), ("timeout_ms", timeout_ms.into())])
}

/// The descriptor of a capability of which a lost call is sent again after ten milliseconds.
pub fn retried_soon(id: &str, idempotent: bool) -> Value {
    let policy = map([("max_attempts", 3.into()), ("initial_delay_ms", 10.into())]);
    map([("id", id.into()), ("idempotent", idempotent.into()), ("retry_policy", policy)])
}

/// A descriptor without schemas.
pub fn loose(id: &str) -> Value {
    map([("id", id.into())])
}

/// A descriptor without schemas, declared idempotent.
pub fn idempotent(id: &str) -> Value {
    map([("id", id.into()), ("idempotent", true.into())])
}

/// A descriptor with an inline schema under `key`.
pub fn with_schema(id: &str, key: &str, schema: &str) -> Value {
    map([("id", id.into()), (key, inline(schema))])
}

/// A schema-ref that holds its document.
pub fn inline(schema: &str) -> Value {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(schema.as_bytes()).to_vec();
    map([("hash_alg", "sha-256".into()), ("hash", Value::Bytes(hash)), ("inline", schema.into())])
}
