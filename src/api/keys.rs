//! Maps each `Idempotency-Key` to its one call, on disk before that call leaves (AGENT-API 3).
//!
//! A key is stored as the id of its call. A repeated key joins the call while it runs, and gets its recorded end
//! afterwards. Otherwise it repeats the original invoke: the call's executor runs one id once (PROTOCOL 8).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::HashMap;
use axum::http::StatusCode;
use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::Api;
use super::body::apart;
use super::calls::Ended;
use super::problem::Problem;
use super::record::{self, Outcome};
use super::terms::Terms;
use crate::net::System;
use crate::store::{Change, Desk, Keyed, LoadedKey, Row, Work};

/// The SHA-256 of a key.
type KeyHash = [u8; 32];

/// All keys that are kept.
pub(super) struct Keys {
    desk: Arc<dyn Desk>,
    system: System,
    table: Arc<Mutex<Table>>,
    keys_max: AtomicUsize,
}

#[derive(Default)]
struct Table {
    keys: HashMap<KeyHash, Arc<Key>>,
    by_call: HashMap<MessageId, KeyHash>,
    by_expiry: BTreeSet<(u64, KeyHash)>,
}

/// One key.
pub(super) struct Key {
    hash: KeyHash,
    row: Row,
    /// Of what is called, and with which params.
    digest: [u8; 32],
    pub(super) id: MessageId,
    pub(super) terms: Terms,
    expires_at_ms: u64,
    written: watch::Receiver<Written>,
    /// Whether its answer is on disk.
    is_answered: AtomicBool,
    /// Whoever makes its call, or looks how that ended, does so alone.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether this process was the first to write it, and has not made its call yet.
    is_fresh: AtomicBool,
}

/// Whether a key is on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Waits,
    Yes,
    Failed,
}

impl Keys {
    /// Keeps so many at most from here on.
    pub(super) fn set_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    /// The keys that a former process left, and those that will be.
    pub(super) fn new(desk: Arc<dyn Desk>, system: System, keys_max: usize, left: Vec<LoadedKey>) -> Self {
        let mut table = Table::default();
        for LoadedKey { keyed, is_answered } in left {
            // Terms that are not ours were never acknowledged.
            let Some(terms) = Terms::read(&keyed.terms) else { continue };
            let (_, written) = watch::channel(Written::Yes);
            table.add(Arc::new(Key {
                hash: keyed.key,
                row: keyed.row,
                digest: keyed.digest,
                id: keyed.id,
                terms,
                expires_at_ms: keyed.expires_at_ms,
                written,
                is_answered: AtomicBool::new(is_answered),
                turn: Arc::default(),
                is_fresh: AtomicBool::new(false),
            }));
        }
        Self { desk, system, table: Arc::new(Mutex::new(table)), keys_max: AtomicUsize::new(keys_max) }
    }

    /// The key of this text, on disk when this returns.
    ///
    /// **Errors:** 422 when it was given with other params; 503 when it cannot be kept.
    pub(super) async fn claim(
        &self,
        text: &str,
        terms: &Terms,
        params: &Bytes,
        ttl: Duration,
    ) -> Result<Arc<Key>, Problem> {
        if !(1..=KEY_BYTES_MAX).contains(&text.len()) {
            return Err(Problem::bad(format!("Idempotency-Key: accepted: 1 to {KEY_BYTES_MAX} bytes")));
        }
        let hash = Sha256::digest(text).into();
        let (name, params) = (terms.name().to_owned(), params.clone());
        let digest = apart(&self.system.tasks, params.len(), move || digest(&name, &params)).await;
        let key = match self.find(&hash) {
            Some(key) => key,
            None => self.make(hash, digest, terms, ttl)?,
        };
        let mut written = key.written.clone();
        let is_written = written.wait_for(|written| *written != Written::Waits).await;
        if is_written.is_ok_and(|written| *written == Written::Failed) {
            let detail = "the key could not be written down, so nothing was sent; see the sidecar's log";
            return Err(Problem::refused(Code::UNAVAILABLE, detail));
        }
        if key.digest != digest {
            let detail =
                "this Idempotency-Key was given with another capability or other params; nothing was sent";
            return Err(Problem::bad(detail)
                .status(StatusCode::UNPROCESSABLE_ENTITY)
                .details(json!({"reason": "key_reused"}))
                .about(key.id));
        }
        Ok(key)
    }

