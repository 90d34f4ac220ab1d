//! Keeps the buffers of large frames for the next ones.
//!
//! The allocator would split a freed buffer into small pieces, and the system takes long to supply new pages for the
//! next frame.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

/// The buffers of one process, those in use among them: one is free when nobody holds a piece of it any more.
#[derive(Default)]
pub(super) struct Spare {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The one that was kept first stands first.
    buffers: Vec<Buffer>,
    bytes: usize,
}

struct Buffer {
    /// A piece of no length.
    handle: BytesMut,
    bytes: usize,
}

impl Spare {
    /// An empty buffer with room for `bytes`, and not for many more: a free one, or else a new one.
    pub(super) fn take(&self, bytes: usize) -> BytesMut {
        self.free(bytes).unwrap_or_else(|| BytesMut::with_capacity(bytes.next_multiple_of(STEP_BYTES)))
    }

    /// The same, if there is a free one.
    pub(super) fn free(&self, bytes: usize) -> Option<BytesMut> {
        let most = bytes + bytes / 8 + STEP_BYTES;
        let mut kept = self.kept();
        let fits = |buffer: &mut Buffer| {
            (bytes..=most).contains(&buffer.bytes) && buffer.handle.try_reclaim(buffer.bytes)
        };
        let at = kept.buffers.iter_mut().position(fits)?;
        let buffer = kept.buffers.remove(at);
        kept.bytes -= buffer.bytes;
        Some(buffer.handle)
    }

    /// Keeps the buffer that `rest` is the rest of, behind a frame of `frame_bytes`, until nobody holds the frame. Which
    /// was kept longest goes, free or not, where all would be more than [`KEPT_BYTES_MAX`].
    pub(super) fn keep(&self, mut rest: BytesMut, frame_bytes: usize) {
        let bytes = frame_bytes + rest.capacity();
        // The room that is left would be taken for a whole buffer.
        let handle = rest.split_off(rest.capacity());
        if bytes > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = self.kept();
        kept.bytes += bytes;
        kept.buffers.push(Buffer { handle, bytes });
        while kept.bytes > KEPT_BYTES_MAX {
            let oldest = kept.buffers.remove(0);
            kept.bytes -= oldest.bytes;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock was held leaves at worst a wrong sum, and buffers that go sooner or later.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spare").field("bytes", &self.kept().bytes).finish_non_exhaustive()
    }
}

/// What the length of a buffer is a multiple of, so that frames of about one length share them.
const STEP_BYTES: usize = 64 * 1024;
/// Most bytes of buffers that are kept, in use or not.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const FRAME_BYTES: usize = 1_000_000;

    /// Reads a frame of so many bytes, and a few of the next one, into `buffer`.
    fn read(spare: &Spare, mut buffer: BytesMut, bytes: usize) -> Bytes {
        buffer.resize(bytes + 3, 7);
        let frame = buffer.split_to(bytes).freeze();
        spare.keep(buffer, bytes);
        frame
    }

    #[test]
    fn a_buffer_serves_again_once_nobody_holds_its_frame() {
        let spare = Spare::default();
        let frame = read(&spare, spare.take(FRAME_BYTES), FRAME_BYTES);
        let (at, part) = (frame.as_ptr(), frame.slice(FRAME_BYTES - 1..));
        drop(frame);
        assert!(spare.free(FRAME_BYTES).is_none(), "a part of the frame is held");
        assert_eq!(part, [7][..]);
        drop(part);
        let buffer = spare.free(FRAME_BYTES + 1).unwrap();
        assert!(spare.free(FRAME_BYTES).is_none(), "it was given away");
        assert_eq!((buffer.as_ptr(), buffer.len()), (at, 0));
        assert!(buffer.capacity() > FRAME_BYTES);
        let frame = read(&spare, buffer, FRAME_BYTES + 1);
        assert_eq!(frame.as_ptr(), at);
    }

    #[test]
    fn a_buffer_serves_frames_of_about_its_length() {
        let spare = Spare::default();
        drop(read(&spare, spare.take(FRAME_BYTES), FRAME_BYTES));
        assert!(spare.free(FRAME_BYTES / 2).is_none());
        assert!(spare.free(FRAME_BYTES + STEP_BYTES).is_none());
        assert!(spare.free(FRAME_BYTES - STEP_BYTES).is_some());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let spare = Spare::default();
        let buffer_bytes = spare.take(FRAME_BYTES).capacity();
        let frames: Vec<_> = (0..20).map(|_| read(&spare, spare.take(FRAME_BYTES), FRAME_BYTES)).collect();
        let count = KEPT_BYTES_MAX / buffer_bytes;
        let last: Vec<_> = frames[20 - count..].iter().map(|frame| frame.as_ptr()).collect();
        drop(frames);
        let kept: Vec<_> = std::iter::from_fn(|| spare.free(FRAME_BYTES)).collect();
        assert_eq!(kept.iter().map(|buffer| buffer.as_ptr()).collect::<Vec<_>>(), last);
        drop(read(&spare, spare.take(KEPT_BYTES_MAX + 1), KEPT_BYTES_MAX + 1));
        assert!(spare.free(KEPT_BYTES_MAX + 1).is_none());
    }
}
