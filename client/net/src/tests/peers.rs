//! Tests peers that hold a valid key and misuse the link: HELLO over TLS, and exchange streams over QUIC.

use std::net::SocketAddr;

use capd_proto::code::Code;
use capd_proto::frame::{FrameType, encode};
use capd_proto::identity::Identity;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::connection::CANCEL;
use super::super::tls::Credentials;
use super::super::{quic, tcp};
use super::bytes_peer::BytesPeer;
use super::*;

pub(super) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const SEED: [u8; 32] = [2; 32];

pub(super) fn credentials() -> Credentials {
    Credentials::new(&Seed::new(SEED), System::real().crypto).unwrap()
}

pub(super) async fn tls_peer(sidecar: &End) -> BytesPeer {
    let address = tcp::listen(&sidecar.host, LOOPBACK).await.unwrap();
    let (config, _) = credentials().client(None).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
    let (receive, send) = tokio::io::split(stream);
    BytesPeer::peer(Box::new(receive), Box::new(send), SEED, sidecar.did().to_string())
}

/// A raw QUIC connection to `sidecar` whose control stream carries an open link.
pub(super) struct QuicPeer {
    pub(super) connection: quinn::Connection,
    pub(super) control: BytesPeer,
    pub(super) link: Arc<Link>,
    _endpoint: quinn::Endpoint,
}

async fn quic_connection(sidecar: &End) -> (quinn::Endpoint, quinn::Connection) {
    let address = quic::listen(&sidecar.host, LOOPBACK).unwrap();
    let (config, _) = credentials().client(None).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let endpoint = quinn::Endpoint::client(LOOPBACK).unwrap();
    let connection = endpoint.connect_with(config, address, "anything").unwrap().await.unwrap();
    (endpoint, connection)
}

pub(super) async fn quic_peer(sidecar: &mut End) -> QuicPeer {
    let (endpoint, connection) = quic_connection(sidecar).await;
    let (send, receive) = connection.open_bi().await.unwrap();
    let mut control = BytesPeer::peer(Box::new(receive), Box::new(send), SEED, sidecar.did().to_string());
    control.handshake().await;
    control.write(FrameType::AmpMessage, &control.hello()).await;
    let link = sidecar.opened().await;
    assert_eq!(control.frame().await.unwrap().frame_type, FrameType::AmpMessage);
    QuicPeer { connection, control, link, _endpoint: endpoint }
}

pub(super) fn message(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(FrameType::AmpMessage, payload, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_peer_says_hello_as_the_key_it_showed() {
    let mut sidecar = End::sidecar(1);
    let mut peer = tls_peer(&sidecar).await;
    peer.handshake().await;
    peer.write(FrameType::AmpMessage, &peer.hello()).await;
    let link = sidecar.opened().await;
    assert_eq!(link.principal().as_str(), peer.from);

    let sidecar = End::sidecar(1);
    let mut peer = tls_peer(&sidecar).await;
    peer.handshake().await;
    let other = Identity::from_seed([3; 32]);
    peer.from = other.did().to_string();
    peer.identity = Some(other);
    peer.write(FrameType::AmpMessage, &peer.hello()).await;
    assert_eq!(peer.error_and_end().await.0, Code::UNAUTHORIZED);
}

#[tokio::test]
async fn a_hello_without_a_good_signature_is_1002() {
    for forger in [None, Some(Identity::from_seed([3; 32]))] {
        let sidecar = End::sidecar(1);
        let mut peer = tls_peer(&sidecar).await;
        peer.handshake().await;
        peer.identity = forger;
        peer.write(FrameType::AmpMessage, &peer.hello()).await;
        assert_eq!(peer.error_and_end().await.0, Code::INVALID_SIGNATURE);
    }
}

#[tokio::test]
async fn channel_auth_holds_when_both_sides_name_it() {
    for (ours, theirs) in [(true, true), (true, false), (false, true)] {
        let mut sidecar = End::sidecar_with(1, Settings { channel_auth: ours, ..settings() });
        let mut peer = tls_peer(&sidecar).await;
        let agreed = peer.handshake_with(theirs.then_some("channel-auth")).await;
        peer.identity = None;
        peer.write(FrameType::AmpMessage, &peer.hello()).await;
        if ours && theirs {
            assert_eq!(agreed, ["channel-auth"]);
            assert!(sidecar.opened().await.channel_auth());
        } else {
            assert!(agreed.is_empty());
            assert_eq!(peer.error_and_end().await.0, Code::INVALID_SIGNATURE);
        }
    }
}

#[tokio::test]
async fn a_stream_takes_many_requests_and_each_answer_goes_back_on_it() {
    let mut sidecar = End::sidecar(1);
    let peer = quic_peer(&mut sidecar).await;
    let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
    for n in 0..3 {
        send.write_all(&message(format!("?{n}").as_bytes())).await.unwrap();
        let mut answer = vec![0; message(b"!0").len()];
        receive.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, message(format!("!{n}").as_bytes()));
    }
}

#[tokio::test]
async fn a_finished_stream_ends_on_our_side_when_its_last_route_is_gone() {
    let mut sidecar = End::sidecar(1);
    sidecar.hold();
    let peer = quic_peer(&mut sidecar).await;
    let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?one")).await.unwrap();
    send.finish().unwrap();
    let (_, route) = sidecar.message().await;
    route.send(Bytes::from_static(b"progress")).unwrap();
    route.send(Bytes::from_static(b"result")).unwrap();
    drop(route);
    let all = timeout(PATIENCE, receive.read_to_end(1_000)).await.unwrap().unwrap();
    assert_eq!(all, [message(b"progress"), message(b"result")].concat());
}

#[tokio::test]
async fn a_reset_or_a_stop_with_the_cancel_code_cancels_a_single_call_once() {
    for (reset, stop) in [(true, false), (false, true), (true, true)] {
        let mut sidecar = End::sidecar(1);
        sidecar.hold();
        let peer = quic_peer(&mut sidecar).await;
        let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(&message(b"?one")).await.unwrap();
        let (_, route) = sidecar.message().await;
        if reset {
            send.reset(CANCEL).unwrap();
        }
        if stop {
            receive.stop(CANCEL).unwrap();
        }
        assert!(matches!(sidecar.next().await, Event::Reset(told) if told.is_same(&route)));
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(&message(b"?two")).await.unwrap();
        assert_eq!(&sidecar.message().await.0[..], b"?two");
        assert!(sidecar.events.try_recv().is_err(), "told once");
    }
}

#[tokio::test]
async fn a_call_that_waits_for_those_of_other_streams_is_handed_up_before_its_reset() {
    let mut sidecar = End::sidecar(1);
    sidecar.hold();
    let peer = quic_peer(&mut sidecar).await;
    // So many calls in flight that others are waited for.
    let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?held").repeat(8)).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(sidecar.message().await);
    }
    let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?one")).await.unwrap();
    // In the same packet: nothing was awaited that had to come first.
    receive.stop(CANCEL).unwrap();
    let (payload, route) = sidecar.message().await;
    assert_eq!(&payload[..], b"?one");
    assert!(matches!(sidecar.next().await, Event::Reset(told) if told.is_same(&route)));
    assert_eq!(sidecar.probe.gathered_streams.load(Ordering::Relaxed), 1, "it had waited");
}

