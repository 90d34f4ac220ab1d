//! Decides whether a non-idempotent call may leave at once, or what must be on disk first.
//!
//! A row for each call would cost it a commit before it leaves. Instead, one commit reserves all calls of a capability
//! whose ids are made within the next [`AHEAD_MS`]: a set of replicas gets them, each id its [owner](super::owner). Ids
//! contain their time (PROTOCOL 5). After a restart, the owner of an id may have got an unknown call within a
//! reservation; nobody got a later one.

use std::collections::HashMap;
use std::sync::Arc;

use capd_proto::envelope::MessageId;

use super::owner::owner;
use crate::store::{Replica, Reserved, Row};

/// Spans of ids, by the name of the capability.
#[derive(Default)]
pub(super) struct Reservations {
    /// In the order of rows; the last one that has an id counts.
    by_name: HashMap<Arc<str>, Vec<Span>>,
    /// Nothing expires before. **Units:** milliseconds since the Unix epoch.
    expires_from_ms: u64,
    /// A former process has given no call of a later id away. **Units:** milliseconds since the Unix epoch.
    former_until_ms: u64,
}

struct Span {
    reserved: Reserved,
    /// The row that it takes the place of.
    replaces: Option<Row>,
    /// Whether it is on disk.
    is_durable: bool,
    /// Up to which time of an id a former process may have given calls away.
    former_until_ms: u64,
}

/// A call that is to be given to a peer.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The capability's name.
    pub(super) name: &'a str,
    /// Its id.
    pub(super) id: &'a MessageId,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub(super) expires_at_ms: u64,
}

/// Whom a call is to be given to.
#[derive(Clone, Copy)]
pub(super) struct To<'a> {
    /// The one.
    pub(super) replica: &'a Replica,
    /// Those that calls of its capability are shared among by now.
    pub(super) among: &'a [Replica],
}

/// What must be on disk before a call may leave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// Nothing: the reservation in that row covers it.
    Covered(Row),
    /// This reservation, in the place of the one in that row.
    Reserve(Reserved, Option<Row>),
    /// Its own row.
    Own,
}

impl Reservations {
    /// Those that a former process has left, in the order of rows.
    pub(super) fn new(left: Vec<Reserved>) -> Self {
        let mut reservations = Self::default();
        for reserved in left {
            let former_until_ms = reserved.until_ms;
            reservations.former_until_ms = reservations.former_until_ms.max(former_until_ms);
            let spans = reservations.by_name.entry(Arc::clone(&reserved.capability)).or_default();
            spans.push(Span { reserved, replaces: None, is_durable: true, former_until_ms });
        }
        reservations
    }

    /// Whom a former process may have given the call of this id to, of which nobody knows.
    pub(super) fn former(&self, name: &str, id: &MessageId) -> Option<&Replica> {
        owner(id, &self.former_span(name, id.ts_ms())?.reserved.replicas)
    }

    /// Whether a former process may have given away a call of an id made at `id_ms`.
    pub(super) fn has_former(&self, name: &str, id_ms: u64) -> bool {
        self.former_span(name, id_ms).is_some()
    }

    fn former_span(&self, name: &str, id_ms: u64) -> Option<&Span> {
        if id_ms > self.former_until_ms {
            return None;
        }
        let span = self.by_name.get(name)?.iter().rev().find(|span| span.has(id_ms))?;
        (id_ms <= span.former_until_ms).then_some(span)
    }

    /// Whom `asked` is promised to: given there, it needs nothing more on disk.
    pub(super) fn promised(&self, asked: Asked<'_>) -> Option<&Replica> {
        owner(asked.id, &self.covering(asked)?.reserved.replicas)
    }

    /// The span on disk that promises `asked` to somebody. What is being written promises nothing yet.
    fn covering(&self, asked: Asked<'_>) -> Option<&Span> {
        let mut spans = self.by_name.get(asked.name)?.iter().rev();
        let span = spans.find(|span| span.has(asked.id.ts_ms()))?;
        (span.is_durable && asked.expires_at_ms <= span.reserved.expires_at_ms).then_some(span)
    }

