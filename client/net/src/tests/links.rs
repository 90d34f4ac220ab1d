//! Tests what a link does between two ends, on every transport.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use capd_proto::link::Role;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::super::dial::{self, Address, Transport};
use super::super::local::{self, Token};
use super::super::{Kind, Link, Names, Resolver, SendError, quic, tcp};
use super::*;

/// Two ends with one open link between them.
struct Pair {
    server: End,
    client: End,
    served: Arc<Link>,
    link: Arc<Link>,
    _dir: Option<tempfile::TempDir>,
}

impl Pair {
    async fn open(kind: Kind) -> Self {
        Self::open_with(kind, settings(), settings()).await
    }

    async fn open_with(kind: Kind, server_settings: Settings, client_settings: Settings) -> Self {
        let mut server = End::sidecar_with(1, server_settings);
        let mut dir = None;
        let (mut client, link) = match kind {
            Kind::PeerQuic => {
                let client = End::sidecar_with(2, client_settings);
                let address = quic::listen(&server.host, LOOPBACK).unwrap();
                let link = quic::connect(&client.host, address, Some(&server.did())).await.unwrap();
                (client, link)
            }
            Kind::PeerTcp => {
                let client = End::sidecar_with(2, client_settings);
                let address = tcp::listen(&server.host, LOOPBACK).await.unwrap();
                let link = tcp::connect(&client.host, address, Some(&server.did())).await.unwrap();
                (client, link)
            }
            Kind::LocalUnix => {
                let client = End::agent();
                let path = dir.insert(tempfile::tempdir().unwrap()).path().join("s");
                local::listen_unix(&server.host, &path).unwrap();
                let link = local::connect_unix(&client.host, &path, false).await.unwrap();
                (client, link)
            }
            Kind::LocalTcp => {
                let client = End::agent();
                let token = Token::new(*b"secret");
                let address = local::listen_tcp(&server.host, LOOPBACK, token.clone()).await.unwrap();
                let link = local::connect_tcp(&client.host, address, token).await.unwrap();
                (client, link)
            }
        };
        let served = server.opened().await;
        assert!(Arc::ptr_eq(&client.opened().await, &link));
        Self { server, client, served, link, _dir: dir }
    }

    async fn end(self) {
        self.client.shut_down().await;
        self.server.shut_down().await;
    }
}

const KINDS: [Kind; 4] = [Kind::PeerQuic, Kind::PeerTcp, Kind::LocalUnix, Kind::LocalTcp];
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn a_link_opens_on_every_transport_and_knows_its_ends() {
    for kind in KINDS {
        let pair = Pair::open(kind).await;
        assert_eq!((pair.served.kind(), pair.link.kind()), (kind, kind));
        assert_eq!((pair.served.role(), pair.link.role()), (Role::Server, Role::Client));
        assert_eq!(*pair.link.principal(), pair.server.did());
        let expected = if kind.is_local() { pair.server.did() } else { pair.client.did() };
        assert_eq!(*pair.served.principal(), expected);
        assert!(!pair.link.is_draining() && !pair.link.is_closed());
        pair.end().await;
    }
}

#[tokio::test]
async fn a_request_is_answered_on_every_transport_both_ways() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        let route = pair.link.request(Bytes::from_static(b"?from the client")).unwrap();
        assert_eq!(pair.link.in_flight(), 1);
        let (answer, answer_route) = pair.client.message().await;
        assert_eq!(&answer[..], b"!from the client");
        assert!(answer_route.is_same(&route));
        drop((route, answer_route));
        assert_eq!(pair.link.in_flight(), 0);

        drop(pair.served.request(Bytes::from_static(b"?from the server")).unwrap());
        assert_eq!(&pair.server.message().await.0[..], b"!from the server");
        pair.end().await;
    }
}

#[tokio::test]
async fn a_hundred_requests_at_once_are_all_answered() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        let requests: Vec<_> = (0..100).map(|n| format!("?{n}")).collect();
        let routes: Vec<_> =
            requests.iter().map(|request| pair.link.request(request.clone().into_bytes()).unwrap()).collect();
        assert_eq!(pair.link.in_flight(), 100);
        let mut answers = Vec::new();
        for _ in 0..100 {
            answers
                .push(String::from_utf8(pair.client.message().await.0.to_vec()).unwrap().replace('!', "?"));
        }
        answers.sort_by_key(|answer| answer[1..].parse::<u32>().unwrap());
        assert_eq!(answers, requests);
        drop(routes);
        pair.end().await;
    }
}

