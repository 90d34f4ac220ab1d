//! Tests peers that take more than their share of handshakes, connections, streams, and memory for unfinished messages.

use capd_proto::frame::FrameType;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::super::connection::CANCEL;
use super::super::{Limit, quic, tcp};
use super::peers::{LOOPBACK, credentials, message, quic_peer, tls_peer};
use super::*;

#[tokio::test]
async fn a_peer_that_opens_streams_only_to_reset_them_is_cut_off() {
    let rate = Some("10/1s burst 20".parse().unwrap());
    let mut sidecar =
        End::sidecar_with(1, Settings { stream_reset_rate: rate, streams_max: 16, ..settings() });
    let mut peer = quic_peer(&mut sidecar).await;
    let mut opened = 0;
    let flood = async {
        while let Ok((mut send, _receive)) = peer.connection.open_bi().await {
            let _gone = send.write_all(&message(b"?one")).await;
            let _gone = send.reset(CANCEL);
            opened += 1;
        }
    };
    timeout(PATIENCE, flood).await.expect("the flood is cut off");
    assert!((36..2_000).contains(&opened), "{opened}");
    while let Some(frame) = peer.control.frame().await {
        assert_eq!(frame.frame_type, FrameType::Error);
    }
    assert_eq!(sidecar.host.refusals(Limit::StreamResetRate), 1);
}

#[tokio::test]
async fn streams_that_bring_messages_and_end_are_not_held_against_a_peer() {
    let rate = Some("1/1h burst 1".parse().unwrap());
    let mut sidecar =
        End::sidecar_with(1, Settings { stream_reset_rate: rate, streams_max: 4, ..settings() });
    let peer = quic_peer(&mut sidecar).await;
    for _ in 0..100 {
        let (mut send, mut receive) = peer.connection.open_bi().await.unwrap();
        send.write_all(&message(b"?one")).await.unwrap();
        send.finish().unwrap();
        let answer = timeout(PATIENCE, receive.read_to_end(1_000)).await.unwrap().unwrap();
        assert_eq!(answer, message(b"!one"));
    }
    // One that brings nothing is.
    let spent = async {
        while let Ok((mut send, _receive)) = peer.connection.open_bi().await {
            let _gone = send.finish();
        }
    };
    timeout(PATIENCE, spent).await.expect("empty streams are cut off");
    assert_eq!(sidecar.host.refusals(Limit::StreamResetRate), 1);
}

#[tokio::test]
async fn large_messages_wait_their_turn_on_a_link_that_holds_enough_of_them() {
    let bytes = 2 << 20;
    let mut sidecar = End::sidecar_with(1, Settings { receive_bytes_max: bytes, ..settings() });
    let peer = quic_peer(&mut sidecar).await;
    let payload = vec![7; bytes];
    let whole = message(&payload);
    // All begin, and the first is the last to go on: what the others bring in the meantime must not keep it from that.
    let (begun, rest) = whole.split_at(bytes / 16);
    let mut streams = Vec::new();
    let all = async {
        for _ in 0..8 {
            // Only a stream that has begun earns the grant of more.
            let (mut send, receive) = peer.connection.open_bi().await.unwrap();
            send.write_all(begun).await.unwrap();
            streams.push((send, receive));
        }
        for (send, _) in streams.iter_mut().rev() {
            send.write_all(rest).await.unwrap();
        }
    };
    let mut heard = 0;
    let listening = async {
        while heard < 8 {
            let (message, _route) = sidecar.message().await;
            assert_eq!(message.len(), payload.len());
            heard += 1;
            assert!(sidecar.host.levels().receive_bytes <= bytes + (64 << 10));
        }
    };
    timeout(PATIENCE, async { tokio::join!(all, listening) }).await.expect("every message arrives");
    assert!(sidecar.host.refusals(Limit::ReceiveBytes) > 0);
    assert_eq!(sidecar.host.levels().receive_bytes, 0);
}

#[tokio::test]
async fn an_address_that_connects_too_often_is_turned_away_before_any_handshake() {
    let rate = Some("1/1h burst 2".parse().unwrap());
    let sidecar = End::sidecar_with(1, Settings { handshake_rate: rate, ..settings() });
    let address = tcp::listen(&sidecar.host, LOOPBACK).await.unwrap();
    let mut held = Vec::new();
    for number in 0..4 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number < 2 {
            held.push(stream);
        } else {
            assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 8])).await.unwrap().unwrap_or(0), 0);
        }
    }
    assert_eq!(sidecar.host.refusals(Limit::HandshakeRate), 2);
    // On QUIC as well: it hears nothing, and gives up.
    let address = quic::listen(&sidecar.host, LOOPBACK).unwrap();
    let (config, _) = credentials().client(None).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let endpoint = quinn::Endpoint::client(LOOPBACK).unwrap();
    let _connecting = endpoint.connect_with(config, address, "anything").unwrap();
    while sidecar.host.refusals(Limit::HandshakeRate) < 3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_address_has_so_many_links_opening_and_a_peer_so_many_open() {
    let narrow = Settings { links_opening_per_address_max: 2, ..settings() };
    let sidecar = End::sidecar_with(1, narrow);
    let address = tcp::listen(&sidecar.host, LOOPBACK).await.unwrap();
    let _silent = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    let mut third = TcpStream::connect(address).await.unwrap();
    assert_eq!(timeout(PATIENCE, third.read(&mut [0; 8])).await.unwrap().unwrap_or(0), 0);
    assert_eq!(sidecar.host.refusals(Limit::LinksOpeningPerAddress), 1);
    assert_eq!(sidecar.host.levels().links_opening_per_address, 2);

    let mut sidecar = End::sidecar_with(1, Settings { links_per_peer_max: 1, ..settings() });
    let mut first = tls_peer(&sidecar).await;
    first.handshake().await;
    first.write(FrameType::AmpMessage, &first.hello()).await;
    sidecar.opened().await;
    let mut second = tls_peer(&sidecar).await;
    assert!(!second.is_admitted().await);
    assert_eq!(sidecar.host.refusals(Limit::LinksPerPeer), 1);
    drop(first);
    sidecar.closed().await;
    // Its place comes back when the driver has ended, which is just behind the last word to the service.
    while !tls_peer(&sidecar).await.is_admitted().await {}
}

#[tokio::test]
async fn a_peer_proves_its_address_where_too_many_have_not() {
    let mut sidecar = End::sidecar_with(1, Settings { links_unvalidated_max: 0, ..settings() });
    let peer = quic_peer(&mut sidecar).await;
    assert_eq!(sidecar.host.refusals(Limit::LinksUnvalidated), 1);
    assert!(!peer.link.is_closed());
}
