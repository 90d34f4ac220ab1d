//! Runs one link: decoded frames, the daemon's requests and the time in; frames, events and a deadline out (PROTOCOL
//! 4).
//!
//! One [`Link`] is one connection, in one of two [`Role`]s. It encodes nothing and knows no socket. The driver decodes
//! a frame, reports it ([`Link::handle`]), and does what [`Link::poll_output`] says until that yields nothing.
//! [`Link::poll_timeout`] says when to return with [`Input::Timeout`]. Nothing follows [`Output::Close`].

mod life;
mod state;
mod step;

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;

use crate::code::Code;
use crate::frame::{ErrorFrame, Goaway, HandshakeRequest, HandshakeResponse};
use crate::limits::{
    AMP_VERSIONS, DRAIN_TIMEOUT_MS_DEFAULT, HANDSHAKE_TIMEOUT_MS_DEFAULT, MSG_SIZE_BYTES_DEFAULT,
    MSG_SIZE_BYTES_FLOOR, PROOF_BYTES,
};

use state::State;
use step::Step;

/// Which side of the link this is. **Source:** PROTOCOL 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connected; it speaks first.
    Client,
    /// The side that was connected to.
    Server,
}

/// The settings of this side of a link.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest frame length that this side accepts; raised to [`MSG_SIZE_BYTES_FLOOR`]. **Units:** bytes.
    pub max_msg_size: u32,
    /// The DID that HANDSHAKE names, on links whose transport does not prove one.
    pub did: Option<String>,
    /// A client's nonce, if both sides must prove that they know a token: the link then opens in no other way.
    pub nonce: Option<[u8; PROOF_BYTES]>,
    /// The extensions of this side, preferred first.
    pub extensions: Vec<String>,
    /// The AMP versions of this side, preferred first.
    pub versions: Vec<String>,
    /// Time for HANDSHAKE and HELLO together. **Units:** milliseconds.
    pub handshake_timeout_ms: u64,
    /// Time for calls in flight to end once either side said GOAWAY. **Units:** milliseconds.
    pub drain_timeout_ms: u64,
    /// Silence after which the peer counts as gone, or `None` for never. **Units:** milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// Silence after which a PING is sent, or `None` for never. **Units:** milliseconds.
    pub keep_alive_ms: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_msg_size: MSG_SIZE_BYTES_DEFAULT,
            did: None,
            nonce: None,
            extensions: Vec::new(),
            versions: AMP_VERSIONS.iter().map(|&version| version.to_owned()).collect(),
            handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS_DEFAULT,
            drain_timeout_ms: DRAIN_TIMEOUT_MS_DEFAULT,
            idle_timeout_ms: None,
            keep_alive_ms: None,
        }
    }
}

