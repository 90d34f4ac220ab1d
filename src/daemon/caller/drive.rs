//! Drives the machine of a call: events in; the actions that it asks for, done.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::call::Jitter;
use capd_proto::call::caller::{Generation, Input, Output, Refused};
use capd_proto::code::Code;
use capd_proto::envelope::Ext;
use capd_proto::message::{Request, TryOutcome, Type};

use super::answers::nothing_waits;
use super::memory::naming;
use super::moves::Moved;
use super::outgoing::Waiter;
use super::{Caller, Handed, RelayedCall};
use crate::daemon::account::phases::Phase;
use crate::daemon::context::seal::{ANSWER_TTL_MS, Unsealed, needs_signature, seals_long};
use crate::daemon::context::{Outbound, Refusal, lock};
use crate::net::Link;

impl Caller {
    /// Tells a call's machine what happened, and does what it says.
    pub(super) fn drive_call(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        input: Option<Input>,
        handed: Handed<'_>,
    ) {
        let outputs = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return };
            if let Some(input) = input {
                chosen.measure(&input, handed, call.moments.started_us);
                let jitter = if input.may_pause() { self.jitter() } else { Jitter::NONE };
                chosen.machine.handle(input, self.ctx.clock.monotonic_ms(), jitter);
            }
            // Nearly always it is one, which needs no list.
            let first = chosen.machine.poll_output();
            first.into_iter().chain(iter::from_fn(|| chosen.machine.poll_output()).collect::<Vec<_>>())
        };
        for output in outputs {
            self.act_on(call, output, handed);
        }
    }

    pub(super) fn act_on(self: &Arc<Self>, call: &Arc<RelayedCall>, output: Output, handed: Handed<'_>) {
        match output {
            Output::Send { generation, attempt, proven_unaccepted: _ } => {
                // PROTOCOL 8: another provider gets it if its own is gone and it may move.
                if attempt == 1 || self.move_if_left(call) != Moved::Later {
                    self.send_call(call, generation);
                }
            }
            Output::Move { generation } => self.move_refused(call, generation),
            Output::AskRelease { generation: _ } => self.ask_release(call),
            Output::Pause { until_ms, .. } => {
                self.enter(call, Phase::Queue);
                lock(&call.progress).refused_by.clear();
                self.wake_call(call, until_ms);
            }
            Output::Relay => {
                if let Some((inbound, typ)) = handed.message() {
                    let envelope = self.towards_agent(call, inbound, typ);
                    let waiters = lock(&call.progress).waiters.clone();
                    for (link, route) in waiters {
                        self.ctx.send(&link, &route, envelope.clone());
                    }
                }
            }
            Output::SendCancel { generation } => self.send_cancel(call, generation),
            Output::Deliver(delivery) => self.deliver_call(call, delivery, handed),
            Output::Drop => {}
            Output::RefuseResult => {
                if let Some((inbound, _)) = handed.message() {
                    self.ctx.refuse(inbound.link, inbound.route, Some(inbound.envelope.id), &nothing_waits());
                }
            }
        }
    }

    /// Sends the invoke, or sees to it that it is sent once there is a link.
    pub(super) fn send_call(self: &Arc<Self>, call: &Arc<RelayedCall>, generation: Generation) {
        let (peer, id, until_ms, answered_by_ms, idempotent, by_id, journal) = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return };
            while chosen.ids.len() <= generation.0 as usize {
                chosen.ids.push(self.ctx.fresh_id(self.ctx.clock.wall_ms()));
            }
            let until_ms = chosen.machine.poll_timeout().unwrap_or(call.moments.deadline_ms);
            let (id, answered_by_ms) = (chosen.ids[generation.0 as usize], chosen.machine.deadline_ms());
            // FLEET X9: the memory that counts is that of the providers.
            let journal = chosen.journal.filter(|_| !chosen.by_id);
            let peer = chosen.peer.clone();
            (peer, id, until_ms, answered_by_ms, chosen.idempotent, chosen.by_id, journal)
        };
        // PROTOCOL 8: a copy is never sent that must be refused as expired.
        if call.moments.expires_at_ms < self.ctx.clock.wall_ms() {
            let refusal = Refusal::new(Code::INVALID_TIMESTAMP, "the call's ts + ttl has passed");
            return self.not_sent(call, generation, &refusal, Some(false));
        }
        let Some(link) = self.directory.peers.link(&peer) else {
            return self.send_call_later(call, generation, until_ms);
        };
        if !idempotent && !by_id && !self.same_memory(call, generation, &link) {
            return;
        }
        let traced = call.traced.ext(call.head.ext.as_deref());
        let ext = naming(traced.as_deref().or(call.head.ext.as_deref()), journal);
        let invoked = call.invoked();
        let ttl_ms = call.moments.expires_at_ms.saturating_sub(id.ts_ms());
        let signed = needs_signature(&link);
        let (envelope, body) = if seals_long(&invoked.body, signed) {
            let unsealed = Unsealed {
                id,
                typ: Type::CapInvoke,
                to: peer.clone(),
                reply_to: None,
                thread_id: call.head.thread_id.clone(),
                ttl_ms,
                body: invoked.body.clone(),
                ext: ext.map(Vec::from),
            };
            match call.take_sealed(&unsealed) {
                Some(sealed) => sealed,
                None => return self.seal_call(call, (generation, until_ms), unsealed),
            }
        } else {
            let message = Outbound {
                id,
                typ: Type::CapInvoke,
                to: peer.as_str(),
                reply_to: None,
                thread_id: call.head.thread_id.as_deref(),
                ttl_ms,
                body: &[],
                ext: ext.as_deref().map_or(Ext::None, Ext::Raw),
            };
            self.ctx.pass_on(message.draft(self.ctx.did()), &invoked.body, signed)
        };
        call.keep(body);
        drop(invoked);
        if !idempotent {
            self.gifts.sent(&call.id);
        }
        self.begin_try(call, generation, (&peer, &link));
        // Told before it is so: once the request waits for its answer, its link may be lost at any moment.
        self.drive_call(call, Some(Input::Sent), Handed::Nothing);
        let who = Waiter::Call(Arc::clone(call), generation);
        let sent = self.request(&link, id, envelope, answered_by_ms, who);
        if let Err(refusal) = sent {
            self.end_try(call, generation, TryOutcome::Refused, Some(refusal.code));
            self.not_sent(call, generation, &refusal, None);
        }
    }

    /// Signs a copy that takes long to sign, and sends it then if it is still wanted.
    fn seal_call(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        (generation, until_ms): (Generation, u64),
        unsealed: Unsealed,
    ) {
        self.enter(call, Phase::Queue);
        self.leaves_later(call);
        let (caller, call) = (Arc::clone(self), Arc::clone(call));
        let sealing = self.ctx.seal_later(unsealed.clone());
        self.ctx.spawn(async move {
            let until = caller.ctx.clock.moment(until_ms);
            let Ok(sealed) = tokio::time::timeout_at(until, sealing).await else {
                return caller.drive_call(&call, Some(Input::Timeout), Handed::Nothing);
            };
            let is_done = lock(&call.progress).chosen.as_ref().is_none_or(|chosen| chosen.machine.is_done());
            if !is_done {
                *lock(&call.precomputed.sealed) = Some((unsealed, sealed));
                caller.send_call(&call, generation);
            }
        });
    }

    /// The call waits before it leaves, so its time says nothing of its peer's.
    fn leaves_later(&self, call: &RelayedCall) {
        if let Some(chosen) = &mut lock(&call.progress).chosen {
            chosen.latency = None;
        }
    }

    /// The copy that was to leave does not.
    pub(super) fn not_sent(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        generation: Generation,
        refusal: &Refusal,
        retry: Option<bool>,
    ) {
        let error =
            Refused { code: refusal.code, retry, retry_after_ms: None, another: false, released: false };
        let input = Input::Error { generation, error };
        self.drive_call(call, Some(input), Handed::Refusal(refusal));
    }

    /// Whether there is a link to the chosen peer, which is dialled otherwise.
    fn reach_peer(&self, call: &RelayedCall) -> bool {
        let Some(peer) = lock(&call.progress).chosen.as_ref().map(|chosen| chosen.peer.clone()) else {
            return false;
        };
        let is_linked = self.directory.peers.link(&peer).is_some();
        if !is_linked {
            self.fleet.reach(&call.name, &peer);
        }
        is_linked
    }

    /// Why a call that nobody may have run cannot leave until an owner changes something.
    fn never_to_be_sent(&self, call: &RelayedCall) -> Option<Refusal> {
        let peer = {
            let progress = lock(&call.progress);
            // What has left may have run: whoever has it is asked for as long as the call lasts.
            let chosen = progress.chosen.as_ref().filter(|chosen| !chosen.machine.may_have_run())?;
            chosen.peer.clone()
        };
        self.directory.unlinked.lasting(&peer).map(|_| self.directory.unreachable(&peer))
    }

    pub(super) fn send_call_later(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        generation: Generation,
        until_ms: u64,
    ) {
        self.enter(call, Phase::Queue);
        self.leaves_later(call);
        let caller = Arc::clone(self);
        let call = Arc::clone(call);
        let mut changes = self.directory.peers.watch();
        self.ctx.spawn(async move {
            let until = caller.ctx.clock.moment(until_ms);
            loop {
                let is_done =
                    lock(&call.progress).chosen.as_ref().is_none_or(|chosen| chosen.machine.is_done());
                if is_done {
                    return;
                }
                match caller.move_if_left(&call) {
                    Moved::Later => return,
                    Moved::Gone => return caller.send_call(&call, generation),
                    Moved::Stays if caller.reach_peer(&call) => return caller.send_call(&call, generation),
                    Moved::Stays => {}
                }
                if let Some(refusal) = caller.never_to_be_sent(&call) {
                    return caller.not_sent(&call, generation, &refusal, Some(false));
                }
                let changed = tokio::time::timeout(REACH_EVERY, changes.changed());
                if tokio::time::timeout_at(until, changed).await.is_err() {
                    return caller.drive_call(&call, Some(Input::Timeout), Handed::Nothing);
                }
            }
        });
    }

    pub(super) fn wake_call(self: &Arc<Self>, call: &Arc<RelayedCall>, until_ms: u64) {
        let caller = Arc::clone(self);
        let call = Arc::clone(call);
        self.ctx.spawn(async move {
            tokio::time::sleep_until(caller.ctx.clock.moment(until_ms)).await;
            caller.drive_call(&call, Some(Input::Timeout), Handed::Nothing);
        });
    }

    pub(super) fn send_cancel(&self, call: &Arc<RelayedCall>, generation: Generation) {
        let id = self.ctx.fresh_id(self.ctx.clock.wall_ms());
        let (peer, target) = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return };
            let target = chosen.ids[generation.0 as usize];
            // The cancel is one more id that something waits for until the call has ended.
            chosen.cancel = Some(id);
            (chosen.peer.clone(), target)
        };
        // PROTOCOL 4: on the link and the stream that the call went on, behind it. A call whose link is lost may still be
        // found by any other: there the cancel leaves a mark.
        let sent_on = self.outgoing.requests.route_of(&target, &peer);
        let same =
            sent_on.and_then(|(link, route)| Some((self.directory.peers.link_of(&peer, link)?, Some(route))));
        let Some((link, route)) = same.or_else(|| Some((self.directory.peers.link(&peer)?, None))) else {
            return;
        };
        let mut body = Vec::new();
        Request::Cancel { target }.encode(&mut body);
        let message = Outbound {
            id,
            typ: Type::Request,
            to: peer.as_str(),
            reply_to: None,
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body: &body,
            ext: Ext::None,
        };
        let envelope = self.ctx.seal(&message, &link);
        let deadline_ms = self.ctx.clock.monotonic_ms().saturating_add(ANSWER_TTL_MS);
        let send = |link: &Arc<Link>| match &route {
            Some(route) => link.cancel_behind(route, envelope),
            None => link.request_in_order(envelope),
        };
        let who = Waiter::Cancel(Arc::clone(call));
        if let Err(refusal) = self.request_by(&link, id, deadline_ms, who, send) {
            tracing::debug!(%peer, reason = refusal.message, "a cancel was not sent");
        }
    }

    pub(super) fn jitter(&self) -> Jitter {
        // Without randomness the pause is its longest, which is safe.
        self.ctx.random.u32().map_or(Jitter::NONE, Jitter)
    }
}

/// How often a peer that a call waits for is asked to be dialled, which the pause after a dial that failed may put off.
const REACH_EVERY: Duration = Duration::from_secs(1);
