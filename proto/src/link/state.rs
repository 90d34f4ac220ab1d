//! One state and one input in, the next state and outputs out: every transition of a link stands here.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::code::Code;
use crate::frame::{HandshakeRequest, HandshakeResponse};
use crate::limits::{MSG_SIZE_BYTES_FLOOR, PING_BYTES_MAX, PROTOCOL_VERSION};

use super::{CloseReason, Config, Input, Output, Terms};

/// Where a link stands. The states in parentheses are passed through within one step and never rest: their answer
/// depends on nothing but the input at hand.
///
/// ```text
///            client                                  server
///
///             Idle (the constructor)                  Idle
///              │ HANDSHAKE ▸                            │ ▸ HANDSHAKE
///        HandshakeSent                          (HandshakeReceived)
///              │ ▸ HANDSHAKE accepted                   │ HANDSHAKE accepted ▸
///         (Handshaken)                              Handshaken
///              │ HELLO ▸                                │ ▸ HELLO
///          HelloSent                             (HelloReceived)
///              │ ▸ HELLO_ACK                            │ HELLO_ACK ▸
///              └───────────────────► Open ◄─────────────┘
///                                     │ GOAWAY ▸, or ▸ GOAWAY
///                                  Draining
///                                     │ GOAWAY was ours and nothing is in flight,
///                                     │ or the drain timeout
///   any state ── refusal, violation, ─► Closed (absorbing)
///                silence, transport gone
/// ```
///
/// **Source:** PROTOCOL 4.
#[derive(Debug)]
pub(super) enum State {
    /// Server: waits for the client's HANDSHAKE.
    Idle { deadline_ms: u64 },
    /// Client: waits for the server's HANDSHAKE.
    HandshakeSent { deadline_ms: u64 },
    /// Server: waits for HELLO.
    Handshaken { deadline_ms: u64, agreed: Agreed },
    /// Client: waits for HELLO_ACK or HELLO_REJECT.
    HelloSent { deadline_ms: u64, agreed: Agreed },
    /// Messages flow.
    Open { life: Life, in_flight: usize },
    /// One side said GOAWAY; what is in flight may finish.
    Draining { life: Life, in_flight: usize, deadline_ms: u64, said_goaway: bool },
    /// The end.
    Closed,
}

/// What HANDSHAKE settled, for [`Terms`].
#[derive(Debug)]
pub(super) struct Agreed {
    extensions: Vec<String>,
    max_msg_size: u32,
}

/// When the peer was last heard, and when it was last asked for a sign of life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    heard_ms: u64,
    pinged_ms: u64,
    pings: u64,
}

/// What a transition reads and writes besides the state.
pub(super) struct Step<'a> {
    pub(super) config: &'a Config,
    pub(super) now_ms: u64,
    pub(super) out: &'a mut VecDeque<Output>,
}

impl State {
    pub(super) fn start_client(step: &mut Step<'_>) -> Self {
        let config = step.config;
        step.send(Output::SendHandshakeRequest(HandshakeRequest {
            version: PROTOCOL_VERSION,
            max_msg_size: u64::from(config.max_msg_size),
            did: config.did.clone().map(Into::into),
            token: config.token.as_ref().map(|token| token.0.clone().into()),
            extensions: Some(config.extensions.iter().cloned().map(Into::into).collect()),
        }));
        Self::HandshakeSent { deadline_ms: step.after(config.handshake_timeout_ms) }
    }

    pub(super) fn start_server(step: &mut Step<'_>) -> Self {
        Self::Idle { deadline_ms: step.after(step.config.handshake_timeout_ms) }
    }

    pub(super) fn handle(self, input: Input<'_>, step: &mut Step<'_>) -> Self {
        match self {
            Self::Idle { deadline_ms } => idle(deadline_ms, input, step),
            Self::HandshakeSent { deadline_ms } => handshake_sent(deadline_ms, input, step),
            Self::Handshaken { deadline_ms, agreed } => handshaken(deadline_ms, agreed, input, step),
            Self::HelloSent { deadline_ms, agreed } => hello_sent(deadline_ms, agreed, input, step),
            Self::Open { life, in_flight } => open(life, in_flight, input, step),
            Self::Draining { life, in_flight, deadline_ms, said_goaway } => {
                let drain = Drain { deadline_ms, said_goaway };
                draining(life, in_flight, drain, input, step)
            }
            Self::Closed => Self::Closed,
        }
    }

