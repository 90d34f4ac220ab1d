//! Chooses the peer for a call, with its schemas and its machine, or explains why there is none.

use std::sync::Arc;

use capd_proto::call::caller::{Caller as Machine, Time};
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ContentHash, Descriptor};
use smallvec::{SmallVec, smallvec};

use super::among::split;
use super::drift::{Barrier, Shut, held_against};
use super::here::Changed;
use super::retry::retry_policy;
use super::{Caller, Chosen, RelayedCall};
use crate::daemon::account::phases::Phase;
use crate::daemon::context::judge::verdict;
use crate::daemon::context::refusal::{mismatch, refused_artifact};
use crate::daemon::context::{Refusal, lock};
use crate::daemon::fleet::Missed;
use crate::policy::Action;
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};
use crate::schema::drift::gate::Question;
use crate::schema::{Artifact, Side, Violation};
use crate::store::Replica;

/// What a call needs before it can go out.
pub(super) enum Missing {
    /// Somebody who serves it; for which reason nobody does.
    Provider(Refusal),
    /// A link to a peer that serves it.
    Link(Did),
    /// A schema that the peer has.
    Schema(Did, ContentHash),
    /// A verdict over the peer's schemas.
    Proof(Did, Box<Question>),
    /// Schemas that the agent was built against.
    Contract(Box<Shut>),
    /// A verdict over the params that takes long.
    Verdict(Arc<Artifact>),
    /// Params that fit the input schema of the peer.
    Params(Did, Vec<Violation>),
    /// A sign of life of the peer that was chosen, while another would do.
    Life(Box<Chosen>),
}

impl Missing {
    /// What a call is in while it waits for this.
    const fn phase(&self) -> Phase {
        match self {
            Self::Provider(_) | Self::Link(_) | Self::Life(_) => Phase::Choose,
            Self::Schema(..) | Self::Proof(..) | Self::Contract(_) | Self::Verdict(_) | Self::Params(..) => {
                Phase::Gate
            }
        }
    }
}

/// Who serves a call after all.
enum Found {
    Peer(Box<Chosen>),
    /// An agent beside this sidecar.
    Here,
}

impl Caller {
    /// Chooses the peer and readies what the call needs; only then is there anything to send.
    pub(super) fn choose_peer(&self, call: &Arc<RelayedCall>) -> Result<Chosen, Missing> {
        self.fleet.want(&call.name);
        let given = self.gifts.replica(&call.id);
        if given.is_some() && !self.gifts.is_bound(&call.id) {
            // Nobody has it: where it was given to is as good as any other, and costs no commit. Who has released it never
            // takes it, and says so to an agent that asks for nobody else.
            let released_by = self.gifts.released_by(&call.id).filter(|_| !call.destination.is_named);
            let takes_it = |given: &&Replica| {
                self.is_there(given)
                    && !self.fleet.is_split(&given.peer)
                    && released_by.as_ref() != Some(&given.peer)
            };
            let is_there = given.as_ref().filter(takes_it).is_some();
            return match is_there.then(|| self.choose_from(call, given, &[])) {
                Some(Ok(chosen)) => Ok(chosen),
                Some(Err(_)) | None => self.choose_from(call, None, &[]),
            };
        }
        let given = given.map(|given| match self.gifts.may_have_run(&call.id, &call.name) {
            true => given,
            // Refused for what it is, it stays with its peer, whatever memory that has by now.
            false => self.as_it_is_now(given),
        });
        // FLEET X12: a copy goes to the journal that has the call; of a call that ran nowhere none leaves.
        let is_new = |given: &&Replica| {
            !self.gifts.may_have_run(&call.id, &call.name) && self.fleet.is_split(&given.peer)
        };
        if let Some(given) = given.as_ref().filter(is_new) {
            return Err(split(&given.peer));
        }
        let asked = given.or_else(|| self.gifts.former(&call.id, &call.name));
        self.choose_from(call, asked, &[])
    }

    /// A peer with the journal that it names on its link, if it has one.
    fn as_it_is_now(&self, Replica { peer, journal }: Replica) -> Replica {
        let journal = self.directory.peers.link(&peer).map_or(journal, |link| link.journal());
        Replica { peer, journal }
    }

