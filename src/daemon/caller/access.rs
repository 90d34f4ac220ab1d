//! Writes the access line of a call by the agent, and notes its phases and its tries.

use capd_proto::call::caller::Generation;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{Role, TryOutcome};

use super::{Caller, RelayedCall};
use crate::daemon::account::access::{End, Line};
use crate::daemon::account::phases::Phase;
use crate::daemon::context::lock;
use crate::net::Link;

impl Caller {
    /// A call begins to wait for something else.
    pub(super) fn enter(&self, call: &RelayedCall, phase: Phase) {
        if call.is_timed {
            self.account.enter(&mut lock(&call.progress).timeline, phase);
        }
    }

    /// A copy of a call leaves on a link.
    pub(super) fn begin_try(&self, call: &RelayedCall, generation: Generation, to: (&Did, &Link)) {
        if call.is_timed {
            let timeline = &mut lock(&call.progress).timeline;
            self.account.enter(timeline, Phase::Wire);
            self.account.begin_try(timeline, generation.0, Some(to));
        }
    }

    /// That copy has its answer, or gets none.
    pub(super) fn end_try(
        &self,
        call: &RelayedCall,
        generation: Generation,
        outcome: TryOutcome,
        code: Option<Code>,
    ) {
        if call.is_timed {
            self.account.end_try(&mut lock(&call.progress).timeline, generation.0, (outcome, code));
        }
    }

    /// The call has its end.
    pub(super) fn close(&self, call: &RelayedCall) {
        if call.is_timed {
            self.account.close(&mut lock(&call.progress).timeline);
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
            timeline: logged.timeline,
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
