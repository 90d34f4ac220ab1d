//! Bytes in, read as a sequence of operations; claims on one link against any peer, and on two links with each other.

use std::collections::VecDeque;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::frame::{ErrorFrame, Goaway, HandshakeRequest, HandshakeResponse};
use capd_proto::limits::{MSG_SIZE_BYTES_FLOOR, PING_BYTES_MAX, PROTOCOL_VERSION};
use capd_proto::link::{CloseReason, Config, Input, Link, NotAdmitted, Output, Terms};

/// The first byte chooses the scene; the next ones the configuration; each later one or two are an operation.
pub(crate) fn run(bytes: &[u8]) {
    let mut ops = Ops(bytes);
    match ops.next() % 3 {
        0 => Watched::new(Link::client(config(&mut ops), 0)).against_anybody(ops),
        1 => Watched::new(Link::server(config(&mut ops), 0)).against_anybody(ops),
        _ => Pair::new(config(&mut ops), config(&mut ops)).play(ops),
    }
}

/// The bytes that are left; zeros after their end.
struct Ops<'a>(&'a [u8]);

impl Ops<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

fn config(ops: &mut Ops<'_>) -> Config {
    let flags = ops.next();
    let has = |bit: u8| flags & (1 << bit) != 0;
    let some = |bit: u8, name: &str| has(bit).then(|| name.to_owned());
    Config {
        max_msg_size: u32::from(ops.next()) * MSG_SIZE_BYTES_FLOOR / 16,
        extensions: some(0, "a").into_iter().chain(some(1, "b")).chain(some(2, "c")).collect(),
        versions: some(3, "2.0").into_iter().chain(["1.0".to_owned()]).collect(),
        idle_timeout_ms: has(4).then_some(45_000),
        keep_alive_ms: has(5).then_some(15_000),
        ..Config::default()
    }
}

/// A link and what it said so far.
struct Watched {
    link: Link,
    now_ms: u64,
    terms: Option<Terms>,
    draining: bool,
    closed: Option<CloseReason>,
}

impl Watched {
    fn new(link: Link) -> Self {
        Self { link, now_ms: 0, terms: None, draining: false, closed: None }
    }

    /// Hands in one input and returns what the link wants done, having checked the claims that hold for any link.
    fn step(&mut self, input: Input<'_>) -> Vec<Output> {
        let is_message = matches!(input, Input::Message);
        let ping = if let Input::Ping(payload) = &input { Some(payload.clone()) } else { None };
        let was_open = self.link.is_open();
        self.link.handle(input, self.now_ms);
        let outputs: Vec<Output> = std::iter::from_fn(|| self.link.poll_output()).collect();
        assert!(outputs.len() <= OUTPUTS_MAX, "one input, a bounded answer: {outputs:?}");
        for output in &outputs {
            assert_eq!(self.closed, None, "nothing comes after Close: {output:?}");
            match output {
                Output::Opened(terms) => {
                    assert_eq!(self.terms.replace(terms.clone()), None, "a link opens once");
                    assert!(terms.max_msg_size >= MSG_SIZE_BYTES_FLOOR);
                }
                Output::Draining { .. } => {
                    assert!(self.terms.is_some() && !self.draining, "an open link drains once");
                    self.draining = true;
                }
                Output::Deliver { new_work_allowed } => {
                    assert!(is_message && self.terms.is_some(), "only a message on an opened link goes up");
                    assert_eq!(*new_work_allowed, was_open);
                }
                Output::SendPong(payload) => {
                    assert_eq!(Some(payload), ping.as_ref(), "PONG is the PING's copy");
                    assert!(payload.len() <= PING_BYTES_MAX);
                }
                Output::Close(reason) => self.closed = Some(reason.clone()),
                Output::SendHandshakeRequest(_)
                | Output::SendHandshakeResponse(_)
                | Output::SendHello { .. }
                | Output::SendHelloAck { .. }
                | Output::SendHelloReject { .. }
                | Output::SendError { .. }
                | Output::SendPing(_)
                | Output::SendGoaway { .. }
                | Output::PeerError { .. } => {}
            }
        }
        assert_eq!(self.link.is_closed(), self.closed.is_some());
        assert_eq!(
            self.link.is_open(),
            self.terms.is_some() && !self.draining && self.closed.is_none(),
            "{}",
            self.link.state_name()
        );
        outputs
    }

    /// Lets time pass up to the next deadline, as a driver does; the deadline must then have moved on.
    fn wait(&mut self) -> Vec<Output> {
        let Some(deadline_ms) = self.link.poll_timeout() else { return Vec::new() };
        self.now_ms = self.now_ms.max(deadline_ms);
        let outputs = self.step(Input::Timeout);
        let next = self.link.poll_timeout();
        assert!(next.is_none_or(|next_ms| next_ms > self.now_ms), "a deadline that stays is a busy loop");
        outputs
    }

    fn against_anybody(mut self, mut ops: Ops<'_>) {
        let first: Vec<Output> = std::iter::from_fn(|| self.link.poll_output()).collect();
        assert!(first.len() <= 1);
        while !ops.is_over() {
            let op = ops.next();
            if op == 0 {
                self.wait();
            } else {
                self.now_ms += u64::from(op >> 5) * 1_000;
                let input = any_input(op, &mut ops);
                self.step(input);
            }
        }
        // Whatever happened, asking it to end ends it, by its own deadlines alone.
        self.step(Input::Drain { reason: 0 });
        for _ in 0..DEADLINES_MAX {
            self.wait();
        }
        assert!(self.closed.is_some(), "{}", self.link.state_name());
    }
}

