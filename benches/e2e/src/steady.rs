//! Minutes in; what two sidecars hold and have stored at the end of each, under calls that keep coming at one rate, out.
//!
//! Calls that may run again and calls that may not, each in a world of its own, side by side. It is a part by itself, and
//! not of the report: half an hour is the time it is for.

use crate::load::Load;
use crate::memory::Taken;
use crate::number::number;
use crate::payload::REQUEST_BYTES;
use crate::subject::{Programs, SIDECAR_A, SIDECAR_B, Subject};

/// Prints a line for each minute, and how much more there was at the end than after half the time.
pub(crate) fn measure(programs: &Programs, minutes: usize, ms: u64) {
    let subjects = [Subject::Channel, Subject::Journaled];
    let mut worlds = subjects.map(|subject| subject.start(programs));
    // A sixth of a round goes by before it is measured, and is a part of the minute.
    let load = Load { bytes: REQUEST_BYTES, in_flight: IN_FLIGHT_MAX, rate: Some(RATE), ms: ms / 6 * 5 };
    let mut taken: Vec<[Taken; 2]> = Vec::new();
    for minute in 1..=minutes {
        worlds.iter_mut().for_each(|world| world.processes[0].begin(&load));
        let rounds = worlds.each_mut().map(|world| world.processes[0].end(&load));
        let now = worlds.each_ref().map(Taken::by);
        for ((subject, round), Taken { resident, stored }) in subjects.iter().zip(&rounds).zip(&now) {
            println!(
                "minute {minute}, {}: {:.0} calls/s, p99 {:.0} µs; {SIDECAR_A} holds {} KiB, {SIDECAR_B} {} KiB; stored {} and {} KiB",
                subject.name(),
                round.calls_per_s(),
                round.p99_us,
                kib(resident[0]),
                kib(resident[1]),
                kib(stored[0]),
                kib(stored[1]),
            );
        }
        taken.push(now);
    }
    let (half, last) = (&taken[minutes.div_ceil(2) - 1], &taken[minutes - 1]);
    for ((subject, half), last) in subjects.iter().zip(half).zip(last) {
        let more = [0, 1].map(|at| number((last.resident[at] - half.resident[at]) / 1024.0));
        println!(
            "{}: after half the time {SIDECAR_A} {} KiB more, {SIDECAR_B} {}",
            subject.name(),
            more[0],
            more[1]
        );
    }
}

fn kib(bytes: f64) -> String {
    number(bytes / 1024.0)
}

/// Calls a second to each pair of sidecars: what leaves most of two cores to others for half an hour.
const RATE: f64 = 1_000.0;
/// More than that rate keeps in flight.
const IN_FLIGHT_MAX: usize = 512;
