//! Providers that remember the ids of calls in a store that they share: a call takes effect once, wherever its copies run.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use ciborium::Value;

use crate::agents::{CAP_INVOKE, Caller, Provider, SOON_MS, by_id, failure, success, within};
use crate::support::{Message, Setup, Sidecar, capctl, field, map, run_with, stdout};

const PAY: &str = "org.example.pay:1.0.0";

/// What a provider declares that remembers ids. A lost call is sent again after ten milliseconds.
fn remembering() -> Value {
    let policy = map([("max_attempts", 3.into()), ("initial_delay_ms", 10.into())]);
    map([("id", PAY.into()), ("idempotency", "by-id".into()), ("retry_policy", policy)])
}

/// What all replicas write to: a file for each call that took effect, with its outcome.
struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Has a call take effect at a replica, unless it has anywhere: its first outcome.
    fn take_effect(&self, call: &Message, replica: &str) -> String {
        let path = self.path(call);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(replica.as_bytes()).unwrap();
                replica.to_owned()
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::read_to_string(path).unwrap(),
            Err(error) => panic!("{error}"),
        }
    }

    /// The key: who calls, and the call's id.
    fn path(&self, call: &Message) -> PathBuf {
        let id: String = call.id().iter().map(|byte| format!("{byte:02x}")).collect();
        let from = field(&call.value, "from").and_then(Value::as_text).unwrap();
        self.0.path().join(format!("{}-{id}", from.replace(':', "_")))
    }

    fn effects(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

/// The call that came to one of them, and to which.
fn taken(providers: &mut [Provider; 2]) -> (usize, Message) {
    loop {
        for (at, provider) in providers.iter_mut().enumerate() {
            if let Some(call) = provider.link.ping().pop() {
                return (at, call);
            }
        }
    }
}

#[test]
fn a_call_whose_replica_is_killed_after_its_effect_gets_the_outcome_from_the_other_and_one_effect() {
    let store = Store::new();
    let mut sidecars = [Sidecar::start(), Sidecar::start()];
    let mut providers = sidecars.each_ref().map(|sidecar| Provider::of(sidecar, vec![remembering()]));
    let a = Setup::new().peer_over_tcp(&sidecars[0]).peer_over_tcp(&sidecars[1]).start();
    let mut caller = Caller::of(&a);
    // Both are known once each has had a call.
    for (sidecar, provider) in sidecars.iter().zip(&mut providers) {
        let known = caller.invoke_at(&sidecar.did, by_id(PAY, "known".into()));
        provider.echo();
        caller.result(&known);
    }

    let id = caller.invoke(by_id(PAY, "pay".into()));
    let (first, call) = taken(&mut providers);
    let outcome = store.take_effect(&call, "first");
    // It has taken effect, and nobody hears of it.
    sidecars[first].kill();
    let other = &mut providers[1 - first];
    let again = other.taken();
    assert_eq!(
        (again.id(), store.path(&again)),
        (id.clone(), store.path(&call)),
        "the key is the same at each replica"
    );
    let remembered = store.take_effect(&again, "other");
    other.succeed(&again, remembered.into());
    assert_eq!(success(&caller.result(&id)).as_text(), Some(&*outcome));
    assert_eq!(store.effects(), 1);
    // The one answer stays the one answer.
    let _first = providers.into_iter().nth(first);
    caller.heard_nothing_more();
}

#[test]
fn a_replica_that_was_killed_runs_the_same_id_again_when_it_is_back() {
    let store = Store::new();
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![remembering()]);
    let a = Setup::new().peer_over_tcp(&b).set("timeouts.reconnect_max_ms", "300").start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(within(PAY, "pay".into(), 20_000));
    let call = provider.taken();
    store.take_effect(&call, "first");
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![remembering()]);
    let again = provider.taken();
    assert_eq!(again.id(), id);
    let outcome = store.take_effect(&again, "second");
    provider.succeed(&again, outcome.into());
    assert_eq!(success(&caller.result(&id)).as_text(), Some("first"));
    assert_eq!(store.effects(), 1);
}

#[test]
fn nobody_says_that_a_call_did_nothing_whose_replicas_are_gone() {
    let mut b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![remembering()]);
    let a = Setup::new().peer_over_tcp(&b).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(within(PAY, "pay".into(), SOON_MS));
    provider.taken();
    b.kill();
    // Of an idempotent call this would be 5003: made again, it does no harm.
    assert_eq!(failure(&caller.result(&id)), 5902);
}

#[test]
fn our_own_agents_call_runs_once_whatever_its_provider_remembers() {
    let a = Sidecar::start();
    let mut provider = Provider::of(&a, vec![remembering()]);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(PAY, "pay".into()));
    let id = caller.link.send_envelope(&envelope);
    provider.taken();
    let a = a.restart();
    let mut provider = Provider::of(&a, vec![remembering()]);
    let mut caller = Caller::of(&a);
    caller.link.send_envelope(&envelope);
    assert_eq!(failure(&caller.result(&id)), 5902);
    provider.heard_nothing_more();
}

#[test]
fn a_declaration_says_that_its_command_remembers_ids_and_describe_shows_it() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: pay\n    idempotency: by-id\n    command: [cat]\n";
    let a = Setup::new().capabilities(yaml).start();
    let said = run_with(capctl(Some(&a.socket)).args(["describe", PAY]), b"");
    let said = stdout(&said).lines().find(|line| line.contains("idempotency")).map(str::trim);
    assert!(said.is_some_and(|line| line.starts_with("idempotency") && line.ends_with("by-id")), "{said:?}");
    let json = run_with(capctl(Some(&a.socket)).args(["describe", PAY, "--json"]), b"");
    let json: serde_json::Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(json["providers"][0]["descriptor"]["idempotency"], "by-id", "{json}");
}
