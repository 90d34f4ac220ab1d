//! Computes and verifies the checksums of rows.
//!
//! SQLite checks the structure of its pages but not their content, so each row has a checksum over its table, its
//! number and all its columns.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow};
use sha2::{Digest, Sha256};

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{BodyDigest, JournalId, Key};
use capd_proto::limits::JOURNAL_ID_BYTES;

use super::super::{
    Begun, Given, Keyed, Loaded, LoadedCall, LoadedKey, LoadedResult, Released, Replica, Reserved, Row,
};
use super::Damage;

/// What the `totals` row says: how many commits there were, how many rows each table has, what has expired, and which
/// journal it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) commits: u64,
    pub(super) calls: u64,
    pub(super) results: u64,
    pub(super) given: u64,
    pub(super) reserved: u64,
    pub(super) keys: u64,
    pub(super) answers: u64,
    pub(super) released: u64,
    pub(super) expired_ms: u64,
    pub(super) journal: Option<JournalId>,
}

impl Totals {
    pub(super) fn sum(&self) -> i64 {
        let mut sum = Sum::new("totals", Row(1));
        sum.number(self.commits).number(self.calls).number(self.results).number(self.given);
        sum.number(self.expired_ms);
        // A journal of an earlier version has none, and the sum of its totals holds.
        if self.reserved > 0 {
            sum.number(self.reserved);
        }
        if self.keys > 0 || self.answers > 0 {
            sum.bytes(b"keys").number(self.keys).number(self.answers);
        }
        if self.released > 0 {
            sum.bytes(b"released").number(self.released);
        }
        if let Some(JournalId(id)) = &self.journal {
            sum.bytes(id);
        }
        sum.finish()
    }

    /// Reads and checks the row.
    pub(super) fn load(connection: &Connection) -> Result<Self, Damage> {
        let mut statement = connection.prepare(
            "SELECT commits, calls, results, given, reserved, expired_ms, sum, journal, keys, answers, \
             released FROM totals WHERE row = 1",
        )?;
        let mut rows = statement.query([])?;
        let Some(row) = rows.next()? else { return Err(Damage::found("its totals are missing")) };
        let totals = Self {
            commits: number(row, 0)?,
            calls: number(row, 1)?,
            results: number(row, 2)?,
            given: number(row, 3)?,
            reserved: number(row, 4)?,
            expired_ms: number(row, 5)?,
            journal: row.get::<_, Option<_>>(7)?.map(JournalId),
            keys: number(row, 8)?,
            answers: number(row, 9)?,
            released: number(row, 10)?,
        };
        if row.get::<_, i64>(6)? != totals.sum() {
            return Err(Damage::found("its totals are damaged"));
        }
        Ok(totals)
    }
}

pub(super) fn begun_sum(begun: &Begun) -> i64 {
    let mut sum = Sum::new("calls", begun.row);
    sum.bytes(begun.key.from.as_str().as_bytes()).bytes(begun.key.id.as_bytes()).bytes(&begun.body.0);
    sum.number(begun.expires_at_ms).number(begun.started_at_ms).bytes(begun.capability.as_bytes());
    sum.finish()
}

pub(super) fn result_sum(row: Row, finished_at_ms: u64, result: &[u8]) -> i64 {
    let mut sum = Sum::new("results", row);
    sum.number(finished_at_ms).number(result.len() as u64);
    sum.finish_with(result)
}

pub(super) fn given_sum(given: &Given) -> i64 {
    let mut sum = Sum::new("given", given.row);
    sum.bytes(given.id.as_bytes()).bytes(given.replica.peer.as_str().as_bytes()).number(given.expires_at_ms);
    if let Some(JournalId(id)) = &given.replica.journal {
        sum.bytes(id);
    }
    if let Some(released_by) = &given.released_by {
        sum.bytes(b"released").bytes(released_by.as_str().as_bytes());
    }
    sum.finish()
}

pub(super) fn reserved_sum(reserved: &Reserved) -> i64 {
    let mut sum = Sum::new("reserved", reserved.row);
    sum.bytes(reserved.capability.as_bytes()).number(reserved.after_ms).number(reserved.until_ms);
    sum.bytes(peers(&reserved.replicas).as_bytes()).number(reserved.expires_at_ms);
    let journals = journals(&reserved.replicas);
    if !journals.is_empty() {
        sum.bytes(&journals);
    }
    sum.finish()
}

