//! Passes calls of local capabilities through the gate, and resumes calls whose provider appeared here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::envelope::Ext;
use capd_proto::message::{Descriptor, Invoke, Type};

use super::drift::{Barrier, held_against};
use super::{Caller, RelayedCall};
use crate::changes::Watch;
use crate::daemon::account::audit::Audited;
use crate::daemon::context::inbound::{Again, Inbound};
use crate::daemon::context::judge::verdict;
use crate::daemon::context::refusal::refused_artifact;
use crate::daemon::context::{Outbound, Refusal, lock};
use crate::net::{Link, Now, Route};
use crate::policy::Action;
use crate::registry::snapshot::Entry;
use crate::router::{self, Scope};
use crate::schema::{Artifact, ArtifactError, Side};

/// Wakes when a peer, or what is served, has changed.
pub(super) struct Changed {
    peers: Watch,
    served: Watch,
    registered: Option<Watch>,
    /// One for each call that waits.
    waiting: Arc<()>,
}

impl Changed {
    /// Waits until something has changed since the last time.
    ///
    /// Each call that waits looks at all providers of its name then. Where many wait, they look less often, so that the links
    /// that they wait for have time to open.
    pub(super) async fn changed(&mut self) {
        let registered = async {
            match &mut self.registered {
                Some(registered) => registered.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.peers.changed() => {}
            () = self.served.changed() => {}
            () = registered => {}
        }
        let waiting = Arc::strong_count(&self.waiting) - 1;
        if let Some(many) = waiting.checked_sub(FEW_WAIT) {
            tokio::time::sleep(PAUSE.saturating_mul(u32::try_from(many).unwrap_or(u32::MAX)).min(PAUSE_MAX))
                .await;
            self.look();
        }
    }

    /// What has changed until now is seen.
    fn look(&mut self) {
        self.peers.look();
        self.served.look();
        if let Some(registered) = &mut self.registered {
            registered.look();
        }
    }
}

/// What became of a call at the gate.
pub(in crate::daemon) enum Passed {
    /// It may run; its result is to fit this schema besides the provider's.
    Through(Option<Arc<Artifact>>),
    /// Nobody has decided yet: it is to be met again once this has ended.
    Again(Again),
}

/// Where messages are met, as if they had just come.
pub(in crate::daemon) trait Here: Send + Sync {
    /// Meets a message of the agent's as if it had come at `now`.
    fn meet(self: Arc<Self>, now: Now, link: &Arc<Link>, route: &Route, envelope: &Bytes);
}

impl Caller {
    /// The agent's call of what is served here, at the gate and held against what the agent was built against. Gives
    /// the schema that its result is to fit besides the provider's, or what is to be awaited before the call is met again.
    pub(in crate::daemon) fn pass_here(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        descriptor: &Descriptor,
    ) -> Result<Passed, Refusal> {
        let name = descriptor.id.name.as_str();
        if !self.drift.is_before(name) {
            return Ok(Passed::Through(None));
        }
        let (peer, id) = (self.ctx.did().as_str(), &inbound.envelope.id);
        let session = invoke.session.map(|session| session.session_id);
        let about = Audited { capability: name, peer, id, session };
        let passed = self
            .offered(descriptor)
            .and_then(|offered| Ok((self.pass(descriptor, &offered, self.ctx.did())?, offered)));
        let (requirement, offered) = match passed {
            Ok(passed) => passed,
            Err(Barrier::Schema(hash)) => return Err(refused_artifact(ArtifactError::Missing(hash))),
            Err(Barrier::Refused(shut)) => {
                self.audit_drift(&shut, about);
                return Err(shut.refusal);
            }
            Err(Barrier::Undecided(question)) => {
                let caller = Arc::clone(self);
                return Ok(Passed::Again(Box::pin(async move {
                    caller.prove(*question, caller.ctx.did()).await;
                    Vec::new()
                })));
            }
        };
        // The executor holds them against the provider's own schema.
        if let Some(input) = requirement.as_ref().and_then(|requirement| requirement.needed.input.as_ref()) {
            let (params, side) = (invoke.params, Side::Request);
            match verdict(input, params, side, inbound.judged).map_err(refused_artifact)? {
                Some(verdict) => verdict.map_err(|violations| {
                    self.account.refused_params(inbound.envelope.thread_id.as_deref(), about, &violations)
                })?,
                None => return Ok(Passed::Again(inbound.again_judged(&self.ctx, input, params, side))),
            }
        }
        let (_, output) = held_against(requirement.as_deref(), &offered);
        Ok(Passed::Through(output))
    }

