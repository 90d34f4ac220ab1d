//! Opens links to the agents that calls want, one round of dialling at a time, and lets them go when nobody does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::fleet::machine::LetGoWhy;
use capd_proto::fleet::{Address, Agent, Membership, Transport};
use capd_proto::identity::Did;
use tokio_util::sync::CancellationToken;

use super::{Fleet, Part};
use crate::daemon::context::lock;
use crate::daemon::directory::expected::Reason;
use crate::net::{Link, dial};

impl Fleet {
    /// A link to a peer has opened; before anything is asked on it.
    pub(in crate::daemon) fn on_open(&self, link: &Link) {
        let Some(registry) = self.registry() else { return };
        let Ok(agent) = Agent::from_did(link.principal().as_str()) else { return };
        if let Some(membership) = link.membership() {
            self.directory.serves.member(link.principal().clone(), Arc::clone(membership));
        }
        registry.link_opened(agent, link.fence());
        // A member that its registry does not know yet names its journal alone.
        registry.link_heard(agent, link.journal());
        // The word may have come since HELLO was judged.
        if let Some(serial_min) = registry.revoked_below(&agent) {
            self.revoked(agent, serial_min);
        }
    }

    /// The last link to a peer has closed.
    pub(in crate::daemon) fn on_gone(&self, peer: &Did) {
        let Some(registry) = self.registry() else { return };
        self.directory.peers.unexpect(peer, Reason::Wanted);
        if let Ok(agent) = Agent::from_did(peer.as_str()) {
            registry.link_closed(agent);
        }
    }

    /// Nobody answered at any address of a peer that the owner configured.
    pub(in crate::daemon) fn on_unreachable(&self, peer: &Did) {
        // Whom we dial by ourselves is reported by whoever dials.
        if let (Some(registry), true) = (self.registry(), self.directory.peers.is_configured(peer))
            && let Ok(agent) = Agent::from_did(peer.as_str())
        {
            registry.dial_failed(agent);
        }
    }

    /// Tells the registry's side which members have given a sign of life, now and then, until shutdown.
    pub(in crate::daemon) async fn keep_hearing(&self) {
        let (Some(registry), Some(config)) = (self.registry(), self.config()) else { return };
        // FLEET X12: two processes of one member are seen to live for as long as they do.
        let every = HEARING_EVERY.min(Duration::from_millis(config.ttl_ms / 2));
        let mut heard_ms = BTreeMap::new();
        loop {
            tokio::time::sleep(every).await;
            let mut connected = BTreeMap::new();
            for (peer, journal, at_ms) in self.directory.peers.heard() {
                let process = (peer, journal);
                let is_news = heard_ms.get(&process).is_none_or(|last_ms| *last_ms < at_ms);
                if is_news && let Ok(agent) = Agent::from_did(process.0.as_str()) {
                    registry.link_heard(agent, journal);
                }
                connected.insert(process, at_ms);
            }
            heard_ms = connected;
        }
    }

    /// FLEET D3: one round of dialling; another one comes when the registry's side says so.
    pub(super) fn dial(self: &Arc<Self>, agent: Agent, addresses: &[Address]) {
        let Some(part) = &self.part else { return };
        let peer = agent.did();
        // The owner's own addresses are dialled for as long as the sidecar runs.
        if self.directory.peers.is_configured(&peer) {
            return;
        }
        let given_up = CancellationToken::new();
        if let Some(former) = lock(&part.dials).insert(agent, given_up.clone()) {
            former.cancel();
        }
        self.directory.peers.expect(peer.clone(), Reason::Wanted);
        let addresses: Vec<_> = addresses.iter().map(address).collect();
        let fleet = Arc::clone(self);
        self.ctx.spawn(async move {
            let host = fleet.part.as_ref().and_then(Part::host);
            let dialled = async {
                match host {
                    Some(host) => dial::dial_once(&host, &peer, &addresses).await,
                    None => None,
                }
            };
            let outcome = given_up.run_until_cancelled(dialled).await;
            fleet.dialled(agent, &peer, &given_up, outcome.flatten().is_some());
        });
    }

    fn dialled(&self, agent: Agent, peer: &Did, given_up: &CancellationToken, is_linked: bool) {
        let Some(part) = &self.part else { return };
        // A later dial has taken the place of one that was given up.
        let is_last = !given_up.is_cancelled();
        if is_last {
            lock(&part.dials).remove(&agent);
        }
        if is_linked {
            return;
        }
        if is_last || !lock(&part.dials).contains_key(&agent) {
            self.directory.peers.unexpect(peer, Reason::Wanted);
        }
        if let Some(registry) = part.registry.get() {
            registry.dial_failed(agent);
        }
    }

    /// Others have answered: the dial of an agent ends.
    pub(super) fn give_up(&self, agent: Agent) {
        let dial = self.part.as_ref().and_then(|part| lock(&part.dials).remove(&agent));
        if let Some(dial) = dial {
            dial.cancel();
        }
    }

    /// The link to an agent closes once no call needs it. One that the owner configured stays.
    pub(super) fn let_go(&self, agent: Agent, why: LetGoWhy) {
        let Some(part) = &self.part else { return };
        let peer = agent.did();
        if let LetGoWhy::OldProcess { before } = why {
            tracing::debug!(%peer, "links to an old process are let go");
            let is_old = |link: &&Arc<Link>| link.fence().is_some_and(|fence| fence.incarnation < before);
            return self.directory.peers.links_of(&peer).iter().filter(is_old).for_each(|link| link.drain());
        }
        if let Some(dial) = lock(&part.dials).remove(&agent) {
            dial.cancel();
        }
        let is_configured = self.directory.peers.is_configured(&peer);
        if is_configured {
            return;
        }
        tracing::debug!(%peer, "an idle link is let go");
        self.directory.peers.unexpect(&peer, Reason::Wanted);
        self.directory.peers.links_of(&peer).iter().for_each(|link| link.drain());
    }

    /// The authority has ended memberships of an agent: its links end, and no call in flight is cut off.
    pub(super) fn revoked(&self, agent: Agent, serial_min: u64) {
        let peer = agent.did();
        let is_over = |membership: &Arc<Membership>| membership.serial < serial_min;
        if self.directory.serves.membership(&peer).is_some_and(|membership| is_over(&membership)) {
            tracing::warn!(%peer, "the links to a member end: its membership is revoked");
            return self.directory.end_member(&peer);
        }
        // It has come back with a later one.
        let links = self.directory.peers.links_of(&peer);
        links.iter().filter(|link| link.membership().is_some_and(is_over)).for_each(|link| link.drain());
    }
}

impl Part {
    fn host(&self) -> Option<Arc<crate::net::Host>> {
        self.host.get().and_then(std::sync::Weak::upgrade)
    }
}

fn address(address: &Address) -> dial::Address {
    let transport = match address.transport {
        Transport::Quic => dial::Transport::Quic,
        Transport::Tcp => dial::Transport::Tcp,
    };
    // A registered name may stand for other sidecars as well.
    let is_shared = address.host.parse::<IpAddr>().is_err();
    dial::Address { transport, host: address.host.clone(), port: address.port, is_shared }
}

/// How often the registry's side hears who lives.
const HEARING_EVERY: Duration = Duration::from_secs(5);
