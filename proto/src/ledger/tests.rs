use bytes::Bytes;
use smallvec::smallvec;

use super::*;

const LATER_MS: u64 = 2_000;

fn key(peer: u8, id: u8) -> Key {
    Key { from: Did::parse(&format!("did:example:{peer}")).unwrap(), id: MessageId([id; 16]) }
}

fn invoke(peer: u8, id: u8, idempotent: bool) -> Invoke {
    Invoke { key: key(peer, id), body: BodyDigest([0; 32]), expires_at_ms: LATER_MS, idempotent }
}

fn small() -> Limits {
    Limits {
        calls_max: 6,
        calls_per_peer_max: 4,
        kept_bytes_max: 30,
        kept_bytes_per_peer_max: 20,
        idempotent_bytes_max: 30,
        idempotent_bytes_per_peer_max: 20,
    }
}

fn ledger() -> Ledger<u32> {
    Ledger::new(small())
}

fn bytes(length: usize) -> Bytes {
    Bytes::from(vec![7; length])
}

fn held(length: usize) -> Kept {
    Kept::Held(bytes(length).into())
}

fn sweep(ledger: &mut Ledger<u32>, now_ms: u64) -> usize {
    ledger.sweep(now_ms, &mut Vec::new())
}

fn run(ledger: &mut Ledger<u32>, invoke: Invoke, result_bytes: usize) {
    let key = invoke.key.clone();
    assert_eq!(ledger.admit(invoke, 0), Admission::New);
    assert_eq!(ledger.finish(&key, held(result_bytes), Answerer::Provider), Finish::Recorded(smallvec![0]));
}

#[test]
fn duplicate_attaches_while_running_and_replays_the_bytes_after() {
    let mut ledger = ledger();
    assert_eq!(ledger.admit(invoke(1, 1, false), 10), Admission::New);
    assert_eq!(ledger.admit(invoke(1, 1, false), 11), Admission::Attached { displaced: None });
    let kept = Kept::Held(Bytes::from_static(b"the envelope").into());
    assert_eq!(
        ledger.finish(&key(1, 1), kept.clone(), Answerer::Provider),
        Finish::Recorded(smallvec![10, 11])
    );
    assert_eq!(ledger.admit(invoke(1, 1, false), 12), Admission::Replay { kept, waiter: 12 });
}

#[test]
fn other_body_under_the_same_id_conflicts_running_or_finished() {
    let mut ledger = ledger();
    let other = Invoke { body: BodyDigest([1; 32]), ..invoke(1, 1, false) };
    let _ = ledger.admit(invoke(1, 1, false), 0);
    assert_eq!(ledger.admit(other.clone(), 5), Admission::Conflict(5));
    let _ = ledger.finish(&key(1, 1), held(1), Answerer::Provider);
    assert_eq!(ledger.admit(other, 6), Admission::Conflict(6));
}

#[test]
fn same_id_of_another_sender_is_another_call() {
    let mut ledger = ledger();
    assert_eq!(ledger.admit(invoke(1, 1, false), 0), Admission::New);
    assert_eq!(ledger.admit(invoke(2, 1, false), 0), Admission::New);
}

#[test]
fn late_second_and_unknown_answers_are_told_apart() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, false), 0);
    let _ = ledger.admit(invoke(1, 2, false), 0);
    let _ = ledger.finish(&key(1, 1), held(1), Answerer::Provider);
    let _ = ledger.finish(&key(1, 2), held(1), Answerer::Sidecar);
    assert_eq!(ledger.finish(&key(1, 1), held(2), Answerer::Provider), Finish::Second);
    assert_eq!(ledger.finish(&key(1, 2), held(2), Answerer::Provider), Finish::Late);
    assert_eq!(ledger.finish(&key(1, 3), held(2), Answerer::Provider), Finish::Unknown);
    assert_eq!(ledger.finish(&key(3, 1), held(2), Answerer::Provider), Finish::Unknown);
    assert_eq!(ledger.admit(invoke(1, 1, false), 9), Admission::Replay { kept: held(1), waiter: 9 });
}