    /// The same, of peers other than `refused_by`, and only of `asked` where somebody may have the call.
    pub(super) fn choose_from(
        &self,
        call: &Arc<RelayedCall>,
        asked: Option<Replica>,
        refused_by: &[Did],
    ) -> Result<Chosen, Missing> {
        let snapshot = self.directory.snapshot();
        let given = self.gifts.replica(&call.id).filter(|_| asked.is_some());
        let released_by = self.gifts.released_by(&call.id);
        let without: SmallVec<[&Did; 2]> = refused_by.iter().chain(&released_by).collect();
        // Whoever moves a call has made sure that its former peer is not the only one that may have it.
        let may_have = |to: &&Did| {
            call.destination.is_named || refused_by.is_empty() && released_by.as_ref() != Some(*to)
        };
        let named = call.destination.to.as_ref().filter(may_have);
        let at = asked.as_ref().map(|replica| &replica.peer).or(named);
        let (scope, is_free) = (at.map_or(Scope::PeersBut(&without), Scope::Peer), at.is_none());
        let may_call = |entry: &Entry| self.own.may(Action::Invoke, entry);
        let choice = match router::route(&snapshot, &call.name, &call.want, scope, may_call) {
            Ok(choice) => choice,
            // Whoever had the call knows what became of it, whether it still serves the capability or not.
            Err(_)
                if let Some(asked) =
                    asked.filter(|asked| self.directory.peers.link(&asked.peer).is_some()) =>
            {
                return Ok(self.chosen(call, asked, None, None));
            }
            Err(refusal) => {
                // Versions that are served here are part of what the agent is told.
                let anywhere = router::route(&snapshot, &call.name, &call.want, Scope::Anywhere, may_call);
                let refusal = anywhere.err().filter(|_| is_free).unwrap_or(refusal);
                return Err(Missing::Provider(match (refusal, &released_by) {
                    (router::Refusal::NameUnknown, Some(peer)) => {
                        let why =
                            format!("no other peer serves this capability, and {peer} has released the call");
                        Refusal::new(Code::CAPABILITY_NOT_FOUND, why)
                    }
                    (refusal, _) => mismatch(refusal),
                }));
            }
        };
        let is_new = asked.is_none();
        let (replica, among, latency) = match asked {
            Some(asked) => (asked, Vec::new(), None),
            None if choice.entry.descriptor.idempotent => {
                let (replica, latency) = self.one_of(call, &choice)?;
                (replica, Vec::new(), Some(latency))
            }
            None => {
                let (replica, among) = self.owner_among(call, &choice)?;
                (replica, among, None)
            }
        };
        let peer = &replica.peer;
        // FLEET X13: a session is with one process, and is pinned to another one by nobody but the agent.
        if is_new && call.destination.journal.is_some_and(|agreed| replica.journal != Some(agreed)) {
            let why = format!("the process of {peer} that agreed on the session is gone; negotiate anew");
            return Err(Missing::Provider(Refusal::new(Code::UNAVAILABLE, why)));
        }
        let descriptor = &choice.entry.descriptor;
        let missing = |barrier| match barrier {
            Barrier::Schema(hash) => Missing::Schema(peer.clone(), hash),
            Barrier::Undecided(question) => Missing::Proof(peer.clone(), question),
            Barrier::Refused(shut) => Missing::Contract(shut),
        };
        let offered = self.offered(descriptor).map_err(missing)?;
        let requirement = match self.pass(descriptor, &offered, peer) {
            Ok(requirement) => requirement,
            // It was given away under what held then; who has it may have run it.
            Err(Barrier::Refused(_)) if given.is_some() => return Ok(self.chosen(call, replica, None, None)),
            Err(barrier) => return Err(missing(barrier)),
        };
        let (input, output) = held_against(requirement.as_deref(), &offered);
        // What does not fit its schema never goes on the wire.
        check_params(call, peer, input.as_ref())?;
        if choice.is_deprecated {
            self.account.warn_deprecated(self.ctx.did(), &descriptor.id);
        }
        Ok(Chosen { among, latency, ..self.chosen(call, replica, Some(descriptor), output) })
    }

