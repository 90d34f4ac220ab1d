//! Decodes frame payloads into checked envelopes, and seals drafts into envelopes (PROTOCOL 5).
//!
//! [`Envelope::decode`] checks every byte once and borrows from the payload. The checks that need more than the bytes
//! follow, in this order: [`check_time`](Envelope::check_time), [`check_recipient`](Envelope::check_recipient),
//! [`open`](Envelope::open) if the body is encrypted, [`verify`](Envelope::verify). The message layer decides whether
//! it supports `typ`. [`Draft::seal`] is the reverse.

mod decode;
mod encoded;
mod error;
mod held;
mod id;
mod keys;
mod recipients;
mod seal;
mod signature;
mod usual;

use std::borrow::Cow;

use crate::cbor::{self, Checked, Checker, Reader, Span, TagPolicy};
use crate::identity::{Authcrypt, Did};
use crate::limits::{FUTURE_SKEW_MS_MAX, ID_TS_SKEW_MS_MAX, NONCE_BYTES, SIGNATURE_BYTES, TTL_MS_MAX};

pub use encoded::Encoded;
pub use error::{EnvelopeError, EnvelopeErrorKind};
pub use held::Held;
pub use id::{InvalidMessageId, MessageId};
pub use recipients::Recipients;
pub use seal::{Draft, Ext};

/// One received message, borrowed from its bytes.
///
/// **Shape:** a CBOR map with text keys; unknown ones are ignored. **Source:** PROTOCOL 5, AMP 001 §4.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<'a> {
    /// The message's id.
    pub id: MessageId,
    /// The number of the type, supported or not.
    pub typ: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub ts: u64,
    /// How long it is valid after `ts`, in milliseconds.
    pub ttl: u64,
    /// The sender's DID or DID URL.
    pub from: Cow<'a, str>,
    /// The recipients.
    pub to: Recipients<'a>,
    /// The id of the message that this one answers, as received; see [`reply_id`](Self::reply_id).
    pub reply_to: Option<Cow<'a, [u8]>>,
    /// The conversation; opaque.
    pub thread_id: Option<Cow<'a, [u8]>>,
    /// The signature, or `None` where `sig` is empty: on a local link, or under `channel-auth`.
    pub sig: Option<[u8; SIGNATURE_BYTES]>,
    /// The body, plain or encrypted.
    pub payload: Payload<'a>,
    /// The raw map of untrusted extension fields: never for a decision.
    pub ext: Option<&'a [u8]>,
    signed: SignedForm,
    /// The longest payload in the body.
    walked: Span,
}

/// The content of an envelope: a body, or an encrypted body.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload<'a> {
    /// One checked CBOR item, raw.
    Body(&'a [u8]),
    /// An encrypted body.
    Enc(Encrypted<'a>),
}

/// A body sealed between the sender's and the recipient's X25519 keys.
///
/// **Shape:** `{"alg": "X25519-XSalsa20-Poly1305", "mode": "authcrypt", "nonce": bstr .size 24, "ciphertext": bstr}`;
/// `alg` and `mode` have no other value. **Source:** PROTOCOL 5, AMP 001 §8.5.2.
#[derive(Clone, Debug, PartialEq)]
pub struct Encrypted<'a> {
    /// The nonce.
    pub nonce: [u8; NONCE_BYTES],
    /// Sixteen bytes of tag, then the ciphertext.
    pub ciphertext: Cow<'a, [u8]>,
}