#[test]
fn withdrawn_call_may_be_tried_again_and_a_finished_one_cannot_be_withdrawn() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, false), 3);
    let _ = ledger.admit(invoke(1, 1, false), 4);
    assert_eq!(ledger.withdraw(&key(1, 1)), Some(smallvec![3, 4]));
    assert_eq!(ledger.status(&key(1, 1)), Status::Unknown);
    run(&mut ledger, invoke(1, 1, false), 1);
    assert_eq!(ledger.withdraw(&key(1, 1)), None);
    assert_eq!(ledger.status(&key(1, 1)), Status::Finished);
}

#[test]
fn finished_call_is_kept_to_its_last_millisecond() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, false), 5);
    assert_eq!(ledger.poll_timeout(), Some(LATER_MS + 1));
    assert_eq!(sweep(&mut ledger, LATER_MS), 0);
    assert_eq!(sweep(&mut ledger, LATER_MS + 1), 1);
    assert_eq!((ledger.calls(), ledger.bytes(), ledger.poll_timeout()), (0, 0, None));
    assert!(ledger.peers.is_empty() && ledger.forgettable.first().is_none());
}

#[test]
fn running_call_outlives_its_ttl_and_is_forgotten_once_it_finished() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, false), 0);
    assert_eq!(sweep(&mut ledger, u64::MAX), 0);
    assert_eq!(ledger.status(&key(1, 1)), Status::Executing);
    assert_eq!(ledger.finish(&key(1, 1), held(1), Answerer::Sidecar), Finish::Recorded(smallvec![0]));
    assert_eq!(sweep(&mut ledger, LATER_MS + 1), 1);
    assert_eq!((ledger.status(&key(1, 1)), ledger.calls()), (Status::Unknown, 0));
}

#[test]
fn sweep_names_the_rows_of_forgotten_calls() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, false), 0);
    let _ = ledger.finish(&key(1, 1), Kept::Journaled { row: 70, bytes: 9 }, Answerer::Provider);
    run(&mut ledger, invoke(1, 2, false), 1);
    assert!(ledger.restore(invoke(2, 1, false), Kept::Journaled { row: 71, bytes: 9 }, Answerer::Sidecar));
    assert_eq!((ledger.calls(), ledger.bytes()), (3, 19));
    let mut rows = vec![5];
    assert_eq!(ledger.sweep(LATER_MS, &mut rows), 0);
    assert_eq!(ledger.sweep(LATER_MS + 1, &mut rows), 3);
    assert_eq!((rows, ledger.calls(), ledger.bytes()), (vec![5, 70, 71], 0, 0));
}

#[test]
fn journaled_result_is_replayed_by_its_row() {
    let mut ledger = ledger();
    let kept = Kept::Journaled { row: 70, bytes: 9 };
    let _ = ledger.admit(invoke(1, 1, false), 0);
    let _ = ledger.finish(&key(1, 1), kept.clone(), Answerer::Provider);
    assert_eq!(ledger.admit(invoke(1, 1, false), 4), Admission::Replay { kept, waiter: 4 });
}

#[test]
fn journaled_result_of_an_idempotent_call_is_not_pushed_out() {
    let mut ledger = ledger();
    for id in 0..4 {
        let _ = ledger.admit(invoke(1, id, true), 0);
        let kept = Kept::Journaled { row: u64::from(id), bytes: 9 };
        let _ = ledger.finish(&key(1, id), kept, Answerer::Provider);
    }
    assert_eq!(ledger.admit(invoke(1, 4, true), 8), Admission::Full { bound: Bound::PeerCalls, waiter: 8 });
    assert_eq!((ledger.calls(), ledger.bytes()), (4, 36));
}

#[test]
fn restored_call_is_refused_by_no_bound_and_never_replaces_a_known_one() {
    let mut ledger = ledger();
    for id in 0..9 {
        let kept = Kept::Journaled { row: u64::from(id), bytes: 9 };
        assert!(ledger.restore(invoke(1, id, false), kept, Answerer::Provider));
    }
    assert_eq!((ledger.calls(), ledger.bytes()), (9, 81));
    let kept = Kept::Journaled { row: 99, bytes: 1 };
    assert!(!ledger.restore(invoke(1, 0, false), kept, Answerer::Sidecar));
    let first = Kept::Journaled { row: 0, bytes: 9 };
    assert_eq!(ledger.admit(invoke(1, 0, false), 4), Admission::Replay { kept: first, waiter: 4 });
    let refused = ledger.admit(invoke(2, 1, false), 8);
    assert_eq!(refused, Admission::Full { bound: Bound::KeptBytes, waiter: 8 });
    let refused = ledger.admit(invoke(1, 9, true), 8);
    assert_eq!(refused, Admission::Full { bound: Bound::PeerCalls, waiter: 8 });
    assert_eq!(ledger.finish(&key(1, 0), held(1), Answerer::Provider), Finish::Second);
}