fn any_input(op: u8, ops: &mut Ops<'_>) -> Input<'static> {
    let extensions = Some(vec!["b".into(), "x".into(), "a".into()]);
    match op % 18 {
        0 => Input::HandshakeRequest {
            request: HandshakeRequest {
                version: PROTOCOL_VERSION + u64::from(ops.next() / 128),
                max_msg_size: u64::from(ops.next()) << 16,
                extensions,
                ..HandshakeRequest::default()
            },
            admitted: if ops.next() < 200 { Ok(()) } else { Err(NotAdmitted::NotListed) },
        },
        1 => Input::HandshakeResponse(HandshakeResponse {
            version: PROTOCOL_VERSION + u64::from(ops.next() / 128),
            max_msg_size: u64::from(ops.next()) << 16,
            accepted: ops.next() < 200,
            extensions,
            ..HandshakeResponse::default()
        }),
        2 => Input::Hello { versions: vec!["9.9".into(), "1.0".into()] },
        3 => Input::Hello { versions: vec!["9.9".into()] },
        4 => Input::HelloAck { selected: "1.0".into() },
        5 => Input::HelloAck { selected: "9.9".into() },
        6 => Input::HelloReject { reason: None },
        7 => Input::Message,
        8 => Input::Ping(Bytes::from(vec![7; usize::from(ops.next())])),
        9 => Input::Pong(Bytes::from_static(b"pong")),
        10 => Input::Goaway(Goaway { reason: 0, ..Goaway::default() }),
        11 => Input::ErrorFrame(ErrorFrame { code: u64::from(ops.next()) << 8, ..ErrorFrame::default() }),
        12 => Input::Malformed { code: Code::INVALID_MESSAGE, message: "malformed".to_owned() },
        13 => Input::Heard,
        14 => Input::Drain { reason: 0 },
        16 => Input::HelloRefused("no member"),
        15 => Input::InFlight(usize::from(ops.next())),
        _ => Input::TransportClosed,
    }
}

/// A client and a server that keep to the protocol, joined by a transport that keeps the order.
struct Pair {
    sides: [Watched; 2],
    /// What is on its way to each side.
    ways: [VecDeque<Output>; 2],
    disturbed: bool,
}

impl Pair {
    fn new(client: Config, server: Config) -> Self {
        let sides = [Watched::new(Link::client(client, 0)), Watched::new(Link::server(server, 0))];
        Self { sides, ways: [VecDeque::new(), VecDeque::new()], disturbed: false }
    }

    fn play(mut self, mut ops: Ops<'_>) {
        let first: Vec<Output> = std::iter::from_fn(|| self.sides[0].link.poll_output()).collect();
        self.ways[1].extend(first);
        while !ops.is_over() {
            let op = ops.next();
            let side = usize::from(op & 1);
            match op >> 1 {
                0 => {
                    self.disturbed = true;
                    let outputs = self.sides[side].wait();
                    self.ways[1 - side].extend(outputs);
                }
                1 => {
                    self.disturbed = true;
                    self.input(side, Input::Drain { reason: 0 });
                }
                2 => self.input(side, Input::InFlight(usize::from(ops.next() % 3))),
                _ => self.deliver(side),
            }
        }
        while self.ways.iter().any(|way| !way.is_empty()) {
            self.deliver(0);
            self.deliver(1);
        }
        self.agreed();
    }

    fn input(&mut self, side: usize, input: Input<'_>) {
        let outputs = self.sides[side].step(input);
        self.ways[1 - side].extend(outputs);
    }

    fn deliver(&mut self, side: usize) {
        if let Some(output) = self.ways[side].pop_front()
            && let Some(input) = arriving(output)
        {
            self.input(side, input);
        }
    }

    fn agreed(&self) {
        for side in &self.sides {
            assert!(!matches!(side.closed, Some(CloseReason::Violation { .. })), "{:?}", side.closed);
        }
        let [client, server] = [&self.sides[0].terms, &self.sides[1].terms];
        if let (Some(client), Some(server)) = (client, server) {
            assert_eq!(client.version, server.version);
            assert_eq!(client.max_msg_size, server.max_msg_size);
            let sorted = |terms: &Terms| {
                let mut extensions = terms.extensions.clone();
                extensions.sort();
                extensions
            };
            assert_eq!(sorted(client), sorted(server));
        }
        assert!(
            self.disturbed || self.sides.iter().all(|side| side.link.is_open()),
            "left alone, a link opens"
        );
    }
}

/// What the other side's transport makes of an output, if it sends anything at all.
fn arriving(output: Output) -> Option<Input<'static>> {
    Some(match output {
        Output::SendHandshakeRequest(request) => Input::HandshakeRequest { request, admitted: Ok(()) },
        Output::SendHandshakeResponse(response) => Input::HandshakeResponse(response),
        Output::SendHello { versions } => {
            Input::Hello { versions: versions.into_iter().map(Into::into).collect() }
        }
        Output::SendHelloAck { selected } => Input::HelloAck { selected: selected.into() },
        Output::SendHelloReject { reason } => Input::HelloReject { reason: Some(reason.into()) },
        Output::SendError { code, message } => {
            Input::ErrorFrame(ErrorFrame { code: u64::from(code.0), message: message.into(), msg_id: None })
        }
        Output::SendPing(payload) => Input::Ping(payload),
        Output::SendPong(payload) => Input::Pong(payload),
        Output::SendGoaway { reason } => Input::Goaway(Goaway { reason, ..Goaway::default() }),
        Output::Close(_) => Input::TransportClosed,
        Output::Opened(_) | Output::Draining { .. } | Output::Deliver { .. } | Output::PeerError { .. } => {
            return None;
        }
    })
}

/// Most outputs that one input may call for.
const OUTPUTS_MAX: usize = 4;
/// More deadlines than lie between a GOAWAY and the end of draining: PINGs at the keep-alive's pace.
const DEADLINES_MAX: usize = 8;
