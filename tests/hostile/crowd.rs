//! A sidecar's addresses in; attackers at addresses of their own out, as many as an attack wants.
//!
//! Sockets live on a runtime that a thread of its own drives, so that they stay alive while a test waits for honest
//! peers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use capd_proto::identity::Identity;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connecting, Endpoint};
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::peer::greet::greet;
use crate::peer::tls::client_config;
use crate::peer::{Certificate, fresh_seed};
use crate::support::{PATIENCE, Sidecar};

/// Attackers that connect at the same moment; fewer than a sidecar has places for links that are opening.
const AT_ONCE: usize = 32;

/// The runtime of one test's attackers.
pub struct Crowd {
    runtime: Handle,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl Crowd {
    pub fn gather() -> Self {
        let driving = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let runtime = driving.handle().clone();
        let (running, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            driving.block_on(async {
                // The sender never sends: it is dropped.
                let _dropped = stopped.await;
            });
        });
        Self { runtime, _running: running }
    }

    /// Waits for `work`, at most [`PATIENCE`].
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, work)
                .await
                .unwrap_or_else(|_| panic!("not done within {PATIENCE:?}"))
        })
    }

    /// Lets an attack go on while the test does something else.
    pub fn spawn(&self, attack: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(attack);
    }

    /// One attacker for each of `count` numbers, several of them at once; in the order of the numbers.
    pub fn each<T, F>(&self, count: usize, attacker: impl Fn(usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.run(async {
            let mut running = JoinSet::new();
            let mut done = Vec::with_capacity(count);
            for number in 0..count {
                if running.len() == AT_ONCE {
                    done.push(running.join_next().await.expect("one is running").unwrap());
                }
                let attack = attacker(number);
                running.spawn(async move { (number, attack.await) });
            }
            done.extend(running.join_all().await);
            done.sort_unstable_by_key(|(number, _)| *number);
            done.into_iter().map(|(_, outcome)| outcome).collect()
        })
    }
}

/// An address that no other attacker of this process has.
pub fn address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // 127.16.0.1 and up: all of 127.0.0.0/8 is this machine.
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % 0x000f_0000;
    SocketAddr::from((Ipv4Addr::from(0x7f10_0001 + number), 0))
}

/// A TCP connection to the sidecar's peer port, from an address of its own.
pub async fn tcp(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(address())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The same with a TLS handshake behind it. With TLS 1.3 a client is done before the server has looked at its
/// certificate; the first read says what it thought of it.
pub async fn tls(to: SocketAddr, did: String, certificate: Certificate) -> io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::new(client_config(&did, &certificate)));
    let stream = tcp(to).await?;
    connector.connect(ServerName::IpAddress(to.ip().into()), stream).await
}

/// Where the sidecar's peers reach it over TCP.
pub fn tcp_port(sidecar: &Sidecar) -> SocketAddr {
    sidecar.tcp.expect("a TCP port")
}

/// Where they reach it over QUIC.
pub fn quic_port(sidecar: &Sidecar) -> SocketAddr {
    sidecar.quic.expect("a QUIC port")
}

/// A QUIC connection to the sidecar that is being made, from an address of its own.
pub fn quic(to: SocketAddr, did: &str, certificate: &Certificate) -> (Endpoint, Connecting) {
    let crypto = QuicClientConfig::try_from(client_config(did, certificate)).unwrap();
    let endpoint = Endpoint::client(address()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, to, "capd").unwrap();
    (endpoint, connecting)
}

/// An open link over TLS, with a key and an address of its own.
pub async fn open(to: SocketAddr, did: String) -> io::Result<TlsStream<TcpStream>> {
    let seed = fresh_seed();
    let mut stream = tls(to, did.clone(), Certificate::Of(seed)).await?;
    let (mut receive, mut send) = tokio::io::split(&mut stream);
    greet(&mut send, &mut receive, &Identity::from_seed(seed), &did).await?;
    Ok(stream)
}