#[test]
fn call_as_old_as_a_forgotten_one_is_not_run_unless_idempotent() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, false), 1);
    run(&mut ledger, Invoke { expires_at_ms: 3_000, ..invoke(1, 2, true) }, 1);
    assert_eq!(sweep(&mut ledger, 3_001), 2);
    assert_eq!(ledger.admit(invoke(1, 1, false), 8), Admission::Forgotten(8));
    assert_eq!(ledger.admit(invoke(1, 3, true), 0), Admission::New);
    let younger = Invoke { expires_at_ms: LATER_MS + 1, ..invoke(1, 4, false) };
    assert_eq!(ledger.admit(younger, 0), Admission::New);
}

#[test]
fn list_pages_through_calls_in_the_order_of_their_keys() {
    let mut ledger = Ledger::new(Limits::default());
    let mut expected = Vec::new();
    for (peer, id) in (1..4).flat_map(|peer| (0..5).map(move |id| (peer, id))) {
        expected.push(key(peer, id));
    }
    for key in expected.iter().rev() {
        let _ = ledger.admit(Invoke { key: key.clone(), ..invoke(1, 1, false) }, 0);
    }
    let keys = |after: Option<&Key>, from: Option<&Did>| -> Vec<Key> {
        let page = ledger.list(after, from).take(4);
        page.map(|call| Key { from: call.from.clone(), id: call.id }).collect()
    };
    let (mut paged, mut page) = (Vec::new(), keys(None, None));
    while let Some(last) = page.last().cloned() {
        paged.append(&mut page);
        page = keys(Some(&last), None);
    }
    assert_eq!(paged, expected);
    assert_eq!(keys(Some(&key(2, 2)), Some(&key(2, 0).from)), expected[8..10]);
    assert_eq!(keys(Some(&key(1, 2)), Some(&key(2, 0).from)), expected[5..9]);
    assert!(keys(Some(&key(3, 2)), Some(&key(2, 0).from)).is_empty());
    assert_eq!(keys(Some(&key(2, 9)), None), expected[10..14]);
    assert!(keys(None, Some(&key(9, 0).from)).is_empty());
}

#[test]
fn newest_pages_through_calls_by_their_ids_whoever_made_them() {
    let mut ledger = Ledger::new(Limits::default());
    let mut expected = Vec::new();
    for (id, peer) in (0..5).flat_map(|id| (1..4).map(move |peer| (id, peer))) {
        expected.push(key(peer, id));
        let _ = ledger.admit(Invoke { key: key(peer, id), ..invoke(1, 1, false) }, 0);
    }
    expected.sort_by(|a, b| (b.id, &b.from).cmp(&(a.id, &a.from)));
    let keys = |before: Option<(MessageId, Option<&Did>)>| -> Vec<Key> {
        let page = ledger.newest(before).take(4);
        page.map(|call| Key { from: call.from.clone(), id: call.id }).collect()
    };
    let (mut paged, mut page) = (Vec::new(), keys(None));
    while let Some(last) = page.last().cloned() {
        paged.append(&mut page);
        page = keys(Some((last.id, Some(&last.from))));
    }
    assert_eq!(paged, expected);
    // Behind all of one id.
    assert_eq!(keys(Some((key(1, 3).id, None))), expected[6..10]);
}

