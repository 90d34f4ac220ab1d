//! Defines every transition of a link: one state and one input in, the next state and outputs out.

use crate::code::Code;

use super::life::Life;
use super::step::{Agreed, Drain, Step};
use super::{CloseReason, Config, Input, Output};

/// Where a link stands. The states in parentheses are passed through within one step and never rest: their answer
/// depends on nothing but the input at hand.
///
/// ```text
///            client                                  server
///
///             Idle (the constructor)                  Idle
///              │ HANDSHAKE ▸                            │ ▸ HANDSHAKE
///        HandshakeSent ─┐ ▸ its proof        ┌─ (HandshakeReceived)
///              │        │   ours ▸           │ our proof ▸  │
///              │    ProofSent            Challenged         │
///              │        │                    │ ▸ theirs     │
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
    /// Server: has proven that it knows the token, and waits for the client's proof.
    Challenged { deadline_ms: u64 },
    /// Client: waits for the server's HANDSHAKE.
    HandshakeSent { deadline_ms: u64 },
    /// Client: has sent its proof after the server's, and waits for its answer.
    ProofSent { deadline_ms: u64 },
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

impl State {
    pub(super) fn start_client(step: &mut Step<'_>) -> Self {
        let config = step.config;
        step.send_handshake(config.nonce, None);
        Self::HandshakeSent { deadline_ms: step.after(config.handshake_timeout_ms) }
    }

    pub(super) fn start_server(step: &mut Step<'_>) -> Self {
        Self::Idle { deadline_ms: step.after(step.config.handshake_timeout_ms) }
    }

    pub(super) fn handle(self, input: Input<'_>, step: &mut Step<'_>) -> Self {
        match self {
            Self::Idle { deadline_ms } => idle(deadline_ms, input, step),
            Self::Challenged { deadline_ms } => challenged(deadline_ms, input, step),
            Self::HandshakeSent { deadline_ms } => handshake_sent(deadline_ms, input, step),
            Self::ProofSent { deadline_ms } => proof_sent(deadline_ms, input, step),
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
            | Self::Challenged { deadline_ms }
            | Self::HandshakeSent { deadline_ms }
            | Self::ProofSent { deadline_ms }
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
            Self::Challenged { .. } => "Challenged",
            Self::HandshakeSent { .. } => "HandshakeSent",
            Self::ProofSent { .. } => "ProofSent",
            Self::Handshaken { .. } => "Handshaken",
            Self::HelloSent { .. } => "HelloSent",
            Self::Open { .. } => "Open",
            Self::Draining { .. } => "Draining",
            Self::Closed => "Closed",
        }
    }
}

fn idle(deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    if let Input::Challenge { request, nonce, proof } = input {
        return step.challenge(&request, nonce, proof, deadline_ms);
    }
    before_handshake(State::Idle { deadline_ms }, deadline_ms, input, step)
}

fn challenged(deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    before_handshake(State::Challenged { deadline_ms }, deadline_ms, input, step)
}

/// A server that has not accepted the client's HANDSHAKE yet.
fn before_handshake(stay: State, deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    match input {
        Input::HandshakeRequest { request, admitted } => {
            step.answer_handshake(&request, admitted, deadline_ms)
        }
        Input::Challenge { .. } => step.out_of_order("a second nonce"),
        Input::HandshakeResponse(_) | Input::Challenged { .. } => {
            step.out_of_order("a HANDSHAKE answer from the client")
        }
        Input::Hello { .. }
        | Input::HelloAck { .. }
        | Input::HelloRefused(_)
        | Input::HelloReject { .. }
        | Input::Message => step.not_open(),
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
        Input::HandshakeRequest { .. } | Input::Challenge { .. } => {
            step.out_of_order("a HANDSHAKE request from the server")
        }
        // Whoever accepts without a proof may be anybody who has the port.
        Input::HandshakeResponse(response) if response.accepted && step.config.nonce.is_some() => {
            step.close(CloseReason::Refused(UNPROVEN))
        }
        Input::HandshakeResponse(response) => step.take_handshake(&response, deadline_ms),
        Input::Challenged { proof: Some(proof) } if step.config.nonce.is_some() => {
            step.send_handshake(None, Some(proof));
            State::ProofSent { deadline_ms }
        }
        Input::Challenged { .. } => step.close(CloseReason::Refused(UNPROVEN)),
        Input::Hello { .. }
        | Input::HelloAck { .. }
        | Input::HelloRefused(_)
        | Input::HelloReject { .. }
        | Input::Message => step.not_open(),
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

fn proof_sent(deadline_ms: u64, input: Input<'_>, step: &mut Step<'_>) -> State {
    let stay = State::ProofSent { deadline_ms };
    match input {
        Input::HandshakeRequest { .. } | Input::Challenge { .. } => {
            step.out_of_order("a HANDSHAKE request from the server")
        }
        Input::HandshakeResponse(response) => step.take_handshake(&response, deadline_ms),
        Input::Challenged { .. } => step.out_of_order("a second nonce"),
        Input::Hello { .. }
        | Input::HelloAck { .. }
        | Input::HelloRefused(_)
        | Input::HelloReject { .. }
        | Input::Message => step.not_open(),
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
        Input::HandshakeRequest { .. }
        | Input::Challenge { .. }
        | Input::HandshakeResponse(_)
        | Input::Challenged { .. } => step.out_of_order("a second HANDSHAKE"),
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
        Input::HelloRefused(why) => {
            step.send(Output::SendHelloReject { reason: why.to_owned() });
            step.close(CloseReason::Refused(why))
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
        Input::HandshakeRequest { .. }
        | Input::Challenge { .. }
        | Input::HandshakeResponse(_)
        | Input::Challenged { .. } => step.out_of_order("a second HANDSHAKE"),
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
        Input::HelloRefused(why) => step.close(CloseReason::Refused(why)),
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
        Input::HandshakeRequest { .. }
        | Input::Challenge { .. }
        | Input::HandshakeResponse(_)
        | Input::Challenged { .. } => step.out_of_order("a second HANDSHAKE"),
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloRefused(_) | Input::HelloReject { .. } => {
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

fn draining(life: Life, in_flight: usize, drain: Drain, input: Input<'_>, step: &mut Step<'_>) -> State {
    let Drain { deadline_ms, said_goaway } = drain;
    let stay = |life| State::Draining { life, in_flight, deadline_ms, said_goaway };
    let heard = life.heard(step.now_ms);
    match input {
        Input::HandshakeRequest { .. }
        | Input::Challenge { .. }
        | Input::HandshakeResponse(_)
        | Input::Challenged { .. } => step.out_of_order("a second HANDSHAKE"),
        Input::Hello { .. } | Input::HelloAck { .. } | Input::HelloRefused(_) | Input::HelloReject { .. } => {
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

const UNPROVEN: &str = "it has not proven that it knows the token";
const NO_COMMON_VERSION: &str = "no common version";
