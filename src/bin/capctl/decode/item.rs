//! Decodes bytes as a frame, an envelope or a body, each with its verdict.

use capd_proto::cbor;
use capd_proto::cddl::Mismatch;
use capd_proto::cddl::bodies::{BodyError, bodies};
use capd_proto::envelope::{Envelope, Payload};
use capd_proto::frame::{ErrorFrame, Frame, FrameType, Goaway, HandshakeRequest, HandshakeResponse};
use capd_proto::identity::PublicKey;
use capd_proto::message::Type;

/// One thing that was decoded.
pub(super) enum Item {
    Frame(FrameView),
    Envelope(EnvelopeView),
    Body(BodyView),
    /// Bytes from `offset` on that are no frame.
    Broken {
        offset: usize,
        reason: String,
    },
}

/// One frame.
pub(super) struct FrameView {
    pub(super) offset: usize,
    pub(super) frame_type: FrameType,
    pub(super) payload_bytes: usize,
    pub(super) content: Content,
}

/// What a frame carries.
pub(super) enum Content {
    Envelope(Box<EnvelopeView>),
    /// A CBOR payload, and whether it has the shape that its frame type asks for.
    Item {
        payload: Vec<u8>,
        verdict: Result<(), String>,
    },
    Opaque(Vec<u8>),
}

/// One envelope, or why it is none.
pub(super) struct EnvelopeView {
    pub(super) fields: Result<Fields, Refusal>,
}

/// Why an envelope is refused.
pub(super) struct Refusal {
    pub(super) code: u32,
    pub(super) reason: String,
    pub(super) id: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// An envelope's fields.
pub(super) struct Fields {
    pub(super) id: String,
    pub(super) typ: u64,
    pub(super) ts: u64,
    pub(super) ttl: u64,
    pub(super) from: String,
    pub(super) to: Vec<String>,
    pub(super) reply_to: Option<Vec<u8>>,
    pub(super) thread_id: Option<Vec<u8>>,
    pub(super) signature: Signature,
    pub(super) ext: Option<Vec<u8>>,
    pub(super) content: Sealed,
}

/// An envelope's body, in the clear or not.
pub(super) enum Sealed {
    Body(BodyView),
    Encrypted { nonce: Vec<u8>, ciphertext_bytes: usize },
}

/// What can be said of a signature without a DID document.
pub(super) enum Signature {
    Valid,
    /// 1002.
    Invalid,
    Empty,
    /// `from` is no `did:key`.
    NoKey,
    /// The body is encrypted, and the plaintext is what is signed.
    Encrypted,
}

/// One body, with what its CDDL rule says.
pub(super) struct BodyView {
    pub(super) typ: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) verdict: Verdict,
}

/// What the CDDL says of a body.
pub(super) enum Verdict {
    Matches {
        rule: &'static str,
    },
    Mismatch {
        rule: String,
        path: String,
        offset: usize,
        expected: String,
    },
    /// 1005: no rule, because the type is none that we speak.
    UnknownType,
    /// Not CBOR that PROTOCOL 5 accepts.
    Malformed {
        offset: usize,
        reason: String,
    },
}

impl Item {
    /// What the protocol refuses about it.
    pub(super) fn refusals(&self) -> Vec<String> {
        match self {
            Self::Frame(frame) => match &frame.content {
                Content::Envelope(envelope) => envelope.refusals(),
                Content::Item { verdict: Err(reason), .. } => vec![format!("1001: {reason}")],
                Content::Item { verdict: Ok(()), .. } | Content::Opaque(_) => vec![],
            },
            Self::Envelope(envelope) => envelope.refusals(),
            Self::Body(body) => body.refusal().into_iter().collect(),
            Self::Broken { offset, reason } => vec![format!("1001: {reason} at byte {offset}")],
        }
    }
}

impl FrameView {
    pub(super) fn of(offset: usize, frame: &Frame) -> Self {
        let payload = frame.payload.to_vec();
        let item = |verdict: Result<(), String>| Content::Item { payload: payload.clone(), verdict };
        let content = match frame.frame_type {
            FrameType::AmpMessage => Content::Envelope(Box::new(EnvelopeView::of(&payload))),
            FrameType::Handshake => {
                // The two sides' payloads differ in `accepted`, which only the answer has.
                let request = HandshakeRequest::decode(&payload).map(drop);
                item(
                    HandshakeResponse::decode(&payload)
                        .map(drop)
                        .or(request)
                        .map_err(|error| error.to_string()),
                )
            }
            FrameType::Goaway => item(Goaway::decode(&payload).map(drop).map_err(|error| error.to_string())),
            FrameType::Error => {
                item(ErrorFrame::decode(&payload).map(drop).map_err(|error| error.to_string()))
            }
            FrameType::Ping | FrameType::Pong => Content::Opaque(payload.clone()),
        };
        Self { offset, frame_type: frame.frame_type, payload_bytes: payload.len(), content }
    }
}

