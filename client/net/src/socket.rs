//! Splits a byte socket into halves that wake their task when bytes arrive, and not each time the peer has read some.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::system::{Descriptor, WhenWritable, watch};

/// A socket of the standard library.
pub(super) trait Socket: Descriptor + Send + Sync + Unpin + 'static {
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize>;
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    fn end(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
                Read::read(&mut &*self, bytes)
            }

            fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
                match pieces {
                    [only] => Write::write(&mut &*self, only),
                    pieces => Write::write_vectored(&mut &*self, pieces),
                }
            }

            fn end(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}

socket!(UnixStream);
socket!(TcpStream);

/// The halves of `socket`, which does not block. **Errors:** the system refuses to watch it.
pub(super) fn split<S: Socket>(socket: S) -> io::Result<(Receiving<S>, Sending<S>)> {
    let socket = Arc::new(watch(socket, Interest::READABLE)?);
    let sending =
        Sending { socket: Arc::clone(&socket), when_writable: WhenWritable::default(), is_full: false };
    Ok((Receiving(socket), sending))
}

/// The receiving half.
pub(super) struct Receiving<S: Socket>(Arc<AsyncFd<S>>);

impl<S: Socket> AsyncRead for Receiving<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = buffer.remaining().min(READ_BYTES_MAX);
        loop {
            let mut readable = ready!(self.0.poll_read_ready(context))?;
            // What a read gives is mostly a small part of what it has room for, and a copy of that costs less than clearing
            // all of the room beforehand.
            let read = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(READ_BYTES_MAX, 0);
                let read = readable.try_io(|socket| socket.get_ref().read(&mut scratch[..wanted]));
                if let Ok(Ok(bytes)) = read {
                    buffer.put_slice(&scratch[..bytes]);
                }
                read
            });
            match read {
                Ok(Ok(bytes)) => {
                    // Less than there is room for is all there was; what comes from here on is a new event.
                    if bytes > 0 && bytes < wanted {
                        readable.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

/// The sending half; the peer sees the end of what was sent when it is dropped.
pub(super) struct Sending<S: Socket> {
    socket: Arc<AsyncFd<S>>,
    when_writable: WhenWritable,
    is_full: bool,
}

impl<S: Socket> AsyncWrite for Sending<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            if this.is_full {
                ready!(this.when_writable.poll(this.socket.get_ref(), context))?;
                this.is_full = false;
            }
            match this.socket.get_ref().write(pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => this.is_full = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.get_ref().end())
    }
}

impl<S: Socket> Drop for Sending<S> {
    fn drop(&mut self) {
        // A socket that is closed already has nothing to end.
        let _closed = self.socket.get_ref().end();
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Most bytes of one read.
const READ_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    #[tokio::test]
    async fn more_than_a_socket_holds_arrives_whole_and_ends() {
        let (ours, theirs) = pair();
        let (_receiving, mut sending) = split(ours).unwrap();
        let (mut receiving, _sending) = split(theirs).unwrap();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut received = Vec::new();
        let send = async {
            sending.write_all(&sent).await.unwrap();
            sending.shutdown().await.unwrap();
        };
        let (_, read) = tokio::join!(send, receiving.read_to_end(&mut received));
        assert_eq!(read.unwrap(), sent.len());
        assert!(received == sent);
    }

    #[tokio::test]
    async fn a_half_that_is_dropped_ends_the_bytes_and_a_socket_that_is_gone_is_an_error() {
        let (ours, theirs) = pair();
        let (receiving, sending) = split(ours).unwrap();
        let (mut their_receiving, mut their_sending) = split(theirs).unwrap();
        drop(sending);
        assert_eq!(their_receiving.read(&mut [0; 8]).await.unwrap(), 0);
        drop(receiving);
        let error = their_sending.write_all(b"nobody reads this").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_reader_is_woken_for_bytes_and_not_for_a_write_that_was_taken() {
        let (ours, theirs) = pair();
        let (mut receiving, mut sending) = split(ours).unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let mut context = Context::from_waker(&waker);
        let mut space = [0; 64];
        let mut read = ReadBuf::new(&mut space);
        assert!(Pin::new(&mut receiving).poll_read(&mut context, &mut read).is_pending());

        sending.write_all(b"taken").await.unwrap();
        assert_eq!(Read::read(&mut &theirs, &mut [0; 64]).unwrap(), 5);
        // Another pair whose bytes arrive shows that the events so far are dealt with.
        let (marker, far) = pair();
        let (mut marked, _sending) = split(marker).unwrap();
        Write::write_all(&mut &far, b"m").unwrap();
        assert_eq!(marked.read(&mut [0; 8]).await.unwrap(), 1);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);

        Write::write_all(&mut &theirs, b"news").unwrap();
        Write::write_all(&mut &far, b"m").unwrap();
        assert_eq!(marked.read(&mut [0; 8]).await.unwrap(), 1);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(Pin::new(&mut receiving).poll_read(&mut context, &mut read).is_ready());
        assert_eq!(read.filled(), b"news");
    }
}
