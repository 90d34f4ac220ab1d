//! Handshakes that are begun and never ended in; places that come free in time, and no answer larger than what was
//! asked allows, out.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Connecting, Endpoint, EndpointConfig, TokioRuntime, UdpPoller};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::crowd::{address, quic_port, tcp, tcp_port};
use crate::field::Field;
use crate::peer::tls::client_config;
use crate::peer::{Certificate, RawLink, Transport, frame, fresh_seed};
use crate::support::{HANDSHAKE, PATIENCE, Setup, Sidecar, encode, map};

/// More than the places for links that are opening, which are 256.
const HALF_OPEN: usize = 300;
/// Time for a handshake in these tests: long enough for honest calls in between, short enough to wait for its end.
const HANDSHAKE_MS: &str = "2500";
/// Sockets that half-open QUIC handshakes leave from.
const DEAF_SOCKETS: usize = 10;
/// RFC 8446 5.1: the content type of TLS handshake records.
const TLS_HANDSHAKE: u8 = 22;
/// RFC 9000 14.1: a client's first datagram is no smaller.
const INITIAL_BYTES_MIN: usize = 1_200;
/// RFC 9000 8.1: what a server may send to an address that has proven nothing, for each byte that came from it.
const AMPLIFICATION_MAX: usize = 3;

fn hurried() -> Field {
    Field::with(Setup::new().set("timeouts.handshake_ms", HANDSHAKE_MS))
}

/// The first flight of a TLS client.
fn client_hello(sidecar: &Sidecar) -> Vec<u8> {
    let config = Arc::new(client_config(&sidecar.did, &Certificate::Of(fresh_seed())));
    let name = ServerName::IpAddress(tcp_port(sidecar).ip().into());
    let mut bytes = Vec::new();
    ClientConnection::new(config, name).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

/// How far attackers go: nothing at all, half a ClientHello, a whole one.
fn beginnings(hello: &[u8]) -> [Vec<u8>; 3] {
    [Vec::new(), hello[..hello.len() / 2].to_vec(), hello.to_vec()]
}

async fn half_open(to: SocketAddr, beginning: Vec<u8>) -> TcpStream {
    let mut stream = tcp(to).await.unwrap();
    // Whoever finds no place is closed at once, perhaps before this.
    let _closed = stream.write_all(&beginning).await;
    stream
}

/// Everything that comes until the sidecar closes. A reset is an end as good as any.
async fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _reset = stream.read_to_end(&mut bytes).await;
    bytes
}

#[test]
fn half_open_tls_handshakes_end_at_the_deadline_and_leave_their_places() {
    let mut field = hurried();
    let to = tcp_port(&field.sidecar);
    let beginnings = beginnings(&client_hello(&field.sidecar));
    field.withstands("half-open TLS handshakes", |field| {
        field.crowd.each(HALF_OPEN, |number| half_open(to, beginnings[number % 3].clone()))
    });
    let heard = field.crowd.each(9, |number| {
        let beginning = beginnings[number % 3].clone();
        async move { until_closed(half_open(to, beginning).await).await }
    });
    for (number, bytes) in heard.iter().enumerate() {
        // Only a whole ClientHello has an answer, and that is the server's own handshake.
        let expected = if number % 3 == 2 { Some(&TLS_HANDSHAKE) } else { None };
        assert_eq!(bytes.first(), expected, "beginning {}: {bytes:02x?}", number % 3);
    }
}

