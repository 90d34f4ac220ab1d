//! A UDP socket in, what quinn sends and receives on it out, with no more system calls and wake-ups than that takes.
//!
//! quinn's own socket is watched for writing too, and is asked for more datagrams until it has none.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::{WhenWritable, watch};

/// The system's socket of one endpoint.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// Whether the last datagram found no room.
    is_full: AtomicBool,
}

impl Datagrams {
    /// Watches `socket`. **Errors:** the system refuses an option, or to watch it.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Arc<Self>> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        let socket = watch(socket, Interest::READABLE)?;
        Ok(Arc::new(Self { socket, state, is_full: AtomicBool::new(false) }))
    }
}

impl AsyncUdpSocket for Datagrams {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { datagrams: self, when_writable: WhenWritable::default() })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.state.send(self.socket.get_ref().into(), transmit);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        sent
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut readable = ready!(self.socket.poll_read_ready(context))?;
            let Ok(received) =
                readable.try_io(|socket| self.state.recv(socket.get_ref().into(), buffers, metas))
            else {
                continue;
            };
            // Fewer than there is room for are all there were; what comes from here on is a new event.
            if received.as_ref().is_ok_and(|count| *count < buffers.len()) {
                readable.clear_ready();
            }
            return Poll::Ready(received);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Tells one connection when the socket takes datagrams again.
#[derive(Debug)]
struct Poller {
    datagrams: Arc<Datagrams>,
    when_writable: WhenWritable,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.datagrams.is_full.load(Ordering::Relaxed) {
            // Another connection may have found out first; what this one watches would go on waking it.
            this.when_writable = WhenWritable::default();
            return Poll::Ready(Ok(()));
        }
        ready!(this.when_writable.poll(this.datagrams.socket.get_ref(), context))?;
        this.datagrams.is_full.store(false, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}