#[tokio::test]
async fn large_requests_arrive_as_they_were_whatever_their_length() {
    let round = [32, 64, 128, 192, 256, 1_024, 3_000].map(|kib| kib * 1_024);
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        for length in round.iter().flat_map(|length| [length - 6, length - 5, *length, length + 8_191]) {
            // Two at once, and a small one between: on a byte stream they follow each other.
            let request =
                |seed: usize| -> Vec<u8> { (0..length).map(|at| (at * 31 / 7 + seed) as u8 | 1).collect() };
            let sent = [request(1), vec![b'.'; 3], request(2)];
            let routes = sent.clone().map(|request| pair.link.request(request).unwrap());
            let mut received = Vec::new();
            for _ in &sent {
                received.push(pair.server.message().await.0.to_vec());
            }
            received.sort_by_key(|request| sent.iter().position(|sent| sent == request));
            assert!(received == sent, "{kind:?}, {length} bytes");
            drop(routes);
        }
        pair.end().await;
    }
}

#[tokio::test]
async fn requests_of_all_sizes_cross_both_ways() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        let mut routes = Vec::new();
        for n in 0..300_usize {
            let mut request = vec![n as u8; 1 + n * n % 90_001];
            request[0] = b'?';
            routes.push(pair.link.request(request.clone()).unwrap());
            routes.push(pair.served.request(request).unwrap());
        }
        let mut bytes = [0; 2];
        for _ in 0..300 {
            bytes[0] += pair.client.message().await.0.len();
            bytes[1] += pair.server.message().await.0.len();
        }
        let expected: usize = (0..300).map(|n| 1 + n * n % 90_001).sum();
        assert_eq!(bytes, [expected; 2], "{kind}");
        drop(routes);
        assert_eq!((pair.link.in_flight(), pair.served.in_flight()), (0, 0));
        pair.end().await;
    }
}

#[tokio::test]
async fn small_quic_requests_share_four_streams() {
    let pair = Pair::open(Kind::PeerQuic).await;
    let routes: Vec<_> = (0..12).map(|_| pair.link.request(Bytes::from_static(b"hold")).unwrap()).collect();
    let mut streams: Vec<&Route> = Vec::new();
    for route in &routes {
        if !streams.iter().any(|stream| stream.is_same(route)) {
            streams.push(route);
        }
    }
    assert_eq!(streams.len(), 4);
    for stream in streams {
        assert_eq!(routes.iter().filter(|route| route.is_same(stream)).count(), 3);
    }
    drop(routes);
    pair.end().await;
}

#[tokio::test]
async fn a_large_request_has_a_stream_of_its_own_that_ends_with_the_answer() {
    let mut pair = Pair::open(Kind::PeerQuic).await;
    pair.server.hold();
    let mut large = vec![b'.'; 1 << 20];
    large[0] = b'?';
    let small = pair.link.request(Bytes::from_static(b"?small")).unwrap();
    let route = pair.link.request(large.clone()).unwrap();
    assert!(!route.is_same(&small));
    let mut received = [pair.server.message().await, pair.server.message().await];
    received.sort_by_key(|(payload, _)| payload.len());
    let [(small_received, small_answer), (large_received, large_answer)] = received;
    assert_eq!(&small_received[..], b"?small");
    assert_eq!(large_received, large);
    large_answer.send(Bytes::from_static(b"done")).unwrap();
    assert_eq!(&pair.client.message().await.0[..], b"done");
    drop(large_answer);
    // The request's side ended with the request, so nothing more goes on it.
    assert_eq!(route.send(Bytes::new()), Err(SendError::Closed));
    drop((route, small, small_answer));
    pair.end().await;
}

#[tokio::test]
async fn a_large_request_crosses_every_transport() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        let mut large: Vec<u8> = (0..3 << 20).map(|n: u32| (n >> 3) as u8).collect();
        large[0] = b'?';
        let route = pair.link.request(large.clone()).unwrap();
        large[0] = b'!';
        assert!(pair.client.message().await.0 == large, "{kind}");
        drop(route);
        pair.end().await;
    }
}

