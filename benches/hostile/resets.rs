//! A peer that opens streams and resets them in; how long the sidecar bears with it out.

use std::time::Duration;

use crate::support::Setup;
use crate::world::{Crowd, World, at};
use crate::{Args, Bar};

/// **Units:** seconds.
const CUT_MAX_S: f64 = 1.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let mut world = World::start(Setup::new(), Duration::ZERO);
    let mut crowd = Crowd::gather("reset", &world, 1);
    crowd.tell(&args.size(100_000, 2_000).to_string());
    // The flood must not be what honest calls wait for.
    let honest = world.honest_calls(1, Duration::from_millis(args.size(2_000, 300)));
    let said = crowd.line();
    let words: Vec<_> = said.split(' ').collect();
    let [is_cut, resets, seconds] = words[..] else { panic!("{said:?}") };
    let (is_cut, seconds): (bool, f64) = (is_cut.parse().unwrap(), seconds.parse().unwrap());
    let end = if is_cut { "cut" } else { "not cut" };
    vec![Bar {
        what: "a flood of stream resets: the offender's link".to_owned(),
        found: format!(
            "{end} after {seconds:.2} s and {resets} resets; p99 of an honest call meanwhile {:.0?}",
            at(&honest, 0.99)
        ),
        bar: "cut within 1 s",
        is_met: is_cut && seconds <= CUT_MAX_S,
    }]
}
