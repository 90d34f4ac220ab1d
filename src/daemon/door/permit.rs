//! Permits callers what the policy allows, or refuses them without revealing anything.
//!
//! PROTOCOL 7.3: the decision about a name comes before any check whether it is served. A denied caller gets the same
//! refusal in either case, after one look-up in what it may call and one in the decisions about names.

use std::sync::Arc;

use capd_proto::capability::{CapabilityId, CapabilityPattern};
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::Door;
use crate::daemon::context::refusal::{denied, mismatch};
use crate::daemon::context::{Inbound, Refusal};
use crate::policy::{Action, Caller, Decisions, View};
use crate::registry::Registry;
use crate::registry::snapshot::{Entry, Event, Origin, Snapshot};
use crate::router;

/// What a caller may have of what is known at one moment.
pub(in crate::daemon) struct Permit {
    /// What is known.
    pub(in crate::daemon) snapshot: Arc<Snapshot>,
    who: Who,
    /// Whether it may learn that a name is unknown.
    is_named: bool,
}

enum Who {
    /// The sidecar's own agent.
    Own(OwnRights),
    /// A peer, and what it may call.
    Peer(View),
}

impl Permit {
    /// What a route that was not found is refused with.
    pub(in crate::daemon) fn refusal(&self, refusal: router::Refusal) -> Refusal {
        if self.is_named { mismatch(refusal) } else { denied() }
    }

    /// What a peer may call here; none for the sidecar's own agent.
    pub(in crate::daemon) const fn view(&self) -> Option<&View> {
        match &self.who {
            Who::Own(_) => None,
            Who::Peer(view) => Some(view),
        }
    }

    /// Everything that a peer may call here; none for the sidecar's own agent, who may have it all.
    pub(in crate::daemon) fn callable(&self) -> Option<impl Iterator<Item = &Arc<Descriptor>>> {
        self.view().map(|view| view.all().map(|callable| &callable.descriptor))
    }

    /// Whether its holder may call what an entry serves.
    pub(in crate::daemon) fn may_call(&self, entry: &Entry) -> bool {
        match &self.who {
            Who::Own(own) => own.may(Action::Invoke, entry),
            Who::Peer(view) => view.may_call(&entry.descriptor),
        }
    }

    /// Whether its holder may see an entry listed, which takes that it may call it.
    pub(in crate::daemon) fn may_see(&self, entry: &Entry) -> bool {
        match &self.who {
            Who::Own(own) => own.may_see(entry),
            Who::Peer(view) => view.may_see(&entry.descriptor),
        }
    }

    /// Whether its holder may have the recorded result of a call once more: whether it may call what it was a call of, or,
    /// where that is served no more, whatever has its name and version.
    pub(in crate::daemon) fn may_recall(&self, called: &CapabilityId) -> bool {
        let entries = self.snapshot.entries(called.name.as_str()).iter();
        let is_it =
            |entry: &&Entry| matches!(entry.origin, Origin::Local(_)) && entry.descriptor.id == *called;
        let mut served = entries.filter(is_it).peekable();
        if served.peek().is_some() {
            return served.any(|entry| self.may_call(entry));
        }
        match &self.who {
            Who::Own(own) => own.policy.own_may_call_gone(&own.did, called),
            Who::Peer(view) => view.may_call_gone(called),
        }
    }

    /// A number that is another whenever what its holder may see is.
    pub(in crate::daemon) fn edition(&self) -> u64 {
        match &self.who {
            Who::Own(own) => self.snapshot.number().wrapping_add(own.policy.generation() << 32),
            Who::Peer(view) => view.edition(),
        }
    }
}

/// What the sidecar's own agent may do.
#[derive(Clone)]
pub(in crate::daemon) struct OwnRights {
    policy: Arc<Decisions>,
    did: Did,
}

impl OwnRights {
    pub(in crate::daemon) const fn new(policy: Arc<Decisions>, did: Did) -> Self {
        Self { policy, did }
    }

