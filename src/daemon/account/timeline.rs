//! Keeps where the time of a call goes: its phases and its tries in; spans, and what a person sees of one call, out.
//!
//! The timeline of a call whose spans are exported is always kept. Of the other calls, a bounded number per second is kept:
//! a person who looks at one call sees its timeline, and a flood of calls costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{CallPhase, CallTimeline, CallTry, TryOutcome};
use smallvec::{SmallVec, smallvec};

use super::Account;
use super::phases::Phase;
use super::trace::Traced;
use crate::net::{Kind, Link, LinkId};
use crate::otlp::TraceId;

/// The timeline of a call so far, if it is kept. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(in crate::daemon) struct Timeline(Option<Arc<Kept>>);

#[derive(Clone, Debug)]
struct Kept {
    trace: Option<TraceId>,
    is_sampled: bool,
    /// **Units:** wall-clock milliseconds. Read once, so that whoever asks twice is told the same.
    came_at_ms: u64,
    /// The link that the call came on.
    link: Option<(Kind, LinkId)>,
    /// Phases, and when each began. **Units:** monotonic microseconds, as all moments here.
    begun: SmallVec<[(Phase, u64); 6]>,
    tries: SmallVec<[Try; 1]>,
    tries_omitted: u32,
    joined: u32,
    replays: u32,
    ended_us: Option<u64>,
}

/// A copy that was sent to a peer, or given to a provider.
#[derive(Clone, Debug)]
struct Try {
    generation: u32,
    to: Option<(Did, Kind, LinkId)>,
    begin_us: u64,
    end: Option<(u64, TryOutcome, Option<Code>)>,
}

impl Timeline {
    fn new(traced: &Traced, link: Option<&Link>, (came_us, came_at_ms): (u64, u64)) -> Self {
        Self(Some(Arc::new(Kept {
            trace: traced.id(),
            is_sampled: traced.is_recorded(),
            came_at_ms,
            link: link.map(|link| (link.kind(), link.id())),
            begun: smallvec![(Phase::Admit, came_us)],
            tries: SmallVec::new(),
            tries_omitted: 0,
            joined: 0,
            replays: 0,
            ended_us: None,
        })))
    }

    /// One of a call that came at 1 ms.
    #[cfg(test)]
    pub(in crate::daemon) fn of_test() -> Self {
        Self::new(&Traced::default(), None, (1_000, 4_990))
    }

    pub(in crate::daemon) const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// What may still change: nothing of a call that has ended.
    fn open(&mut self) -> Option<&mut Kept> {
        let kept = self.0.as_mut()?;
        kept.ended_us.is_none().then(|| Arc::make_mut(kept))
    }

    fn begin(&mut self, phase: Phase, now_us: impl FnOnce() -> u64) {
        let Some(kept) = self.open() else { return };
        // A call that is retried for long stays in the last phase that there is capacity for.
        if kept.begun.len() < PHASES_MAX && kept.begun.last().is_none_or(|(last, _)| *last != phase) {
            kept.begun.push((phase, now_us()));
        }
    }

    fn begin_try(&mut self, generation: u32, to: Option<(&Did, &Link)>, now_us: impl FnOnce() -> u64) {
        let Some(kept) = self.open() else { return };
        let now_us = now_us();
        // A copy under the same id takes the place of the one before.
        kept.end_tries(|one| one.generation == generation, (now_us, TryOutcome::Unanswered, None));
        if kept.tries.len() >= TRIES_MAX {
            kept.tries_omitted = kept.tries_omitted.saturating_add(1);
            return;
        }
        let to = to.map(|(peer, link)| (peer.clone(), link.kind(), link.id()));
        kept.tries.push(Try { generation, to, begin_us: now_us, end: None });
    }

    fn end_try(&mut self, generation: u32, end: (TryOutcome, Option<Code>), now_us: impl FnOnce() -> u64) {
        let Some(kept) = self.open() else { return };
        kept.end_tries(|one| one.generation == generation, (now_us(), end.0, end.1));
    }

    fn end(&mut self, now_us: impl FnOnce() -> u64) {
        let Some(kept) = self.open() else { return };
        let now_us = now_us();
        kept.end_tries(|_| true, (now_us, TryOutcome::Unanswered, None));
        kept.ended_us = Some(now_us);
    }

    /// A copy of the call waits for the same result.
    pub(in crate::daemon) fn join(&mut self) {
        if let Some(kept) = self.open() {
            kept.joined = kept.joined.saturating_add(1);
        }
    }

    /// A copy of the call got the recorded result.
    pub(in crate::daemon) fn replay(&mut self) {
        if let Some(kept) = &mut self.0 {
            let kept = Arc::make_mut(kept);
            kept.replays = kept.replays.saturating_add(1);
        }
    }

