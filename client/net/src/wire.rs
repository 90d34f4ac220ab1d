//! Cuts received bytes into frames, and writes batches of frames, in the same way on every transport.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use capd_proto::frame::{Decoder, Frame, FrameError};
use capd_proto::limits::{FRAME_HEADER_BYTES, FRAME_LENGTH_BYTES};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::time::{Instant, timeout, timeout_at};

use super::meter::{Limit, Traffic};
use super::outbox::{Batch, Outbox};
use super::settings::FRAME_PROGRESS_BYTES;
use super::stream::Flow;
use super::{connection, quinn};

/// A receiving half of any transport.
pub(super) type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
/// A sending half of a byte stream.
pub(super) type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// The messages of one turn.
pub(super) type Messages = SmallVec<[Bytes; TURN_FRAMES]>;

/// The frames of one receiving half.
pub(super) struct FrameReader<R> {
    receive: R,
    flow: Arc<Flow>,
    decoder: Decoder,
    /// The beginning of a large frame, of which less than half has come; `buffer` goes on behind it.
    parts: Vec<BytesMut>,
    buffer: BytesMut,
    /// Bytes made ready for the next read; follows what the peer sends, so that an idle link costs little.
    read_bytes: usize,
    /// Whether the last frame was large, so that nothing waits for the first bytes of the next one.
    is_after_large: bool,
    /// Set while a frame has begun and is not whole.
    begun: Option<Begun>,
    /// Room of the link's for a large frame that is not whole.
    room: Option<Room>,
}

/// A frame that is not whole.
#[derive(Clone, Copy)]
struct Begun {
    /// When it is given up, unless its link gets on.
    due: Instant,
    /// What the link had received before.
    received_bytes: u64,
}

