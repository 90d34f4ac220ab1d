//! Records who may be a peer, the links to each, and what it declared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::identity::{Did, PublicKey};
use capd_proto::ledger::JournalId;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::expected::{Expected, Reason};
use crate::changes::{Changes, Watch};
use crate::daemon::context::{Refusal, lock};
use crate::net::{Clock, Link, LinkId};

/// The peers of this sidecar.
pub(in crate::daemon) struct Peers {
    clock: Clock,
    /// Peers that we dial, whose capabilities are therefore worth waiting for.
    expected: Expected,
    state: Mutex<BTreeMap<Did, Peer>>,
    /// Held while what a peer says, or that it is gone, is decided on and registered.
    registering: Mutex<()>,
    /// When all peers were last asked what they serve. **Units:** monotonic milliseconds.
    refreshed_ms: AtomicU64,
    /// Counts changes of links and of what is known, for those who wait for one.
    changes: Changes,
    /// Whether a link was asked for a sign of life since that was last looked at.
    is_asking: AtomicBool,
    /// Wakes who probes links.
    asking: Notify,
    /// Counts answers to PING, for those who wait for one.
    answers: Changes,
}

struct Peer {
    /// One at least.
    links: Vec<Arc<Link>>,
    /// Set when the last link is gone.
    gone: CancellationToken,
    /// Whether the peer has answered a query since its first link opened.
    is_known: bool,
    /// Whether somebody is about to ask it what it serves.
    is_to_be_asked: bool,
    /// Whether its links end because it was taken off the list of peers.
    was_taken_off: bool,
    /// Why what it said last cannot be read.
    fault: Option<Refusal>,
    /// What it said of these capabilities contradicts itself.
    contradictions: Vec<(CapabilityId, String)>,
    /// How often it was asked what it serves.
    asked: u64,
    /// Which of those questions its newest answer belongs to.
    answered: u64,
    /// Bounds how many answers are read at once.
    turns: Arc<Semaphore>,
}

impl Peers {
    pub(in crate::daemon) fn new(clock: Clock) -> Self {
        Self {
            clock,
            expected: Expected::default(),
            state: Mutex::default(),
            registering: Mutex::default(),
            refreshed_ms: AtomicU64::new(0),
            changes: Changes::default(),
            is_asking: AtomicBool::new(false),
            asking: Notify::new(),
            answers: Changes::default(),
        }
    }

    /// Expects these peers, and no other for this reason: what they serve is worth waiting for.
    pub(in crate::daemon) fn replace_expected(&self, dids: BTreeSet<Did>, reason: Reason) {
        self.expected.replace(dids, reason);
        self.changed();
    }

    /// Drains the links to a peer that is not to have any, and forgets that it said what it serves.
    pub(super) fn take_off(&self, did: &Did) {
        let links = {
            let mut state = lock(&self.state);
            let Some(peer) = state.get_mut(did) else { return };
            (peer.is_known, peer.is_to_be_asked, peer.was_taken_off) = (false, false, true);
            // Answers to questions of before are of no use.
            peer.answered = peer.asked;
            peer.links.clone()
        };
        links.iter().for_each(|link| link.drain());
    }

    /// Whether a peer that was taken off the list is on it again, and has a link beside those that end.
    pub(super) fn returns(&self, did: &Did) -> bool {
        let mut state = lock(&self.state);
        state.get_mut(did).is_some_and(|peer| std::mem::take(&mut peer.was_taken_off))
    }

    /// Has a peer be asked again what it serves, and calls wait for that; `false` where that is to happen already.
    pub(super) fn is_to_be_asked(&self, did: &Did) -> bool {
        let mut state = lock(&self.state);
        let Some(peer) = state.get_mut(did) else { return false };
        peer.is_known = false;
        !std::mem::replace(&mut peer.is_to_be_asked, true)
    }

    /// Expects a peer for one more reason: what it serves is worth waiting for.
    pub(in crate::daemon) fn expect(&self, did: Did, reason: Reason) {
        self.expected.insert(did, reason);
        self.changed();
    }

    /// Expects a peer for one reason less, and wakes those who wait for it.
    pub(in crate::daemon) fn unexpect(&self, did: &Did, reason: Reason) {
        self.expected.remove(did, reason);
        self.changed();
    }

    /// Whether the owner has us dial this peer.
    pub(in crate::daemon) fn is_configured(&self, did: &Did) -> bool {
        self.expected.has(did, Reason::Configured)
    }