#[tokio::test]
async fn cancelling_a_large_request_resets_its_stream_and_the_service_is_told_once() {
    let mut pair = Pair::open(Kind::PeerQuic).await;
    pair.server.hold();
    let route = pair.link.request(Bytes::from(vec![b'?'; 200_000])).unwrap();
    let (_, received) = pair.server.message().await;
    assert!(route.cancel());
    match pair.server.next().await {
        Event::Reset(reset) => assert!(reset.is_same(&received)),
        other => panic!("expected a reset, got {other:?}"),
    }
    drop((route, received));
    // The link is as good as before.
    drop(pair.link.request(Bytes::from_static(b"small")).unwrap());
    assert_eq!(&pair.server.message().await.0[..], b"small");
    pair.end().await;
}

#[tokio::test]
async fn a_request_on_a_shared_stream_is_not_cancelled_by_reset() {
    for kind in KINDS {
        let pair = Pair::open(kind).await;
        let route = pair.link.request(Bytes::from_static(b"small")).unwrap();
        assert!(!route.cancel());
        drop(route);
        pair.end().await;
    }
}

#[tokio::test]
async fn a_draining_link_takes_no_request_and_ends_when_the_last_answer_is_out() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        pair.server.hold();
        let route = pair.link.request(Bytes::from_static(b"?long")).unwrap();
        let (_, received) = pair.server.message().await;
        pair.served.drain();
        while !pair.link.is_draining() {
            tokio::task::yield_now().await;
        }
        assert_eq!(pair.link.request(Bytes::from_static(b"?late")).unwrap_err(), SendError::Draining);
        assert_eq!(pair.served.request(Bytes::from_static(b"?late")).unwrap_err(), SendError::Draining);
        received.send(Bytes::from_static(b"the answer")).unwrap();
        drop(received);
        let (answer, answer_route) = pair.client.message().await;
        assert_eq!(&answer[..], b"the answer", "{kind}");
        drop((route, answer_route));
        assert_eq!(pair.server.closed().await, CloseReason::Drained, "{kind}");
        assert!(
            matches!(pair.client.closed().await, CloseReason::Drained | CloseReason::PeerClosed),
            "{kind}"
        );
        pair.end().await;
    }
}

#[tokio::test]
async fn draining_ends_at_its_timeout_with_calls_in_flight() {
    let hurried = Settings { drain_timeout: Duration::from_millis(50), ..settings() };
    for kind in KINDS {
        let mut pair = Pair::open_with(kind, hurried.clone(), settings()).await;
        pair.server.hold();
        let _route = pair.link.request(Bytes::from_static(b"?long")).unwrap();
        let _received = pair.server.message().await;
        pair.served.drain();
        assert_eq!(pair.server.closed().await, CloseReason::DrainTimedOut, "{kind}");
        pair.end().await;
    }
}

#[tokio::test]
async fn both_sides_learn_that_a_link_was_closed() {
    for kind in KINDS {
        let mut pair = Pair::open(kind).await;
        pair.link.close(CloseReason::Local("enough".to_owned()));
        assert_eq!(pair.client.closed().await, CloseReason::Local("enough".to_owned()), "{kind}");
        assert_eq!(pair.server.closed().await, CloseReason::PeerClosed, "{kind}");
        assert!(pair.link.is_closed());
        assert_eq!(pair.link.notify(Bytes::new()), Err(SendError::Closed), "{kind}");
        pair.end().await;
    }
}

#[tokio::test]
async fn a_link_without_calls_outlives_its_idle_timeout_by_pings() {
    let brisk = Settings {
        keep_alive_interval: Duration::from_millis(40),
        idle_timeout: Duration::from_millis(200),
        ..settings()
    };
    let outlives = async |kind| {
        let mut pair = Pair::open_with(kind, brisk.clone(), brisk.clone()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!pair.link.is_closed() && !pair.served.is_closed(), "{kind}");
        drop(pair.link.request(Bytes::from_static(b"?still there")).unwrap());
        assert_eq!(&pair.client.message().await.0[..], b"!still there");
        pair.end().await;
    };
    let [quic, tcp, unix, local] = KINDS.map(outlives);
    tokio::join!(quic, tcp, unix, local);
}

