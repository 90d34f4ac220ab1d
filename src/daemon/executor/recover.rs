//! Recovers a former process's journal: a ledger that knows it, and the changes that the journal needs, out.
//!
//! A call that was running when the process ended has an unknown outcome: it becomes 5902 and never runs again
//! (PROTOCOL 8).

use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Ext, MessageId, Recipients};
use capd_proto::identity::Identity;
use capd_proto::ledger::{Answerer, Facts, Invoke, Kept, Ledger, Limits};
use capd_proto::message::{CallError, CapResult, Type};

use super::listing::Called;
use super::table::Waiter;
use crate::daemon::account::audit;
use crate::net::System;
use crate::store::audit::Audit;
use crate::store::{
    self, Begun, Change, Given, Journal, LoadedKey, Medium, Released, Reserved, Row, Storage, StoreError,
    Writer, journal,
};

/// What a sidecar knows of its former process's calls, and the journal that it goes on with.
pub(in crate::daemon) struct Recovered<T, S: Storage> {
    /// Finished calls, those that were interrupted among them.
    pub(in crate::daemon) ledger: Ledger<Waiter>,
    /// Whom calls of the agent's were given to.
    pub(in crate::daemon) given: Vec<Given>,
    /// Whom they may have been given to besides.
    pub(in crate::daemon) reserved: Vec<Reserved>,
    /// Keys that it gave to calls.
    pub(in crate::daemon) keys: Vec<LoadedKey>,
    /// The latest `ts + ttl` that has expired. **Units:** milliseconds since the Unix epoch.
    pub(in crate::daemon) expired_ms: u64,
    pub(in crate::daemon) journal: Journal<T>,
    /// What must run before the journal does anything.
    pub(in crate::daemon) writer: Writer<T, S>,
}

/// Opens the journal and takes over what a former process has left; what it still owed is on disk when this returns.
///
/// **Errors:** the journal cannot be used.
pub(in crate::daemon) fn recover<T: Send + 'static, M: Medium>(
    medium: &M,
    limits: Limits,
    queue_max: usize,
    identity: &Identity,
    system: &System,
    audit: &Audit,
) -> Result<Recovered<T, M::Storage>, StoreError> {
    let mut storage = medium.open()?;
    let loaded = storage.load()?;
    let next_row = loaded.next_row();
    let now_ms = system.clock.wall_ms();
    let left = store::recover(loaded, now_ms);
    let mut ledger = Ledger::new(limits);
    ledger.restore_forgotten(left.expired_ms);
    let mut changes: Vec<_> = left.superseded.into_iter().map(|row| Change::Forget { row }).collect();
    let expires_at_ms = left.expired_ms;
    changes.extend(left.expired.into_iter().map(|row| Change::Expire { row, expires_at_ms }));
    let mut called = Called::default();
    for (begun, result) in left.finished {
        // How it ended stands in its result only, which is not read before it is asked for.
        let facts = Facts { finished_at_ms: Some(result.finished_at_ms), ..facts(&mut called, &begun) };
        restore(&mut ledger, &begun, result.bytes, facts);
    }
    for begun in left.interrupted {
        audit.record(audit::interrupted(&begun, now_ms));
        // As for every id: better no daemon than one that repeats them.
        let id = MessageId::new(now_ms, system.random.bytes().expect("the system has randomness"));
        let result = interrupted(&begun, identity, now_ms, id);
        let outcome = Some(Err(Code::INTERRUPTED));
        let facts = Facts { finished_at_ms: Some(now_ms), outcome, ..facts(&mut called, &begun) };
        restore(&mut ledger, &begun, result.len(), facts);
        changes.push(Change::Finish { row: begun.row, result: result.into(), finished_at_ms: now_ms });
    }
    for Released { row, key, expires_at_ms } in left.released {
        ledger.restore_released(&key, row.0, expires_at_ms);
    }
    if !changes.is_empty() {
        storage.commit(&changes)?;
    }
    let (journal, writer) = journal(storage, next_row, queue_max);
    let store::Recovered { given, reserved, keys, expired_ms, .. } = left;
    Ok(Recovered { ledger, given, reserved, keys, expired_ms, journal, writer })
}

/// What a list says of a call that the journal kept.
fn facts(called: &mut Called, begun: &Begun) -> Facts {
    let capability = begun.capability.parse().ok().map(|id| called.shared(&id));
    Facts { capability, ..Facts::default() }
}

fn restore(ledger: &mut Ledger<Waiter>, begun: &Begun, bytes: usize, facts: Facts) {
    let Begun { row: Row(row), key, body, expires_at_ms, .. } = begun;
    let invoke = Invoke { key: key.clone(), body: *body, expires_at_ms: *expires_at_ms, idempotent: false };
    ledger.restore(invoke, Kept::Journaled { row: *row, bytes }, Answerer::Sidecar);
    if let Some(known) = ledger.facts_mut(key) {
        *known = facts;
    }
}

/// PROTOCOL 8: CAP_RESULT error 5902. It is signed, since whoever asks again may come on any link.
fn interrupted(begun: &Begun, identity: &Identity, now_ms: u64, id: MessageId) -> Vec<u8> {
    let mut body = Vec::new();
    let message = "the sidecar stopped while the call ran; whether it took effect is unknown";
    CapResult::error(CallError::new(Code::INTERRUPTED, message, None)).encode(&mut body);
    let draft = Draft {
        id,
        typ: Type::CapResult.code(),
        ts: id.ts_ms(),
        ttl: begun.expires_at_ms.saturating_sub(now_ms),
        from: identity.did().as_str(),
        to: Recipients::one(begun.key.from.as_str()),
        reply_to: Some(begun.key.id.as_bytes().as_slice()),
        thread_id: None,
        body: &body,
        ext: Ext::None,
    };
    let mut out = Vec::new();
    draft.seal(identity, true, &mut out);
    out
}