#[test]
fn facts_are_those_of_the_call_that_was_new() {
    let mut ledger = ledger();
    let facts = |finished_at_ms| Facts { finished_at_ms: Some(finished_at_ms), ..Facts::default() };
    assert_eq!(ledger.known(&key(1, 1)), None);
    assert_eq!(ledger.admit_with(invoke(1, 1, true), facts(1), 0), Admission::New);
    let _ = ledger.admit_with(invoke(1, 1, true), facts(2), 1);
    assert_eq!(ledger.known(&key(1, 1)), Some((Status::Executing, &facts(1))));
    let _ = ledger.finish(&key(1, 1), Kept::Held(Bytes::new().into()), Answerer::Provider);
    assert_eq!(ledger.known(&key(1, 1)), Some((Status::Finished, &facts(1))));
    ledger.set_blind(true);
    assert_eq!(ledger.known(&key(1, 1)), None);
}

#[test]
fn listed_call_shows_where_it_stands() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, true), 0);
    let _ = ledger.admit(invoke(1, 1, true), 1);
    let _ = ledger.admit(invoke(2, 1, false), 0);
    let _ = ledger.finish(&key(2, 1), Kept::Journaled { row: 70, bytes: 9 }, Answerer::Provider);
    ledger.facts_mut(&key(2, 1)).unwrap().outcome = Some(Ok(()));
    assert_eq!(ledger.facts_mut(&key(2, 2)), None);
    let (one, two) = (key(1, 1).from, key(2, 1).from);
    let (none, ended) = (Facts::default(), Facts { outcome: Some(Ok(())), ..Facts::default() });
    let running = Listed {
        from: &one,
        id: key(1, 1).id,
        status: Status::Executing,
        by: None,
        idempotent: true,
        expires_at_ms: LATER_MS,
        waiters: 2,
        bytes: 0,
        row: None,
        held: None,
        facts: &none,
    };
    let finished = Listed {
        from: &two,
        status: Status::Finished,
        by: Some(Answerer::Provider),
        idempotent: false,
        waiters: 0,
        bytes: 9,
        row: Some(70),
        facts: &ended,
        ..running
    };
    assert_eq!(ledger.find(key(0, 1).id).collect::<Vec<_>>(), [running, finished]);
    assert_eq!(ledger.find(key(0, 2).id).count(), 0);
    let _ = ledger.finish(&key(1, 1), held(3), Answerer::Provider);
    assert_eq!(ledger.find(key(1, 1).id).next().and_then(|call| call.held), Some(&bytes(3).into()));
}

#[test]
fn blind_ledger_takes_known_ids_for_new_ones() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, false), 1);
    ledger.set_blind(true);
    assert_eq!(ledger.status(&key(1, 1)), Status::Unknown);
    assert_eq!(ledger.admit(invoke(1, 1, false), 4), Admission::New);
    assert_eq!(ledger.admit(invoke(1, 1, false), 5), Admission::New);
    assert_eq!((ledger.calls(), ledger.bytes()), (1, 0));
}

#[test]
fn longer_ttl_of_a_copy_counts() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, false), 1);
    let _ = ledger.admit(Invoke { expires_at_ms: 9_000, ..invoke(1, 1, false) }, 0);
    let _ = ledger.admit(Invoke { expires_at_ms: 500, ..invoke(1, 1, false) }, 0);
    assert_eq!(ledger.poll_timeout(), Some(9_001));
    assert_eq!(sweep(&mut ledger, 9_000), 0);
    assert_eq!(sweep(&mut ledger, 9_001), 1);
}

#[test]
fn full_of_running_calls_refuses_new_ones_and_keeps_every_live_one() {
    let mut ledger = ledger();
    for id in 0..4 {
        assert_eq!(ledger.admit(invoke(1, id, true), 0), Admission::New);
    }
    assert_eq!(ledger.admit(invoke(1, 9, true), 8), Admission::Full { bound: Bound::PeerCalls, waiter: 8 });
    for id in 0..2 {
        assert_eq!(ledger.admit(invoke(2, id, true), 0), Admission::New);
    }
    assert_eq!(ledger.admit(invoke(2, 9, true), 8), Admission::Full { bound: Bound::Calls, waiter: 8 });
    assert_eq!(ledger.admit(invoke(3, 9, true), 8), Admission::Full { bound: Bound::Calls, waiter: 8 });
    assert_eq!(ledger.admit(invoke(1, 0, true), 8), Admission::Attached { displaced: None });
    assert_eq!(ledger.calls(), 6);
}

