//! Notes when each phase of a recorded call begins; its spans come of that once the call has ended.
//!
//! A call is in one phase at a time, so the phases of one side cover its span without gaps. Of a call that no collector is
//! to get, nothing is kept and no clock is read.

use smallvec::SmallVec;

use super::Account;
use super::trace::Traced;

/// What a call waits for. The name is the span's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Phase {
    /// Time, signature, permissions; at the provider's side also rates, limits and params.
    Admit,
    /// A provider.
    Choose,
    /// Proof of what the agent requires, a schema, or a verdict over its params.
    Gate,
    /// Its row in the journal.
    Journal,
    /// A link to its provider's sidecar, a signature that takes long, or the pause before a retry.
    Queue,
    /// The answer of its provider's sidecar.
    Wire,
    /// The answer of its provider.
    Provider,
    /// The verdict over its result, and its way to whoever waits.
    Result,
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Choose => "choose",
            Self::Gate => "gate",
            Self::Journal => "journal",
            Self::Queue => "queue",
            Self::Wire => "wire",
            Self::Provider => "provider",
            Self::Result => "result",
        }
    }
}

/// The phases of a call so far, each until the next begins.
#[derive(Clone, Debug, Default)]
pub(in crate::daemon) struct Phases(Option<Box<Begun>>);

/// Phases, and when each began. **Units:** monotonic microseconds.
type Begun = SmallVec<[(Phase, u64); 6]>;

impl Phases {
    /// The first began when the call came.
    pub(in crate::daemon) fn new(traced: &Traced, came_us: u64) -> Self {
        Self(traced.is_recorded().then(|| Box::new(SmallVec::from_iter([(Phase::Admit, came_us)]))))
    }

    fn begin(&mut self, phase: Phase, now_us: impl FnOnce() -> u64) {
        let Some(begun) = &mut self.0 else { return };
        // A call that is retried for long stays in the last phase that there is room for.
        if begun.len() < PHASES_MAX && begun.last().is_none_or(|(last, _)| *last != phase) {
            begun.push((phase, now_us()));
        }
    }

    /// The number of the last phase, counted from 1, and when it began, if it is the journal's.
    pub(super) fn saving(&self) -> Option<(u64, u64)> {
        let begun = self.0.as_deref()?;
        let (phase, at_us) = begun.last()?;
        (*phase == Phase::Journal).then_some((begun.len() as u64, *at_us))
    }

    /// Each phase, and when it began and ended, in microseconds since the first began, given how long all took.
    pub(super) fn spans(&self, took_us: u64) -> impl Iterator<Item = (Phase, u64, u64)> {
        let begun = self.0.as_deref().map_or(&[][..], |begun| begun.as_slice());
        let since = move |(_, at_us): &(Phase, u64)| at_us.saturating_sub(begun[0].1).min(took_us);
        let ends = begun.iter().skip(1).map(since).chain([took_us]);
        begun.iter().zip(ends).map(move |(began, end_us)| (began.0, since(began), end_us))
    }
}

impl Account {
    /// A call begins to wait for something else.
    pub(in crate::daemon) fn enter(&self, phases: &mut Phases, phase: Phase) {
        phases.begin(phase, || self.ctx.clock.monotonic_us());
    }
}

/// Most phases of a call: several retries have their own.
const PHASES_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(begun: &[(Phase, u64)]) -> Phases {
        let mut phases = Phases(Some(Box::default()));
        for (phase, at_us) in begun {
            phases.begin(*phase, || *at_us);
        }
        phases
    }

    #[test]
    fn phases_cover_the_call_without_gaps() {
        let told = phases(&[(Phase::Admit, 1_000), (Phase::Choose, 1_003), (Phase::Wire, 1_010)]);
        let spans: Vec<_> = told.spans(30).collect();
        assert_eq!(spans, [(Phase::Admit, 0, 3), (Phase::Choose, 3, 10), (Phase::Wire, 10, 30)]);
        // The clock's readings of two threads may be out of order; no span ends before it begins.
        assert_eq!(told.spans(5).last(), Some((Phase::Wire, 5, 5)));
    }

    #[test]
    fn a_call_that_is_not_recorded_keeps_nothing_and_reads_no_clock() {
        let mut none = Phases::new(&Traced::default(), 0);
        none.begin(Phase::Choose, || unreachable!("the clock is read"));
        assert_eq!(none.spans(9).count(), 0);
    }

    #[test]
    fn retries_without_end_keep_a_bounded_number_of_phases() {
        let mut told = phases(&[]);
        for at_us in 0..1_000 {
            told.begin(if at_us % 2 == 0 { Phase::Queue } else { Phase::Wire }, || at_us);
            told.begin(if at_us % 2 == 0 { Phase::Queue } else { Phase::Wire }, || {
                unreachable!("it is in it")
            });
        }
        assert_eq!(told.spans(1_000).count(), PHASES_MAX);
        assert_eq!(told.spans(1_000).last(), Some((Phase::Wire, 23, 1_000)));
    }
}
