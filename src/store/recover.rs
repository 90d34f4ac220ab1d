//! Decides about each row of a journal after a start (PROTOCOL 8). It executes nothing itself.

use std::collections::HashMap;

use capd_proto::ledger::Key;

use super::{Begun, Given, Loaded, LoadedKey, LoadedResult, Released, Reserved, Row};

/// The content of a journal, by the action that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Rows to [forget](super::Change::Forget): a later row holds the same call, or a key's time has passed.
    pub superseded: Vec<Row>,
    /// Rows to [expire](super::Change::Expire): their `ts + ttl` has passed.
    pub expired: Vec<Row>,
    /// The latest expired `ts + ttl`, then and earlier; 0 if none.
    pub expired_ms: u64,
    /// Calls that are answered from the journal when repeated.
    pub finished: Vec<(Begun, LoadedResult)>,
    /// Interrupted calls: nobody knows whether they took effect, so their one result is a 5902, and they never run
    /// again.
    pub interrupted: Vec<Begun>,
    /// Calls that were never begun here and never will be.
    pub released: Vec<Released>,
    /// Calls of this sidecar's agent, to be repeated only at the peer that got them.
    pub given: Vec<Given>,
    /// Reservations of such calls, in the order of rows.
    pub reserved: Vec<Reserved>,
    /// Keys that this sidecar's agent may repeat.
    pub keys: Vec<LoadedKey>,
}

/// Sorts the content of a journal at `now_ms`.
///
/// Of several rows of one call the last counts: the ones before were withdrawn, and forgetting them failed.
/// **Units:** milliseconds since the Unix epoch.
pub fn recover(loaded: Loaded, now_ms: u64) -> Recovered {
    // PROTOCOL 8: kept until `ts + ttl`, and still good in that very millisecond.
    let expired = |expires_at_ms: u64| expires_at_ms < now_ms;
    let mut last: HashMap<Key, Row> =
        loaded.calls.iter().map(|call| (call.begun.key.clone(), call.begun.row)).collect();
    for Released { row, key, .. } in &loaded.released {
        let last = last.entry(key.clone()).or_insert(*row);
        *last = (*last).max(*row);
    }
    let mut recovered = Recovered { expired_ms: loaded.expired_ms, ..Recovered::default() };
    for call in loaded.calls {
        let superseded = last.get(&call.begun.key) != Some(&call.begun.row);
        match call.finished {
            _ if superseded => recovered.superseded.push(call.begun.row),
            _ if expired(call.begun.expires_at_ms) => {
                recovered.expire(call.begun.row, call.begun.expires_at_ms)
            }
            Some(result) => recovered.finished.push((call.begun, result)),
            None => recovered.interrupted.push(call.begun),
        }
    }
    for released in loaded.released {
        if last.get(&released.key) != Some(&released.row) {
            recovered.superseded.push(released.row);
        } else if expired(released.expires_at_ms) {
            recovered.expire(released.row, released.expires_at_ms);
        } else {
            recovered.released.push(released);
        }
    }
    for given in loaded.given {
        if expired(given.expires_at_ms) {
            recovered.expire(given.row, given.expires_at_ms);
        } else {
            recovered.given.push(given);
        }
    }
    for reserved in loaded.reserved {
        if expired(reserved.expires_at_ms) {
            recovered.expire(reserved.row, reserved.expires_at_ms);
        } else {
            recovered.reserved.push(reserved);
        }
    }
    for key in loaded.keys {
        if expired(key.keyed.expires_at_ms) {
            recovered.superseded.push(key.keyed.row);
        } else {
            recovered.keys.push(key);
        }
    }
    // Consecutive rows are forgotten together.
    recovered.expired.sort_unstable();
    recovered
}