#[tokio::test]
async fn no_reset_cancels_a_call_on_a_stream_of_several_or_with_another_code() {
    let mut sidecar = End::sidecar(1);
    sidecar.hold();
    let peer = quic_peer(&mut sidecar).await;
    let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&[message(b"?one"), message(b"?two")].concat()).await.unwrap();
    let _held = [sidecar.message().await, sidecar.message().await];
    send.reset(CANCEL).unwrap();
    let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?three")).await.unwrap();
    let _held_too = sidecar.message().await;
    send.reset(quinn::VarInt::from_u32(7)).unwrap();
    let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?four")).await.unwrap();
    assert_eq!(&sidecar.message().await.0[..], b"?four");
    assert!(sidecar.events.try_recv().is_err());
    assert!(!peer.link.is_closed());
}

#[tokio::test]
async fn a_half_sent_request_that_is_reset_never_reaches_the_service() {
    let mut sidecar = End::sidecar(1);
    let peer = quic_peer(&mut sidecar).await;
    let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(&[b'?'; 10_000])[..5_000]).await.unwrap();
    send.reset(CANCEL).unwrap();
    let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
    send.write_all(&message(b"?next")).await.unwrap();
    let mut answer = vec![0; message(b"!next").len()];
    receive.read_exact(&mut answer).await.unwrap();
    assert!(sidecar.events.try_recv().is_err());
}

