//! A connected byte socket in, its two halves out, which wake their task for what arrives and not for each write that its
//! reader has taken.

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
