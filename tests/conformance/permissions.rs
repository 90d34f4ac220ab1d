//! PROTOCOL 7.3: what a caller may not have in, 3001 out, alike whether it is there; and lists of what it may have.

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};

use crate::fixture::{
    CAP_DECLARE, CAP_INVOKE, CAP_QUERY, CAP_RESULT, DOC_REQUEST, DOC_SEND, REQUEST, RESPONSE, checked, ids,
    loose, serving, sha256,
};
use crate::peer::{RawLink, Transport, fresh_seed};
use crate::support::{Message, Setup, Sidecar, encode, field, set};

const HIDDEN: &str = "com.example.hidden";
const NOBODYS: &str = "com.example.nobody";
const OPEN: &str = "com.example.open";

/// A sidecar whose peers may have these, and an agent that serves: the open one in two versions, of which the newer wants
/// a permission, the hidden one, and others in a namespace of their own.
fn guarded(allow: &str) -> (Sidecar, RawLink) {
    with(Setup::new().allow(allow))
}

fn with(setup: Setup) -> (Sidecar, RawLink) {
    let sidecar = setup.start();
    let mut newer = loose("com.example.open:2.0.0");
    set(&mut newer, "permissions", cbor!(["secrets:read"]).unwrap());
    let hidden = checked("com.example.hidden:1.0.0", r#"{"type":"integer"}"#, "true");
    let all = vec![loose("com.example.open:1.0.0"), newer, hidden, loose("org.example.far.one:1.0.0")];
    let agent = serving(&sidecar, all);
    (sidecar, agent)
}

fn to_open(more: &str) -> String {
    format!("[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"{OPEN}\"]\n{more}\n")
}

fn invoke(name: &str) -> Value {
    cbor!({ "capability" => name, "negotiate" => { "range" => ">=1.0.0" }, "params" => null }).unwrap()
}

fn query(name: &str) -> Value {
    cbor!({ "filter" => { "capability" => name } }).unwrap()
}

fn negotiate(name: &str) -> Value {
    cbor!({ "op" => "negotiate", "capability" => name, "range" => ">=1.0.0" }).unwrap()
}

/// A message type, and its body about a name.
type Question = (u64, fn(&str) -> Value);

/// Everything that asks for a capability by its name.
const QUESTIONS: [Question; 3] = [(CAP_INVOKE, invoke), (CAP_QUERY, query), (REQUEST, negotiate)];

/// An answer without what differs between any two: its ids, its time, and its signature.
fn bare(mut answer: Message) -> Vec<u8> {
    for key in ["id", "reply_to", "ts", "sig"] {
        assert!(field(&answer.value, key).is_some(), "{answer:?}");
        set(&mut answer.value, key, Value::Null);
    }
    encode(&answer.value)
}

#[test]
fn a_denied_caller_gets_the_same_bytes_for_known_and_unknown_names() {
    let (sidecar, _agent) = guarded(&to_open(""));
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, body) in QUESTIONS {
            let [known, unknown] = [HIDDEN, NOBODYS].map(|name| link.ask(typ, body(name)));
            assert_eq!(known.code(), Some(3001), "{transport:?}: {known:?}");
            assert_eq!(bare(known), bare(unknown), "{transport:?}: {typ:#x}");
        }
        // A version, a session or a delegation beside the name makes no difference.
        for field in [("version", "9.0.0".into()), ("delegation", Value::from(1)), ("timeout_ms", 1.into())] {
            let answers = [HIDDEN, NOBODYS].map(|name| {
                let mut body =
                    cbor!({ "capability" => name, "version" => "1.0.0", "params" => null }).unwrap();
                set(&mut body, field.0, field.1.clone());
                link.ask(CAP_INVOKE, body)
            });
            let [known, unknown] = answers;
            assert_eq!(known.code(), Some(3001), "{known:?}");
            assert_eq!(bare(known), bare(unknown), "{field:?}");
        }
    }
    let denied = sidecar.audited("denied", 24);
    assert!(
        denied.iter().any(|record| record["capabilityName"] == HIDDEN && record["code"] == 3001),
        "{denied:?}"
    );
    assert!(denied.iter().any(|record| record["capabilityName"] == NOBODYS), "{denied:?}");
}

#[test]
fn without_a_grant_a_peer_may_have_nothing_and_the_agent_everything() {
    let (sidecar, mut agent) = guarded("");
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, body) in QUESTIONS {
            assert_eq!(link.refused(typ, body(OPEN)).code, 3001, "{transport:?}");
        }
        assert_eq!(link.refused(CAP_QUERY, query("*")).code, 4002, "{transport:?}");
    }
    let mut local = RawLink::open(&sidecar, Transport::Unix);
    assert_eq!(ids(&local.ask(CAP_QUERY, query("*"))).len(), 4);
    let id = local.send(CAP_INVOKE, invoke(OPEN));
    let call = agent.message_of(CAP_INVOKE);
    agent.answer(&call, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
    assert_eq!(local.reply(&id).typ(), CAP_RESULT);
}

