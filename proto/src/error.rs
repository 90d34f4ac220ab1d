//! Maps errors of all stages to their wire code and to what they end: the only such map, and an exhaustive one.

use thiserror::Error;

use crate::capability;
use crate::cbor;
use crate::cddl::Mismatch;
use crate::code::Code;
use crate::envelope::EnvelopeError;
use crate::frame::{FrameError, PayloadError};
use crate::message::{BodyError, CursorError, DocumentError, NewerMajor};
use crate::negotiate::{NoMatch, PinError, SessionsFull};

/// An error in a peer's bytes, at any stage.
///
/// **Errors:** [`code`](Self::code) is the code to answer with, [`scope`](Self::scope) what the error ends.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Stage 1: the bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Stage 1: a frame's own payload (HANDSHAKE, GOAWAY, ERROR) is misshapen.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// Stage 2: the bytes are not CBOR that we accept.
    #[error(transparent)]
    Cbor(#[from] cbor::Error),
    /// Stage 2: the envelope is refused.
    #[error("{}{}", .0.kind, at(.0.offset))]
    Envelope(EnvelopeError),
    /// Stage 3: the body does not match its CDDL rule.
    #[error(transparent)]
    Shape(Box<Mismatch>),
    /// Stage 3: the body is misshapen, or contradicts itself.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A text is not a name, version or range.
    #[error(transparent)]
    Text(#[from] capability::Error),
    /// A cursor does not belong to this query, or is stale.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// Descriptors of an unsupported format.
    #[error(transparent)]
    Format(#[from] NewerMajor),
    /// A document is not the requested one.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// No served version fits.
    #[error(transparent)]
    NoMatch(#[from] NoMatch),
    /// A call does not match its session.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// No capacity for another session.
    #[error(transparent)]
    SessionsFull(#[from] SessionsFull),
}

/// What an error ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The link: the following bytes may not be framed correctly.
    Link,
    /// The message alone; the link stays open.
    Message,
    /// The request alone: it is valid, but cannot be fulfilled.
    Request,
}

impl Error {
    /// The wire code to answer with. **Source:** PROTOCOL 9.
    pub const fn code(&self) -> Code {
        match self {
            Self::Frame(error) => error.code(),
            Self::Payload(error) => error.code(),
            Self::Cbor(_) | Self::Shape(_) => Code::INVALID_MESSAGE,
            Self::Envelope(error) => error.code(),
            Self::Body(error) => error.code(),
            Self::Text(error) => error.code(),
            Self::Cursor(_) => Code::BAD_REQUEST,
            Self::Format(error) => error.code(),
            Self::Document(error) => error.code(),
            Self::NoMatch(error) => error.code(),
            Self::Pin(error) => error.code(),
            Self::SessionsFull(error) => error.code(),
        }
    }

    /// What the error ends. **Source:** PROTOCOL 3, 5, 7.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Frame(_) | Self::Payload(_) => Scope::Link,
            Self::Cbor(_) | Self::Envelope(_) | Self::Shape(_) | Self::Body(_) => Scope::Message,
            Self::Text(_)
            | Self::Cursor(_)
            | Self::Format(_)
            | Self::Document(_)
            | Self::NoMatch(_)
            | Self::Pin(_)
            | Self::SessionsFull(_) => Scope::Request,
        }
    }
}

impl From<EnvelopeError> for Error {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        Self::Shape(Box::new(mismatch))
    }
}

fn at(offset: Option<usize>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;
    use crate::message::{Invoke, Query};

    #[test]
    fn each_stage_answers_with_its_own_code() {
        let envelope = Error::from(Envelope::decode(&[0xa1, 0x61]).unwrap_err());
        assert_eq!((envelope.code(), envelope.scope()), (Code::INVALID_MESSAGE, Scope::Message));
        assert!(envelope.to_string().contains("at byte"), "{envelope}");
        let shape = Error::from(Invoke::decode(&[0xa0]).unwrap_err());
        assert_eq!((shape.code(), shape.scope()), (Code::INVALID_MESSAGE, Scope::Message));
        let no_filter = Query { version: Some("1.0".into()), ..Query::default() }.question().unwrap_err();
        assert_eq!(Error::from(no_filter).code(), Code::BAD_REQUEST);
        let frame = Error::from(FrameError::UnknownType(9));
        assert_eq!((frame.code(), frame.scope()), (Code::INVALID_MESSAGE, Scope::Link));
        assert_eq!(Error::from("no".parse::<capability::Range>().unwrap_err()).code(), Code::BAD_REQUEST);
    }
}
