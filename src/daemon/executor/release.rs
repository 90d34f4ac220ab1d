//! Releases calls: a tombstone on disk, then the answer that lets the caller's sidecar give the call to another executor
//! (PROTOCOL 8).

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::ledger::Release;
use capd_proto::message::{ReleaseState, Response, Type};

use super::Executor;
use super::record::Written;
use super::table::Waiter;
use crate::daemon::context::refusal::forgotten;
use crate::daemon::context::wire::released_details;
use crate::daemon::context::{Inbound, Refusal, lock};
use crate::daemon::journal::untaken;
use crate::provider::CallKey;
use crate::store::{Change, Released, Row, StoreError, Work};

impl Executor {
    /// REQUEST release of a call of the sender's: answered once no copy of it can run here, or it is known to have been
    /// accepted.
    ///
    /// **Errors:** 1003 for a call that may have been accepted and forgotten, 5004 when there is no room for its
    /// tombstone.
    pub(in crate::daemon) fn on_release(
        &self,
        inbound: &Inbound<'_>,
        target: MessageId,
    ) -> Result<(), Refusal> {
        let key = CallKey { from: inbound.sender.clone(), id: target };
        // PROTOCOL 8: the request lasts as long as the call does, and so does the tombstone.
        let expires_at_ms = inbound.expires_at_ms();
        let asker = Waiter {
            link: Arc::clone(inbound.link),
            route: inbound.route.clone(),
            request: Some(Box::new(inbound.envelope.id)),
        };
        #[cfg(feature = "test-hooks")]
        if self.is_careless() && !self.knows(&key) {
            self.answer_release(target, &asker, ReleaseState::Released);
            return Ok(());
        }
        let released = lock(&self.table.calls).ledger.release(&key, expires_at_ms, asker);
        match released {
            Release::New => self.bury(key, expires_at_ms),
            Release::Attached { displaced: _ } => Ok(()),
            Release::Released(asker) => {
                self.answer_release(target, &asker, ReleaseState::Released);
                Ok(())
            }
            Release::Accepted(asker) => {
                self.answer_release(target, &asker, ReleaseState::Accepted);
                Ok(())
            }
            Release::Forgotten(_) => Err(forgotten()),
            Release::Full { bound, .. } => Err(self.full(bound)),
        }
    }

    /// Asks the journal for a tombstone's row. **Errors:** 5004 when its queue is full, 5002 when it has ended.
    fn bury(&self, key: CallKey, expires_at_ms: u64) -> Result<(), Refusal> {
        let row = self.scribe.next_row();
        let change = Change::Release(Released { row, key: key.clone(), expires_at_ms });
        let tag = Written::Released { key: key.clone(), row };
        self.scribe.submit(Work::Write(change), tag).map_err(|reason| {
            // The one who asked is told by the refusal.
            let _told = lock(&self.table.calls).ledger.unreleased(&key);
            untaken(reason)
        })
    }

    /// PROTOCOL 8: the tombstone is on disk, so the caller may hear of it.
    pub(super) fn on_released(&self, key: &CallKey, row: Row, outcome: Result<(), StoreError>) {
        let Err(error) = outcome else {
            tracing::debug!(id = %key.id, from = %key.from, "a call is released and will not run here");
            let askers = lock(&self.table.calls).ledger.released(key, row.0);
            return askers
                .iter()
                .for_each(|asker| self.answer_release(key.id, asker, ReleaseState::Released));
        };
        tracing::error!(id = %key.id, from = %key.from, %error, "a call is not released: the journal cannot be written");
        let askers = lock(&self.table.calls).ledger.unreleased(key);
        let refusal =
            Refusal::new(Code::UNAVAILABLE, "the journal cannot be written; the call was not released");
        for asker in askers {
            self.ctx.refuse(&asker.link, &asker.route, asker.request.map(|id| *id), &refusal);
        }
        // The disk may have kept it all the same.
        self.scribe.forget(row);
    }

    fn answer_release(&self, target: MessageId, asker: &Waiter, state: ReleaseState) {
        let mut body = Vec::new();
        Response::Release { target, state }.encode(&mut body);
        let (link, reply_to) = (&asker.link, asker.request.as_deref().copied());
        let envelope = self.ctx.answer(link, link.principal(), reply_to, Type::Response, &body);
        self.ctx.send(link, &asker.route, envelope);
    }

    /// Whether the ledger knows a call.
    #[cfg(feature = "test-hooks")]
    fn knows(&self, key: &CallKey) -> bool {
        use capd_proto::ledger::Status;

        !matches!(self.table.status(key), Status::Unknown)
    }
}

/// The refusal of a copy of a released call. Only a durable tombstone is a proof that the caller may rely on.
pub(super) fn released(is_durable: bool) -> Refusal {
    let why = "the call was released at the request of its caller's sidecar, so it never runs here; repeat it to have another \
               peer run it, or make a new call";
    let refusal = Refusal::new(Code::UNAVAILABLE, why);
    if is_durable { refusal.with_details(released_details()) } else { refusal }
}