#[tokio::test]
async fn a_lost_peer_is_dialled_again_until_it_is_back() {
    for transport in [Transport::Quic, Transport::Tcp] {
        let listen = async |end: &End, address| match transport {
            Transport::Quic => quic::listen(&end.host, address),
            Transport::Tcp => tcp::listen(&end.host, address).await,
        };
        let eager = Settings {
            redial_delay_min: Duration::from_millis(10),
            redial_delay_max: Duration::from_millis(40),
            ..settings()
        };
        let mut server = End::sidecar(1);
        let address = listen(&server, LOOPBACK).await.unwrap();
        let mut client = End::sidecar_with(2, eager);
        // The first address leads nowhere: port 1 is nobody's.
        let dead =
            Address { transport: Transport::Tcp, host: "127.0.0.1".to_owned(), port: 1, is_shared: false };
        let live =
            Address { transport, host: address.ip().to_string(), port: address.port(), is_shared: false };
        dial::keep_connected(&client.host, server.did(), vec![dead, live]);
        server.opened().await;
        client.opened().await;
        server.shut_down().await;
        assert!(matches!(client.closed().await, CloseReason::PeerClosed | CloseReason::Drained));

        let mut again = End::sidecar(1);
        // The system takes the socket back a moment after its last user is gone.
        while listen(&again, address).await.is_err() {
            tokio::task::yield_now().await;
        }
        again.opened().await;
        client.opened().await;
        client.shut_down().await;
        again.shut_down().await;
    }
}

#[tokio::test]
async fn a_peer_is_dialled_at_its_new_addresses_and_no_more_once_that_is_stopped() {
    let mut server = End::sidecar(1);
    let address = tcp::listen(&server.host, LOOPBACK).await.unwrap();
    // Without new addresses it would pause for an hour.
    let patient = Settings {
        redial_delay_min: Duration::from_secs(3_600),
        redial_delay_max: Duration::from_secs(3_600),
        ..settings()
    };
    let mut client = End::sidecar_with(2, patient);
    let dead = Address { transport: Transport::Tcp, host: "127.0.0.1".to_owned(), port: 1, is_shared: false };
    let live = Address {
        transport: Transport::Tcp,
        host: address.ip().to_string(),
        port: address.port(),
        is_shared: false,
    };
    let dialling = dial::keep_connected(&client.host, server.did(), vec![dead]);
    dialling.set_addresses(vec![live]);
    server.opened().await;
    let link = client.opened().await;
    dialling.stop();
    assert!(!link.is_closed(), "a link that is up stays");
    client.shut_down().await;
    server.shut_down().await;
}

/// A name that a test moves from one address to others.
#[derive(Default)]
struct Moving(Mutex<Vec<IpAddr>>);

impl Moving {
    fn to(&self, addresses: &[&str]) {
        *self.0.lock().unwrap() = addresses.iter().map(|address| address.parse().unwrap()).collect();
    }
}

impl Resolver for Moving {
    fn resolve(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        assert_eq!(host, "capd-headless");
        Ok(self.0.lock().unwrap().clone())
    }
}

#[tokio::test]
async fn a_name_is_resolved_at_each_dial_and_every_address_of_it_is_tried() {
    let eager = Settings {
        redial_delay_min: Duration::from_millis(10),
        redial_delay_max: Duration::from_millis(40),
        ..settings()
    };
    let (mut server, other) = (End::sidecar(1), End::sidecar(3));
    let port = tcp::listen(&server.host, LOOPBACK).await.unwrap().port();
    // Another sidecar answers under the name as well, and first.
    tcp::listen(&other.host, SocketAddr::from(([127, 0, 0, 2], port))).await.unwrap();
    let name = Arc::new(Moving::default());
    let system = System { names: Names::of(Arc::clone(&name) as _), ..System::real() };
    let mut client = End::sidecar_on(system, 2, eager);
    let host = "capd-headless".to_owned();
    let at = Address { transport: Transport::Tcp, host, port, is_shared: true };
    let unresolved = dial::connect(&client.host, &at, Some(&server.did())).await.unwrap_err();
    let why = "the host name capd-headless cannot be resolved: the name has no address";
    assert_eq!(unresolved.to_string(), why);

    dial::keep_connected(&client.host, server.did(), vec![at]);
    name.to(&["127.0.0.2", "127.0.0.1"]);
    server.opened().await;
    assert_eq!(*client.opened().await.principal(), server.did(), "the key decides who it is");
    // It is another machine's turn.
    name.to(&["127.0.0.2", "127.0.0.3"]);
    server.shut_down().await;
    client.closed().await;
    let mut again = End::sidecar(1);
    tcp::listen(&again.host, SocketAddr::from(([127, 0, 0, 3], port))).await.unwrap();
    again.opened().await;
    assert_eq!(*client.opened().await.principal(), again.did());
    for end in [client, again, other] {
        end.shut_down().await;
    }
}

