use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// Every input that makes a difference somewhere, by a short name; times are since the state was reached.
const INPUTS: &[&str] = &[
    "HandshakeRequest",
    "HandshakeRequest v2",
    "HandshakeRequest 1023K",
    "HandshakeRequest refused",
    "Challenge",
    "Challenge v2",
    "HandshakeResponse",
    "HandshakeResponse v2",
    "HandshakeResponse 1023K",
    "HandshakeResponse refused",
    "Challenged",
    "Challenged wrongly",
    "Hello 2.0 1.0",
    "Hello 2.0",
    "HelloAck 1.0",
    "HelloAck 2.0",
    "HelloRefused",
    "HelloRefused",
    "HelloReject",
    "Message",
    "Ping",
    "Ping 65 bytes",
    "Pong",
    "Goaway",
    "ErrorFrame 5001",
    "Malformed 1001",
    "Heard",
    "Drain",
    "InFlight 0",
    "InFlight 2",
    "TransportClosed",
    "Timeout 9.999s",
    "Timeout 10s",
    "Timeout 15s",
    "Timeout 30s",
    "Timeout 45s",
];

fn request(version: u64, max_msg_size: u64) -> HandshakeRequest<'static> {
    HandshakeRequest {
        version,
        max_msg_size,
        extensions: Some(vec!["x".into(), "channel-auth".into(), "b".into()]),
        ..HandshakeRequest::default()
    }
}

#[test]
fn whoever_is_not_listed_learns_no_more_than_that() {
    let mut server = Link::server(Config::default(), 0);
    let request = HandshakeRequest { did: Some("did:key:another".into()), ..request(1, 0) };
    server.handle(Input::HandshakeRequest { request, admitted: Err(NotAdmitted::NotListed) }, 1);
    let Some(Output::SendHandshakeResponse(answer)) = server.poll_output() else { panic!("no answer") };
    assert_eq!((answer.accepted, answer.error.as_deref()), (false, Some("not listed")));
    assert_eq!((answer.did, answer.extensions), (None, None));
}

fn response(version: u64, max_msg_size: u64, accepted: bool) -> HandshakeResponse<'static> {
    HandshakeResponse {
        version,
        accepted,
        max_msg_size,
        error: (!accepted).then(|| "go away".into()),
        nonce: None,
        proof: None,
        extensions: Some(vec!["x".into(), "channel-auth".into()]),
        did: None,
    }
}

fn input(name: &str) -> (Input<'static>, u64) {
    const M2: u64 = 2 * 1024 * 1024;
    const K1023: u64 = 1023 * 1024;
    let input = match name {
        "HandshakeRequest" => Input::HandshakeRequest { request: request(1, M2), admitted: Ok(()) },
        "HandshakeRequest v2" => Input::HandshakeRequest { request: request(2, M2), admitted: Ok(()) },
        "HandshakeRequest 1023K" => Input::HandshakeRequest { request: request(1, K1023), admitted: Ok(()) },
        "HandshakeRequest refused" => {
            Input::HandshakeRequest { request: request(1, M2), admitted: Err(NotAdmitted::NotListed) }
        }
        "Challenge" => Input::Challenge { request: request(1, M2), nonce: [5; 32], proof: [6; 32] },
        "Challenge v2" => Input::Challenge { request: request(2, M2), nonce: [5; 32], proof: [6; 32] },
        "Challenged" => Input::Challenged { proof: Some([7; 32]) },
        "Challenged wrongly" => Input::Challenged { proof: None },
        "HandshakeResponse" => Input::HandshakeResponse(response(1, M2, true)),
        "HandshakeResponse v2" => Input::HandshakeResponse(response(2, M2, true)),
        "HandshakeResponse 1023K" => Input::HandshakeResponse(response(1, K1023, true)),
        "HandshakeResponse refused" => Input::HandshakeResponse(response(1, M2, false)),
        "Hello 2.0 1.0" => Input::Hello { versions: vec!["2.0".into(), "1.0".into()] },
        "Hello 2.0" => Input::Hello { versions: vec!["2.0".into()] },
        "HelloAck 1.0" => Input::HelloAck { selected: "1.0".into() },
        "HelloAck 2.0" => Input::HelloAck { selected: "2.0".into() },
        "HelloRefused" => Input::HelloRefused("no member"),
        "HelloReject" => Input::HelloReject { reason: Some("no".into()) },
        "Message" => Input::Message,
        "Ping" => Input::Ping(Bytes::from_static(b"hi")),
        "Ping 65 bytes" => Input::Ping(Bytes::from_static(&[0; 65])),
        "Pong" => Input::Pong(Bytes::from_static(b"hi")),
        "Goaway" => Input::Goaway(Goaway { reason: 7, ..Goaway::default() }),
        "ErrorFrame 5001" => Input::ErrorFrame(ErrorFrame { code: 5001, ..ErrorFrame::default() }),
        "Malformed 1001" => {
            Input::Malformed { code: Code::INVALID_MESSAGE, message: "bad at byte 3".to_owned() }
        }
        "Heard" => Input::Heard,
        "Drain" => Input::Drain { reason: 0 },
        "InFlight 0" => Input::InFlight(0),
        "InFlight 2" => Input::InFlight(2),
        "TransportClosed" => Input::TransportClosed,
        "Timeout 9.999s" => return (Input::Timeout, 9_999),
        "Timeout 10s" => return (Input::Timeout, 10_000),
        "Timeout 15s" => return (Input::Timeout, 15_000),
        "Timeout 30s" => return (Input::Timeout, 30_000),
        "Timeout 45s" => return (Input::Timeout, 45_000),
        other => panic!("no such input: {other}"),
    };
    (input, 0)
}