#[test]
fn finished_idempotent_calls_give_way_to_new_ones_oldest_first() {
    let mut ledger = ledger();
    for id in 0..4 {
        run(&mut ledger, invoke(1, id, true), 1);
    }
    assert_eq!(ledger.admit(invoke(1, 4, false), 0), Admission::New);
    assert_eq!(ledger.status(&key(1, 0)), Status::Unknown);
    assert_eq!(ledger.status(&key(1, 1)), Status::Finished);
}

#[test]
fn finished_call_that_is_not_idempotent_is_never_pushed_out() {
    let mut ledger = ledger();
    for id in 0..4 {
        run(&mut ledger, invoke(1, id, false), 1);
    }
    assert_eq!(ledger.admit(invoke(1, 4, true), 8), Admission::Full { bound: Bound::PeerCalls, waiter: 8 });
    for id in 0..4 {
        assert_eq!(ledger.status(&key(1, id)), Status::Finished);
    }
}

#[test]
fn idempotent_results_stay_within_their_bytes() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, true), 10);
    run(&mut ledger, invoke(1, 2, true), 10);
    run(&mut ledger, invoke(1, 3, true), 1);
    assert_eq!((ledger.status(&key(1, 1)), ledger.bytes()), (Status::Unknown, 11), "the peer's own oldest");
    run(&mut ledger, invoke(2, 1, true), 20);
    assert_eq!((ledger.status(&key(1, 2)), ledger.bytes()), (Status::Unknown, 21), "the oldest of all");
    run(&mut ledger, invoke(2, 2, true), 1_000);
    assert_eq!(ledger.bytes(), 1, "a result above the budget is not remembered, and costs its peer's others");
}

#[test]
fn kept_bytes_past_their_bound_refuse_only_calls_that_would_add_to_them() {
    let mut ledger = ledger();
    run(&mut ledger, invoke(1, 1, false), 25);
    let refused = ledger.admit(invoke(1, 2, false), 8);
    assert_eq!(refused, Admission::Full { bound: Bound::PeerKeptBytes, waiter: 8 });
    assert_eq!(ledger.admit(invoke(1, 3, true), 0), Admission::New);
    run(&mut ledger, invoke(2, 1, false), 5);
    let refused = ledger.admit(invoke(3, 1, false), 8);
    assert_eq!(refused, Admission::Full { bound: Bound::KeptBytes, waiter: 8 });
}

#[test]
fn too_many_waiters_displace_the_oldest() {
    let mut ledger = ledger();
    let _ = ledger.admit(invoke(1, 1, false), 0);
    for waiter in 1..LEDGER_WAITERS_MAX as u32 {
        assert_eq!(ledger.admit(invoke(1, 1, false), waiter), Admission::Attached { displaced: None });
    }
    assert_eq!(ledger.admit(invoke(1, 1, false), 99), Admission::Attached { displaced: Some(0) });
}

#[test]
fn sweep_takes_a_bounded_number_at_a_time() {
    let mut ledger = Ledger::new(Limits::default());
    for id in 0..LEDGER_SWEEP_MAX as u64 + 10 {
        let key = Key { from: key(1, 0).from, id: MessageId::new(id, [0; 8]) };
        let _ = ledger.admit(Invoke { key: key.clone(), ..invoke(1, 0, false) }, 0);
        let _ = ledger.finish(&key, held(0), Answerer::Provider);
    }
    assert_eq!(sweep(&mut ledger, LATER_MS + 1), LEDGER_SWEEP_MAX);
    assert!(ledger.poll_timeout().is_some_and(|due_ms| due_ms <= LATER_MS + 1));
    assert_eq!(sweep(&mut ledger, LATER_MS + 1), 10);
}

