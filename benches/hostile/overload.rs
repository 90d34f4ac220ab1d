//! Ten times the calls that a sidecar can serve in; how many of them it serves all the same, out.
//!
//! The agent takes a while for each call and the sidecar lets so many run at once, which is what bounds it: the attackers
//! share the machine with it, and could not make ten times the calls that it could relay.

use std::time::Duration;

use crate::support::Setup;
use crate::world::{Crowd, World};
use crate::{Args, Bar};

/// Calls that may run at once.
const IN_FLIGHT_MAX: usize = 64;
/// What each takes.
const WORK: Duration = Duration::from_millis(40);
/// Peers that call.
const PEERS: usize = 8;
/// The part of the peak that must be left.
const GOODPUT_MIN: f64 = 0.8;
/// What is offered, in peaks.
const OFFERED: f64 = 10.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let seconds = args.size(60.0, 1.0);
    let most = IN_FLIGHT_MAX.to_string();
    let setup = Setup::new()
        .set("limits.calls_in_flight_max", &most)
        .set("limits.calls_in_flight_per_peer_max", &most);
    let world = World::start(setup, WORK);
    let mut crowd = Crowd::gather("flood", &world, PEERS);
    let bound = IN_FLIGHT_MAX as f64 / WORK.as_secs_f64();
    // The peak is the best of several rates about what the bound lets through.
    let rates = [0.7, 0.85, 1.0, 1.2].map(|part| part * bound);
    let peak = rates
        .map(|rate| goodput(&crowd.ask(&format!("{rate} {}", args.size(5.0, 0.5)))).1)
        .into_iter()
        .fold(0.0, f64::max);
    assert!(peak > 0.0, "no call had its result");
    let (offered, served) = goodput(&crowd.ask(&format!("{} {seconds}", OFFERED * peak)));
    vec![Bar {
        what: format!("{:.1} times what can be served, for {seconds:.0} s: calls served", offered / peak),
        found: format!("{served:.0}/s, {:.0} % of the peak of {peak:.0}/s", served / peak * 100.0),
        bar: "at least 80 % of the peak",
        // A crowd that is too slow to offer so much shows nothing.
        is_met: served >= GOODPUT_MIN * peak && offered >= 0.9 * OFFERED * peak,
    }]
}

/// Calls offered and calls served, each a second.
fn goodput(said: &str) -> (f64, f64) {
    let words: Vec<f64> = said.split(' ').map(|word| word.parse().unwrap()).collect();
    let [sent, results, seconds] = words[..] else { panic!("{said:?}") };
    (sent / seconds, results / seconds)
}