    /// Whether a key stands for a call that was made.
    pub(super) fn is_known(&self, text: &str) -> bool {
        self.find(&Sha256::digest(text).into()).is_some()
    }

    fn find(&self, hash: &KeyHash) -> Option<Arc<Key>> {
        let now_ms = self.system.clock.wall_ms();
        let mut table = self.table();
        let expired = table.take_expired(now_ms);
        let found = table.keys.get(hash).cloned();
        drop(table);
        for key in expired {
            self.forget_row(key.row);
        }
        found
    }

    /// A new key, on its way to the disk.
    fn make(
        &self,
        hash: KeyHash,
        digest: [u8; 32],
        terms: &Terms,
        ttl: Duration,
    ) -> Result<Arc<Key>, Problem> {
        let unavailable = |why: String| Problem::refused(Code::UNAVAILABLE, why);
        let random = self.system.random.bytes().map_err(|error| unavailable(error.to_string()))?;
        let now_ms = self.system.clock.wall_ms();
        let id = MessageId::new(now_ms, random);
        let expires_at_ms = now_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let (tell, written) = watch::channel(Written::Waits);
        let mut table = self.table();
        // Somebody may have come with the same key in the meantime.
        if let Some(key) = table.keys.get(&hash) {
            return Ok(Arc::clone(key));
        }
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        if table.keys.len() >= keys_max {
            let detail = format!(
                "{keys_max} keys are kept already (limits.ledger_entries_max); send a shorter Capd-Ttl"
            );
            return Err(Problem::refused(Code::OVERLOADED, detail));
        }
        let row = self.desk.next_row();
        let keyed = Keyed { row, key: hash, digest, id, terms: terms.written(), expires_at_ms };
        let asked = self.desk.ask(Work::Write(Change::Key(Box::new(keyed))));
        let asked = asked.map_err(|_| Problem::refused(Code::OVERLOADED, "the journal's queue is full"))?;
        let key = Arc::new(Key {
            hash,
            row,
            digest,
            id,
            terms: terms.clone(),
            expires_at_ms,
            written,
            is_answered: AtomicBool::new(false),
            turn: Arc::default(),
            is_fresh: AtomicBool::new(true),
        });
        table.add(Arc::clone(&key));
        drop(table);
        // A task of its own: whoever gives up takes nobody's key with it.
        let (made, table) = (Arc::clone(&key), Arc::clone(&self.table));
        self.system.tasks.spawn(async move {
            let is_written = matches!(asked.await, Ok(Ok(_)));
            if !is_written {
                lock(&table).remove(&made);
            }
            tell.send_replace(if is_written { Written::Yes } else { Written::Failed });
        });
        Ok(key)
    }

    /// Lets go of a key whose call was refused: nothing was executed, and nothing will be.
    pub(super) fn refused(&self, key: &Key) {
        if self.table().remove(key) {
            self.forget_row(key.row);
        }
    }

    /// Writes down how a key's call ended. Nobody hears the answer before it is on disk: the executor of an idempotent call
    /// keeps none, and would run it again. What cannot be written is told all the same.
    async fn record(&self, key: &Key, answer: Bytes) {
        let asked = self.desk.ask(Work::Write(Change::Answer { row: key.row, answer }));
        let Ok(asked) = asked else { return };
        if matches!(asked.await, Ok(Ok(_))) {
            key.is_answered.store(true, Ordering::Release);
        }
    }

