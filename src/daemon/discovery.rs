//! Peers' links in; what the peers serve, registered, and their schemas, verified, out.

mod answer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ContentHash, Descriptor, DocRequest, DocSend, Query, Type};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answer::Answer;
use super::executor::refused_artifact;
use super::hashes;
use super::inbound::Inbound;
use super::node::{Node, Refusal, lock};
use super::serves::Beyond;
use crate::net::{Link, Service as _};
use crate::policy::Caller;
use crate::registry::snapshot::{Event, Origin};
use crate::schema::{Artifact, Keep};

/// Schemas that are being fetched; the token is set when a fetch ends.
pub(super) type Fetches = Mutex<HashMap<ContentHash, CancellationToken>>;

impl Node {
    pub(super) fn on_peer_open(&self, link: &Arc<Link>) {
        tracing::info!(peer = %link.principal(), remote = link.remote(), kind = %link.kind(), "peer connected");
        // What it may call is decided before it asks, so that its first question takes as long as any.
        let _decided = self.policy.view(Caller { did: link.principal(), alias: None });
        self.unlinked.linked(link.principal());
        let Some(node) = self.shared() else { return };
        if let Some(gone) = self.peers.add(link) {
            let peer = link.principal().clone();
            self.spawn(async move { node.keep_asking(&peer, &gone).await });
        }
    }

    pub(super) fn on_peer_close(&self, link: &Arc<Link>) {
        {
            let _registering = self.peers.register();
            if self.peers.remove(link) {
                tracing::info!(peer = %link.principal(), "peer gone");
                self.registry.apply(Event::Gone(Origin::Peer(link.principal().clone())));
                self.serves.gone(link.principal());
            }
        }
        self.on_link_lost(link);
    }