fn config() -> Config {
    Config {
        did: Some("did:key:z6MkExample".to_owned()),
        extensions: vec!["channel-auth".to_owned(), "a".to_owned(), "x".to_owned()],
        idle_timeout_ms: Some(45_000),
        keep_alive_ms: Some(15_000),
        ..Config::default()
    }
}

fn fresh(role: Role) -> Link {
    match role {
        Role::Client => Link::client(config(), 0),
        Role::Server => Link::server(config(), 0),
    }
}

fn drain(link: &mut Link) -> Vec<Output> {
    std::iter::from_fn(|| link.poll_output()).collect()
}

/// A link after these steps; a client's whose first is [`PROVING`] has a token to prove.
fn link_after(role: Role, steps: &[&str]) -> Link {
    let (mut link, steps) = match steps {
        [first, rest @ ..] if *first == PROVING => {
            (Link::client(Config { nonce: Some([4; 32]), ..config() }, 0), rest)
        }
        steps => (fresh(role), steps),
    };
    for step in steps {
        let (input, at_ms) = input(step);
        link.handle(input, at_ms);
    }
    drain(&mut link);
    link
}

fn shown(output: &Output) -> String {
    match output {
        Output::SendHandshakeRequest(request) => {
            let proven = request.proof.map(|proof| format!(" proof {}", proof[0])).unwrap_or_default();
            format!("send HANDSHAKE {:?} {:?}{proven}", request.max_msg_size, request.extensions)
        }
        Output::SendHandshakeResponse(response) if response.accepted => {
            format!("send HANDSHAKE accepted {:?}", response.extensions.clone().unwrap_or_default())
        }
        Output::SendHandshakeResponse(HandshakeResponse {
            nonce: Some(nonce), proof: Some(proof), ..
        }) => {
            format!("send HANDSHAKE proof {} nonce {}", proof[0], nonce[0])
        }
        Output::SendHandshakeResponse(response) => {
            format!("send HANDSHAKE refused {:?}", response.error.clone().unwrap_or_default())
        }
        Output::SendHello { versions } => format!("send HELLO {versions:?}"),
        Output::SendHelloAck { selected } => format!("send HELLO_ACK {selected}"),
        Output::SendHelloReject { reason } => format!("send HELLO_REJECT {reason:?}"),
        Output::SendError { code, message } => format!("send ERROR {} {message:?}", code.0),
        Output::SendPing(payload) => format!("send PING {} bytes", payload.len()),
        Output::SendPong(payload) => format!("send PONG {payload:?}"),
        Output::SendGoaway { reason } => format!("send GOAWAY {reason}"),
        Output::Opened(terms) => {
            format!("opened {} {:?} {}", terms.version, terms.extensions, terms.max_msg_size)
        }
        Output::Draining { by_peer: true } => "draining by peer".to_owned(),
        Output::Draining { by_peer: false } => "draining by us".to_owned(),
        Output::Deliver { new_work_allowed: true } => "deliver".to_owned(),
        Output::Deliver { new_work_allowed: false } => "deliver, no new work".to_owned(),
        Output::PeerError { code } => format!("peer error {code}"),
        Output::Close(CloseReason::Violation { code, .. }) => format!("close: violation {}", code.0),
        Output::Close(reason) => format!("close: {reason}"),
    }
}

fn table(role: Role, states: &[(&str, &[&str])]) -> String {
    let mut table = String::new();
    for (state, steps) in states {
        writeln!(table, "{state}").unwrap();
        for name in INPUTS {
            let mut link = link_after(role, steps);
            assert_eq!(
                link.state_name(),
                state.split(' ').next().unwrap(),
                "{steps:?} leads to the state of its heading"
            );
            let (input, at_ms) = input(name);
            link.handle(input, at_ms);
            let outputs: Vec<_> = drain(&mut link).iter().map(shown).collect();
            let due = link.poll_timeout().map_or("never".to_owned(), |due_ms| format!("{due_ms}"));
            let line =
                format!("    {name:<26}→ {:<14} due {due:<6} {}", link.state_name(), outputs.join("; "));
            writeln!(table, "{}", line.trim_end()).unwrap();
        }
        writeln!(table).unwrap();
    }
    table
}

