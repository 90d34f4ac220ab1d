//! Two pairs of sidecars in, one with little and one with much registered and configured; calls through each, in the same
//! rounds, out.

use crate::load::Load;
use crate::measure::Series;
use crate::subject::{Programs, Subject};

/// Measures `rounds` with many and with one call in flight: with little first.
pub(crate) fn measure(programs: &Programs, rounds: usize, many: &Load, one: &Load) -> [Series; 2] {
    let mut worlds = [Subject::Channel, Subject::Fleet].map(|subject| subject.start(programs));
    for world in &mut worlds {
        world.round(many);
    }
    let mut both = [Series::default(), Series::default()];
    for number in 0..rounds {
        let mut turns = [0, 1];
        // Each is first as often as the other.
        turns.rotate_left(number % 2);
        for which in turns {
            both[which].add_many(&mut worlds[which], many);
            both[which].one.push(worlds[which].round(one));
            let rate = both[which].many[number].calls_per_s();
            println!("fleet, {}: {rate:.0} calls/s", ["little", "much"][which]);
        }
    }
    both.iter_mut().for_each(Series::per_call);
    both
}
