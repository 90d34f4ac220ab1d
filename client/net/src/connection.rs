//! Wraps a QUIC connection or stream: the next stream, the bytes written, and the reason of its end.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::limits::QUIC_CODE_CANCEL;
use quinn::{Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream, VarInt};
use tokio::time::timeout;

use super::close::CloseReason;

/// The next stream that the peer opens.
pub(super) async fn accept(connection: &Connection) -> Result<(SendStream, RecvStream), ConnectionError> {
    connection.accept_bi().await
}

/// Why a connection closed, if it did.
pub(super) fn close_reason(connection: &Connection) -> Option<CloseReason> {
    connection.close_reason().map(|error| lost(&error))
}

/// What an error of the connection says of its link.
pub(super) fn lost(error: &ConnectionError) -> CloseReason {
    match error {
        ConnectionError::ApplicationClosed(_) => CloseReason::PeerClosed,
        ConnectionError::TimedOut => CloseReason::Silent,
        error => CloseReason::Broken(error.to_string()),
    }
}

/// Closes a connection with the code of a fault, or 0.
pub(super) fn close(connection: &Connection, code: u32) {
    connection.close(VarInt::from_u32(code), b"");
}

/// Closes a socket, once its links have drained. Peers have a moment to hear of it; one that was dialled and never answered would
/// take seconds.
pub(super) async fn end(endpoint: Endpoint) {
    endpoint.close(VarInt::from_u32(0), b"");
    let _given_up = timeout(END_TIMEOUT, endpoint.wait_idle()).await;
}

/// Writes whole chunks to a stream.
pub(super) async fn write(stream: &mut SendStream, chunks: &mut [Bytes]) -> io::Result<()> {
    Ok(stream.write_all_chunks(chunks).await?)
}

/// Ends a stream; returns when the peer has all of it, or stopped it.
pub(super) async fn finish(stream: &mut SendStream) -> io::Result<()> {
    // Finishing twice, or after a reset, changes nothing.
    let _closed = stream.finish();
    stream.stopped().await?;
    Ok(())
}

/// Whether a read failed because the peer reset the stream to cancel its call. **Source:** PROTOCOL 4.
pub(super) fn is_cancelled_by_peer(error: &io::Error) -> bool {
    let reset = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(reset, Some(ReadError::Reset(code)) if *code == CANCEL)
}

/// QUIC application error code that cancels a stream's single call. **Source:** PROTOCOL 4.
pub(super) const CANCEL: VarInt = VarInt::from_u32(QUIC_CODE_CANCEL);
/// Longest wait of a socket for its connections to be over, those of dials among them.
const END_TIMEOUT: Duration = Duration::from_secs(1);
