//! Sidecars that come late, go and come back in; calls that wait for them within their own time out.

use ciborium::Value;

use crate::agents::{Caller, by_id, success, within};
use crate::support::{Setup, Sidecar};

const ECHO: &str = "org.example.echo:1.0.0";
const SERVES: &str =
    "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n";

fn serving() -> Sidecar {
    Setup::new().capabilities(SERVES).start()
}

/// A sidecar that tries often.
fn eager() -> Setup {
    Setup::new().set("timeouts.reconnect_initial_ms", "10").set("timeouts.reconnect_max_ms", "50")
}

#[test]
fn a_call_made_before_its_provider_is_up_waits_for_it() {
    let mut b = serving();
    b.kill();
    let a = eager().peer_over_tcp(&b).start();
    let mut caller = Caller::of(&a);
    let early = caller.invoke(by_id(ECHO, "early".into()));
    assert!(caller.link.ping().is_empty(), "it waits");
    let _b = b.restart();
    assert_eq!(success(&caller.result(&early)), &Value::from("early"));
    caller.heard_nothing_more();
}

#[test]
fn a_call_that_names_its_peer_waits_for_it_alone() {
    let mut b = serving();
    b.kill();
    let c = Sidecar::start();
    let a = eager().peer_over_tcp(&b).peer(&c).start();
    let mut caller = Caller::of(&a);
    let at_c = caller.invoke_at(&c.did, by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&at_c).code(), Some(4002), "what serves nothing says so though another is away");
    let at_b = caller.invoke_at(&b.did, by_id(ECHO, "b".into()));
    let nobody = caller
        .invoke_at("did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH", by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&nobody).code(), Some(2001));
    let _b = b.restart();
    assert_eq!(success(&caller.result(&at_b)), &Value::from("b"));
}

#[test]
fn without_a_link_the_call_ends_at_its_deadline_with_2002() {
    let mut b = serving();
    b.kill();
    for setup in [eager().peer_over_tcp(&b), eager().peer(&b)] {
        let a = setup.start();
        let mut caller = Caller::of(&a);
        let id = caller.invoke(within(ECHO, Value::Null, 200));
        assert_eq!(caller.error(&id).code(), Some(2002));
        caller.heard_nothing_more();
    }
}

#[test]
fn without_any_peer_a_call_is_refused_at_once() {
    let a = Sidecar::start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&id).code(), Some(4002));
}

#[test]
fn a_provider_that_was_killed_and_came_back_is_found_again() {
    for over_quic in [true, false] {
        let b = serving();
        let a = if over_quic { eager().peer(&b) } else { eager().peer_over_tcp(&b) }.start();
        let mut caller = Caller::of(&a);
        assert_eq!(caller.call(by_id(ECHO, 1.into())), 1.into());
        let b = b.restart();
        assert_eq!(caller.call(by_id(ECHO, 2.into())), 2.into());
        let b = b.restart();
        let id = caller.invoke(by_id(ECHO, 3.into()));
        assert_eq!(success(&caller.result(&id)), &Value::from(3));
        drop(b);
    }
}

#[test]
fn a_callers_sidecar_that_came_back_is_the_same_and_calls_again() {
    let b = serving();
    let a = eager().peer(&b).start();
    let did = a.did.clone();
    assert_eq!(Caller::of(&a).call(by_id(ECHO, 1.into())), 1.into());
    let a = a.restart();
    assert_eq!(a.did, did);
    assert_eq!(Caller::of(&a).call(by_id(ECHO, 2.into())), 2.into());
}

#[test]
fn the_second_address_serves_when_the_first_does_not_answer() {
    let b = serving();
    let mut gone = serving();
    gone.kill();
    let dead = format!("tcp://{}", gone.tcp.unwrap());
    let live = format!("tcp://{}", b.tcp.unwrap());
    let a = eager().peer_at(&b.did, &[&dead, &live]).start();
    assert_eq!(Caller::of(&a).call(by_id(ECHO, 1.into())), 1.into());
}
