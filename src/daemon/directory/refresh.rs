//! Asks connected peers what they serve, and registers it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use capd_proto::capability::{CapabilityId, CapabilityName};
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{Descriptor, Query, Type};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::Answer;
use super::serves::Beyond;
use super::{Directory, hashes};
use crate::daemon::context::Refusal;
use crate::daemon::context::inbound::Again;
use crate::net::Link;
use crate::registry::snapshot::{Event, Origin};

impl Directory {
    /// A link to a peer has opened.
    pub(in crate::daemon) fn on_open(self: &Arc<Self>, link: &Arc<Link>) {
        self.unlinked.linked(link.principal());
        let (directory, peer) = (Arc::clone(self), link.principal().clone());
        match self.peers.add(link) {
            Some(gone) => self.ctx.spawn(async move { directory.keep_asking(&peer, &gone).await }),
            // It was taken off the list and put on it again while a link of before was still ending.
            None if self.peers.returns(&peer) => {
                self.ctx.spawn(async move { directory.refresh(&peer).await })
            }
            None => {}
        }
    }

    /// A link to a peer has closed; whether it was the last one.
    pub(in crate::daemon) fn on_close(&self, link: &Arc<Link>) -> bool {
        let _registering = self.peers.register();
        let is_last = self.peers.remove(link);
        if is_last {
            tracing::info!(peer = %link.principal(), "peer gone");
            self.registry.apply(Event::Gone(Origin::Peer(link.principal().clone())));
            self.serves.gone(link.principal());
        }
        is_last
    }

