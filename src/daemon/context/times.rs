//! Converts moments between the two clocks.

use crate::net::Clock;

/// Two clocks, read at one moment.
#[derive(Clone, Copy)]
pub(in crate::daemon) struct Times {
    pub(in crate::daemon) wall_ms: u64,
    pub(in crate::daemon) monotonic_ms: u64,
}

impl Times {
    pub(in crate::daemon) fn of(clock: &Clock) -> Self {
        Self { wall_ms: clock.wall_ms(), monotonic_ms: clock.monotonic_ms() }
    }

    /// When a moment of the monotonic clock is or was. **Units:** milliseconds, of that clock and since the Unix epoch.
    pub(in crate::daemon) const fn wall_ms(self, monotonic_ms: u64) -> u64 {
        self.wall_ms.saturating_add(monotonic_ms).saturating_sub(self.monotonic_ms)
    }
}