const HS: &str = "HandshakeRequest";
const HELLO: &str = "Hello 2.0 1.0";
const HSR: &str = "HandshakeResponse";
const ACK: &str = "HelloAck 1.0";
const PROVING: &str = "proving";

/// Compares with the reviewed table; `INSTA_UPDATE=always` writes it anew.
fn assert_table(name: &str, table: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, table));
}

#[test]
fn every_state_meets_every_input_on_the_server() {
    assert_table(
        "server",
        &table(
            Role::Server,
            &[
                ("Idle", &[]),
                ("Challenged", &["Challenge"]),
                ("Handshaken", &[HS]),
                ("Handshaken with a proof", &["Challenge", HS]),
                ("Open nothing in flight", &[HS, HELLO]),
                ("Open 2 in flight", &[HS, HELLO, "InFlight 2"]),
                ("Draining by us, 2 in flight", &[HS, HELLO, "InFlight 2", "Drain"]),
                ("Draining by the peer, nothing in flight", &[HS, HELLO, "Goaway"]),
                ("Draining by both, 2 in flight", &[HS, HELLO, "InFlight 2", "Goaway", "Drain"]),
                ("Closed", &["TransportClosed"]),
            ],
        ),
    );
}

#[test]
fn every_state_meets_every_input_on_the_client() {
    assert_table(
        "client",
        &table(
            Role::Client,
            &[
                ("HandshakeSent", &[]),
                ("HandshakeSent with a nonce", &[PROVING]),
                ("ProofSent", &[PROVING, "Challenged"]),
                ("HelloSent", &[HSR]),
                ("Open nothing in flight", &[HSR, ACK]),
                ("Open 2 in flight", &[HSR, ACK, "InFlight 2"]),
                ("Draining by us, 2 in flight", &[HSR, ACK, "InFlight 2", "Drain"]),
                ("Draining by the peer, nothing in flight", &[HSR, ACK, "Goaway"]),
                ("Closed", &["TransportClosed"]),
            ],
        ),
    );
}

#[test]
fn two_links_open_each_other_on_the_same_terms() {
    let (mut client, mut server) = (fresh(Role::Client), fresh(Role::Server));
    let Some(Output::SendHandshakeRequest(request)) = client.poll_output() else { panic!("HANDSHAKE first") };
    server.handle(Input::HandshakeRequest { request, admitted: Ok(()) }, 1);
    let Some(Output::SendHandshakeResponse(response)) = server.poll_output() else { panic!("an answer") };
    client.handle(Input::HandshakeResponse(response), 2);
    let Some(Output::SendHello { versions }) = client.poll_output() else { panic!("HELLO") };
    server.handle(Input::Hello { versions: versions.into_iter().map(Into::into).collect() }, 3);
    let Some(Output::SendHelloAck { selected }) = server.poll_output() else { panic!("HELLO_ACK") };
    client.handle(Input::HelloAck { selected: selected.into() }, 4);
    let (Some(Output::Opened(ours)), Some(Output::Opened(theirs))) =
        (client.poll_output(), server.poll_output())
    else {
        panic!("both open")
    };
    assert_eq!(ours, theirs);
    assert!(client.is_open() && server.is_open());
}

#[test]
fn own_maximum_under_the_floor_is_raised() {
    let mut link = Link::client(Config { max_msg_size: 1, ..Config::default() }, 0);
    let Some(Output::SendHandshakeRequest(request)) = link.poll_output() else { panic!("HANDSHAKE first") };
    assert_eq!(request.max_msg_size, u64::from(MSG_SIZE_BYTES_FLOOR));
}

#[test]
fn effective_maximum_is_the_smaller_even_beyond_32_bits() {
    for (theirs, effective) in [(u64::MAX, MSG_SIZE_BYTES_DEFAULT), (1024 * 1024, 1024 * 1024)] {
        let mut link = fresh(Role::Client);
        link.handle(Input::HandshakeResponse(response(1, theirs, true)), 0);
        link.handle(input(ACK).0, 0);
        assert!(
            drain(&mut link)
                .iter()
                .any(|output| matches!(output, Output::Opened(terms) if terms.max_msg_size == effective))
        );
    }
}

#[test]
fn ping_after_silence_is_repeated_until_the_peer_counts_as_gone() {
    let mut link = link_after(Role::Server, &[HS, HELLO]);
    for due_ms in [15_000, 30_000] {
        assert_eq!(link.poll_timeout(), Some(due_ms));
        link.handle(Input::Timeout, due_ms);
        assert!(matches!(drain(&mut link)[..], [Output::SendPing(_)]));
    }
    link.handle(Input::Timeout, 45_000);
    assert_eq!(drain(&mut link), [Output::Close(CloseReason::IdleTimeout)]);
}

