//! Builds the outputs and next states that several transitions share.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;

use crate::code::Code;
use crate::frame::{HandshakeRequest, HandshakeResponse};
use crate::limits::{MSG_SIZE_BYTES_FLOOR, PING_BYTES_MAX, PROOF_BYTES, PROTOCOL_VERSION};

use super::life::Life;
use super::state::State;
use super::{CloseReason, Config, NotAdmitted, Output, Terms};

/// What a transition reads and writes besides the state.
pub(super) struct Step<'a> {
    pub(super) config: &'a Config,
    pub(super) now_ms: u64,
    pub(super) out: &'a mut VecDeque<Output>,
}

/// What HANDSHAKE settled, for [`Terms`].
#[derive(Debug)]
pub(super) struct Agreed {
    extensions: Vec<String>,
    max_msg_size: u32,
}

/// The parts of a draining link that are not a link's in general.
#[derive(Clone, Copy)]
pub(super) struct Drain {
    pub(super) deadline_ms: u64,
    pub(super) said_goaway: bool,
}

impl Step<'_> {
    pub(super) fn send(&mut self, output: Output) {
        self.out.push_back(output);
    }

    pub(super) fn after(&self, duration_ms: u64) -> u64 {
        self.now_ms.saturating_add(duration_ms)
    }

    pub(super) fn close(&mut self, reason: CloseReason) -> State {
        self.send(Output::Close(reason));
        State::Closed
    }

    pub(super) fn violation(&mut self, code: Code, message: String) -> State {
        self.send(Output::SendError { code, message: message.clone() });
        self.close(CloseReason::Violation { code, message })
    }

    /// A frame that has no place here. PROTOCOL names no code for it; we take 1001, as for any frame we cannot read.
    pub(super) fn out_of_order(&mut self, what: &str) -> State {
        self.violation(Code::INVALID_MESSAGE, what.to_owned())
    }

    pub(super) fn not_open(&mut self) -> State {
        // PROTOCOL 4: until the link is open any other message is ERROR 1004 and the link closes.
        self.violation(Code::UNSUPPORTED_VERSION, "the link is not open".to_owned())
    }

    pub(super) fn pong(&mut self, payload: Bytes, stay: State) -> State {
        if payload.len() > PING_BYTES_MAX {
            return self
                .violation(Code::INVALID_MESSAGE, format!("PING payload above {PING_BYTES_MAX} bytes"));
        }
        self.send(Output::SendPong(payload));
        stay
    }

    /// Our side wants to end a link that never opened: nothing is in flight.
    pub(super) fn leave(&mut self, reason: u64) -> State {
        self.send(Output::SendGoaway { reason });
        self.close(CloseReason::Drained)
    }

    pub(super) fn opening_timeout(&mut self, deadline_ms: u64, stay: State) -> State {
        if self.now_ms >= deadline_ms { self.close(CloseReason::HandshakeTimeout) } else { stay }
    }

    /// Sends HANDSHAKE as the client.
    pub(super) fn send_handshake(
        &mut self,
        nonce: Option<[u8; PROOF_BYTES]>,
        proof: Option<[u8; PROOF_BYTES]>,
    ) {
        let config = self.config;
        self.send(Output::SendHandshakeRequest(HandshakeRequest {
            version: PROTOCOL_VERSION,
            max_msg_size: u64::from(config.max_msg_size),
            did: config.did.clone().map(Into::into),
            nonce,
            proof,
            token: None,
            extensions: Some(config.extensions.iter().cloned().map(Into::into).collect()),
        }));
    }

    /// Sends the server's proof, and what the client is to prove the token for.
    pub(super) fn challenge(
        &mut self,
        request: &HandshakeRequest<'_>,
        nonce: [u8; PROOF_BYTES],
        proof: [u8; PROOF_BYTES],
        deadline_ms: u64,
    ) -> State {
        if let Some(why) = unfit(request) {
            return self.refuse_handshake(why);
        }
        let response = HandshakeResponse { nonce: Some(nonce), proof: Some(proof), ..self.response() };
        self.send(Output::SendHandshakeResponse(response));
        State::Challenged { deadline_ms }
    }

    /// An answer that accepts nothing.
    fn response(&self) -> HandshakeResponse<'static> {
        HandshakeResponse {
            version: PROTOCOL_VERSION,
            max_msg_size: u64::from(self.config.max_msg_size),
            ..HandshakeResponse::default()
        }
    }

    fn refuse_handshake(&mut self, why: &'static str) -> State {
        let response = HandshakeResponse { error: Some(why.into()), ..self.response() };
        self.send(Output::SendHandshakeResponse(response));
        self.close(CloseReason::Refused(why))
    }

    pub(super) fn answer_handshake(
        &mut self,
        request: &HandshakeRequest<'_>,
        admitted: Result<(), NotAdmitted>,
        deadline_ms: u64,
    ) -> State {
        let refusal = match admitted {
            // Before anything else about its HANDSHAKE: who is not listed learns only that.
            Err(why) if request.version == PROTOCOL_VERSION => Some(why.as_str()),
            _ => unfit(request),
        };
        if let Some(why) = refusal {
            return self.refuse_handshake(why);
        }
        let (config, response) = (self.config, self.response());
        let agreed = self.agree(request.max_msg_size, request.extensions.as_deref());
        self.send(Output::SendHandshakeResponse(HandshakeResponse {
            accepted: true,
            extensions: Some(agreed.extensions.iter().cloned().map(Into::into).collect()),
            did: config.did.clone().map(Into::into),
            ..response
        }));
        State::Handshaken { deadline_ms, agreed }
    }

    pub(super) fn take_handshake(&mut self, response: &HandshakeResponse<'_>, deadline_ms: u64) -> State {
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

    pub(super) fn agree(&self, peer_max: u64, theirs: Option<&[Cow<'_, str>]>) -> Agreed {
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

    pub(super) fn open(&mut self, version: String, agreed: Agreed) -> State {
        let Agreed { extensions, max_msg_size } = agreed;
        self.send(Output::Opened(Terms { version, extensions, max_msg_size }));
        State::Open { life: Life::begin(self.now_ms), in_flight: 0 }
    }

    /// A draining link, or its end. The side that said GOAWAY closes: the other one may not know yet of a message
    /// that left before GOAWAY did.
    pub(super) fn drain(&mut self, life: Life, in_flight: usize, drain: Drain) -> State {
        if drain.said_goaway && in_flight == 0 {
            return self.close(CloseReason::Drained);
        }
        let Drain { deadline_ms, said_goaway } = drain;
        State::Draining { life, in_flight, deadline_ms, said_goaway }
    }
}

/// Why no link can be opened on these terms, whoever asks.
fn unfit(request: &HandshakeRequest<'_>) -> Option<&'static str> {
    if request.version != PROTOCOL_VERSION {
        Some("unsupported protocol version")
    } else if request.max_msg_size < u64::from(MSG_SIZE_BYTES_FLOOR) {
        Some(SIZE_UNDER_FLOOR)
    } else {
        None
    }
}

const SIZE_UNDER_FLOOR: &str = "max_msg_size is under 1048576";

const _: () = assert!(MSG_SIZE_BYTES_FLOOR == 1_048_576, "SIZE_UNDER_FLOOR spells it out");
