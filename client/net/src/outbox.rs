//! Queues the frames of a stream for its one writer, in batches and within bounds.
//!
//! At each wake-up the writer takes everything small that is queued, so frames queued while it was busy leave together,
//! copied into one buffer. Large frames are queued as they are and leave one by one, so a small frame waits for at most
//! one of them. The largest leave part by part, so other streams wait for at most a part.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use capd_proto::envelope::Encoded;
use capd_proto::limits::FRAME_HEADER_BYTES;
use tokio::sync::Notify;

use super::meter::{Limit, Metered};
use super::turnstile::Turnstile;

/// Why a message was not queued. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stream's or the link's queue is full: the peer reads more slowly than this side writes.
    #[error("the link's queue is full")]
    Full,
    /// The link, or the stream that the answer belongs on, is closed.
    #[error("the link is closed")]
    Closed,
    /// The link is draining and accepts no new requests.
    #[error("the link is draining")]
    Draining,
    /// The message is larger than the link allows.
    #[error("{bytes} bytes are more than the {bytes_max} that the peer accepts")]
    TooLarge {
        /// Length of frame type and payload.
        bytes: usize,
        /// Largest such length on this link.
        bytes_max: usize,
    },
}

/// Bytes that all streams of a link may have waiting together.
#[derive(Debug)]
pub(super) struct Budget {
    metered: Metered,
    turnstile: Arc<Turnstile>,
    bytes_max: usize,
}

impl Budget {
    pub(super) const fn new(metered: Metered, turnstile: Arc<Turnstile>, bytes_max: usize) -> Self {
        Self { metered, turnstile, bytes_max }
    }

    /// Where work on large messages waits for its turn.
    pub(super) fn turnstile(&self) -> &Turnstile {
        &self.turnstile
    }

    /// The link whose bytes these are.
    pub(super) const fn metered(&self) -> &Metered {
        &self.metered
    }

    fn take(&self, bytes: usize) -> bool {
        // A frame is itself bounded, so one always fits an empty queue: no setting locks a link up.
        let within = |used: usize| used.checked_add(bytes).filter(|sum| used == 0 || *sum <= self.bytes_max);
        let used = &self.metered.traffic.queued_bytes;
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.metered.traffic.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The queue of one stream.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    wake: Notify,
    budget: Arc<Budget>,
    frames_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Small frames, behind each other.
    small: BytesMut,
    small_frames: usize,
    /// Frames that leave one by one, in order.
    large: VecDeque<Large>,
    /// Whether a part of the first of them has left.
    is_begun: bool,
    /// How much was small when the writer came last: about as much as the next time.
    taken_bytes: usize,
    closed: bool,
}

/// A frame that is not copied, or one that stays behind such a frame.
#[derive(Debug)]
struct Large {
    pieces: [Bytes; 3],
}

/// Which of the frames that wait leaves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// The smaller: nothing that was queued before has to be known when it is read.
    BySize,
    /// The one queued first: a call and then its cancel, messages and then a farewell.
    InOrder,
}

impl Queue {
    fn frames(&self) -> usize {
        self.small_frames + self.large.len()
    }

    fn bytes(&self) -> usize {
        self.small.len() + self.large.iter().map(Large::len).sum::<usize>()
    }

