//! Limits rates: callers and what they call in; whether they call too often, and when they may again, out.
//!
//! Each rate is a bucket (GCRA, by the `governor` crate): it holds the burst, a call takes one, and they refill evenly
//! over the period. It uses the sidecar's clock, so a simulation counts in its own time.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::HashMap;
use arc_swap::ArcSwap;
use capd_proto::capability::CapabilityId;
use capd_proto::identity::Did;
use capd_proto::message::RateLimit;
use capd_proto::rate::Rate;
use governor::clock::Clock as Ticking;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{NotUntil, Quota, RateLimiter};

use crate::net::Clock;

/// The rates of peers, whatever they call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerRates {
    /// Calls of each peer.
    pub each: Option<Rate>,
    /// Calls of all peers together.
    pub all: Option<Rate>,
    /// Messages of each peer that are denied.
    pub denied: Option<Rate>,
}

/// Counts calls: of each capability by caller, of each peer, and of all peers.
///
/// A call to which no rate applies costs nothing here.
pub struct Rates {
    clock: Ticks,
    declared: Mutex<Declared>,
    peers: ArcSwap<OfPeers>,
}

/// The buckets of peers, whatever they call.
struct OfPeers {
    rates: PeerRates,
    each: Option<(Rate, Arc<ByCaller>)>,
    all: Option<(Rate, Arc<Together>)>,
    denied: Option<(Rate, Arc<ByCaller>)>,
}

/// A call that came too soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The rate that refused it.
    pub scope: Scope,
    /// Calls that it allows in a period.
    pub limit: u64,
    /// When the next call is accepted. **Units:** milliseconds from here.
    pub retry_after_ms: u64,
    /// When the whole burst may be called again. **Units:** milliseconds from here.
    pub reset_after_ms: u64,
}

/// The calls that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One caller's, of one capability.
    Capability,
    /// One peer's, whatever it calls.
    Peer,
    /// Those of all peers.
    Sidecar,
    /// Denied messages of one peer.
    Denied,
}

#[derive(Default)]
struct Declared {
    by_capability: HashMap<CapabilityId, Counted>,
    /// How many there may be before those that nothing serves any more are dropped.
    sweep_at: usize,
}

/// The calls of one capability.
struct Counted {
    limit: RateLimit,
    rate: Rate,
    callers: Arc<ByCaller>,
}

type ByCaller = RateLimiter<Did, Callers, Ticks, NoOpMiddleware<Duration>>;
type Together = RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>;

impl Rates {
    /// Counters without a call so far.
    pub fn new(clock: Clock, peers: PeerRates) -> Self {
        let clock = Ticks(clock);
        let peers = ArcSwap::from_pointee(OfPeers::new(peers, &clock, None));
        Self { clock, declared: Mutex::default(), peers }
    }

    /// Replaces the rates of peers. Under a rate that stays, what was called so far still counts.
    pub fn replace(&self, rates: PeerRates) {
        let former = self.peers.load();
        if former.rates != rates {
            self.peers.store(Arc::new(OfPeers::new(rates, &self.clock, Some(&former))));
        }
    }

    /// Counts a denied message of `peer`.
    ///
    /// **Errors:** it is denied too often.
    pub fn deny(&self, peer: &Did) -> Result<(), Exceeded> {
        let of_peers = self.peers.load();
        let Some((rate, peers)) = &of_peers.denied else { return Ok(()) };
        peers.check_key(peer).map_err(|until| self.exceeded(Scope::Denied, *rate, &until))
    }

    /// Counts a call of `caller`. The narrowest rate comes first, so a caller that it refuses uses up nothing that
    /// others share. `is_served` tells which capabilities still matter if there are many.
    ///
    /// **Errors:** the rate that refuses it; the call must not run.
    pub fn take(
        &self,
        caller: &Did,
        is_peer: bool,
        capability: &CapabilityId,
        limit: Option<&RateLimit>,
        is_served: impl Fn(&CapabilityId) -> bool,
    ) -> Result<(), Exceeded> {
        if let Some(limit) = limit
            && let Some((rate, callers)) = self.declared(capability, limit, is_served)
        {
            callers.check_key(caller).map_err(|until| self.exceeded(Scope::Capability, rate, &until))?;
        }
        if !is_peer {
            return Ok(());
        }
        let peers = self.peers.load();
        if let Some((rate, callers)) = &peers.each {
            callers.check_key(caller).map_err(|until| self.exceeded(Scope::Peer, *rate, &until))?;
        }
        if let Some((rate, together)) = &peers.all {
            together.check().map_err(|until| self.exceeded(Scope::Sidecar, *rate, &until))?;
        }
        Ok(())
    }

