//! Accepts and dials peer links over one UDP socket (PROTOCOL 4, QUIC binding).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use capd_proto::identity::{Did, PublicKey};
use capd_proto::link::Role;
use quinn::crypto::HmacKey;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, IdleTimeout,
    Incoming, MtuDiscoveryConfig, ServerConfig, TransportConfig, TransportErrorCode, VarInt,
};
use ring::hmac;
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::Refused;
use super::close::CloseReason;
use super::dial::ConnectError;
use super::driver::{self, Opening};
use super::greeting::End;
use super::host::{Host, Permits};
use super::key_file::Seed;
use super::link::{Kind, Link};
use super::meter::Limit;
use super::settings::Settings;
use super::system::{DATAGRAM_BYTES_MAX, Random};
use super::tls;
use super::wire::Sender;

/// Accepts links of peers at `address` until the host shuts down; returns the bound address. Later dialled links use
/// the same socket if possible.
///
/// **Errors:** the address cannot be bound, or the host has no identity.
pub fn listen(host: &Arc<Host>, address: SocketAddr) -> io::Result<SocketAddr> {
    let crypto = QuicServerConfig::try_from(host.credentials()?.server()).map_err(io::Error::other)?;
    let server = ServerConfig::with_crypto(Arc::new(crypto));
    let mut configs = Configs::new(&server, host.settings());
    let endpoint = bind(address, Some(ServerConfig::clone(&configs.many)), host)?;
    let bound = endpoint.local_addr()?;
    host.quic().push(endpoint.clone());
    let host = Arc::clone(host);
    let tasks = host.tasks.clone();
    tasks.spawn(async move {
        loop {
            let incoming = tokio::select! {
                biased;
                () = host.shutdown.cancelled() => break,
                incoming = endpoint.accept() => incoming,
            };
            let Some(incoming) = incoming else { break };
            let settings = host.settings();
            if !Arc::ptr_eq(&settings, &configs.settings) {
                configs = Configs::new(&server, settings);
                endpoint.set_server_config(Some(ServerConfig::clone(&configs.many)));
            }
            if host.is_crowded() && incoming.may_retry() {
                // It is told to come again with a token, which a forged address never receives.
                host.meter.refused(Limit::LinksUnvalidated);
                if let Err(error) = incoming.retry() {
                    debug!(%error, "no retry");
                }
                continue;
            }
            let permits = match host.peer_permits(incoming.remote_address()) {
                Ok(permits) => permits,
                Err(limit) => {
                    debug!(remote = %incoming.remote_address(), ?limit, "the limit of links is reached");
                    turn_away(incoming);
                    continue;
                }
            };
            let host = Arc::clone(&host);
            let config = Arc::clone(if host.has_many_links() { &configs.many } else { &configs.few });
            let tasks = host.tasks.clone();
            tasks.spawn(async move {
                let remote = incoming.remote_address();
                // A link that is open by then drains by itself.
                let served = host.shutdown.run_until_cancelled(serve(&host, incoming, config, permits)).await;
                if let Some(Err(reason)) = served {
                    debug!(%remote, %reason, "no link");
                }
            });
        }
        endpoint.set_server_config(None);
    });
    Ok(bound)
}

/// What links are accepted with.
struct Configs {
    settings: Arc<Settings>,
    /// For one of few links.
    few: Arc<ServerConfig>,
    /// For one of many.
    many: Arc<ServerConfig>,
}

impl Configs {
    fn new(server: &ServerConfig, settings: Arc<Settings>) -> Self {
        let with = |datagram_bytes_max| {
            let mut config = server.clone();
            config.transport_config(transport(&settings, datagram_bytes_max));
            config.max_incoming(settings.links_opening_max);
            Arc::new(config)
        };
        let (few, many) = (with(DATAGRAM_BYTES_MAX), with(DATAGRAM_BYTES_MAX_OF_MANY));
        Self { settings, few, many }
    }
}

/// Opens a link to the peer at `address`, which must be `pin` when one is given.
///
/// **Errors:** [`ConnectError`]; then nothing is left behind.
pub async fn connect(
    host: &Arc<Host>,
    address: SocketAddr,
    pin: Option<&Did>,
) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let (config, pinned) = host.credentials()?.client(pin).map_err(io::Error::other)?;
    let crypto = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(&host.settings(), DATAGRAM_BYTES_MAX));
    let random = host.system.random.clone();
    config.initial_dst_cid_provider(Arc::new(move || random_id(&random)));
    let endpoint = dialler(host, address)?;
    let connecting = endpoint.connect_with(config, address, SERVER_NAME).map_err(io::Error::other)?;
    let connection = match timeout_at(deadline, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(ConnectError::of(error.into(), pin, &pinned)),
        Err(_elapsed) => return Err(CloseReason::OpenTimedOut.into()),
    };
    // PROTOCOL 4: the client's first bidirectional stream is the control stream.
    let control = connection.open_bi().await.map_err(io::Error::from)?;
    let opening = opening(connection, control, Role::Client, deadline, None)?;
    Ok(driver::open(host, opening).await?)
}

