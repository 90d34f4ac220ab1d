//! Many open QUIC links that say nothing in; what each costs the sidecar, and how fast it answers one, out.

use std::time::Duration;

use crate::support::Setup;
use crate::world::{Crowd, World};
use crate::{Args, Bar};

/// **Units:** MB of 10^6 bytes.
const RESIDENT_MAX_MB: f64 = 450.0;
/// **Units:** microseconds.
const PING_MAX_US: f64 = 1_000.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let links = args.size(10_000, 100);
    let setup = Setup::new()
        .set("limits.links_max", &(links + 64).to_string())
        // Links that say nothing are told apart from links that are gone; the crowd answers late when it is busy.
        .set("timeouts.idle_ms", "600000")
        // Nor does it answer the sidecar's PINGs before it is asked to measure.
        .set("timeouts.dead_ms", "600000");
    let world = World::start(setup, Duration::ZERO);
    let before_mb = world.resident_mb();
    let mut crowd = Crowd::gather("idle", &world, links);
    let ping_us: f64 = crowd.ask(&args.size(5_000, 100).to_string()).parse().unwrap();
    let resident_mb = world.resident_mb();
    let each_kb = (resident_mb - before_mb) * 1e3 / links as f64;
    vec![
        Bar {
            what: format!("{links} idle QUIC links: memory of the sidecar"),
            found: format!("{resident_mb:.0} MB, {each_kb:.1} KB a link"),
            bar: "at most 450 MB",
            is_met: resident_mb <= RESIDENT_MAX_MB,
        },
        Bar {
            what: format!("{links} idle QUIC links: p50 of PING"),
            found: format!("{ping_us:.0} µs"),
            bar: "under 1 ms",
            is_met: ping_us < PING_MAX_US,
        },
    ]
}
