//! Tells the time: the only place that asks the system for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// One reading of a [`Clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The time of day. **Units:** milliseconds since 1970-01-01T00:00Z.
    pub wall_ms: u64,
    /// The time since the clock was started. **Units:** milliseconds.
    pub monotonic_ms: u64,
    /// The same. **Units:** microseconds.
    pub monotonic_us: u64,
}

impl Now {
    /// The monotonic time at which something ends that may take `time_ms` and expires at `expires_at_ms` of the day.
    /// **Units:** milliseconds.
    pub fn deadline_ms(self, expires_at_ms: u64, time_ms: u64) -> u64 {
        let left_ms = expires_at_ms.saturating_sub(self.wall_ms);
        self.monotonic_ms.saturating_add(time_ms.min(left_ms))
    }
}

/// The time of day and the time that only moves forward.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// `None` is the system's.
    wall: Option<WallClock>,
}

impl Clock {
    /// A clock whose monotonic time starts here, with the system's time of day.
    pub fn start() -> Self {
        Self { start: Instant::now(), wall: None }
    }

    /// A clock whose monotonic time starts here, with a time of day that `wall` sets.
    pub fn set_by(wall: WallClock) -> Self {
        Self { start: Instant::now(), wall: Some(wall) }
    }

    /// Both times. Reading the system's clock costs time, so everything in one turn shares one reading.
    pub fn now(&self) -> Now {
        let monotonic_us = self.monotonic_us();
        Now { wall_ms: self.wall_ms(), monotonic_ms: monotonic_us / 1_000, monotonic_us }
    }

    /// Monotonic time since the clock was started. **Units:** microseconds.
    pub fn monotonic_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Monotonic time since the clock was started. **Units:** milliseconds.
    pub fn monotonic_ms(&self) -> u64 {
        milliseconds(self.start.elapsed())
    }

    /// The time of day, where a millisecond is too long. **Units:** microseconds since 1970-01-01T00:00Z.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else is told the time by"
    )]
    pub fn wall_us(&self) -> u64 {
        if let Some(wall) = &self.wall {
            return wall.now_ms().saturating_mul(1_000);
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// The moment of a monotonic time. **Units:** milliseconds.
    pub fn moment(&self, monotonic_ms: u64) -> Instant {
        self.start + Duration::from_millis(monotonic_ms)
    }

    /// A moment that no link lives to see.
    pub(crate) fn far(&self) -> Instant {
        self.start + Duration::from_secs(100 * 365 * 24 * 60 * 60)
    }

    /// The time of day, for envelopes. **Units:** milliseconds since 1970-01-01T00:00Z.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else is told the time by"
    )]
    pub fn wall_ms(&self) -> u64 {
        if let Some(wall) = &self.wall {
            return wall.now_ms();
        }
        milliseconds(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
    }
}

/// A time of day that runs with the monotonic time and can be set, as an owner sets a machine's. Clones are one clock.
#[derive(Clone, Debug)]
pub struct WallClock {
    start: Instant,
    /// The time of day at `start`.
    base_ms: Arc<AtomicU64>,
}

impl WallClock {
    /// A clock that shows `now_ms`. **Units:** milliseconds since 1970-01-01T00:00Z.
    pub fn at(now_ms: u64) -> Self {
        Self { start: Instant::now(), base_ms: Arc::new(AtomicU64::new(now_ms)) }
    }

    /// The time it shows. **Units:** milliseconds since 1970-01-01T00:00Z.
    pub fn now_ms(&self) -> u64 {
        self.base_ms.load(Ordering::Relaxed).saturating_add(milliseconds(self.start.elapsed()))
    }

    /// Sets it forward, or back when negative. **Units:** milliseconds.
    pub fn jump(&self, by_ms: i64) {
        let moved = |base_ms: u64| Some(base_ms.saturating_add_signed(by_ms));
        // The closure always gives a value, so the update cannot fail.
        let _before = self.base_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_set_clock_runs_and_jumps_for_all_who_share_it() {
        let wall = WallClock::at(1_000_000);
        let clock = Clock::set_by(wall.clone());
        assert_eq!(clock.wall_ms(), 1_000_000);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(clock.wall_ms(), 1_000_250);
        wall.jump(-500);
        assert_eq!(clock.wall_ms(), 999_750);
        wall.jump(2_000);
        assert_eq!(clock.clone().wall_ms(), 1_001_750);
        // The time that only moves forward takes no part in it.
        assert_eq!(clock.monotonic_ms(), 250);
    }
}
