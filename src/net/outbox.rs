//! Frames in from anywhere, batches out to one writer: the bounded queue in front of each stream's sending half.
//!
//! The writer takes everything that is queued at one wake-up, so frames queued while it was busy leave together.
//! Small frames are copied behind each other into one buffer; a large payload is queued as it is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use capd_proto::envelope::Encoded;
use capd_proto::limits::FRAME_HEADER_BYTES;
use tokio::sync::Notify;

use super::meter::{Limit, Metered};

/// Why a message was not queued. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stream's or the link's queue is full: the peer reads more slowly than we write.
    #[error("the link's queue is full")]
    Full,
    /// The link, or the stream that the answer belongs on, is closed.
    #[error("the link is closed")]
    Closed,
    /// The link is draining and takes no new requests.
    #[error("the link is draining")]
    Draining,
    /// The message is larger than both sides agreed to.
    #[error("{bytes} bytes are more than the {bytes_max} that the peer takes")]
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
    bytes_max: usize,
}

impl Budget {
    pub(super) const fn new(metered: Metered, bytes_max: usize) -> Self {
        Self { metered, bytes_max }
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
    /// Finished pieces, in order.
    chunks: Vec<Bytes>,
    /// The piece that small frames are still added to; it comes after all of `chunks`.
    tail: BytesMut,
    frames: usize,
    bytes: usize,
    /// What the writer took last: about as much as the next tail will have.
    taken_bytes: usize,
    closed: bool,
}

impl Queue {
    /// Adds short pieces, behind each other.
    fn copy(&mut self, pieces: &[&[u8]]) {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if self.tail.capacity() - self.tail.len() < bytes {
            let room = self.taken_bytes.clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX);
            self.tail.reserve(room.max(bytes));
        }
        for piece in pieces {
            self.tail.put_slice(piece);
        }
    }

    /// Adds a long piece as it is.
    fn put(&mut self, piece: &Bytes) {
        let before = self.tail.split().freeze();
        self.chunks.push(before);
        self.chunks.push(piece.clone());
    }
}

