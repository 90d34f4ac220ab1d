//! Members find each other by mDNS, over loopback: no file, no server, and nobody lists anybody.
//!
//! Each test has a port of its own. A network without multicast on loopback fails them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use capd_proto::fleet::{Address, Agent, Fence, Key, Registration, Served, State, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use socket2::{Domain, Protocol, Socket, Type};

use crate::cell::{Cell, Terms, answered, call, declaring, until};
use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

fn cell() -> (Cell, u16) {
    // A port that nobody has; the sidecars share it.
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let cell = Cell::alone("desk", 200).with("fleet.mdns", "on");
    (cell.with("fleet.mdns_port", &port.to_string()), port)
}

fn provider(cell: &Cell, seed: u8, names: &[&str]) -> Setup {
    cell.member(seed, &["org.example.*"]).capabilities(&declaring(&format!("p{seed}"), names))
}

fn registered_by(sidecar: &Sidecar, name: &str) -> usize {
    let output = run_with(capctl(Some(&sidecar.socket)).args(["--json", "fleet", "ls"]), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    stdout(&output).matches(name).count()
}

/// Somebody on the network who is no sidecar.
struct Stranger {
    socket: UdpSocket,
    group: SocketAddr,
}

impl Stranger {
    fn on(port: u16) -> Self {
        let group = SocketAddr::from(([224, 0, 0, 251], port));
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&group.into()).unwrap();
        socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &Ipv4Addr::LOCALHOST).unwrap();
        socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, group }
    }

    fn send(&self, packet: &[u8]) {
        self.socket.send_to(packet, self.group).unwrap();
    }

    /// The next message that has these bytes in it.
    fn heard(&self, bytes: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 9_000];
        loop {
            let (length, _) = self.socket.recv_from(&mut packet).unwrap();
            if packet[..length].windows(bytes.len()).any(|part| part == bytes) {
                return packet[..length].to_vec();
            }
        }
    }
}

