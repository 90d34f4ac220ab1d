//! Counts what the links of this process refused, cut off and carried, and how full each limit is.
//!
//! Counting is one relaxed addition. Each link counts for itself, and the sum is made on request.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use capd_proto::identity::Did;

use super::link::Kind;
use super::system::{Clock, stirred};

/// A limit of links. Each counts what it refused or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Links that others opened.
    Links,
    /// Such links that are opening.
    LinksOpening,
    /// Peers' links that one address is opening.
    LinksOpeningPerAddress,
    /// Opening links beyond which a peer must first prove its address; counts those that had to.
    LinksUnvalidated,
    /// Links that one peer opened.
    LinksPerPeer,
    /// The rate of handshakes of one address.
    HandshakeRate,
    /// Time for handshake and HELLO.
    HandshakeTime,
    /// Time for a frame that has begun.
    FrameTime,
    /// Time without a sign of life.
    IdleTime,
    /// Time for an answer to a PING while something waits.
    DeadTime,
    /// The rate of streams that a peer opens, and resets or leaves empty.
    StreamResetRate,
    /// Frames that wait on one stream.
    QueueFrames,
    /// Bytes that wait on one link.
    QueueBytes,
    /// Bytes of unfinished frames on one link; counts the frames that had to wait.
    ReceiveBytes,
    /// Bytes of one frame.
    FrameBytes,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 15] = [
        Self::Links,
        Self::LinksOpening,
        Self::LinksOpeningPerAddress,
        Self::LinksUnvalidated,
        Self::LinksPerPeer,
        Self::HandshakeRate,
        Self::HandshakeTime,
        Self::FrameTime,
        Self::IdleTime,
        Self::DeadTime,
        Self::StreamResetRate,
        Self::QueueFrames,
        Self::QueueBytes,
        Self::ReceiveBytes,
        Self::FrameBytes,
    ];
}

/// The use of the limits of links; for a limit of each link, peer or address, the highest use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Links that others opened, the larger number of peers' and the agent's.
    pub links: usize,
    /// Such links that are opening, the larger number of peers' and the agent's.
    pub links_opening: usize,
    /// Peers' links that are opening.
    pub peer_links_opening: usize,
    /// The most of these from one address.
    pub links_opening_per_address: usize,
    /// The most links that one peer opened.
    pub links_per_peer: usize,
    /// Exchange streams that a peer has open on one link.
    pub streams: usize,
    /// Bytes that wait on one link.
    pub queue_bytes: usize,
    /// Bytes kept for unfinished frames of one link.
    pub receive_bytes: usize,
    /// Open links of each kind.
    pub open: Vec<(Kind, usize)>,
    /// Bytes that wait on all links.
    pub queue_bytes_total: usize,
    /// Bytes of frames received since the start.
    pub received_bytes: u64,
    /// Bytes of frames handed to the transport since the start.
    pub sent_bytes: u64,
}

/// What the links of one peer have carried since the start, those that are closed included. **Units:** bytes of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Received from it.
    pub received_bytes: u64,
    /// Handed to the transport for it.
    pub sent_bytes: u64,
}

/// Counts for all links of one process.
#[derive(Debug)]
pub(super) struct Meter {
    clock: Clock,
    refused: [AtomicU64; Limit::ALL.len()],
    links: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    traffic: BTreeMap<u64, Arc<Traffic>>,
    next: u64,
    /// Bytes carried by closed links.
    closed: Carried,
    /// Those of each peer, and the place of the link that closed last.
    closed_by_peer: BTreeMap<Did, (Carried, u64)>,
}

/// What one link carries and holds.
#[derive(Debug)]
pub(super) struct Traffic {
    kind: Kind,
    pub(super) is_open: AtomicBool,
    /// Who is at the other end of a peer link, once that is known.
    pub(super) peer: OnceLock<Did>,
    pub(super) received_bytes: AtomicU64,
    /// When bytes last came. **Units:** monotonic milliseconds.
    pub(super) heard_ms: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    /// Bytes that wait to be written.
    pub(super) queued_bytes: AtomicUsize,
    /// Bytes kept for frames that are not whole.
    pub(super) held_bytes: AtomicUsize,
    /// Exchange streams that the peer has open.
    pub(super) streams: AtomicUsize,
}