    /// What `asked` needs to be given to `to`. A reservation that it names counts as being written from then on.
    pub(super) fn cover(&mut self, asked: Asked<'_>, to: To<'_>, next_row: impl FnOnce() -> Row) -> Cover {
        let Asked { name, id, expires_at_ms } = asked;
        let id_ms = id.ts_ms();
        if let Some(span) = self.covering(asked)
            && owner(id, &span.reserved.replicas) == Some(to.replica)
        {
            return Cover::Covered(span.reserved.row);
        }
        // Whoever goes elsewhere than to the owner of its id pays for that alone.
        if owner(id, to.among) != Some(to.replica) {
            return Cover::Own;
        }
        let spans = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let (after_ms, replaced) = match spans.last() {
            None => (0, None),
            // Whoever has an id from an earlier span keeps it; what is being written covers nothing yet.
            Some(last) if id_ms <= last.reserved.after_ms || !last.is_durable => return Cover::Own,
            Some(last) if last.reserved.replicas == to.among => (last.reserved.after_ms, Some(last)),
            Some(last) if id_ms <= last.reserved.until_ms => return Cover::Own,
            Some(last) => (last.reserved.until_ms, None),
        };
        let (until_ms, latest_ms, former_until_ms) = replaced.map_or((0, 0, 0), |span| {
            (span.reserved.until_ms, span.reserved.expires_at_ms, span.former_until_ms)
        });
        let capability =
            spans.last().map_or_else(|| name.into(), |span| Arc::clone(&span.reserved.capability));
        let reserved = Reserved {
            row: next_row(),
            capability: Arc::clone(&capability),
            after_ms,
            until_ms: until_ms.max(id_ms.saturating_add(AHEAD_MS)),
            replicas: to.among.to_vec(),
            expires_at_ms: latest_ms.max(expires_at_ms.saturating_add(AHEAD_MS)),
        };
        let replaces = replaced.map(|span| span.reserved.row);
        self.expires_from_ms = self.expires_from_ms.min(reserved.expires_at_ms);
        let span = Span { reserved: reserved.clone(), replaces, is_durable: false, former_until_ms };
        self.by_name.entry(capability).or_default().push(span);
        Cover::Reserve(reserved, replaces)
    }

    /// The reservation in `row` is on disk, and what it takes the place of is not any more.
    pub(super) fn written(&mut self, name: &str, row: Row) {
        let Some(spans) = self.by_name.get_mut(name) else { return };
        let Some(span) = spans.iter_mut().find(|span| span.reserved.row == row) else { return };
        span.is_durable = true;
        if let Some(replaced) = span.replaces.take() {
            spans.retain(|span| span.reserved.row != replaced);
        }
    }

    /// The reservation in `row` could not be written; whether there was one.
    pub(super) fn unwritten(&mut self, name: &str, row: Row) -> bool {
        let Some(spans) = self.by_name.get_mut(name) else { return false };
        let before = spans.len();
        spans.retain(|span| span.reserved.row != row || span.is_durable);
        let is_found = spans.len() < before;
        if spans.is_empty() {
            self.by_name.remove(name);
        }
        is_found
    }

    /// Takes out what no call can use any more: rows, and the latest `ts + ttl` of their calls.
    pub(super) fn take_expired(&mut self, now_ms: u64) -> (Vec<Row>, u64) {
        let (mut rows, mut expired_ms) = (Vec::new(), 0);
        if now_ms <= self.expires_from_ms {
            return (rows, expired_ms);
        }
        self.expires_from_ms = u64::MAX;
        self.by_name.retain(|_, spans| {
            spans.retain(|span| {
                let expires_at_ms = span.reserved.expires_at_ms;
                let is_over = span.is_durable && expires_at_ms < now_ms;
                if is_over {
                    rows.push(span.reserved.row);
                    expired_ms = expired_ms.max(expires_at_ms);
                } else {
                    self.expires_from_ms = self.expires_from_ms.min(expires_at_ms);
                }
                !is_over
            });
            !spans.is_empty()
        });
        (rows, expired_ms)
    }
}

impl Span {
    fn has(&self, id_ms: u64) -> bool {
        self.reserved.after_ms < id_ms && id_ms <= self.reserved.until_ms
    }
}

/// How far ahead of an id the ones after it are promised, in milliseconds. Ours: few commits for whoever calls often,
/// and soon after a crash new calls are free to go anywhere.
const AHEAD_MS: u64 = 10_000;

#[cfg(test)]
mod tests;
