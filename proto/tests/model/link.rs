//! Operations on a client's and a server's link in; where they do something else than two naive ones, or than each
//! other, if anywhere, out.

use std::collections::VecDeque;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::frame::{ErrorFrame, Goaway, HandshakeRequest, HandshakeResponse};
use capd_proto::limits::{AMP_VERSIONS, MSG_SIZE_BYTES_FLOOR, PING_BYTES_MAX, PROTOCOL_VERSION};
use capd_proto::link::{Config, Input, Link, NotAdmitted, Output, Terms};

use super::naive_link::{DRAIN_MS, Event, HANDSHAKE_MS, IDLE_MS, KEEP_ALIVE_MS, NaiveLink, Told};
use super::oracle::claim;

/// What happens next, to the server's side or the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The next frame on its way arrives.
    Arrive {
        server: bool,
    },
    /// A message is sent, if the link is open.
    Say {
        server: bool,
    },
    Ping {
        server: bool,
        large: bool,
    },
    Drain {
        server: bool,
    },
    InFlight {
        server: bool,
        calls: u8,
    },
    Pass {
        ms: u16,
    },
    /// Time passes up to the side's own deadline.
    Wait {
        server: bool,
    },
    /// The transport breaks, for one side now and for the other when it gets there.
    Cut {
        server: bool,
    },
    /// A frame arrives that the other side never sent.
    Forge {
        server: bool,
        frame: u8,
    },
}

/// Kinds of [`Op::Forge`].
pub(crate) const FRAMES: u8 = 15;

/// **Errors:** the claim that does not hold, and after which operation.
pub(crate) fn check(ops: &[Op]) -> Result<(), String> {
    let mut pair = Pair::new()?;
    for (index, &op) in ops.iter().enumerate() {
        pair.apply(op).map_err(|broken| format!("operation {index}, {op:?}: {broken}"))?;
    }
    pair.settle().map_err(|broken| format!("in the end: {broken}"))
}

struct Pair {
    /// The client's and the server's.
    sides: [Side; 2],
    /// What is on its way to each.
    ways: [VecDeque<Going>; 2],
    now_ms: u64,
    forged: bool,
}

struct Side {
    link: Link,
    naive: NaiveLink,
    terms: Option<Terms>,
    said: usize,
    delivered: usize,
}

enum Going {
    Frame(Output),
    Message,
    Ping(Bytes),
    End,
}

impl Pair {
    fn new() -> Result<Self, String> {
        let sides = [
            Side::new(Link::client(config(&["a", "b", "c"], 2), 0), true),
            Side::new(Link::server(config(&["d", "c", "b"], 1), 0), false),
        ];
        let mut pair = Self { sides, ways: [VecDeque::new(), VecDeque::new()], now_ms: 0, forged: false };
        let (_, first) = pair.sides[0].outputs();
        pair.ways[1].extend(first);
        Ok(pair)
    }