    fn push(&mut self, header: [u8; FRAME_HEADER_BYTES], payload: &Encoded, precedence: Precedence) {
        if payload.len() > COPIED_BYTES_MAX {
            let [first, second, third] = payload.pieces();
            self.large.push_back(match payload {
                Encoded::Whole(_) => Large { pieces: [joined(&[&header]), first, second] },
                Encoded::Apart(_) => Large { pieces: [joined(&[&header, &first]), second, third] },
            });
            return;
        }
        let whole = match payload {
            Encoded::Whole(payload) => Cow::Borrowed(payload),
            apart @ Encoded::Apart(_) => Cow::Owned(apart.clone().into_bytes()),
        };
        if precedence == Precedence::InOrder && !self.large.is_empty() {
            self.large.push_back(Large { pieces: [joined(&[&header, &whole]), Bytes::new(), Bytes::new()] });
            return;
        }
        let bytes = header.len() + whole.len();
        if self.small.capacity() - self.small.len() < bytes {
            let room = self.taken_bytes.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX);
            self.small.reserve(room.max(bytes));
        }
        self.small.put_slice(&header);
        self.small.put_slice(&whole);
        self.small_frames += 1;
    }

    /// Whether what leaves next is a part of a frame.
    fn is_next_part(&self) -> bool {
        let is_long = |large: &Large| large.len() > PART_BYTES_MAX;
        self.is_begun || (self.small.is_empty() && self.large.front().is_some_and(is_long))
    }

    /// What leaves next: all that is small, and one frame that is not, or a part of it. A large frame never waits for more
    /// than what is small by then, and what is small for one large frame.
    fn take(&mut self) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        if !self.small.is_empty() && !self.is_begun {
            self.taken_bytes = self.small.len();
            chunks.push(self.small.split().freeze());
            self.small_frames = 0;
        }
        if let Some(large) = self.large.front_mut() {
            large.take(PART_BYTES_MAX, &mut chunks);
            self.is_begun = large.len() > 0;
        }
        if !self.is_begun && self.large.pop_front().is_some() && self.large.is_empty() {
            // An idle stream would keep the room of its longest queue otherwise.
            self.large = VecDeque::new();
        }
        chunks
    }
}

impl Large {
    /// Takes the first `bytes_max` bytes, or all there are.
    fn take(&mut self, bytes_max: usize, chunks: &mut Vec<Bytes>) {
        let mut left = bytes_max;
        for piece in &mut self.pieces {
            let part = piece.split_to(piece.len().min(left));
            left -= part.len();
            if !part.is_empty() {
                chunks.push(part);
            }
        }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

fn joined(pieces: &[&[u8]]) -> Bytes {
    pieces.concat().into()
}

/// What leaves at one wake-up. Its bytes count against the budget until it is dropped.
pub(super) struct Batch {
    /// The bytes to write, in order.
    pub(super) chunks: Vec<Bytes>,
    bytes: usize,
    budget: Arc<Budget>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

impl Outbox {
    /// An open queue of at most `frames_max` frames within `budget`.
    pub(super) fn new(budget: Arc<Budget>, frames_max: usize) -> Self {
        Self { queue: Mutex::default(), wake: Notify::new(), budget, frames_max }
    }

    /// Queues one frame. **Errors:** [`SendError::Full`] and [`SendError::Closed`].
    pub(super) fn push(
        &self,
        header: [u8; FRAME_HEADER_BYTES],
        payload: &Encoded,
        precedence: Precedence,
    ) -> Result<(), SendError> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(SendError::Closed);
        }
        if queue.frames() == self.frames_max {
            return Err(self.full(Limit::QueueFrames));
        }
        if !self.budget.take(header.len() + payload.len()) {
            return Err(self.full(Limit::QueueBytes));
        }
        // The writer sleeps only when the queue is empty, and is told once.
        let is_first = queue.frames() == 0;
        queue.push(header, payload, precedence);
        drop(queue);
        if is_first {
            self.wake.notify_one();
        }
        Ok(())
    }

    fn full(&self, limit: Limit) -> SendError {
        self.budget.metered.meter.refused(limit);
        SendError::Full
    }

    /// Takes no more frames; the writer still writes what is queued.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.wake.notify_one();
    }

    /// Takes no more frames and forgets the queued ones.
    pub(super) fn abort(&self) {
        let forgotten = {
            let mut queue = self.queue();
            std::mem::replace(&mut *queue, Queue { closed: true, ..Queue::default() })
        };
        self.budget.give_back(forgotten.bytes());
        self.wake.notify_one();
    }