    /// The same, of peers that live: one that was not heard from just now is asked first, while another would do.
    ///
    /// A call that may run only once cannot be moved from a peer that died, so it is not given to a dead one.
    pub(super) fn choose_living_peer(&self, call: &Arc<RelayedCall>) -> Result<Chosen, Missing> {
        let chosen = self.choose_peer(call)?;
        let Some(descriptor) = chosen.descriptor.as_ref().filter(|_| call.destination.to.is_none()) else {
            return Ok(chosen);
        };
        let is_home = self.gifts.peer(&call.id).is_some_and(|peer| peer == chosen.peer);
        if is_home || self.directory.peers.is_just_heard(&chosen.peer) {
            return Ok(chosen);
        }
        let snapshot = self.directory.snapshot();
        let would_do = |entry: &Entry| match &entry.origin {
            Origin::Peer(peer) => {
                *peer != chosen.peer
                    && entry.descriptor == *descriptor
                    && self.directory.peers.is_responsive(peer)
            }
            Origin::Local(_) => false,
        };
        if self.directory.peers.is_responsive(&chosen.peer)
            && snapshot.entries(&call.name).iter().any(would_do)
        {
            return Err(Missing::Life(Box::new(chosen)));
        }
        Ok(chosen)
    }

    fn chosen(
        &self,
        call: &RelayedCall,
        Replica { peer, journal }: Replica,
        descriptor: Option<&Arc<Descriptor>>,
        output: Option<Arc<Artifact>>,
    ) -> Chosen {
        // PROTOCOL 8: the invoke's time, else the descriptor's.
        let ends_ms = match (call.moments.timeout_ms, descriptor.and_then(|descriptor| descriptor.timeout_ms))
        {
            (None, Some(time_ms)) => self.ctx.clock.now().deadline_ms(call.moments.expires_at_ms, time_ms),
            (Some(_), _) | (None, None) => call.moments.deadline_ms,
        };
        let policy = retry_policy(descriptor.and_then(|descriptor| descriptor.retry_policy.as_ref()));
        let idempotent = descriptor.is_some_and(|descriptor| descriptor.idempotent);
        let by_id = descriptor.is_some_and(|descriptor| descriptor.by_id)
            && self.gifts.is_new_or_by_id(&call.id, &call.name);
        let descriptor = descriptor.map(Arc::clone);
        let unanswered = self.gifts.may_have_run(&call.id, &call.name);
        let time = Time { ends_ms, grace_ms: ANSWER_GRACE_MS };
        let is_released = self.gifts.released_by(&call.id).is_some();
        let declared = descriptor.as_ref().map(|descriptor| descriptor.by_id);
        let machine = Machine::new(policy, idempotent, unanswered, time)
            .released_before(is_released)
            .by_id(by_id)
            .unreleased(self.gifts.may_be_unjournaled(&call.id, declared));
        #[cfg(feature = "test-hooks")]
        let machine = {
            let mut machine = machine;
            machine.set_credulous(self.mistakes.is_credulous.load(std::sync::atomic::Ordering::Relaxed));
            machine.set_restless(self.mistakes.is_restless.load(std::sync::atomic::Ordering::Relaxed));
            machine
        };
        let ids = smallvec![call.id];
        // What may run again is asked of whoever is there.
        let journal = journal.filter(|_| !idempotent);
        let among = Vec::new();
        let (latency, cancel, release) = (None, None, None);
        Chosen {
            machine,
            peer,
            journal,
            among,
            descriptor,
            idempotent,
            by_id,
            output,
            latency,
            ids,
            cancel,
            release,
        }
    }

    /// Waits, within the call's own time, for what it misses.
    pub(super) fn choose_peer_later(self: &Arc<Self>, call: Arc<RelayedCall>, missing: Missing) {
        let caller = Arc::clone(self);
        let changes = self.watch_providers();
        self.ctx.spawn(async move {
            match call.ended.or(caller.await_provider(&call, missing, changes)).await {
                Some(Ok(Found::Peer(chosen))) => caller.give(&call, *chosen),
                Some(Ok(Found::Here)) => caller.meet_here(&call),
                Some(Err(refusal)) => {
                    if refusal.code == Code::UNAUTHORIZED {
                        caller
                            .account
                            .audit_forbidden(call.audited(&call.invoked(), caller.ctx.did()), &refusal);
                    }
                    caller.refuse_call(&call, &refusal);
                }
                // It was cancelled, and its answer is out.
                None => {}
            }
        });
    }

