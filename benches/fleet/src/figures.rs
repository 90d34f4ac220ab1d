//! What a run has found, as its JSON has it; and the bars that it is held against.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) about: About,
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) all: Counts,
    /// Calls without an answer, by verdict and code.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Calls that broke the promise, the first ones of them.
    pub(crate) broken: Vec<String>,
    /// Calls answered in each second of the run.
    pub(crate) per_second: Vec<u32>,
    pub(crate) bars: Vec<Bar>,
}

/// What was run, and on what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) real: usize,
    #[serde(rename = "virtual")]
    pub(crate) virtual_: u16,
    pub(crate) names: usize,
    pub(crate) replicas: usize,
    pub(crate) ttl_s: u64,
    pub(crate) seed: u64,
    pub(crate) calls_per_s: f64,
    pub(crate) minutes: f64,
    pub(crate) etcd: String,
    pub(crate) capd: String,
    pub(crate) commit: String,
    pub(crate) rustc: String,
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) took_s: u64,
    /// The part of all cores' time that other work had.
    pub(crate) others: f64,
    /// Calls that were due and not made: their caller had too many in flight.
    pub(crate) held_back: u64,
}

/// Something that happened to the fleet, and what came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// In one sentence.
    pub(crate) what: String,
    /// Seconds since the run began.
    pub(crate) from_s: f64,
    pub(crate) until_s: f64,
    pub(crate) counts: Counts,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) slowest_ms: f64,
    /// By a key that bars know.
    pub(crate) facts: BTreeMap<String, Fact>,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// How calls ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) answered: u64,
    /// They may run only once, and nobody knows whether they ran: a provider's sidecar was touched.
    pub(crate) unknown: u64,
    /// The caller's own sidecar was touched.
    pub(crate) own_sidecar: u64,
    pub(crate) lost: u64,
    /// They may run only once, and ran twice, or ran and were refused.
    pub(crate) double: u64,
}

/// One thing that must hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    /// None when it was not measured.
    pub(crate) value: Option<f64>,
    pub(crate) unit: String,
}

/// On which side of what a value must be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    /// Whether it holds; none when it was not measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.value.map(|value| match self.bound {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        })
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

impl Figures {
    fn fact(&self, scenario: &str, key: &str) -> Option<f64> {
        let found = self.scenarios.iter().find(|of| of.name == scenario)?;
        found.facts.get(key).map(|fact| fact.value)
    }

    /// The bars, with what was measured.
    pub(crate) fn judge(&mut self) {
        let counted = |what: &str, value: u64| Bar {
            what: what.to_owned(),
            bound: Bound::AtMost(0.0),
            value: Some(value as f64),
            unit: String::new(),
        };
        let away = self.scenarios.iter().flat_map(|of| [of.facts.get("away"), of.facts.get("still_away")]);
        let away: f64 = away.flatten().map(|fact| fact.value).sum();
        let mut bars = vec![
            counted("calls that ran twice, or ran and were refused", self.all.double),
            counted("calls that were lost", self.all.lost),
            counted(
                "members that were not registered and current again in time, in all scenarios",
                away as u64,
            ),
        ];
        bars.extend(BARS.iter().map(|&(what, bound, scenario, key, unit)| Bar {
            what: what.to_owned(),
            bound,
            value: self.fact(scenario, key),
            unit: unit.to_owned(),
        }));
        self.bars = bars;
    }
}

/// What, the bound, and the scenario's fact that it is about. **Source:** FLEET 8.
const BARS: [(&str, Bound, &str, &str, &str); 13] = [
    ("all members are registered after", Bound::AtMost(15.0), "start", "registered", "s"),
    ("registrations lost while nothing happens", Bound::AtMost(0.0), "steady", "lapsed", ""),
    ("etcd's share of a core while nothing happens", Bound::AtMost(30.0), "steady", "etcd", "%"),
    ("a change to its watcher's directory, p99", Bound::AtMost(50.0), "steady", "update_p99", "ms"),
    (
        "memory that a fleet with 10 watched names adds to a sidecar",
        Bound::AtMost(1.0),
        "steady",
        "memory",
        "MB",
    ),
    (
        "time of a call to a provider of the fleet, over one to a configured peer",
        Bound::AtMost(1.02),
        "steady",
        "latency",
        "×",
    ),
    ("calls/s while etcd is dead, over those before", Bound::AtLeast(99.0), "outage", "rate", "%"),
    ("all sidecars are current again after etcd is back", Bound::AtMost(15.0), "outage", "current", "s"),
    ("requests to etcd by then, for each member", Bound::AtMost(4.0), "outage", "requests", ""),
    (
        "new registration to the first answer of a caller that waits, p99",
        Bound::AtMost(100.0),
        "join",
        "p99",
        "ms",
    ),
    (
        "requests to etcd until all are registered again after a mass expiry, for each member",
        Bound::AtMost(4.0),
        "expiry",
        "requests",
        "",
    ),
    ("calls that a rogue's registrations got", Bound::AtMost(0.0), "rogue", "strangers", ""),
    ("dead members that a directory has for longer than it may", Bound::AtMost(0.0), "ghosts", "known", ""),
];