/// Which bytes of the body the signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignedForm {
    /// Its deterministic encoding, whatever encoding was received. **Source:** PROTOCOL 5.
    Deterministic,
    /// The sealed bytes, unchanged. **Source:** AMP 001 §8.6.
    AsSealed,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope: the CBOR rules, the fields and their types.
    ///
    /// **Errors:** 1001 with the byte offset, 1002 for a `sig` of another length, 1004 for another `v`; each with the
    /// message's id if it can be read at all.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        match usual::read(bytes) {
            Some(envelope) => Ok(envelope),
            None => decode::decode(bytes),
        }
    }

    /// The body, unless it is encrypted.
    pub fn body(&self) -> Option<&'a [u8]> {
        match &self.payload {
            Payload::Body(body) => Some(body),
            Payload::Enc(_) => None,
        }
    }

    /// The body for decoders of messages, unless it is encrypted.
    pub fn checked_body(&self) -> Option<Checked<'a>> {
        self.body().map(|body| Checked::new(body, self.walked))
    }

    /// The id of the message that this one answers. A `reply_to` that is not as long as an id is signed, but answers
    /// nothing.
    pub fn reply_id(&self) -> Option<MessageId> {
        self.reply_to.as_deref().and_then(MessageId::from_slice)
    }

    /// Checks that the message is valid at `now_ms` and that its id contains `ts`.
    ///
    /// **Units:** milliseconds since the Unix epoch. **Errors:** 1003 INVALID_TIMESTAMP. **Source:** PROTOCOL 5.
    pub fn check_time(&self, now_ms: u64) -> Result<(), EnvelopeError> {
        let kind = if self.ttl > TTL_MS_MAX {
            EnvelopeErrorKind::TtlTooLong
        } else if self.id.ts_ms().abs_diff(self.ts) > ID_TS_SKEW_MS_MAX {
            EnvelopeErrorKind::IdTime
        } else if self.ts > now_ms.saturating_add(FUTURE_SKEW_MS_MAX) {
            EnvelopeErrorKind::Future
        } else if now_ms > self.ts.saturating_add(self.ttl) {
            // PROTOCOL 5: a ttl of 0 means now or never.
            EnvelopeErrorKind::Expired
        } else {
            return Ok(());
        };
        Err(self.error(kind))
    }

    /// Checks that the message is for `ours`.
    ///
    /// **Errors:** 2001 RECIPIENT_NOT_FOUND. **Source:** PROTOCOL 5, 7.
    pub fn check_recipient(&self, ours: &Did) -> Result<(), EnvelopeError> {
        if self.to.names(ours) { Ok(()) } else { Err(self.error(EnvelopeErrorKind::Recipient)) }
    }

    /// Appends the decrypted body to `plaintext`; [`with_body`](Self::with_body) then uses it.
    ///
    /// **Errors:** 3001 with no detail; 1001 if nothing is encrypted.
    pub fn open(&self, shared: &Authcrypt, plaintext: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        match &self.payload {
            Payload::Body(_) => Err(self.error(EnvelopeErrorKind::Missing("enc"))),
            Payload::Enc(encrypted) => shared
                .open(&encrypted.nonce, &encrypted.ciphertext, plaintext)
                .map_err(|_| self.error(EnvelopeErrorKind::Decryption)),
        }
    }

    /// The same envelope with a decrypted body in place of the encrypted one, checked as a received body is.
    ///
    /// **Errors:** 1001 with the offset in `plaintext`.
    pub fn with_body<'b>(self, plaintext: &'b [u8]) -> Result<Envelope<'b>, EnvelopeError>
    where
        'a: 'b,
    {
        let mut checker = Checker::new(plaintext, TagPolicy::UnderPayloadKeys);
        let checked = checker.item(0, BODY_DEPTH).and_then(|end| match end == plaintext.len() {
            true => Ok(()),
            false => Err(cbor::Error { offset: end, kind: cbor::ErrorKind::TrailingBytes }),
        });
        match checked {
            Ok(()) => {
                let (payload, walked) = (Payload::Body(plaintext), checker.payload());
                Ok(Envelope { payload, signed: SignedForm::AsSealed, walked, ..self })
            }
            Err(error) => Err(EnvelopeError::cbor(error, Some(self.id))),
        }
    }

    /// The text of an extension field. It is untrusted: never for a decision.
    pub fn ext_text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.ext_value(key)?.text().ok()
    }

    /// The flag of an extension field. It is untrusted: never for a decision.
    pub fn ext_bool(&self, key: &str) -> Option<bool> {
        self.ext_value(key)?.bool().ok()
    }

    /// The bytes of an extension field. They are untrusted: never for a decision.
    pub fn ext_bytes(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        self.ext_value(key)?.bytes().ok()
    }

    /// Whether there is an extension field of this name, whatever its value is.
    pub fn ext_has(&self, key: &str) -> bool {
        self.ext_value(key).is_some()
    }

    /// A reader at the value of an extension field.
    fn ext_value(&self, key: &str) -> Option<Reader<'a>> {
        let mut reader = Reader::new(self.ext?);
        let mut left = reader.map().ok()?;
        while reader.has_next(&mut left) {
            if reader.text().ok()? == key {
                return Some(reader);
            }
            reader.skip().ok()?;
        }
        None
    }

    const fn error(&self, kind: EnvelopeErrorKind) -> EnvelopeError {
        EnvelopeError { kind, offset: None, id: Some(self.id) }
    }
}

/// Containers around a body: the envelope's map.
const BODY_DEPTH: usize = 1;
/// The one `alg` of [`Encrypted`].
const ENC_ALG: &str = "X25519-XSalsa20-Poly1305";
/// The one `mode` of [`Encrypted`].
const ENC_MODE: &str = "authcrypt";

#[cfg(test)]
mod tests;