    pub(super) fn deadline_ms(&self, config: &Config) -> Option<u64> {
        match self {
            Self::Idle { deadline_ms }
            | Self::HandshakeSent { deadline_ms }
            | Self::Handshaken { deadline_ms, .. }
            | Self::HelloSent { deadline_ms, .. } => Some(*deadline_ms),
            Self::Open { life, .. } => life.deadline_ms(config),
            Self::Draining { life, deadline_ms, .. } => {
                Some(life.deadline_ms(config).map_or(*deadline_ms, |life_ms| life_ms.min(*deadline_ms)))
            }
            Self::Closed => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Idle { .. } => "Idle",
            Self::HandshakeSent { .. } => "HandshakeSent",
            Self::Handshaken { .. } => "Handshaken",
            Self::HelloSent { .. } => "HelloSent",
            Self::Open { .. } => "Open",
            Self::Draining { .. } => "Draining",
            Self::Closed => "Closed",
        }
    }
}

fn idle(deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    let stay = State::Idle { deadline_ms };
    match input {
        Input::HandshakeRequest { request, admitted } => {
            step.answer_handshake(&request, admitted, deadline_ms)
        }
        Input::HandshakeResponse(_) => step.out_of_order("a HANDSHAKE answer from the client"),
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloReject { .. } | Input::Message => {
            step.not_open()
        }
        Input::Ping(payload) => step.pong(payload, stay),
        Input::Pong(_) | Input::Heard | Input::InFlight(_) => stay,
        Input::Goaway(goaway) => step.close(CloseReason::PeerGoaway(goaway.reason)),
        Input::ErrorFrame(error) => step.close(CloseReason::PeerError(error.code)),
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => step.leave(reason),
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout => step.opening_timeout(deadline_ms, stay),
    }
}

fn handshake_sent(deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    let stay = State::HandshakeSent { deadline_ms };
    match input {
        Input::HandshakeRequest { .. } => step.out_of_order("a HANDSHAKE request from the server"),
        Input::HandshakeResponse(response) => step.take_handshake(&response, deadline_ms),
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloReject { .. } | Input::Message => {
            step.not_open()
        }
        Input::Ping(payload) => step.pong(payload, stay),
        Input::Pong(_) | Input::Heard | Input::InFlight(_) => stay,
        Input::Goaway(goaway) => step.close(CloseReason::PeerGoaway(goaway.reason)),
        Input::ErrorFrame(error) => step.close(CloseReason::PeerError(error.code)),
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => step.leave(reason),
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout => step.opening_timeout(deadline_ms, stay),
    }
}

fn handshaken(deadline_ms: u64, agreed: Agreed, input: Input<'_>, step: &mut Step<'_>) -> State {
    match input {
        Input::HandshakeRequest { .. } | Input::HandshakeResponse(_) => {
            step.out_of_order("a second HANDSHAKE")
        }
        Input::Hello { versions } => {
            // PROTOCOL 4: the first of the client's versions that we support.
            let selected =
                versions.iter().find(|wanted| step.config.versions.iter().any(|ours| ours == *wanted));
            match selected {
                Some(selected) => {
                    step.send(Output::SendHelloAck { selected: selected.to_string() });
                    step.open(selected.to_string(), agreed)
                }
                None => {
                    step.send(Output::SendHelloReject { reason: NO_COMMON_VERSION.to_owned() });
                    step.close(CloseReason::Refused(NO_COMMON_VERSION))
                }
            }
        }
        Input::HelloAck { .. } | Input::HelloReject { .. } | Input::Message => step.not_open(),
        Input::Ping(payload) => step.pong(payload, State::Handshaken { deadline_ms, agreed }),
        Input::Pong(_) | Input::Heard | Input::InFlight(_) => State::Handshaken { deadline_ms, agreed },
        Input::Goaway(goaway) => step.close(CloseReason::PeerGoaway(goaway.reason)),
        Input::ErrorFrame(error) => step.close(CloseReason::PeerError(error.code)),
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => step.leave(reason),
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout => step.opening_timeout(deadline_ms, State::Handshaken { deadline_ms, agreed }),
    }
}

