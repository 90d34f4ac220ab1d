//! Chooses the owner of a call's id, or the home of an affinity, among several peers: always the same one.

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use sha2::{Digest, Sha256};

use crate::store::Replica;

/// Most replicas that ids are shared among.
pub(super) const REPLICAS_MAX: usize = 8;

/// Whom the call of this id belongs to: rendezvous hashing, which spreads ids evenly, needs no memory, and moves no other
/// ids when a replica leaves or comes. Only an empty list has none.
pub(super) fn owner<'a>(id: &MessageId, replicas: &'a [Replica]) -> Option<&'a Replica> {
    match replicas {
        [] => None,
        [one] => Some(one),
        [first, more @ ..] => {
            let mut best = (score(id, first), first);
            for replica in more {
                let score = score(id, replica);
                if score > best.0 {
                    best = (score, replica);
                }
            }
            Some(best.1)
        }
    }
}

/// The place of the peer that calls of this affinity go to, chosen in the same way. Only an empty list has none.
pub(super) fn home<'a>(affinity: &str, peers: impl Iterator<Item = &'a Did>) -> Option<usize> {
    let score = |peer: &Did| rank(&[affinity.as_bytes(), &[AFFINITY_END], peer.as_str().as_bytes()]);
    peers.map(score).enumerate().max_by_key(|(_, score)| *score).map(|(at, _)| at)
}

/// Ends an affinity where it is hashed with a DID: no text has this byte.
const AFFINITY_END: u8 = 0xff;

/// Of many replicas as many as ids are shared among, in their order; which these are differs from caller to caller.
pub(super) fn some_of(caller: &Did, mut replicas: Vec<Replica>) -> Vec<Replica> {
    if replicas.len() > REPLICAS_MAX {
        let rank = |replica: &Replica| rank(&[caller.as_str().as_bytes(), replica.peer.as_str().as_bytes()]);
        replicas.sort_by_cached_key(|replica| std::cmp::Reverse(rank(replica)));
        replicas.truncate(REPLICAS_MAX);
        replicas.sort_by(|one, other| one.peer.cmp(&other.peer));
    }
    replicas
}

/// **Shape:** the first eight bytes, big-endian, of the SHA-256 of the id, the DID and the journal's id, if it is known.
fn score(id: &MessageId, replica: &Replica) -> u64 {
    let journal = replica.journal.as_ref().map_or(&[][..], |journal| &journal.0);
    rank(&[id.as_bytes(), replica.peer.as_str().as_bytes(), journal])
}

fn rank(parts: &[&[u8]]) -> u64 {
    let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
    let (first, _) = hash.as_slice().split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use capd_proto::ledger::JournalId;

    use super::*;

    fn replicas(count: u8) -> Vec<Replica> {
        let replica = |at: u8| Replica {
            peer: Did::parse(&format!("did:web:peer{at:03}.example")).unwrap(),
            journal: (!at.is_multiple_of(4)).then_some(JournalId([at; 16])),
        };
        (0..count).map(replica).collect()
    }

    fn id(number: u64) -> MessageId {
        MessageId::new(1_800_000_000_000 + number / 7, number.to_be_bytes())
    }

    #[test]
    fn each_replica_has_its_share_of_ids() {
        for count in [2, 3, 8] {
            let replicas = replicas(count);
            let mut shares = BTreeMap::<&str, u64>::new();
            for number in 0..4_000 {
                let owner = owner(&id(number), &replicas).unwrap();
                *shares.entry(owner.peer.as_str()).or_default() += 1;
            }
            let fair = 4_000 / u64::from(count);
            assert_eq!(shares.len(), usize::from(count));
            assert!(shares.values().all(|share| share.abs_diff(fair) < fair / 4), "{count}: {shares:?}");
        }
    }

    #[test]
    fn an_owner_is_the_same_in_any_order_and_changes_only_with_its_replica() {
        let all = replicas(8);
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        let mut moved = 0;
        for number in 0..500 {
            let id = id(number);
            let had = owner(&id, &all).unwrap();
            assert_eq!(owner(&id, &reversed), Some(had));
            let without: Vec<_> = all.iter().filter(|replica| *replica != &all[3]).cloned().collect();
            let has = owner(&id, &without).unwrap();
            assert!(has == had || *had == all[3]);
            moved += u64::from(has != had);
        }
        assert!(moved > 20, "{moved}");
        assert_eq!(owner(&id(0), &[]), None);
    }

    #[test]
    fn each_peer_is_the_home_of_its_share_of_affinities_and_a_lost_one_moves_no_others() {
        let peers: Vec<_> = replicas(3).into_iter().map(|replica| replica.peer).collect();
        let mut shares = BTreeMap::<&str, u64>::new();
        for number in 0..3_000 {
            let affinity = format!("customer-{number}");
            let had = &peers[home(&affinity, peers.iter()).unwrap()];
            *shares.entry(had.as_str()).or_default() += 1;
            let reversed: Vec<_> = peers.iter().rev().collect();
            assert_eq!(reversed[home(&affinity, reversed.iter().copied()).unwrap()], had);
            for lost in &peers {
                let left: Vec<_> = peers.iter().filter(|peer| *peer != lost).collect();
                let has = left[home(&affinity, left.iter().copied()).unwrap()];
                assert!(has == had || had == lost, "{affinity}");
            }
        }
        assert!(shares.values().all(|share| share.abs_diff(1_000) < 100), "{shares:?}");
        assert_eq!(home("customer", [].into_iter()), None);
    }

    #[test]
    fn another_journal_is_another_replica() {
        let one = replicas(2);
        let mut other = one.clone();
        other[1].journal = Some(JournalId([9; 16]));
        let differ = |number: &u64| {
            let (before, after) = (owner(&id(*number), &one).unwrap(), owner(&id(*number), &other).unwrap());
            before.peer != after.peer
        };
        assert!((0..100).any(|number| differ(&number)));
    }

    #[test]
    fn callers_share_many_replicas_among_them() {
        let all = replicas(40);
        let mut chosen = BTreeMap::<String, u64>::new();
        for caller in 0..100 {
            let caller = Did::parse(&format!("did:web:caller{caller}.example")).unwrap();
            let some = some_of(&caller, all.clone());
            assert_eq!(some.len(), REPLICAS_MAX);
            assert!(some.is_sorted_by(|one, other| one.peer < other.peer));
            assert_eq!(some, some_of(&caller, all.iter().rev().cloned().collect()));
            some.into_iter().for_each(|replica| *chosen.entry(replica.peer.to_string()).or_default() += 1);
        }
        assert_eq!(chosen.len(), 40, "each is chosen by somebody");
        assert_eq!(some_of(&all[0].peer, replicas(8)), replicas(8));
    }
}
