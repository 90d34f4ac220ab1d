//! Passes what a process writes to stderr on to the log: whole lines in, bounded records out.

use std::time::Duration;

use tokio::time::Instant;

use super::super::message;

/// Lines that are not logged yet, and the end of those that are.
#[derive(Default)]
pub(super) struct Stderr {
    /// What was read since the last whole line.
    open: Vec<u8>,
    /// The end of all that was written.
    pub(super) tail: Vec<u8>,
    second: Option<Instant>,
    records: u32,
    left_out: u64,
}

impl Stderr {
    /// Logs the whole lines of what was read, under the id of the one call that the process has.
    pub(super) fn on_read(&mut self, bytes: &[u8], capability: &str, call: Option<&str>, now: Instant) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
        self.open.extend_from_slice(bytes);
        let end = match self.open.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.open.len() > TAIL_BYTES => self.open.len(),
            None => return,
        };
        let words = message::log_text(&self.open[..end]);
        self.open.drain(..end);
        if words.trim().is_empty() || !self.may_log(capability, now) {
            return;
        }
        match call {
            Some(call) => tracing::info!(call, capability, stderr = words, "a process wrote to stderr"),
            None => tracing::info!(capability, stderr = words, "a process wrote to stderr"),
        }
    }

    /// A process that writes without end must not crowd out the rest of the log.
    fn may_log(&mut self, capability: &str, now: Instant) -> bool {
        if self.second.is_none_or(|second| now.saturating_duration_since(second) >= SECOND) {
            if self.left_out > 0 {
                tracing::warn!(
                    capability,
                    records = self.left_out,
                    "stderr of a process was left out of the log"
                );
            }
            (self.second, self.records, self.left_out) = (Some(now), 0, 0);
        }
        self.records += 1;
        if self.records > RECORDS_PER_SECOND {
            self.left_out += 1;
        }
        self.records <= RECORDS_PER_SECOND
    }
}

/// Bytes of stderr that are kept at least; up to twice as many are held.
const TAIL_BYTES: usize = 16 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// Records of one process in the log; each has up to 16 KiB.
const RECORDS_PER_SECOND: u32 = 100;
