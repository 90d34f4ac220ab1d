//! Pins the versions that peers agreed on with the agent, from answers on their way to it.

use capd_proto::capability::Version;
use capd_proto::identity::Did;
use capd_proto::message::Response;
use capd_proto::negotiate::SessionId;

use super::Caller;
use super::agreed::{Agreed, Agreement};
use crate::daemon::context::lock;

/// No session yet.
pub(in crate::daemon) fn none() -> Agreed {
    Agreed::new(SESSIONS_MAX, SESSIONS_PER_PEER_MAX)
}

impl Caller {
    /// The peer and version that a session of the agent's pins.
    pub(in crate::daemon) fn pinned_by(&self, id: SessionId, name: &str) -> Option<(Did, Version)> {
        let pins = lock(&self.pins);
        let agreed = pins.find(id, self.ctx.clock.wall_ms())?;
        (agreed.name.as_str() == name).then(|| (agreed.peer.clone(), agreed.version.clone()))
    }

    /// A peer's RESPONSE on its way to the agent: a session agreed on is remembered.
    pub(super) fn learn_session(&self, peer: &Did, body: &[u8]) {
        let Ok(Response::Accept(accept)) = Response::decode(body) else { return };
        let Ok((name, version)) = accept.agreement() else { return };
        let agreement = Agreement { peer: peer.clone(), name, version };
        let now_ms = self.ctx.clock.wall_ms();
        lock(&self.pins).take(accept.session_id, agreement, accept.expires_at, now_ms);
    }
}

/// Sessions held at a time.
const SESSIONS_MAX: usize = 65_536;
/// Sessions held with one caller.
const SESSIONS_PER_PEER_MAX: usize = 1_024;
