//! Moves calls to another peer: an idempotent call whose peer fails, any other once it is proven that its peer has not
//! accepted it and never will (PROTOCOL 8).

use std::sync::Arc;

use capd_proto::call::caller::{Generation, Input, Refused};
use capd_proto::code::Code;
use capd_proto::envelope::Ext;
use capd_proto::identity::Did;
use capd_proto::message::{ReleaseState, Request, Response, Type};

use super::memory::naming;
use super::outgoing::Waiter;
use super::{Caller, Chosen, Handed, RelayedCall};
use crate::daemon::context::{Outbound, Refusal, lock};
use crate::registry::snapshot::Origin;
use crate::store::Replica;

/// What became of a call that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// It stays, and is to be sent where it was.
    Stays,
    /// It goes to another peer, and is to be sent there.
    Gone,
    /// It is sent to another peer once that is on disk.
    Later,
}

impl Caller {
    /// Moves a call whose peer is gone, or has come back without it, to another that serves it.
    pub(super) fn move_if_left(self: &Arc<Self>, call: &Arc<RelayedCall>) -> Moved {
        let Some(at) = lock(&call.progress).chosen.as_ref().map(|chosen| chosen.peer.clone()) else {
            return Moved::Stays;
        };
        let snapshot = self.directory.snapshot();
        let is_served =
            snapshot.entries(&call.name).iter().any(|entry| entry.origin == Origin::Peer(at.clone()));
        if is_served && self.directory.peers.is_responsive(&at) {
            return Moved::Stays;
        }
        self.move_call(call)
    }

    /// Moves a call that its peer has refused.
    pub(super) fn move_refused(self: &Arc<Self>, call: &Arc<RelayedCall>, generation: Generation) {
        if self.move_call(call) != Moved::Later {
            self.send_call(call, generation);
        }
    }

    /// Whether another peer would take a call that its peer refuses with this code. **Source:** PROTOCOL 8.
    pub(super) fn has_another(&self, call: &Arc<RelayedCall>, code: Code) -> bool {
        code.is_about_executor() && self.another(call).is_some()
    }

    /// Whether the fleet's registry names somebody who may take a call that its peer refuses with this code, and has not said so
    /// over a link.
    pub(super) fn may_find_another(&self, call: &RelayedCall, code: Code) -> bool {
        code.is_about_executor() && !call.destination.is_named && self.fleet.may_come(self.missed(call))
    }

    /// Takes in that a peer refused a call once another peer is there, or nobody is left to be asked.
    pub(super) fn refused_later(
        self: &Arc<Self>,
        call: Arc<RelayedCall>,
        generation: Generation,
        error: Refused,
        refusal: Refusal,
    ) {
        let caller = Arc::clone(self);
        let mut changes = self.watch_providers();
        let deadline = self.ctx.clock.moment(call.moments.deadline_ms);
        self.ctx.spawn(async move {
            let until_asked = async {
                loop {
                    let another = caller.has_another(&call, error.code);
                    if another || !caller.may_find_another(&call, error.code) {
                        return another;
                    }
                    caller.fleet.miss(caller.missed(&call));
                    changes.changed().await;
                }
            };
            let asked = call.ended.or(tokio::time::timeout_at(deadline, until_asked)).await;
            // A call that has ended meanwhile has its answer.
            let Some(another) = asked.map(|in_time| in_time.unwrap_or(false)) else { return };
            let input = Input::Error { generation, error: Refused { another, ..error } };
            caller.drive_call(&call, Some(input), Handed::Refusal(&refusal));
        });
    }

    /// The choice among peers that have not refused the call.
    fn another(&self, call: &Arc<RelayedCall>) -> Option<Chosen> {
        let (mut refused_by, idempotent, store) = {
            let progress = lock(&call.progress);
            let chosen = progress.chosen.as_ref().filter(|_| !call.destination.is_named)?;
            let refused_by = progress.refused_by.iter().chain([&chosen.peer]).cloned();
            let may_have_run = chosen.machine.may_have_run();
            let store = chosen.descriptor.clone().filter(|_| chosen.by_id && may_have_run);
            (refused_by.collect::<Vec<_>>(), chosen.idempotent, store)
        };
        refused_by.dedup();
        let other = self.choose_from(call, None, &refused_by).ok()?;
        // FLEET X9: only those who declare the very same share the store that remembers ids.
        let shares = store.is_none_or(|store| other.by_id && other.descriptor.as_ref() == Some(&store));
        let is_linked = self.directory.peers.link(&other.peer).is_some();
        (other.idempotent == idempotent && shares && is_linked).then_some(other)
    }

