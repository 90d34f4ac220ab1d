//! Sends and receives quinn's datagrams on a UDP socket, with as few system calls and wake-ups as possible.
//!
//! quinn's own socket is also watched for writing, and is asked for datagrams until it has none.

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

    /// quinn puts ten datagrams together, however long they are; the system takes no more than an IP packet has room
    /// for, and quinn would take the rest for lost. What is sent twice, since a later part found no room, is dropped by
    /// the other side.
    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let socket = || self.socket.get_ref().into();
        let Some(bytes) = transmit.segment_size.filter(|_| UDP_BYTES_MAX < transmit.contents.len()) else {
            return self.state.send(socket(), transmit);
        };
        let step = (UDP_BYTES_MAX / bytes).max(1) * bytes;
        transmit.contents.chunks(step).try_for_each(|contents| {
            let Transmit { destination, ecn, segment_size, src_ip, .. } = *transmit;
            self.state.send(socket(), &Transmit { destination, ecn, contents, segment_size, src_ip })
        })
    }
}

impl AsyncUdpSocket for Datagrams {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { datagrams: self, when_writable: WhenWritable::default() })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.send(transmit);
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
        let room = buffers.len().min(BUFFERS_MAX);
        let (buffers, metas) = (&mut buffers[..room], &mut metas[..room]);
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
        // Room for all that the system puts together, whatever the length of its parts.
        self.state.gro_segments().min(UDP_BYTES_MAX.div_ceil(usize::from(DATAGRAM_BYTES_MAX)))
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

/// Longest datagram that a link sends or takes: what a jumbo frame of Ethernet (9,000 bytes) has room for, less the heads
/// of IPv6 and UDP. What a path takes is found out by probing it (RFC 9000 14.3).
pub(crate) const DATAGRAM_BYTES_MAX: u16 = 8_952;
/// What UDP over IPv4 takes at once, heads aside.
const UDP_BYTES_MAX: usize = 65_507;
/// Most of quinn's buffers that are used, of 64 KiB each: they stay with the process once they were.
const BUFFERS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use super::*;

    fn loopback() -> Arc<Datagrams> {
        Datagrams::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap()
    }

    async fn received(datagrams: &Datagrams) -> Vec<Vec<u8>> {
        let bytes = usize::from(DATAGRAM_BYTES_MAX) * datagrams.max_receive_segments();
        let mut room = vec![0; bytes * quinn::udp::BATCH_SIZE];
        let mut buffers: Vec<_> = room.chunks_mut(bytes).map(IoSliceMut::new).collect();
        let mut metas = [RecvMeta::default(); quinn::udp::BATCH_SIZE];
        let count = poll_fn(|context| datagrams.poll_recv(context, &mut buffers, &mut metas)).await.unwrap();
        let each = metas[..count].iter().zip(&buffers);
        each.flat_map(|(meta, buffer)| buffer[..meta.len].chunks(meta.stride).map(<[u8]>::to_vec)).collect()
    }

    #[tokio::test]
    async fn more_than_the_system_takes_at_once_arrives_whole() {
        let (from, to) = (loopback(), loopback());
        let bytes = usize::from(DATAGRAM_BYTES_MAX);
        for (datagrams, last) in [(10, 1), (10, bytes), (8, bytes), (7, bytes), (2, 1), (1, bytes)] {
            let contents: Vec<u8> = (0..(datagrams - 1) * bytes + last).map(|at| (at % 251) as u8).collect();
            let segment_size = (1 < datagrams).then_some(bytes);
            let destination = to.local_addr().unwrap();
            let transmit =
                Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
            from.try_send(&transmit).unwrap();
            let mut arrived = Vec::new();
            while arrived.len() < datagrams {
                arrived.extend(received(&to).await);
            }
            let sent: Vec<_> = contents.chunks(bytes).map(<[u8]>::to_vec).collect();
            assert_eq!(arrived, sent, "{datagrams} datagrams, the last of {last} bytes");
        }
    }
}