#[test]
fn half_open_quic_handshakes_are_made_to_prove_their_address_and_end_at_the_deadline() {
    let mut field = hurried();
    let (mut sent, mut received) = (0, 0);
    field.withstands("half-open QUIC handshakes", |field| {
        let clients: Vec<_> = (0..DEAF_SOCKETS).map(|_| DeafClients::of(field)).collect();
        // Each has said something, and the sidecar has answered some of them.
        let begin = std::time::Instant::now();
        let is_begun = |clients: &DeafClients| clients.sent() >= HALF_OPEN / DEAF_SOCKETS * INITIAL_BYTES_MIN;
        while !clients.iter().all(is_begun) || !clients.iter().any(DeafClients::hears) {
            assert!(begin.elapsed() < PATIENCE, "no handshake was begun");
            std::thread::yield_now();
        }
        clients
    });
    let clients: Vec<_> = (0..DEAF_SOCKETS).map(|_| DeafClients::of(&field)).collect();
    field.honest_call();
    for clients in &clients {
        // What came is looked at first: it answers what was sent by then.
        received += clients.take_received();
        sent += clients.sent();
    }
    assert!(sent > 0 && received <= AMPLIFICATION_MAX * sent, "{sent} bytes sent, {received} received");
}

#[test]
fn links_that_stop_inside_handshake_are_closed_at_the_deadline_without_a_word() {
    let mut field = hurried();
    let request = encode(&map([("version", 1.into()), ("max_msg_size", (16 * 1024 * 1024).into())]));
    let handshake = frame(HANDSHAKE, &request);
    let begun = |field: &Field| {
        let links = (0..6).flat_map(|_| Transport::ALL.map(|kind| RawLink::connect(&field.sidecar, kind)));
        let mut links: Vec<_> = links.collect();
        for (number, link) in links.iter_mut().enumerate() {
            link.send_raw(&handshake[..number % handshake.len()]);
        }
        links
    };
    field.withstands("HANDSHAKE that stops half-way", begun);
    for mut link in begun(&field) {
        assert_eq!(link.closed(), [], "{link:?}");
    }
}

/// QUIC clients that never hear an answer, at one address.
struct DeafClients {
    socket: Arc<Deaf>,
    _connecting: Vec<Connecting>,
    _endpoint: Endpoint,
}

impl DeafClients {
    fn of(field: &Field) -> Self {
        field.crowd.run(async {
            let socket = UdpSocket::bind(address()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let socket = Arc::new(Deaf { socket, sent: AtomicUsize::new(0) });
            let shared = Arc::clone(&socket) as Arc<dyn AsyncUdpSocket>;
            let runtime = Arc::new(TokioRuntime);
            let config = EndpointConfig::default();
            let endpoint = Endpoint::new_with_abstract_socket(config, None, shared, runtime).unwrap();
            let connecting = (0..HALF_OPEN / DEAF_SOCKETS).map(|_| {
                let config = client_config(&field.sidecar.did, &Certificate::Of(fresh_seed()));
                let crypto = QuicClientConfig::try_from(config).unwrap();
                let config = quinn::ClientConfig::new(Arc::new(crypto));
                endpoint.connect_with(config, quic_port(&field.sidecar), "capd").unwrap()
            });
            Self { _connecting: connecting.collect(), socket, _endpoint: endpoint }
        })
    }

    fn sent(&self) -> usize {
        self.socket.sent.load(Ordering::Relaxed)
    }

    /// Whether an answer lies there.
    fn hears(&self) -> bool {
        self.socket.socket.peek(&mut [0; 2_048]).is_ok()
    }

    /// Bytes of the answers that lie there.
    fn take_received(&self) -> usize {
        std::iter::from_fn(|| self.socket.socket.recv(&mut [0; 2_048]).ok()).sum()
    }
}

/// A socket that sends and hears nothing.
#[derive(Debug)]
struct Deaf {
    socket: UdpSocket,
    sent: AtomicUsize,
}

impl AsyncUdpSocket for Deaf {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.socket.send_to(transmit.contents, transmit.destination)?;
        self.sent.fetch_add(sent, Ordering::Relaxed);
        Ok(())
    }

    fn poll_recv(
        &self,
        _context: &mut Context<'_>,
        _buffers: &mut [IoSliceMut<'_>],
        _meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A loopback socket takes a datagram at any time.
#[derive(Debug)]
struct Writable;

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
