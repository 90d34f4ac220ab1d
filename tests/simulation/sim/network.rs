//! Datagrams in; the same datagrams later, twice, in another order, or never, out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use capd::net::Network;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::dice::Dice;
use super::process::{Driven, Process};
use super::trace::{Happening, Trace};

/// What the network does to datagrams. **Units:** permille and virtual milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    pub lost_permille: u64,
    pub doubled_permille: u64,
    pub latency_ms: (u64, u64),
    pub spells: Vec<Spell>,
    /// From here on nothing is lost or doubled.
    pub calm_from_ms: u64,
}

/// A time in which one machine's datagrams fare worse.
#[derive(Clone, Debug)]
pub struct Spell {
    pub from_ms: u64,
    pub to_ms: u64,
    pub machine: IpAddr,
    pub kind: SpellKind,
}

#[derive(Clone, Copy, Debug)]
pub enum SpellKind {
    /// Nothing comes through either way.
    CutOff,
    /// What it sends is lost; what is sent to it arrives.
    Mute,
    /// It takes so much longer.
    Slow(u64),
}

/// What went over the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub packets: u64,
    pub dropped: u64,
}

/// The network of one world. Clones are one network.
#[derive(Clone)]
pub struct Net(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes the delivery: something is due earlier than what was.
    sooner: Notify,
    trace: Trace,
}

struct State {
    dice: Dice,
    weather: Weather,
    boxes: BTreeMap<SocketAddr, Bound>,
    on_the_way: BinaryHeap<Reverse<Packet>>,
    sent: u64,
    traffic: Traffic,
}