/// What happened to the link.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The client's HANDSHAKE arrived.
    HandshakeRequest {
        /// The frame's payload.
        request: HandshakeRequest<'a>,
        /// The driver's verdict on the client.
        admitted: Result<(), NotAdmitted>,
    },
    /// The client's HANDSHAKE arrived, with a nonce for which the driver proved the token.
    Challenge {
        /// The frame's payload.
        request: HandshakeRequest<'a>,
        /// The nonce for the client's proof.
        nonce: [u8; PROOF_BYTES],
        /// The server's own proof, for the client's nonce.
        proof: [u8; PROOF_BYTES],
    },
    /// The server's HANDSHAKE arrived.
    HandshakeResponse(HandshakeResponse<'a>),
    /// The server's HANDSHAKE arrived, with its proof and a nonce.
    Challenged {
        /// The client's own proof, for the server's nonce; `None` if the server's proof is wrong.
        proof: Option<[u8; PROOF_BYTES]>,
    },
    /// HELLO arrived, in an envelope that the driver verified.
    Hello {
        /// The client's versions, preferred first.
        versions: Vec<Cow<'a, str>>,
    },
    /// HELLO_ACK arrived, in an envelope that the driver verified.
    HelloAck {
        /// The version that the server chose.
        selected: Cow<'a, str>,
    },
    /// HELLO or HELLO_ACK arrived of a peer that may not have a link, for a reason that both owners are told.
    HelloRefused(&'static str),
    /// HELLO_REJECT arrived, in an envelope that the driver verified.
    HelloReject {
        /// Why, if the server said so.
        reason: Option<Cow<'a, str>>,
    },
    /// Any other AMP message arrived; [`Output::Deliver`] says whether it may go up.
    Message,
    /// PING arrived.
    Ping(Bytes),
    /// PONG arrived.
    Pong(Bytes),
    /// GOAWAY arrived.
    Goaway(Goaway<'a>),
    /// An ERROR frame arrived.
    ErrorFrame(ErrorFrame<'a>),
    /// A frame or its payload is not of the protocol's shape.
    Malformed {
        /// The code of the ERROR to send.
        code: Code,
        /// What is wrong, at which byte.
        message: String,
    },
    /// Other bytes arrived, so the peer is alive.
    Heard,
    /// This side wants to end the link.
    Drain {
        /// The GOAWAY's reason: a wire code, or 0 for an ordinary end.
        reason: u64,
    },
    /// The number of calls in flight on this link, in both directions, changed.
    InFlight(usize),
    /// The transport is gone.
    TransportClosed,
    /// The time that [`Link::poll_timeout`] named may have come.
    Timeout,
}

/// Why a server refuses a client. **Source:** PROTOCOL 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotAdmitted {
    /// Its owner does not list the client. The client learns no more than that.
    NotListed,
    /// HANDSHAKE names another DID than that of the TLS key, or of the agent on a local link.
    OtherDid,
    /// The token is wrong.
    Token,
    /// The client has opened as many links as it may.
    TooManyLinks,
}

impl NotAdmitted {
    /// The text of HANDSHAKE's `error`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotListed => "not listed",
            Self::OtherDid => "did is not the link's own",
            Self::Token => "the token does not fit",
            Self::TooManyLinks => "too many links",
        }
    }
}

/// An action for the driver, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send HANDSHAKE as the client.
    SendHandshakeRequest(HandshakeRequest<'static>),
    /// Send HANDSHAKE as the server.
    SendHandshakeResponse(HandshakeResponse<'static>),
    /// Send HELLO with these versions.
    SendHello {
        /// Our versions, preferred first.
        versions: Vec<String>,
    },
    /// Send HELLO_ACK in answer to the HELLO just handled.
    SendHelloAck {
        /// The version chosen.
        selected: String,
    },
    /// Send HELLO_REJECT in answer to the HELLO just handled.
    SendHelloReject {
        /// Why.
        reason: String,
    },
    /// Send an ERROR frame.
    SendError {
        /// Its code.
        code: Code,
        /// Its text, without secrets.
        message: String,
    },
    /// Send PING.
    SendPing(Bytes),
    /// Send PONG.
    SendPong(Bytes),
    /// Send GOAWAY.
    SendGoaway {
        /// Its reason: a wire code, or 0 for an ordinary end.
        reason: u64,
    },
    /// The link is open: messages may be sent.
    Opened(Terms),
    /// Either side said GOAWAY: begin no work on this link; what is in flight may finish.
    Draining {
        /// Whether it was the peer.
        by_peer: bool,
    },
    /// The message just handled may be delivered.
    Deliver {
        /// Whether it may begin work, or only belong to a call in flight.
        new_work_allowed: bool,
    },
    /// The peer reports an error below the messages; the link stays open.
    PeerError {
        /// The code that it names.
        code: u64,
    },
    /// Send what is queued, then close the transport; nothing comes after.
    Close(CloseReason),
}

/// The terms that both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The AMP version.
    pub version: String,
    /// The extensions that both sides have, in this side's order.
    pub extensions: Vec<String>,
    /// The effective maximum of a frame's length: the smaller of both sides'. **Units:** bytes.
    pub max_msg_size: u32,
}

