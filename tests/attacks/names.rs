//! A listed peer that declares what a trusted peer serves; calls, lists and proofs that never see it.

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};

use crate::peer::{RawLink, Transport, fresh_seed};
use crate::support::{
    AMP_MESSAGE, Message, Setup, Sidecar, capctl, decode, exit_code, field, run_with, set, stdout,
};

const PING: u64 = 0x01;
const PONG: u64 = 0x02;
const CAP_QUERY: u64 = 0x20;
const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
const CAP_RESULT: u64 = 0x23;
const PAY: &str = "org.pay.charge";

fn did(seed: [u8; 32]) -> String {
    Identity::from_seed(seed).did().to_string()
}

/// Seeds of a trusted peer and of an impostor whose DID sorts before it.
fn seeds() -> ([u8; 32], [u8; 32]) {
    let (a, b) = (fresh_seed(), fresh_seed());
    if did(a) < did(b) { (b, a) } else { (a, b) }
}

/// A peer that declares these, and answers each call with its own DID, on a thread that ends with its link.
fn declaring(sidecar: &Sidecar, seed: [u8; 32], ids: &[&str]) {
    let mut link = RawLink::open_as(sidecar, Transport::Tcp, seed);
    let descriptors: Vec<_> =
        ids.iter().map(|id| cbor!({ "id" => *id, "idempotent" => true }).unwrap()).collect();
    let declare = cbor!({ "capabilities" => descriptors }).unwrap();
    let question = link.message_of(CAP_QUERY);
    link.answer(&question, CAP_DECLARE, &declare);
    link.ping();
    std::thread::spawn(move || {
        let result = cbor!({ "status" => "success", "result" => link.from.clone() }).unwrap();
        while let Some(frame) = link.try_frame() {
            if frame.frame_type != AMP_MESSAGE {
                link.send_frame(0x04, &frame.payload);
                continue;
            }
            let message = Message { value: decode(&frame.payload), bytes: frame.payload };
            match message.typ() {
                PING => drop(link.answer(&message, PONG, &Value::Null)),
                CAP_QUERY => drop(link.answer(&message, CAP_DECLARE, &declare)),
                CAP_INVOKE => drop(link.answer(&message, CAP_RESULT, &result)),
                _ => {}
            }
        }
    });
}

/// A sidecar whose owner lets one peer serve `org.pay.*` and another nothing, with both connected.
fn world(trusted: [u8; 32], impostor: [u8; 32]) -> (Sidecar, RawLink) {
    let setup = Setup::new().set("peer.admit", "listed").set("log.level", "info");
    let setup = setup.peer_serving(&did(trusted), &[], &["org.pay.*"]).peer_serving(&did(impostor), &[], &[]);
    let sidecar = setup.start();
    let agent = RawLink::open(&sidecar, Transport::Unix);
    (sidecar, agent)
}

fn newest() -> Value {
    cbor!({ "capability" => PAY, "negotiate" => { "range" => ">=0.0.0" }, "params" => "a card" }).unwrap()
}

/// Who answered a call.
#[track_caller]
fn server(agent: &mut RawLink, call: Value) -> String {
    let result = agent.ask(CAP_INVOKE, call);
    let who = field(result.body(), "result").and_then(Value::as_text);
    who.unwrap_or_else(|| panic!("{result:?}")).to_owned()
}

#[test]
fn a_peer_that_declares_a_higher_version_gets_no_call_of_a_trusted_peers_name() {
    let (trusted, impostor) = seeds();
    let (sidecar, mut agent) = world(trusted, impostor);
    declaring(&sidecar, impostor, &["org.pay.charge:9.0.0", "org.pay.refund:1.0.0"]);
    declaring(&sidecar, trusted, &["org.pay.charge:1.0.0"]);
    for _ in 0..4 {
        assert_eq!(server(&mut agent, newest()), did(trusted));
    }
    // Addressed to it, the call is refused, and the agent learns whose word is missing.
    let mut letter = agent.letter(CAP_INVOKE, &newest());
    letter.to = vec![did(impostor)];
    let id = agent.send_letter(&letter);
    let refusal = agent.reply(&id);
    let message = field(refusal.body(), "message").and_then(Value::as_text).unwrap_or_default();
    assert_eq!(refusal.code(), Some(4002), "{refusal:?}");
    assert!(message.contains(&did(impostor)) && message.contains("serves"), "{message}");
}

#[test]
fn a_peer_whose_did_sorts_first_gets_no_call_of_a_trusted_peers_id() {
    let (trusted, impostor) = seeds();
    let (sidecar, mut agent) = world(trusted, impostor);
    declaring(&sidecar, impostor, &["org.pay.charge:1.0.0"]);
    declaring(&sidecar, trusted, &["org.pay.charge:1.0.0"]);
    for _ in 0..12 {
        let call = cbor!({ "id" => "org.pay.charge:1.0.0", "params" => "a card" }).unwrap();
        assert_eq!(server(&mut agent, call), did(trusted));
    }
}