    /// Takes a link in; with the first one to a peer it gives what is set when the last one is gone.
    pub(in crate::daemon) fn add(&self, link: &Arc<Link>) -> Option<CancellationToken> {
        link.key()?;
        let begun = {
            let mut state = lock(&self.state);
            let new = || Peer {
                links: Vec::new(),
                gone: CancellationToken::new(),
                is_known: false,
                is_to_be_asked: false,
                was_taken_off: false,
                fault: None,
                contradictions: Vec::new(),
                asked: 0,
                answered: 0,
                turns: Arc::new(Semaphore::new(ANSWERS_MAX)),
            };
            let peer = state.entry(link.principal().clone()).or_insert_with(new);
            peer.links.push(Arc::clone(link));
            (peer.links.len() == 1).then(|| peer.gone.clone())
        };
        self.changed();
        begun
    }

    /// Whoever takes a link out or asks [`Peers::is_newest`] holds this until the registry knows what follows: else what a peer
    /// said could be registered after its end, or its end after what its next link brought.
    pub(super) fn register(&self) -> MutexGuard<'_, ()> {
        lock(&self.registering)
    }

    /// Takes a link out; `true` when it was the last one to that peer.
    pub(in crate::daemon) fn remove(&self, link: &Arc<Link>) -> bool {
        let is_last = {
            let mut state = lock(&self.state);
            let Some(peer) = state.get_mut(link.principal()) else { return false };
            peer.links.retain(|other| other.id() != link.id());
            let is_last = peer.links.is_empty();
            if is_last {
                peer.gone.cancel();
                state.remove(link.principal());
            }
            is_last
        };
        self.changed();
        is_last
    }

    /// The peer's key, decompressed once.
    pub(in crate::daemon) fn key(&self, did: &Did) -> Option<PublicKey> {
        let known = lock(&self.state).get(did).and_then(|peer| peer.links.first()?.key().copied());
        known.or_else(|| PublicKey::from_did(did.as_str()).ok())
    }

    /// The open link to a peer that new work goes to: of those that are not suspect, the link that was heard from last.
    ///
    /// A peer that crashed and came back may have left links behind whose end nobody has noticed. **Source:** PROTOCOL 4.
    pub(in crate::daemon) fn link(&self, did: &Did) -> Option<Arc<Link>> {
        let state = lock(&self.state);
        let mut usable = state.get(did)?.usable();
        let first = usable.next()?;
        let Some(second) = usable.next() else { return Some(Arc::clone(first)) };
        let now_ms = self.clock.monotonic_ms();
        let key = |link: &&Arc<Link>| {
            (!is_suspect(link, now_ms), link.heard_ms(), Reverse(link.in_flight()), link.id())
        };
        [first, second].into_iter().chain(usable).max_by_key(key).cloned()
    }

    /// Whether a peer has a link that is not suspect. **Source:** PROTOCOL 4.
    pub(in crate::daemon) fn is_responsive(&self, did: &Did) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let state = lock(&self.state);
        state.get(did).is_some_and(|peer| peer.usable().any(|link| !is_suspect(link, now_ms)))
    }

    /// Whether a peer was heard from just now, on the link that new work goes to.
    pub(in crate::daemon) fn is_just_heard(&self, did: &Did) -> bool {
        let heard_ms = self.link(did).map(|link| link.heard_ms());
        heard_ms.is_some_and(|heard_ms| self.clock.monotonic_ms().saturating_sub(heard_ms) <= JUST_MS)
    }

    /// Asks a peer for a sign of life, on the link that new work goes to, and waits until it gives one or is suspect.
    pub(in crate::daemon) async fn hear_from(&self, did: &Did) {
        let mut answers = self.answers.watch();
        let Some(link) = self.link(did) else { return };
        link.ask(self.clock.monotonic_ms());
        self.is_asking.store(true, Ordering::Relaxed);
        self.asking.notify_one();
        while let Some(since_ms) = link.unanswered_since_ms()
            && !link.is_closed()
        {
            let until = self.clock.moment(since_ms.saturating_add(SUSPECT_MS));
            if tokio::time::timeout_at(until, answers.changed()).await.is_err() {
                return;
            }
        }
    }

    /// A peer answered PING.
    pub(in crate::daemon) fn answered(&self) {
        self.answers.changed();
    }

    /// Resolves once a link was asked for a sign of life.
    pub(super) async fn asking(&self) {
        self.asking.notified().await;
    }

    /// Whether a link was asked for a sign of life since the last time this was called.
    pub(super) fn take_asking(&self) -> bool {
        self.is_asking.swap(false, Ordering::Relaxed)
    }

    /// An open link to a peer by its id.
    pub(in crate::daemon) fn link_of(&self, did: &Did, link: LinkId) -> Option<Arc<Link>> {
        let state = lock(&self.state);
        let mut links = state.get(did)?.links.iter();
        links.find(|other| other.id() == link && !other.is_closed()).cloned()
    }

    /// Tells every peer that this sidecar takes no more work.
    pub(in crate::daemon) fn drain(&self) {
        for link in lock(&self.state).values().flat_map(|peer| &peer.links) {
            link.drain();
        }
    }

    /// Links on which something waits for an answer: a call, or a question for a sign of life.
    pub(super) fn awaited_links(&self) -> Vec<Arc<Link>> {
        let state = lock(&self.state);
        let is_awaited = |link: &&Arc<Link>| link.in_flight() > 0 || link.unanswered_since_ms().is_some();
        let links = state.values().flat_map(|peer| &peer.links).filter(is_awaited);
        links.filter(|link| !link.is_closed()).cloned().collect()
    }

    /// Every peer that we dial or that has a link.
    pub(in crate::daemon) fn all(&self) -> BTreeSet<Did> {
        let mut all: BTreeSet<_> = self.expected.those(|_| true).into_iter().collect();
        all.extend(self.connected());
        all
    }

    /// Open links to a peer.
    pub(in crate::daemon) fn links(&self, did: &Did) -> usize {
        lock(&self.state).get(did).map_or(0, |peer| peer.links.len())
    }

    /// All links to a peer.
    pub(in crate::daemon) fn links_of(&self, did: &Did) -> Vec<Arc<Link>> {
        lock(&self.state).get(did).map_or_else(Vec::new, |peer| peer.links.clone())
    }

    /// Peers with a link: each of the journals that their links name, with when that process was heard from last. Two
    /// processes of one peer are heard from as long as each has a link. **Units:** monotonic milliseconds.
    pub(in crate::daemon) fn heard(&self) -> Vec<(Did, Option<JournalId>, u64)> {
        let now_ms = self.clock.monotonic_ms();
        let mut heard = Vec::new();
        for (did, peer) in &*lock(&self.state) {
            let mut processes: BTreeMap<Option<JournalId>, u64> = BTreeMap::new();
            for link in &peer.links {
                let last_ms = processes.entry(link.journal()).or_default();
                *last_ms = link.heard_ms().max(*last_ms);
            }
            let are_two = processes.len() > 1;
            let at_ms = |last_ms| if are_two { now_ms } else { last_ms };
            heard.extend(
                processes.into_iter().map(|(journal, last_ms)| (did.clone(), journal, at_ms(last_ms))),
            );
        }
        heard
    }

    /// Peers with a link.
    pub(in crate::daemon) fn connected(&self) -> Vec<Did> {
        lock(&self.state).keys().cloned().collect()
    }

    /// What whoever asks a peer takes a permit of; none without a link to it.
    pub(in crate::daemon) fn turn(&self, did: &Did) -> Option<Arc<Semaphore>> {
        lock(&self.state).get(did).map(|peer| Arc::clone(&peer.turns))
    }

    /// Numbers a question to a peer about what it serves: several may be on their way at once.
    pub(in crate::daemon) fn ask(&self, did: &Did) -> u64 {
        let mut state = lock(&self.state);
        let Some(peer) = state.get_mut(did) else { return 0 };
        peer.is_to_be_asked = false;
        peer.asked += 1;
        peer.asked
    }

    /// Whether the answer to a question may be applied: one to a later question has not been, and its link still stands.
    pub(super) fn is_newest(&self, did: &Did, link: LinkId, question: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(peer) = state.get_mut(did) else { return false };
        // The link may have gone meanwhile, and with it what was learnt.
        let stands = peer.links.iter().any(|other| other.id() == link);
        let is_newest = stands && question > peer.answered;
        if is_newest {
            peer.answered = question;
        }
        is_newest
    }

    /// The peer has said what it serves.
    pub(super) fn learnt(&self, did: &Did) {
        if let Some(peer) = lock(&self.state).get_mut(did) {
            peer.is_known = true;
            peer.fault = None;
        }
        self.changed();
    }

    /// Of what the peer said, these capabilities contradict themselves.
    pub(super) fn contradicted(&self, did: &Did, contradictions: Vec<(CapabilityId, String)>) {
        if let Some(peer) = lock(&self.state).get_mut(did) {
            peer.contradictions = contradictions;
        }
    }

    /// How a peer, or the one named, contradicts itself about a capability of this name.
    pub(super) fn contradiction(&self, name: &str, only: Option<&Did>) -> Option<Refusal> {
        let state = lock(&self.state);
        let mut asked = state.iter().filter(|(did, _)| only.is_none_or(|only| only == *did));
        asked.find_map(|(_, peer)| {
            let (_, problem) = peer.contradictions.iter().find(|(id, _)| id.name.as_str() == name)?;
            Some(Refusal::new(Code::CONTRACT_ERROR, problem.clone()))
        })
    }

    /// The peer has said what it serves, in a way that cannot be read; whether it said so before.
    pub(in crate::daemon) fn misunderstood(&self, did: &Did, fault: Refusal) -> bool {
        let mut is_known = false;
        if let Some(peer) = lock(&self.state).get_mut(did) {
            peer.is_known = true;
            is_known = peer.fault.as_ref().is_some_and(|known| known.message == fault.message);
            peer.fault = Some(fault);
        }
        self.changed();
        is_known
    }

    /// Why a name may be unknown though a peer, or the one named, serves it.
    pub(in crate::daemon) fn fault(&self, only: Option<&Did>) -> Option<Refusal> {
        let state = lock(&self.state);
        let mut asked = state.iter().filter(|(did, _)| only.is_none_or(|only| only == *did));
        asked.find_map(|(_, peer)| peer.fault.clone())
    }

    /// Peers that we dial and that have not said what they serve.
    pub(in crate::daemon) fn unknown(&self) -> Vec<Did> {
        let state = lock(&self.state);
        self.expected.those(|did| !state.get(did).is_some_and(|peer| peer.is_known))
    }

    /// Whether a peer has a link and has said what it serves.
    pub(in crate::daemon) fn is_known(&self, did: &Did) -> bool {
        lock(&self.state).get(did).is_some_and(|peer| peer.is_known)
    }

    /// Whether we dial this peer, or have a link to it.
    pub(in crate::daemon) fn is_reachable(&self, did: &Did) -> bool {
        self.expected.contains(did) || lock(&self.state).contains_key(did)
    }

    /// Every peer has been asked what it serves.
    pub(super) fn refreshed(&self, now_ms: u64) {
        self.refreshed_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether there is no peer to ask or to wait for, or all were asked less than a second ago.
    pub(super) fn is_fresh(&self, now_ms: u64) -> bool {
        let refreshed_ms = self.refreshed_ms.load(Ordering::Relaxed);
        let is_recent = refreshed_ms > 0 && now_ms.saturating_sub(refreshed_ms) < FRESH_MS;
        is_recent || (lock(&self.state).is_empty() && self.expected.is_empty())
    }

    /// Wakes at each change from here on.
    pub(in crate::daemon) fn watch(&self) -> Watch {
        self.changes.watch()
    }

    /// Wakes those who wait for a link or for what a peer serves.
    pub(in crate::daemon) fn changed(&self) {
        self.changes.changed();
    }
}

