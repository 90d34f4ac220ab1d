//! Folds denied messages: decides which are recorded one by one, and groups the others into one record each.
//!
//! A denied peer may send as fast as it likes. Its first denials are recorded one by one. Within the same minute,
//! further ones are counted by what they asked for, and recorded once with count and times. So no peer fills the log or
//! the audit log with denied messages.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::Type;
use tokio::sync::Notify;

use super::Account;
use crate::daemon::context::lock;
use crate::net::Now;
use crate::store::audit::{Kind, short};

/// The denials of the last minute.
#[derive(Default)]
pub(in crate::daemon) struct Denials {
    state: Mutex<State>,
    /// Wakes the task that tells what was folded.
    wake: Notify,
    /// Denied messages since the start.
    count: AtomicU64,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<Did, Minute>,
    /// What is to be told at once, since its peer gave way to another.
    given_way: Vec<Folded>,
}

/// What one peer was denied since the first of these denials.
struct Minute {
    /// **Units:** monotonic milliseconds.
    ends_ms: u64,
    /// Denials told one by one.
    told: usize,
    folded: BTreeMap<About, Repeats>,
}

/// What a message that was denied asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::daemon) struct About {
    pub(in crate::daemon) kind: Kind,
    /// What its sender was told.
    pub(in crate::daemon) code: Code,
    /// The message's type; none where several are told together.
    pub(in crate::daemon) typ: Option<u64>,
    pub(in crate::daemon) capability: Option<String>,
}

impl About {
    /// Messages that were refused since their sender had been denied too often.
    pub(in crate::daemon) const fn limited() -> Self {
        Self { kind: Kind::Denied, code: Code::RATE_LIMITED, typ: None, capability: None }
    }
}

/// Denials alike. **Units:** milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repeats {
    count: u64,
    first_at_ms: u64,
    last_at_ms: u64,
}

/// Denials that are told together.
#[derive(Debug, PartialEq, Eq)]
struct Folded {
    peer: Did,
    about: About,
    repeats: Repeats,
}

impl Denials {
    /// Counts a denial; `true` when it is to be told by itself.
    pub(in crate::daemon) fn note(&self, peer: &Did, about: About, now: Now) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let is_new = !state.peers.contains_key(peer);
        if is_new {
            if state.peers.len() >= PEERS_MAX {
                state.give_way();
            }
            let minute = Minute {
                ends_ms: now.monotonic_ms.saturating_add(MINUTE_MS),
                told: 0,
                folded: BTreeMap::new(),
            };
            state.peers.insert(peer.clone(), minute);
            self.wake.notify_one();
        }
        let Some(minute) = state.peers.get_mut(peer) else { return false };
        if minute.told < TOLD_MAX && about.code == Code::UNAUTHORIZED {
            minute.told += 1;
            return true;
        }
        let is_room = minute.folded.len() < FOLDED_MAX || minute.folded.contains_key(&about);
        // One more place is for all that find none.
        let about = if is_room { about } else { About { typ: None, capability: None, ..about } };
        let fresh = Repeats { count: 0, first_at_ms: now.wall_ms, last_at_ms: now.wall_ms };
        let repeats = minute.folded.entry(about).or_insert(fresh);
        repeats.count += 1;
        repeats.last_at_ms = now.wall_ms;
        false
    }

    /// Denied messages since the start.
    pub(in crate::daemon) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What is to be told by now, and when more may be. **Units:** monotonic milliseconds.
    fn take_due(&self, now_ms: u64) -> (Vec<Folded>, Option<u64>) {
        let mut state = lock(&self.state);
        let mut folded = std::mem::take(&mut state.given_way);
        let due: Vec<_> = state.peers.extract_if(.., |_, minute| minute.ends_ms <= now_ms).collect();
        folded.extend(due.into_iter().flat_map(|(peer, minute)| minute.folded(peer)));
        (folded, state.peers.values().map(|minute| minute.ends_ms).min())
    }
}

impl State {
    /// Makes room for another peer: the one whose minute ends first is told of at once.
    fn give_way(&mut self) {
        let first = self.peers.iter().min_by_key(|(_, minute)| minute.ends_ms).map(|(peer, _)| peer.clone());
        if let Some((peer, minute)) = first.and_then(|first| self.peers.remove_entry(&first)) {
            self.given_way.extend(minute.folded(peer));
        }
    }
}

impl Minute {
    fn folded(self, peer: Did) -> impl Iterator<Item = Folded> {
        let folded = self.folded.into_iter();
        folded.map(move |(about, repeats)| Folded { peer: peer.clone(), about, repeats })
    }
}

