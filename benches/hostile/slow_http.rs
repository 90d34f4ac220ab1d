//! HTTP requests of which a byte comes each second in; honest calls over HTTP beside those when nobody attacks, and how many of
//! the slow ones the sidecar closed, out.
//!
//! All are open at once: half of them never end their head, the other half have the token and never end their body. The
//! limits are raised so far that none is turned away for its number, which is the worst case.

use std::time::{Duration, Instant};

use crate::http::Http;
use crate::support::{Setup, Sidecar};
use crate::world::{Crowd, ECHO, World, at, token};
use crate::{Args, Bar};

/// How much slower honest calls may be.
const SLOWER_MAX: f64 = 2.0;
/// Descriptors beside those of the slow requests.
const FILES_BESIDE: usize = 512;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let requests = args.size(10_000, 60);
    let time = Duration::from_millis(args.size(10_000, 300));
    let places = (requests + 64).to_string();
    // Longer than all of them take to come, and the calls beside them.
    let frame_ms = args.size(60_000, 2_000);
    let setup = Setup::new()
        .set("limits.links_max", &places)
        .set("limits.links_opening_max", &places)
        .set("timeouts.frame_ms", &frame_ms.to_string());
    crate::world::assert_files(requests + FILES_BESIDE);
    let world = World::start(setup, Duration::ZERO);
    // Once to warm up.
    honest_calls(&world.sidecar, time / 5);
    let idle = honest_calls(&world.sidecar, time);
    let mut crowd = Crowd::gather("slow-http", &world, requests);
    let attacked = honest_calls(&world.sidecar, time);
    let open: usize = crowd.ask("open").parse().unwrap();
    assert!(
        open >= requests - requests / 100,
        "only {open} of {requests} were open when the calls had been made"
    );
    // Each is closed once its time is over, and a call is served at once after.
    let closed: usize = crowd.ask(&(2 * frame_ms).to_string()).parse().unwrap();
    drop(crowd);
    let (idle_p50, idle_p99) = (at(&idle, 0.5), at(&idle, 0.99));
    let (p50, p99) = (at(&attacked, 0.5), at(&attacked, 0.99));
    let slower = p99.as_secs_f64() / idle_p99.as_secs_f64();
    vec![
        Bar {
            what: format!(
                "{requests} slow HTTP requests open at once, a byte a second each: p99 of an honest call over HTTP"
            ),
            found: format!(
                "{p99:.0?}, {slower:.2} times the {idle_p99:.0?} when nobody attacks; p50 {p50:.0?} beside {idle_p50:.0?}; {} and {} calls",
                attacked.len(),
                idle.len()
            ),
            bar: "at most 2 times",
            is_met: slower <= SLOWER_MAX,
        },
        Bar {
            what: format!(
                "{requests} slow HTTP requests: closed by the sidecar once timeouts.frame_ms is over"
            ),
            found: format!("{closed}"),
            bar: "all",
            is_met: closed == requests,
        },
    ]
}

/// Calls one after the other over one connection, where the attackers come as well; the time of each, ascending.
fn honest_calls(sidecar: &Sidecar, time: Duration) -> Vec<Duration> {
    let address = sidecar.local_tcp.unwrap();
    let (mut http, token) = (Http::tcp(address), format!("Bearer {}", token(sidecar)));
    let path = format!("/v1/call/{ECHO}");
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let sent = Instant::now();
        let answer = http.post_with(&path, &[("Authorization", &token)], r#""an honest call""#);
        assert_eq!((answer.status, answer.body.as_slice()), (200, br#""an honest call""#.as_slice()));
        times.push(sent.elapsed());
    }
    times.sort_unstable();
    times
}
