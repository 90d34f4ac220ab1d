//! Handles REQUEST: agrees on versions and pins them, and cancels calls.

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::message::{CancelState, NegotiateRequest, Request, Response, Type};

use super::Sidecar;
use crate::daemon::context::{Inbound, Refusal, Taken};
use crate::provider::CallKey;
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};

impl Sidecar {
    /// REQUEST: negotiate, cancel, list calls, read or prune the audit log, look into the policy, reload the configuration, copy the state, drain, or an operation of another protocol's. **Source:** PROTOCOL 7.5, 7.6.
    pub(super) fn on_request(&self, inbound: &Inbound<'_>, is_ours: bool) -> Result<Taken, Refusal> {
        match Request::decode(inbound.body).map_err(Refusal::of)? {
            Request::Cancel { target } => self.on_cancel(inbound, target, is_ours)?,
            Request::Release { target, capability } if is_ours && !inbound.link.kind().is_local() => {
                self.on_release(inbound, target, &capability)?;
            }
            Request::Fetched { targets } if is_ours && !inbound.link.kind().is_local() => {
                let targets = self.caller.fetched_from(inbound.sender, &targets);
                let mut body = Vec::new();
                Response::Fetched { targets }.encode(&mut body);
                self.ctx.reply(inbound, Type::Response, &body);
            }
            _ if !is_ours => self.caller.forward(inbound, Type::Request)?,
            Request::Negotiate(_)
                if inbound.link.kind().is_local()
                    && let Some(again) = self.directory.until_fresh() =>
            {
                return Ok(Taken::Again(again));
            }
            Request::Negotiate(request) => self.on_negotiate(inbound, &request)?,
            Request::Calls(request) => self.desk.on_calls(inbound, &request)?,
            Request::Audit(request) => self.desk.on_audit(inbound, &request)?,
            Request::AuditPrune(request) => self.desk.on_audit_prune(inbound, request)?,
            Request::PolicyWhy(request) => self.desk.on_policy_why(inbound, &request)?,
            Request::PolicyReload => self.on_policy_reload(inbound)?,
            Request::Reload(request) => self.on_reload(inbound, request)?,
            Request::Backup => self.on_backup(inbound)?,
            Request::Drain { retire } => self.on_drain(inbound, retire)?,
            Request::Metrics => self.desk.on_metrics(inbound)?,
            Request::Peers => self.desk.on_peers(inbound)?,
            Request::Fleet(request) => self.desk.on_fleet(inbound, &request)?,
            Request::Release { .. } => {
                let why = "the operation \"release\" is between sidecars; to end a call, cancel it";
                return Err(Refusal::new(Code::BAD_REQUEST, why));
            }
            Request::Fetched { .. } => {
                let why = "the operation \"fetched\" is between sidecars; to see calls, list them";
                return Err(Refusal::new(Code::BAD_REQUEST, why));
            }
            Request::Doctor => self.desk.on_doctor(inbound)?,
            Request::Other { op } => {
                return Err(Refusal::new(
                    Code::BAD_REQUEST,
                    format!("the operation {op:?} is not known here"),
                ));
            }
        }
        Ok(Taken::Done)
    }

    fn on_cancel(&self, inbound: &Inbound<'_>, target: MessageId, is_ours: bool) -> Result<(), Refusal> {
        let is_agent = inbound.link.kind().is_local();
        let state = if is_agent && self.caller.cancel_relayed(&target) {
            CancelState::Cancelling
        } else if is_agent && self.caller.has_ended(&target) {
            CancelState::Finished
        } else if !is_ours {
            return self.caller.forward(inbound, Type::Request);
        } else {
            // PROTOCOL 7.6: only the call's own `from` may cancel it, so the key carries the asking principal.
            self.executor.cancel_execution(&CallKey { from: inbound.sender.clone(), id: target })
        };
        let mut body = Vec::new();
        Response::Cancel { target, state }.encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    /// PROTOCOL 8: only the call's own `from` may have it released, at the journal that it was given to, and if it may call
    /// the capability.
    fn on_release(&self, inbound: &Inbound<'_>, target: MessageId, name: &str) -> Result<(), Refusal> {
        self.door.permit_call(inbound, name, || false)?;
        self.is_for_this_journal(inbound)?;
        self.executor.on_release(inbound, target)
    }

    fn on_negotiate(&self, inbound: &Inbound<'_>, request: &NegotiateRequest<'_>) -> Result<(), Refusal> {
        let (name, want) = request.want().map_err(Refusal::of)?;
        let permit = self.door.permit_call(inbound, name.as_str(), || self.executor.is_executing(inbound))?;
        let scope = if inbound.link.kind().is_local() { Scope::Anywhere } else { Scope::Local };
        let may_call = |entry: &Entry| permit.may_call(entry);
        let choice = router::route(&permit.snapshot, name.as_str(), &want, scope, may_call)
            .map_err(|refusal| permit.refusal(refusal))?;
        if let Origin::Peer(peer) = &choice.entry.origin {
            return self.caller.forward_to(inbound, Type::Request, peer.clone());
        }
        let accept = self.executor.accept(inbound.sender, &choice.entry.descriptor.id)?;
        let mut body = Vec::new();
        Response::Accept(accept).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }
}