#[test]
fn only_who_would_be_allowed_learns_that_a_name_is_unknown() {
    let (sidecar, _agent) = guarded(
        "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"com.example.no.*\", \"com.example.nobody\"]\n",
    );
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, body) in QUESTIONS {
            for name in [NOBODYS, "com.example.no.one"] {
                assert_eq!(link.refused(typ, body(name)).code, 4002, "{transport:?}: {name}");
            }
            assert_eq!(link.refused(typ, body("com.example.nowhere")).code, 3001, "{transport:?}");
        }
    }
}

#[test]
fn a_version_whose_permissions_are_not_granted_is_not_there() {
    let (sidecar, mut agent) = guarded(&to_open(""));
    let (trusting, _other) = guarded(&to_open("permissions = [\"secrets:*\"]"));
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        assert_eq!(ids(&link.ask(CAP_QUERY, query(OPEN))), ["com.example.open:1.0.0"], "{transport:?}");
        let id = link.send(CAP_INVOKE, invoke(OPEN));
        let call = agent.message_of(CAP_INVOKE);
        agent.answer(&call, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        assert_eq!(link.reply(&id).typ(), CAP_RESULT, "{transport:?}");
        let newer = cbor!({ "id" => "com.example.open:2.0.0", "params" => null }).unwrap();
        let refusal = link.refused(CAP_INVOKE, newer);
        assert_eq!((refusal.code, refusal.available()), (4003, vec!["1.0.0"]), "{transport:?}");
        let mut link = RawLink::open(&trusting, transport);
        let both = ["com.example.open:2.0.0", "com.example.open:1.0.0"];
        assert_eq!(ids(&link.ask(CAP_QUERY, query(OPEN))), both, "{transport:?}");
    }
}

#[test]
fn a_capability_that_declares_what_was_not_granted_is_3001() {
    let allow = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"com.example.*\"]\npermissions = [\"network:read\"]\n";
    let sidecar = Setup::new().allow(allow).start();
    let mut reader = loose("com.example.reader:1.0.0");
    set(&mut reader, "permissions", cbor!(["network:read", "filesystem:read"]).unwrap());
    let mut fetcher = loose("com.example.fetcher:1.0.0");
    set(&mut fetcher, "permissions", cbor!(["network:read"]).unwrap());
    let _agent = serving(&sidecar, vec![reader, fetcher]);
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, body) in QUESTIONS {
            assert_eq!(link.refused(typ, body("com.example.reader")).code, 3001, "{transport:?}");
        }
        assert_eq!(ids(&link.ask(CAP_QUERY, query("*"))), ["com.example.fetcher:1.0.0"], "{transport:?}");
    }
}

#[test]
fn lists_show_only_what_the_caller_may_call() {
    let seed = fresh_seed();
    let did = Identity::from_seed(seed).did().to_string();
    let tables = format!(
        "[[groups]]\nname = \"near\"\nmembers = [\"{did}\"]\n\
         [[allow]]\ncallers = [\"group:near\"]\ncapabilities = [\"com.example.*\"]\n\
         [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.*\"]\n\
         [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"com.example.hidden\"]\nactions = [\"query\"]\n"
    );
    let (sidecar, _agent) = guarded(&tables);
    for transport in Transport::PEER {
        let mut near = RawLink::open_as(&sidecar, transport, seed);
        let all = ["com.example.hidden:1.0.0", "com.example.open:1.0.0", "org.example.far.one:1.0.0"];
        assert_eq!(ids(&near.ask(CAP_QUERY, query("*"))), all, "{transport:?}");
        let mut stranger = RawLink::open(&sidecar, transport);
        // What it may ask for and not call is not listed either.
        assert_eq!(ids(&stranger.ask(CAP_QUERY, query("*"))), all[2..], "{transport:?}");
        for pattern in ["com.*", "com.example.*", "net.*"] {
            assert_eq!(stranger.refused(CAP_QUERY, query(pattern)).code, 4002, "{transport:?}: {pattern}");
        }
        assert_eq!(stranger.refused(CAP_QUERY, query(HIDDEN)).code, 3001, "{transport:?}");
        // Pages count what is shown.
        let mut question = query("*");
        set(&mut question, "limit", 2.into());
        let page = near.ask(CAP_QUERY, question.clone());
        assert_eq!(ids(&page), all[..2], "{transport:?}");
        let cursor = field(page.body(), "next_cursor").unwrap().clone();
        set(&mut question, "cursor", cursor.clone());
        assert_eq!(ids(&near.ask(CAP_QUERY, question.clone())), all[2..], "{transport:?}");
        assert_eq!(stranger.refused(CAP_QUERY, question).code, 4001, "{transport:?}: borrowed");
    }
}