fn hello_sent(deadline_ms: u64, agreed: Agreed, input: Input<'_>, step: &mut Step<'_>) -> State {
    match input {
        Input::HandshakeRequest { .. } | Input::HandshakeResponse(_) => {
            step.out_of_order("a second HANDSHAKE")
        }
        Input::HelloAck { selected } => {
            if step.config.versions.iter().any(|ours| *ours == selected) {
                step.open(selected.into_owned(), agreed)
            } else {
                step.violation(
                    Code::UNSUPPORTED_VERSION,
                    "HELLO_ACK selects a version not offered".to_owned(),
                )
            }
        }
        Input::HelloReject { reason } => {
            let reason = reason.map_or_else(|| "HELLO_REJECT".to_owned(), |reason| reason.into_owned());
            step.close(CloseReason::RefusedByPeer(reason))
        }
        Input::Hello { .. } | Input::Message => step.not_open(),
        Input::Ping(payload) => step.pong(payload, State::HelloSent { deadline_ms, agreed }),
        Input::Pong(_) | Input::Heard | Input::InFlight(_) => State::HelloSent { deadline_ms, agreed },
        Input::Goaway(goaway) => step.close(CloseReason::PeerGoaway(goaway.reason)),
        Input::ErrorFrame(error) => step.close(CloseReason::PeerError(error.code)),
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => step.leave(reason),
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout => step.opening_timeout(deadline_ms, State::HelloSent { deadline_ms, agreed }),
    }
}

fn open(life: Life, in_flight: usize, input: Input<'_>, step: &mut Step<'_>) -> State {
    let stay = |life| State::Open { life, in_flight };
    let heard = life.heard(step.now_ms);
    match input {
        Input::HandshakeRequest { .. } | Input::HandshakeResponse(_) => {
            step.out_of_order("a second HANDSHAKE")
        }
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloReject { .. } => {
            step.out_of_order("HELLO on an open link")
        }
        Input::Message => {
            step.send(Output::Deliver { new_work_allowed: true });
            stay(heard)
        }
        Input::Ping(payload) => step.pong(payload, stay(heard)),
        Input::Pong(_) | Input::Heard => stay(heard),
        Input::Goaway(_) => {
            step.send(Output::Draining { by_peer: true });
            let deadline_ms = step.after(step.config.drain_timeout_ms);
            State::Draining { life: heard, in_flight, deadline_ms, said_goaway: false }
        }
        Input::ErrorFrame(error) => {
            step.send(Output::PeerError { code: error.code });
            stay(heard)
        }
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => {
            step.send(Output::SendGoaway { reason });
            step.send(Output::Draining { by_peer: false });
            let deadline_ms = step.after(step.config.drain_timeout_ms);
            step.drain(life, in_flight, Drain { deadline_ms, said_goaway: true })
        }
        Input::InFlight(in_flight) => State::Open { life, in_flight },
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout => match life.check(step) {
            Some(life) => stay(life),
            None => step.close(CloseReason::IdleTimeout),
        },
    }
}

/// The parts of a draining link that are not a link's in general.
#[derive(Clone, Copy)]
struct Drain {
    deadline_ms: u64,
    said_goaway: bool,
}

