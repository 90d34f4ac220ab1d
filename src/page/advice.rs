//! Says what is wrong right now, and what to do: the load, the parts and the peers of a sidecar in; advice out.

use capd_proto::message::{ListedPeer, PeerState};
use serde_json::{Value, json};

use crate::admin::Load;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    severity: Severity,
    what: String,
    todo: &'static str,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Calls fail, or soon will.
    Bad,
    /// It deserves a look.
    Odd,
}

impl Advice {
    fn new(severity: Severity, what: String, todo: &'static str) -> Self {
        Self { severity, what, todo }
    }

    pub(super) fn json(&self) -> Value {
        let severity = match self.severity {
            Severity::Bad => "bad",
            Severity::Odd => "odd",
        };
        json!({"severity": severity, "what": self.what, "do": self.todo})
    }
}

/// Everything that is wrong, the worst first.
pub(super) fn advice(load: &Load, status: &Value, peers: &[ListedPeer<'_>]) -> Vec<Advice> {
    let mut found = Vec::new();
    of_parts(status, &mut found);
    of_limits(load, &mut found);
    of_calls(load, &mut found);
    of_peers(peers, &mut found);
    found.sort_by_key(|advice| advice.severity);
    found.truncate(ADVICE_MAX);
    found
}

fn of_parts(status: &Value, found: &mut Vec<Advice>) {
    for part in status["parts"].as_array().into_iter().flatten() {
        let (name, detail) =
            (part["name"].as_str().unwrap_or_default(), part["detail"].as_str().unwrap_or_default());
        let severity = match part["state"].as_str() {
            Some("failed") => Severity::Bad,
            // Each peer has a line of its own.
            Some("degraded") if name != "peers" => Severity::Odd,
            _ => continue,
        };
        let todo = match name {
            "journal" => {
                "Free space on the disk of agent.dir; calls that are not idempotent are refused meanwhile."
            }
            "audit" => "Free space, or raise audit.file_bytes_max; `capctl audit prune` removes old records.",
            "listeners" => "The sidecar drains: start it again, or wait until it has stopped.",
            _ => "The sidecar's log says more.",
        };
        found.push(Advice::new(
            severity,
            format!("{name} {}: {detail}", part["state"].as_str().unwrap_or_default()),
            todo,
        ));
    }
}

fn of_limits(load: &Load, found: &mut Vec<Advice>) {
    for limit in &load.limits {
        if limit.refused_now > 0 {
            let what = format!("{} refused {} times in the last second", limit.key, limit.refused_now);
            found.push(Advice::new(
                Severity::Bad,
                what,
                "Raise the limit, or find who sends so much: see Calls and Peers.",
            ));
        } else if let (Some(share), Some(level), Some(max)) = (limit.share(), limit.level, limit.max)
            && share >= SHARE_ODD
        {
            let what = format!("{} is at {level} of {max}", limit.key);
            found.push(Advice::new(
                Severity::Odd,
                what,
                "Above the limit work is refused with 5004: raise it in time.",
            ));
        }
    }
}

fn of_calls(load: &Load, found: &mut Vec<Advice>) {
    for (role, calls) in &load.roles {
        let failed: f64 =
            calls.rates.iter().filter(|(outcome, _)| *outcome != "success").map(|(_, rate)| rate).sum();
        if calls.rate() >= 1.0 && failed / calls.rate() >= FAILED_ODD {
            let worst = calls.codes.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
            let code = worst.map_or_else(String::new, |((_, code), _)| format!(", mostly {code}"));
            let whose = if role == "caller" { "calls of the agent" } else { "calls served here" };
            let what = format!("{:.0} % of the {whose} fail{code}", 100.0 * failed / calls.rate());
            found.push(Advice::new(
                Severity::Bad,
                what,
                "Open Calls with the outcome \"failed\"; docs/errors.md explains each code.",
            ));
        }
    }
}

fn of_peers(peers: &[ListedPeer<'_>], found: &mut Vec<Advice>) {
    for peer in peers {
        let (severity, what, todo) = match peer.state {
            PeerState::Connected => continue,
            PeerState::Silent => {
                (Severity::Bad, "is silent", "Its process hangs or the network drops packets: look there.")
            }
            PeerState::Refused => {
                (Severity::Odd, "is refused", "Both sides must list each other's DID in [[peers]].")
            }
            PeerState::Unreachable => {
                (Severity::Odd, "cannot be reached", "Check its address in [[peers]], and that it runs.")
            }
            PeerState::Waiting => {
                (Severity::Odd, "has not connected", "This peer must connect by itself. Check that it runs.")
            }
        };
        let reason = peer.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        found.push(Advice::new(severity, format!("peer {} {what}{reason}", peer.did), todo));
    }
}

/// Share of a limit from which on it is told.
const SHARE_ODD: f64 = 0.8;
/// Share of calls that fail from which on it is told.
const FAILED_ODD: f64 = 0.05;
/// Most that is told at once.
const ADVICE_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::admin::{Calls, Limit};

    #[test]
    fn what_stops_calls_comes_before_what_is_only_odd() {
        let limit = |key: &str, level, refused_now| Limit {
            key: key.to_owned(),
            level: Some(level),
            max: Some(10),
            refused: refused_now,
            refused_now,
        };
        let rates = BTreeMap::from([("success".to_owned(), 90.0), ("error".to_owned(), 10.0)]);
        let codes = BTreeMap::from([(("error".to_owned(), "5003".to_owned()), 10.0)]);
        let calls = Calls { rates, codes, ..Calls::default() };
        let load = Load {
            roles: BTreeMap::from([("caller".to_owned(), calls)]),
            limits: vec![limit("limits.a", 9, 0), limit("limits.b", 0, 3), limit("limits.c", 1, 0)],
            ..Load::default()
        };
        let status = json!({"parts": [
            {"name": "journal", "state": "failed", "detail": "it cannot be written"},
            {"name": "policy", "state": "ok", "detail": "2 rules"},
            {"name": "peers", "state": "degraded", "detail": "0 of 1 connected"},
        ]});
        let peer = ListedPeer {
            did: "did:key:x".into(),
            name: None,
            state: PeerState::Unreachable,
            links: 0,
            reason: Some("timed out".into()),
        };
        let told: Vec<_> = advice(&load, &status, &[peer]).iter().map(|advice| advice.what.clone()).collect();
        assert_eq!(
            told,
            [
                "journal failed: it cannot be written",
                "limits.b refused 3 times in the last second",
                "10 % of the calls of the agent fail, mostly 5003",
                "limits.a is at 9 of 10",
                "peer did:key:x cannot be reached: timed out",
            ]
        );
    }

    #[test]
    fn a_sidecar_without_faults_needs_no_advice() {
        assert_eq!(advice(&Load::default(), &json!({"parts": []}), &[]), []);
    }
}
