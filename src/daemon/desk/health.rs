//! Tells [`health`](crate::health) how each part of the sidecar is.

use capd_proto::message::{MetricFamily, PeerState};

use super::Desk;
use crate::health::{Part, Source, State};
use crate::net::Kind;

impl Source for Desk {
    fn parts(&self) -> Vec<Part> {
        let parts = [self.work(), self.journal(), self.audit(), self.policy(), self.agents(), self.peers()];
        parts.into_iter().chain(self.registry()).collect()
    }

    fn metrics(&self) -> Vec<MetricFamily<'static>> {
        Desk::metrics(self)
    }
}

impl Desk {
    /// A sidecar that drains takes no calls any more. Its listeners stand from the start to the end.
    fn work(&self) -> Part {
        if self.ctx.draining.is_cancelled() {
            return part("listeners", State::Failed, "the sidecar drains and takes no new calls");
        }
        part("listeners", State::Ok, "new calls are taken")
    }

    fn journal(&self) -> Part {
        let counters = self.executor.journal_counters();
        if counters.is_full {
            return part("journal", State::Failed, "its disk is full, or a quota or limit is reached");
        }
        if counters.is_failing {
            return part("journal", State::Failed, "it cannot be written; the log says why");
        }
        part("journal", State::Ok, format!("{} changes written", counters.changes))
    }

    fn audit(&self) -> Part {
        let audit = &self.account.audit;
        let counters = audit.counters();
        if audit.is_off() {
            part("audit", State::Ok, "off")
        } else if counters.is_failing {
            part("audit", State::Failed, "records are lost: the log cannot be written")
        } else if counters.lost > 0 {
            part("audit", State::Degraded, format!("{} records were lost", counters.lost))
        } else {
            part("audit", State::Ok, format!("{} % of its bound in use", counters.used_percent))
        }
    }

    fn policy(&self) -> Part {
        part("policy", State::Ok, format!("{} rules", self.door.policy.rules().shown().len()))
    }

    /// A sidecar whose agent is away answers its callers, with 5002 where only that agent serves.
    fn agents(&self) -> Part {
        let host = self.host.get().and_then(std::sync::Weak::upgrade);
        let open = host.map(|host| host.levels().open).unwrap_or_default();
        let is_local = |kind: &Kind| kind.is_local();
        let links: usize = open.iter().filter(|(kind, _)| is_local(kind)).map(|(_, count)| count).sum();
        part("agents", State::Ok, format!("{links} local links"))
    }

    /// FLEET D5: without its registry a sidecar goes on with whom it knows. One whose identity another process has takes
    /// no journaled calls.
    fn registry(&self) -> Option<Part> {
        let status = self.fleet.registry()?.status();
        let (state, detail) = self.fleet.condition(&status);
        Some(part("registry", state, detail))
    }

    /// Peers come and go, which is no fault of the sidecar's.
    fn peers(&self) -> Part {
        let peers = self.listed_peers();
        let connected = peers.iter().filter(|peer| peer.state == PeerState::Connected).count();
        let state = if connected < peers.len() { State::Degraded } else { State::Ok };
        part("peers", state, format!("{connected} of {} connected", peers.len()))
    }
}

fn part(name: &'static str, state: State, detail: impl Into<String>) -> Part {
    Part { name, state, detail: detail.into() }
}