    /// The number of the last phase, counted from 1, and when it began, if it is the journal's.
    pub(super) fn saving(&self) -> Option<(u64, u64)> {
        let begun = &self.0.as_ref()?.begun;
        let (phase, at_us) = begun.last()?;
        (*phase == Phase::Journal).then_some((begun.len() as u64, *at_us))
    }

    /// Each phase, and when it began and ended, in microseconds since the first began, given how long all took.
    pub(super) fn spans(&self, took_us: u64) -> impl Iterator<Item = (Phase, u64, u64)> {
        let begun = self.0.as_deref().map_or(&[][..], |kept| kept.begun.as_slice());
        let since = move |(_, at_us): &(Phase, u64)| at_us.saturating_sub(begun[0].1).min(took_us);
        let ends = begun.iter().skip(1).map(since).chain([took_us]);
        begun.iter().zip(ends).map(move |(began, end_us)| (began.0, since(began), end_us))
    }

    /// What whoever asks for this one call is told.
    pub(in crate::daemon) fn told(&self) -> Option<Box<CallTimeline<'static>>> {
        let kept = self.0.as_deref()?;
        let came_us = kept.begun.first()?.1;
        let took_us = kept.ended_us.map(|ended_us| ended_us.saturating_sub(came_us));
        let mut phases: Vec<_> = self
            .spans(took_us.unwrap_or(u64::MAX))
            .map(|(phase, begin_us, end_us)| CallPhase {
                name: phase.name().into(),
                begin_us,
                end_us: Some(end_us),
            })
            .collect();
        if let Some(last) = phases.last_mut().filter(|_| took_us.is_none()) {
            last.end_us = None;
        }
        Some(Box::new(CallTimeline {
            trace: kept.trace.map_or(String::new(), |trace| trace.to_string()).into(),
            sampled: kept.is_sampled,
            came_at_ms: kept.came_at_ms,
            took_us,
            link: kept.link.map(|(kind, id)| named(kind, id).into()),
            phases,
            tries: kept.tries.iter().map(|one| one.told(came_us)).collect(),
            tries_omitted: kept.tries_omitted.into(),
            joined: kept.joined.into(),
            replays: kept.replays.into(),
        }))
    }
}

impl Kept {
    fn end_tries(&mut self, which: impl Fn(&Try) -> bool, end: (u64, TryOutcome, Option<Code>)) {
        for one in self.tries.iter_mut().filter(|one| one.end.is_none() && which(one)) {
            one.end = Some(end);
        }
    }
}

impl Try {
    fn told(&self, came_us: u64) -> CallTry<'static> {
        CallTry {
            begin_us: self.begin_us.saturating_sub(came_us),
            end_us: self.end.map(|(end_us, ..)| end_us.saturating_sub(came_us)),
            peer: self.to.as_ref().map(|(peer, ..)| peer.to_string().into()),
            link: self.to.as_ref().map(|(_, kind, id)| named(*kind, *id).into()),
            outcome: self.end.map(|(_, outcome, _)| outcome),
            code: self.end.and_then(|(.., code)| code),
        }
    }
}

/// A link as logs and tables name it.
fn named(kind: Kind, id: LinkId) -> String {
    format!("{kind} {id}")
}

/// How many timelines were begun in a second: in the high bits the second, in the low ones their number.
#[derive(Debug, Default)]
pub(super) struct Budget(AtomicU64);