fn draining(life: Life, in_flight: usize, drain: Drain, input: Input<'_>, step: &mut Step<'_>) -> State {
    let Drain { deadline_ms, said_goaway } = drain;
    let stay = |life| State::Draining { life, in_flight, deadline_ms, said_goaway };
    let heard = life.heard(step.now_ms);
    match input {
        Input::HandshakeRequest { .. } | Input::HandshakeResponse(_) => {
            step.out_of_order("a second HANDSHAKE")
        }
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloReject { .. } => {
            step.out_of_order("HELLO on an open link")
        }
        Input::Message => {
            // PROTOCOL 4: no new work, but what is in flight finishes.
            step.send(Output::Deliver { new_work_allowed: false });
            stay(heard)
        }
        Input::Ping(payload) => step.pong(payload, stay(heard)),
        Input::Pong(_) | Input::Heard | Input::Goaway(_) => stay(heard),
        Input::ErrorFrame(error) => {
            step.send(Output::PeerError { code: error.code });
            stay(heard)
        }
        Input::Malformed { code, message } => step.violation(code, message),
        Input::Drain { reason } => {
            if !said_goaway {
                step.send(Output::SendGoaway { reason });
            }
            step.drain(life, in_flight, Drain { deadline_ms, said_goaway: true })
        }
        Input::InFlight(in_flight) => step.drain(life, in_flight, drain),
        Input::TransportClosed => step.close(CloseReason::TransportClosed),
        Input::Timeout if step.now_ms >= deadline_ms && in_flight > 0 => {
            step.close(CloseReason::DrainTimeout { in_flight })
        }
        Input::Timeout if step.now_ms >= deadline_ms => step.close(CloseReason::Drained),
        Input::Timeout => match life.check(step) {
            Some(life) => stay(life),
            None => step.close(CloseReason::IdleTimeout),
        },
    }
}

impl Step<'_> {
    fn send(&mut self, output: Output) {
        self.out.push_back(output);
    }

    fn after(&self, duration_ms: u64) -> u64 {
        self.now_ms.saturating_add(duration_ms)
    }

    fn close(&mut self, reason: CloseReason) -> State {
        self.send(Output::Close(reason));
        State::Closed
    }

    fn violation(&mut self, code: Code, message: String) -> State {
        self.send(Output::SendError { code, message: message.clone() });
        self.close(CloseReason::Violation { code, message })
    }

    /// A frame that has no place here. PROTOCOL names no code for it; we take 1001, as for any frame we cannot read.
    fn out_of_order(&mut self, what: &str) -> State {
        self.violation(Code::INVALID_MESSAGE, what.to_owned())
    }

    fn not_open(&mut self) -> State {
        // PROTOCOL 4: until the link is open any other message is ERROR 1004 and the link closes.
        self.violation(Code::UNSUPPORTED_VERSION, "the link is not open".to_owned())
    }

    fn pong(&mut self, payload: Bytes, stay: State) -> State {
        if payload.len() > PING_BYTES_MAX {
            return self
                .violation(Code::INVALID_MESSAGE, format!("PING payload above {PING_BYTES_MAX} bytes"));
        }
        self.send(Output::SendPong(payload));
        stay
    }

    /// Our side wants to end a link that never opened: nothing is in flight.
    fn leave(&mut self, reason: u64) -> State {
        self.send(Output::SendGoaway { reason });
        self.close(CloseReason::Drained)
    }

    fn opening_timeout(&mut self, deadline_ms: u64, stay: State) -> State {
        if self.now_ms >= deadline_ms { self.close(CloseReason::HandshakeTimeout) } else { stay }
    }

    fn answer_handshake(
        &mut self,
        request: &HandshakeRequest<'_>,
        admitted: bool,
        deadline_ms: u64,
    ) -> State {
        let refusal = if request.version != PROTOCOL_VERSION {
            Some("unsupported protocol version")
        } else if request.max_msg_size < u64::from(MSG_SIZE_BYTES_FLOOR) {
            Some(SIZE_UNDER_FLOOR)
        } else if !admitted {
            Some("not admitted")
        } else {
            None
        };
        let config = self.config;
        let response = HandshakeResponse {
            version: PROTOCOL_VERSION,
            max_msg_size: u64::from(config.max_msg_size),
            ..HandshakeResponse::default()
        };
        if let Some(why) = refusal {
            self.send(Output::SendHandshakeResponse(HandshakeResponse {
                accepted: false,
                error: Some(why.into()),
                ..response
            }));
            return self.close(CloseReason::Refused(why));
        }
        let agreed = self.agree(request.max_msg_size, request.extensions.as_deref());
        self.send(Output::SendHandshakeResponse(HandshakeResponse {
            accepted: true,
            extensions: Some(agreed.extensions.iter().cloned().map(Into::into).collect()),
            did: config.did.clone().map(Into::into),
            ..response
        }));
        State::Handshaken { deadline_ms, agreed }
    }

    fn take_handshake(&mut self, response: &HandshakeResponse<'_>, deadline_ms: u64) -> State {
        if !response.accepted {
            let why = response.error.as_deref().unwrap_or("HANDSHAKE not accepted");
            return self.close(CloseReason::RefusedByPeer(why.to_owned()));
        }
        if response.version != PROTOCOL_VERSION {
            return self.violation(Code::UNSUPPORTED_VERSION, "unsupported protocol version".to_owned());
        }
        if response.max_msg_size < u64::from(MSG_SIZE_BYTES_FLOOR) {
            return self.violation(Code::INVALID_MESSAGE, SIZE_UNDER_FLOOR.to_owned());
        }
        let agreed = self.agree(response.max_msg_size, response.extensions.as_deref());
        self.send(Output::SendHello { versions: self.config.versions.clone() });
        State::HelloSent { deadline_ms, agreed }
    }

    fn agree(&self, peer_max: u64, theirs: Option<&[std::borrow::Cow<'_, str>]>) -> Agreed {
        let theirs = theirs.unwrap_or_default();
        Agreed {
            // PROTOCOL 4: the intersection; in our order, so that the answer is the same for the same two sets.
            extensions: self
                .config
                .extensions
                .iter()
                .filter(|ours| theirs.iter().any(|their| their == *ours))
                .cloned()
                .collect(),
            // PROTOCOL 3: the smaller of both.
            max_msg_size: u32::try_from(peer_max)
                .map_or(self.config.max_msg_size, |peer_max| peer_max.min(self.config.max_msg_size)),
        }
    }

    fn open(&mut self, version: String, agreed: Agreed) -> State {
        let Agreed { extensions, max_msg_size } = agreed;
        self.send(Output::Opened(Terms { version, extensions, max_msg_size }));
        State::Open { life: Life { heard_ms: self.now_ms, pinged_ms: self.now_ms, pings: 0 }, in_flight: 0 }
    }

    /// A draining link, or its end. The side that said GOAWAY closes: the other one may not know yet of a message
    /// that left before GOAWAY did.
    fn drain(&mut self, life: Life, in_flight: usize, drain: Drain) -> State {
        if drain.said_goaway && in_flight == 0 {
            return self.close(CloseReason::Drained);
        }
        let Drain { deadline_ms, said_goaway } = drain;
        State::Draining { life, in_flight, deadline_ms, said_goaway }
    }
}

