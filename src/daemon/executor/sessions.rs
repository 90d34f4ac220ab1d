//! Agrees on versions with callers, and pins them for later calls.

use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{Accept, Invoke};
use capd_proto::negotiate::{Session, SessionId, Sessions, Want};

use super::Executor;
use crate::daemon::context::{Inbound, Refusal, lock};

/// No session yet.
pub(super) fn none() -> Sessions {
    Sessions::new(SESSIONS_MAX, SESSIONS_PER_PEER_MAX)
}

impl Executor {
    /// Agrees with `peer` on a version that is served here. **Source:** PROTOCOL 7.5.
    pub(in crate::daemon) fn accept(
        &self,
        peer: &Did,
        agreed: &CapabilityId,
    ) -> Result<Accept<'static>, Refusal> {
        let now_ms = self.ctx.clock.wall_ms();
        let id = self.ctx.random.bytes().map_err(|_| Refusal::new(Code::INTERNAL_ERROR, "no randomness"))?;
        let session = Session {
            id: SessionId(id),
            peer: peer.clone(),
            name: agreed.name.clone(),
            agreed_version: agreed.version.clone(),
            expires_at: now_ms.saturating_add(SESSION_MS),
        };
        let accept = Accept {
            capability: agreed.name.to_string().into(),
            agreed_version: session.agreed_version.to_string().into(),
            session_id: session.id,
            expires_at: session.expires_at,
        };
        lock(&self.accepted).accept(session, now_ms).map_err(Refusal::of)?;
        Ok(accept)
    }

    /// What a call wants once its session has had its say. **Errors:** 4001.
    pub(in crate::daemon) fn wanted(
        &self,
        inbound: &Inbound<'_>,
        name: &str,
        asked: Option<Want>,
        invoke: &Invoke<'_>,
    ) -> Result<Want, Refusal> {
        let session = invoke.session.map(|session| session.session_id);
        let want =
            lock(&self.accepted).want(name, asked, session, inbound.sender.as_str(), inbound.now.wall_ms);
        want.map_err(Refusal::of)
    }
}

/// How long a session holds, in milliseconds.
const SESSION_MS: u64 = 60 * 60 * 1_000;
/// Sessions held at a time.
const SESSIONS_MAX: usize = 65_536;
/// Sessions held with one caller.
const SESSIONS_PER_PEER_MAX: usize = 1_024;
