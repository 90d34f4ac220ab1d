//! Several who serve a capability in; who of them gets which call out.

use ciborium::Value;

use crate::agents::{Caller, Provider, by_id, idempotent, loose, success};
use crate::support::{Setup, Sidecar};

const ECHO: &str = "org.example.echo:1.0.0";

#[test]
fn a_call_that_waits_for_a_peer_is_served_by_an_agent_here_that_comes_meanwhile() {
    for descriptor in [loose(ECHO), idempotent(ECHO)] {
        let mut away = Sidecar::start();
        away.kill();
        let a = Setup::new().peer(&away).start();
        let mut caller = Caller::of(&a);
        let id = caller.invoke(by_id(ECHO, "early".into()));
        // It has been taken, and nobody serves it.
        assert_eq!(caller.link.ping().len(), 0);
        let mut provider = Provider::of(&a, vec![descriptor]);
        assert_eq!(provider.echo().id(), id);
        assert_eq!(success(&caller.result(&id)), &Value::from("early"));
        caller.heard_nothing_more();
    }
}

#[test]
fn a_call_on_its_way_to_a_peer_goes_on_at_another_though_an_agent_here_serves_the_same_by_then() {
    let (b, c) = (Sidecar::start(), Sidecar::start());
    let a = Setup::new().peer(&b).peer(&c).start();
    let mut at_b = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, "call".into()));
    let _held = at_b.taken();
    let mut at_c = Provider::of(&c, vec![idempotent(ECHO)]);
    // Known at the caller's sidecar once a call went there.
    let other = caller.invoke_at(&c.did, by_id(ECHO, "other".into()));
    at_c.echo();
    caller.result(&other);
    let mut here = Provider::of(&a, vec![idempotent(ECHO)]);
    // Its links are gone, and it serves nothing any more.
    let _b = b.restart();
    assert_eq!(at_c.echo().id(), id);
    assert_eq!(success(&caller.result(&id)), &Value::from("call"));
    here.heard_nothing_more();
}