impl Recovered {
    fn expire(&mut self, row: Row, expires_at_ms: u64) {
        self.expired.push(row);
        self.expired_ms = self.expired_ms.max(expires_at_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::super::LoadedCall;
    use super::super::tests::{begin, give, key, release, reserve};
    use super::*;

    fn call(row: u64, finished: bool) -> LoadedCall {
        let Change::Begin(begun) = begin(row) else { unreachable!() };
        let result = LoadedResult { bytes: 3, finished_at_ms: row + 1 };
        LoadedCall { begun, finished: finished.then_some(result) }
    }

    fn given(row: u64) -> Given {
        let Change::Give(given) = give(row) else { unreachable!() };
        given
    }

    fn reserved(row: u64) -> Reserved {
        let Change::Reserve { reserved, .. } = reserve(row, None) else { unreachable!() };
        reserved
    }

    fn keyed(row: u64) -> LoadedKey {
        let Change::Key(keyed) = key(row) else { unreachable!() };
        LoadedKey { keyed: *keyed, is_answered: row > 1 }
    }

    fn released(row: u64) -> Released {
        let Change::Release(released) = release(row) else { unreachable!() };
        released
    }

    #[test]
    fn each_row_gets_what_it_asks_for() {
        // Rows expire a thousand milliseconds after their number.
        let loaded = Loaded {
            calls: vec![call(1, true), call(2, false), call(5, true), call(6, false)],
            given: vec![given(3), given(4), given(7)],
            reserved: vec![reserved(8), reserved(2)],
            released: vec![released(10), released(0)],
            keys: vec![keyed(9), keyed(1)],
            expired_ms: 1_001,
        };
        let recovered = recover(loaded, 1_004);
        assert_eq!(
            (recovered.expired, recovered.expired_ms),
            (vec![Row(0), Row(1), Row(2), Row(2), Row(3)], 1_003)
        );
        assert_eq!(recovered.superseded, [Row(1)], "a key whose time has passed");
        assert_eq!(recovered.keys, [keyed(9)]);
        assert_eq!(recovered.finished.iter().map(|(begun, _)| begun.row).collect::<Vec<_>>(), [Row(5)]);
        assert_eq!(recovered.interrupted.iter().map(|begun| begun.row).collect::<Vec<_>>(), [Row(6)]);
        assert_eq!(recovered.given.iter().map(|given| given.row).collect::<Vec<_>>(), [Row(4), Row(7)]);
        assert_eq!(recovered.reserved, [reserved(8)]);
        assert_eq!(recovered.released, [released(10)]);
    }

    #[test]
    fn of_a_call_and_its_tombstone_the_last_counts() {
        // The call was withdrawn, and the disk kept it.
        let mut tombstone = released(9);
        tombstone.key = call(1, false).begun.key;
        let loaded =
            Loaded { calls: vec![call(1, false)], released: vec![tombstone.clone()], ..Loaded::default() };
        let recovered = recover(loaded, 0);
        assert_eq!((recovered.superseded, recovered.interrupted.len()), (vec![Row(1)], 0));
        assert_eq!(recovered.released, [tombstone.clone()]);
        // The tombstone was not acknowledged, the disk kept it, and the call came after all.
        let mut late = call(12, false);
        late.begun.key = tombstone.key.clone();
        let loaded = Loaded { calls: vec![late], released: vec![tombstone], ..Loaded::default() };
        let recovered = recover(loaded, 0);
        assert_eq!((recovered.superseded, recovered.interrupted.len()), (vec![Row(9)], 1));
        assert_eq!(recovered.released, []);
    }

    #[test]
    fn of_several_rows_of_one_call_the_last_counts() {
        let mut withdrawn = call(1, false);
        let last = call(9, true);
        withdrawn.begun.key = last.begun.key.clone();
        let loaded = Loaded { calls: vec![withdrawn, last.clone()], ..Loaded::default() };
        let recovered = recover(loaded, 0);
        assert_eq!((recovered.superseded, recovered.interrupted), (vec![Row(1)], Vec::new()));
        assert_eq!(recovered.expired_ms, 0);
        assert_eq!(recovered.finished[0].0, last.begun);
    }
}
