//! Bytes in, frames out, and back.
//!
//! **Shape:** the length of what follows (4 bytes), an id (8 bytes), a payload; integers in network order.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// Appends a frame.
pub(super) fn put(out: &mut BytesMut, id: u64, payload: &[u8]) {
    out.reserve(LENGTH_BYTES + ID_BYTES + payload.len());
    out.put_u32(u32::try_from(ID_BYTES + payload.len()).expect("payloads are a few MiB at most"));
    out.put_u64(id);
    out.put_slice(payload);
}

/// Takes the first frame, once all of it is there.
pub(super) fn take(read: &mut BytesMut) -> Option<(u64, Bytes)> {
    let length = read.first_chunk::<LENGTH_BYTES>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if read.len() < LENGTH_BYTES + length {
        return None;
    }
    read.advance(LENGTH_BYTES);
    let mut frame = read.split_to(length).freeze();
    let id = frame.get_u64();
    Some((id, frame))
}

/// Reads what there is; false at the end.
pub(super) async fn fill(read: &mut BytesMut, from: &mut (impl AsyncRead + Unpin)) -> bool {
    read.reserve(READ_BYTES);
    matches!(from.read_buf(read).await, Ok(1..))
}

/// Writes batches of frames, all that wait at once.
pub(super) async fn write(mut queue: mpsc::Receiver<Bytes>, mut to: impl AsyncWrite + Unpin) {
    let (mut batches, mut out) = (Vec::with_capacity(BATCHES), BytesMut::with_capacity(READ_BYTES));
    while queue.recv_many(&mut batches, BATCHES).await > 0 {
        let written = if let [batch] = &batches[..] {
            to.write_all(batch).await
        } else {
            out.clear();
            batches.iter().for_each(|batch| out.extend_from_slice(batch));
            to.write_all(&out).await
        };
        batches.clear();
        if written.is_err() {
            return;
        }
    }
}

const LENGTH_BYTES: usize = 4;
const ID_BYTES: usize = 8;
/// Room for one read.
pub(super) const READ_BYTES: usize = 65_536;
/// Batches written at once.
pub(super) const BATCHES: usize = 256;
