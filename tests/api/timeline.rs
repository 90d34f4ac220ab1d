//! A call whose provider's sidecar is killed in; its timeline on both sides, over HTTP and from `capctl`, out.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::http::Http;
use crate::support::{Setup, Sidecar, capctl, run_with, stdout};

/// The one timeline of a call.
#[track_caller]
fn timeline(sidecar: &Sidecar, place: &str) -> Value {
    let known = Http::unix(&sidecar.socket).get(place).json()["known"].clone();
    assert_eq!(known.as_array().map(Vec::len), Some(1), "{known}");
    known[0]["timeline"].clone()
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn names(timeline: &Value) -> Vec<&str> {
    let phases = timeline["phases"].as_array().unwrap();
    phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect()
}

/// Its phases follow each other without gaps, from the moment it came to its end.
#[track_caller]
fn covers(timeline: &Value) {
    let mut at_us = 0;
    for phase in timeline["phases"].as_array().unwrap() {
        assert_eq!(number(&phase["begin_us"]), at_us, "{timeline}");
        at_us = number(&phase["end_us"]);
    }
    assert_eq!(at_us, number(&timeline["took_us"]), "{timeline}");
}

#[test]
fn a_call_whose_provider_is_killed_shows_both_tries_and_where_its_time_went() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let mut agent = Agent::serving_one(&far, "org.example.long", true);
    let mut http = Http::unix(&near.socket);
    let answer = http.post_with("/v1/call/org.example.long", &[("Prefer", "respond-async")], "1");
    let place = answer.field("location").unwrap().to_owned();
    agent.call();

    let running = timeline(&near, &place);
    assert_eq!(running.get("took_us"), None, "{running}");
    assert_eq!(running["phases"].as_array().unwrap().last().unwrap()["name"], "wire");
    assert_eq!(running["phases"].as_array().unwrap().last().unwrap().get("end_us"), None);
    assert_eq!(running["tries"].as_array().map(Vec::len), Some(1), "{running}");
    assert_eq!((&running["tries"][0]["peer"], running["tries"][0].get("outcome")), (&json!(far.did), None));
    let served = timeline(&far, &place);
    assert_eq!(names(&served), ["admit", "provider"]);
    assert_eq!((served["tries"].as_array().map(Vec::len), served["tries"][0].get("peer")), (Some(1), None));

    drop(agent);
    let far = far.restart();
    let mut agent = Agent::serving_one(&far, "org.example.long", true);
    let call = agent.call();
    agent.answer(&call.data["id"], &json!("done"));
    http.ask("GET", &format!("{place}/events"), &[], None);
    http.head();
    assert_eq!(http.events().rest().pop().unwrap().data["result"], "done");

    let made = timeline(&near, &place);
    covers(&made);
    assert_eq!(names(&made).first(), Some(&"admit"));
    for phase in ["choose", "wire", "queue", "result"] {
        assert!(names(&made).contains(&phase), "{phase}: {made}");
    }
    let tries = made["tries"].as_array().unwrap();
    let told: Vec<_> = tries.iter().map(|one| (&one["peer"], &one["outcome"])).collect();
    assert_eq!(told, [(&json!(far.did), &json!("lost")), (&json!(far.did), &json!("success"))]);
    assert!(number(&tries[0]["end_us"]) <= number(&tries[1]["begin_us"]), "{made}");
    assert!(number(&tries[1]["end_us"]) <= number(&made["took_us"]), "{made}");
    let links: Vec<_> = tries.iter().map(|one| one["link"].as_str().unwrap()).collect();
    assert!(links.iter().all(|link| link.starts_with("quic #")) && links[0] != links[1], "{links:?}");
    // Without a `traceparent`, a call begins a trace under its own id; nobody exports it.
    assert_eq!(
        (&made["trace"], &made["sampled"]),
        (&json!(place.trim_start_matches("/v1/calls/")), &json!(false))
    );
    let served = timeline(&far, &place);
    covers(&served);
    assert_eq!(names(&served), ["admit", "provider", "result"]);
    assert_eq!((&served["trace"], &served["tries"][0]["outcome"]), (&made["trace"], &json!("success")));
    assert_eq!((&served["replays"], &served["joined"]), (&json!(0), &json!(0)));

    // A list has no timelines: they are many.
    let listed = Http::unix(&near.socket).get("/v1/calls").json();
    assert!(
        listed["calls"].as_array().unwrap().iter().all(|call| call.get("timeline").is_none()),
        "{listed}"
    );
    let id = place.trim_start_matches("/v1/calls/");
    let shown = run_with(capctl(Some(&near.socket)).args(["calls", id, "--json"]), b"");
    let shown: Value = serde_json::from_str(stdout(&shown)).unwrap();
    assert_eq!(shown["timeline"], made);
}

#[test]
fn a_copy_that_gets_the_recorded_result_is_counted_as_a_replay() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let mut agent = Agent::serving_one(&far, "org.example.once", false);
    let id = format!("{:016x}{:016x}", SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis(), 7);
    let call = |id: &str| {
        let mut command = capctl(Some(&near.socket));
        command.args(["call", "org.example.once", "--id", id, "--params", "1"]);
        std::thread::spawn(move || stdout(&run_with(&mut command, b"")).to_owned())
    };
    let first = call(&id);
    let taken = agent.call();
    agent.answer(&taken.data["id"], &json!("done"));
    assert_eq!(first.join().unwrap().trim(), "\"done\"");
    for replays in 1..3 {
        assert_eq!(call(&id).join().unwrap().trim(), "\"done\"");
        let served = timeline(&far, &format!("/v1/calls/{id}"));
        assert_eq!(number(&served["replays"]), replays, "{served}");
        assert_eq!(names(&served), ["admit", "journal", "provider", "result", "journal"]);
    }
}