#[tokio::test]
async fn only_messages_belong_on_an_exchange_stream() {
    let bad: [(&str, &[u8]); 4] = [
        ("PING", &[0, 0, 0, 1, 3]),
        ("HANDSHAKE", &[0, 0, 0, 2, 2, 0xa0]),
        ("unknown type", &[0, 0, 0, 1, 0x77]),
        ("cut", &[0, 0, 0, 9, 1, 2]),
    ];
    for (what, bytes) in bad {
        let mut sidecar = End::sidecar(1);
        let mut peer = quic_peer(&mut sidecar).await;
        let (mut send, _receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
        let (code, message) = peer.control.error_and_end().await;
        assert_eq!(code, Code::INVALID_MESSAGE, "{what}: {message}");
        assert!(matches!(sidecar.closed().await, CloseReason::Fault(_)), "{what}");
    }
}

/// A connection whose control stream has had the handshake, and no HELLO.
async fn unopened(sidecar: &End) -> (quinn::Endpoint, quinn::Connection, BytesPeer) {
    let (endpoint, connection) = quic_connection(sidecar).await;
    let (send, receive) = connection.open_bi().await.unwrap();
    let mut control = BytesPeer::peer(Box::new(receive), Box::new(send), SEED, sidecar.did().to_string());
    control.handshake().await;
    (endpoint, connection, control)
}

#[tokio::test]
async fn what_an_exchange_stream_brings_before_hello_ends_the_link_at_once() {
    let ping = {
        let mut bytes = Vec::new();
        encode(FrameType::Ping, b"", &mut bytes).unwrap();
        bytes
    };
    let header = message(&[0; 100])[..5].to_vec();
    for (bytes, code) in [
        (message(b"?early"), Code::UNSUPPORTED_VERSION),
        (header, Code::UNSUPPORTED_VERSION),
        (ping, Code::INVALID_MESSAGE),
        (vec![0xff; 5], Code::INVALID_MESSAGE),
    ] {
        let mut sidecar = End::sidecar(1);
        let (_endpoint, connection, mut control) = unopened(&sidecar).await;
        let (mut early, _answer) = connection.open_bi().await.unwrap();
        early.write_all(&bytes).await.unwrap();
        let told = timeout(Duration::from_secs(2), control.error_and_end()).await.expect("at once");
        assert_eq!(told.0, code, "{bytes:?}: {told:?}");
        assert!(sidecar.events.try_recv().is_err(), "the service learns nothing of it");
    }
}

#[tokio::test]
async fn streams_that_bring_no_frame_before_hello_change_nothing() {
    let mut sidecar = End::sidecar(1);
    let (_endpoint, connection, mut control) = unopened(&sidecar).await;
    for bytes in [&b""[..], &[0, 0]] {
        let (mut early, mut answer) = connection.open_bi().await.unwrap();
        early.write_all(bytes).await.unwrap();
        early.finish().unwrap();
        // It is met, and forgotten.
        assert_eq!(answer.read_to_end(10).await.unwrap(), b"");
    }
    control.write(FrameType::AmpMessage, &control.hello()).await;
    sidecar.opened().await;
}

#[tokio::test]
async fn a_quic_peer_that_does_not_read_fills_the_queue_and_costs_no_more() {
    let mut sidecar = End::sidecar_with(1, Settings { outbox_bytes_max: 1 << 20, ..settings() });
    let peer = quic_peer(&mut sidecar).await;
    let payload = Bytes::from(vec![7; 60_000]);
    let mut refused = 0;
    // Between, the writer takes its turn and the peer's window fills; then nothing moves any more.
    for _ in 0..2_000 {
        match peer.link.notify(payload.clone()) {
            Ok(()) => refused = 0,
            Err(error) => {
                assert_eq!(error, super::super::SendError::Full);
                refused += 1;
            }
        }
        tokio::task::yield_now().await;
    }
    assert!(refused > 1_000, "{refused} of the last in a row were refused");
    assert!(!peer.link.is_closed());
}

#[tokio::test]
async fn shutting_down_does_not_wait_for_who_never_finishes_opening() {
    let sidecar = End::sidecar(1);
    let address = tcp::listen(&sidecar.host, LOOPBACK).await.unwrap();
    let _no_tls = TcpStream::connect(address).await.unwrap();
    let (_endpoint, _no_control) = quic_connection(&sidecar).await;
    let mut no_hello = tls_peer(&sidecar).await;
    no_hello.handshake().await;
    let since = tokio::time::Instant::now();
    sidecar.shut_down().await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_quic_peer_that_opens_no_control_stream_is_dropped_at_the_deadline() {
    let mut sidecar =
        End::sidecar_with(1, Settings { handshake_timeout: Duration::from_millis(100), ..settings() });
    let (_endpoint, connection) = quic_connection(&sidecar).await;
    timeout(PATIENCE, connection.closed()).await.expect("the connection ends");
    assert!(sidecar.events.try_recv().is_err());
}

#[tokio::test]
async fn a_peer_that_uses_its_streams_is_granted_more_up_to_the_most() {
    let mut sidecar = End::sidecar_with(1, Settings { streams_max: 100, ..settings() });
    let mut peer = quic_peer(&mut sidecar).await;
    let mut held = Vec::new();
    // The control stream is one of the hundred.
    while held.len() < 99 {
        let opening = timeout(PATIENCE, peer.connection.open_bi()).await.expect("a grant");
        let (mut send, receive) = opening.unwrap();
        send.write_all(&message(b"note")).await.unwrap();
        sidecar.message().await;
        held.push((send, receive));
    }
    let one_more = peer.connection.open_bi();
    tokio::pin!(one_more);
    // Every grant has come by the time that the sidecar answers on the control stream.
    peer.control.write(FrameType::Ping, b"grant").await;
    assert_eq!(peer.control.frame().await.unwrap().frame_type, FrameType::Pong);
    assert!(timeout(Duration::ZERO, &mut one_more).await.is_err(), "one stream too many is open");
    // quinn tells of room by eighths.
    held.truncate(80);
    timeout(PATIENCE, one_more).await.expect("room comes back").unwrap();
}