/// A name as it stands in a message.
fn name(labels: &[&str]) -> Vec<u8> {
    let labels = labels.iter().flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// A response with one TXT record of the service's: what a sidecar says, written down by hand.
fn announcement(ttl_s: u32, strings: &[Vec<u8>]) -> Vec<u8> {
    let rdata: Vec<u8> =
        strings.iter().flat_map(|string| [&[string.len() as u8], &string[..]].concat()).collect();
    let mut packet = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    packet.extend(name(&["somebody", "_capd", "_udp", "local"]));
    packet.extend([0, 16, 0x80, 1]);
    packet.extend(ttl_s.to_be_bytes());
    packet.extend((rdata.len() as u16).to_be_bytes());
    packet.extend(rdata);
    packet
}

fn registration(cell: &Cell, seed: u8, what: &str, address: SocketAddr, membership: &[u8]) -> Vec<Vec<u8>> {
    let identity = Identity::from_seed([seed; 32]);
    let agent = Agent::from(identity.public_key());
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let registration = Registration {
        agent,
        cell: cell.name.parse().unwrap(),
        name: what.parse().unwrap(),
        fence: Fence { incarnation: 1, journal: JournalId([1; 16]) },
        generation: 1,
        addresses: vec![Address {
            transport: Transport::Tcp,
            host: address.ip().to_string(),
            port: address.port(),
        }],
        versions: vec![Served { version: "1.0.0".parse().unwrap(), hash: [0; 32], flags: 0 }],
        made_at_ms: now_ms,
        not_after_ms: now_ms + 60_000,
        zone: None,
        state: State::Serving,
    };
    let value = registration.sign(&identity, membership).unwrap();
    let path = Key::registration(what.parse().unwrap(), agent).path(&cell.name.parse().unwrap());
    let within = path.strip_prefix("/capd/1/desk/").unwrap();
    let mut strings = vec![b"txtvers=1".to_vec(), b"cell=desk".to_vec(), format!("k0={within}").into_bytes()];
    strings
        .extend(value.chunks(253).enumerate().map(|(at, part)| [format!("{at}=").as_bytes(), part].concat()));
    strings
}

#[test]
fn two_sidecars_find_each_other_and_one_that_leaves_is_gone() {
    let (cell, port) = cell();
    let stranger = Stranger::on(port);
    let mut provider = provider(&cell, 1, &["ask"]).start();
    let caller = cell.member(10, &[]).start();
    assert_eq!(answered(&caller, "org.example.ask"), "p1");
    assert_eq!(registered_by(&caller, "org.example.ask"), 1);
    // What it announces can be browsed, as an instance of a service.
    let announced = stranger.heard(b"org.example.ask");
    assert!(announced.windows(5).any(|part| part == b"_capd"));

    assert!(provider.terminate().success());
    until("the goodbye is heard", || registered_by(&caller, "org.example.ask") == 0);
    let error = call(&caller, "org.example.ask").unwrap_err();
    assert!(error.contains("2002") || error.contains("4002"), "{error}");
}

#[test]
fn a_sidecar_that_starts_later_is_found_and_one_that_dies_leaves_with_its_lease() {
    let (cell, _) = cell();
    let caller = cell.member(10, &[]).start();
    let error = call(&caller, "org.example.late").unwrap_err();
    assert!(error.contains("4002"), "{error}");
    let mut late = provider(&cell, 1, &["late"]).start();
    until("the late provider is found", || call(&caller, "org.example.late").is_ok());
    late.kill();
    until("its lease is over", || registered_by(&caller, "org.example.late") == 0);
}

#[test]
fn an_announcement_without_a_membership_of_the_cell_is_counted_and_never_dialled() {
    let (cell, port) = cell();
    let stranger = Stranger::on(port);
    let trap = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = trap.local_addr().unwrap();
    let caller = cell.member(10, &[]).start();
    // The first call begins to watch the name.
    call(&caller, "org.example.trap").unwrap_err();
    let other = Cell::alone("desk", 201);
    let terms = Terms { serves: &["org.example.*"], ..Terms::default() };
    let forged = other.membership(&Identity::from_seed([66; 32]), &terms);
    stranger.send(&announcement(30, &registration(&cell, 66, "org.example.trap", at, &forged)));
    caller.audited("fleet_refused", 1);
    assert!(caller.metric("capd_fleet_refused_total{why=\"membership\"}") >= 1);
    let error = call(&caller, "org.example.trap").unwrap_err();
    assert!(error.contains("4002"), "{error}");
    trap.set_nonblocking(true).unwrap();
    assert!(trap.accept().is_err(), "it was dialled");
    // The same from a member is dialled: the trap works.
    let terms = Terms { serves: &["org.example.*"], ..Terms::default() };
    let true_one = cell.membership(&Identity::from_seed([67; 32]), &terms);
    stranger.send(&announcement(30, &registration(&cell, 67, "org.example.trap", at, &true_one)));
    trap.set_nonblocking(false).unwrap();
    let watcher = std::thread::spawn(move || trap.accept().map(|(_, from)| from));
    let asked = ["call", "org.example.trap", "--params", "{}", "--timeout", "3s"];
    assert_ne!(exit_code(&run_with(capctl(Some(&caller.socket)).args(asked), b"")), 0);
    until("it is dialled", || watcher.is_finished());
}

#[test]
fn hostile_messages_neither_stop_a_sidecar_nor_hide_what_is_sound() {
    let (cell, port) = cell();
    let stranger = Stranger::on(port);
    let caller = cell.member(10, &[]).start();
    let pointer = |at: u8| [0xc0, at];
    let response = |counts: [u8; 8], rest: &[u8]| [&[0, 0, 0x84, 0], &counts[..], rest].concat();
    let many = [0xff; 8];
    let hostile = [
        Vec::new(),
        vec![0],
        response([0, 0, 0, 1, 0, 0, 0, 0], &pointer(12)),
        response([0, 0, 0, 1, 0, 0, 0, 0], &[&pointer(14)[..], &pointer(12)].concat()),
        response(many, &pointer(12).repeat(4_000)),
        response(many, &[0; 8_000]),
        response([0, 0, 0xff, 0xff, 0, 0, 0, 0], &[&[63; 1][..], &[b'a'; 63]].concat().repeat(120)),
        announcement(u32::MAX, &vec![vec![b'='; 255]; 30]),
        announcement(30, &[b"txtvers=1".to_vec(), b"cell=desk".to_vec(), b"k0=n/a/b/c".to_vec()]),
    ];
    for _ in 0..50 {
        hostile.iter().for_each(|packet| stranger.send(packet));
    }
    // More registrations than are kept, each of a name of its own.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let strings = registration(&cell, 66, "org.example.n0", nobody, b"none");
    for number in 0..2_000 {
        let mut strings = strings.clone();
        let text = String::from_utf8(strings[2].clone()).unwrap();
        strings[2] = text.replace("example.n0", &format!("example.n{number}")).into_bytes();
        stranger.send(&announcement(3, &strings));
    }
    // Each truncation of what a sidecar says.
    let whole = announcement(30, &strings);
    (0..whole.len()).for_each(|length| stranger.send(&whole[..length]));
    let _provider = provider(&cell, 1, &["ask"]).start();
    until("a call goes through", || call(&caller, "org.example.ask").is_ok());
}

#[test]
fn a_port_that_is_not_shared_and_an_interface_that_is_not_there_are_said_with_what_to_do() {
    let (cell, port) = cell();
    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let said = cell.member(1, &[]).refused_to_start();
    assert!(said.contains("config key fleet.mdns: UDP port") && said.contains("ss -ulnp"), "{said}");
    drop(taken);
    let elsewhere = cell.member(1, &[]).set("fleet.addresses", "quic://192.0.2.77:1").refused_to_start();
    assert!(elsewhere.contains("no interface of this machine has 192.0.2.77"), "{elsewhere}");
    let both = cell.member(1, &[]).set("fleet.file", "fleet.db").refused_to_start();
    assert!(both.contains("fleet.mdns") && both.contains("is on, and fleet.file is set"), "{both}");
}
