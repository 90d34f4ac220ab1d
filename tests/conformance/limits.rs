//! Links beyond their limits in; refused or closed, counted under the limit's key, and everybody else served, out.

use crate::fixture::quiet_sidecar;
use crate::peer::{Certificate, ERROR_FRAME, RawLink, Transport, fresh_seed};
use crate::support::{HANDSHAKE, Setup, Sidecar, decode, encode, field, map};

/// A connection that is closed before anything comes back.
#[track_caller]
fn is_turned_away(sidecar: &Sidecar, transport: Transport) {
    let seed = fresh_seed();
    if let Ok(mut link) = RawLink::try_connect(sidecar, transport, seed, &Certificate::Of(seed)) {
        assert_eq!(link.closed(), [], "{transport:?}");
    }
}

#[test]
fn an_address_that_connects_too_often_is_turned_away() {
    let sidecar = Setup::new().set("limits.handshake_rate_per_address", "1/1h burst 2").start();
    let mut links = Transport::PEER.map(|transport| RawLink::open(&sidecar, transport));
    is_turned_away(&sidecar, Transport::Tcp);
    sidecar.refused("limits.handshake_rate_per_address", 1);
    links.iter_mut().for_each(RawLink::ping);
}

#[test]
fn one_link_too_many_is_turned_away_while_others_open() {
    for key in ["limits.links_opening_max", "limits.links_opening_per_address_max"] {
        let sidecar = Setup::new().set(key, "1").start();
        let mut silent = RawLink::connect(&sidecar, Transport::Tcp);
        is_turned_away(&sidecar, Transport::Tcp);
        sidecar.refused(key, 1);
        assert_eq!(sidecar.metric(&format!("capd_limit_level{{limit=\"{key}\"}}")), 1);
        assert_eq!(sidecar.metric(&format!("capd_limit_max{{limit=\"{key}\"}}")), 1);
        // Once it is open there is room for the next.
        silent.handshake();
        silent.hello();
        silent.ping();
        RawLink::open(&sidecar, Transport::Tcp).ping();
    }
}

#[test]
fn one_link_too_many_of_a_peer_is_not_admitted() {
    let sidecar = Setup::new().set("limits.links_per_peer_max", "1").start();
    let seed = fresh_seed();
    let mut first = RawLink::open_as(&sidecar, Transport::Quic, seed);
    let mut second = RawLink::connect_as(&sidecar, Transport::Tcp, seed);
    second.send_frame(HANDSHAKE, &encode(&second.handshake_request()));
    let answer = decode(&second.frame().payload);
    assert_eq!(field(&answer, "accepted"), Some(&false.into()), "{answer:?}");
    sidecar.refused("limits.links_per_peer_max", 1);
    first.ping();
    RawLink::open(&sidecar, Transport::Tcp).ping();
}

#[test]
fn a_frame_that_does_not_end_in_time_is_1001_on_every_link() {
    let sidecar = Setup::new().set("timeouts.frame_ms", "200").start();
    for (count, transport) in (1..).zip(Transport::ALL) {
        let mut slow = RawLink::open(&sidecar, transport);
        slow.send_raw(&[0, 0, 1]);
        slow.use_control_stream();
        let closed = slow.closed();
        let error = closed.iter().find(|frame| frame.frame_type == ERROR_FRAME);
        let error = error.unwrap_or_else(|| panic!("{transport:?}: {closed:?}"));
        assert_eq!(field(&decode(&error.payload), "code"), Some(&1001.into()), "{transport:?}");
        sidecar.refused("timeouts.frame_ms", count);
        RawLink::open(&sidecar, transport).ping();
    }
}

#[test]
fn a_frame_above_the_largest_is_counted() {
    let sidecar = Sidecar::start();
    let mut link = RawLink::open(&sidecar, Transport::Tcp);
    link.send_raw(&[0xff, 0xff, 0xff, 0xff, 1]);
    link.closed();
    sidecar.refused("limits.msg_size_bytes_max", 1);
}

#[test]
fn a_peer_that_does_not_open_its_link_in_time_is_counted() {
    let sidecar = Setup::new().set("timeouts.handshake_ms", "200").start();
    for (count, transport) in (1..).zip(Transport::PEER) {
        RawLink::connect(&sidecar, transport).closed();
        sidecar.refused("timeouts.handshake_ms", count);
    }
}

#[test]
fn a_peer_on_quic_proves_its_address_where_it_must() {
    let sidecar = Setup::new().set("limits.links_unvalidated_max", "0").start();
    RawLink::open(&sidecar, Transport::Quic).ping();
    sidecar.refused("limits.links_unvalidated_max", 1);
}

#[test]
fn a_peer_learns_of_no_metrics_and_of_no_other_peers() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        for op in ["metrics", "peers", "doctor", "no-such"] {
            let answer = link.ask(0x11, map([("op", op.into())]));
            assert_eq!(answer.code(), Some(4001), "{op}: {answer:?}");
        }
    }
}
