//! Nothing in, the time out: the only place that asks the system for it.

use std::time::Duration;

use tokio::time::Instant;

/// The time of day and the time that only moves forward.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic time starts here.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Monotonic time since the clock was started. **Units:** milliseconds.
    pub fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment a monotonic time stands for. **Units:** milliseconds.
    pub fn moment(&self, monotonic_ms: u64) -> Instant {
        self.start + Duration::from_millis(monotonic_ms)
    }

    /// A moment that no link lives to see.
    pub(in crate::net) fn far(&self) -> Instant {
        self.start + Duration::from_secs(100 * 365 * 24 * 60 * 60)
    }

    /// The time of day, for envelopes. **Units:** milliseconds since 1970-01-01T00:00Z.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else is told the time by"
    )]
    pub fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
