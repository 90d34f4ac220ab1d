//! Callers and what they ask for in; what the policy lets them have, or one refusal that tells them nothing, out.
//!
//! PROTOCOL 7.3: a name is decided on before anything looks whether it is served. Whoever may not call it is refused
//! alike in either case, after a look-up in what it may call and one in what was decided of names.

use std::sync::Arc;

use capd_proto::capability::{CapabilityId, CapabilityPattern};
use capd_proto::ledger::Status;
use capd_proto::message::Descriptor;

use crate::daemon::context::Inbound;
use crate::daemon::context::Refusal;
use crate::daemon::context::refusal::{denied, mismatch};
use crate::daemon::node::Node;
use crate::policy::{Action, Caller, View};
use crate::provider::CallKey;
use crate::registry::snapshot::{Entry, Event, Origin, Snapshot};
use crate::router;

/// What a caller may have of what is known at one moment.
pub(super) struct Permit {
    /// What is known.
    pub(super) snapshot: Arc<Snapshot>,
    /// What a peer may call; none for the sidecar's own agent.
    view: Option<View>,
    /// Whether it may learn that a name is unknown.
    is_named: bool,
}

impl Permit {
    /// What a route that was not found is refused with.
    pub(super) fn refusal(&self, refusal: router::Refusal) -> Refusal {
        if self.is_named { mismatch(refusal) } else { denied() }
    }

    /// What a peer may call here; none for the sidecar's own agent.
    pub(super) const fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Everything that a peer may call here; none for the sidecar's own agent, who may have it all.
    pub(super) fn callable(&self) -> Option<impl Iterator<Item = &Arc<Descriptor>>> {
        self.view.as_ref().map(|view| view.all().map(|callable| &callable.descriptor))
    }
}

impl Node {
    /// What the sender may have.
    pub(super) fn permit(&self, inbound: &Inbound<'_>) -> Permit {
        let snapshot = self.directory.snapshot();
        if inbound.link.kind().is_local() {
            return Permit { snapshot, view: None, is_named: true };
        }
        let did = inbound.link.principal();
        let alias = Some(inbound.sender).filter(|sender| *sender != did);
        let caller = Caller { did, alias };
        Permit { snapshot, view: Some(self.policy.view(caller)), is_named: true }
    }

    /// Applies a change of what is served here, and has the policy decide of it before anybody asks.
    pub(super) fn serve(&self, event: Event) {
        if self.directory.registry.apply(event) {
            self.policy.serve(|| self.directory.snapshot().local().cloned().collect());
        }
    }

    /// What the sender may have, if it may call a capability of this name for all that is known of it.
    ///
    /// **Errors:** 3001, alike whether the name is known.
    pub(super) fn permit_call(&self, inbound: &Inbound<'_>, name: &str) -> Result<Permit, Refusal> {
        let permit = self.permit(inbound);
        let Some(view) = &permit.view else { return Ok(permit) };
        if !view.callable(name).is_empty() || view.may_call_named(name) {
            return Ok(permit);
        }
        // PROTOCOL 8: what was accepted ends with its one result and no ERROR, whatever the policy says by now.
        let key = CallKey { from: inbound.sender.clone(), id: inbound.envelope.id };
        if matches!(self.executor.status(&key), Status::Executing) {
            return Ok(Permit { is_named: false, ..permit });
        }
        Err(denied())
    }

    /// What the sender may have, if it may ask for capabilities of this pattern.
    ///
    /// **Errors:** 3001 for a name that it may not see, alike whether the name is known. A namespace is anybody's to ask
    /// for: it is answered with what the sender may see of it.
    pub(super) fn permit_query(
        &self,
        inbound: &Inbound<'_>,
        pattern: &CapabilityPattern,
    ) -> Result<Permit, Refusal> {
        let permit = self.permit(inbound);
        let (Some(view), CapabilityPattern::Name(name)) = (&permit.view, pattern) else { return Ok(permit) };
        let is_seen = view.callable(name.as_str()).iter().any(|callable| callable.is_listed);
        if is_seen || view.may_see_named(name.as_str()) { Ok(permit) } else { Err(denied()) }
    }

    /// Whether the holder of a permit may call what an entry serves.
    pub(super) fn may_call(&self, permit: &Permit, entry: &Entry) -> bool {
        match &permit.view {
            Some(view) => view.may_call(&entry.descriptor),
            None => self.agent_may(Action::Invoke, entry),
        }
    }

    /// Whether the holder of a permit may have the recorded result of a call once more: whether it may call what it was a
    /// call of, or, where that is served no more, whatever has its name and version.
    pub(super) fn may_recall(&self, permit: &Permit, called: &CapabilityId) -> bool {
        let entries = permit.snapshot.entries(called.name.as_str()).iter();
        let is_it =
            |entry: &&Entry| matches!(entry.origin, Origin::Local(_)) && entry.descriptor.id == *called;
        let mut served = entries.filter(is_it).peekable();
        if served.peek().is_some() {
            return served.any(|entry| self.may_call(permit, entry));
        }
        match &permit.view {
            Some(view) => view.may_call_gone(called),
            None => self.policy.own_may_call_gone(self.ctx.did(), called),
        }
    }

    /// Whether the sidecar's own agent may see an entry listed: only what it may call as well.
    pub(super) fn agent_may_see(&self, entry: &Entry) -> bool {
        [Action::Query, Action::Invoke].into_iter().all(|action| self.agent_may(action, entry))
    }

    /// Whether the sidecar's own agent may do this with what somebody serves.
    pub(super) fn agent_may(&self, action: Action, entry: &Entry) -> bool {
        let provider = match &entry.origin {
            Origin::Local(_) => self.ctx.did(),
            Origin::Peer(peer) => peer,
        };
        self.policy.own_may(self.ctx.did(), action, &entry.descriptor, provider)
    }

    /// Whether the sidecar's own agent may declare this.
    pub(super) fn agent_may_declare(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.policy.own_may(self.ctx.did(), Action::Declare, descriptor, self.ctx.did())
    }

    /// A number that is another whenever what the holder of a permit may see is.
    pub(super) fn edition(&self, permit: &Permit) -> u64 {
        match &permit.view {
            Some(view) => view.edition(),
            None => permit.snapshot.number().wrapping_add(self.policy.generation() << 32),
        }
    }
}
