//! Sends a CAP_INVOKE to the executor if it runs here, or to the caller if a peer runs it.

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::limits::{AFFINITY_BYTES_MAX, EXT_AFFINITY, EXT_JOURNAL};
use capd_proto::message::{Identity, Invoke};
use capd_proto::negotiate::Want;

use super::Sidecar;
use crate::daemon::caller::{Agreement, Destination, Passed};
use crate::daemon::context::refusal::forgotten;
use crate::daemon::context::{Inbound, Refusal, Taken};
use crate::daemon::executor::Incoming;
use crate::registry::snapshot::Entry;
use crate::router::{self, Scope};

impl Sidecar {
    /// CAP_INVOKE: from a peer it runs here; from the agent it runs wherever it is served. **Source:** PROTOCOL 7.3.
    pub(super) fn on_invoke(&self, inbound: &Inbound<'_>) -> Result<Taken, Refusal> {
        let invoke = Invoke::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
        let identity = invoke.identity().map_err(Refusal::of)?;
        let taken = self.take_invoke(inbound, &invoke, &identity);
        match taken {
            // PROTOCOL 8: an ERROR says that nothing was executed under this id. One about another body is about another call.
            Err(refusal)
                if inbound.link.kind().is_local()
                    && refusal.code != Code::BAD_REQUEST
                    && self.caller.may_have_run(&inbound.envelope.id, &identity.name) =>
            {
                self.account.log_refused(inbound.link, inbound.payload, &refusal, true);
                self.caller.answer_unknown(inbound, &refusal);
                Ok(Taken::Done)
            }
            // The same if the clock has gone back since the call was forgotten.
            Err(refusal)
                if inbound.link.kind().is_local()
                    && refusal.code != Code::BAD_REQUEST
                    && self.may_have_forgotten(inbound.expires_at_ms()) =>
            {
                Err(forgotten())
            }
            taken => taken,
        }
    }

    fn take_invoke(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        identity: &Identity<'_>,
    ) -> Result<Taken, Refusal> {
        let name = &*identity.name;
        let permit = self.door.permit_call(inbound, name, || self.executor.is_executing(inbound))?;
        if invoke.delegation.is_some() {
            // PROTOCOL 7.3: until delegations are supported, none holds.
            return Err(Refusal::new(Code::DELEGATION_INVALID, "delegation is not supported"));
        }
        if !inbound.link.kind().is_local() {
            self.is_for_this_journal(inbound)?;
            let want = self.executor.wanted(inbound, name, identity.want.clone(), invoke)?;
            return self.execute(Incoming { inbound, invoke, name, want, output: None, permit });
        }
        if self.caller.joins(inbound)? {
            return Ok(Taken::Done);
        }
        let affinity = match affinity(inbound) {
            // PROTOCOL 8: it has a peer, and an ERROR would say that it did not run.
            Err(_) if self.caller.may_have_run(&inbound.envelope.id, name) => None,
            affinity => affinity?,
        };
        let to = if inbound.is_for(self.ctx.did()) { None } else { Some(self.caller.peer_named(inbound)?) };
        let pinned = invoke.session.and_then(|session| self.caller.pinned_by(session.session_id, name));
        let (want, to, journal) = match pinned {
            Some(Agreement { peer, journal, version, .. }) if to.as_ref().is_none_or(|to| *to == peer) => {
                (Want::Pinned(version), Some(peer), journal)
            }
            _ => (self.executor.wanted(inbound, name, identity.want.clone(), invoke)?, to, None),
        };
        let is_named = to.is_some();
        let runs_here = || self.executor.executes(inbound.envelope.id);
        let to = self.caller.given_to(&inbound.envelope.id, name, to, runs_here)?;
        if to.is_none() || to.as_ref() == Some(self.ctx.did()) {
            if runs_here() {
                return self.execute(Incoming { inbound, invoke, name, want, output: None, permit });
            }
            let may_call = |entry: &Entry| permit.may_call(entry);
            let local = router::route(&permit.snapshot, name, &want, Scope::Local, may_call);
            if let Ok(descriptor) = local.map(|choice| Arc::clone(&choice.entry.descriptor)) {
                let output = match self.caller.pass_here(inbound, invoke, &descriptor)? {
                    Passed::Through(output) => output,
                    Passed::Again(again) => return Ok(Taken::Again(again)),
                };
                return self.execute(Incoming { inbound, invoke, name, want, output, permit });
            }
        }
        let may_have_run_here = self.executor.may_have_forgotten(inbound.expires_at_ms());
        let destination = Destination { to, is_named, journal, affinity, may_have_run_here };
        self.caller.relay_call(inbound, invoke, name, want, destination)?;
        Ok(Taken::Done)
    }

    fn may_have_forgotten(&self, expires_at_ms: u64) -> bool {
        self.caller.may_have_forgotten(expires_at_ms) || self.executor.may_have_forgotten(expires_at_ms)
    }

    fn execute(&self, call: Incoming<'_>) -> Result<Taken, Refusal> {
        self.executor.execute(&call)
    }

    /// **Errors:** 5902 for a call that its caller's sidecar gave to another journal than ours.
    pub(super) fn is_for_this_journal(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        match inbound.envelope.ext_bytes(EXT_JOURNAL) {
            Some(named) if *named != self.journal.id().0 => {
                let why = "this sidecar has another journal than the call names";
                Err(Refusal::new(Code::INTERRUPTED, why))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The affinity that an invoke of the agent's names. **Errors:** 4001 for one that is none.
pub(super) fn affinity(inbound: &Inbound<'_>) -> Result<Option<Box<str>>, Refusal> {
    // Nearly always there is no `ext` at all.
    if !inbound.envelope.ext_has(EXT_AFFINITY) {
        return Ok(None);
    }
    let text = inbound.envelope.ext_text(EXT_AFFINITY);
    let text = text.filter(|text| (1..=AFFINITY_BYTES_MAX).contains(&text.len())).ok_or_else(|| {
        let why = format!("ext.{EXT_AFFINITY}: accepted: text of 1 to {AFFINITY_BYTES_MAX} bytes");
        Refusal::new(Code::BAD_REQUEST, why)
    })?;
    Ok(Some(text.into()))
}
