use capd_proto::identity::Identity;

use super::*;

fn limit(requests: u64, period: &str, burst: Option<u64>) -> RateLimit {
    RateLimit { requests, period: period.to_owned(), burst }
}

fn did(number: u32) -> Did {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(seed).did().clone()
}

fn id(text: &str) -> CapabilityId {
    text.parse().unwrap()
}

/// A peer's call of `a.b.c:1.0.0`, or why it is refused.
fn call(rates: &Rates, caller: &Did, limit: &RateLimit) -> Result<(), Exceeded> {
    rates.take(caller, true, &id("a.b.c:1.0.0"), Some(limit), |_| true)
}

fn rates(each: Option<&str>, all: Option<&str>) -> Rates {
    let rate = |text: Option<&str>| text.map(|text| text.parse().unwrap());
    Rates::new(Clock::start(), PeerRates { each: rate(each), all: rate(all), denied: None })
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_taken_and_comes_back_evenly() {
    let (rates, caller) = (rates(None, None), did(1));
    let limit = limit(6, "1m", Some(2));
    pass(5).await;
    assert_eq!([call(&rates, &caller, &limit), call(&rates, &caller, &limit)], [Ok(()), Ok(())]);
    let refused =
        Exceeded { scope: Scope::Capability, limit: 6, retry_after_ms: 10_000, reset_after_ms: 20_000 };
    assert_eq!(call(&rates, &caller, &limit), Err(refused));
    pass(9_999).await;
    assert_eq!(call(&rates, &caller, &limit).unwrap_err().retry_after_ms, 1);
    pass(1).await;
    assert_eq!(call(&rates, &caller, &limit), Ok(()));
    assert_eq!(call(&rates, &caller, &limit).unwrap_err().retry_after_ms, 10_000);
    // A refused call costs nothing: after a minute there is a burst, and no more.
    pass(60_000).await;
    assert_eq!([call(&rates, &caller, &limit), call(&rates, &caller, &limit)], [Ok(()), Ok(())]);
    assert!(call(&rates, &caller, &limit).is_err());
}

#[tokio::test(start_paused = true)]
async fn callers_and_capabilities_are_counted_apart() {
    let (rates, limit) = (rates(None, None), limit(1, "1d", None));
    assert_eq!(call(&rates, &did(1), &limit), Ok(()));
    assert!(call(&rates, &did(1), &limit).is_err());
    assert_eq!(call(&rates, &did(2), &limit), Ok(()));
    assert_eq!(rates.take(&did(1), true, &id("a.b.c:2.0.0"), Some(&limit), |_| true), Ok(()));
    assert_eq!(rates.take(&did(1), true, &id("a.b.c:3.0.0"), None, |_| true), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_capability_that_is_declared_again_goes_on_counting_unless_its_limit_is_another() {
    let (rates, caller) = (rates(None, None), did(1));
    assert_eq!(call(&rates, &caller, &limit(1, "1h", None)), Ok(()));
    assert!(call(&rates, &caller, &limit(1, "1h", None)).is_err());
    assert_eq!(call(&rates, &caller, &limit(2, "1h", None)), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_held_back_takes_nothing_of_what_all_share() {
    let rates = rates(Some("2/1h"), Some("4/1h"));
    let take = |peer: u32| rates.take(&did(peer), true, &id("a.b.c:1.0.0"), None, |_| true);
    assert_eq!([take(1), take(1)], [Ok(()), Ok(())]);
    for _ in 0..10 {
        assert_eq!(take(1).unwrap_err().scope, Scope::Peer);
    }
    assert_eq!([take(2), take(2)], [Ok(()), Ok(())]);
    assert_eq!(take(3).unwrap_err().scope, Scope::Sidecar);
    // The agent's own calls are not those of a peer.
    assert_eq!(rates.take(&did(9), false, &id("a.b.c:1.0.0"), None, |_| true), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn of_more_callers_than_are_remembered_those_that_have_called_most_stay() {
    let (rates, limit) = (rates(None, None), limit(3, "30d", None));
    let busy = did(u32::MAX);
    for _ in 0..3 {
        assert_eq!(call(&rates, &busy, &limit), Ok(()));
    }
    for number in 0..2 * CALLERS_MAX as u32 {
        assert_eq!(call(&rates, &did(number), &limit), Ok(()));
    }
    assert!(call(&rates, &busy, &limit).is_err());
}

#[test]
fn no_more_callers_are_remembered_than_there_is_room_for() {
    let callers = Callers::default();
    for number in 0..3 * CALLERS_MAX as u32 {
        let full_at = Nanos::from(u64::from(number % 7));
        let taken = callers.measure_and_replace(&did(number), |_| Ok::<_, ()>(((), full_at)));
        assert_eq!(taken, Ok(()));
        assert!(lock(&callers.0).len() <= CALLERS_MAX);
    }
}

#[tokio::test(start_paused = true)]
async fn capabilities_that_nothing_serves_are_forgotten_when_there_are_many() {
    let (rates, caller, limit) = (rates(None, None), did(1), limit(1, "1d", None));
    let served = id("a.b.c:0.0.0");
    for minor in 0..10 * CAPABILITIES_MIN {
        let taken =
            rates.take(&caller, true, &id(&format!("a.b.c:0.{minor}.0")), Some(&limit), |id| *id == served);
        assert_eq!(taken, Ok(()));
    }
    assert!(lock(&rates.declared).by_capability.len() <= CAPABILITIES_MIN);
    assert!(rates.take(&caller, true, &served, Some(&limit), |_| true).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_largest_and_smallest_rates_overflow_nothing() {
    let caller = did(1);
    for (requests, period, burst) in [
        (1, "30d", Some(1_000_000_000)),
        (1_000_000_000, "1ms", Some(1_000_000_000)),
        (1_000_000_000, "30d", Some(1)),
        (1, "1ms", None),
    ] {
        let (rates, limit) = (rates(None, None), limit(requests, period, burst));
        for _ in 0..100 {
            let _either = call(&rates, &caller, &limit);
        }
        pass(86_400_000 * 365).await;
        assert_eq!(call(&rates, &caller, &limit), Ok(()), "{requests}/{period} burst {burst:?}");
    }
}
