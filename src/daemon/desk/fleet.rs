//! Answers REQUEST `fleet`: where the sidecar stands in its fleet, which names are registered, and who serves one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::capability::CapabilityName;
use capd_proto::code::Code;
use capd_proto::fleet::machine::{Candidate, Extent};
use capd_proto::fleet::{Address, Agent, State, Transport};
use capd_proto::message::{FleetCandidate, FleetName, FleetReport, FleetRequest, Response, Type};

use super::Desk;
use crate::daemon::context::{Inbound, Refusal};
use crate::fleet::{Fleet, Split};
use crate::health;

impl Desk {
    /// Answers once the registry has, or has not in time. **Errors:** 4001 for anybody but the agent, and for what is no
    /// name.
    pub(in crate::daemon) fn on_fleet(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        request: &FleetRequest<'_>,
    ) -> Result<(), Refusal> {
        if !inbound.link.kind().is_local() {
            // A peer learns no more than of an operation that we do not have.
            return Err(Refusal::new(Code::BAD_REQUEST, "the operation \"fleet\" is not known here"));
        }
        let asked = match request {
            FleetRequest::Status => Asked::Status,
            FleetRequest::Names => Asked::Names,
            FleetRequest::Why { name } => Asked::Why(
                name.parse()
                    .map_err(|error| Refusal::new(Code::BAD_REQUEST, format!("{name:?}: {error}")))?,
            ),
        };
        let desk = Arc::clone(self);
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.ctx.spawn(async move {
            let report = desk.fleet_report(asked).await;
            let mut body = Vec::new();
            Response::Fleet(Box::new(report)).encode(&mut body);
            let answer = desk.ctx.answer(&link, link.principal(), Some(id), Type::Response, &body);
            desk.ctx.send(&link, &route, answer);
        });
        Ok(())
    }