/// Says so to those whose address is proven; an answer to a forged one would go to somebody else.
fn turn_away(incoming: Incoming) {
    if incoming.remote_address_validated() {
        incoming.refuse();
    } else {
        incoming.ignore();
    }
}

async fn serve(
    host: &Arc<Host>,
    incoming: Incoming,
    config: Arc<ServerConfig>,
    permits: Permits,
) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let address = incoming.remote_address();
    let accepting = async {
        let connection = incoming.accept_with(config)?.await?;
        let control = connection.accept_bi().await?;
        Ok((connection, control))
    };
    let (connection, control) = match timeout_at(deadline, accepting).await {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => {
            if is_other_wanted(&error) {
                let reason = CloseReason::other_wanted();
                host.service.on_refused(&Refused { peer: None, address, reason: &reason });
            }
            return Err(io::Error::from(error).into());
        }
        Err(_elapsed) => {
            host.meter.refused(Limit::HandshakeTime);
            return Err(CloseReason::OpenTimedOut.into());
        }
    };
    let opening = opening(connection, control, Role::Server, deadline, Some(permits))?;
    Ok(driver::open(host, opening).await?)
}

/// Whether the peer gave up on our certificate: it pins another identity.
fn is_other_wanted(error: &quinn::ConnectionError) -> bool {
    // RFC 9001 4.8: a TLS alert is the error 0x0100 and its number.
    let alert = TransportErrorCode::crypto(AlertDescription::CertificateUnknown.into());
    matches!(error, quinn::ConnectionError::ConnectionClosed(closed) if closed.error_code == alert)
}

fn opening(
    connection: Connection,
    (send, receive): (quinn::SendStream, quinn::RecvStream),
    role: Role,
    deadline: Instant,
    permits: Option<Permits>,
) -> io::Result<Opening> {
    Ok(Opening {
        role,
        end: End::peer(Kind::PeerQuic, principal(&connection)?, connection.remote_address()),
        receive: Box::new(receive),
        send: Sender::Quic(send),
        connection: Some(connection),
        permits,
        deadline,
    })
}

fn principal(connection: &Connection) -> io::Result<PublicKey> {
    let identity = connection
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    tls::principal(&identity.unwrap_or_default()).map_err(io::Error::other)
}

/// What a peer may have on the way to us on one link: [`WINDOW_BYTES_MIN`] at first.
///
/// What has come and is not read yet is held, so there is no more of it than the link's round trip takes: the shortest
/// that was seen, since a longer one is mostly a queue.
pub(super) struct Window {
    connection: Connection,
    bytes_max: u32,
    /// What it was fitted to, [`UNFITTED`] or [`OPEN`]: two words in all, for a link that carries nothing large.
    bytes: AtomicU32,
}

impl Window {
    /// The window of `connection`, which is `bytes_max` at most.
    pub(super) const fn new(connection: Connection, bytes_max: u32) -> Self {
        Self { connection, bytes_max, bytes: AtomicU32::new(UNFITTED) }
    }

    /// Fits it to the round trip.
    pub(super) fn fit(&self) {
        let bytes = window_bytes(self.connection.rtt(), self.bytes_max);
        let smaller = |fitted| match fitted {
            OPEN => None,
            UNFITTED => Some(bytes),
            fitted => (bytes < fitted).then_some(bytes),
        };
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smaller).is_ok() {
            self.connection.set_receive_window(bytes.into());
        }
    }

    /// Opens it as far as it goes, for good: what waits unread on some streams must leave room for the others.
    pub(super) fn open(&self) {
        if self.bytes.swap(OPEN, Ordering::Relaxed) != OPEN {
            self.connection.set_receive_window(self.bytes_max.into());
        }
    }
}

/// A window that nothing large has come through.
const UNFITTED: u32 = 0;
/// A window that is not fitted any more.
const OPEN: u32 = u32::MAX;

/// What [`LINK_BYTES_PER_S`] need over a round trip.
fn window_bytes(round_trip: Duration, bytes_max: u32) -> u32 {
    let bytes = LINK_BYTES_PER_S * round_trip.as_micros() / Duration::from_secs(1).as_micros();
    let bytes = u32::try_from(bytes).ok().and_then(u32::checked_next_power_of_two).unwrap_or(u32::MAX);
    bytes.max(WINDOW_BYTES_MIN).min(bytes_max)
}

/// Lets the peer have so many streams open at once, the control stream among them.
pub(super) fn grant_streams(connection: &Connection, streams: u32) {
    connection.set_max_concurrent_bi_streams(streams.into());
}

/// Streams that a peer may have open before it has used any.
pub(super) fn streams_first(settings: &Settings) -> u32 {
    streams_step(STREAMS_FIRST, settings.streams_max)
}

/// The next grant of about `streams`: all there are, unless as many again are left for another one. quinn tells a peer of
/// a grant only when it is more than an eighth.
pub(super) const fn streams_step(streams: u32, streams_max: u32) -> u32 {
    if streams_max / 2 < streams { streams_max } else { streams }
}

