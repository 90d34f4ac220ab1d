//! Explains why an envelope is refused, at which byte, and to whom the ERROR goes.

use std::fmt;

use thiserror::Error;

use super::id::MessageId;
use crate::cbor;
use crate::code::Code;
use crate::limits::{SIGNATURE_BYTES, TTL_MS_MAX};

/// A refused envelope.
///
/// **Errors:** [`code`](Self::code) is the code of the ERROR, and `id` its `reply_to`. **Source:** PROTOCOL 5, 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeError {
    /// What is wrong.
    pub kind: EnvelopeErrorKind,
    /// Where the offending item starts, in bytes, if one item is at fault.
    pub offset: Option<usize>,
    /// The message's id, whenever it could be read.
    pub id: Option<MessageId>,
}

/// The ways in which an envelope is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeErrorKind {
    /// Bytes that are not CBOR we accept.
    #[error(transparent)]
    Cbor(cbor::ErrorKind),
    /// A required field that is missing.
    #[error("missing field {0:?}")]
    Missing(&'static str),
    /// A field of another type or value.
    #[error("field {name:?} must be {expected}")]
    Field {
        /// The field's key.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Both `body` and `enc`.
    #[error("\"body\" and \"enc\" exclude each other")]
    BodyAndEnc,
    /// An unsupported `v`.
    #[error("unsupported protocol version {0}")]
    Version(u64),
    /// A `ttl` over thirty days.
    #[error("ttl is over {TTL_MS_MAX} ms")]
    TtlTooLong,
    /// An id whose time is not `ts`.
    #[error("the id's time is not ts")]
    IdTime,
    /// A `ts` too far ahead of this clock.
    #[error("ts is in the future")]
    Future,
    /// A message past its `ttl`.
    #[error("expired")]
    Expired,
    /// A `to` that does not name us.
    #[error("not addressed to this agent")]
    Recipient,
    /// A `sig` that is neither empty nor a signature's length.
    #[error("signature must have {SIGNATURE_BYTES} bytes, or none")]
    SignatureLength,
    /// A missing signature.
    #[error("not signed")]
    Unsigned,
    /// An invalid signature.
    #[error("signature does not fit")]
    Signature,
    /// No key known for `from`.
    #[error("not authorized")]
    NoKey,
    /// An encrypted body that cannot be opened; reported like any other 3001.
    #[error("not authorized")]
    Decryption,
}

impl EnvelopeErrorKind {
    /// The wire code.
    pub const fn code(self) -> Code {
        match self {
            Self::Cbor(_) | Self::Missing(_) | Self::Field { .. } | Self::BodyAndEnc => Code::INVALID_MESSAGE,
            Self::Version(_) => Code::UNSUPPORTED_VERSION,
            Self::TtlTooLong | Self::IdTime | Self::Future | Self::Expired => Code::INVALID_TIMESTAMP,
            Self::Recipient => Code::RECIPIENT_NOT_FOUND,
            Self::SignatureLength | Self::Unsigned | Self::Signature => Code::INVALID_SIGNATURE,
            Self::NoKey | Self::Decryption => Code::UNAUTHORIZED,
        }
    }
}

impl EnvelopeError {
    /// The wire code of the ERROR to send.
    pub const fn code(&self) -> Code {
        self.kind.code()
    }

    pub(super) const fn cbor(error: cbor::Error, id: Option<MessageId>) -> Self {
        Self { kind: EnvelopeErrorKind::Cbor(error.kind), offset: Some(error.offset), id }
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} at byte {offset}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl std::error::Error for EnvelopeError {}
