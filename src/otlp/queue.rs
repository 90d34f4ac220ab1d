//! Holds encoded spans until they are exported, up to a bound.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::protobuf::Message;
use super::span::Span;

/// Encoded spans that wait to be exported.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// Wakes the exporter: there is a span, there is a batch, or the end.
    filled: Notify,
    /// Wakes whoever waits for the end.
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    counters: Counters,
    is_exporting: bool,
    is_closing: bool,
}

/// Spans that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// **Shape:** field 2 of `ScopeSpans`, as often as there are spans.
    pub(super) spans: Vec<u8>,
    pub(super) count: u64,
}

/// What became of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The collector took them.
    pub exported: u64,
    /// The queue was full, or the collector did not take them.
    pub dropped: u64,
}

impl Queue {
    /// Queues a span, or drops and counts it. Never waits.
    pub fn record(&self, span: &Span<'_>) {
        let mut state = self.state();
        let State { waiting, counters, .. } = &mut *state;
        let before = waiting.spans.len();
        // Each is bounded, so the queue is as well.
        if before >= QUEUE_BYTES_MAX {
            counters.dropped += 1;
            return;
        }
        Message(&mut waiting.spans).message(2, |message| span.encode(message.0));
        waiting.count += 1;
        let is_batch = before < BATCH_BYTES && BATCH_BYTES <= waiting.spans.len();
        drop(state);
        if before == 0 || is_batch {
            self.filled.notify_one();
        }
    }

    /// What became of spans so far.
    pub fn counters(&self) -> Counters {
        self.state().counters
    }

    /// Has what waits exported at once, and waits for that up to a bound.
    pub async fn close(&self) {
        let drained = self.drained.notified();
        {
            let mut state = self.state();
            state.is_closing = true;
            if state.waiting.count == 0 && !state.is_exporting {
                return;
            }
        }
        self.filled.notify_one();
        // What is not taken by then is lost: a shutdown does not wait for a collector.
        let _in_time = timeout(CLOSE_TIMEOUT, drained).await;
    }

    /// The next spans, once there is a batch of them, or the first has waited long enough.
    pub(super) async fn next(&self) -> Batch {
        loop {
            if self.state().waiting.count > 0 {
                break;
            }
            self.filled.notified().await;
        }
        if !self.is_due() {
            let due = async {
                while !self.is_due() {
                    self.filled.notified().await;
                }
            };
            let _due = timeout(LINGER, due).await;
        }
        let mut state = self.state();
        state.is_exporting = true;
        std::mem::take(&mut state.waiting)
    }

    fn is_due(&self) -> bool {
        let state = self.state();
        state.is_closing || BATCH_BYTES <= state.waiting.spans.len()
    }

    /// Whether the sidecar shuts down.
    pub(super) fn is_closing(&self) -> bool {
        self.state().is_closing
    }

    /// Awaits that.
    pub(super) async fn closing(&self) {
        while !self.is_closing() {
            self.filled.notified().await;
        }
    }

    /// Counts what became of a batch.
    pub(super) fn settle(&self, exported: u64, dropped: u64) {
        let mut state = self.state();
        state.counters.exported += exported;
        state.counters.dropped += dropped;
        state.is_exporting = false;
        if state.waiting.count == 0 {
            self.drained.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of spans from which on they are sent at once.
const BATCH_BYTES: usize = 128 * 1024;
/// Bytes of spans that wait. As many may be on their way to the collector.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// How long a shutdown waits for the collector.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::context::{Context, SpanId, TraceId};
    use super::super::span::{Kind, Value};
    use super::*;

    fn record(queue: &Queue, name: &str) {
        let context = Context::root(TraceId::new(1).unwrap(), SpanId::new(2).unwrap(), true);
        let attributes = [("rpc.method", Value::Text(name)), ("capd.attempts", Value::Integer(1))];
        queue.record(&Span {
            context,
            parent: None,
            kind: Kind::Server,
            name,
            start_ns: 3,
            end_ns: 4,
            attributes: &attributes,
            failure: None,
        });
    }

    #[test]
    fn what_exceeds_the_queue_is_dropped_and_counted_and_takes_no_memory() {
        let queue = Queue::default();
        let name = "a".repeat(100_000);
        for _ in 0..10_000 {
            record(&queue, &name);
        }
        let state = queue.state();
        assert!((QUEUE_BYTES_MAX..QUEUE_BYTES_MAX + 1_024).contains(&state.waiting.spans.len()));
        assert!(state.waiting.spans.capacity() <= 2 * QUEUE_BYTES_MAX);
        assert_eq!(state.counters.exported, 0);
        assert_eq!(state.waiting.count + state.counters.dropped, 10_000);
        assert!(state.waiting.count > 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_span_waits_for_others_until_there_is_a_batch_or_the_end() {
        let queue = Queue::default();
        record(&queue, "one");
        let start = tokio::time::Instant::now();
        assert_eq!(queue.next().await.count, 1);
        assert_eq!(start.elapsed(), LINGER);
        queue.settle(1, 0);
        let name = "a".repeat(256);
        while !queue.is_due() {
            record(&queue, &name);
        }
        let start = tokio::time::Instant::now();
        assert!(queue.next().await.count > 100);
        assert_eq!(start.elapsed(), Duration::ZERO);
        // The end waits for what is under way, and no longer than its time.
        queue.close().await;
        assert_eq!(start.elapsed(), CLOSE_TIMEOUT);
        queue.settle(0, 0);
        let start = tokio::time::Instant::now();
        record(&queue, "last");
        let exporting = async {
            assert_eq!(queue.next().await.count, 1);
            queue.settle(1, 0);
        };
        tokio::join!(queue.close(), exporting);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(queue.counters(), Counters { exported: 2, dropped: 0 });
    }
}