impl Traffic {
    /// Of a link that has carried nothing.
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            is_open: AtomicBool::new(false),
            peer: OnceLock::new(),
            received_bytes: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            queued_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        }
    }

    fn carried(&self) -> Carried {
        Carried {
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
        }
    }
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

impl Links {
    /// Adds what a link carried that has closed.
    fn close(&mut self, place: u64) {
        let Some(traffic) = self.traffic.remove(&place) else { return };
        self.closed += traffic.carried();
        let Some(peer) = traffic.peer.get() else { return };
        if self.closed_by_peer.len() >= PEERS_MAX && !self.closed_by_peer.contains_key(peer) {
            // A counter that begins again is what those who read counters expect of one that was away.
            let oldest = self.closed_by_peer.iter().min_by_key(|(_, (_, place))| *place);
            if let Some(oldest) = oldest.map(|(peer, _)| peer.clone()) {
                self.closed_by_peer.remove(&oldest);
            }
        }
        let (carried, last) = self.closed_by_peer.entry(peer.clone()).or_default();
        *carried += traffic.carried();
        *last = self.next;
        self.next += 1;
    }
}

/// A link's place in the meter, until it is dropped.
#[derive(Debug)]
pub(super) struct Metered {
    pub(super) meter: Arc<Meter>,
    pub(super) traffic: Arc<Traffic>,
    place: u64,
}

impl Metered {
    /// Counts bytes that came, which are a sign of life.
    pub(super) fn received(&self, bytes: usize) {
        self.traffic.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes > 0 {
            self.traffic.heard_ms.store(self.meter.clock.monotonic_ms(), Ordering::Relaxed);
            stirred();
        }
    }

    /// Counts bytes that leave.
    pub(super) fn sent(&self, bytes: usize) {
        self.traffic.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        stirred();
    }
}

impl Meter {
    /// Counts for links whose time is that of `clock`.
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, refused: std::array::from_fn(|_| AtomicU64::new(0)), links: Mutex::default() })
    }

    /// Counts something that `limit` refused or cut off.
    pub(super) fn refused(&self, limit: Limit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often `limit` refused or cut off something.
    pub(super) fn refusals(&self, limit: Limit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }

    /// Gives a link its place.
    pub(super) fn link(self: &Arc<Self>, kind: Kind) -> Metered {
        let traffic = Arc::new(Traffic::new(kind));
        let mut links = self.links();
        let place = links.next;
        links.next += 1;
        links.traffic.insert(place, Arc::clone(&traffic));
        drop(links);
        Metered { meter: Arc::clone(self), traffic, place }
    }

    /// What the links carry and hold; the rest of the levels is the host's to fill in.
    pub(super) fn levels(&self) -> Levels {
        let links = self.links();
        let mut levels = Levels {
            open: KINDS.map(|kind| (kind, 0)).to_vec(),
            received_bytes: links.closed.received_bytes,
            sent_bytes: links.closed.sent_bytes,
            ..Levels::default()
        };
        for traffic in links.traffic.values() {
            let queued = traffic.queued_bytes.load(Ordering::Relaxed);
            levels.queue_bytes = levels.queue_bytes.max(queued);
            levels.queue_bytes_total += queued;
            levels.receive_bytes = levels.receive_bytes.max(traffic.held_bytes.load(Ordering::Relaxed));
            levels.streams = levels.streams.max(traffic.streams.load(Ordering::Relaxed));
            let Carried { received_bytes, sent_bytes } = traffic.carried();
            levels.received_bytes += received_bytes;
            levels.sent_bytes += sent_bytes;
            if traffic.is_open.load(Ordering::Relaxed)
                && let Some((_, count)) = levels.open.iter_mut().find(|(kind, _)| *kind == traffic.kind)
            {
                *count += 1;
            }
        }
        levels
    }

    /// What the links of each peer have carried, of the last [`PEERS_MAX`] peers without an open one at the most.
    pub(super) fn carried_by_peer(&self) -> BTreeMap<Did, Carried> {
        let links = self.links();
        let closed = links.closed_by_peer.iter();
        let mut all: BTreeMap<_, _> = closed.map(|(peer, (carried, _))| (peer.clone(), *carried)).collect();
        for traffic in links.traffic.values() {
            if let Some(peer) = traffic.peer.get() {
                *all.entry(peer.clone()).or_default() += traffic.carried();
            }
        }
        all
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        // What a panic leaves behind is at worst a count that is off by one link.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.links().close(self.place);
    }
}