pub(super) fn released_sum(released: &Released) -> i64 {
    let mut sum = Sum::new("released", released.row);
    sum.bytes(released.key.from.as_str().as_bytes()).bytes(released.key.id.as_bytes());
    sum.number(released.expires_at_ms);
    sum.finish()
}

pub(super) fn keyed_sum(keyed: &Keyed) -> i64 {
    let mut sum = Sum::new("keys", keyed.row);
    sum.bytes(&keyed.key).bytes(&keyed.digest).bytes(keyed.id.as_bytes()).bytes(&keyed.terms);
    sum.number(keyed.expires_at_ms);
    sum.finish()
}

pub(super) fn answer_sum(row: Row, answer: &[u8]) -> i64 {
    let mut sum = Sum::new("answers", row);
    sum.number(answer.len() as u64);
    sum.finish_with(answer)
}

/// The DIDs of several replicas in one column. **Shape:** with a space between two.
pub(super) fn peers(replicas: &[Replica]) -> String {
    replicas.iter().map(|replica| replica.peer.as_str()).collect::<Vec<_>>().join(" ")
}

/// Their journals in another. **Shape:** for each replica in order 1 and the id, or 0 and as many zeros where it is unknown;
/// nothing where all are.
pub(super) fn journals(replicas: &[Replica]) -> Vec<u8> {
    if replicas.iter().all(|replica| replica.journal.is_none()) {
        return Vec::new();
    }
    let one = |replica: &Replica| {
        let id = replica.journal.map_or([0; JOURNAL_ID_BYTES], |JournalId(id)| id);
        [&[u8::from(replica.journal.is_some())], &id[..]].concat()
    };
    replicas.iter().flat_map(one).collect()
}

/// Reads both columns; `None` for what [`peers`] and [`journals`] do not write.
fn replicas(dids: &str, ids: &[u8]) -> Option<Vec<Replica>> {
    let ids: Vec<_> = ids.chunks(1 + JOURNAL_ID_BYTES).collect();
    let one = |(at, did): (usize, &str)| {
        let journal = match ids.get(at) {
            Some([1, id @ ..]) => Some(JournalId::from_slice(id)?),
            Some(_) | None => None,
        };
        Some(Replica { peer: Did::parse(did).ok()?, journal })
    };
    dids.split(' ').enumerate().map(one).collect()
}

/// Reads every row, checks each, and holds their counts against `totals`.
pub(super) fn load(connection: &Connection, totals: &Totals) -> Result<Loaded, Damage> {
    let results = load_results(connection)?;
    let calls = load_calls(connection, &results)?;
    let given = load_given(connection)?;
    let reserved = load_reserved(connection)?;
    let released = load_released(connection)?;
    let answers = load_answers(connection)?;
    let keys = load_keys(connection, &answers)?;
    let answered = keys.iter().filter(|key| key.is_answered).count();
    if answered != answers.len() {
        return Err(Damage::found(format_args!("{} answers have no key", answers.len() - answered)));
    }
    let finished = calls.iter().filter(|call| call.finished.is_some()).count();
    if finished != results.len() {
        return Err(Damage::found(format_args!("{} results have no call", results.len() - finished)));
    }
    let counts = [
        ("calls", totals.calls, calls.len()),
        ("results", totals.results, results.len()),
        ("given", totals.given, given.len()),
        ("reserved", totals.reserved, reserved.len()),
        ("released", totals.released, released.len()),
        ("keys", totals.keys, keys.len()),
        ("answers", totals.answers, answers.len()),
    ];
    for (table, expected, found) in counts {
        if found as u64 != expected {
            return Err(Damage::found(format_args!(
                "{table}: {expected} rows were written, {found} are there"
            )));
        }
    }
    Ok(Loaded { calls, given, reserved, released, keys, expired_ms: totals.expired_ms })
}

/// Reads one result and checks it; `None` when there is none.
pub(super) fn read_result(connection: &Connection, row: Row) -> Result<Option<Vec<u8>>, Damage> {
    let mut statement =
        connection.prepare_cached("SELECT row, finished_at_ms, result, sum FROM results WHERE row = ?1")?;
    let mut rows = statement.query([row.0.cast_signed()])?;
    let Some(found) = rows.next()? else { return read_answer(connection, row) };
    let (_, _, result) = checked_result(found)?;
    Ok(Some(result.to_vec()))
}

