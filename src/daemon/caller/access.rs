//! Writes the access line of a call by the agent, and notes its phases.

use capd_proto::message::Role;

use super::{Caller, RelayedCall};
use crate::daemon::account::access::{End, Line};
use crate::daemon::account::phases::Phase;
use crate::daemon::context::lock;

impl Caller {
    /// A call begins to wait for something else.
    pub(super) fn enter(&self, call: &RelayedCall, phase: Phase) {
        if call.traced.is_recorded() {
            self.account.enter(&mut lock(&call.progress).phases, phase);
        }
    }

    /// The agent has its answer to a call of its own.
    pub(super) fn log_relayed(&self, call: &RelayedCall, end: End<'_>) {
        let took_us = self.ctx.clock.monotonic_us().saturating_sub(call.moments.started_us);
        if !self.account.ended(Role::Caller, end, took_us, (&call.traced, &call.name)) {
            return;
        }
        let logged = call.logged();
        let descriptor = logged.descriptor.as_deref();
        self.account.log(&Line {
            role: Role::Caller,
            id: call.id(),
            traced: logged.traced,
            phases: logged.phases,
            caller: self.ctx.did().as_str(),
            peer: logged.peer.as_ref().map(|peer| peer.as_str()),
            capability: Some(logged.name),
            version: descriptor.map(|descriptor| &descriptor.id.version),
            end,
            took_us,
            params: Some(logged.invoked.params().into()),
        });
    }
}
