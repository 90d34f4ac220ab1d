//! Vanishing entries in, whether to believe that they are gone out (FLEET D4).

use std::collections::VecDeque;

use crate::capability::CapabilityName;

/// Notices when more of the registry vanishes at once than agents do. Then nothing is dropped but what does not answer.
#[derive(Debug, Default)]
pub(super) struct Calm {
    vanished: VecDeque<(u64, CapabilityName)>,
    frozen: Option<Frozen>,
}

#[derive(Clone, Copy, Debug)]
struct Frozen {
    since_ms: u64,
    last_ms: u64,
}

impl Calm {
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Since when nothing is dropped. **Units:** milliseconds.
    pub(super) fn frozen_since_ms(&self) -> Option<u64> {
        self.frozen.map(|frozen| frozen.since_ms)
    }

    /// An entry of a name vanished; so many are left of the name and in all. Returns whether this is when all stops.
    pub(super) fn vanish(
        &mut self,
        name: &CapabilityName,
        left_of_name: usize,
        left: usize,
        now_ms: u64,
        ttl_ms: u64,
    ) -> bool {
        self.vanished.push_back((now_ms, name.clone()));
        while self.vanished.len() > VANISHED_MAX
            || self.vanished.front().is_some_and(|(at_ms, _)| at_ms.saturating_add(ttl_ms) <= now_ms)
        {
            self.vanished.pop_front();
        }
        if let Some(frozen) = &mut self.frozen {
            frozen.last_ms = now_ms;
            return false;
        }
        let of_name = self.vanished.iter().filter(|(_, other)| other == name).count();
        let is_panic = is_too_many(of_name, left_of_name) || is_too_many(self.vanished.len(), left);
        if is_panic {
            self.frozen = Some(Frozen { since_ms: now_ms, last_ms: now_ms });
        }
        is_panic
    }

    /// When it thaws if nothing else vanishes: after two lives of a lease. **Units:** milliseconds.
    pub(super) fn deadline_ms(&self, ttl_ms: u64) -> Option<u64> {
        self.frozen.map(|frozen| frozen.last_ms.saturating_add(2 * ttl_ms))
    }

    /// Thaws when it is time, or when the registry was listed whole since it froze.
    pub(super) fn thaw(&mut self, now_ms: u64, ttl_ms: u64, is_listed_since: bool) -> bool {
        let is_time = self.deadline_ms(ttl_ms).is_some_and(|due_ms| now_ms >= due_ms);
        if self.frozen.is_none() || !(is_time || is_listed_since) {
            return false;
        }
        self.frozen = None;
        self.vanished.clear();
        true
    }
}

/// FLEET D4: more than 15 %, and more than 3, for that is every loss among few.
fn is_too_many(vanished: usize, left: usize) -> bool {
    vanished > VANISHED_MIN && vanished * 100 > (vanished + left) * VANISHED_PERCENT
}

const VANISHED_MIN: usize = 3;
const VANISHED_PERCENT: usize = 15;
/// Most entries counted; far more than make a panic of any fleet that is watched.
const VANISHED_MAX: usize = 16_384;
