//! PROTOCOL 7.3, 8: calls that were accepted in, the rules that permitted them taken back; nothing recorded for whoever is
//! denied by then, and one result for whoever waits, out.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_INVOKE, CAP_RESULT, REQUEST, RESPONSE, loose, serving};
use crate::peer::{Letter, RawLink, Transport, fresh_seed};
use crate::support::{Message, Setup, Sidecar, field, set};

const CALLED: &str = "com.example.vault:1.0.0";
const OPEN: &str = "@permissions(\"secrets:read\")\npermit (principal, action, resource);\n";

/// A sidecar whose one policy file can be written anew.
struct Ruled {
    sidecar: Sidecar,
    file: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Ruled {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules.cedar");
        std::fs::write(&file, OPEN).unwrap();
        let sidecar = Setup::new().allow("").set("policy.files", file.to_str().unwrap()).start();
        Self { sidecar, file, _dir: dir }
    }

    /// Has other rules stand.
    fn rule(&self, cedar: &str) {
        std::fs::write(&self.file, cedar).unwrap();
        let mut agent = RawLink::open(&self.sidecar, Transport::Unix);
        let answer = agent.ask(REQUEST, cbor!({ "op" => "policy-reload" }).unwrap());
        assert_eq!(answer.typ(), RESPONSE, "{answer:?}");
    }
}

/// What the agent serves: it wants a permission, and may be run again where that is said.
fn vault(idempotent: bool) -> Value {
    let mut vault = loose(CALLED);
    set(&mut vault, "permissions", cbor!(["secrets:read"]).unwrap());
    set(&mut vault, "idempotent", idempotent.into());
    vault
}

fn call(link: &RawLink) -> Letter {
    link.letter(CAP_INVOKE, &cbor!({ "id" => CALLED, "params" => null }).unwrap())
}

fn again(link: &mut RawLink, letter: &Letter) -> Message {
    let id = link.send_letter(letter);
    link.reply(&id)
}

fn answer(agent: &mut RawLink) {
    let invoke = agent.message_of(CAP_INVOKE);
    agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => "secret" }).unwrap());
}

/// Rules under which the call would be refused: none for the name, one that forbids, and one that lacks the permission.
const TAKEN_BACK: [&str; 3] = [
    "permit (principal, action, resource in Namespace::\"org.other\");\n",
    "@permissions(\"*\")\npermit (principal, action, resource);\n\
     forbid (principal, action, resource) when { resource.major == 1 };\n",
    "permit (principal, action, resource);\n",
];

#[test]
fn a_recorded_result_is_not_for_a_caller_that_is_denied_by_now() {
    let ruled = Ruled::start();
    for idempotent in [false, true] {
        let mut agent = serving(&ruled.sidecar, vec![vault(idempotent)]);
        for transport in Transport::PEER {
            for rules in TAKEN_BACK {
                ruled.rule(OPEN);
                let mut link = RawLink::open(&ruled.sidecar, transport);
                let letter = call(&link);
                let id = link.send_letter(&letter);
                answer(&mut agent);
                let result = link.reply(&id);
                assert_eq!(result.typ(), CAP_RESULT, "{transport:?}: {result:?}");
                assert_eq!(again(&mut link, &letter).bytes, result.bytes, "{transport:?}: as long as it may");

                ruled.rule(rules);
                let refused = again(&mut link, &letter);
                assert_eq!(refused.code(), Some(3001), "{transport:?}: {rules}: {refused:?}");
                // As if it had never called: the same words as for a call that nobody made.
                let fresh = call(&link);
                let fresh = again(&mut link, &fresh);
                assert_eq!(refused.body(), fresh.body(), "{transport:?}: {rules}");
                // Another body under the same id tells it no more.
                let other = Letter { body: call_with(1), ..letter.clone() };
                assert_eq!(again(&mut link, &other).body(), fresh.body(), "{transport:?}: {rules}");

                ruled.rule(OPEN);
                assert_eq!(again(&mut link, &letter).bytes, result.bytes, "{transport:?}: it was kept");
            }
        }
        let left = agent.ask(0x01, crate::support::map([]));
        assert_eq!(left.typ(), 0x02, "nothing ran twice: {left:?}");
    }
}

fn call_with(params: u64) -> Vec<u8> {
    crate::support::encode(&cbor!({ "id" => CALLED, "params" => params }).unwrap())
}

#[test]
fn a_recorded_result_stays_denied_when_its_provider_is_gone_and_after_a_restart() {
    let seed = fresh_seed();
    for (rules, is_denied) in [(TAKEN_BACK[0], true), (TAKEN_BACK[1], true), (OPEN, false)] {
        let mut ruled = Ruled::start();
        let mut agent = serving(&ruled.sidecar, vec![vault(false)]);
        let mut link = RawLink::open_as(&ruled.sidecar, Transport::Tcp, seed);
        let letter = call(&link);
        let id = link.send_letter(&letter);
        answer(&mut agent);
        let result = link.reply(&id);
        drop(agent);
        ruled.rule(rules);
        let check = |link: &mut RawLink| {
            let met = again(link, &letter);
            if is_denied {
                assert_eq!(met.code(), Some(3001), "{rules}: {met:?}");
            } else {
                assert_eq!(met.bytes, result.bytes, "what is served by then does not matter");
            }
        };
        check(&mut link);
        ruled.sidecar = ruled.sidecar.restart();
        check(&mut RawLink::open_as(&ruled.sidecar, Transport::Tcp, seed));
    }
}

#[test]
fn a_call_that_runs_when_its_rules_are_taken_back_has_its_one_result() {
    let ruled = Ruled::start();
    let mut agent = serving(&ruled.sidecar, vec![vault(false)]);
    for transport in Transport::PEER {
        for rules in TAKEN_BACK {
            ruled.rule(OPEN);
            let mut link = RawLink::open(&ruled.sidecar, transport);
            let letter = call(&link);
            let id = link.send_letter(&letter);
            let invoke = agent.message_of(CAP_INVOKE);
            ruled.rule(rules);
            // Sent again it is met with no ERROR, since the call was accepted.
            link.send_letter(&letter);
            link.ping();
            agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 7 }).unwrap());
            let result = link.reply(&id);
            assert_eq!(field(result.body(), "result"), Some(&7.into()), "{transport:?}: {rules}: {result:?}");
            assert_eq!(link.reply(&id).bytes, result.bytes, "{transport:?}: the second waits as well");
            assert_eq!(again(&mut link, &letter).code(), Some(3001), "{transport:?}: {rules}");
        }
    }
}