    fn apply(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Arrive { server } => self.arrive(usize::from(server)),
            Op::Say { server } => {
                let side = &mut self.sides[usize::from(server)];
                if side.link.is_open() {
                    side.said += 1;
                    self.ways[usize::from(!server)].push_back(Going::Message);
                }
                Ok(())
            }
            Op::Ping { server, large } => {
                let payload = Bytes::from(vec![7; if large { PING_BYTES_MAX + 1 } else { 3 }]);
                if !self.sides[usize::from(server)].link.is_closed() {
                    self.forged |= large;
                    self.ways[usize::from(!server)].push_back(Going::Ping(payload));
                }
                Ok(())
            }
            Op::Drain { server } => self.step(usize::from(server), Event::Drain, Input::Drain { reason: 0 }),
            Op::InFlight { server, calls } => {
                let calls = usize::from(calls);
                self.step(usize::from(server), Event::InFlight(calls), Input::InFlight(calls))
            }
            Op::Pass { ms } => self.pass(self.now_ms + u64::from(ms)),
            Op::Wait { server } => {
                let deadline_ms = self.sides[usize::from(server)].link.poll_timeout();
                self.pass(deadline_ms.unwrap_or(self.now_ms).max(self.now_ms))
            }
            Op::Cut { server } => {
                let side = usize::from(server);
                self.ways[side].clear();
                self.ways[1 - side].push_back(Going::End);
                self.step(side, Event::Cut, Input::TransportClosed)
            }
            Op::Forge { server, frame } => {
                self.forged = true;
                let (event, input) = forged(frame);
                self.step(usize::from(server), event, input)
            }
        }
    }

    fn arrive(&mut self, side: usize) -> Result<(), String> {
        let Some(going) = self.ways[side].pop_front() else { return Ok(()) };
        match going {
            Going::Message => self.step(side, Event::Message, Input::Message),
            Going::Ping(payload) => {
                self.step(side, Event::Ping { large: payload.len() > PING_BYTES_MAX }, Input::Ping(payload))
            }
            Going::End => self.step(side, Event::Cut, Input::TransportClosed),
            Going::Frame(frame) => match arriving(frame) {
                Some((event, input)) => self.step(side, event, input),
                None => Ok(()),
            },
        }
    }

    /// One input to one side, and to its naive twin.
    fn step(&mut self, side: usize, event: Event, input: Input<'_>) -> Result<(), String> {
        let this = &mut self.sides[side];
        this.link.handle(input, self.now_ms);
        let naive = this.naive.step(event, self.now_ms);
        let (told, sent) = this.outputs();
        claim(told == naive, || format!("{event:?}: the link told {told:?}, and was to tell {naive:?}"))?;
        let (state, naive) = (this.link.state_name(), this.naive.state);
        claim(state == naive, || format!("{event:?}: the link is {state}, and was to be {naive}"))?;
        let (due, naive) = (this.link.poll_timeout(), this.naive.deadline_ms());
        claim(due == naive, || format!("{event:?}: the deadline is {due:?}, and was to be {naive:?}"))?;
        claim(this.link.is_open() == (state == "Open"), || "open in word only".to_owned())?;
        self.ways[1 - side].extend(sent);
        let (delivered, said) = (self.sides[side].delivered, self.sides[1 - side].said);
        claim(self.forged || delivered <= said, || "a message came that nobody sent".to_owned())
    }

    fn pass(&mut self, now_ms: u64) -> Result<(), String> {
        self.now_ms = now_ms;
        (0..2).try_for_each(|side| self.step(side, Event::Timeout, Input::Timeout))
    }

    /// Everything arrives, and both agree. Then one side ends the link, and both sides' own deadlines close it.
    fn settle(&mut self) -> Result<(), String> {
        self.arrive_all()?;
        let [client, server] = &self.sides;
        claim(client.link.is_closed() == server.link.is_closed(), || "one side is closed".to_owned())?;
        if !self.forged {
            claim(client.link.is_open() == server.link.is_open(), || "one side is open".to_owned())?;
            claim(client.agrees_with(server), || {
                format!("they agreed on {:?} and {:?}", client.terms, server.terms)
            })?;
        }
        self.apply(Op::Drain { server: false })?;
        for _ in 0..DEADLINES_MAX {
            self.apply(Op::Wait { server: false })?;
            self.apply(Op::Wait { server: true })?;
        }
        let states = [0, 1].map(|side| self.sides[side].link.state_name());
        claim(states == ["Closed"; 2], || format!("deadlines left the sides {states:?}"))
    }

    fn arrive_all(&mut self) -> Result<(), String> {
        while self.ways.iter().any(|way| !way.is_empty()) {
            self.arrive(0)?;
            self.arrive(1)?;
        }
        Ok(())
    }
}

impl Side {
    fn new(link: Link, is_client: bool) -> Self {
        Self { link, naive: NaiveLink::new(is_client), terms: None, said: 0, delivered: 0 }
    }

    /// What the link tells, and what it sends.
    fn outputs(&mut self) -> (Vec<Told>, Vec<Going>) {
        let (mut told, mut sent) = (Vec::new(), Vec::new());
        while let Some(output) = self.link.poll_output() {
            match output {
                Output::Opened(terms) => {
                    self.terms = Some(terms);
                    told.push(Told::Opened);
                }
                Output::Deliver { new_work_allowed } => {
                    self.delivered += 1;
                    told.push(Told::Delivered { new_work_allowed });
                }
                Output::Draining { by_peer } => told.push(Told::Draining { by_peer }),
                Output::Close(_) => {
                    told.push(Told::Closed);
                    sent.push(Going::End);
                }
                Output::PeerError { .. } => {}
                Output::SendHandshakeRequest(_)
                | Output::SendHandshakeResponse(_)
                | Output::SendHello { .. }
                | Output::SendHelloAck { .. }
                | Output::SendHelloReject { .. }
                | Output::SendError { .. }
                | Output::SendPing(_)
                | Output::SendPong(_)
                | Output::SendGoaway { .. } => sent.push(Going::Frame(output)),
            }
        }
        (told, sent)
    }

    fn agrees_with(&self, other: &Self) -> bool {
        let (Some(ours), Some(theirs)) = (&self.terms, &other.terms) else { return true };
        let is_one_set = ours.extensions == ["b", "c"] && theirs.extensions == ["c", "b"];
        let is_least = [ours, theirs].map(|terms| terms.max_msg_size) == [MSG_SIZE_BYTES_FLOOR; 2];
        is_one_set && is_least && ours.version == theirs.version
    }
}