    /// Whether frames are no longer taken.
    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Waits for frames; `None` once the queue is closed and empty. For the one writer; cancelling loses nothing.
    pub(super) async fn batch(&self) -> Option<Batch> {
        loop {
            if self.queue().is_next_part() {
                // What is small may come meanwhile, and leaves first if the frame has not begun.
                Box::pin(self.budget.turnstile.pass()).await;
            }
            {
                let mut queue = self.queue();
                let chunks = queue.take();
                if !chunks.is_empty() {
                    let bytes = chunks.iter().map(Bytes::len).sum();
                    self.budget.metered.sent(bytes);
                    return Some(Batch { chunks, bytes, budget: Arc::clone(&self.budget) });
                }
                if queue.closed {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic while the lock was held leaves at worst a frame less in the queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Largest payload that is copied behind others; from here on a piece of its own costs less than the copy.
const COPIED_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of a large frame that leave at once.
const PART_BYTES_MAX: usize = 64 * 1024;
/// Bytes the buffer for small frames grows by at least.
const ROOM_BYTES_MIN: usize = 256;
const ROOM_BYTES_MAX: usize = 2 * 1024;

#[cfg(test)]
mod tests {
    use super::super::link::Kind;
    use super::super::meter::Meter;
    use super::super::system::Clock;
    use super::*;

    const HEADER: [u8; FRAME_HEADER_BYTES] = [9; FRAME_HEADER_BYTES];

    fn budget(bytes_max: usize) -> Budget {
        Budget::new(Meter::new(Clock::start()).link(Kind::PeerQuic), Arc::default(), bytes_max)
    }

    fn outbox(bytes_max: usize, frames_max: usize) -> Outbox {
        Outbox::new(Arc::new(budget(bytes_max)), frames_max)
    }

    /// What the writer gets, batch by batch: the lengths of the pieces.
    async fn batches(outbox: &Outbox) -> Vec<Vec<usize>> {
        outbox.close();
        let mut batches = Vec::new();
        while let Some(batch) = outbox.batch().await {
            batches.push(batch.chunks.iter().map(Bytes::len).collect());
        }
        batches
    }

    #[tokio::test]
    async fn small_frames_leave_as_one_piece_and_large_payloads_uncopied() {
        let outbox = outbox(1 << 20, 10);
        let large = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
        outbox.push(HEADER, &Bytes::from_static(b"a").into(), Precedence::BySize).unwrap();
        outbox.push(HEADER, &Bytes::from_static(b"b").into(), Precedence::BySize).unwrap();
        outbox.push(HEADER, &large.clone().into(), Precedence::BySize).unwrap();
        let batch = outbox.batch().await.unwrap();
        let lengths: Vec<_> = batch.chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [6 + 6, 5, large.len()]);
        assert_eq!(batch.chunks[2].as_ptr(), large.as_ptr());
    }

    #[tokio::test]
    async fn what_is_small_overtakes_what_is_large_unless_its_order_is_kept() {
        let outbox = outbox(1 << 20, 10);
        let large = |length| Encoded::from(vec![7; length]);
        outbox.push(HEADER, &large(20_000), Precedence::BySize).unwrap();
        outbox.push(HEADER, &large(30_000), Precedence::BySize).unwrap();
        outbox.push(HEADER, &large(2), Precedence::InOrder).unwrap();
        outbox.push(HEADER, &large(40_000), Precedence::InOrder).unwrap();
        outbox.push(HEADER, &large(1), Precedence::BySize).unwrap();
        assert_eq!(batches(&outbox).await, [vec![6, 5, 20_000], vec![5, 30_000], vec![7], vec![5, 40_000]]);
    }

    #[tokio::test]
    async fn an_item_apart_stands_where_it_belongs_and_is_not_copied() {
        let outbox = outbox(1 << 20, 10);
        let item = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
        let apart = |item: &Bytes| Encoded::apart("headtail".into(), 4, item.clone());
        outbox.push(HEADER, &apart(&item), Precedence::BySize).unwrap();
        outbox.push(HEADER, &apart(&Bytes::from_static(b" ")), Precedence::BySize).unwrap();
        let batch = outbox.batch().await.unwrap();
        let small = [&HEADER, &b"head tail"[..]].concat();
        assert_eq!(batch.chunks, [&small, &[&HEADER, &b"head"[..]].concat()[..], &item, b"tail"]);
        assert_eq!(batch.chunks[2].as_ptr(), item.as_ptr());
    }

    #[tokio::test]
    async fn a_long_frame_leaves_in_parts_with_nothing_between_them() {
        let outbox = outbox(1 << 20, 10);
        let long: Bytes = (0..150_000_u32).map(|number| number as u8).collect();
        outbox.push(HEADER, &long.clone().into(), Precedence::BySize).unwrap();
        let mut batch = outbox.batch().await.unwrap();
        assert_eq!(batch.chunks.iter().map(Bytes::len).sum::<usize>(), PART_BYTES_MAX);
        outbox.push(HEADER, &Bytes::from_static(b"small").into(), Precedence::BySize).unwrap();
        outbox.push(HEADER, &long.slice(..20_000).into(), Precedence::BySize).unwrap();
        outbox.close();
        let mut sent = Vec::new();
        loop {
            batch.chunks.iter().for_each(|chunk| sent.extend_from_slice(chunk));
            let Some(next) = outbox.batch().await else { break };
            batch = next;
        }
        drop(batch);
        assert_eq!(sent, [&HEADER, &long[..], &HEADER, b"small", &HEADER, &long[..20_000]].concat());
        assert_eq!(outbox.budget.metered.traffic.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_queue_that_is_aborted_within_a_frame_counts_what_had_not_left() {
        let outbox = outbox(1 << 20, 10);
        outbox.push(HEADER, &Bytes::from(vec![7; 150_000]).into(), Precedence::BySize).unwrap();
        drop(outbox.batch().await.unwrap());
        outbox.abort();
        assert!(outbox.batch().await.is_none());
        assert_eq!(outbox.budget.metered.traffic.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn bytes_count_until_their_batch_is_written() {
        let outbox = outbox(12, 10);
        let payload = Bytes::from_static(b"a").into();
        outbox.push(HEADER, &payload, Precedence::BySize).unwrap();
        let batch = outbox.batch().await.unwrap();
        outbox.push(HEADER, &payload, Precedence::BySize).unwrap();
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Err(SendError::Full));
        drop(batch);
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Ok(()));
    }

    #[tokio::test]
    async fn one_frame_above_the_budget_fits_an_empty_queue() {
        let outbox = outbox(8, 10);
        let payload = Bytes::from_static(b"more than eight").into();
        outbox.push(HEADER, &payload, Precedence::BySize).unwrap();
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Err(SendError::Full));
        drop(outbox.batch().await);
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Ok(()));
    }

    #[tokio::test]
    async fn a_full_queue_says_so_and_recovers() {
        let outbox = outbox(1 << 20, 2);
        let payload = Bytes::from_static(b"a").into();
        outbox.push(HEADER, &payload, Precedence::BySize).unwrap();
        outbox.push(HEADER, &payload, Precedence::BySize).unwrap();
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Err(SendError::Full));
        drop(outbox.batch().await);
        assert_eq!(outbox.push(HEADER, &payload, Precedence::BySize), Ok(()));
    }

    #[tokio::test]
    async fn a_closed_queue_is_written_to_its_end_and_an_aborted_one_is_not() {
        let closed = outbox(1 << 20, 2);
        closed.push(HEADER, &Bytes::new().into(), Precedence::BySize).unwrap();
        closed.close();
        assert_eq!(closed.push(HEADER, &Bytes::new().into(), Precedence::BySize), Err(SendError::Closed));
        assert!(closed.batch().await.is_some());
        assert!(closed.batch().await.is_none());

        let budget = Arc::new(budget(1 << 20));
        let aborted = Outbox::new(Arc::clone(&budget), 2);
        aborted.push(HEADER, &Bytes::new().into(), Precedence::BySize).unwrap();
        aborted.abort();
        assert!(aborted.batch().await.is_none());
        assert_eq!(budget.metered.traffic.queued_bytes.load(Ordering::Relaxed), 0);
    }
}