    /// Whether a key that was claimed still stands for its call.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.table().keys.get(&key.hash).is_some_and(|found| found.row == key.row)
    }

    /// What was written down of a key's end.
    pub(super) async fn recorded(&self, key: &Key) -> Option<Ended> {
        if !key.is_answered.load(Ordering::Acquire) {
            return None;
        }
        let read = self.desk.ask(Work::Read(key.row)).ok()?.await.ok()?.ok()??;
        Some(Ended { outcome: record::read(&read)?, replayed: true })
    }

    /// The key that stands for this call.
    pub(super) fn of_call(&self, id: &MessageId) -> Option<Arc<Key>> {
        let table = self.table();
        table.by_call.get(id).and_then(|hash| table.keys.get(hash)).cloned()
    }

    fn forget_row(&self, row: Row) {
        // What stays on disk now is forgotten at the next start.
        let _unheard = self.desk.ask(Work::Write(Change::Forget { row }));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // Both indexes change one after the other; a panic between them leaves an expiry without a key, which is skipped.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn add(&mut self, key: Arc<Key>) {
        self.by_expiry.insert((key.expires_at_ms, key.hash));
        self.by_call.insert(key.id, key.hash);
        self.keys.insert(key.hash, key);
    }

    /// `false` when another key has taken its place, or none.
    fn remove(&mut self, key: &Key) -> bool {
        if self.keys.get(&key.hash).is_none_or(|found| found.row != key.row) {
            return false;
        }
        self.by_expiry.remove(&(key.expires_at_ms, key.hash));
        self.by_call.remove(&key.id);
        self.keys.remove(&key.hash).is_some()
    }

    fn take_expired(&mut self, now_ms: u64) -> Vec<Arc<Key>> {
        let mut expired = Vec::new();
        while let Some((expires_at_ms, hash)) = self.by_expiry.first().copied()
            && expires_at_ms < now_ms
        {
            self.by_expiry.pop_first();
            if let Some(key) = self.keys.remove(&hash) {
                self.by_call.remove(&key.id);
                expired.push(key);
            }
        }
        expired
    }
}

impl Key {
    /// How long its invoke is valid.
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.expires_at_ms.saturating_sub(self.id.ts_ms()))
    }

    /// Whether this is the first time that its call is made.
    pub(super) fn takes_first(&self) -> bool {
        self.is_fresh.swap(false, Ordering::AcqRel)
    }
}

impl Api {
    /// Keeps what is to be told when the key of an ended call is given again, and gives what is told now.
    pub(super) async fn conclude(&self, key: &Key, outcome: Outcome, is_first: bool) -> Outcome {
        match record::written(&outcome) {
            Some(answer) if answer.len() <= ANSWER_BYTES_MAX => self.keys.record(key, answer).await,
            // Its executor has it, and gives it again under the call's id.
            Some(_) => {}
            None if !record::is_refused(&outcome) => {}
            None if is_first => self.keys.refused(key),
            // PROTOCOL 8: a refusal says that nothing was executed; an earlier copy may have been.
            None => return record::unknown_after(outcome),
        }
        outcome
    }
}

/// **Source:** AGENT-API 3.
fn digest(name: &str, params: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(name).chain_update([0]).chain_update(params).finalize().into()
}

/// How long a key is kept unless the request says otherwise. **Source:** AGENT-API 3.
pub(super) const TTL_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Longest key. **Units:** bytes. **Source:** AGENT-API 3.
const KEY_BYTES_MAX: usize = 255;
/// Largest answer that is written down here as well. **Units:** bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::oneshot;

    use super::*;
    use crate::store::{Outcome as Stored, Refused};

    /// A disk that is done with a piece of work when the test says so.
    #[derive(Default)]
    struct SlowDesk(Mutex<Vec<oneshot::Sender<Stored>>>);

    impl Desk for SlowDesk {
        fn ask(&self, _work: Work) -> Result<oneshot::Receiver<Stored>, Refused> {
            let (done, asked) = oneshot::channel();
            self.0.lock().unwrap().push(done);
            Ok(asked)
        }

        fn next_row(&self) -> Row {
            Row(1)
        }
    }

    #[tokio::test]
    async fn an_answer_is_on_disk_before_it_is_told() {
        let desk = Arc::new(SlowDesk::default());
        let keys = Keys::new(Arc::clone(&desk) as _, System::real(), 1, Vec::new());
        let terms = Terms {
            capability: "org.example.count".to_owned(),
            version: None,
            timeout_ms: None,
            to: None,
            thread: None,
        };
        let key = keys.make([0; 32], [0; 32], &terms, TTL_DEFAULT).unwrap();
        let mut recording = pin!(keys.record(&key, Bytes::from_static(&[0x80])));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(recording.as_mut().poll(&mut context), Poll::Pending);
        let done = desk.0.lock().unwrap().pop().unwrap();
        done.send(Ok(None)).unwrap();
        assert_eq!(recording.as_mut().poll(&mut context), Poll::Ready(()));
        assert!(key.is_answered.load(Ordering::Acquire));
    }
}