impl Peer {
    /// The links that take new work. One that names another journal than the newest leads to a process that is gone.
    fn usable(&self) -> impl Iterator<Item = &Arc<Link>> {
        let journal = self.links.last().and_then(|newest| newest.journal());
        let is_usable =
            move |link: &&Arc<Link>| !link.is_draining() && !link.is_closed() && link.journal() == journal;
        self.links.iter().filter(is_usable)
    }
}

/// Whether a link's peer was asked for a sign of life and has given none, so that nothing is sent there while another
/// link or peer will do. **Source:** PROTOCOL 4.
fn is_suspect(link: &Link, now_ms: u64) -> bool {
    link.unanswered_since_ms().is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= SUSPECT_MS)
}

/// How long a peer may leave a question for a sign of life unanswered before its link is suspect, in milliseconds. It is
/// asked after [`super::probe::QUIET_MS`], which makes it the one second of PROTOCOL 4.
const SUSPECT_MS: u64 = 500;
/// How recent a sign of life is that a call may be given away on without asking, in milliseconds. A peer that died since
/// then has the call, and nobody knows what became of it, so it is no longer than it takes a machine to end a process.
const JUST_MS: u64 = 5;
/// Answers of one peer that are read at once.
const ANSWERS_MAX: usize = 2;
/// How long what peers said counts as fresh for the agent's questions, in milliseconds.
const FRESH_MS: u64 = 1_000;
