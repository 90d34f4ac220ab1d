//! Bytes of a receiving half in, frames out; batches in, bytes on a sending half out. The same for every transport.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use capd_proto::frame::{Decoder, Frame, FrameError};
use capd_proto::limits::QUIC_CODE_CANCEL;
use quinn::VarInt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::outbox::{Batch, Outbox};

/// A receiving half of any transport.
pub(super) type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
/// A sending half of a byte stream.
pub(super) type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// The frames of one receiving half.
pub(super) struct FrameReader<R> {
    receive: R,
    decoder: Decoder,
    buffer: BytesMut,
    /// Bytes made ready for the next read; follows what the peer sends, so that an idle link costs little.
    read_bytes: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames whose length is at most `frame_length_max`.
    pub(super) fn new(receive: R, frame_length_max: u32) -> Self {
        Self {
            receive,
            decoder: Decoder::new(frame_length_max),
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
        }
    }

    /// Bounds the frames from here on.
    pub(super) fn set_frame_length_max(&mut self, bytes: u32) {
        self.decoder = Decoder::new(bytes);
    }

    /// The next frame that has arrived whole. **Errors:** the bytes are not frames (PROTOCOL 3).
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        self.decoder.decode(&mut self.buffer)
    }

    /// Waits for more bytes; `false` at their end. Cancelling loses nothing.
    ///
    /// PROTOCOL 3: the buffer grows with the bytes that arrived, never by what a header promises.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(self.read_bytes);
        let bytes = self.receive.read_buf(&mut self.buffer).await?;
        if bytes >= self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
            // A peer that is always ahead of us must not keep the writer in the same task from its turn.
            tokio::task::yield_now().await;
        }
        Ok(bytes > 0)
    }

    /// Whether the bytes ended inside a frame.
    pub(super) fn is_cut(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads and forgets what still comes, for a while: a byte stream that is closed with bytes unread is reset, and
    /// the reset would overtake the last frame we sent.
    pub(super) async fn linger(&mut self) {
        let drained = async {
            for _ in 0..LINGER_READS_MAX {
                self.buffer.clear();
                if !matches!(self.fill().await, Ok(true)) {
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
            Self::Quic(stream) => Ok(stream.write_all_chunks(&mut batch.chunks).await?),
            Self::Bytes(stream) => {
                write_chunks(stream, &mut batch.chunks).await?;
                stream.flush().await
            }
        }
    }

    /// Ends the stream after what was written. On QUIC it returns when the peer has it all, or stopped the stream.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Quic(stream) => {
                // Finishing twice, or after a reset, changes nothing.
                let _closed = stream.finish();
                stream.stopped().await?;
                Ok(())
            }
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

/// Whether a read failed because the peer reset the stream to cancel its call. **Source:** PROTOCOL 4.
pub(super) fn is_cancelled_by_peer(error: &io::Error) -> bool {
    let reset = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(reset, Some(quinn::ReadError::Reset(code)) if *code == CANCEL)
}

/// QUIC application error code that cancels a stream's single call. **Source:** PROTOCOL 4.
pub(super) const CANCEL: VarInt = VarInt::from_u32(QUIC_CODE_CANCEL);

/// Bytes made ready for a read on a quiet link.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Bytes made ready for a read on a busy one.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Pieces given to the system in one write.
const SLICES_MAX: usize = 64;
/// Longest wait for a peer to take the last frame and close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Most reads while lingering.
const LINGER_READS_MAX: usize = 1_024;