/// Why a link closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// It drained: nothing is left in flight.
    #[error("drained")]
    Drained,
    /// It was draining, and calls in flight did not end in time.
    #[error("drain timeout: {in_flight} calls still in flight")]
    DrainTimeout {
        /// How many.
        in_flight: usize,
    },
    /// HANDSHAKE and HELLO did not finish in time.
    #[error("handshake timeout")]
    HandshakeTimeout,
    /// Nothing was heard from the peer for too long.
    #[error("idle timeout")]
    IdleTimeout,
    /// We refused the peer's HANDSHAKE or HELLO.
    #[error("refused the peer: {0}")]
    Refused(&'static str),
    /// The peer refused our HANDSHAKE or HELLO.
    #[error("refused by the peer: {0}")]
    RefusedByPeer(String),
    /// The peer broke the protocol.
    #[error("{code}: {message}")]
    Violation {
        /// The code of the ERROR that was sent.
        code: Code,
        /// What the peer did.
        message: String,
    },
    /// The peer said GOAWAY before the link was open.
    #[error("the peer said GOAWAY, reason {0}")]
    PeerGoaway(u64),
    /// The peer sent an ERROR frame before the link was open.
    #[error("the peer sent ERROR {0}")]
    PeerError(u64),
    /// The transport went away.
    #[error("transport closed")]
    TransportClosed,
}

/// One link's machine.
#[derive(Debug)]
pub struct Link {
    config: Config,
    role: Role,
    /// `None` only inside [`Link::handle`], while the state is consumed.
    state: Option<State>,
    /// Never goes back, whatever the driver's clock does.
    now_ms: u64,
    outputs: VecDeque<Output>,
}

impl Link {
    /// A link that this side opened; the HANDSHAKE to send is the first output.
    pub fn client(config: Config, now_ms: u64) -> Self {
        let mut link = Self::in_role(Role::Client, config, now_ms);
        let mut step = Step { config: &link.config, now_ms, out: &mut link.outputs };
        link.state = Some(State::start_client(&mut step));
        link
    }

    /// A link that the other side opened.
    pub fn server(config: Config, now_ms: u64) -> Self {
        let mut link = Self::in_role(Role::Server, config, now_ms);
        let mut step = Step { config: &link.config, now_ms, out: &mut link.outputs };
        link.state = Some(State::start_server(&mut step));
        link
    }

    fn in_role(role: Role, config: Config, now_ms: u64) -> Self {
        // PROTOCOL 3: the maximum is never settable under 1 MiB.
        let config = Config { max_msg_size: config.max_msg_size.max(MSG_SIZE_BYTES_FLOOR), ..config };
        Self { config, role, state: None, now_ms, outputs: VecDeque::new() }
    }

    /// Handles an event. A time before the last one counts as the last one. **Units:** milliseconds.
    pub fn handle(&mut self, input: Input<'_>, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let mut step = Step { config: &self.config, now_ms: self.now_ms, out: &mut self.outputs };
        self.state = self.state.take().map(|state| state.handle(input, &mut step));
    }

    /// What to do next, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if output.is_none() && self.outputs.capacity() > 0 {
            // Most links are idle most of the time, and outputs are rare on an open one.
            self.outputs = VecDeque::new();
        }
        output
    }

    /// When to come back with [`Input::Timeout`]. **Units:** milliseconds, on the clock of [`Link::handle`].
    pub fn poll_timeout(&self) -> Option<u64> {
        self.state.as_ref().and_then(|state| state.deadline_ms(&self.config))
    }

    /// Which side this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether work may begin on this link: it is open, and neither side said GOAWAY.
    pub fn is_open(&self) -> bool {
        self.state.as_ref().is_some_and(State::is_open)
    }

    /// Whether the link is closed.
    pub fn is_closed(&self) -> bool {
        self.state.as_ref().is_none_or(State::is_closed)
    }

    /// The state's name in PROTOCOL 4, for logs.
    pub fn state_name(&self) -> &'static str {
        self.state.as_ref().map_or("Closed", State::name)
    }
}

#[cfg(test)]
mod tests;
