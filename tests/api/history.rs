//! `/v1/calls`: made and served, found, followed, resumed and cancelled.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::call::with_commands;
use crate::http::Http;
use crate::support::{Setup, Sidecar, capctl, run_with, stdout};

#[test]
fn a_call_goes_on_while_nobody_waits_and_is_found_again() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.long", false);
    let mut http = Http::unix(&sidecar.socket);
    let answer = http.post_with("/v1/call/org.example.long", &[("Prefer", "respond-async")], "1");
    assert_eq!((answer.status, answer.field("preference-applied")), (202, Some("respond-async")));
    let place = answer.field("location").unwrap().to_owned();
    let call = agent.call();
    let id = call.data["id"].as_str().unwrap();
    assert_eq!((answer.field("capd-call"), place.as_str()), (Some(id), format!("/v1/calls/{id}").as_str()));
    let running = http.get(&place).json();
    assert_eq!((&running["state"], &running["capability"]), (&json!("running"), &json!("org.example.long")));
    assert_eq!(running["known"][0]["state"], "executing");
    agent.say(&call.data["id"], "progress", &json!({"progress_pct": 10}));
    // The connection of one that follows is lost, and another goes on behind what it had.
    http.ask("GET", &format!("{place}/events"), &[], None);
    http.head();
    let mut events = http.events();
    events.expect("accepted");
    let heard = events.expect("progress").id.unwrap();
    drop(events);
    agent.say(&call.data["id"], "progress", &json!({"progress_pct": 20}));
    let mut http = Http::unix(&sidecar.socket);
    http.ask("GET", &format!("{place}/events"), &[("Last-Event-ID", &heard)], None);
    http.head();
    let mut events = http.events();
    assert_eq!(events.expect("progress").data, json!({"progress_pct": 20}));
    agent.answer(&call.data["id"], &json!("done"));
    assert_eq!(events.expect("result").data["result"], "done");
    assert!(events.next().is_none());
    let mut http = Http::unix(&sidecar.socket);
    let finished = http.get(&place).json();
    assert_eq!((&finished["state"], &finished["result"]), (&json!("finished"), &json!("done")));
    assert_eq!(finished["known"][0]["status"], "success");
    // Everything is told again to one who heard nothing.
    http.ask("GET", &format!("{place}/events"), &[], None);
    http.head();
    let names: Vec<_> = http.events().rest().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["accepted", "progress", "progress", "result"]);
    let mut http = Http::unix(&sidecar.socket);
    http.get(&format!("/v1/calls/{}", "0".repeat(32))).problem(404, "refused");
    http.get("/v1/calls/x").problem(400, "refused");
}

#[test]
fn a_call_is_cancelled_once() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut agent = Agent::serving_one(&b, "org.example.long", false);
    let mut http = Http::unix(&a.socket);
    let later = http.post_with("/v1/call/org.example.long", &[("Prefer", "respond-async")], "1");
    let place = later.field("location").unwrap().to_owned();
    let call = agent.call();
    http.ask("DELETE", &place, &[], None);
    let cancelled = http.answer();
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (202, &json!("cancelling")));
    let cancel = agent.events.expect("cancel");
    assert_eq!((&cancel.data["id"], &cancel.data["reason"]), (&call.data["id"], &json!("cancelled")));
    let answer = agent.say(&call.data["id"], "result", &json!({"result": 1})).problem(409, "refused");
    assert_eq!(answer["details"]["reason"], "cancelled");
    http.ask("GET", &format!("{place}/events"), &[], None);
    http.head();
    let end = http.events().rest().pop().unwrap();
    assert_eq!(
        (end.name.as_str(), &end.data["code"], &end.data["status"]),
        ("error", &json!(4901), &json!(409))
    );
    let mut http = Http::unix(&a.socket);
    http.ask("DELETE", &place, &[], None);
    http.answer().problem(409, "refused");
    http.ask("DELETE", &format!("/v1/calls/{}", "0".repeat(32)), &[], None);
    http.answer().problem(404, "refused");
}

