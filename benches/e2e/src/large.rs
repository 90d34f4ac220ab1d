//! quinn alone, by its defaults and in long packets, and two capds in; what each lets through of 1 MiB both ways, what it
//! holds of it, and what that does to small calls beside it, out.
//!
//! All have a second caller, a process of its own, which makes one small call at a time: with capd over the same peer
//! link, with quinn over a connection of its own, so that what quinn's small calls lose is what the machine takes.

use crate::load::{Load, Round};
use crate::measure::{LARGE_IN_FLIGHT, Series};
use crate::payload::LARGE_BYTES;
use crate::subject::{Programs, Subject};
use crate::world::World;

/// Rounds of one subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Large {
    /// Calls that carry [`LARGE_BYTES`] both ways, [`LARGE_IN_FLIGHT`] at once, and nothing beside them.
    pub(crate) alone: Series,
    /// Small calls with nothing beside them.
    pub(crate) small: Vec<Round>,
    /// The same small calls beside the large ones.
    pub(crate) small_beside: Vec<Round>,
    /// What each process came to hold during the first large calls of its life, over the payload of those in flight.
    pub(crate) held: Vec<(&'static str, f64)>,
}

/// Measures `rounds` of quinn, of quinn in long packets and of capd, in alternation. `one` is a round of small calls.
pub(crate) fn measure(programs: &Programs, rounds: usize, one: Load) -> [Large; 3] {
    let load = Load { bytes: LARGE_BYTES, in_flight: LARGE_IN_FLIGHT, ..one };
    let mut worlds =
        [Subject::Quic, Subject::QuicLong, Subject::Large].map(|subject| subject.start(programs));
    let mut all = worlds.each_mut().map(|world| Large { held: held(world, &one, &load), ..Large::default() });
    for _ in 0..rounds {
        for (large, world) in all.iter_mut().zip(&mut worlds) {
            large.alone.add_many(world, &load);
            large.small.push(world.second_round(&one));
            let [_, small] = world.rounds_beside(&load, &one);
            large.small_beside.push(small);
            let at = large.small.len() - 1;
            println!(
                "1 MiB both ways: {:.0} calls/s; small calls beside: p50 {:.0} µs, alone {:.0} µs",
                large.alone.many[at].calls_per_s(),
                large.small_beside[at].p50_us,
                large.small[at].p50_us,
            );
        }
    }
    all.iter_mut().for_each(|large| large.alone.per_call());
    all
}

/// The most that each process holds beyond what small calls left it with.
fn held(world: &mut World, one: &Load, load: &Load) -> Vec<(&'static str, f64)> {
    world.second_round(one);
    let before = world.resident_bytes();
    world.round(load);
    let payload = (load.bytes * load.in_flight) as f64;
    let peaks = world.peak_bytes().into_iter().zip(before);
    let names = world.processes.iter().map(|process| process.name);
    names.zip(peaks).map(|(name, (peak, before))| (name, (peak - before) / payload)).collect()
}
