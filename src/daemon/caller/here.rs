//! Calls that wait for a peer in; those that an agent here has come to serve meanwhile, met again as local calls, out.

use std::sync::Arc;

use capd_proto::envelope::Ext;
use capd_proto::message::Type;

use super::RelayedCall;
use crate::changes::Watch;
use crate::daemon::context::{Outbound, lock};
use crate::daemon::node::Node;
use crate::net::Now;
use crate::policy::Action;
use crate::registry::snapshot::Entry;
use crate::router::{self, Scope};

/// Wakes when a peer, or what is served, has changed.
pub(super) struct Changed {
    peers: Watch,
    served: Watch,
}

impl Changed {
    /// Waits until something has changed since the last time; cancelling it loses no change.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            biased;
            () = self.peers.changed() => {}
            () = self.served.changed() => {}
        }
    }
}

impl Node {
    /// Sees every change of peers, and of what is served, from here on.
    pub(super) fn watch_providers(&self) -> Changed {
        Changed { peers: self.directory.peers.watch(), served: self.directory.registry.watch() }
    }

    /// Whether an agent here serves a call that no peer may have.
    pub(super) fn is_served_here(&self, call: &RelayedCall) -> bool {
        let is_free = call.to.is_none()
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
            thread_id: call.thread_id.as_deref(),
            ttl_ms: call.expires_at_ms.saturating_sub(call.id.ts_ms()),
            body: &call.invoked().body,
            ext: call.ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        let envelope = self.ctx.seal_signed(&message, false);
        // What it has waited for counts towards its time.
        let now = self.ctx.clock.now();
        let waited_ms = now.monotonic_ms.saturating_sub(call.started_ms);
        let then = Now { wall_ms: now.wall_ms.saturating_sub(waited_ms), monotonic_ms: call.started_ms };
        self.relay.withdraw_call(&call.id);
        call.ended.set();
        let waiters = std::mem::take(&mut lock(&call.progress).waiters);
        for (link, route) in waiters {
            self.door.take_again(then, &link, &route, &envelope, &|inbound| self.dispatch(inbound));
        }
    }
}