    /// Sees every change of peers, and of what is served, from here on.
    pub(super) fn watch_providers(&self) -> Changed {
        Changed {
            peers: self.directory.peers.watch(),
            served: self.directory.registry.watch(),
            registered: self.fleet.registry().map(crate::fleet::Fleet::watch),
            waiting: Arc::clone(&self.outgoing.waiting),
        }
    }

    /// Whether an agent here serves a call that no peer may have.
    pub(super) fn is_served_here(&self, call: &RelayedCall) -> bool {
        let is_free = call.destination.to.is_none()
            && self.gifts.peer(&call.id).is_none()
            && self.gifts.former(&call.id, &call.name).is_none();
        let may_call = |entry: &Entry| self.own.may(Action::Invoke, entry);
        is_free
            && router::route(&self.directory.snapshot(), &call.name, &call.want, Scope::Local, may_call)
                .is_ok()
    }

    /// Meets a call that nobody was given again, as if it had just come: an agent here serves it.
    pub(super) fn meet_here(&self, call: &Arc<RelayedCall>) {
        let message = Outbound {
            id: call.id,
            typ: Type::CapInvoke,
            to: self.ctx.did().as_str(),
            reply_to: None,
            thread_id: call.head.thread_id.as_deref(),
            ttl_ms: call.moments.expires_at_ms.saturating_sub(call.id.ts_ms()),
            body: &call.invoked().body,
            ext: call.head.ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        let envelope = self.ctx.seal_signed(&message, false);
        // What it has waited for counts towards its time.
        let now = self.ctx.clock.now();
        let (monotonic_us, monotonic_ms) = (call.moments.started_us, call.moments.started_us / 1_000);
        let waited_ms = now.monotonic_ms.saturating_sub(monotonic_ms);
        let then = Now { wall_ms: now.wall_ms.saturating_sub(waited_ms), monotonic_ms, monotonic_us };
        self.outgoing.withdraw_call(&call.id);
        call.ended.set();
        let waiters = std::mem::take(&mut lock(&call.progress).waiters);
        let Some(here) = self.here.upgrade() else { return };
        for (link, route) in waiters {
            Arc::clone(&here).meet(then, &link, &route, &envelope);
        }
    }
}

/// Calls that wait and look at once.
const FEW_WAIT: usize = 4;
/// For each one beyond them, all look later by this.
const PAUSE: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::changes::Changes;

    /// How often so many look in all, while something changes fifty times in fifty milliseconds.
    async fn looks(count: usize) -> u32 {
        let (changes, waiting, looks) = (Changes::default(), Arc::new(()), Arc::new(AtomicU32::new(0)));
        for _ in 0..count {
            let mut changed = Changed {
                peers: changes.watch(),
                served: changes.watch(),
                registered: None,
                waiting: Arc::clone(&waiting),
            };
            let looks = Arc::clone(&looks);
            tokio::spawn(async move {
                loop {
                    changed.changed().await;
                    changed.look();
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            changes.changed();
        }
        tokio::time::sleep(PAUSE_MAX).await;
        looks.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn few_that_wait_look_at_each_change_and_many_at_all_of_a_while() {
        assert_eq!(looks(3).await, 150);
        let of_many = looks(104).await;
        assert!((104..=3 * 104).contains(&of_many), "{of_many} looks");
    }
}