#[test]
fn what_changes_out_of_sight_leaves_a_cursor_as_it_is() {
    let (sidecar, _agent) = guarded("[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"com.seen.*\"]\n");
    let seen = ["com.seen.a:1.0.0", "com.seen.b:1.0.0"];
    let _seen = serving(&sidecar, seen.map(loose).to_vec());
    let mut link = RawLink::open(&sidecar, Transport::Tcp);
    let mut question = query("*");
    set(&mut question, "limit", 1.into());
    let page = link.ask(CAP_QUERY, question.clone());
    assert_eq!(ids(&page), seen[..1]);
    set(&mut question, "cursor", field(page.body(), "next_cursor").unwrap().clone());
    let _unseen = serving(&sidecar, vec![loose("com.unseen.c:1.0.0")]);
    assert_eq!(ids(&link.ask(CAP_QUERY, question.clone())), seen[1..]);
    let _more = serving(&sidecar, vec![loose("com.seen.c:1.0.0")]);
    assert_eq!(link.refused(CAP_QUERY, question).code, 4001, "what it sees has changed");
}

#[test]
fn a_document_of_what_may_not_be_called_is_as_good_as_nobodys() {
    let (sidecar, _agent) = guarded(&to_open(""));
    let (open, _other) = guarded("[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"com.example.*\"]\n");
    let hashes = [&br#"{"type":"integer"}"#[..], b"nobody has it"].map(sha256);
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let [known, unknown] =
            hashes.clone().map(|hash| link.ask(DOC_REQUEST, cbor!({ "hash" => hash }).unwrap()));
        assert_eq!(known.code(), Some(5002), "{transport:?}: {known:?}");
        assert_eq!(bare(known), bare(unknown), "{transport:?}");
        let mut link = RawLink::open(&open, transport);
        let sent = link.ask(DOC_REQUEST, cbor!({ "hash" => hashes[0].clone() }).unwrap());
        assert_eq!(sent.typ(), DOC_SEND, "{transport:?}: {sent:?}");
    }
}

#[test]
fn policies_decide_by_what_a_capability_declares_and_bind_the_agent_too() {
    let cedar = r#"
permit (principal, action, resource) when { resource.category == "public" && resource.major < 2 };
@id("no-banking")
forbid (principal, action, resource in Namespace::"com.bank");
"#;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.cedar");
    std::fs::write(&path, cedar).unwrap();
    let sidecar = Setup::new().allow("").set("policy.files", path.to_str().unwrap()).start();
    let public = |id: &str| {
        let mut descriptor = loose(id);
        set(&mut descriptor, "category", "public".into());
        descriptor
    };
    let ours =
        vec![public("com.example.a:1.0.0"), public("com.example.a:2.0.0"), loose("com.example.b:1.0.0")];
    let _agent = serving(&sidecar, ours);
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        assert_eq!(
            ids(&link.ask(CAP_QUERY, query("com.example.a"))),
            ["com.example.a:1.0.0"],
            "{transport:?}"
        );
        let session = link.ask(REQUEST, negotiate("com.example.a"));
        assert_eq!(session.typ(), RESPONSE, "{session:?}");
        assert_eq!(field(session.body(), "agreed_version"), Some(&"1.0.0".into()), "{transport:?}");
        // Nothing permits it for its name alone, so it is like a name that nobody serves.
        assert_eq!(link.refused(CAP_INVOKE, invoke("com.example.b")).code, 3001, "{transport:?}");
        assert_eq!(link.refused(CAP_INVOKE, invoke("com.example.none")).code, 3001, "{transport:?}");
    }
    let mut bank = RawLink::open(&sidecar, Transport::Unix);
    let pay = cbor!({ "capabilities" => [loose("com.bank.pay:1.0.0")] }).unwrap();
    let refusal = bank.refused(CAP_DECLARE, pay);
    assert!(refusal.code == 3001 && refusal.message.contains("com.bank.pay:1.0.0"), "{refusal:?}");
    assert_eq!(sidecar.audited("denied", 1).last().unwrap()["code"], 3001);
}

#[test]
fn a_sidecar_does_not_start_with_a_policy_that_has_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("capd.toml");
    std::fs::write(dir.path().join("p.cedar"), "\npermit (principal in Group::\"ops\", action, resource);\n")
        .unwrap();
    std::fs::write(&config, "[agent]\ndir = \"state\"\n[policy]\nfiles = [\"p.cedar\"]\n").unwrap();
    let mut capd = std::process::Command::new(env!("CARGO_BIN_EXE_capd"));
    let output = capd.args(["run", "--config"]).arg(&config).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("p.cedar:2:") && told.contains("no group \"ops\""), "{told}");
}
