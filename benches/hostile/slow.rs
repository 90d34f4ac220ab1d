//! Links on which a byte comes each second in; the honest peer's slowest calls beside those when nobody attacks, out.

use std::time::Duration;

use crate::support::Setup;
use crate::world::{Crowd, World, at};
use crate::{Args, Bar};

/// How much slower honest calls may be.
const SLOWER_MAX: f64 = 2.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let links = args.size(2_000, 50);
    let time = Duration::from_millis(args.size(10_000, 500));
    let setup = Setup::new().set("limits.links_max", &(links + 64).to_string());
    let mut world = World::start(setup, Duration::ZERO);
    // Once to warm up.
    world.honest_calls(1, time / 5);
    let idle = world.honest_calls(1, time);
    let crowd = Crowd::gather("slow", &world, links);
    let attacked = world.honest_calls(1, time);
    drop(crowd);
    let (idle_p99, attacked_p99) = (at(&idle, 0.99), at(&attacked, 0.99));
    let slower = attacked_p99.as_secs_f64() / idle_p99.as_secs_f64();
    vec![Bar {
        what: format!("a byte a second on {links} links: p99 of an honest call"),
        found: format!("{attacked_p99:.0?}, {slower:.2} times the {idle_p99:.0?} when nobody attacks"),
        bar: "at most 2 times",
        is_met: slower <= SLOWER_MAX,
    }]
}
