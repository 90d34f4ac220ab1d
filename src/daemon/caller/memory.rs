//! Checks, before a copy of a call leaves, whether its peer still has the journal that got the call. Writes the copy's
//! `ext`, which names that journal (PROTOCOL 8, *A ledger belongs to one journal*).

use std::borrow::Cow;
use std::sync::Arc;

use capd_proto::call::caller::Generation;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::ledger::JournalId;
use capd_proto::limits::EXT_JOURNAL;

use super::{Caller, RelayedCall};
use crate::daemon::context::wire::{EMPTY_MAP, with_fields};
use crate::daemon::context::{Refusal, lock};
use crate::net::Link;
use crate::store::Replica;

impl Caller {
    /// Whether a copy of a call that may run only once may leave on `link`: its peer has the memory that the call was given
    /// to. Where it has not, what is to be done about that is done.
    pub(super) fn same_memory(
        self: &Arc<Self>,
        call: &Arc<RelayedCall>,
        generation: Generation,
        link: &Link,
    ) -> bool {
        let given = self.gifts.replica(&call.id);
        if !given.is_some_and(|given| has_forgotten(&given, link.journal())) {
            return true;
        }
        let peer = link.principal();
        tracing::debug!(id = %call.id, %peer, "a call's peer has another journal than when it received the call");
        if self.gifts.may_have_run(&call.id, &call.name) {
            // PROTOCOL 8: it is never sent again.
            let why = format!("{peer} has lost its memory of calls: its journal was replaced");
            self.not_sent(call, generation, &Refusal::new(Code::INTERRUPTED, why), Some(false));
        } else {
            self.give_anew(call);
        }
        false
    }

    /// Nothing of the call ever left, so whoever serves it by now may have it.
    fn give_anew(self: &Arc<Self>, call: &Arc<RelayedCall>) {
        lock(&call.progress).chosen = None;
        match self.choose_living_peer(call) {
            Ok(chosen) => self.give(call, chosen),
            Err(missing) => self.choose_peer_later(Arc::clone(call), missing),
        }
    }
}

/// Whether a peer that names `now` may have forgotten what it was given. One that named no journal then was older: nobody
/// knows, and it is asked as ever.
fn has_forgotten(given: &Replica, now: Option<JournalId>) -> bool {
    given.journal.is_some() && given.journal != now
}

/// A call's `ext` with the journal that it is given to.
pub(super) fn naming(ext: Option<&[u8]>, journal: Option<JournalId>) -> Option<Cow<'_, [u8]>> {
    let Some(JournalId(id)) = journal else { return ext.map(Cow::Borrowed) };
    let mut value = Vec::with_capacity(id.len() + 1);
    Writer::new(&mut value).bytes(&id);
    Some(with_fields(ext.unwrap_or(EMPTY_MAP), &[(EXT_JOURNAL, &value)]).into())
}
