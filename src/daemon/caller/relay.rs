//! Relays a CAP_INVOKE of the agent to a peer, or refuses it once.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::message::Invoke;
use capd_proto::negotiate::Want;
use smallvec::smallvec;

use super::Caller;
use super::call::{Destination, Ended, Head, Invoked, Moments, Precomputed, Progress, RelayedCall};
use super::outgoing::Added;
use crate::daemon::account::meter::CallLimit;
use crate::daemon::account::phases::Phase;
use crate::daemon::context::{Inbound, Refusal};

impl Caller {
    /// Lets a copy of a call that waits for its provider share that call's fate, whoever has come to serve it meanwhile: were
    /// it refused alone, the call could still run. `false` when no such call is under way.
    ///
    /// **Errors:** 4001 for a copy with another body.
    pub(in crate::daemon) fn joins(&self, inbound: &Inbound<'_>) -> Result<bool, Refusal> {
        self.outgoing.call(&inbound.envelope.id).map_or(Ok(false), |running| running.join(inbound))
    }

    /// Makes a call of the agent's.
    pub(in crate::daemon) fn relay_call(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        name: &str,
        want: Want,
        destination: Destination,
    ) -> Result<(), Refusal> {
        if self.ctx.draining.is_cancelled() {
            return Err(Refusal::new(Code::UNAVAILABLE, "the sidecar drains and takes no new calls"));
        }
        let time_ms = invoke.timeout_ms.unwrap_or(self.ctx.call_timeout_ms());
        let traced = self.account.traced(inbound.envelope);
        let timeline = self.account.timeline(&traced, inbound.link, inbound.now.monotonic_us);
        let call = Arc::new(RelayedCall {
            id: inbound.envelope.id,
            invoked: Mutex::new(Invoked::new(inbound, invoke)),
            name: name.to_owned(),
            want,
            destination,
            head: Head {
                ext: inbound.envelope.ext.map(Bytes::copy_from_slice),
                thread_id: inbound.envelope.thread_id.as_deref().map(Bytes::copy_from_slice),
            },
            moments: Moments {
                expires_at_ms: inbound.expires_at_ms(),
                timeout_ms: invoke.timeout_ms,
                deadline_ms: inbound.now.deadline_ms(inbound.expires_at_ms(), time_ms),
                started_us: inbound.now.monotonic_us,
            },
            traced,
            is_timed: timeline.is_kept(),
            ended: Ended::default(),
            progress: Mutex::new(Progress {
                waiters: smallvec![(Arc::clone(inbound.link), inbound.route.clone())],
                given: None,
                chosen: None,
                refused_by: Vec::new(),
                timeline,
            }),
            precomputed: Precomputed::default(),
        });
        match self.outgoing.add_call(&call) {
            Added::New => {}
            // Another ask under the same id came in between.
            Added::Running(running) if running.join(inbound)? => return Ok(()),
            Added::Running(_) | Added::Full => {
                self.account.meter.refused(CallLimit::RequestsWaiting);
                return Err(Refusal::new(Code::OVERLOADED, "too many calls are in flight"));
            }
        }
        self.enter(&call, Phase::Choose);
        match self.choose_living_peer(&call) {
            Ok(chosen) => self.give(&call, chosen),
            Err(missing) => self.choose_peer_later(call, missing),
        }
        Ok(())
    }
}