#[test]
fn pong_keeps_the_link_alive() {
    let mut link = link_after(Role::Server, &[HS, HELLO]);
    link.handle(Input::Pong(Bytes::new()), 44_999);
    link.handle(Input::Timeout, 45_000);
    assert_eq!(drain(&mut link), []);
    assert_eq!(link.poll_timeout(), Some(44_999 + 15_000));
}

#[test]
fn drain_ends_when_the_last_call_ends() {
    let mut link = link_after(Role::Client, &[HSR, ACK, "InFlight 2", "Drain"]);
    link.handle(Input::InFlight(1), 5);
    assert!(!link.is_closed());
    link.handle(Input::InFlight(0), 6);
    assert_eq!(drain(&mut link), [Output::Close(CloseReason::Drained)]);
}

#[test]
fn second_drain_does_not_extend_the_first() {
    let mut link = link_after(Role::Client, &[HSR, ACK, "InFlight 2", "Drain"]);
    link.handle(Input::Drain { reason: 0 }, 29_000);
    link.handle(Input::Goaway(Goaway::default()), 29_500);
    link.handle(Input::Timeout, 30_000);
    assert_eq!(drain(&mut link), [Output::Close(CloseReason::DrainTimeout { in_flight: 2 })]);
}

#[test]
fn time_that_runs_backwards_counts_as_standing_still() {
    let mut link = Link::server(config(), 1_000);
    link.handle(Input::Timeout, 0);
    assert_eq!(link.poll_timeout(), Some(11_000));
    link.handle(Input::HandshakeRequest { request: request(1, 2 * 1024 * 1024), admitted: Ok(()) }, 0);
    link.handle(input(HELLO).0, 0);
    assert_eq!(link.poll_timeout(), Some(16_000));
}

#[test]
fn a_client_that_has_a_token_to_prove_opens_for_nobody_who_has_not_proven_it() {
    for step in [HSR, "Challenged wrongly"] {
        let mut link = link_after(Role::Client, &[PROVING]);
        link.handle(input(step).0, 0);
        let outputs = drain(&mut link);
        assert!(matches!(outputs[..], [Output::Close(CloseReason::Refused(_))]), "{step}: {outputs:?}");
    }
    let mut link = Link::client(Config { nonce: Some([4; 32]), ..config() }, 0);
    let Some(Output::SendHandshakeRequest(request)) = link.poll_output() else { panic!("HANDSHAKE first") };
    assert_eq!((request.nonce, request.proof, request.token), (Some([4; 32]), None, None));
}

proptest! {
    #[test]
    fn any_sequence_opens_at_most_once_and_closes_for_good(
        server in any::<bool>(),
        // The first steps of a good opening, so that random inputs meet every state.
        opening in 0_usize..4,
        steps in proptest::collection::vec((0..INPUTS.len(), 0_u64..20_000, any::<bool>()), 0..40),
    ) {
        let (role, good) = if server { (Role::Server, [HS, HELLO, "InFlight 2"]) } else { (Role::Client, [HSR, ACK, "InFlight 2"]) };
        let mut link = fresh(role);
        let (mut now_ms, mut opened, mut closed) = (0, 0, false);
        let good = good[..opening.min(3)].iter().map(|name| (input(name).0, 0, false));
        let random = steps.into_iter().map(|(index, pause_ms, at_due)| (input(INPUTS[index]).0, pause_ms, at_due));
        for (input, pause_ms, at_due) in good.chain(random) {
            let input = match (at_due, link.poll_timeout()) {
                (true, Some(due_ms)) => {
                    now_ms = now_ms.max(due_ms);
                    Input::Timeout
                }
                _ => {
                    now_ms += pause_ms;
                    input
                }
            };
            let timed = matches!(input, Input::Timeout);
            let was_closed = link.is_closed();
            link.handle(input, now_ms);
            for output in drain(&mut link) {
                prop_assert!(!closed, "nothing comes after Close: {output:?}");
                opened += u32::from(matches!(output, Output::Opened(_)));
                closed |= matches!(output, Output::Close(_));
            }
            prop_assert!(opened <= 1);
            prop_assert_eq!(closed, link.is_closed());
            prop_assert!(!was_closed || link.is_closed());
            prop_assert_eq!(link.poll_timeout().is_none(), link.is_closed());
            if timed {
                prop_assert!(link.poll_timeout().is_none_or(|due_ms| due_ms > now_ms), "a handled time is over");
            }
            if link.is_open() {
                prop_assert_eq!(opened, 1);
            }
        }
    }
}