/// Most peers without an open link whose bytes are remembered; beyond, the one whose link closed the longest ago is
/// forgotten.
const PEERS_MAX: usize = 1_024;
/// Every kind of link.
const KINDS: [Kind; 4] = [Kind::PeerQuic, Kind::PeerTcp, Kind::LocalUnix, Kind::LocalTcp];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_carried_is_counted_beyond_its_end() {
        let meter = Meter::new(Clock::start());
        let (one, two) = (meter.link(Kind::PeerQuic), meter.link(Kind::LocalUnix));
        for (link, bytes) in [(&one, 10), (&two, 3)] {
            link.traffic.is_open.store(true, Ordering::Relaxed);
            link.traffic.received_bytes.fetch_add(bytes, Ordering::Relaxed);
            link.traffic.queued_bytes.fetch_add(bytes as usize, Ordering::Relaxed);
        }
        let levels = meter.levels();
        assert_eq!((levels.received_bytes, levels.queue_bytes, levels.queue_bytes_total), (13, 10, 13));
        let open = |levels: &Levels| levels.open.iter().map(|(_, count)| *count).collect::<Vec<_>>();
        assert_eq!(open(&levels), [1, 0, 1, 0]);
        drop(one);
        let levels = meter.levels();
        assert_eq!((levels.received_bytes, levels.queue_bytes), (13, 3));
        assert_eq!(open(&levels), [0, 0, 1, 0]);
    }

    fn peer(number: usize) -> Did {
        Did::parse(&format!("did:web:{number:06}.example")).unwrap()
    }

    fn carry(link: &Metered, peer: Did, bytes: u64) {
        // Each link is of one peer.
        let _first = link.traffic.peer.set(peer);
        link.traffic.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[test]
    fn what_a_peer_is_sent_only_grows_whatever_links_it_has() {
        let meter = Meter::new(Clock::start());
        let sent = |number| meter.carried_by_peer().get(&peer(number)).map(|carried| carried.sent_bytes);
        let (one, two, other) =
            (meter.link(Kind::PeerQuic), meter.link(Kind::PeerTcp), meter.link(Kind::PeerQuic));
        assert_eq!(sent(1), None);
        carry(&one, peer(1), 5);
        carry(&two, peer(1), 7);
        carry(&other, peer(2), 100);
        assert_eq!((sent(1), sent(2)), (Some(12), Some(100)));
        drop((one, two));
        assert_eq!(sent(1), Some(12));
        let again = meter.link(Kind::PeerQuic);
        carry(&again, peer(1), 1);
        assert_eq!((sent(1), sent(2)), (Some(13), Some(100)));
    }

    #[test]
    fn of_more_peers_than_are_remembered_the_one_that_left_first_is_forgotten() {
        let meter = Meter::new(Clock::start());
        let open = meter.link(Kind::PeerQuic);
        carry(&open, peer(0), 1);
        for number in 1..=PEERS_MAX {
            carry(&meter.link(Kind::PeerQuic), peer(number), 1);
        }
        // It comes back, so the second one is the one that left first.
        carry(&meter.link(Kind::PeerQuic), peer(1), 1);
        carry(&meter.link(Kind::PeerQuic), peer(PEERS_MAX + 1), 1);
        let carried = meter.carried_by_peer();
        assert_eq!(carried.len(), PEERS_MAX + 1);
        let sent = |number| carried.get(&peer(number)).map(|carried| carried.sent_bytes);
        assert_eq!([0, 1, 2, 3, PEERS_MAX + 1].map(sent), [Some(1), Some(2), None, Some(1), Some(1)]);
    }

    #[test]
    fn each_limit_has_a_count_of_its_own() {
        let meter = Meter::new(Clock::start());
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
            for _ in 0..=number {
                meter.refused(limit);
            }
        }
        let refusals = Limit::ALL.map(|limit| meter.refusals(limit));
        assert!(refusals.into_iter().eq(1..=Limit::ALL.len() as u64));
    }
}