impl EnvelopeView {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let fields = Envelope::decode(bytes).map(|envelope| Fields::of(&envelope)).map_err(|error| Refusal {
            code: error.code().0,
            reason: error.to_string(),
            id: error.id.map(|id| id.to_string()),
            bytes: bytes.to_vec(),
        });
        Self { fields }
    }

    fn refusals(&self) -> Vec<String> {
        match &self.fields {
            Ok(fields) => fields.refusals(),
            Err(refusal) => vec![format!("{}: {}", refusal.code, refusal.reason)],
        }
    }
}

impl Fields {
    fn of(envelope: &Envelope<'_>) -> Self {
        let content = match &envelope.payload {
            Payload::Body(body) => Sealed::Body(BodyView::of(envelope.typ, body)),
            Payload::Enc(encrypted) => Sealed::Encrypted {
                nonce: encrypted.nonce.to_vec(),
                ciphertext_bytes: encrypted.ciphertext.len(),
            },
        };
        Self {
            id: envelope.id.to_string(),
            typ: envelope.typ,
            ts: envelope.ts,
            ttl: envelope.ttl,
            from: envelope.from.clone().into_owned(),
            to: envelope.to.iter().map(str::to_owned).collect(),
            reply_to: envelope.reply_to.as_deref().map(<[u8]>::to_vec),
            thread_id: envelope.thread_id.as_deref().map(<[u8]>::to_vec),
            signature: Signature::of(envelope),
            ext: envelope.ext.map(<[u8]>::to_vec),
            content,
        }
    }

    fn refusals(&self) -> Vec<String> {
        let signature = matches!(self.signature, Signature::Invalid);
        let signature = signature.then(|| "1002: the signature is invalid".to_owned());
        let body = match &self.content {
            Sealed::Body(body) => body.refusal(),
            Sealed::Encrypted { .. } if message_name(self.typ).is_none() => Some(unknown_type(self.typ)),
            Sealed::Encrypted { .. } => None,
        };
        signature.into_iter().chain(body).collect()
    }
}

impl Signature {
    fn of(envelope: &Envelope<'_>) -> Self {
        if envelope.sig.is_none() {
            return Self::Empty;
        }
        if envelope.body().is_none() {
            return Self::Encrypted;
        }
        match PublicKey::from_did(&envelope.from) {
            Ok(key) if envelope.verify(&key, &mut Vec::new()).is_ok() => Self::Valid,
            Ok(_) => Self::Invalid,
            Err(_) => Self::NoKey,
        }
    }
}

impl BodyView {
    pub(super) fn of(typ: u64, bytes: &[u8]) -> Self {
        Self { typ, bytes: bytes.to_vec(), verdict: Verdict::of(typ, bytes) }
    }

    fn refusal(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Matches { .. } => None,
            Verdict::Mismatch { rule, path, offset, .. } => {
                Some(format!("1001: the body does not match {rule} at {path:?}, byte {offset}"))
            }
            Verdict::UnknownType => Some(unknown_type(self.typ)),
            Verdict::Malformed { offset, reason } => {
                Some(format!("1001: {reason} at byte {offset} of the body"))
            }
        }
    }
}

impl Verdict {
    fn of(typ: u64, bytes: &[u8]) -> Self {
        if let Err(error) = cbor::check(bytes) {
            return Self::Malformed { offset: error.offset, reason: error.kind.to_string() };
        }
        let rule = bodies().rule_name(typ).unwrap_or_default();
        match bodies().check(typ, bytes) {
            Ok(()) => Self::Matches { rule },
            Err(BodyError::UnknownType(_)) => Self::UnknownType,
            Err(BodyError::Mismatch(Mismatch { rule, path, offset, expected })) => {
                Self::Mismatch { rule, path, offset, expected }
            }
        }
    }
}

fn unknown_type(typ: u64) -> String {
    format!("1005: unknown message type {typ:02X}")
}

/// A message type by its name or its hexadecimal number, spoken or not.
pub(super) fn message_type(text: &str) -> Option<u64> {
    let named = Type::ALL.iter().find(|typ| typ.name().eq_ignore_ascii_case(text));
    let digits = text.strip_prefix("0x").unwrap_or(text);
    named.map(|typ| typ.code()).or_else(|| u64::from_str_radix(digits, 16).ok())
}

/// A message type's name, as PROTOCOL 7 spells it.
pub(super) fn message_name(typ: u64) -> Option<&'static str> {
    Type::from_code(typ).map(Type::name)
}