impl Account {
    /// Tells what was folded when its minute is over, until shutdown.
    pub(in crate::daemon) async fn keep_denials(&self) {
        loop {
            let (folded, next_ms) = self.denials.take_due(self.ctx.clock.monotonic_ms());
            folded.into_iter().for_each(|folded| self.tell_folded(folded));
            let next = async {
                match next_ms {
                    Some(next_ms) => tokio::time::sleep_until(self.ctx.clock.moment(next_ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.denials.wake.notified() => {}
                () = next => {}
            }
        }
    }

    /// Tells what is folded so far, at shutdown.
    pub(in crate::daemon) fn tell_denials(&self) {
        let (folded, _) = self.denials.take_due(u64::MAX);
        folded.into_iter().for_each(|folded| self.tell_folded(folded));
    }

    fn tell_folded(&self, Folded { peer, about, repeats }: Folded) {
        let About { kind, code, typ, capability } = about;
        let Repeats { count, first_at_ms, last_at_ms } = repeats;
        let typ = typ.and_then(Type::from_code).map(Type::name);
        let capability = capability.as_deref();
        tracing::warn!(
            target: "audit",
            kind = kind.as_str(),
            principal = %peer,
            %code,
            message_type = typ,
            capability,
            count,
            time_ms = last_at_ms.saturating_sub(first_at_ms),
            "more messages were denied"
        );
        let mut record = self
            .audited(kind)
            .peer(peer.as_str())
            .with("code", code.0)
            .with("count", count)
            .with("firstAt", first_at_ms)
            .with("lastAt", last_at_ms);
        if let Some(typ) = typ {
            record = record.with("messageType", typ);
        }
        if let Some(capability) = capability {
            record = record.capability(&short(capability));
        }
        self.audit.record(record);
    }
}

/// How long denials of one peer are gathered, in milliseconds.
const MINUTE_MS: u64 = 60_000;
/// Denials of one peer that are told one by one in a minute.
const TOLD_MAX: usize = 16;
/// Kinds of further denials of one peer that are told apart.
const FOLDED_MAX: usize = 8;
/// Peers whose denials are gathered at a time.
const PEERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    fn did(seed: u16) -> Did {
        let mut bytes = [9; 32];
        bytes[..2].copy_from_slice(&seed.to_be_bytes());
        Identity::from_seed(bytes).did().clone()
    }

    fn about(name: &str) -> About {
        let (kind, code) = (Kind::Denied, Code::UNAUTHORIZED);
        About { kind, code, typ: Some(Type::CapInvoke.code()), capability: Some(name.to_owned()) }
    }

    fn at(ms: u64) -> Now {
        Now { wall_ms: 1_000_000 + ms, monotonic_ms: ms, monotonic_us: ms * 1_000 }
    }

    #[test]
    fn the_first_denials_of_a_minute_are_told_and_the_others_counted() {
        let denials = Denials::default();
        let told = (0..1_000).filter(|ms| denials.note(&did(1), about("a.b.c"), at(*ms))).count();
        assert_eq!((told, denials.count()), (TOLD_MAX, 1_000));
        assert_eq!(denials.take_due(MINUTE_MS - 1), (Vec::new(), Some(MINUTE_MS)));
        let (folded, next_ms) = denials.take_due(MINUTE_MS);
        let repeats = Repeats { count: 984, first_at_ms: 1_000_016, last_at_ms: 1_000_999 };
        assert_eq!(folded, [Folded { peer: did(1), about: about("a.b.c"), repeats }]);
        assert_eq!(next_ms, None);
        assert!(denials.note(&did(1), about("a.b.c"), at(MINUTE_MS)), "the next minute begins anew");
    }

    #[test]
    fn what_asks_for_ever_other_names_is_told_as_one() {
        let denials = Denials::default();
        for number in 0..10_000 {
            denials.note(&did(1), about(&format!("a.b.c{number}")), at(0));
        }
        denials.note(&did(1), About::limited(), at(5));
        let (folded, _) = denials.take_due(u64::MAX);
        assert_eq!(folded.len(), FOLDED_MAX + 2);
        assert_eq!(folded.iter().map(|folded| folded.repeats.count).sum::<u64>(), 10_001 - 16);
        let others = folded.iter().find(|folded| folded.about.capability.is_none()).unwrap();
        assert_eq!(others.repeats.count, 10_000 - 16 - FOLDED_MAX as u64);
    }

    #[test]
    fn of_too_many_peers_the_earliest_is_told_at_once() {
        let denials = Denials::default();
        for _ in 0..20 {
            denials.note(&did(0), about("a.b.c"), at(0));
        }
        for peer in 1..=PEERS_MAX as u16 {
            denials.note(&did(peer), about("a.b.c"), at(1));
        }
        let (folded, next_ms) = denials.take_due(2);
        assert_eq!(
            folded.iter().map(|folded| (&folded.peer, folded.repeats.count)).collect::<Vec<_>>(),
            [(&did(0), 4)]
        );
        assert_eq!(next_ms, Some(1 + MINUTE_MS));
        assert_eq!(lock(&denials.state).peers.len(), PEERS_MAX);
    }
}