    /// Asks a peer what it serves, now and then, for as long as it stays.
    async fn keep_asking(&self, peer: &Did, gone: &CancellationToken) {
        while !gone.is_cancelled() {
            // Between two questions nothing of one is kept.
            Box::pin(self.refresh(peer)).await;
            let pause = Duration::from_millis(self.rules.refresh_ms);
            gone.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Asks a peer what it serves and registers the answer.
    pub(super) async fn refresh(&self, peer: &Did) {
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
                    self.serves.note(peer, beyond);
                    self.prove_ahead(peer, &descriptors);
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
                if is_known {
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
    pub(super) fn or_misunderstood(
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
            let why = "its serves in [[peers]] does not allow it";
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

    /// Looks at what a peer declared with this schema again, once its bytes are here, and lets go of what is not as its
    /// hash says.
    fn check_fetched(&self, peer: &Did, hash: &ContentHash) {
        let origin = Origin::Peer(peer.clone());
        let snapshot = self.registry.snapshot();
        let names_it = |descriptor: &Descriptor| {
            let mut schemas = [&descriptor.input_schema, &descriptor.output_schema].into_iter().flatten();
            schemas.any(|schema| schema.hash() == Some(hash))
        };
        let served: Vec<_> = snapshot.served_by(&origin).map(|entry| Arc::clone(&entry.descriptor)).collect();
        let mut wrong = Vec::new();
        for descriptor in served.iter().filter(|descriptor| names_it(descriptor)).take(HASHED_MAX) {
            if let Err(problem) = hashes::check(descriptor, &self.artifacts) {
                tracing::warn!(%peer, capability = %descriptor.id, problem, "a peer's capability is not used");
                wrong.push((descriptor.id.clone(), problem));
            }
        }
        if wrong.is_empty() {
            return;
        }
        let mut descriptors = served;
        descriptors.retain(|descriptor| !wrong.iter().any(|(id, _)| *id == descriptor.id));
        self.registry.apply(Event::Declared { origin, descriptors });
        self.peers.contradicted(peer, wrong);
    }

    /// Asks every peer, or one, what it serves, side by side.
    pub(super) async fn refresh_all(&self, only: Option<&Did>) {
        let (asked, given_up) = (TaskTracker::new(), CancellationToken::new());
        let _given_up_at_the_end = given_up.clone().drop_guard();
        for peer in self.peers.connected().into_iter().filter(|peer| only.is_none_or(|only| only == peer)) {
            if let Some(node) = self.shared() {
                let (asked, given_up) = (asked.token(), given_up.clone());
                self.spawn(async move {
                    let _asked = asked;
                    given_up.run_until_cancelled(node.refresh(&peer)).await;
                });
            }
        }
        asked.close();
        if tokio::time::timeout(Duration::from_millis(REFRESH_MS), asked.wait()).await.is_err() {
            tracing::debug!("not every peer listed its capabilities in time");
        }
        if only.is_none() {
            self.peers.refreshed(self.clock.monotonic_ms());
        }
    }

    /// Meets the agent's question about what peers serve again once they have been asked, unless they were just now.
    pub(super) fn defer_until_fresh(&self, inbound: &Inbound<'_>) -> bool {
        let is_fresh = !inbound.link.kind().is_local() || self.peers.is_fresh(self.clock.monotonic_ms());
        let Some(node) = self.shared().filter(|_| !is_fresh) else { return false };
        let (link, route, payload) =
            (Arc::clone(inbound.link), inbound.route.clone(), inbound.payload.clone());
        self.spawn(async move {
            node.await_unknown().await;
            node.refresh_all(None).await;
            node.on_message(&link, &route, payload);
        });
        true
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
        let mut gathered = Answer::new(link.principal(), &self.serves, &self.rules.limits, &self.meter);
        let mut cursor: Option<String> = None;
        loop {
            let asked = self.ask(link, Type::CapQuery, &all_from(cursor.take()), ASK_MS)?;
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

    /// A peer's schema document, verified; asked for once however many calls need it.
    pub(super) async fn fetch_schema(&self, peer: &Did, hash: ContentHash) -> Result<Arc<Artifact>, Refusal> {
        loop {
            if let Some(artifact) = self.artifacts.find(&hash) {
                return Ok(artifact);
            }
            let under_way = {
                let mut fetches = lock(&self.fetches);
                match fetches.get(&hash) {
                    Some(ended) => Some(ended.clone()),
                    None => {
                        fetches.insert(hash, CancellationToken::new());
                        None
                    }
                }
            };
            let Some(ended) = under_way else {
                // Whoever fetches may stop waiting, and then the next one fetches.
                let _fetch = Fetch { fetches: &self.fetches, hash };
                return self.fetch(peer, hash).await;
            };
            ended.cancelled().await;
        }
    }

    async fn fetch(&self, peer: &Did, hash: ContentHash) -> Result<Arc<Artifact>, Refusal> {
        let link = self.peers.link(peer);
        let link = link.ok_or_else(|| {
            Refusal::new(Code::UNAVAILABLE, "the peer that has the schema is not connected")
        })?;
        let mut body = Vec::new();
        DocRequest { hash: hash.as_bytes().into() }.encode(&mut body);
        let answer = self.ask(&link, Type::DocRequest, &body, ASK_MS)?.answer().await?;
        // PROTOCOL 7.2: bytes missing or hash wrong are 5002, in whichever way the peer got them wrong.
        let unusable = |error: &dyn std::fmt::Display| Refusal::new(Code::UNAVAILABLE, error.to_string());
        let document = DocSend::decode(&answer.body).map_err(|error| unusable(&error))?;
        document.verify(&hash).map_err(|error| unusable(&error))?;
        let artifact = self
            .artifacts
            .insert(hash, document.data.into_owned(), Keep::Cached)
            .map_err(refused_artifact)?;
        self.check_fetched(peer, &hash);
        Ok(artifact)
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

/// A fetch that is under way until it is dropped.
struct Fetch<'a> {
    fetches: &'a Fetches,
    hash: ContentHash,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        if let Some(ended) = lock(self.fetches).remove(&self.hash) {
            ended.cancel();
        }
    }
}

/// Time for peers that are connecting before the agent's question is answered without them, in milliseconds.
const CONNECT_MS: u64 = 1_000;
/// Time for all peers to say what they serve before the agent's question is answered, in milliseconds.
const REFRESH_MS: u64 = 3_000;
/// Time for a peer to answer a question of ours, in milliseconds.
const ASK_MS: u64 = 10_000;
/// Descriptors of one answer that are hashed to see whether they say it right.
const HASHED_MAX: usize = 64;