#[tokio::test]
async fn shutting_down_drains_every_link() {
    let mut pair = Pair::open(Kind::PeerQuic).await;
    pair.server.shut_down().await;
    assert_eq!(pair.server.closed().await, CloseReason::Drained);
    assert!(matches!(pair.client.closed().await, CloseReason::Drained | CloseReason::PeerClosed));
    pair.client.shut_down().await;
}

/// What forwards datagrams between one client and `server`; its address, and the longest that came from the server.
async fn relay(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let (front, back) = (UdpSocket::bind(LOOPBACK).await.unwrap(), UdpSocket::bind(LOOPBACK).await.unwrap());
    back.connect(server).await.unwrap();
    let (address, longest) = (front.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&longest);
    tokio::spawn(async move {
        let (mut there, mut here, mut client) = (vec![0; 65_536], vec![0; 65_536], None);
        loop {
            tokio::select! {
                from_client = front.recv_from(&mut there) => {
                    let (bytes, address) = from_client.unwrap();
                    client = Some(address);
                    back.send(&there[..bytes]).await.unwrap();
                }
                from_server = back.recv(&mut here) => {
                    let Ok(bytes) = from_server else { return };
                    seen.fetch_max(bytes, Ordering::Relaxed);
                    front.send_to(&here[..bytes], client.unwrap()).await.unwrap();
                }
            }
        }
    });
    (address, longest)
}

#[tokio::test]
async fn packets_are_as_long_as_the_path_takes_but_on_links_beyond_an_eighth_of_what_may_be() {
    let mut server = End::sidecar_with(1, Settings { links_max: 8, ..settings() });
    let bound = quic::listen(&server.host, LOOPBACK).unwrap();
    let mut clients = Vec::new();
    for (seed, expected) in [(2, 8_952), (3, 1_452)] {
        let (address, longest) = relay(bound).await;
        let mut client = End::sidecar_with(seed, settings());
        let link = quic::connect(&client.host, address, Some(&server.did())).await.unwrap();
        client.opened().await;
        let served = server.opened().await;
        while longest.load(Ordering::Relaxed) < expected {
            drop(served.request(vec![b'.'; 10_000]).unwrap());
            client.message().await;
        }
        assert_eq!(longest.load(Ordering::Relaxed), expected);
        clients.push((client, link, served));
    }
    for (client, ..) in clients {
        client.shut_down().await;
    }
    server.shut_down().await;
}

#[tokio::test]
async fn signed_messages_of_several_streams_are_handed_up_together_and_each_stream_keeps_its_order() {
    for channel_auth in [false, true] {
        let settings = || Settings { channel_auth, ..settings() };
        let mut pair = Pair::open_with(Kind::PeerQuic, settings(), settings()).await;
        pair.server.hold();
        let request = |number: u32| pair.link.request(Bytes::from(number.to_string())).unwrap();
        // So many calls in flight that others are waited for.
        let mut requests: Vec<_> = (0..8).map(request).collect();
        let mut received = Vec::new();
        while received.len() < requests.len() {
            received.push(pair.server.message().await);
        }
        requests.extend((8..200).map(request));
        while received.len() < requests.len() {
            received.push(pair.server.message().await);
        }
        let number = |payload: &Bytes| str::from_utf8(payload).unwrap().parse::<u32>().unwrap();
        for (_, stream) in &received {
            let of_stream = received.iter().filter(|(_, route)| route.is_same(stream));
            assert!(of_stream.map(|(payload, _)| number(payload)).is_sorted());
        }
        let mut numbers: Vec<_> = received.iter().map(|(payload, _)| number(payload)).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..200));
        let streams = pair.server.probe.gathered_streams.load(Ordering::Relaxed);
        // Where the channel speaks for its ends there is nothing to wait for.
        assert!(if channel_auth { streams == 0 } else { streams > 1 }, "{streams}");
        drop((requests, received));
        pair.end().await;
    }
}

#[tokio::test]
async fn a_dial_that_nobody_answers_holds_up_no_shutdown() {
    let silence = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = silence.local_addr().unwrap();
    let client = End::sidecar(1);
    let host = Arc::clone(&client.host);
    let dialling = tokio::spawn(async move { quic::connect(&host, address, None).await.is_ok() });
    silence.recv(&mut [0; 2_048]).await.unwrap();
    let begin = Instant::now();
    client.shut_down().await;
    assert!(begin.elapsed() < Duration::from_secs(2), "it took {:?}", begin.elapsed());
    assert!(!dialling.await.unwrap());
}
