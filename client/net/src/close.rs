//! Explains why a link closes: an error of any stage in; what the peer is told and what the daemon is told, out.

use capd_proto::code::Code;
use capd_proto::envelope::EnvelopeError;
use capd_proto::frame::{ErrorFrame, FrameError, PayloadError};
use capd_proto::message::BodyError;

/// A violation of the protocol that ends the link, as reported to the peer in an ERROR frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Fault {
    /// The wire code.
    pub code: Code,
    /// The reason, without secrets.
    pub message: String,
}

impl Fault {
    /// A 1001 with this reason.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::INVALID_MESSAGE, message: message.into() }
    }

    /// A 1001 for a frame that has begun and does not end.
    pub(super) fn too_slow() -> Self {
        Self::invalid("a frame did not end in time")
    }

    /// A 5004 for a peer that opens streams only to reset them, or to leave them empty.
    pub(super) fn too_many_streams() -> Self {
        let message = "too many streams were reset, or brought no message".to_owned();
        Self { code: Code::OVERLOADED, message }
    }

    /// A 5004 for a local connection that finds no place.
    pub(super) fn crowded(what: &str) -> Self {
        Self { code: Code::OVERLOADED, message: format!("capd is running, and {what}") }
    }

    /// What an ERROR frame says.
    pub(super) fn reported(error: &ErrorFrame<'_>) -> Self {
        Self {
            code: Code(u32::try_from(error.code).unwrap_or(u32::MAX)),
            message: error.message.clone().into_owned(),
        }
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<PayloadError> for Fault {
    fn from(error: PayloadError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<BodyError> for Fault {
    fn from(error: BodyError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<EnvelopeError> for Fault {
    fn from(error: EnvelopeError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

/// Why a link closed, or never opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Drained: nothing was in flight any more.
    #[error("drained")]
    Drained,
    /// The time for draining ran out with calls in flight.
    #[error("calls were still in flight when the time for draining ran out")]
    DrainTimedOut,
    /// This side ended it.
    #[error("closed here: {0}")]
    Local(String),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Fault(Fault),
    /// The peer sent an ERROR frame.
    #[error("the peer reported {0}")]
    PeerFault(Fault),
    /// This side refused the peer.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer refused this side.
    #[error("refused by the peer: {0}")]
    RefusedByPeer(String),
    /// Handshake and HELLO did not finish in time.
    #[error("handshake and HELLO did not finish in time")]
    OpenTimedOut,
    /// Nothing was heard of the peer for the idle timeout.
    #[error("the peer fell silent")]
    Silent,
    /// Something waited for the peer, and it answered no PING in time.
    #[error("the peer did not answer a PING in time")]
    Dead,
    /// The peer ended the connection in an orderly way.
    #[error("the peer closed the link")]
    PeerClosed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl CloseReason {
    /// A peer gave up because it expects somebody else at this address.
    pub(super) fn other_wanted() -> Self {
        Self::RefusedByPeer("it expects another identity at this address".to_owned())
    }

    /// Whether this side ends the link, so that the peer is there to take the last frames.
    pub(super) const fn is_ours(&self) -> bool {
        match self {
            Self::Drained
            | Self::DrainTimedOut
            | Self::Local(_)
            | Self::Fault(_)
            | Self::Refused(_)
            | Self::OpenTimedOut => true,
            Self::PeerFault(_)
            | Self::RefusedByPeer(_)
            | Self::Silent
            | Self::Dead
            | Self::PeerClosed
            | Self::Broken(_) => false,
        }
    }
}

impl From<Fault> for CloseReason {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