/// What came of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There are more bytes.
    More,
    /// They have ended.
    End,
    /// A frame has begun and does not end.
    TooSlow,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames whose length is at most `frame_length_max`.
    pub(super) fn new(receive: R, frame_length_max: u32, flow: &Arc<Flow>) -> Self {
        Self {
            receive,
            flow: Arc::clone(flow),
            decoder: Decoder::new(frame_length_max),
            parts: Vec::new(),
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            is_after_large: false,
            begun: None,
            room: None,
        }
    }

    /// Bounds the frames from here on.
    pub(super) fn set_frame_length_max(&mut self, bytes: u32) {
        self.decoder = Decoder::new(bytes);
    }

    /// The next frame that has arrived whole. **Errors:** the bytes are not frames (PROTOCOL 3).
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.parts.is_empty() {
            return Ok(None);
        }
        let next = self.decoder.decode(&mut self.buffer);
        match &next {
            Ok(Some(frame)) => {
                self.begun = None;
                self.room = None;
                // An idle link would keep the room of its last large frame otherwise, and room for the next read would stand
                // beside it while it is looked at.
                if frame.payload.len() >= READ_BYTES_MAX / 2 {
                    let behind = BytesMut::from(&self.buffer[..]);
                    let rest = std::mem::replace(&mut self.buffer, behind);
                    let whole = FRAME_HEADER_BYTES + frame.payload.len();
                    if whole >= SPARE_FRAME_BYTES {
                        self.flow.spare.keep(rest, whole);
                    }
                    self.is_after_large = true;
                }
            }
            Err(FrameError::TooLong { .. }) => self.flow.metered().meter.refused(Limit::FrameBytes),
            Ok(None) | Err(_) => {}
        }
        next
    }

    /// Waits for more bytes, within the time that a frame may take. Cancelling loses nothing.
    ///
    /// PROTOCOL 3: the buffer grows with the bytes that arrived, never by what a header promises.
    pub(super) async fn fill(&mut self) -> io::Result<Filled> {
        if self.is_cut() {
            self.make_room().await;
        } else {
            self.begun = None;
        }
        let bytes = if self.is_cut() {
            self.reserve();
            match self.read_in_time().await? {
                Some(bytes) => bytes,
                None => return Ok(Filled::TooSlow),
            }
        } else {
            self.read_some().await?
        };
        self.flow.metered().received(bytes);
        if bytes >= self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
            // A peer that is always ahead of us must not keep others from their turns, nor the writer in the same task.
            if self.is_cut() {
                Box::pin(self.flow.turnstile().pass()).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
        Ok(if bytes > 0 { Filled::More } else { Filled::End })
    }

    /// Waits for the first bytes of a frame. On a quiet link no buffer waits with it: the bytes come by way of the stack.
    async fn read_some(&mut self) -> io::Result<usize> {
        if self.read_bytes > READ_BYTES_MIN && !self.is_after_large {
            self.buffer.reserve(self.read_bytes);
            return self.receive.read_buf(&mut self.buffer).await;
        }
        // What is left of an earlier buffer would be kept through the silence.
        self.buffer = BytesMut::new();
        let read = poll_fn(|context| {
            let mut space = [0; READ_BYTES_MIN];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.receive).poll_read(context, &mut read))?;
            self.buffer.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
        .await;
        self.is_after_large = false;
        read
    }

    /// Reads behind the beginning of a frame; `None` when the frame takes too long.
    async fn read_in_time(&mut self) -> io::Result<Option<usize>> {
        loop {
            let (traffic, timeout) = (&self.flow.metered().traffic, self.flow.frame_timeout);
            let begun = *self.begun.get_or_insert_with(|| Begun {
                due: Instant::now() + timeout,
                received_bytes: traffic.received_bytes.load(Ordering::Relaxed),
            });
            if let Ok(read) = timeout_at(begun.due, self.receive.read_buf(&mut self.buffer)).await {
                return read.map(Some);
            }
            // One of many large frames may stand still while the link is busy with the others.
            let received_bytes = self.flow.metered().traffic.received_bytes.load(Ordering::Relaxed);
            if received_bytes - begun.received_bytes < FRAME_PROGRESS_BYTES {
                self.flow.metered().meter.refused(Limit::FrameTime);
                return Ok(None);
            }
            self.begun = None;
        }
    }

    /// Takes of the link's room what the rest of a large frame needs, before its bytes are there: many streams together
    /// hold no more of them than one link may.
    async fn make_room(&mut self) {
        let Some(whole) = self.whole_bytes() else { return };
        if self.room.is_some() || self.begun_bytes() < FREE_BYTES {
            return;
        }
        self.flow.begin_large();
        let bytes = whole.saturating_sub(FRAME_LENGTH_BYTES + FREE_BYTES);
        let kib = self.flow.receive_kib(bytes);
        let permit = match Arc::clone(&self.flow.receive_room).try_acquire_many_owned(kib) {
            Ok(permit) => permit,
            Err(TryAcquireError::Closed) => return,
            Err(TryAcquireError::NoPermits) => {
                self.flow.metered().meter.refused(Limit::ReceiveBytes);
                self.flow.hold_back();
                let waiting = Arc::clone(&self.flow.receive_room).acquire_many_owned(kib);
                // Nobody closes it.
                let Ok(permit) = waiting.await else { return };
                // The wait was for us, not for the peer.
                self.begun = None;
                permit
            }
        };
        let traffic = Arc::clone(&self.flow.metered().traffic);
        traffic.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.room = Some(Room { traffic, bytes, _permit: permit });
    }

    /// Bytes that came of the frame that is not whole, and of what came behind it.
    fn begun_bytes(&self) -> usize {
        self.parts.iter().map(BytesMut::len).sum::<usize>() + self.buffer.len()
    }

    /// Bytes of the frame that is not whole, once its header says so.
    fn whole_bytes(&self) -> Option<usize> {
        let header = self.parts.first().unwrap_or(&self.buffer).first_chunk()?;
        Some(FRAME_LENGTH_BYTES + u32::from_be_bytes(*header) as usize)
    }

    /// Makes room for the next read. Small frames come many at a time.
    ///
    /// A large frame goes on in a buffer of its length at once if one is at hand, and otherwise gets one when half of it is
    /// there, or all but one read: what is refused costs no more than twice its bytes. Until then it stands in parts, none
    /// larger than a read, which serve one frame after the other.
    fn reserve(&mut self) {
        let length = self.begun_bytes();
        // The frame is not whole, or it would not stand here.
        let whole = self.whole_bytes().map_or(0, |whole| whole.max(length + 1));
        if whole < READ_BYTES_MAX / 2 {
            return self.buffer.reserve(self.read_bytes);
        }
        let read = self.read_bytes.min(whole - length);
        let free = self.buffer.capacity() - self.buffer.len();
        if free >= read || (free > 0 && length >= READ_BYTES_MAX) {
            return;
        }
        let is_half = 2 * length + SPARE_BYTES >= whole || length + read == whole;
        let room = match () {
            () if whole < SPARE_FRAME_BYTES => is_half.then(|| BytesMut::with_capacity(whole)),
            () if is_half => Some(self.flow.spare.take(whole)),
            () => self.flow.spare.free(whole),
        };
        if let Some(mut all) = room {
            for part in self.parts.drain(..) {
                all.extend_from_slice(&part);
            }
            all.extend_from_slice(&self.buffer);
            self.buffer = all;
        } else {
            let bytes = length.clamp(read, READ_BYTES_MAX);
            let part = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(bytes));
            self.parts.push(part);
        }
    }

    /// Whether the bytes ended inside a frame.
    pub(super) fn is_cut(&self) -> bool {
        self.begun_bytes() > 0
    }

    /// Reads and forgets what still comes, for a while: a byte stream that is closed with bytes unread is reset, and
    /// the reset would overtake the last frame we sent.
    pub(super) async fn linger(&mut self) {
        let drained = async {
            for _ in 0..LINGER_READS_MAX {
                self.buffer.clear();
                self.parts.clear();
                if !matches!(self.fill().await, Ok(Filled::More)) {
                    break;
                }
            }
        };
        // When time is up the reset is the lesser evil.
        let _elapsed = timeout(LINGER_TIMEOUT, drained).await;
    }

    /// The receiving half, for its own operations.
    pub(super) const fn receive_mut(&mut self) -> &mut R {
        &mut self.receive
    }
}