    async fn fleet_report(&self, asked: Asked) -> FleetReport<'static> {
        let (Some(fleet), Some(config)) = (self.fleet.registry(), self.fleet.config()) else {
            return FleetReport::default();
        };
        let began_us = self.ctx.clock.monotonic_us();
        let pinged = tokio::time::timeout(PATIENCE, fleet.ping()).await;
        let took_us = self.ctx.clock.monotonic_us().saturating_sub(began_us);
        let mut error = match &pinged {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        };
        let names = match asked {
            Asked::Status => Vec::new(),
            Asked::Names => match tokio::time::timeout(PATIENCE, fleet.names()).await {
                Ok(Ok(names)) => registered(names),
                Ok(Err(_)) | Err(_) => {
                    error.get_or_insert_with(|| "the names were not listed in time".to_owned());
                    Vec::new()
                }
            },
            Asked::Why(name) => vec![self.why(fleet, &name).await],
        };
        let status = fleet.status();
        let (state, detail) = self.fleet.condition(&status);
        let now_ms = self.ctx.clock.monotonic_ms();
        let health = match state {
            health::State::Ok => "ok",
            health::State::Degraded => "degraded",
            health::State::Failed => "failed",
        };
        FleetReport {
            cell: config.cell.as_str().to_owned().into(),
            health: health.into(),
            detail: detail.into(),
            registry: status.engine.endpoint.clone().into(),
            version: status.engine.version.clone().map(Cow::Owned),
            error: error.or_else(|| status.engine.error.clone()).map(Cow::Owned),
            revision: pinged.ok().and_then(Result::ok),
            took_us: Some(took_us),
            incarnation: status.fence.map(|fence| fence.incarnation),
            generation: status.registered,
            // One that drains has left, and reads no more: how old its knowledge is means nothing.
            stale_ms: (!self.ctx.draining.is_cancelled())
                .then(|| status.stale_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms))),
            revocations_age_ms: self.fleet.revocations_age_ms(&status),
            is_frozen: status.is_frozen,
            refused: self
                .fleet
                .refused()
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(why, count)| (why.into(), count))
                .collect(),
            split: fleet
                .splits()
                .iter()
                .map(|(agent, split)| (agent.did().to_string().into(), self.split(split).into()))
                .collect(),
            names,
        }
    }

    /// Who serves a name, as a call of it finds them: the name is wanted from here on.
    async fn why(&self, fleet: &Fleet, name: &CapabilityName) -> FleetName<'static> {
        let mut changes = fleet.watch();
        let _known = fleet.want(name);
        let listed = async {
            while fleet.listing(name).is_none_or(|extent| extent == Extent::Listing) {
                changes.changed().await;
            }
        };
        let is_told = tokio::time::timeout(PATIENCE, listed).await.is_ok();
        let candidates = fleet.candidates(name).unwrap_or_default();
        let note = match fleet.listing(name) {
            _ if !is_told => Some("the registry has not told yet who serves it"),
            Some(Extent::Unanswered) => Some("the registry does not answer; these are known from before"),
            Some(_) | None if candidates.is_empty() => Some("nobody has registered it"),
            Some(_) | None => None,
        };
        let mut told = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            told.push(self.candidate(fleet, candidate, at));
        }
        FleetName { name: name.as_str().to_owned().into(), note: note.map(Cow::Borrowed), candidates: told }
    }

    fn candidate(&self, fleet: &Fleet, candidate: &Candidate, at: usize) -> FleetCandidate<'static> {
        let registration = &candidate.registration;
        let peer = candidate.did.clone();
        let peers = &self.directory.peers;
        let links = peers.links(&peer);
        let cause = self.directory.unlinked.cause(&peer).map(|cause| cause.text);
        let split = fleet.splits().into_iter().find(|(agent, _)| *agent == registration.agent);
        let (state, reason) = if let Some((_, split)) = split {
            ("split", Some(format!("{}; {STOP_ONE}", self.split(&split))))
        } else if registration.state == State::Draining {
            ("draining", Some("it takes no new calls".to_owned()))
        } else if links > 0 && !peers.is_responsive(&peer) {
            ("silent", Some("it answers no PING".to_owned()))
        } else if links > 0 && !peers.is_known(&peer) {
            ("linked", Some("it has not said yet what it serves".to_owned()))
        } else if links > 0 && candidate.is_listed() {
            ("linked", None)
        } else if links > 0 {
            ("linked", Some("its registration is gone; its link is alive".to_owned()))
        } else if candidate.has_failed() {
            ("failed", Some(cause.unwrap_or_else(|| "it could not be reached".to_owned())))
        } else if !candidate.is_listed() {
            (
                "suspect",
                Some("its registration is gone; it is tried after those that are registered".to_owned()),
            )
        } else if let Some(cause) = cause {
            ("unlinked", Some(cause))
        } else {
            ("spare", Some(format!("not needed: number {} in this sidecar's order", at + 1)))
        };
        FleetCandidate {
            did: peer.as_str().to_owned().into(),
            state: Some(state.into()),
            reason: reason.map(Cow::Owned),
            zone: registration.zone.clone().map(Cow::Owned),
            links: Some(links as u64),
            versions: registration.versions.iter().map(|served| served.version.to_string().into()).collect(),
            addresses: registration.addresses.iter().map(|address| shown(address).into()).collect(),
            incarnation: Some(registration.fence.incarnation),
        }
    }
}

impl Desk {
    /// Why no non-idempotent call goes to an agent of which two processes live, and how that ends.
    pub(super) fn split(&self, Split { journals: [one, other], until_ms }: &Split) -> String {
        let left_s = until_ms.saturating_sub(self.ctx.clock.monotonic_ms()).div_ceil(1_000);
        format!(
            "two processes have its identity, with the journals {one} and {other}; non-idempotent calls go to it \
             again {left_s} s after one of them has ended"
        )
    }
}

/// How an owner ends a split.
pub(super) const STOP_ONE: &str = "stop one of the two; a second machine needs a key of its own: capd init";

/// What is asked.
enum Asked {
    Status,
    Names,
    Why(CapabilityName),
}

fn registered(names: crate::fleet::Names) -> Vec<FleetName<'static>> {
    let candidate = |agent: &Agent| FleetCandidate {
        did: agent.did().as_str().to_owned().into(),
        ..FleetCandidate::default()
    };
    let name = |(name, agents): (CapabilityName, std::collections::BTreeSet<Agent>)| FleetName {
        name: name.as_str().to_owned().into(),
        note: None,
        candidates: agents.iter().take(AGENTS_MAX).map(candidate).collect(),
    };
    names.agents.into_iter().take(NAMES_MAX).map(name).collect()
}

fn shown(Address { transport, host, port }: &Address) -> String {
    let scheme = match transport {
        Transport::Quic => "quic",
        Transport::Tcp => "tcp",
    };
    match host.contains(':') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}

/// How long the registry has to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Names and agents of one report.
const NAMES_MAX: usize = 2_000;
const AGENTS_MAX: usize = 64;
