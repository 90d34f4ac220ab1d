//! What the conformance tests share: one sidecar that serves nothing, refusals as they come, and agents that serve.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ciborium::{Value, cbor};
use sha2::{Digest as _, Sha256};

use crate::peer::{ERROR_FRAME, RawLink, Transport};
use crate::support::{Frame, Message, Setup, Sidecar, decode, field};

pub const PING: u64 = 0x01;
pub const ACK: u64 = 0x03;
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
pub const DOC_SEND: u64 = 0x30;
pub const DOC_REQUEST: u64 = 0x31;
pub const HELLO: u64 = 0x70;

/// A sidecar that serves nothing, one for all tests that run at the moment.
pub fn quiet_sidecar() -> Arc<Sidecar> {
    static SHARED: Mutex<Weak<Sidecar>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let sidecar = Arc::new(Sidecar::start());
        *shared = Arc::downgrade(&sidecar);
        sidecar
    })
}

/// What an ERROR message says.
#[derive(Debug)]
pub struct Refusal {
    pub code: u64,
    pub message: String,
    pub details: Option<Value>,
}

impl Refusal {
    /// Reads an ERROR and holds it against PROTOCOL 9.
    pub fn of(error: &Message) -> Self {
        assert_eq!(error.typ(), ERROR, "{error:?}");
        let body = error.body();
        let code = error.code().expect("a code");
        let message = field(body, "message").and_then(Value::as_text).expect("a message").to_owned();
        let category = field(body, "category").and_then(Value::as_text).expect("a category");
        let expected = ["protocol", "routing", "security", "client", "server"][code as usize / 1_000 - 1];
        assert_eq!(category, expected, "{error:?}");
        assert!(!message.is_empty(), "{error:?}");
        Self { code, message, details: field(body, "details").cloned() }
    }

    pub fn detail(&self, key: &str) -> &Value {
        let details = self.details.as_ref().unwrap_or_else(|| panic!("no details: {self:?}"));
        field(details, key).unwrap_or_else(|| panic!("no {key}: {self:?}"))
    }

    /// The served versions that a 4003 names.
    pub fn available(&self) -> Vec<&str> {
        texts(self.detail("available"))
    }
}

impl RawLink {
    /// The ERROR that answers `id`; the link takes the next message.
    pub fn refusal(&mut self, id: &[u8]) -> Refusal {
        let answer = self.reply(id);
        let refusal = Refusal::of(&answer);
        self.ping();
        refusal
    }

    /// The ERROR that refuses a message; the link takes the next one.
    pub fn refused(&mut self, typ: u64, body: Value) -> Refusal {
        let id = self.send(typ, body);
        self.refusal(&id)
    }

    /// The ERROR that refuses a message whose id could not be read; the link takes the next one.
    pub fn nameless_refusal(&mut self) -> Refusal {
        let answer = self.message_where(|message| message.typ() == ERROR && message.reply_to().is_none());
        let refusal = Refusal::of(&answer);
        self.ping();
        refusal
    }
}

/// An agent on the unix socket that has declared these descriptors.
pub fn serving(sidecar: &Sidecar, descriptors: Vec<Value>) -> RawLink {
    let mut agent = RawLink::open(sidecar, Transport::Unix);
    declare(&mut agent, descriptors);
    agent
}

/// Declares, and waits until it stands: messages of one link are taken in order.
pub fn declare(agent: &mut RawLink, descriptors: Vec<Value>) {
    agent.send(CAP_DECLARE, cbor!({ "capabilities" => descriptors }).unwrap());
    agent.ping();
}

/// A sidecar, and an agent of it that has declared these descriptors.
pub fn served(descriptors: Vec<Value>) -> (Sidecar, RawLink) {
    let sidecar = Setup::new().start();
    let agent = serving(&sidecar, descriptors);
    (sidecar, agent)
}

/// A descriptor without schemas, whose calls may be run again.
pub fn loose(id: &str) -> Value {
    cbor!({ "id" => id, "idempotent" => true }).unwrap()
}

/// A descriptor whose schemas stand in it.
pub fn checked(id: &str, input: &str, output: &str) -> Value {
    cbor!({
        "id" => id,
        "idempotent" => true,
        "input_schema" => inline(input),
        "output_schema" => inline(output),
    })
    .unwrap()
}

/// A schema-ref with its document in it.
pub fn inline(document: &str) -> Value {
    cbor!({
        "hash_alg" => "sha-256",
        "hash" => sha256(document.as_bytes()),
        "inline" => document,
    })
    .unwrap()
}

pub fn sha256(bytes: &[u8]) -> Value {
    Value::Bytes(Sha256::digest(bytes).to_vec())
}

/// The ids of a CAP_DECLARE, in its order.
pub fn ids(declare: &Message) -> Vec<&str> {
    assert_eq!(declare.typ(), CAP_DECLARE, "{declare:?}");
    let capabilities = field(declare.body(), "capabilities").and_then(Value::as_array).unwrap();
    capabilities.iter().map(|descriptor| field(descriptor, "id").and_then(Value::as_text).unwrap()).collect()
}

/// An array of texts.
pub fn texts(array: &Value) -> Vec<&str> {
    array.as_array().unwrap().iter().map(|text| text.as_text().unwrap()).collect()
}

/// The code and message of an ERROR frame.
pub fn error_frame(frame: &Frame) -> (u64, String) {
    assert_eq!(frame.frame_type, ERROR_FRAME, "{frame:?}");
    let payload = decode(&frame.payload);
    let code = field(&payload, "code").and_then(Value::as_integer).unwrap();
    let message = field(&payload, "message").and_then(Value::as_text).unwrap();
    (code.try_into().unwrap(), message.to_owned())
}

/// The link was closed with one ERROR frame as the last thing said; its code and message.
pub fn closed_with(link: &mut RawLink) -> (u64, String) {
    let frames = link.closed();
    let [only] = frames.as_slice() else { panic!("{link:?}: {frames:?}") };
    error_frame(only)
}
