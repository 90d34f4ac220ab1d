//! Counts what the links of this process refused, cut off and carried, and how full each limit is.
//!
//! Counting is one relaxed addition. Each link counts for itself, and the sum is made on request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::link::Kind;
use super::system::Clock;

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
    received_bytes: u64,
    sent_bytes: u64,
}

/// What one link carries and holds.
#[derive(Debug)]
pub(super) struct Traffic {
    kind: Kind,
    pub(super) is_open: AtomicBool,
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
            received_bytes: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            queued_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        }
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
        }
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
            received_bytes: links.received_bytes,
            sent_bytes: links.sent_bytes,
            ..Levels::default()
        };
        for traffic in links.traffic.values() {
            let queued = traffic.queued_bytes.load(Ordering::Relaxed);
            levels.queue_bytes = levels.queue_bytes.max(queued);
            levels.queue_bytes_total += queued;
            levels.receive_bytes = levels.receive_bytes.max(traffic.held_bytes.load(Ordering::Relaxed));
            levels.streams = levels.streams.max(traffic.streams.load(Ordering::Relaxed));
            levels.received_bytes += traffic.received_bytes.load(Ordering::Relaxed);
            levels.sent_bytes += traffic.sent_bytes.load(Ordering::Relaxed);
            if traffic.is_open.load(Ordering::Relaxed)
                && let Some((_, count)) = levels.open.iter_mut().find(|(kind, _)| *kind == traffic.kind)
            {
                *count += 1;
            }
        }
        levels
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        // What a panic leaves behind is at worst a count that is off by one link.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let mut links = self.meter.links();
        links.traffic.remove(&self.place);
        links.received_bytes += self.traffic.received_bytes.load(Ordering::Relaxed);
        links.sent_bytes += self.traffic.sent_bytes.load(Ordering::Relaxed);
    }
}

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