    /// Asks a peer what it serves, now and then, for as long as it stays.
    async fn keep_asking(&self, peer: &Did, gone: &CancellationToken) {
        while !gone.is_cancelled() {
            // Between two questions nothing of one is kept.
            Box::pin(self.refresh(peer)).await;
            let pause = Duration::from_millis(self.ctx.config().peer.refresh_ms);
            gone.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Asks a peer what it serves and registers the answer.
    pub(in crate::daemon) async fn refresh(&self, peer: &Did) {
        // An answer is held while its next page is awaited, so one peer has few under way.
        let Some(turn) = self.peers.turn(peer) else { return };
        let Ok(_turn) = turn.acquire_owned().await else { return };
        let Some(link) = self.peers.link(peer) else { return };
        // Questions overlap: those of the agent, of calls, and the regular one. What is known is what the latest says.
        let question = self.peers.ask(peer);
        match self.served_by(&link).await {
            Ok((descriptors, beyond)) => {
                let (descriptors, contradictions) = self.consistent(peer, descriptors);
                tracing::debug!(%peer, capabilities = descriptors.len(), "peer serves");
                let _registering = self.peers.register();
                if self.peers.is_newest(peer, link.id(), question) {
                    // A reload may have taken something away since the peer was asked.
                    let mut descriptors = descriptors;
                    descriptors.retain(|descriptor| self.serves.allows(peer, &descriptor.id.name));
                    self.serves.note(peer, beyond);
                    self.registry.apply(Event::Declared { origin: Origin::Peer(peer.clone()), descriptors });
                    self.peers.learnt(peer);
                    self.peers.contradicted(peer, contradictions);
                }
            }
            Err(refusal) => {
                let is_its_fault = refusal.code == Code::CONTRACT_ERROR;
                let mut is_known = false;
                let _registering = self.peers.register();
                if is_its_fault && self.peers.is_newest(peer, link.id(), question) {
                    self.registry.apply(Event::Gone(Origin::Peer(peer.clone())));
                    is_known = self.peers.misunderstood(peer, refusal.clone());
                }
                let (code, reason) = (refusal.code, refusal.message);
                // A peer that drains says GOAWAY on each link, and need not list anything.
                if is_known || link.is_draining() {
                    tracing::debug!(%peer, %code, reason, "the peer still does not list its capabilities");
                } else {
                    tracing::warn!(%peer, %code, reason, "the peer does not list its capabilities");
                }
            }
        }
    }

    /// PROTOCOL 7.2: a name that nobody serves may be one that a peer serves in a format newer than we read, 4905.
    ///
    /// So may be a name, if it is one that is asked for, whose contract is not what its hash says.
    pub(in crate::daemon) fn or_misunderstood(
        &self,
        refusal: Refusal,
        name: Option<&str>,
        only: Option<&Did>,
    ) -> Refusal {
        let is_unknown = refusal.code == Code::CAPABILITY_NOT_FOUND;
        let is_unserved = is_unknown || refusal.code == Code::VERSION_MISMATCH;
        let name = name.filter(|_| is_unserved);
        let contradiction = name.and_then(|name| self.peers.contradiction(name, only));
        let withheld = || {
            let peer = self.serves.withheld(name?, only)?;
            let why = "neither its serves in [[peers]] nor its membership allows it";
            Some(Refusal::new(refusal.code, format!("{peer} declares {}, and {why}", name?)))
        };
        contradiction
            .or_else(withheld)
            .or_else(|| self.peers.fault(only).filter(|_| is_unknown))
            .unwrap_or(refusal)
    }

    /// The descriptors whose hashes are those of what they promise, as far as their schemas are here, and the others.
    ///
    /// A contract that is not what its hash says has changed in silence, so nobody calls it.
    fn consistent(
        &self,
        peer: &Did,
        descriptors: Vec<Arc<Descriptor>>,
    ) -> (Vec<Arc<Descriptor>>, Vec<(CapabilityId, String)>) {
        let origin = Origin::Peer(peer.clone());
        let snapshot = self.registry.snapshot();
        let is_known = |descriptor: &Arc<Descriptor>| {
            let mut entries = snapshot.entries(descriptor.id.name.as_str()).iter();
            entries.any(|entry| entry.origin == origin && entry.descriptor == *descriptor)
        };
        let (mut consistent, mut contradictions, mut checked) = (Vec::new(), Vec::new(), 0);
        for descriptor in descriptors {
            // What is registered has been looked at; a peer cannot make us hash without end.
            let is_checked = checked >= HASHED_MAX || is_known(&descriptor);
            checked += usize::from(!is_checked);
            match if is_checked { Ok(()) } else { hashes::check(&descriptor, &self.artifacts) } {
                Ok(()) => consistent.push(descriptor),
                Err(problem) => {
                    tracing::warn!(%peer, capability = %descriptor.id, problem, "a peer's capability is not used");
                    contradictions.push((descriptor.id.clone(), problem));
                }
            }
        }
        (consistent, contradictions)
    }

    /// Asks every peer, or one, what it serves, side by side; for a call, those that may serve its name.
    pub(in crate::daemon) async fn refresh_all(self: &Arc<Self>, only: Option<&Did>, name: Option<&str>) {
        let (asked, given_up) = (TaskTracker::new(), CancellationToken::new());
        let _given_up_at_the_end = given_up.clone().drop_guard();
        let name: Option<CapabilityName> = name.and_then(|name| name.parse().ok());
        let is_asked = |peer: &Did| {
            only.is_none_or(|only| only == peer)
                && name.as_ref().is_none_or(|name| self.serves.may_allow(peer, name))
        };
        for peer in self.peers.connected().into_iter().filter(is_asked) {
            let (directory, asked, given_up) = (Arc::clone(self), asked.token(), given_up.clone());
            self.ctx.spawn(async move {
                let _asked = asked;
                given_up.run_until_cancelled(directory.refresh(&peer)).await;
            });
        }
        asked.close();
        if tokio::time::timeout(Duration::from_millis(REFRESH_MS), asked.wait()).await.is_err() {
            tracing::debug!("not every peer listed its capabilities in time");
        }
        if only.is_none() && name.is_none() {
            self.peers.refreshed(self.ctx.clock.monotonic_ms());
        }
    }

    /// What to wait for before the agent's question about what peers serve is answered: until they have been asked. None where
    /// they were just now.
    pub(in crate::daemon) fn until_fresh(self: &Arc<Self>) -> Option<Again> {
        if self.peers.is_fresh(self.ctx.clock.monotonic_ms()) {
            return None;
        }
        let directory = Arc::clone(self);
        Some(Box::pin(async move {
            directory.await_unknown().await;
            directory.refresh_all(None, None).await;
            Vec::new()
        }))
    }

    /// Gives peers that are still connecting a moment to say what they serve.
    async fn await_unknown(&self) {
        let mut changes = self.peers.watch();
        let all = async {
            let may_come = |did: &Did| self.unlinked.lasting(did).is_none();
            while self.peers.unknown().iter().any(may_come) {
                changes.changed().await;
            }
        };
        if tokio::time::timeout(Duration::from_millis(CONNECT_MS), all).await.is_err() {
            tracing::debug!("not every peer is connected");
        }
    }

    /// What a peer serves and may serve, and what it declares beyond that.
    async fn served_by(&self, link: &Arc<Link>) -> Result<(Vec<Arc<Descriptor>>, Beyond), Refusal> {
        let config = Guard::into_inner(self.ctx.config());
        let mut gathered = Answer::new(link.principal(), &self.serves, &config.limits, &self.account.meter);
        let mut cursor: Option<String> = None;
        loop {
            let asked = self.asks.ask(link, Type::CapQuery, &all_from(cursor.take()), ASK_MS)?;
            let answer = match asked.answer().await {
                Ok(answer) => answer,
                // PROTOCOL 7.1: a peer that serves nothing says so with 4002.
                Err(refusal) if refusal.code == Code::CAPABILITY_NOT_FOUND => return Ok(gathered.end()),
                Err(refusal) => return Err(refusal),
            };
            cursor = gathered.take(&answer.body)?;
            if cursor.is_none() {
                return Ok(gathered.end());
            }
        }
    }
}

/// The body of a question for everything that a peer serves, from `cursor` on.
fn all_from(cursor: Option<String>) -> Vec<u8> {
    let query = Query {
        capability: Some("*".into()),
        limit: Some(capd_proto::limits::QUERY_LIMIT_MAX),
        cursor: cursor.map(Into::into),
        ..Query::default()
    };
    let mut body = Vec::new();
    query.encode(&mut body);
    body
}

/// Time for peers that are connecting before the agent's question is answered without them, in milliseconds.
const CONNECT_MS: u64 = 1_000;
/// Time for all peers to say what they serve before the agent's question is answered, in milliseconds.
const REFRESH_MS: u64 = 3_000;
/// Time for a peer to answer a question of ours, in milliseconds.
pub(super) const ASK_MS: u64 = 10_000;
/// Descriptors of one answer that are hashed to see whether they say it right.
pub(super) const HASHED_MAX: usize = 64;