    /// Whether it may see an entry listed: only what it may call as well.
    pub(in crate::daemon) fn may_see(&self, entry: &Entry) -> bool {
        [Action::Query, Action::Invoke].into_iter().all(|action| self.may(action, entry))
    }

    /// Whether it may do this with what somebody serves.
    pub(in crate::daemon) fn may(&self, action: Action, entry: &Entry) -> bool {
        let provider = match &entry.origin {
            Origin::Local(_) => &self.did,
            Origin::Peer(peer) => peer,
        };
        self.policy.own_may(&self.did, action, &entry.descriptor, provider)
    }

    /// Whether it may declare this.
    pub(in crate::daemon) fn may_declare(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.policy.own_may(&self.did, Action::Declare, descriptor, &self.did)
    }

    /// Applies a change of what is served here, and has the policy decide of it before anybody asks.
    pub(in crate::daemon) fn serve(&self, registry: &Registry, event: Event) {
        self.serve_all(registry, vec![event]);
    }

    /// Applies several changes, and has the policy decide of all of them at once.
    pub(in crate::daemon) fn serve_all(&self, registry: &Registry, events: Vec<Event>) {
        let mut is_changed = false;
        for event in events {
            is_changed |= registry.apply(event);
        }
        if is_changed {
            self.policy.serve(|| registry.snapshot().local().cloned().collect());
        }
    }
}

impl Door {
    /// What the sidecar's own agent may do.
    pub(in crate::daemon) fn own(&self) -> OwnRights {
        OwnRights::new(Arc::clone(&self.policy), self.ctx.did().clone())
    }

    /// What the sender may have.
    pub(in crate::daemon) fn permit(&self, inbound: &Inbound<'_>) -> Permit {
        let snapshot = self.directory.snapshot();
        if inbound.link.kind().is_local() {
            return Permit { snapshot, who: Who::Own(self.own()), is_named: true };
        }
        let did = inbound.link.principal();
        let alias = Some(inbound.sender).filter(|sender| *sender != did);
        let view = self.policy.view(Caller { did, alias });
        Permit { snapshot, who: Who::Peer(view), is_named: true }
    }

    /// What the sender may have, if it may call a capability of this name for all that is known of it. `is_executing` tells
    /// whether the call of the sender's that it asks for runs here.
    ///
    /// **Errors:** 3001, alike whether the name is known.
    pub(in crate::daemon) fn permit_call(
        &self,
        inbound: &Inbound<'_>,
        name: &str,
        is_executing: impl FnOnce() -> bool,
    ) -> Result<Permit, Refusal> {
        let permit = self.permit(inbound);
        let Some(view) = permit.view() else { return Ok(permit) };
        let is_admitted = self.admits(inbound.link.principal());
        if is_admitted && (!view.callable(name).is_empty() || view.may_call_named(name)) {
            return Ok(permit);
        }
        // PROTOCOL 8: what was accepted ends with its one result and no ERROR, whatever the policy says by now.
        if is_executing() {
            return Ok(Permit { is_named: false, ..permit });
        }
        Err(denied())
    }

    /// What the sender may have, if it may ask for capabilities of this pattern.
    ///
    /// **Errors:** 3001 for a name that it may not see, alike whether the name is known. A namespace is anybody's to ask
    /// for: it is answered with what the sender may see of it.
    pub(in crate::daemon) fn permit_query(
        &self,
        inbound: &Inbound<'_>,
        pattern: &CapabilityPattern,
    ) -> Result<Permit, Refusal> {
        let permit = self.permit(inbound);
        let (Some(view), CapabilityPattern::Name(name)) = (permit.view(), pattern) else { return Ok(permit) };
        let is_seen = view.callable(name.as_str()).iter().any(|callable| callable.is_listed);
        if is_seen || view.may_see_named(name.as_str()) { Ok(permit) } else { Err(denied()) }
    }
}
