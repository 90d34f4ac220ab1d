//! Params that break their schema again and again in; what is left to repair in their turn out.

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, Caller, Provider, by_id, idempotent, of_error, success, with_schema, within,
};
use crate::peer::Peer;
use crate::support::{Message, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const COUNTED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#;

/// Calls within a turn, and returns the call's id.
fn invoke_in(caller: &mut Caller, turn: &[u8], params: Value) -> Vec<u8> {
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, params));
    set(&mut envelope, "thread_id", Value::Bytes(turn.to_vec()));
    caller.link.send_envelope(&envelope)
}

/// The code of a refusal, and `details.repair`.
fn repair(message: &Message) -> (u64, u64, u64) {
    let details = of_error(message, "details").unwrap();
    assert!(field(details, "violations").and_then(Value::as_array).is_some_and(|all| !all.is_empty()));
    let repair = field(details, "repair").unwrap_or_else(|| panic!("{message:?}"));
    let count = |key| u64::try_from(field(repair, key).and_then(Value::as_integer).unwrap()).unwrap();
    (message.code().unwrap(), count("used"), count("max"))
}

fn refused_in(caller: &mut Caller, turn: &[u8]) -> (u64, u64, u64) {
    let id = invoke_in(caller, turn, map([]));
    repair(&caller.error(&id))
}

/// A provider's sidecar, and a caller's with this budget.
fn sidecars(budget: Option<&str>) -> (Sidecar, Sidecar) {
    let b = Sidecar::start();
    let setup = Setup::new().peer(&b);
    let setup = budget.into_iter().fold(setup, |setup, max| setup.set("limits.max_argument_repairs", max));
    let a = setup.start();
    (a, b)
}

#[test]
fn a_turn_is_told_once_what_to_repair_and_then_that_it_is_over() {
    let (a, b) = sidecars(None);
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    // Beside a peer's provider, and beside the agent's own.
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        assert_eq!(refused_in(&mut caller, b"one"), (4004, 0, 1));
        assert_eq!(refused_in(&mut caller, b"one"), (4904, 1, 1));
        assert_eq!(refused_in(&mut caller, b"one"), (4904, 1, 1), "a fresh id does not begin a turn again");
        assert_eq!(refused_in(&mut caller, b"two"), (4004, 0, 1), "another turn has its own budget");
    }
    provider.heard_nothing_more();
}

#[test]
fn a_success_gives_a_turn_nothing_back_and_params_that_fit_always_run() {
    let (a, b) = sidecars(Some("2"));
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let mut caller = Caller::of(&a);
    for expected in [(4004, 0, 2), (4004, 1, 2), (4904, 2, 2), (4904, 2, 2)] {
        assert_eq!(refused_in(&mut caller, b"turn"), expected);
        let fitting = map([("count", 1.into())]);
        let id = invoke_in(&mut caller, b"turn", fitting.clone());
        let call = provider.echo();
        assert_eq!(field(&call.value, "thread_id"), Some(&Value::Bytes(b"turn".to_vec())));
        assert_eq!(success(&caller.result(&id)), &fitting);
    }
    provider.heard_nothing_more();
}

#[test]
fn a_call_without_a_thread_is_a_turn_of_its_own() {
    let (a, b) = sidecars(None);
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let mut caller = Caller::of(&a);
    for _ in 0..3 {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        assert_eq!(repair(&caller.error(&id)), (4004, 0, 1));
    }
    provider.heard_nothing_more();
}

#[test]
fn a_budget_of_none_asks_for_no_repair() {
    let (a, b) = sidecars(Some("0"));
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let mut caller = Caller::of(&a);
    assert_eq!(refused_in(&mut caller, b"turn"), (4904, 0, 0));
    provider.heard_nothing_more();
}

#[test]
fn a_peers_sidecar_is_told_of_violations_and_not_of_repairs() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    for _ in 0..3 {
        let (_, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(ECHO, Value::Null));
        let _route = peer.request(&link, &envelope);
        let refusal = peer.heard_type(crate::agents::ERROR).message;
        assert_eq!(refusal.code(), Some(4004));
        assert_eq!(field(of_error(&refusal, "details").unwrap(), "repair"), None);
    }
    provider.heard_nothing_more();
}

#[test]
fn the_thread_goes_along_when_a_call_is_tried_again() {
    let peer = Peer::serving(vec![idempotent(ECHO)]);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    let mut envelope = caller.link.envelope(CAP_INVOKE, within(ECHO, Value::Null, 20_000));
    set(&mut envelope, "thread_id", Value::Bytes(vec![7; 9]));
    let id = caller.link.send_envelope(&envelope);
    let first = peer.heard_type(CAP_INVOKE);
    peer.refuse(&first, 5004, "server");
    let second = peer.heard_type(CAP_INVOKE);
    for call in [&first, &second] {
        assert_eq!(field(&call.message.value, "thread_id"), Some(&Value::Bytes(vec![7; 9])));
    }
    peer.succeed(&second, Value::Null);
    caller.result(&id);
}