    fn move_call(self: &Arc<Self>, call: &Arc<RelayedCall>) -> Moved {
        let may_move = {
            let progress = lock(&call.progress);
            if progress.given.is_some() {
                return Moved::Later;
            }
            progress.chosen.as_ref().is_some_and(|chosen| chosen.machine.may_move())
        };
        let Some(other) = may_move.then(|| self.another(call)).flatten() else { return Moved::Stays };
        let is_proven = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return Moved::Stays };
            let (from, idempotent) = (chosen.peer.clone(), chosen.idempotent);
            let is_proven = !chosen.by_id || !chosen.machine.may_have_run();
            tracing::debug!(id = %call.id, %from, to = %other.peer, "a call goes to another peer");
            progress.refused_by.push(from);
            if idempotent {
                progress.take(other);
                return Moved::Gone;
            }
            is_proven
        };
        // PROTOCOL 8: the proof, then whom the call goes to on disk, then the first copy to it.
        if is_proven {
            self.gifts.refused(&call.id, None);
        }
        self.give(call, other);
        Moved::Later
    }

    /// Whether a replica is linked, with the journal that it is known by.
    pub(super) fn is_there(&self, replica: &Replica) -> bool {
        let link = self.directory.peers.link(&replica.peer);
        link.is_some_and(|link| replica.journal.is_none() || link.journal() == replica.journal)
    }

    /// Asks the peer that a call was given to whether it has the call, and to refuse it for ever if it has not.
    pub(super) fn ask_release(self: &Arc<Self>, call: &Arc<RelayedCall>) {
        if !self.send_release(call) {
            self.drive_call(call, Some(Input::Unreleased), Handed::Nothing);
        }
    }

    /// Whether the question is out.
    fn send_release(self: &Arc<Self>, call: &Arc<RelayedCall>) -> bool {
        let id = self.ctx.fresh_id(self.ctx.clock.wall_ms());
        let replica = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return false };
            chosen.release = Some(id);
            Replica { peer: chosen.peer.clone(), journal: chosen.journal }
        };
        // Only the journal that the call was given to can tell. A peer that names none knows nothing of releases.
        let link = self.directory.peers.link(&replica.peer);
        let Some(link) = link.filter(|link| replica.journal.is_some() && link.journal() == replica.journal)
        else {
            return false;
        };
        let mut body = Vec::new();
        Request::Release { target: call.id, capability: call.name.as_str().into() }.encode(&mut body);
        let ext = naming(None, replica.journal);
        let message = Outbound {
            id,
            typ: Type::Request,
            to: replica.peer.as_str(),
            reply_to: None,
            thread_id: call.head.thread_id.as_deref(),
            // PROTOCOL 8: as long as the call may be sent, it is refused.
            ttl_ms: call.moments.expires_at_ms.saturating_sub(id.ts_ms()),
            body: &body,
            ext: ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        let envelope = self.ctx.seal(&message, &link);
        let deadline_ms = self.ctx.clock.monotonic_ms().saturating_add(RELEASE_MS);
        let who = Waiter::Release(Arc::clone(call));
        let sent = self.request(&link, id, envelope, deadline_ms, who);
        sent.inspect_err(|refusal| {
            tracing::debug!(peer = %replica.peer, reason = refusal.message, "a release was not asked for");
        })
        .is_ok()
    }

    /// What a peer said of a release that this sidecar asked for.
    pub(super) fn on_release_answer(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        peer: &Did,
        typ: Type,
        body: &[u8],
    ) {
        let is_released = typ == Type::Response
            && matches!(
                Response::decode(body),
                Ok(Response::Release { target, state: ReleaseState::Released }) if target == call.id
            );
        tracing::debug!(id = %call.id, %peer, is_released, "a call's peer was asked to release it");
        if is_released {
            self.gifts.released(&call.id, peer);
        }
        let input = if is_released { Input::Released } else { Input::Unreleased };
        self.drive_call(call, Some(input), Handed::Nothing);
    }
}

/// How long a release may take, in milliseconds. Ours: a few commits of a slow disk, and little of a call's time.
const RELEASE_MS: u64 = 5_000;