#[test]
fn what_a_peer_declares_beyond_its_share_is_listed_nowhere_and_told_to_the_owner() {
    let (trusted, impostor) = seeds();
    let (sidecar, mut agent) = world(trusted, impostor);
    declaring(&sidecar, impostor, &["org.pay.charge:9.0.0", "org.pay.charge:8.0.0", "org.pay.refund:1.0.0"]);
    declaring(&sidecar, trusted, &["org.pay.charge:1.0.0", "org.other.one:1.0.0"]);
    for _ in 0..2 {
        let mut question = cbor!({ "filter" => { "capability" => "*" } }).unwrap();
        set(&mut question, "limit", 100.into());
        let page = agent.ask(CAP_QUERY, question);
        let listed = field(page.body(), "capabilities")
            .and_then(Value::as_array)
            .unwrap_or_else(|| panic!("{page:?}"));
        let listed: Vec<_> = listed
            .iter()
            .map(|one| ["id", "provider"].map(|key| field(one, key).and_then(Value::as_text).unwrap()))
            .collect();
        assert_eq!(listed, [["org.pay.charge:1.0.0", did(trusted).as_str()]]);
    }
    assert_eq!(sidecar.metric("capd_peer_capabilities_withheld"), 4);
    // Once for each name, however often it is asked and however many versions there are.
    let log = sidecar.log();
    let told = |who: &str, name: &str| {
        let is_it = |line: &&str| line.contains("WARN") && line.contains(who) && line.contains(name);
        log.lines().filter(is_it).count()
    };
    assert_eq!(
        [
            told(&did(impostor), "org.pay.charge"),
            told(&did(impostor), "org.pay.refund"),
            told(&did(trusted), "org.other.one"),
            told(&did(trusted), "org.pay.charge"),
        ],
        [1, 1, 1, 0],
        "{log}"
    );
    let config = sidecar.dir.join("capd.toml");
    let line = ["doctor", "--json", "--config", config.to_str().unwrap()];
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    let found = stdout(&output);
    assert_eq!(exit_code(&output), 0, "{found}");
    let found: Vec<_> = found.lines().filter(|line| line.contains("warning")).collect();
    assert!(
        found.iter().any(|line| line.contains(&did(impostor)) && line.contains("org.pay.refund")),
        "{found:?}"
    );
}

#[test]
fn a_peer_that_nobody_lists_serves_nothing_unless_the_owner_says_so() {
    for (serves, expected) in
        [(None, Some(4002)), (Some("org.pay.*"), None), (Some("org.other.*"), Some(4002))]
    {
        let setup = Setup::new();
        let setup = match serves {
            Some(serves) => setup.set("peer.serves", serves),
            None => setup.set("peer.serves", ""),
        };
        let sidecar = setup.start();
        declaring(&sidecar, fresh_seed(), &["org.pay.charge:1.0.0"]);
        let mut agent = RawLink::open(&sidecar, Transport::Unix);
        let answer = agent.ask(CAP_INVOKE, newest());
        assert_eq!(answer.code(), expected, "{serves:?}: {answer:?}");
    }
}

#[test]
fn a_policy_may_name_who_may_serve_the_agent() {
    let (trusted, other) = seeds();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pay.cedar");
    let cedar = format!(
        "@id(\"only-ours\")\nforbid (principal, action == Action::\"invoke\", resource in Namespace::\"org.pay\")\n\
         unless {{ resource.provider == \"{}\" }};\n",
        did(trusted)
    );
    std::fs::write(&path, cedar).unwrap();
    let setup = Setup::new().set("policy.files", path.to_str().unwrap());
    let setup = setup.peer_serving(&did(trusted), &[], &["*"]).peer_serving(&did(other), &[], &["*"]);
    let sidecar = setup.start();
    declaring(&sidecar, other, &["org.pay.charge:9.0.0"]);
    declaring(&sidecar, trusted, &["org.pay.charge:1.0.0"]);
    let mut agent = RawLink::open(&sidecar, Transport::Unix);
    for _ in 0..4 {
        assert_eq!(server(&mut agent, newest()), did(trusted));
    }
    let why = |provider: &str| {
        let line = ["policy", "why", &sidecar.did, PAY, "--provider", provider];
        let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
        assert_eq!(exit_code(&output), 0, "{output:?}");
        stdout(&output).to_owned()
    };
    let (ours, others) = (why(&did(trusted)), why(&did(other)));
    assert!(ours.contains("org.pay.charge:1.0.0") && !ours.contains("only-ours"), "{ours}");
    assert!(others.contains("org.pay.charge:9.0.0") && others.contains("forbidden by only-ours"), "{others}");
}
