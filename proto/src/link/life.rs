//! Watches a link for signs of life: a PING is due after silence, the end after a longer silence.

use bytes::Bytes;

use super::step::Step;
use super::{Config, Output};

/// When the peer was last heard, and when it was last asked for a sign of life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    heard_ms: u64,
    pinged_ms: u64,
    pings: u64,
}

impl Life {
    pub(super) fn begin(now_ms: u64) -> Self {
        Self { heard_ms: now_ms, pinged_ms: now_ms, pings: 0 }
    }

    pub(super) fn heard(self, now_ms: u64) -> Self {
        Self { heard_ms: now_ms, ..self }
    }

    fn ping_due_ms(&self, config: &Config) -> Option<u64> {
        // An interval of 0 would be due again at once, forever.
        config
            .keep_alive_ms
            .map(|interval_ms| self.heard_ms.max(self.pinged_ms).saturating_add(interval_ms.max(1)))
    }

    fn idle_due_ms(&self, config: &Config) -> Option<u64> {
        config.idle_timeout_ms.map(|timeout_ms| self.heard_ms.saturating_add(timeout_ms))
    }

    pub(super) fn deadline_ms(&self, config: &Config) -> Option<u64> {
        match (self.ping_due_ms(config), self.idle_due_ms(config)) {
            (Some(ping_ms), Some(idle_ms)) => Some(ping_ms.min(idle_ms)),
            (ping_ms, idle_ms) => ping_ms.or(idle_ms),
        }
    }

    /// Sends what is due; `None` when the peer was silent for too long.
    pub(super) fn check(self, step: &mut Step<'_>) -> Option<Self> {
        if self.idle_due_ms(step.config).is_some_and(|due_ms| step.now_ms >= due_ms) {
            return None;
        }
        if self.ping_due_ms(step.config).is_none_or(|due_ms| step.now_ms < due_ms) {
            return Some(self);
        }
        step.send(Output::SendPing(Bytes::copy_from_slice(&self.pings.to_be_bytes())));
        Some(Self { pinged_ms: step.now_ms, pings: self.pings.wrapping_add(1), ..self })
    }
}
