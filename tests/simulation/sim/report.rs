//! Outcomes of worlds in; their sum, for people and as one line of JSON, out.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::oracle::End;
use super::plan::Break;
use super::trace::mix;
use super::world::Outcome;

/// What many worlds came to.
#[derive(Default)]
pub struct Report {
    pub worlds: u64,
    pub calls: u64,
    pub executions: u64,
    pub ends: BTreeMap<End, u64>,
    pub crashes: u64,
    pub packets: u64,
    pub dropped: u64,
    pub commits: u64,
    pub refused_commits: u64,
    pub lost_commits: u64,
    pub unacknowledged_commits: u64,
    pub tombstones: u64,
    pub virtual_ms: u64,
    pub violations: u64,
    /// Over the traces of all worlds, in whatever order they ran.
    pub traces: u64,
}

impl Report {
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.worlds += 1;
        self.calls += outcome.verdict.calls;
        self.executions += outcome.verdict.executions;
        for (end, count) in &outcome.verdict.ends {
            *self.ends.entry(*end).or_default() += count;
        }
        self.crashes += outcome.crashes;
        self.packets += outcome.traffic.packets;
        self.dropped += outcome.traffic.dropped;
        self.commits += outcome.commits;
        self.refused_commits += outcome.refused_commits;
        self.lost_commits += outcome.lost_commits;
        self.unacknowledged_commits += outcome.unacknowledged_commits;
        self.tombstones += outcome.tombstones;
        self.virtual_ms += outcome.virtual_ms;
        self.violations += outcome.verdict.violations.len() as u64;
        self.traces = self.traces.wrapping_add(mix(seed, outcome.trace));
    }

    pub fn merge(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.calls += other.calls;
        self.executions += other.executions;
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
        self.crashes += other.crashes;
        self.packets += other.packets;
        self.dropped += other.dropped;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.lost_commits += other.lost_commits;
        self.unacknowledged_commits += other.unacknowledged_commits;
        self.tombstones += other.tombstones;
        self.virtual_ms += other.virtual_ms;
        self.violations += other.violations;
        self.traces = self.traces.wrapping_add(other.traces);
    }

    /// One object with everything in it.
    ///
    /// Worlds are counted by the time that processors gave to them, so that a busy machine does not count against them.
    pub fn json(&self, wall: Duration, processors: Duration) -> Value {
        let ends: BTreeMap<_, _> = self.ends.iter().map(|(end, count)| (end.to_string(), *count)).collect();
        let seconds = wall.as_secs_f64();
        json!({
            "worlds": self.worlds,
            "calls": self.calls,
            "executions": self.executions,
            "ends": ends,
            "crashes": self.crashes,
            "packets": self.packets,
            "dropped": self.dropped,
            "commits": self.commits,
            "refused_commits": self.refused_commits,
            "lost_commits": self.lost_commits,
            "unacknowledged_commits": self.unacknowledged_commits,
            "tombstones": self.tombstones,
            "virtual_hours": round(self.virtual_ms as f64 / 3_600_000.0),
            "wall_seconds": round(seconds),
            "cpu_seconds": round(processors.as_secs_f64()),
            "worlds_per_second_and_core": round(self.worlds as f64 / processors.as_secs_f64()),
            "traces": format!("{:016x}", self.traces),
            "violations": self.violations,
        })
    }
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Failure(code) => write!(f, "error {code}"),
            Self::Expired => f.write_str("expired"),
        }
    }
}

/// What is to be read of a world whose oracle found something.
pub fn findings(seed: u64, breaks: Option<Break>, outcome: &Outcome) -> String {
    let mut text = String::new();
    for violation in &outcome.verdict.violations {
        let id = violation.id.map_or_else(String::new, |id| format!(" (id {id})"));
        let call = violation.call.map_or_else(String::new, |call| format!(" call {call}{id}:"));
        text.push_str(&format!("seed {seed}:{call} {}\n", violation.what));
        text.push_str(&outcome.verdict.history_of(violation.call));
    }
    text.push_str(&format!("    replay: {}\n", replay(seed, breaks)));
    text
}

/// The command that runs one world again.
pub fn replay(seed: u64, breaks: Option<Break>) -> String {
    let breaks = match breaks {
        None => "",
        Some(Break::Duplicates) => " --break duplicates",
        Some(Break::Executing) => " --break executing",
        Some(Break::Refusals) => " --break refusals",
        Some(Break::Journals) => " --break journals",
        Some(Break::Proof) => " --break proof",
        Some(Break::Tombstones) => " --break tombstones",
    };
    format!("cargo run --release --example capd-sim -- --replay {seed}{breaks}")
}
