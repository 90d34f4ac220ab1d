//! Remembers where the time of the last finished calls went. It is kept beside the ledger, so nothing more is on disk.

use std::collections::VecDeque;

use ahash::HashMap;
use capd_proto::ledger::Admission;

use super::Executor;
use super::table::{Calls, Waiter};
use crate::daemon::account::timeline::Timeline;
use crate::provider::CallKey;

/// Timelines of finished calls; the oldest goes.
#[derive(Default)]
pub(super) struct Timelines {
    by_key: HashMap<CallKey, Timeline>,
    /// The keys of those, oldest first.
    order: VecDeque<CallKey>,
}

impl Timelines {
    /// Keeps that of a call that has ended, if it has one.
    fn keep(&mut self, key: &CallKey, timeline: Timeline) {
        if !timeline.is_kept() {
            // An earlier call of this key is not this one.
            if self.by_key.remove(key).is_some() {
                self.order.retain(|kept| kept != key);
            }
            return;
        }
        if self.by_key.insert(key.clone(), timeline).is_some() {
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > TIMELINES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

impl Calls {
    /// The timeline of a call that runs, or ran not long ago.
    pub(super) fn timeline(&self, key: &CallKey) -> Option<&Timeline> {
        let running = self.running.get(key).map(|running| &running.timeline);
        running.or_else(|| self.timelines.by_key.get(key))
    }

    /// Counts a copy of a call that is known already.
    pub(super) fn note_copy(&mut self, key: &CallKey, admission: &Admission<Waiter>) {
        match admission {
            Admission::Attached { .. } => {
                if let Some(running) = self.running.get_mut(key) {
                    running.timeline.join();
                }
            }
            Admission::Replay { .. } => {
                if let Some(timeline) = self.timelines.by_key.get_mut(key) {
                    timeline.replay();
                }
            }
            Admission::New
            | Admission::Released(_)
            | Admission::Forgotten(_)
            | Admission::Conflict(_)
            | Admission::Full { .. } => {}
        }
    }
}

impl Executor {
    /// A call has its recorded result.
    pub(super) fn keep_timeline(&self, calls: &mut Calls, key: &CallKey, mut timeline: Timeline) {
        self.account.close(&mut timeline);
        calls.timelines.keep(key, timeline);
    }
}

/// Timelines of finished calls that are kept: as many as a caller's sidecar keeps.
const TIMELINES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use capd_proto::envelope::MessageId;
    use capd_proto::identity::Did;

    use super::*;

    #[test]
    fn the_newest_timelines_are_kept_each_once() {
        let key = |number: u64| CallKey {
            from: Did::parse("did:example:a").unwrap(),
            id: MessageId::new(number, [0; 8]),
        };
        let mut timelines = Timelines::default();
        let calls_max = 3 * TIMELINES_MAX as u64;
        for number in 0..calls_max {
            timelines.keep(&key(number), Timeline::of_test());
            timelines.keep(&key(number), Timeline::of_test());
            timelines.keep(&key(number + calls_max), Timeline::default());
        }
        assert_eq!((timelines.by_key.len(), timelines.order.len()), (TIMELINES_MAX, TIMELINES_MAX));
        let oldest = calls_max - TIMELINES_MAX as u64;
        assert!(
            timelines.by_key.contains_key(&key(oldest)) && !timelines.by_key.contains_key(&key(oldest - 1))
        );
        timelines.keep(&key(oldest), Timeline::default());
        assert_eq!((timelines.by_key.len(), timelines.order.len()), (TIMELINES_MAX - 1, TIMELINES_MAX - 1));
    }
}