fn transport(settings: &Settings, datagram_bytes_max: u16) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    // A duration beyond QUIC's range is one that never passes.
    config.max_idle_timeout(IdleTimeout::try_from(settings.idle_timeout).ok());
    config.keep_alive_interval(Some(settings.keep_alive_interval));
    // quinn keeps a record of each stream that a peer may open, used or not, on every connection.
    config.max_concurrent_bidi_streams(streams_first(settings).into());
    config.max_concurrent_uni_streams(VarInt::from_u32(0));
    config.datagram_receive_buffer_size(None);
    config.stream_receive_window(settings.stream_window_bytes.into());
    config.receive_window(WINDOW_BYTES_MIN.into());
    config.send_window(settings.link_window_bytes.into());
    let mut packets = MtuDiscoveryConfig::default();
    packets.upper_bound(datagram_bytes_max);
    config.mtu_discovery_config(Some(packets));
    Arc::new(config)
}

fn bind(address: SocketAddr, config: Option<ServerConfig>, host: &Host) -> io::Result<Endpoint> {
    let random = &host.system.random;
    let mut endpoint =
        host.reset_key().map_or_else(EndpointConfig::default, |key| key.endpoint(random.clone()));
    endpoint.max_udp_payload_size(DATAGRAM_BYTES_MAX).map_err(io::Error::other)?;
    endpoint.rng_seed(Some(random.bytes().map_err(io::Error::other)?));
    host.system.udp.endpoint(address, host.settings().udp_buffer_bytes, endpoint, config)
}

/// A key that follows from the identity, so that a sidecar which starts again can prove to its peers that the links to
/// its former process are gone (RFC 9000 10.3); they would learn it only from silence otherwise.
pub(super) struct ResetKey(Arc<hmac::Key>);

impl ResetKey {
    pub(super) fn of(seed: &Seed) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, seed.expose());
        let key = hmac::sign(&root, b"capd quic stateless reset");
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())))
    }

    fn endpoint(&self, random: Random) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::clone(&self.0) as Arc<dyn HmacKey>);
        config.cid_generator(move || Box::new(RandomIds(random.clone())));
        config
    }
}

/// Connection ids that every process of this identity takes for its own, its former ones included: quinn's default
/// takes packets of another process for noise, and stays silent.
struct RandomIds(Random);

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        random_id(&self.0)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn random_id(random: &Random) -> ConnectionId {
    let bytes: [u8; CONNECTION_ID_BYTES] = random.bytes().expect("the system has randomness");
    ConnectionId::new(&bytes)
}

/// A socket that reaches `address`: one that listens if any does, else one that only dials.
fn dialler(host: &Host, address: SocketAddr) -> io::Result<Endpoint> {
    let mut endpoints = host.quic();
    let reaching = |endpoint: &&Endpoint| endpoint.local_addr().is_ok_and(|local| reaches(local, address));
    if let Some(endpoint) = endpoints.iter().find(reaching) {
        return Ok(endpoint.clone());
    }
    let endpoint = bind(unspecified(address), None, host)?;
    endpoints.push(endpoint.clone());
    Ok(endpoint)
}

/// Whether a socket bound to `local` can send to `remote`.
fn reaches(local: SocketAddr, remote: SocketAddr) -> bool {
    local.is_ipv4() == remote.is_ipv4()
        && (local.ip().is_unspecified() || local.ip().is_loopback() == remote.ip().is_loopback())
}

const fn unspecified(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// The name a TLS client must give; nobody reads it (PROTOCOL 2: names carry no meaning).
const SERVER_NAME: &str = "capd.invalid";
/// RFC 9000 5.1: long enough that ids never meet by chance.
const CONNECTION_ID_BYTES: usize = 8;
/// What a link's window lets through: ten gigabits a second.
const LINK_BYTES_PER_S: u128 = 1_250_000_000;
/// The window of a link that has not carried anything large, and of the shortest round trips: room for most of a
/// millisecond in which nobody reads.
const WINDOW_BYTES_MIN: u32 = 1024 * 1024;
/// Longest datagram on links that a sidecar with many of them takes: one of usual Ethernet over IPv6. quinn keeps on every
/// link what it once needed for the longest packet that it tried there.
const DATAGRAM_BYTES_MAX_OF_MANY: u16 = 1_452;
/// Streams that a peer may have open at first: as many as our own sidecars open while messages are small.
const STREAMS_FIRST: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_room_for_what_comes_in_a_round_trip() {
        const MIB: u32 = 1024 * 1024;
        let window = |micros| window_bytes(Duration::from_micros(micros), 32 * MIB);
        assert_eq!([0, 100, 800].map(window), [MIB; 3]);
        assert_eq!([1_000, 3_000, 10_000].map(window), [2 * MIB, 4 * MIB, 16 * MIB]);
        assert_eq!([30_000, 1_000_000, u64::MAX].map(window), [32 * MIB; 3]);
        assert_eq!(window_bytes(Duration::ZERO, 1_000), 1_000, "the owner's bound is above all");
    }
}
