//! The ends of all worlds in; their figures as one line of JSON out, for docs/evidence.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::{Event, Kind, Outcome};
use crate::world::End;

/// The figures of a run.
pub fn summary(seed: u64, took: Duration, ends: &[(u64, End)]) -> Value {
    let sum = |of: &dyn Fn(&End) -> u64| ends.iter().map(|(_, end)| of(end)).sum::<u64>();
    let violations = |kind: Kind| {
        sum(&|end: &End| {
            let found = end.history.violations(&end.executions);
            found.iter().filter(|violation| violation.kind == kind).count() as u64
        })
    };
    let events = |is: fn(&Event) -> bool| sum(&|end: &End| end.history.count(is));
    let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
    for (outcome, count) in ends.iter().flat_map(|(_, end)| end.history.outcomes()) {
        *outcomes.entry(outcome).or_default() += count;
    }
    let results: serde_json::Map<_, _> = outcomes
        .iter()
        .map(|(outcome, count)| match outcome {
            Outcome::Success => ("success".to_owned(), json!(count)),
            Outcome::Error(code) => (code.to_string(), json!(count)),
        })
        .collect();
    json!({
        "seed": seed,
        "kills": sum(&|end: &End| end.kills.processes()),
        "kills_of": {
            "callers_sidecar": sum(&|end: &End| end.kills.a),
            "providers_sidecar": sum(&|end: &End| end.kills.b),
            "sidecar_that_starts": sum(&|end: &End| end.kills.starting),
        },
        "both_down_at_once": sum(&|end: &End| end.kills.both),
        "providers_lost": sum(&|end: &End| end.kills.providers),
        "calls": sum(&|end: &End| end.history.ids().len() as u64),
        "executions": sum(&|end: &End| end.executions.len() as u64),
        "executed_once": sum(&|end: &End| end.executions.iter().collect::<HashSet<_>>().len() as u64),
        "results": results,
        "interrupted_5902": outcomes.get(&Outcome::Error(5902)).copied().unwrap_or(0),
        "sent": events(|event| matches!(event, Event::Sent)),
        "answers": events(|event| matches!(event, Event::Final(..))),
        "refusals": events(|event| matches!(event, Event::Refused(_))),
        "not_final": events(|event| matches!(event, Event::NotFinal(_))),
        "links_lost": events(|event| matches!(event, Event::LinkLost)),
        "duplicates": violations(Kind::Duplicate),
        "changed": violations(Kind::Changed),
        "unended": violations(Kind::Unended),
        "invented": violations(Kind::Invented) + violations(Kind::Unasked),
        "refused_and_executed": violations(Kind::Refused),
        "seconds": took.as_secs(),
        "machine": {
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "disk": disk(),
        },
        "commit": commit(),
    })
}

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The kind of file system that the journals stand on.
fn disk() -> String {
    let dir = std::env::temp_dir();
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let under = mounted.filter(|(place, _)| dir.starts_with(place));
    under.max_by_key(|(place, _)| place.len()).map_or_else(String::new, |(_, kind)| kind.to_owned())
}

fn commit() -> String {
    let head =
        std::process::Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    head.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().to_owned()
}
