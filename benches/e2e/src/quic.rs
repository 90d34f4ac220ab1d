//! Two self-signed certificates in; QUIC connections with both sides authenticated, and calls straight over their streams,
//! out.
//!
//! The connections are those of a capd peer link as far as speed goes: the same TLS library and suites, windows and
//! socket buffers.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;

use crate::load::Callee;
use crate::payload::{Results, request, response_bytes};
use crate::role::{done, ready, rounds};

/// How calls share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// All on one stream, frame by frame.
    Multiplexed,
    /// Each on a stream of its own.
    StreamPerCall,
}

/// Writes a certificate and a key for each side to `files`.
pub(crate) fn certify(files: &Path) {
    for side in [SERVER, CLIENT] {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        std::fs::write(files.join(format!("{side}.pem")), made.cert.pem()).unwrap();
        std::fs::write(files.join(format!("{side}.key.pem")), made.signing_key.serialize_pem()).unwrap();
    }
}

/// How long packets may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Packets {
    /// As quinn has them.
    Usual,
    /// The longest of which quinn's own socket sends ten at once, as it does.
    Long,
}

/// An endpoint that lets in whoever has the client's certificate.
pub(crate) fn listen(files: &Path, packets: Packets) -> Endpoint {
    let (certificate, key) = identity(files, SERVER);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(files, CLIENT)), crypto())
        .build()
        .unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
    config.transport_config(transport(packets));
    endpoint(Some(config), packets)
}

/// A connection to such an endpoint. The endpoint goes along, since it must outlive the connection.
pub(crate) async fn connect(files: &Path, to: &str, packets: Packets) -> (Endpoint, Connection) {
    let (certificate, key) = identity(files, CLIENT);
    let mut tls = rustls::ClientConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots(files, SERVER))
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    config.transport_config(transport(packets));
    let endpoint = endpoint(None, packets);
    let connection = endpoint.connect_with(config, to.parse().unwrap(), NAME).unwrap().await.unwrap();
    (endpoint, connection)
}

/// Calls each stream of each connection's peer, on a task of its own.
pub(crate) async fn accept<S>(endpoint: Endpoint, stream: S)
where
    S: Fn(quinn::SendStream, RecvStream) + Clone + Send + 'static,
{
    while let Some(incoming) = endpoint.accept().await {
        let stream = stream.clone();
        tokio::spawn(async move {
            let connection = incoming.await.unwrap();
            while let Ok((send, receive)) = connection.accept_bi().await {
                stream(send, receive);
            }
        });
    }
}

/// Answers each stream with the result that belongs to what came on it.
pub(crate) async fn provider(files: &Path, packets: Packets) {
    let endpoint = listen(files, packets);
    let address = endpoint.local_addr().unwrap();
    let results = Arc::new(Results::default());
    tokio::spawn(accept(endpoint, move |mut send, receive| {
        let results = Arc::clone(&results);
        tokio::spawn(async move {
            let bytes = read(receive).await;
            send.write_chunk(results.of(bytes)).await.unwrap();
            send.finish().unwrap();
        });
    }));
    ready(address);
    done().await;
}

/// Calls there, a stream for each call.
pub(crate) async fn caller(files: &Path, to: &str, packets: Packets) {
    let (_endpoint, connection) = connect(files, to, packets).await;
    rounds(&Streams { connection, params: Bytes::new() }).await;
}

#[derive(Clone)]
struct Streams {
    connection: Connection,
    params: Bytes,
}

impl Callee for Streams {
    fn sized(&self, bytes: usize) -> Self {
        Self { params: request(bytes), ..self.clone() }
    }

    async fn call(&mut self) {
        let (mut send, receive) = self.connection.open_bi().await.unwrap();
        send.write_chunk(self.params.clone()).await.unwrap();
        send.finish().unwrap();
        assert_eq!(read(receive).await, response_bytes(self.params.len()));
    }
}

/// Reads a stream to its end, and says how much there was.
async fn read(mut receive: RecvStream) -> usize {
    let mut bytes = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.unwrap() {
        bytes += chunk.bytes.len();
    }
    bytes
}

fn identity(files: &Path, side: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_file(files.join(format!("{side}.pem"))).unwrap();
    (certificate, PrivateKeyDer::from_pem_file(files.join(format!("{side}.key.pem"))).unwrap())
}

fn roots(files: &Path, side: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(identity(files, side).0).unwrap();
    roots
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn transport(packets: Packets) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    if packets == Packets::Long {
        let mut lengths = MtuDiscoveryConfig::default();
        lengths.upper_bound(LONG_PACKET_BYTES);
        config.mtu_discovery_config(Some(lengths));
    }
    // Processes wait for their turn longer than quinn's idle time.
    config.max_idle_timeout(None);
    config.max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX));
    config.stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES));
    config.receive_window(VarInt::from_u32(WINDOW_BYTES));
    config.send_window(WINDOW_BYTES.into());
    Arc::new(config)
}

fn endpoint(server: Option<ServerConfig>, packets: Packets) -> Endpoint {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let options = socket2::SockRef::from(&socket);
    // The system caps what it grants.
    let _smaller = options.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _smaller = options.set_send_buffer_size(UDP_BUFFER_BYTES);
    let mut config = EndpointConfig::default();
    if packets == Packets::Long {
        config.max_udp_payload_size(LONG_PACKET_BYTES).unwrap();
    }
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).unwrap()
}

/// The names of the two sides' files.
pub(crate) const SERVER: &str = "server";
pub(crate) const CLIENT: &str = "client";
/// What both certificates are for.
pub(crate) const NAME: &str = "localhost";
const ALPN: &[u8] = b"e2e";
const STREAMS_MAX: u32 = 1_024;
/// A tenth of what UDP over IPv4 takes at once.
const LONG_PACKET_BYTES: u16 = 6_550;
const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
const WINDOW_BYTES: u32 = 32 * 1024 * 1024;
const UDP_BUFFER_BYTES: usize = 4 * 1024 * 1024;
