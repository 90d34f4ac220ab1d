//! Tests the limits that stop slow, silent and too many peers.

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::frame::FrameType;

use super::super::{Limit, SendError};
use super::bytes_peer::BytesPeer;
use super::*;

#[tokio::test]
async fn a_peer_that_does_not_read_fills_the_queue_and_costs_no_more() {
    let small = Settings { outbox_bytes_max: 1 << 20, ..settings() };
    let (mut sidecar, mut peer, link) = BytesPeer::open(small).await;
    let payload = Bytes::from(vec![7; 10_000]);
    let mut sent = 0;
    // The writer takes its turn between, until the system's buffers are full as well.
    let refused = loop {
        match link.notify(payload.clone()) {
            Ok(()) => sent += 1,
            Err(error) => {
                tokio::task::yield_now().await;
                if link.notify(payload.clone()) == Err(SendError::Full) {
                    break error;
                }
                sent += 1;
            }
        }
        assert!(sent < 10_000, "nothing bounds the queue");
    };
    assert_eq!(refused, SendError::Full);

    // Once the peer reads again everything that was taken arrives, and there is room again.
    for _ in 0..sent {
        assert_eq!(peer.frame().await.unwrap().payload, payload);
    }
    link.notify(Bytes::from_static(b"again")).unwrap();
    assert_eq!(&peer.frame().await.unwrap().payload[..], b"again");
    assert!(sidecar.end.events.try_recv().is_err(), "the link is still open");
}

