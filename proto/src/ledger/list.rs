//! Lists calls: a cursor or an id in, entries out.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::envelope::{Encoded, MessageId};
use crate::identity::Did;

use super::{Answerer, Call, CallState, Facts, Kept, Key, Ledger, Status};

/// One call of the ledger, running or finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The invoke's `from`.
    pub from: &'a Did,
    /// The invoke's `id`.
    pub id: MessageId,
    /// Executing or finished.
    pub status: Status,
    /// Who answered, once finished.
    pub by: Option<Answerer>,
    /// Whether it may be forgotten when capacity runs out.
    pub idempotent: bool,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// Copies of the invoke that wait for the result.
    pub waiters: usize,
    /// The recorded envelope's length, 0 while it runs. **Units:** bytes.
    pub bytes: usize,
    /// Where in the journal the recorded envelope is, if it is there.
    pub row: Option<u64>,
    /// The recorded envelope, if it is held in memory.
    pub held: Option<&'a Encoded>,
    /// Further facts.
    pub facts: &'a Facts,
}

impl<W> Ledger<W> {
    /// Calls in the order of their keys, those after the cursor, of all peers or one. The last key of a page is the
    /// cursor of the next, so calls that come and go between pages move no others.
    ///
    /// The first costs the logarithm of the number of calls, each further one a step.
    pub fn list<'a>(
        &'a self,
        after: Option<&'a Key>,
        from: Option<&'a Did>,
    ) -> impl Iterator<Item = Listed<'a>> + use<'a, W> {
        let first = after.map(|key| &key.from).max(from);
        let peers = self.peers.range::<Did, _>((first.map_or(Unbounded, Included), Unbounded));
        peers.take_while(move |(did, _)| from.is_none_or(|from| *did <= from)).flat_map(move |(did, peer)| {
            let cursor = after.filter(|key| key.from == *did).map_or(Unbounded, |key| Excluded(key.id));
            let calls = peer.calls.range((cursor, Unbounded));
            calls.filter(|(_, call)| !call.is_released()).map(move |(id, call)| call.listed(did, *id))
        })
    }

    /// Calls, newest first: by id, which begins with a time, then by caller. The list begins after the call of the id
    /// and peer in `before`, or without a peer after all calls of that id.
    ///
    /// Each step costs the logarithm of the number of peers.
    pub fn newest<'a>(
        &'a self,
        before: Option<(MessageId, Option<&Did>)>,
    ) -> impl Iterator<Item = Listed<'a>> + use<'a, W> {
        let mut peers: Vec<_> = self
            .peers
            .iter()
            .map(|(did, peer)| {
                let until =
                    before.map_or(Unbounded, |(id, from)| match from.is_some_and(|from| did < from) {
                        true => Included(id),
                        false => Excluded(id),
                    });
                (did, peer.calls.range((Unbounded, until)).rev())
            })
            .collect();
        let mut next = BinaryHeap::new();
        for (place, (did, calls)) in peers.iter_mut().enumerate() {
            next.extend(calls.next().map(|(id, call)| Newest { id: *id, did, place, call }));
        }
        let calls = std::iter::from_fn(move || {
            let Newest { id, did, place, call } = next.pop()?;
            if let Some((_, calls)) = peers.get_mut(place) {
                next.extend(calls.next().map(|(id, call)| Newest { id: *id, did, place, call }));
            }
            Some((did, id, call))
        });
        calls.filter(|(_, _, call)| !call.is_released()).map(|(did, id, call)| call.listed(did, id))
    }

    /// The calls of one id, one for each peer that used it. Costs one look-up per peer.
    pub fn find(&self, id: MessageId) -> impl Iterator<Item = Listed<'_>> {
        let calls = self.peers.iter().filter_map(move |(did, peer)| Some((did, peer.calls.get(&id)?)));
        calls.filter(|(_, call)| !call.is_released()).map(move |(did, call)| call.listed(did, id))
    }
}

/// The newest call of a peer that was not given out yet; the greatest of them comes next.
struct Newest<'a, W> {
    id: MessageId,
    did: &'a Did,
    place: usize,
    call: &'a Call<W>,
}

impl<W> Ord for Newest<'_, W> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.id, self.did).cmp(&(other.id, other.did))
    }
}

impl<W> PartialOrd for Newest<'_, W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W> PartialEq for Newest<'_, W> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<W> Eq for Newest<'_, W> {}

impl<W> Call<W> {
    /// Whether it is no call, only the mark that one is refused.
    pub(super) const fn is_released(&self) -> bool {
        matches!(self.state, CallState::Released(_))
    }

    fn listed<'a>(&'a self, from: &'a Did, id: MessageId) -> Listed<'a> {
        let running = Listed {
            from,
            id,
            status: Status::Executing,
            by: None,
            idempotent: self.idempotent,
            expires_at_ms: self.expires_at_ms,
            waiters: 0,
            bytes: 0,
            row: None,
            held: None,
            facts: &self.facts,
        };
        match &self.state {
            CallState::Executing { waiters } => Listed { waiters: waiters.len(), ..running },
            CallState::Released(_) => Listed { status: Status::Unknown, ..running },
            CallState::Finished { kept, by, .. } => Listed {
                status: Status::Finished,
                by: Some(*by),
                bytes: kept.len_bytes(),
                row: match kept {
                    Kept::Held(_) => None,
                    Kept::Journaled { row, .. } => Some(*row),
                },
                held: match kept {
                    Kept::Held(envelope) => Some(envelope),
                    Kept::Journaled { .. } => None,
                },
                ..running
            },
        }
    }
}
