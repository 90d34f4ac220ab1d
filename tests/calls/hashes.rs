//! Declarations and descriptors in; the hashes that are told with them, and what a wrong one leads to, out.

use std::path::Path;

use capd::declaration::Declaration;
use capd::schema::Contract;
use capd::schema::hash::Form;
use ciborium::Value;

use crate::agents::{
    CAP_DECLARE, CAP_INVOKE, CAP_QUERY, Caller, ERROR, Provider, by_id, loose, of_error, with_schema,
};
use crate::peer::Peer;
use crate::support::{BytePeer, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const TEXT: &str = r#"{"type":"string"}"#;

/// What the sidecar says of a name, oldest version first.
fn listed(caller: &mut Caller, name: &str) -> Vec<Value> {
    let filter = map([("capability", name.into())]);
    let id = caller.link.send(CAP_QUERY, map([("filter", filter), ("order", "oldest-first".into())]));
    let listed = caller.about(&id);
    assert_eq!(listed.typ(), CAP_DECLARE, "{listed:?}");
    field(listed.body(), "capabilities").and_then(Value::as_array).unwrap().clone()
}

fn bytes(descriptor: &Value, key: &str) -> Vec<u8> {
    field(descriptor, key)
        .and_then(Value::as_bytes)
        .unwrap_or_else(|| panic!("{key} of {descriptor:?}"))
        .clone()
}

fn echo_of(input: Option<Form<'_>>) -> Vec<u8> {
    let contract = Contract { name: "org.example.echo", input, ..Contract::default() };
    contract.static_hash().unwrap().0.to_vec()
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    set(&mut descriptor, key, value);
    descriptor
}

#[test]
fn what_a_file_declares_is_told_with_the_hashes_that_it_comes_to() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n\
                - { name: echo, version: \"2.0.0\", command: [cat], inputSchema: true, instructions: [b, a] }\n\
                - { name: echo, command: [cat], description: Says it again., permissions: [z, y], inputSchema: { type: string } }\n";
    let b = Setup::new().capabilities(yaml).start();
    let declaration = Declaration::parse(yaml, Path::new("capabilities.yaml")).unwrap();
    let hashes = capd::daemon::hashes(&declaration).unwrap();
    let listed = listed(&mut Caller::of(&b), "org.example.echo");
    assert_eq!(listed.len(), 2);
    for (descriptor, hashed) in listed.iter().zip(&hashes.capabilities) {
        assert_eq!(field(descriptor, "id").and_then(Value::as_text), Some(hashed.id.to_string().as_str()));
        assert_eq!(bytes(descriptor, "static_hash"), hashed.static_hash.0);
        assert_eq!(bytes(descriptor, "lineage"), hashed.lineage.0);
    }
    let told = Value::Array(vec!["b".into(), "a".into()]);
    assert_eq!(field(&listed[1], "instructions"), Some(&told));
    // A peer holds them against what the descriptors promise, and calls.
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    for hashed in &hashes.capabilities {
        let result = caller.call(by_id(&hashed.id.to_string(), "x".into()));
        assert_eq!(result, "x".into());
    }
}

#[test]
fn an_agents_descriptor_gets_the_hashes_that_it_does_not_say() {
    let b = Sidecar::start();
    let vendor = map([("input", map([("vendor", "test".into()), ("version", 1.into())]))]);
    let _provider = Provider::of(
        &b,
        vec![
            with_schema("org.example.echo:1.1.0", "input_schema", TEXT),
            with(loose(ECHO), "validators", vendor),
            with(loose("org.example.echo:2.0.0"), "lineage", Value::Bytes(vec![9; 32])),
        ],
    );
    let listed = listed(&mut Caller::of(&b), "org.example.echo");
    let hashes: Vec<_> = listed.iter().map(|descriptor| bytes(descriptor, "static_hash")).collect();
    let document = Form::Document(TEXT.as_bytes());
    let vendor = Form::Vendor { vendor: "test", version: 1 };
    assert_eq!(hashes, [echo_of(Some(vendor)), echo_of(Some(document)), echo_of(None)]);
    let fingerprint = |bytes: &[u8]| capd::schema::Fingerprint(bytes.try_into().unwrap());
    let first = capd::schema::hash::lineage(None, fingerprint(&hashes[0]));
    let second = capd::schema::hash::lineage(Some(first), fingerprint(&hashes[1]));
    // Who says a lineage knows older versions than these.
    let lineages: Vec<_> = listed.iter().map(|descriptor| bytes(descriptor, "lineage")).collect();
    assert_eq!(lineages, [first.0.to_vec(), second.0.to_vec(), vec![9; 32]]);
}

#[test]
fn an_agents_descriptor_with_the_hash_of_another_contract_is_refused() {
    let b = Sidecar::start();
    let mut agent = BytePeer::open(&b.socket);
    let right = with(with_schema(ECHO, "input_schema", TEXT), "static_hash", Value::Bytes(echo_of(None)));
    let too_large = with_schema(ECHO, "input_schema", r#"{"maximum":9007199254740993}"#);
    for (descriptor, words) in
        [(right, "static_hash of org.example.echo:1.0.0 is"), (too_large, "at /maximum")]
    {
        let id = agent.send(CAP_DECLARE, map([("capabilities", Value::Array(vec![descriptor]))]));
        let refusal = agent.message();
        assert_eq!((refusal.typ(), refusal.code(), refusal.reply_to()), (ERROR, Some(4001), Some(id)));
        let message = of_error(&refusal, "message").and_then(Value::as_text).unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_peers_contract_that_is_not_what_its_hash_says_is_not_called() {
    use sha2::Digest as _;
    let reference = |text: &str| {
        map([
            ("hash_alg", "sha-256".into()),
            ("hash", Value::Bytes(sha2::Sha256::digest(text.as_bytes()).to_vec())),
            ("uri", "ni:///sha-256;somewhere".into()),
        ])
    };
    let said = |id: &str, hash: Vec<u8>| with(loose(id), "static_hash", Value::Bytes(hash));
    let peer = Peer::serving(vec![
        with(said(ECHO, echo_of(None)), "input_schema", reference(TEXT)),
        said("org.example.bare:1.0.0", vec![7; 32]),
        said("org.example.echo:2.0.0", echo_of(None)),
        loose("org.example.fine:1.0.0"),
    ])
    .document(TEXT);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    // Whether the schema had to be fetched first or there was none.
    for id in [ECHO, ECHO, "org.example.bare:1.0.0"] {
        let call = caller.invoke(by_id(id, "x".into()));
        let refusal = caller.error(&call);
        assert_eq!(refusal.code(), Some(4905), "{refusal:?}");
        let message = of_error(&refusal, "message").and_then(Value::as_text).unwrap();
        assert!(message.contains(&format!("static_hash of {id}")), "{message}");
    }
    // Nothing else of the peer's is touched by it.
    for id in ["org.example.echo:2.0.0", "org.example.fine:1.0.0"] {
        let sent = caller.invoke(by_id(id, "x".into()));
        let call = peer.heard_type(CAP_INVOKE);
        assert_eq!(call.message.id(), sent);
        peer.succeed(&call, Value::Null);
        caller.result(&sent);
    }
    let call = caller.invoke(by_id("org.example.none:1.0.0", "x".into()));
    assert_eq!(caller.error(&call).code(), Some(4002));
}