/// Reads one answer and checks it; `None` when there is none.
fn read_answer(connection: &Connection, row: Row) -> Result<Option<Vec<u8>>, Damage> {
    let mut statement = connection.prepare_cached("SELECT row, answer, sum FROM answers WHERE row = ?1")?;
    let mut rows = statement.query([row.0.cast_signed()])?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let (_, answer) = checked_answer(found)?;
    Ok(Some(answer.to_vec()))
}

fn checked_answer<'a>(found: &'a SqlRow<'_>) -> Result<(Row, &'a [u8]), Damage> {
    let row = Row(number(found, 0)?);
    let answer = found.get_ref(1)?.as_blob().map_err(|_| Damage::row("answers", row))?;
    if found.get::<_, i64>(2)? != answer_sum(row, answer) {
        return Err(Damage::row("answers", row));
    }
    Ok((row, answer))
}

fn load_answers(connection: &Connection) -> Result<Vec<Row>, Damage> {
    let mut statement = connection.prepare("SELECT row, answer, sum FROM answers ORDER BY row")?;
    let mut rows = statement.query([])?;
    let mut answers = Vec::new();
    while let Some(found) = rows.next()? {
        answers.push(checked_answer(found)?.0);
    }
    Ok(answers)
}

/// Reads every key; `answers` are the rows that have one, in order.
fn load_keys(connection: &Connection, answers: &[Row]) -> Result<Vec<LoadedKey>, Damage> {
    let mut statement = connection
        .prepare("SELECT row, key, digest, id, terms, expires_at_ms, sum FROM keys ORDER BY row")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        let damaged = || Damage::row("keys", row);
        let keyed = Keyed {
            row,
            key: found.get(1)?,
            digest: found.get(2)?,
            id: id(found, 3).ok_or_else(damaged)?,
            terms: found.get::<_, Vec<u8>>(4)?.into(),
            expires_at_ms: number(found, 5)?,
        };
        if found.get::<_, i64>(6)? != keyed_sum(&keyed) {
            return Err(damaged());
        }
        all.push(LoadedKey { keyed, is_answered: answers.binary_search(&row).is_ok() });
    }
    Ok(all)
}

fn load_results(connection: &Connection) -> Result<Vec<(Row, LoadedResult)>, Damage> {
    let mut statement =
        connection.prepare("SELECT row, finished_at_ms, result, sum FROM results ORDER BY row")?;
    let mut rows = statement.query([])?;
    let mut results = Vec::new();
    while let Some(found) = rows.next()? {
        let (row, finished_at_ms, result) = checked_result(found)?;
        results.push((row, LoadedResult { bytes: result.len(), finished_at_ms }));
    }
    Ok(results)
}

fn checked_result<'a>(found: &'a SqlRow<'_>) -> Result<(Row, u64, &'a [u8]), Damage> {
    let (row, finished_at_ms) = (Row(number(found, 0)?), number(found, 1)?);
    let result = found.get_ref(2)?.as_blob().map_err(|_| Damage::row("results", row))?;
    if found.get::<_, i64>(3)? != result_sum(row, finished_at_ms, result) {
        return Err(Damage::row("results", row));
    }
    Ok((row, finished_at_ms, result))
}

fn load_calls(connection: &Connection, results: &[(Row, LoadedResult)]) -> Result<Vec<LoadedCall>, Damage> {
    let mut statement = connection.prepare(
        "SELECT row, caller, id, body, expires_at_ms, started_at_ms, capability, sum FROM calls ORDER BY row",
    )?;
    let mut rows = statement.query([])?;
    let mut calls = Vec::new();
    let mut results = results.iter().peekable();
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        let damaged = || Damage::row("calls", row);
        let begun = Begun {
            row,
            key: Key { from: did(found, 1).ok_or_else(damaged)?, id: id(found, 2).ok_or_else(damaged)? },
            body: BodyDigest(found.get(3)?),
            expires_at_ms: number(found, 4)?,
            started_at_ms: number(found, 5)?,
            capability: found.get(6)?,
        };
        if found.get::<_, i64>(7)? != begun_sum(&begun) {
            return Err(damaged());
        }
        while results.next_if(|(other, _)| *other < row).is_some() {}
        let finished = results.next_if(|(other, _)| *other == row).map(|(_, result)| *result);
        calls.push(LoadedCall { begun, finished });
    }
    Ok(calls)
}