/// Whose socket is bound to an address.
struct Bound {
    process: Process,
    mailbox: Arc<Mailbox>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    due_ms: u64,
    number: u64,
    to: SocketAddr,
    from: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Mailbox(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    packets: VecDeque<(SocketAddr, Vec<u8>)>,
    reader: Option<Waker>,
}

impl Net {
    pub fn new(dice: Dice, weather: Weather, trace: Trace) -> Self {
        let state = State {
            dice,
            weather,
            boxes: BTreeMap::new(),
            on_the_way: BinaryHeap::new(),
            sent: 0,
            traffic: Traffic::default(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), sooner: Notify::new(), trace }))
    }

    /// Brings datagrams to their mailboxes, for ever.
    pub async fn deliver(self) {
        loop {
            let next_ms = self.state().on_the_way.peek().map(|Reverse(packet)| packet.due_ms);
            let due = async {
                match next_ms {
                    Some(at_ms) => sleep_until(self.0.trace.moment(at_ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => self.hand_over(),
                () = self.0.sooner.notified() => {}
            }
        }
    }

    pub fn traffic(&self) -> Traffic {
        self.state().traffic
    }

    /// The sockets of one process.
    pub fn of(&self, process: &Process) -> Arc<dyn Network> {
        Arc::new(Sockets { net: self.clone(), process: process.clone() })
    }

    fn hand_over(&self) {
        let now_ms = self.0.trace.now_ms();
        let mut state = self.state();
        while state.on_the_way.peek().is_some_and(|Reverse(packet)| packet.due_ms <= now_ms) {
            let Some(Reverse(packet)) = state.on_the_way.pop() else { return };
            match state.boxes.get(&packet.to) {
                Some(bound) if bound.process.is_alive() => bound.mailbox.put(packet.from, packet.bytes),
                Some(_) | None => state.traffic.dropped += 1,
            }
        }
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now_ms = self.0.trace.now_ms();
        let details = [u64::from(from.port()), last_byte(from), last_byte(to), bytes.len() as u64];
        self.0.trace.note(Happening::Packet, &details);
        let mut state = self.state();
        state.traffic.packets += 1;
        let Some(extra_ms) = state.weather.delay_ms(from.ip(), to.ip(), now_ms) else {
            state.traffic.dropped += 1;
            return;
        };
        let is_calm = now_ms >= state.weather.calm_from_ms;
        let (lost, doubled) = (state.weather.lost_permille, state.weather.doubled_permille);
        if !is_calm && state.dice.chance(lost) {
            state.traffic.dropped += 1;
            return;
        }
        let copies = if !is_calm && state.dice.chance(doubled) { 2 } else { 1 };
        let (shortest, longest) = state.weather.latency_ms;
        let earliest_ms = state.on_the_way.peek().map(|Reverse(packet)| packet.due_ms);
        let mut is_sooner = false;
        for _ in 0..copies {
            // Each takes its own time, so later ones overtake earlier ones.
            let due_ms = now_ms + state.dice.within(shortest..longest + 1) + extra_ms;
            is_sooner |= earliest_ms.is_none_or(|earliest_ms| due_ms < earliest_ms);
            state.sent += 1;
            let number = state.sent;
            state.on_the_way.push(Reverse(Packet { due_ms, number, to, from, bytes: bytes.to_vec() }));
        }
        drop(state);
        if is_sooner {
            self.0.sooner.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Weather {
    /// How much longer a datagram takes because of spells; `None` when it does not arrive.
    fn delay_ms(&self, from: IpAddr, to: IpAddr, now_ms: u64) -> Option<u64> {
        let mut delay_ms = 0;
        let now = self.spells.iter().filter(|spell| (spell.from_ms..spell.to_ms).contains(&now_ms));
        for spell in now {
            let (sends, receives) = (spell.machine == from, spell.machine == to);
            match spell.kind {
                SpellKind::CutOff if sends || receives => return None,
                SpellKind::Mute if sends => return None,
                SpellKind::Slow(extra_ms) if sends || receives => delay_ms += extra_ms,
                SpellKind::CutOff | SpellKind::Mute | SpellKind::Slow(_) => {}
            }
        }
        Some(delay_ms)
    }
}

impl Mailbox {
    fn put(&self, from: SocketAddr, bytes: Vec<u8>) {
        let mut arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if arrived.packets.len() < MAILBOX_MAX {
            arrived.packets.push_back((from, bytes));
        }
        if let Some(reader) = arrived.reader.take() {
            reader.wake();
        }
    }
}

struct Sockets {
    net: Net,
    process: Process,
}

impl Network for Sockets {
    fn bind(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let mailbox = Arc::new(Mailbox::default());
        let mut state = self.net.state();
        if state.boxes.get(&address).is_some_and(|bound| bound.process.is_alive()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let bound = Bound { process: self.process.clone(), mailbox: Arc::clone(&mailbox) };
        state.boxes.insert(address, bound);
        Ok(Arc::new(Socket { address, net: self.net.clone(), process: self.process.clone(), mailbox }))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(Driven(self.process.clone()))
    }
}

/// One process's socket; a dead process's takes everything and sends nothing.
struct Socket {
    address: SocketAddr,
    net: Net,
    process: Process,
    mailbox: Arc<Mailbox>,
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.process.is_alive() {
            self.net.send(self.address, transmit.destination, transmit.contents);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut arrived = self.mailbox.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let Some((from, bytes)) = arrived.packets.pop_front() else { break };
            let len = bytes.len().min(buffer.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
            *meta = RecvMeta { addr: from, len, stride: len, ecn: None, dst_ip: None };
            count += 1;
        }
        if count == 0 {
            arrived.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut state = self.net.state();
        if state.boxes.get(&self.address).is_some_and(|bound| Arc::ptr_eq(&bound.mailbox, &self.mailbox)) {
            state.boxes.remove(&self.address);
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socket({})", self.address)
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn last_byte(address: SocketAddr) -> u64 {
    match address.ip() {
        IpAddr::V4(ip) => u64::from(ip.octets()[3]),
        IpAddr::V6(ip) => u64::from(ip.octets()[15]),
    }
}

/// Datagrams that wait for a socket's reader; more are lost, as a system's buffer loses them.
const MAILBOX_MAX: usize = 4_096;
