//! Waits until a full socket accepts bytes again.
//!
//! A socket that is watched for writing wakes its task whenever sent bytes were read: for a datagram on loopback at
//! once, for a message on a unix socket when its reader has it. Nearly always nobody needs that wake-up. So these
//! sockets are watched for reading, and for writing only while they are full.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What is watched: sockets of the standard library, each of which has one descriptor for as long as it lives.
pub(crate) trait Descriptor: AsFd + AsRawFd {}

impl Descriptor for OwnedFd {}
impl Descriptor for TcpStream {}
impl Descriptor for UdpSocket {}
impl Descriptor for UnixStream {}

/// Watches `socket`, which does not block, for `interest` alone. **Errors:** the system refuses.
#[expect(
    deprecated,
    reason = "what took its place is unsafe, for descriptors that change under way; those of the trait do not"
)]
pub(crate) fn watch<D: Descriptor>(socket: D, interest: Interest) -> io::Result<AsyncFd<D>> {
    AsyncFd::with_interest(socket, interest)
}

/// Waits until a socket takes bytes again.
#[derive(Debug, Default)]
pub(crate) struct WhenWritable(Option<AsyncFd<OwnedFd>>);

impl WhenWritable {
    /// Whether `socket`, which was full, takes bytes again; wakes the task when it does. **Errors:** no descriptor is left.
    pub(crate) fn poll(&mut self, socket: &impl AsFd, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let watched = match &self.0 {
            Some(watched) => watched,
            None => {
                let again = socket.as_fd().try_clone_to_owned()?;
                self.0.insert(watch(again, Interest::WRITABLE)?)
            }
        };
        ready!(watched.poll_write_ready(context))?.retain_ready();
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}