/// Everything that was queued at one wake-up. Its bytes count against the budget until it is dropped.
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
    pub(super) fn push(&self, header: [u8; FRAME_HEADER_BYTES], payload: &Encoded) -> Result<(), SendError> {
        let bytes = header.len() + payload.len();
        let mut queue = self.queue();
        if queue.closed {
            return Err(SendError::Closed);
        }
        if queue.frames == self.frames_max {
            return Err(self.full(Limit::QueueFrames));
        }
        if !self.budget.take(bytes) {
            return Err(self.full(Limit::QueueBytes));
        }
        queue.frames += 1;
        queue.bytes += bytes;
        match payload {
            Encoded::Whole(payload) if payload.len() <= COPIED_BYTES_MAX => queue.copy(&[&header, payload]),
            Encoded::Whole(payload) => {
                queue.copy(&[&header]);
                queue.put(payload);
            }
            Encoded::Apart { fields, at, item } => {
                queue.copy(&[&header, &fields[..*at]]);
                queue.put(item);
                queue.copy(&[&fields[*at..]]);
            }
        }
        drop(queue);
        self.wake.notify_one();
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
            queue.closed = true;
            self.take_all(&mut queue)
        };
        drop(forgotten);
        self.wake.notify_one();
    }

    /// Whether frames are no longer taken.
    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Waits for frames; `None` once the queue is closed and empty. For the one writer; cancelling loses nothing.
    pub(super) async fn batch(&self) -> Option<Batch> {
        loop {
            {
                let mut queue = self.queue();
                if queue.frames > 0 {
                    let batch = self.take_all(&mut queue);
                    let sent_bytes = &self.budget.metered.traffic.sent_bytes;
                    sent_bytes.fetch_add(batch.bytes as u64, Ordering::Relaxed);
                    return Some(batch);
                }
                if queue.closed {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    fn take_all(&self, queue: &mut Queue) -> Batch {
        if !queue.tail.is_empty() {
            let tail = queue.tail.split().freeze();
            queue.chunks.push(tail);
        }
        queue.frames = 0;
        queue.taken_bytes = queue.bytes;
        Batch {
            chunks: std::mem::take(&mut queue.chunks),
            bytes: std::mem::take(&mut queue.bytes),
            budget: Arc::clone(&self.budget),
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
/// Bytes the buffer for small frames grows by at least.
const TAIL_BYTES_MIN: usize = 256;
const TAIL_BYTES_MAX: usize = 2 * 1024;

#[cfg(test)]
mod tests {
    use super::super::link::Kind;
    use super::super::meter::Meter;
    use super::*;

    const HEADER: [u8; FRAME_HEADER_BYTES] = [9; FRAME_HEADER_BYTES];

    fn budget(bytes_max: usize) -> Budget {
        Budget::new(Arc::<Meter>::default().link(Kind::PeerQuic), bytes_max)
    }

    fn outbox(bytes_max: usize, frames_max: usize) -> Outbox {
        Outbox::new(Arc::new(budget(bytes_max)), frames_max)
    }

    #[tokio::test]
    async fn small_frames_leave_as_one_piece_and_large_payloads_uncopied() {
        let outbox = outbox(1 << 20, 10);
        let large = Bytes::from(vec![7; COPIED_BYTES_MAX + 1]);
        outbox.push(HEADER, &Bytes::from_static(b"a").into()).unwrap();
        outbox.push(HEADER, &Bytes::from_static(b"b").into()).unwrap();
        outbox.push(HEADER, &large.clone().into()).unwrap();
        outbox.push(HEADER, &Bytes::from_static(b"c").into()).unwrap();
        let batch = outbox.batch().await.unwrap();
        let lengths: Vec<_> = batch.chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [6 + 6 + 5, large.len(), 6]);
        assert_eq!(batch.chunks[1].as_ptr(), large.as_ptr());
    }

    #[tokio::test]
    async fn bytes_count_until_their_batch_is_written() {
        let outbox = outbox(12, 10);
        let payload = Bytes::from_static(b"a").into();
        outbox.push(HEADER, &payload).unwrap();
        let batch = outbox.batch().await.unwrap();
        outbox.push(HEADER, &payload).unwrap();
        assert_eq!(outbox.push(HEADER, &payload), Err(SendError::Full));
        drop(batch);
        assert_eq!(outbox.push(HEADER, &payload), Ok(()));
    }

    #[tokio::test]
    async fn one_frame_above_the_budget_fits_an_empty_queue() {
        let outbox = outbox(8, 10);
        let payload = Bytes::from_static(b"more than eight").into();
        outbox.push(HEADER, &payload).unwrap();
        assert_eq!(outbox.push(HEADER, &payload), Err(SendError::Full));
        drop(outbox.batch().await);
        assert_eq!(outbox.push(HEADER, &payload), Ok(()));
    }

    #[tokio::test]
    async fn a_full_queue_says_so_and_recovers() {
        let outbox = outbox(1 << 20, 2);
        let payload = Bytes::from_static(b"a").into();
        outbox.push(HEADER, &payload).unwrap();
        outbox.push(HEADER, &payload).unwrap();
        assert_eq!(outbox.push(HEADER, &payload), Err(SendError::Full));
        drop(outbox.batch().await);
        assert_eq!(outbox.push(HEADER, &payload), Ok(()));
    }

    #[tokio::test]
    async fn a_closed_queue_is_written_to_its_end_and_an_aborted_one_is_not() {
        let closed = outbox(1 << 20, 2);
        closed.push(HEADER, &Bytes::new().into()).unwrap();
        closed.close();
        assert_eq!(closed.push(HEADER, &Bytes::new().into()), Err(SendError::Closed));
        assert!(closed.batch().await.is_some());
        assert!(closed.batch().await.is_none());

        let budget = Arc::new(budget(1 << 20));
        let aborted = Outbox::new(Arc::clone(&budget), 2);
        aborted.push(HEADER, &Bytes::new().into()).unwrap();
        aborted.abort();
        assert!(aborted.batch().await.is_none());
        assert_eq!(budget.metered.traffic.queued_bytes.load(Ordering::Relaxed), 0);
    }
}
