//! Says how the path to each peer is: its links, their round trip, and what was lost on the way.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use capd_proto::identity::Did;
use serde_json::{Value, json};

use super::Desk;
use crate::net::Carried;

/// What the open links to a peer say together.
pub(super) struct Path {
    peer: Did,
    pub(super) links: usize,
    /// On the fastest of those over QUIC; none where there is none.
    round_trip: Option<Duration>,
    sent_packets: u64,
    lost_packets: u64,
    /// On all links since the start.
    pub(super) carried: Carried,
}

impl Desk {
    /// The paths to peers that are configured or have a link, in the order of their DIDs.
    pub(super) fn paths_of_peers(&self) -> Vec<Path> {
        let peers = &self.directory.peers;
        let configured =
            self.ctx.config().peers.iter().filter_map(|peer| Did::parse(&peer.did).ok()).collect();
        let dids: BTreeSet<Did> = peers.connected().into_iter().chain::<Vec<_>>(configured).collect();
        let host = self.host.get().and_then(std::sync::Weak::upgrade);
        let carried = host.map(|host| host.carried_by_peer()).unwrap_or_default();
        let path = |peer| {
            let carried = carried.get(&peer).copied().unwrap_or_default();
            self.path(peer, carried)
        };
        dids.into_iter().take(PEERS_MAX).map(path).collect()
    }

    fn path(&self, peer: Did, carried: Carried) -> Path {
        let links = self.directory.peers.links_of(&peer);
        let measured: Vec<_> = links.iter().filter_map(|link| link.path()).collect();
        Path {
            peer,
            links: links.len(),
            round_trip: measured.iter().map(|path| path.round_trip).min(),
            sent_packets: measured.iter().map(|path| path.sent_packets).sum(),
            lost_packets: measured.iter().map(|path| path.lost_packets).sum(),
            carried,
        }
    }
}

impl Path {
    pub(super) fn label(&self) -> [Cow<'static, str>; 1] {
        [Cow::Owned(self.peer.as_str().to_owned())]
    }

    /// **Units:** seconds.
    pub(super) fn round_trip(&self) -> Option<([Cow<'static, str>; 1], f64)> {
        Some((self.label(), self.round_trip?.as_secs_f64()))
    }

    /// The share of packets that were lost.
    pub(super) fn lost(&self) -> Option<([Cow<'static, str>; 1], f64)> {
        let share = self.lost_packets as f64 / self.sent_packets as f64;
        (self.sent_packets > 0).then(|| (self.label(), share))
    }

    pub(super) fn json(&self) -> Option<Value> {
        Some(json!({
            "did": self.peer.as_str(),
            "round_trip_us": u64::try_from(self.round_trip?.as_micros()).unwrap_or(u64::MAX),
            "sent": self.sent_packets,
            "lost": self.lost_packets,
        }))
    }
}

/// Peers that are told of: each is a label of several metrics.
const PEERS_MAX: usize = 500;