impl Life {
    fn heard(self, now_ms: u64) -> Self {
        Self { heard_ms: now_ms, ..self }
    }

    fn ping_due_ms(&self, config: &Config) -> Option<u64> {
        // An interval of 0 would be due again at once, forever.
        config
            .keep_alive_ms
            .map(|interval_ms| self.heard_ms.max(self.pinged_ms).saturating_add(interval_ms.max(1)))
    }

    fn idle_due_ms(&self, config: &Config) -> Option<u64> {
        config.idle_timeout_ms.map(|timeout_ms| self.heard_ms.saturating_add(timeout_ms))
    }

    fn deadline_ms(&self, config: &Config) -> Option<u64> {
        match (self.ping_due_ms(config), self.idle_due_ms(config)) {
            (Some(ping_ms), Some(idle_ms)) => Some(ping_ms.min(idle_ms)),
            (ping_ms, idle_ms) => ping_ms.or(idle_ms),
        }
    }

    /// Sends what is due; `None` when the peer was silent for too long.
    fn check(self, step: &mut Step<'_>) -> Option<Self> {
        if self.idle_due_ms(step.config).is_some_and(|due_ms| step.now_ms >= due_ms) {
            return None;
        }
        if self.ping_due_ms(step.config).is_none_or(|due_ms| step.now_ms < due_ms) {
            return Some(self);
        }
        step.send(Output::SendPing(Bytes::copy_from_slice(&self.pings.to_be_bytes())));
        Some(Self { pinged_ms: step.now_ms, pings: self.pings.wrapping_add(1), ..self })
    }
}

const NO_COMMON_VERSION: &str = "no common version";
const SIZE_UNDER_FLOOR: &str = "max_msg_size is under 1048576";

const _: () = assert!(MSG_SIZE_BYTES_FLOOR == 1_048_576, "SIZE_UNDER_FLOOR spells it out");