    /// The bucket of a capability; who declares it again under the same limit finds the same one.
    fn declared(
        &self,
        id: &CapabilityId,
        limit: &RateLimit,
        is_served: impl Fn(&CapabilityId) -> bool,
    ) -> Option<(Rate, Arc<ByCaller>)> {
        let mut declared = lock(&self.declared);
        if let Some(counted) = declared.by_capability.get(id)
            && counted.limit == *limit
        {
            return Some((counted.rate, Arc::clone(&counted.callers)));
        }
        // What is declared here was read as a rate when it was declared.
        let rate = Rate::new(limit.requests, &limit.period, limit.burst).ok()?;
        if declared.by_capability.len() >= declared.sweep_at {
            declared.by_capability.retain(|id, _| is_served(id));
            declared.sweep_at = (2 * declared.by_capability.len()).max(CAPABILITIES_MIN);
        }
        let callers = Arc::new(by_caller(rate, &self.clock));
        let counted = Counted { limit: limit.clone(), rate, callers: Arc::clone(&callers) };
        declared.by_capability.insert(id.clone(), counted);
        Some((rate, callers))
    }

    fn exceeded(&self, scope: Scope, rate: Rate, until: &NotUntil<Duration>) -> Exceeded {
        let quota = until.quota();
        let wait = until.wait_time_from(self.clock.now());
        let rest = quota.replenish_interval().saturating_mul(quota.burst_size().get() - 1);
        Exceeded {
            scope,
            limit: rate.requests(),
            retry_after_ms: milliseconds(wait),
            reset_after_ms: milliseconds(wait.saturating_add(rest)),
        }
    }
}

impl OfPeers {
    fn new(rates: PeerRates, clock: &Ticks, former: Option<&Self>) -> Self {
        let each =
            kept(rates.each, former.and_then(|former| former.each.as_ref()), |rate| by_caller(rate, clock));
        let denied = kept(rates.denied, former.and_then(|former| former.denied.as_ref()), |rate| {
            by_caller(rate, clock)
        });
        let all = kept(rates.all, former.and_then(|former| former.all.as_ref()), |rate| {
            RateLimiter::new(quota(rate), InMemoryState::default(), clock.clone())
        });
        Self { rates, each, all, denied }
    }
}

/// The bucket of a rate: the former one if the rate is the same.
fn kept<B>(
    rate: Option<Rate>,
    former: Option<&(Rate, Arc<B>)>,
    make: impl FnOnce(Rate) -> B,
) -> Option<(Rate, Arc<B>)> {
    let rate = rate?;
    let same = former.filter(|(known, _)| *known == rate).map(|(_, bucket)| Arc::clone(bucket));
    Some((rate, same.unwrap_or_else(|| Arc::new(make(rate)))))
}

fn by_caller(rate: Rate, clock: &Ticks) -> ByCaller {
    RateLimiter::new(quota(rate), Callers::default(), clock.clone())
}

/// The bucket's measures, within what 64 bits of nanoseconds hold.
fn quota(rate: Rate) -> Quota {
    let interval = Duration::from_millis(rate.period_ms()).as_nanos() / u128::from(rate.requests());
    let interval = interval.max(1);
    let burst = u128::from(rate.burst()).min(FULL_AFTER_NS_MAX / interval).max(1);
    let interval = u64::try_from(interval).unwrap_or(u64::MAX);
    let burst = u32::try_from(burst).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
    let quota = Quota::with_period(Duration::from_nanos(interval)).expect("the interval is not zero");
    quota.allow_burst(burst)
}

/// Whole milliseconds, rounded up, so that whoever waits them is not early.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// When each caller's bucket is full again, of a bounded number of callers.
///
/// Where one more finds no room, the quarter whose buckets are the fullest goes: forgetting a caller gives it a full one.
#[derive(Default)]
struct Callers(Mutex<HashMap<Did, Nanos>>);

impl StateStore for Callers {
    type Key = Did;

    fn measure_and_replace<T, F, E>(&self, caller: &Did, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut full_at = lock(&self.0);
        let (outcome, next) = measure(full_at.get(caller).copied())?;
        if let Some(known) = full_at.get_mut(caller) {
            *known = next;
            return Ok(outcome);
        }
        if full_at.len() >= CALLERS_MAX {
            let mut times: Vec<Nanos> = full_at.values().copied().collect();
            let (_, last, _) = times.select_nth_unstable(CALLERS_MAX / 4);
            let last = *last;
            full_at.retain(|_, time| *time > last);
        }
        full_at.insert(caller.clone(), next);
        Ok(outcome)
    }
}

/// The sidecar's clock, as `governor` reads it.
#[derive(Clone, Debug)]
struct Ticks(Clock);

impl Ticking for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.monotonic_ms())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each entry is written whole, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Callers remembered of one rate.
const CALLERS_MAX: usize = 4_096;
/// Capabilities remembered before any are dropped.
const CAPABILITIES_MIN: usize = 64;
/// Longest time until a bucket is full, in nanoseconds: 146 years. `governor` adds such times up in 64 bits.
const FULL_AFTER_NS_MAX: u128 = 1 << 62;

#[cfg(test)]
mod tests;