    async fn await_provider(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        mut missing: Missing,
        mut changes: Changed,
    ) -> Result<Found, Refusal> {
        let deadline = self.ctx.clock.moment(call.moments.deadline_ms);
        let (mut is_refreshed, mut is_missed) = (false, !self.fleet.is_any());
        let mut withheld: Option<(Did, ContentHash, Refusal)> = None;
        // A peer that is about to end serves it, or did: it may come back.
        let mut leaving: Option<Did> = None;
        // The time of a call that waits for more than its peer's sign of life says nothing of that peer. Other calls count, or a
        // peer that is slow and quiet would never be measured again.
        let mut is_measured = matches!(missing, Missing::Life(_));
        loop {
            if let Missing::Link(peer) = &missing {
                leaving = Some(peer.clone());
            }
            self.enter(call, missing.phase());
            let work = async {
                match &missing {
                    // Asked what it serves, it still tells of the schema that it did not give.
                    Missing::Schema(peer, hash)
                        if let Some((_, _, refusal)) =
                            withheld.as_ref().filter(|(from, of, _)| from == peer && of == hash) =>
                    {
                        Err(refusal.clone())
                    }
                    Missing::Schema(peer, hash) => match self.fetch_for_call(&call.name, peer, *hash).await {
                        // It serves another schema by this time, and says which when asked.
                        Err(refusal) if refusal.code == Code::UNAVAILABLE && !is_refreshed => {
                            self.directory.refresh_all(Some(peer), None).await;
                            is_refreshed = true;
                            withheld = Some((peer.clone(), *hash, refusal));
                            Ok(())
                        }
                        fetched => fetched,
                    },
                    Missing::Proof(peer, question) => {
                        self.prove(Question::clone(question), peer).await;
                        Ok(())
                    }
                    Missing::Verdict(input) => {
                        let params = call.invoked().shared_params();
                        let judged = self.ctx.judge(input, params, Side::Request).await;
                        *lock(&call.precomputed.judged) = Some(judged);
                        Ok(())
                    }
                    Missing::Life(chosen) => {
                        self.directory.peers.hear_from(&chosen.peer).await;
                        Ok(())
                    }
                    // Who has mended a contract says so when asked again.
                    Missing::Contract(_) if !is_refreshed => {
                        self.directory.refresh_all(call.destination.to.as_ref(), Some(&call.name)).await;
                        is_refreshed = true;
                        Ok(())
                    }
                    Missing::Contract(shut) => {
                        self.audit_drift(shut, call.audited(&call.invoked(), &shut.provider));
                        Err(shut.refusal.clone())
                    }
                    Missing::Params(peer, violations) => {
                        let (thread_id, invoked) = (call.head.thread_id.as_deref(), call.invoked());
                        Err(self.account.refused_params(thread_id, call.audited(&invoked, peer), violations))
                    }
                    Missing::Provider(refusal) if !is_about_serving(refusal) => Err(refusal.clone()),
                    // Whom the fleet's registry names is dialled; those who are linked have been asked by then.
                    Missing::Provider(_) if !is_missed => {
                        self.fleet.miss(self.missed(call));
                        is_missed = true;
                        Ok(())
                    }
                    Missing::Provider(_) if !is_refreshed => {
                        self.directory.refresh_all(call.destination.to.as_ref(), Some(&call.name)).await;
                        is_refreshed = true;
                        Ok(())
                    }
                    // Everybody who might serve it has said what they serve.
                    Missing::Provider(refusal)
                        if self.awaited(call, leaving.as_ref()).is_empty()
                            && !self.fleet.may_come(self.missed(call)) =>
                    {
                        let misunderstood = || {
                            self.directory.or_misunderstood(
                                refusal.clone(),
                                Some(&call.name),
                                call.destination.to.as_ref(),
                            )
                        };
                        let unreadable = || {
                            let why = self.fleet.cause(self.missed(call))?;
                            Some(Refusal::new(Code::ENDPOINT_UNREACHABLE, why))
                        };
                        Err(self.unreachable_for(call).or_else(unreadable).unwrap_or_else(misunderstood))
                    }
                    Missing::Provider(_) | Missing::Link(_) => {
                        self.fleet.miss(self.missed(call));
                        changes.changed().await;
                        Ok(())
                    }
                }
            };
            match tokio::time::timeout_at(deadline, work).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(self.out_of_time(call, leaving.as_ref())),
            }
            if let Missing::Life(chosen) = missing
                && self.directory.peers.is_responsive(&chosen.peer)
            {
                let latency = chosen.latency.clone().filter(|_| is_measured);
                return Ok(Found::Peer(Box::new(Chosen { latency, ..*chosen })));
            }
            is_measured = false;
            if self.is_served_here(call) {
                return Ok(Found::Here);
            }
            missing = match self.choose_living_peer(call) {
                Ok(chosen) => return Ok(Found::Peer(Box::new(Chosen { latency: None, ..chosen }))),
                Err(missing) => missing,
            };
        }
    }

    pub(super) fn missed<'a>(&self, call: &'a RelayedCall) -> Missed<'a> {
        Missed { name: &call.name, want: &call.want, to: call.destination.to.as_ref() }
    }

    /// Peers that may serve the call and have not said.
    pub(super) fn may_serve(&self, call: &RelayedCall, leaving: Option<&Did>) -> Vec<Did> {
        let mut unknown = self.directory.peers.unknown();
        let is_back =
            |peer: &Did| self.directory.peers.is_known(peer) && self.directory.peers.link(peer).is_some();
        unknown.extend(leaving.filter(|peer| !is_back(peer) && !unknown.contains(peer)).cloned());
        if let Some(to) = &call.destination.to {
            unknown.retain(|did| did == to);
        }
        unknown
    }

    /// Those of them that may yet get a link. A call that may have run waits for any of them.
    pub(super) fn awaited(&self, call: &RelayedCall, leaving: Option<&Did>) -> Vec<Did> {
        let mut awaited = self.may_serve(call, leaving);
        if !self.gifts.may_have_run(&call.id, &call.name) {
            awaited.retain(|did| self.directory.unlinked.lasting(did).is_none());
        }
        awaited
    }

    /// The 2002 for a call that only peers may serve which cannot be linked until an owner changes something.
    fn unreachable_for(&self, call: &RelayedCall) -> Option<Refusal> {
        let mut waited_for = self.may_serve(call, None);
        waited_for.retain(|did| self.directory.unlinked.lasting(did).is_some());
        self.directory.unreachable_all(&waited_for)
    }

    pub(super) fn out_of_time(&self, call: &RelayedCall, leaving: Option<&Did>) -> Refusal {
        self.directory
            .unreachable_all(&self.awaited(call, leaving))
            .unwrap_or_else(|| Refusal::new(Code::TIMEOUT, "the call's time ran out before it could be sent"))
    }
}

fn check_params(call: &RelayedCall, peer: &Did, input: Option<&Arc<Artifact>>) -> Result<(), Missing> {
    let Some(input) = input else { return Ok(()) };
    let judged = lock(&call.precomputed.judged);
    let checked = verdict(input, call.invoked().params(), Side::Request, judged.as_slice())
        .map_err(|error| Missing::Provider(refused_artifact(error)))?;
    let Some(checked) = checked else { return Err(Missing::Verdict(Arc::clone(input))) };
    checked.map_err(|violations| Missing::Params(peer.clone(), violations))
}

/// Whether a refusal may pass once somebody else says what they serve.
fn is_about_serving(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::CAPABILITY_NOT_FOUND | Code::VERSION_MISMATCH)
}

/// How much longer than the executor the caller's sidecar waits, so that the executor's own timeout can arrive: most round
/// trips, and little enough that a timeout of three seconds takes three.
const ANSWER_GRACE_MS: u64 = 250;