fn load_given(connection: &Connection) -> Result<Vec<Given>, Damage> {
    let mut statement = connection
        .prepare("SELECT row, id, peer, expires_at_ms, sum, journal, released_by FROM given ORDER BY row")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        let damaged = || Damage::row("given", row);
        let given = Given {
            row,
            id: id(found, 1).ok_or_else(damaged)?,
            replica: Replica {
                peer: did(found, 2).ok_or_else(damaged)?,
                journal: found.get::<_, Option<_>>(5)?.map(JournalId),
            },
            expires_at_ms: number(found, 3)?,
            released_by: match found.get_ref(6)? {
                ValueRef::Null => None,
                _ => Some(did(found, 6).ok_or_else(damaged)?),
            },
        };
        if found.get::<_, i64>(4)? != given_sum(&given) {
            return Err(damaged());
        }
        all.push(given);
    }
    Ok(all)
}

fn load_released(connection: &Connection) -> Result<Vec<Released>, Damage> {
    let mut statement =
        connection.prepare("SELECT row, caller, id, expires_at_ms, sum FROM released ORDER BY row")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        let damaged = || Damage::row("released", row);
        let released = Released {
            row,
            key: Key { from: did(found, 1).ok_or_else(damaged)?, id: id(found, 2).ok_or_else(damaged)? },
            expires_at_ms: number(found, 3)?,
        };
        if found.get::<_, i64>(4)? != released_sum(&released) {
            return Err(damaged());
        }
        all.push(released);
    }
    Ok(all)
}

fn load_reserved(connection: &Connection) -> Result<Vec<Reserved>, Damage> {
    let mut statement = connection.prepare(
        "SELECT row, capability, after_ms, until_ms, peers, expires_at_ms, sum, journals FROM reserved ORDER BY row",
    )?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(found) = rows.next()? {
        let row = Row(number(found, 0)?);
        let damaged = || Damage::row("reserved", row);
        let (dids, ids): (String, Vec<u8>) = (found.get(4)?, found.get(7)?);
        let replicas = replicas(&dids, &ids).filter(|replicas| journals(replicas) == ids);
        let reserved = Reserved {
            row,
            capability: found.get(1)?,
            after_ms: number(found, 2)?,
            until_ms: number(found, 3)?,
            replicas: replicas.ok_or_else(damaged)?,
            expires_at_ms: number(found, 5)?,
        };
        if found.get::<_, i64>(6)? != reserved_sum(&reserved) {
            return Err(damaged());
        }
        all.push(reserved);
    }
    Ok(all)
}

fn number(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

fn did(row: &SqlRow<'_>, column: usize) -> Option<Did> {
    row.get_ref(column).ok()?.as_str().ok().and_then(|text| Did::parse(text).ok())
}

fn id(row: &SqlRow<'_>, column: usize) -> Option<MessageId> {
    row.get_ref(column).ok()?.as_blob().ok().and_then(MessageId::from_slice)
}

/// The checksum of a row: its short columns are gathered, so that the hash is fed once.
///
/// **Shape:** the first eight bytes of the SHA-256 of the table's name, the row's number and the columns; whatever has
/// no fixed length stands behind its length.
struct Sum(Vec<u8>);

impl Sum {
    fn new(table: &str, row: Row) -> Self {
        let mut sum = Self(Vec::with_capacity(SUM_BYTES_USUAL));
        sum.bytes(table.as_bytes()).number(row.0);
        sum
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64).0.extend_from_slice(bytes);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn finish(self) -> i64 {
        self.finish_with(&[])
    }

    /// Ends with `long`, which is not copied; what was gathered must tell its length.
    fn finish_with(self, long: &[u8]) -> i64 {
        let digest = Sha256::new().chain_update(&self.0).chain_update(long).finalize();
        let (first, _) = digest.as_slice().split_first_chunk().expect("a SHA-256 has 32 bytes");
        i64::from_le_bytes(*first)
    }
}

/// Bytes that most rows gather: a `did:key`, an id, a digest, a capability id and some numbers.
const SUM_BYTES_USUAL: usize = 256;