#[test]
fn calls_of_both_sides_are_listed_newest_first_with_filters_and_pages() {
    let b = with_commands();
    let a = Setup::new().peer(&b).start();
    let (mut near, mut far) = (Http::unix(&a.socket), Http::unix(&b.socket));
    let mut made = Vec::new();
    for (http, path) in [(0, "echo"), (1, "echo"), (0, "fails"), (0, "echo"), (1, "fails")] {
        let http = if http == 0 { &mut near } else { &mut far };
        let answer = http.post(&format!("/v1/call/org.example.{path}"), "{}");
        made.push(answer.field("capd-call").unwrap().to_owned());
    }
    let ids = |document: &Value| -> Vec<String> {
        let calls = document["calls"].as_array().unwrap();
        calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect()
    };
    let of = |indices: &[usize]| indices.iter().map(|index| made[*index].clone()).collect::<Vec<_>>();
    let all = near.get("/v1/calls").json();
    assert_eq!(ids(&all), of(&[3, 2, 0]));
    let last = &all["calls"][1];
    assert_eq!(
        (&last["role"], &last["state"], &last["status"], &last["code"]),
        (&json!("caller"), &json!("finished"), &json!("error"), &json!(5001))
    );
    assert_eq!((&last["capability"], &last["peer"]), (&json!("org.example.fails:1.0.0"), &json!(b.did)));
    assert_eq!(ids(&near.get("/v1/calls?role=served").json()), of(&[]));
    assert_eq!(ids(&far.get("/v1/calls?role=served").json()), of(&[4, 3, 2, 1, 0]));
    assert_eq!(ids(&far.get("/v1/calls?role=made").json()), of(&[4, 1]));
    assert_eq!(ids(&far.get("/v1/calls?capability=org.example.echo").json()), of(&[3, 1, 0]));
    assert_eq!(ids(&far.get("/v1/calls?capability=org.example.echo:1.2.0&role=made").json()), of(&[1]));
    assert_eq!(ids(&far.get("/v1/calls?state=running").json()), of(&[]));
    assert_eq!(ids(&far.get("/v1/calls?state=finished&since=1h").json()).len(), 5);
    assert_eq!(ids(&far.get("/v1/calls?since=2999-01-01T00:00:00Z").json()), of(&[]));
    assert_eq!(ids(&far.get("/v1/calls?since=1066-10-14T09:00:00Z").json()).len(), 5);
    for (http, count) in [(&mut near, 3), (&mut far, 5)] {
        let (mut path, mut paged) = ("/v1/calls?limit=2".to_owned(), Vec::new());
        loop {
            let page = http.get(&path).json();
            assert!(ids(&page).len() <= 2);
            paged.extend(ids(&page));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/v1/calls?limit=2&cursor={cursor}");
        }
        assert_eq!((paged.len(), paged), (count, ids(&http.get("/v1/calls").json())));
    }
    for odd in ["role=x", "state=x", "since=x", "limit=0", "cursor=!", "other=1"] {
        near.get(&format!("/v1/calls?{odd}")).problem(400, "refused");
    }
    let lines = |args: &[&str]| -> Vec<Value> {
        let output = run_with(capctl(Some(&a.socket)).args(["calls", "--json"]).args(args), b"");
        assert!(output.status.success(), "{}", crate::support::stderr(&output));
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let listed = |args: &[&str]| -> Vec<String> {
        lines(args).iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&["--role", "made"]), of(&[3, 2, 0]));
    assert_eq!(listed(&["--role", "served"]), of(&[]));
    assert_eq!(
        listed(&[
            "--limit",
            "1",
            "--capability",
            "org.example.fails",
            "--state",
            "finished",
            "--since",
            "1h"
        ]),
        of(&[2])
    );
}
