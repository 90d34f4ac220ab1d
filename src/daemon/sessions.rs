//! REQUEST in; agreed versions, pinned for later calls, and cancels, out.

mod agreed;

use capd_proto::capability::Version;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{Accept, CancelState, Invoke, NegotiateRequest, Request, Response, Type};
use capd_proto::negotiate::{Session, SessionId, Sessions, Want};

use self::agreed::{Agreed, Agreement};
use crate::daemon::context::Inbound;
use crate::daemon::context::{Refusal, lock};
use crate::daemon::node::Node;
use crate::provider::CallKey;
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};

/// Versions agreed on: by us with callers, and by peers with our agent.
pub(super) struct Pins {
    accepted: Sessions,
    /// The agent's sessions with peers, as their RESPONSE passed by.
    with_peers: Agreed,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            accepted: Sessions::new(SESSIONS_MAX, SESSIONS_PER_PEER_MAX),
            with_peers: Agreed::new(SESSIONS_MAX, SESSIONS_PER_PEER_MAX),
        }
    }
}

impl Node {
    /// REQUEST: negotiate, cancel, list calls, read or prune the audit log, look into or reload the policy, or an operation of another protocol's. **Source:** PROTOCOL 7.5, 7.6.
    pub(super) fn on_request(&self, inbound: &Inbound<'_>, is_ours: bool) -> Result<(), Refusal> {
        match Request::decode(inbound.body).map_err(Refusal::of)? {
            Request::Cancel { target } => self.on_cancel(inbound, target, is_ours),
            _ if !is_ours => self.forward(inbound, Type::Request),
            Request::Negotiate(_)
                if inbound.link.kind().is_local()
                    && let Some(again) = self.directory.until_fresh() =>
            {
                self.meet_again(inbound, again);
                Ok(())
            }
            Request::Negotiate(request) => self.on_negotiate(inbound, &request),
            Request::Calls(request) => self.on_calls(inbound, &request),
            Request::Audit(request) => self.on_audit(inbound, &request),
            Request::AuditPrune(request) => self.on_audit_prune(inbound, request),
            Request::PolicyWhy(request) => self.on_policy_why(inbound, &request),
            Request::PolicyReload => self.on_policy_reload(inbound),
            Request::Metrics => self.on_metrics(inbound),
            Request::Peers => self.on_peers(inbound),
            Request::Other { op } => {
                Err(Refusal::new(Code::BAD_REQUEST, format!("the operation {op:?} is not known here")))
            }
        }
    }

    fn on_cancel(&self, inbound: &Inbound<'_>, target: MessageId, is_ours: bool) -> Result<(), Refusal> {
        let is_agent = inbound.link.kind().is_local();
        let state = if is_agent && self.cancel_relayed(&target) {
            CancelState::Cancelling
        } else if is_agent && self.relay.has_ended(&target) {
            CancelState::Finished
        } else if !is_ours {
            return self.forward(inbound, Type::Request);
        } else {
            // PROTOCOL 7.6: only the call's own `from` may cancel it, so the key carries the asking principal.
            self.cancel_execution(&CallKey { from: inbound.sender.clone(), id: target })
        };
        let mut body = Vec::new();
        Response::Cancel { target, state }.encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    fn on_negotiate(&self, inbound: &Inbound<'_>, request: &NegotiateRequest<'_>) -> Result<(), Refusal> {
        let (name, want) = request.want().map_err(Refusal::of)?;
        let permit = self.door.permit_call(inbound, name.as_str(), || self.is_executing(inbound))?;
        let scope = if inbound.link.kind().is_local() { Scope::Anywhere } else { Scope::Local };
        let may_call = |entry: &Entry| permit.may_call(entry);
        let choice = router::route(&permit.snapshot, name.as_str(), &want, scope, may_call)
            .map_err(|refusal| permit.refusal(refusal))?;
        if let Origin::Peer(peer) = &choice.entry.origin {
            return self.forward_to(inbound, Type::Request, peer.clone());
        }
        let now_ms = self.ctx.clock.wall_ms();
        let id = self.ctx.random.bytes().map_err(|_| Refusal::new(Code::INTERNAL_ERROR, "no randomness"))?;
        let session = Session {
            id: SessionId(id),
            peer: inbound.sender.clone(),
            name: name.clone(),
            agreed_version: choice.entry.descriptor.id.version.clone(),
            expires_at: now_ms.saturating_add(SESSION_MS),
        };
        let version = session.agreed_version.to_string();
        let accept = Accept {
            capability: name.as_str().into(),
            agreed_version: version.into(),
            session_id: session.id,
            expires_at: session.expires_at,
        };
        let accepted = lock(&self.pins).accepted.accept(session, now_ms);
        accepted.map_err(Refusal::of)?;
        let mut body = Vec::new();
        Response::Accept(accept).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    /// What a call wants once its session has had its say. **Errors:** 4001.
    pub(super) fn wanted(
        &self,
        inbound: &Inbound<'_>,
        name: &str,
        asked: Option<Want>,
        invoke: &Invoke<'_>,
    ) -> Result<Want, Refusal> {
        let session = invoke.session.map(|session| session.session_id);
        let want = lock(&self.pins).accepted.want(
            name,
            asked,
            session,
            inbound.sender.as_str(),
            inbound.now.wall_ms,
        );
        want.map_err(Refusal::of)
    }

    /// The peer and version that a session of the agent's pins.
    pub(super) fn pinned_by(&self, id: SessionId, name: &str) -> Option<(Did, Version)> {
        let pins = lock(&self.pins);
        let agreed = pins.with_peers.find(id, self.ctx.clock.wall_ms())?;
        (agreed.name.as_str() == name).then(|| (agreed.peer.clone(), agreed.version.clone()))
    }

    /// A peer's RESPONSE on its way to the agent: a session agreed on is remembered.
    pub(super) fn learn_session(&self, peer: &Did, body: &[u8]) {
        let Ok(Response::Accept(accept)) = Response::decode(body) else { return };
        let Ok((name, version)) = accept.agreement() else { return };
        let agreement = Agreement { peer: peer.clone(), name, version };
        let now_ms = self.ctx.clock.wall_ms();
        lock(&self.pins).with_peers.take(accept.session_id, agreement, accept.expires_at, now_ms);
    }
}

/// How long a session holds, in milliseconds.
const SESSION_MS: u64 = 60 * 60 * 1_000;
/// Sessions held at a time.
const SESSIONS_MAX: usize = 65_536;
/// Sessions held with one caller.
const SESSIONS_PER_PEER_MAX: usize = 1_024;
