//! Pins the versions that peers agreed on with the agent, from answers on their way to it.

use capd_proto::message::Response;
use capd_proto::negotiate::SessionId;

use super::Caller;
use super::agreed::{Agreed, Agreement};
use crate::daemon::context::lock;
use crate::net::Link;

/// No session yet.
pub(in crate::daemon) fn none() -> Agreed {
    Agreed::new(SESSIONS_MAX, SESSIONS_PER_PEER_MAX)
}

impl Caller {
    /// What a session of the agent's pins for calls of a capability.
    pub(in crate::daemon) fn pinned_by(&self, id: SessionId, name: &str) -> Option<Agreement> {
        let pins = lock(&self.pins);
        pins.find(id, self.ctx.clock.wall_ms()).filter(|agreed| agreed.name.as_str() == name).cloned()
    }

    /// A peer's RESPONSE on its way to the agent: a session agreed on is remembered.
    pub(super) fn learn_session(&self, link: &Link, body: &[u8]) {
        let Ok(Response::Accept(accept)) = Response::decode(body) else { return };
        let Ok((name, version)) = accept.agreement() else { return };
        let agreement = Agreement { peer: link.principal().clone(), journal: link.journal(), name, version };
        let now_ms = self.ctx.clock.wall_ms();
        lock(&self.pins).take(accept.session_id, agreement, accept.expires_at, now_ms);
    }
}

/// Sessions held at a time.
const SESSIONS_MAX: usize = 65_536;
/// Sessions held with one caller.
const SESSIONS_PER_PEER_MAX: usize = 1_024;