impl Budget {
    /// Whether one more timeline is kept in this second. In a flood, that is one load.
    fn take(&self, now_us: u64) -> bool {
        let second = now_us / 1_000_000;
        let next = |taken: u64| match taken >> COUNT_BITS {
            of if of < second => Some((second << COUNT_BITS) + 1),
            _ if taken & COUNT_MASK < KEPT_PER_SECOND_MAX => Some(taken + 1),
            _ => None,
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl Account {
    /// The timeline of a call that came on `link`; kept for a call whose spans are exported, and as far as the budget goes.
    pub(in crate::daemon) fn timeline(&self, traced: &Traced, link: &Link, came_us: u64) -> Timeline {
        if traced.is_recorded() || self.timelines.take(came_us) {
            Timeline::new(traced, Some(link), (came_us, self.ctx.clock.wall_ms()))
        } else {
            Timeline::default()
        }
    }

    /// A call begins to wait for something else.
    pub(in crate::daemon) fn enter(&self, timeline: &mut Timeline, phase: Phase) {
        timeline.begin(phase, || self.ctx.clock.monotonic_us());
    }

    /// A copy of a call, under its id of this generation, goes to a peer on a link, or to a provider.
    pub(in crate::daemon) fn begin_try(
        &self,
        timeline: &mut Timeline,
        generation: u32,
        to: Option<(&Did, &Link)>,
    ) {
        timeline.begin_try(generation, to, || self.ctx.clock.monotonic_us());
    }

    /// That copy has its answer, or gets none.
    pub(in crate::daemon) fn end_try(
        &self,
        timeline: &mut Timeline,
        generation: u32,
        end: (TryOutcome, Option<Code>),
    ) {
        timeline.end_try(generation, end, || self.ctx.clock.monotonic_us());
    }

    /// The call has ended, and with it what is unanswered.
    pub(in crate::daemon) fn close(&self, timeline: &mut Timeline) {
        timeline.end(|| self.ctx.clock.monotonic_us());
    }
}

/// Timelines begun per second for calls whose spans are not exported. Ours: more than a person looks at, and little work.
const KEPT_PER_SECOND_MAX: u64 = 500;
/// Most phases of a call: several retries have their own.
const PHASES_MAX: usize = 24;
/// Most tries that a timeline holds.
const TRIES_MAX: usize = 16;
/// **Units:** bits; 16 of them hold more than the budget.
const COUNT_BITS: u32 = 16;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(KEPT_PER_SECOND_MAX < COUNT_MASK, "the count holds the budget");

#[cfg(test)]
mod tests {
    use super::*;

    fn told(timeline: &Timeline) -> CallTimeline<'static> {
        *timeline.told().unwrap()
    }

    #[test]
    fn phases_cover_the_call_without_gaps() {
        let mut timeline = Timeline::of_test();
        timeline.begin(Phase::Choose, || 1_003);
        timeline.begin(Phase::Wire, || 1_010);
        let spans: Vec<_> = timeline.spans(30).collect();
        assert_eq!(spans, [(Phase::Admit, 0, 3), (Phase::Choose, 3, 10), (Phase::Wire, 10, 30)]);
        // The clock's readings of two threads may be out of order; no span ends before it begins.
        assert_eq!(timeline.spans(5).last(), Some((Phase::Wire, 5, 5)));
        let running = told(&timeline);
        assert_eq!((running.came_at_ms, running.took_us), (4_990, None));
        assert_eq!((running.phases[1].end_us, running.phases[2].end_us), (Some(10), None));
        timeline.end(|| 1_030);
        let ended = told(&timeline);
        assert_eq!((ended.took_us, ended.phases[2].end_us), (Some(30), Some(30)));
    }

    #[test]
    fn a_timeline_that_is_not_kept_reads_no_clock() {
        let mut none = Timeline::default();
        none.begin(Phase::Choose, || unreachable!("the clock is read"));
        none.begin_try(0, None, || unreachable!("the clock is read"));
        none.end_try(0, (TryOutcome::Lost, None), || unreachable!("the clock is read"));
        none.end(|| unreachable!("the clock is read"));
        assert_eq!((none.spans(9).count(), none.told()), (0, None));
    }

    #[test]
    fn each_try_ends_once_and_none_outlives_its_call() {
        let mut timeline = Timeline::of_test();
        timeline.begin_try(0, None, || 1_010);
        timeline.begin_try(0, None, || 1_020);
        timeline.begin_try(1, None, || 1_030);
        timeline.end_try(0, (TryOutcome::Refused, Some(Code::OVERLOADED)), || 1_040);
        timeline.end_try(0, (TryOutcome::Success, None), || 1_045);
        timeline.end(|| 1_050);
        timeline.end_try(1, (TryOutcome::Success, None), || unreachable!("the call has ended"));
        let ends: Vec<_> = told(&timeline).tries.iter().map(|one| (one.end_us, one.outcome)).collect();
        assert_eq!(
            ends,
            [
                (Some(20), Some(TryOutcome::Unanswered)),
                (Some(40), Some(TryOutcome::Refused)),
                (Some(50), Some(TryOutcome::Unanswered)),
            ]
        );
    }

    #[test]
    fn retries_without_end_keep_a_bounded_timeline() {
        let mut timeline = Timeline::of_test();
        for at_us in 1_001..2_000 {
            timeline.begin(if at_us % 2 == 0 { Phase::Queue } else { Phase::Wire }, || at_us);
            timeline.begin_try(0, None, || at_us);
        }
        timeline.end(|| 3_000);
        let told = told(&timeline);
        assert_eq!((told.phases.len(), told.tries.len()), (PHASES_MAX, TRIES_MAX));
        assert_eq!(told.tries_omitted, 999 - TRIES_MAX as u64);
        assert_eq!(timeline.spans(2_000).last(), Some((Phase::Wire, 23, 2_000)));
    }

    #[test]
    fn a_second_has_a_budget_and_the_next_one_has_its_own() {
        let budget = Budget::default();
        for second in [0, 1, 7] {
            let taken = (0..5_000).filter(|at| budget.take(second * 1_000_000 + at)).count();
            assert_eq!(taken as u64, KEPT_PER_SECOND_MAX, "{second}");
        }
        // Threads may read the clock out of order: a former second has nothing left.
        assert!(!budget.take(6_999_999));
    }
}
