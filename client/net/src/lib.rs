//! Carries capd's messages: sockets in, messages to a [`Service`] out; messages in, frames on the right stream out.
//!
//! Read it along one link. [`quic`], [`tcp`] and [`local`] make connections, [`dial`] keeps them up. `tls` proves the
//! peer's identity, from the seed in [`key_file`]. `driver` turns a connection into a [`Link`] with the help of
//! `greeting`, and keeps it. `socket` reads and writes an agent's connection, `wire` cuts frames and writes batches,
//! `spare` holds buffers for large frames. `stream` and its `outbox` lead to a writer, `exchange` serves QUIC's further
//! streams, `early` those that come too soon. `gather` batches signed messages of several streams, `turnstile` makes
//! large ones take turns behind everything else. `address`, `claim`, `half_open` and `pace` bound connections and
//! rates, `meter` counts what was refused and carried. [`pending`] matches answers to requests, and [`deadlines`] finds
//! those that are overdue. One [`System`] provides everything that all of this takes from the machine. [`fault`]
//! handles a task that panics, [`kin`] finds the parents of a process.
//!
//! Links between sidecars need the feature `peer`: QUIC, and TCP with TLS. An agent needs neither, so the feature is
//! off by default, and `absent` replaces it.

#![cfg_attr(
    not(feature = "peer"),
    allow(dead_code, reason = "some parts serve links between sidecars alone")
)]

pub mod deadlines;
pub mod dial;
pub mod fault;
pub mod http;
pub mod key_file;
pub mod kin;
pub mod local;
pub mod pending;
#[cfg(feature = "peer")]
pub mod quic;
#[cfg(feature = "peer")]
pub mod tcp;

#[cfg(not(feature = "peer"))]
mod absent;
mod address;
mod claim;
mod close;
#[cfg(feature = "peer")]
mod connection;
mod driver;
#[cfg(feature = "peer")]
mod early;
#[cfg(feature = "peer")]
mod exchange;
#[cfg(feature = "peer")]
mod gather;
mod greeting;
mod half_open;
mod host;
mod link;
mod meter;
mod outbox;
mod pace;
mod settings;
mod socket;
mod spare;
mod stream;
mod system;
#[cfg(feature = "peer")]
mod tls;
mod turnstile;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::fleet::Membership;
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::message::Member;

pub use close::{CloseReason, Fault};
pub use host::Host;
pub use key_file::{KeyFileError, Seed, load_or_create};
pub use link::{Kind, Link, LinkId, Path, Route};
pub use meter::{Carried, Levels, Limit};
pub use outbox::SendError;
pub use settings::{FRAME_PROGRESS_BYTES, Settings};
pub use system::{Clock, Now, Random, Spawn, System, Task, Tasks, WallClock, Work, runtime};
#[cfg(feature = "peer")]
pub use system::{Names, Network, Resolver, Udp};
#[cfg(feature = "peer")]
pub use tls::CredentialsError;

#[cfg(feature = "peer")]
use ::quinn;
#[cfg(not(feature = "peer"))]
use absent::{connection, early, exchange, quic, quinn, tls};

/// A party that asks for a link and has proven its identity.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer<'a> {
    /// The DID of its key; on a local link the agent's own DID.
    pub principal: &'a Did,
    /// The kind of the other end and of the transport.
    pub kind: Kind,
    /// Its address; a unix socket has none.
    pub address: Option<SocketAddr>,
}

/// Whether somebody who connected is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It is if its HELLO shows a membership that [`Service::member`] takes.
    IfMember,
}

/// A link that a peer asked for, and that ended before it was open.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The DID of its key; none if it gave up before.
    pub peer: Option<&'a Did>,
    /// Its address.
    pub address: SocketAddr,
    /// Why the link ended.
    pub reason: &'a CloseReason,
}

/// Handles the links of a process.
///
/// Every method is called from the task that reads the link, so nothing delays the handling of a frame: methods must
/// not block. For one link they come in order: `on_open`, then messages and resets, then `on_close`; those of different
/// streams of a QUIC link come from different tasks and may overlap.
pub trait Service: Send + Sync + 'static {
    /// Whether somebody who connected is let in. Everybody is, unless the service says otherwise.
    fn admit(&self, newcomer: &Newcomer<'_>) -> Admit {
        let _everybody = newcomer;
        Admit::Yes
    }

    /// What this side's HELLO and HELLO_ACK show to peers of its part in a fleet; nothing, unless the service says
    /// otherwise. **Source:** FLEET 4.
    fn part(&self) -> Member<'static> {
        Member::default()
    }

    /// What a peer's HELLO or HELLO_ACK shows of its part in a fleet, in a link of either direction: its membership, if
    /// that counts.
    ///
    /// **Errors:** why it gets no link; both sides are told.
    fn member(
        &self,
        newcomer: &Newcomer<'_>,
        shown: &Member<'_>,
    ) -> Result<Option<Arc<Membership>>, &'static str> {
        let _nobody = (newcomer, shown);
        Ok(None)
    }

    /// The journal that this side's HELLO names to peers. **Source:** PROTOCOL 8.
    fn journal(&self) -> Option<JournalId> {
        None
    }

    /// Whether a link to a peer that is dialled again and again is still wanted. It is, unless the service says otherwise.
    fn wants_link(&self, peer: &Did) -> bool {
        let _any = peer;
        true
    }

    /// A link is open.
    fn on_open(&self, link: &Arc<Link>);

    /// A message arrived: the raw bytes of one envelope, not yet looked at. Keep a clone of `route` while its call runs,
    /// and answer there. `payload` is a view of a receive buffer of up to 64 KiB: what is kept for long is better copied.
    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes);

    /// Messages that arrived at once, in order, at least one: what is cheaper to do for several is done for them together.
    fn on_messages(&self, link: &Arc<Link>, route: &Route, payloads: &[Bytes]) {
        payloads.iter().for_each(|payload| self.on_message(link, route, payload.clone()));
    }

    /// Messages that arrived at about the same time on different streams of a link, those of each stream in order.
    fn on_gathered(&self, link: &Arc<Link>, messages: &[(Route, Bytes)]) {
        messages.iter().for_each(|(route, payload)| self.on_message(link, route, payload.clone()));
    }

    /// The peer cancelled the single call that a stream of its own carries, by resetting it. **Source:** PROTOCOL 4.
    fn on_reset(&self, link: &Arc<Link>, route: &Route);

    /// A link that a peer asked for did not come about.
    fn on_refused(&self, refused: &Refused<'_>) {
        let _nobody = refused;
    }

    /// A peer that is dialled has no link: what became of each of its addresses, and within which time they are dialled
    /// again, if that is known.
    fn on_unreachable(
        &self,
        peer: &Did,
        failures: &[(&dial::Address, dial::ConnectError)],
        again: Option<Duration>,
    ) {
        let _nobody = (peer, failures, again);
    }

    /// The peer answered a PING.
    fn on_pong(&self, link: &Arc<Link>) {
        let _nobody_asked = link;
    }

    /// A link that was open is closed; nothing more comes from it.
    fn on_close(&self, link: &Arc<Link>, reason: &CloseReason);
}

#[cfg(test)]
mod tests;