#[test]
fn a_released_call_is_refused_until_its_time_has_passed() {
    let mut ledger = ledger();
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 10), Release::New);
    // A copy that comes before the tombstone is durable is refused as well, whatever its body is.
    let other = Invoke { body: BodyDigest([9; 32]), ..invoke(1, 1, true) };
    assert_eq!(ledger.admit(other.clone(), 20), Admission::Released(20));
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 11), Release::Attached { displaced: None });
    assert!(ledger.is_released(&key(1, 1)) && !ledger.is_released_for_good(&key(1, 1)));
    assert_eq!(ledger.released(&key(1, 1), 5).as_slice(), [10, 11]);
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 12), Release::Released(12));
    assert_eq!(ledger.admit(other, 20), Admission::Released(20));
    // It is no call to anybody else, and another's id is not touched.
    assert_eq!((ledger.status(&key(1, 1)), ledger.calls()), (Status::Unknown, 1));
    assert!(ledger.is_released_for_good(&key(1, 1)) && ledger.known(&key(1, 1)).is_none());
    assert_eq!(ledger.list(None, None).count() + ledger.newest(None).count(), 0);
    assert_eq!(ledger.find(key(1, 1).id).count(), 0);
    assert_eq!(ledger.finish(&key(1, 1), held(1), Answerer::Provider), Finish::Unknown);
    assert_eq!(ledger.withdraw(&key(1, 1)), None);
    assert_eq!(ledger.admit(invoke(2, 1, false), 21), Admission::New);
    let mut rows = Vec::new();
    assert_eq!((ledger.sweep(LATER_MS, &mut rows), ledger.poll_timeout()), (0, Some(LATER_MS + 1)));
    assert_eq!((ledger.sweep(LATER_MS + 1, &mut rows), rows), (1, vec![5]));
    // Its copies have expired with it, and a clock that goes back lets none of them in.
    assert_eq!(ledger.admit(invoke(1, 1, false), 22), Admission::Forgotten(22));
}

#[test]
fn a_call_that_was_accepted_is_not_released() {
    let mut ledger = ledger();
    assert_eq!(ledger.admit(invoke(1, 1, false), 1), Admission::New);
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 10), Release::Accepted(10));
    let kept = Kept::Journaled { row: 7, bytes: 3 };
    assert_eq!(ledger.finish(&key(1, 1), kept, Answerer::Provider), Finish::Recorded(smallvec![1]));
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 11), Release::Accepted(11));
    sweep(&mut ledger, LATER_MS + 1);
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 12), Release::Forgotten(12));
    // An ERROR takes the call back: it was not accepted.
    let later = Invoke { expires_at_ms: LATER_MS + 9, ..invoke(1, 2, false) };
    assert_eq!(ledger.admit(later, 1), Admission::New);
    assert!(ledger.withdraw(&key(1, 2)).is_some());
    assert_eq!(ledger.release(&key(1, 2), LATER_MS + 9, 13), Release::New);
}

#[test]
fn a_tombstone_that_is_not_durable_is_none() {
    let mut ledger = ledger();
    assert_eq!(ledger.release(&key(1, 1), LATER_MS, 10), Release::New);
    assert_eq!(ledger.unreleased(&key(1, 1)).as_slice(), [10]);
    assert_eq!(ledger.admit(invoke(1, 1, false), 20), Admission::New);
    // What is durable stays, and what runs is nobody's tombstone.
    assert!(ledger.unreleased(&key(1, 1)).is_empty() && ledger.released(&key(1, 1), 1).is_empty());
    assert!(ledger.restore_released(&key(1, 2), 6, LATER_MS));
    assert!(
        !ledger.restore_released(&key(1, 2), 7, LATER_MS)
            && !ledger.restore_released(&key(1, 1), 8, LATER_MS)
    );
    assert!(ledger.unreleased(&key(1, 2)).is_empty());
    assert_eq!(ledger.admit(invoke(1, 2, false), 21), Admission::Released(21));
}

#[test]
fn tombstones_are_bounded_as_calls_are() {
    let mut ledger = ledger();
    for id in 0..4 {
        assert_eq!(ledger.release(&key(1, id), LATER_MS, 0), Release::New);
    }
    let full = |bound| Release::Full { bound, asker: 0 };
    assert_eq!(ledger.release(&key(1, 9), LATER_MS, 0), full(Bound::PeerCalls));
    for id in 0..2 {
        assert_eq!(ledger.release(&key(2, id), LATER_MS, 0), Release::New);
    }
    assert_eq!(ledger.release(&key(3, 1), LATER_MS, 0), full(Bound::Calls));
}