#[tokio::test]
async fn a_message_above_the_agreed_size_is_not_sent() {
    let (_sidecar, _peer, link) = BytesPeer::open(settings()).await;
    let bytes_max = link.message_bytes_max();
    assert_eq!(bytes_max, (1 << 24) - 1);
    let payload = Bytes::from(vec![0; bytes_max + 1]);
    assert_eq!(link.notify(payload), Err(SendError::TooLarge { bytes: bytes_max + 1, bytes_max }));
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_dropped_at_the_deadline() {
    let hurried = Settings { handshake_timeout: Duration::from_millis(80), ..settings() };
    let (mut sidecar, mut silent) = BytesPeer::connect(hurried).await;
    let mut half_way = sidecar.connect().await;
    half_way.handshake().await;
    for peer in [&mut silent, &mut half_way] {
        // An ERROR may say why; what matters is that the connection ends.
        while let Some(frame) = peer.frame().await {
            assert_eq!(frame.frame_type, FrameType::Error);
        }
    }
    assert!(sidecar.end.events.try_recv().is_err(), "no link came about");
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_closed_at_the_idle_timeout() {
    let brisk = Settings {
        keep_alive_interval: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(150),
        ..settings()
    };
    let (mut sidecar, mut peer, _link) = BytesPeer::open(brisk).await;
    assert_eq!(peer.frame().await.unwrap().frame_type, FrameType::Ping);
    assert_eq!(sidecar.end.closed().await, CloseReason::Silent);
}

#[tokio::test]
async fn one_connection_too_many_is_dropped_and_room_comes_back() {
    let narrow = Settings { links_max: 1, ..settings() };
    let (mut sidecar, first, link) = BytesPeer::open(narrow).await;
    let (code, message) = sidecar.connect().await.error_and_end().await;
    assert_eq!(code, Code::OVERLOADED);
    assert!(message.contains("capd is running") && message.contains("limits.links_max"), "{message}");
    drop(first);
    assert_eq!(sidecar.end.closed().await, CloseReason::PeerClosed);
    link.closed().await;
    // The permit comes back when the driver has ended, which is just behind the last word to the service.
    while !sidecar.connect().await.answers().await {}
}

#[tokio::test]
async fn the_oldest_local_connection_that_is_opening_makes_room_for_the_next_and_learns_why() {
    let narrow = Settings { links_opening_max: 2, ..settings() };
    let (mut sidecar, mut first) = BytesPeer::connect(narrow).await;
    while sidecar.end.host.levels().links_opening < 1 {
        tokio::task::yield_now().await;
    }
    let mut second = sidecar.connect().await;
    second.handshake().await;
    let mut third = sidecar.connect().await;
    third.handshake().await;
    let (code, message) = timeout(PATIENCE, first.error_and_end()).await.expect("it ends");
    assert_eq!(code, Code::OVERLOADED);
    assert!(message.contains("capd is running"), "{message}");
    // The others are as they were.
    for peer in [&mut second, &mut third] {
        peer.write(FrameType::AmpMessage, &peer.hello()).await;
        sidecar.end.opened().await;
    }
    assert_eq!(sidecar.end.host.refusals(Limit::LinksOpening), 1);
}

#[tokio::test]
async fn a_frame_that_begins_and_does_not_end_closes_its_link() {
    let hurried = Settings { frame_timeout: Duration::from_millis(150), ..settings() };
    let (mut sidecar, mut peer, _link) = BytesPeer::open(hurried).await;
    let ended = async {
        // A byte at a time never lets the link fall silent, and never ends the frame.
        let mut dripping = peer.drip(&[0, 0, 1, 0, 1], Duration::from_millis(20));
        tokio::select! {
            reason = sidecar.end.closed() => reason,
            () = &mut dripping => unreachable!("it drips for ever"),
        }
    };
    let reason = timeout(PATIENCE, ended).await.expect("the link is closed");
    assert!(matches!(reason, CloseReason::Fault(fault) if fault.message.contains("in time")));
    assert_eq!(sidecar.end.host.refusals(Limit::FrameTime), 1);
}

#[tokio::test]
async fn a_large_frame_may_take_its_time_while_its_link_gets_on() {
    let hurried = Settings { frame_timeout: Duration::from_secs(2), ..settings() };
    let (mut sidecar, mut peer, _link) = BytesPeer::open(hurried).await;
    let payload = vec![7; 600_000];
    let mut frame = Vec::new();
    capd_proto::frame::encode(FrameType::AmpMessage, &payload, &mut frame).unwrap();
    let begun = tokio::time::Instant::now();
    // Slower in all than one frame time, and never slow.
    for piece in frame.chunks(100_000) {
        peer.write_raw(piece).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (message, _route) = sidecar.end.message().await;
    assert_eq!(message, payload);
    assert!(begun.elapsed() > Duration::from_secs(2));
    assert_eq!(sidecar.end.host.refusals(Limit::FrameTime), 0);
}

#[tokio::test]
async fn what_is_refused_and_what_is_in_use_can_be_asked() {
    let narrow = Settings { links_opening_max: 1, outbox_bytes_max: 1 << 20, ..settings() };
    let (sidecar, first) = BytesPeer::connect(narrow).await;
    while sidecar.end.host.levels().links_opening == 0 {
        tokio::task::yield_now().await;
    }
    // One more takes the place of the oldest that is opening.
    let second = sidecar.connect().await;
    while sidecar.end.host.refusals(Limit::LinksOpening) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(sidecar.end.host.levels().links_opening, 1);
    drop((first, second));
    while sidecar.end.host.levels().links > 0 {
        tokio::task::yield_now().await;
    }

    let (sidecar, _peer, link) = BytesPeer::open(Settings { outbox_bytes_max: 1 << 20, ..settings() }).await;
    let levels = sidecar.end.host.levels();
    assert_eq!((levels.links, levels.links_opening), (1, 0));
    assert_eq!(levels.open.iter().map(|(_, count)| count).sum::<usize>(), 1);
    assert!(levels.received_bytes > 0 && levels.sent_bytes > 0, "{levels:?}");
    let payload = Bytes::from(vec![7; 500_000]);
    // Nothing is written before this task waits, so the third one finds no room.
    assert_eq!([&payload; 3].map(|payload| link.notify(payload.clone()).is_ok()), [true, true, false]);
    assert_eq!(sidecar.end.host.refusals(Limit::QueueBytes), 1);
    assert!(sidecar.end.host.levels().queue_bytes > 1_000_000);
}