fn config(extensions: &[&str], max_msg_size_mib: u32) -> Config {
    Config {
        max_msg_size: max_msg_size_mib * MSG_SIZE_BYTES_FLOOR,
        extensions: extensions.iter().map(|&name| name.to_owned()).collect(),
        handshake_timeout_ms: HANDSHAKE_MS,
        drain_timeout_ms: DRAIN_MS,
        idle_timeout_ms: Some(IDLE_MS),
        keep_alive_ms: Some(KEEP_ALIVE_MS),
        ..Config::default()
    }
}

/// What a frame that was sent is when it arrives.
fn arriving(frame: Output) -> Option<(Event, Input<'static>)> {
    Some(match frame {
        Output::SendHandshakeRequest(request) => {
            (Event::HandshakeRequest { good: true }, Input::HandshakeRequest { request, admitted: Ok(()) })
        }
        Output::SendHandshakeResponse(response) => {
            (Event::HandshakeResponse { good: response.accepted }, Input::HandshakeResponse(response))
        }
        Output::SendHello { versions } => {
            let versions = versions.into_iter().map(Into::into).collect();
            (Event::Hello { good: true }, Input::Hello { versions })
        }
        Output::SendHelloAck { selected } => {
            (Event::HelloAck { good: true }, Input::HelloAck { selected: selected.into() })
        }
        Output::SendHelloReject { reason } => {
            (Event::HelloReject, Input::HelloReject { reason: Some(reason.into()) })
        }
        Output::SendError { code, message } => {
            let frame = ErrorFrame { code: u64::from(code.0), message: message.into(), msg_id: None };
            (Event::Error, Input::ErrorFrame(frame))
        }
        Output::SendPing(payload) => (Event::Ping { large: false }, Input::Ping(payload)),
        Output::SendPong(payload) => (Event::Heard, Input::Pong(payload)),
        Output::SendGoaway { reason } => {
            (Event::Goaway, Input::Goaway(Goaway { reason, ..Goaway::default() }))
        }
        Output::Opened(_)
        | Output::Draining { .. }
        | Output::Deliver { .. }
        | Output::PeerError { .. }
        | Output::Close(_) => return None,
    })
}

fn forged(frame: u8) -> (Event, Input<'static>) {
    let request = |version, admitted| Input::HandshakeRequest {
        request: HandshakeRequest {
            version,
            max_msg_size: u64::from(MSG_SIZE_BYTES_FLOOR),
            ..HandshakeRequest::default()
        },
        admitted,
    };
    let response = |accepted| {
        Input::HandshakeResponse(HandshakeResponse {
            version: PROTOCOL_VERSION,
            max_msg_size: u64::from(MSG_SIZE_BYTES_FLOOR),
            accepted,
            ..HandshakeResponse::default()
        })
    };
    match frame % FRAMES {
        0 => (Event::HandshakeRequest { good: false }, request(PROTOCOL_VERSION + 1, Ok(()))),
        1 => {
            (Event::HandshakeRequest { good: false }, request(PROTOCOL_VERSION, Err(NotAdmitted::NotListed)))
        }
        2 => (Event::HandshakeRequest { good: true }, request(PROTOCOL_VERSION, Ok(()))),
        3 => (Event::HandshakeResponse { good: false }, response(false)),
        4 => (Event::HandshakeResponse { good: true }, response(true)),
        5 => (Event::Hello { good: false }, Input::Hello { versions: vec!["9.9".into()] }),
        6 => (
            Event::Hello { good: true },
            Input::Hello { versions: vec!["9.9".into(), AMP_VERSIONS[0].into()] },
        ),
        7 => (Event::HelloAck { good: false }, Input::HelloAck { selected: "9.9".into() }),
        8 => (Event::HelloAck { good: true }, Input::HelloAck { selected: AMP_VERSIONS[0].into() }),
        9 => (Event::HelloReject, Input::HelloReject { reason: None }),
        10 => (Event::Message, Input::Message),
        11 => (Event::Goaway, Input::Goaway(Goaway::default())),
        12 => (Event::Error, Input::ErrorFrame(ErrorFrame { code: 1_001, ..ErrorFrame::default() })),
        13 => {
            (Event::Malformed, Input::Malformed { code: Code::INVALID_MESSAGE, message: "forged".to_owned() })
        }
        14 => (Event::HelloRefused, Input::HelloRefused("no member")),
        _ => (Event::Heard, Input::Heard),
    }
}

/// More deadlines than lie between a GOAWAY and the end of draining: PINGs at the keep-alive's pace.
const DEADLINES_MAX: usize = 8;