/// Room for a frame that is not whole, until it is dropped.
struct Room {
    traffic: Arc<Traffic>,
    bytes: usize,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.traffic.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A sending half.
pub(super) enum Sender {
    /// Of a QUIC stream.
    Quic(quinn::SendStream),
    /// Of a byte stream.
    Bytes(BoxWrite),
}

impl Sender {
    /// Writes one batch whole, and no more flushes than one.
    pub(super) async fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        match self {
            Self::Quic(stream) => connection::write(stream, &mut batch.chunks).await,
            Self::Bytes(stream) => {
                write_chunks(stream, &mut batch.chunks).await?;
                stream.flush().await
            }
        }
    }

    /// Ends the stream after what was written. On QUIC it returns when the peer has it all, or stopped the stream.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Quic(stream) => connection::finish(stream).await,
            Self::Bytes(stream) => stream.shutdown().await,
        }
    }
}

/// Writes every batch of `outbox` until it is closed and empty, then ends the sending half.
pub(super) async fn write_all(sender: &mut Sender, outbox: &Outbox) -> io::Result<()> {
    while let Some(mut batch) = outbox.batch().await {
        sender.write(&mut batch).await?;
    }
    sender.finish().await
}

async fn write_chunks(stream: &mut BoxWrite, chunks: &mut [Bytes]) -> io::Result<()> {
    if let [only] = chunks {
        return stream.write_all(only).await;
    }
    let mut first = 0;
    while first < chunks.len() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = slices.len().min(chunks.len() - first);
        for (slice, chunk) in slices.iter_mut().zip(&chunks[first..]) {
            *slice = IoSlice::new(chunk);
        }
        let mut written = stream.write_vectored(&slices[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while written > 0 {
            let taken = written.min(chunks[first].len());
            chunks[first].advance(taken);
            written -= taken;
            if chunks[first].is_empty() {
                first += 1;
            }
        }
    }
    Ok(())
}

/// Frames of one stream that are handled before what they caused is written and others have their turn: the next process
/// on a call's way begins with the first of many while this one is at work on the last.
pub(super) const TURN_FRAMES: usize = 16;
/// The same where each message is signed: signatures of one turn are checked together, which saves more than the wait costs.
pub(super) const SIGNED_TURN_FRAMES: usize = 32;
/// Bytes made ready for a read on a quiet link.
const READ_BYTES_MIN: usize = 1024;
/// Bytes made ready for a read on a busy one: what one stream copies before others have their turn, too.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes that the buffer of a large frame may have beyond twice what came of it.
const SPARE_BYTES: usize = 8 * 1024;
/// Shortest frame whose buffer is kept for another.
const SPARE_FRAME_BYTES: usize = 128 * 1024;
/// Bytes of a frame that need no room of the link's.
const FREE_BYTES: usize = 64 * 1024;
/// Pieces given to the system in one write.
const SLICES_MAX: usize = 64;
/// Longest wait for a peer to take the last frame and close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Most reads while lingering.
const LINGER_READS_MAX: usize = 1_024;
