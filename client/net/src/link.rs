//! Represents an open link to the rest of the daemon: messages in, frames on the right stream out.
//!
//! A [`Link`] exists from the end of HELLO until it closes. A [`Route`] names the stream of one request. While a route
//! is held, its call counts as in flight, which decides about the choice of a stream and about draining.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use capd_proto::envelope::Encoded;
use capd_proto::fleet::{Fence, Membership};
use capd_proto::frame::FrameType;
use capd_proto::identity::{Did, PublicKey};
use capd_proto::ledger::JournalId;
use capd_proto::link::Role;

use super::close::CloseReason;
use super::exchange::Exchanges;
use super::outbox::{Precedence, SendError};
use super::stream::{Flow, Stream};

/// Names a link within this process, for logs and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u64);

impl LinkId {
    /// An id that no other link of this process has.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The kind of the other end, and the transport. **Source:** PROTOCOL 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another sidecar, over QUIC.
    PeerQuic,
    /// Another sidecar, over TCP with TLS.
    PeerTcp,
    /// This sidecar's agent (or, seen from there, its sidecar), over a unix socket.
    LocalUnix,
    /// The same over loopback TCP with a token.
    LocalTcp,
}

impl Kind {
    /// Whether the link joins an agent to its own sidecar.
    pub const fn is_local(self) -> bool {
        match self {
            Self::PeerQuic | Self::PeerTcp => false,
            Self::LocalUnix | Self::LocalTcp => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerQuic => "quic",
            Self::PeerTcp => "tcp",
            Self::LocalUnix => "unix",
            Self::LocalTcp => "local-tcp",
        })
    }
}

/// What a QUIC link has measured since it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The newest estimate.
    pub round_trip: Duration,
    /// Packets that this side sent.
    pub sent_packets: u64,
    /// Packets of those that did not arrive, and were sent again.
    pub lost_packets: u64,
}

/// An open link. Cheap to share; to close it is to ask the driver.
pub struct Link {
    id: LinkId,
    role: Role,
    kind: Kind,
    principal: Did,
    key: Option<PublicKey>,
    remote: String,
    channel_auth: bool,
    journal: Option<JournalId>,
    incarnation: Option<u64>,
    membership: Option<Arc<Membership>>,
    flow: Arc<Flow>,
    /// The byte stream, or QUIC's control stream.
    control: Arc<Stream>,
    exchanges: Option<Exchanges>,
}

/// What a link is made of once HELLO is done.
pub(super) struct Identification {
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) principal: Did,
    pub(super) key: Option<PublicKey>,
    pub(super) remote: String,
    pub(super) channel_auth: bool,
    pub(super) journal: Option<JournalId>,
    pub(super) incarnation: Option<u64>,
    pub(super) membership: Option<Arc<Membership>>,
}

impl Link {
    pub(super) fn new(
        identification: Identification,
        flow: Arc<Flow>,
        control: Arc<Stream>,
        exchanges: Option<Exchanges>,
    ) -> Arc<Self> {
        let Identification {
            role,
            kind,
            principal,
            key,
            remote,
            channel_auth,
            journal,
            incarnation,
            membership,
        } = identification;
        Arc::new(Self {
            id: LinkId::next(),
            role,
            kind,
            principal,
            key,
            remote,
            channel_auth,
            journal,
            incarnation,
            membership,
            flow,
            control,
            exchanges,
        })
    }

    /// The link's id in this process.
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Whether this side opened the link.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The kind of the other end and of the transport.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The DID that the other side proved: its TLS key's on a peer link, the agent's own on a local one. **Source:** PROTOCOL 2.
    pub const fn principal(&self) -> &Did {
        &self.principal
    }

    /// The key that TLS proved, whose DID the principal is; none on a local link.
    pub const fn key(&self) -> Option<&PublicKey> {
        self.key.as_ref()
    }

    /// The other side's address, for logs.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// Whether `sig` may be empty on envelopes of the link's own principal. **Source:** PROTOCOL 5.
    pub const fn channel_auth(&self) -> bool {
        self.channel_auth
    }

    /// The journal that the peer's HELLO named; an older peer names none. **Source:** PROTOCOL 8.
    pub const fn journal(&self) -> Option<JournalId> {
        self.journal
    }

    /// The process of a fleet's member that the peer's HELLO named. **Source:** FLEET X12.
    pub fn fence(&self) -> Option<Fence> {
        Some(Fence { incarnation: self.incarnation?, journal: self.journal? })
    }

    /// The membership that the peer's HELLO showed, if it counts here. **Source:** FLEET 4.
    pub const fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// Largest message that both sides accept, in bytes of the envelope. **Source:** PROTOCOL 3.
    pub fn message_bytes_max(&self) -> usize {
        self.flow.message_bytes_max()
    }

    /// Calls in flight on this link, both ways.
    pub fn in_flight(&self) -> usize {
        self.flow.in_flight()
    }

    /// Sends a request and returns its route, which counts the call as in flight until dropped.
    ///
    /// On a byte stream it takes that stream. On QUIC a small message takes the shared exchange stream with the fewest
    /// calls in flight and a large one a stream of its own, which ends with the answer (PROTOCOL 4). Small ones leave before
    /// larger ones that wait on the same stream.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn request(self: &Arc<Self>, payload: impl Into<Encoded>) -> Result<Route, SendError> {
        self.request_by(&payload.into(), Precedence::BySize)
    }

    /// As [`Link::request`], after everything that waits on the stream.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn request_in_order(self: &Arc<Self>, payload: impl Into<Encoded>) -> Result<Route, SendError> {
        self.request_by(&payload.into(), Precedence::InOrder)
    }

    /// Cancels by message the call that was sent on `route`: after it on its stream, so that no cancel overtakes its
    /// call. Nothing can follow the only call of a stream: its unsent rest is reset (code 0x4901), and the cancel takes
    /// another stream. **Source:** PROTOCOL 4.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn cancel_behind(
        self: &Arc<Self>,
        route: &Route,
        payload: impl Into<Encoded>,
    ) -> Result<Route, SendError> {
        if let Some(single) = &route.stream.single {
            single.cut.cancel();
            return self.request_in_order(payload);
        }
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let counted = Route::counted(&route.stream);
        route.stream.send(&payload.into(), Precedence::InOrder)?;
        Ok(counted)
    }

    fn request_by(self: &Arc<Self>, payload: &Encoded, precedence: Precedence) -> Result<Route, SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        if self.flow.is_draining() {
            return Err(SendError::Draining);
        }
        let Some(exchanges) = &self.exchanges else {
            let route = Route::counted(&self.control);
            self.control.send(payload, precedence)?;
            return Ok(route);
        };
        exchanges.request(self, payload, precedence)
    }

    /// Sends a message that begins no call, on a stream that [`Link::request`] would choose, after everything that
    /// waits there; allowed while draining.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn notify(self: &Arc<Self>, payload: impl Into<Encoded>) -> Result<(), SendError> {
        match &self.exchanges {
            None => self.control.send(&payload.into(), Precedence::InOrder),
            Some(exchanges) => exchanges.request(self, &payload.into(), Precedence::InOrder).map(drop),
        }
    }

    /// When bytes last came from the other side, on any stream. **Units:** monotonic milliseconds of the host's clock.
    pub fn heard_ms(&self) -> u64 {
        self.flow.heard_ms()
    }

    /// Sends a PING to check the other side, unless an earlier one is unanswered.
    pub fn ask(&self, now_ms: u64) {
        if self.flow.unanswered_since_ms().is_none() {
            self.ask_anew(now_ms);
        }
    }

    /// Sends a PING and counts the time for its answer from here, even if an earlier one is unanswered.
    pub fn ask_anew(&self, now_ms: u64) {
        self.flow.ask_at(now_ms);
        self.probe();
    }

    /// Since when a PING is unanswered; any bytes count as an answer.
    ///
    /// **Units:** monotonic milliseconds of the host's clock.
    pub fn unanswered_since_ms(&self) -> Option<u64> {
        self.flow.unanswered_since_ms()
    }

    /// Bytes handed to the transport since the link began, and bytes that wait for it to take them.
    pub fn written_bytes(&self) -> (u64, usize) {
        let traffic = &self.flow.metered().traffic;
        (traffic.sent_bytes.load(Ordering::Relaxed), traffic.queued_bytes.load(Ordering::Relaxed))
    }

    /// What is known of the path that the link's packets take; nothing where the system resends them by itself.
    pub fn path(&self) -> Option<Path> {
        self.exchanges.as_ref().map(Exchanges::path)
    }

    /// Sends a PING. A restarted peer does not know the link and answers with a stateless reset, which otherwise may
    /// wait for the next keep-alive. **Source:** RFC 9000 10.3.
    pub fn probe(&self) {
        // A full queue leaves on its own, and is as good a probe.
        let _queued =
            self.control.send_frame(FrameType::Ping, &Bytes::from_static(PROBE).into(), Precedence::BySize);
    }

    /// Sends GOAWAY, lets calls in flight end, then closes the link. **Source:** PROTOCOL 4.
    pub fn drain(&self) {
        self.flow.wish(|wishes| wishes.drain = true);
    }

    /// Closes the link at once; what is queued is still written, within a second. The first reason counts.
    pub fn close(&self, reason: CloseReason) {
        self.flow.wish(|wishes| {
            wishes.close.get_or_insert(reason);
        });
    }

    /// Whether either side has said GOAWAY or the link is closed, so that [`Link::request`] is refused.
    pub fn is_draining(&self) -> bool {
        self.flow.is_draining()
    }

    /// Waits until the link is closed and [`super::Service::on_close`] has returned.
    pub async fn closed(&self) {
        self.flow.closed.cancelled().await;
    }

    /// Whether the link is closed: it carries no more messages.
    pub fn is_closed(&self) -> bool {
        self.flow.is_over()
    }

    /// The exchange streams of a QUIC link.
    pub(super) const fn exchanges(&self) -> Option<&Exchanges> {
        self.exchanges.as_ref()
    }

    pub(super) const fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({} {} {} {})", self.id, self.kind, self.remote, self.principal)
    }
}

/// The stream of a request, on which its answer belongs.
///
/// A held route is a call in flight on its stream and link; the route passed to [`super::Service::on_message`] is not
/// held, but its clone is. Dropping the last route of a stream that carried a single call ends the stream.
pub struct Route {
    stream: Arc<Stream>,
    is_counted: bool,
}

impl Route {
    /// A route that counts as a call in flight.
    pub(super) fn counted(stream: &Arc<Stream>) -> Self {
        stream.begin_call();
        Self { stream: Arc::clone(stream), is_counted: true }
    }

    /// A reader's own route.
    pub(super) const fn uncounted(stream: Arc<Stream>) -> Self {
        Self { stream, is_counted: false }
    }

    /// The same stream, as no call in flight.
    pub(super) fn uncounted_clone(&self) -> Self {
        Self::uncounted(Arc::clone(&self.stream))
    }

    /// Sends a message on this stream: an answer to the request that came on it. It may leave before larger ones.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn send(&self, payload: impl Into<Encoded>) -> Result<(), SendError> {
        self.stream.send(&payload.into(), Precedence::BySize)
    }

    /// Cancels the call by resetting its stream (code 0x4901), if it has one of its own; the answer is not awaited.
    /// Returns `false` on a shared stream, where a call is cancelled by message. **Source:** PROTOCOL 4.
    pub fn cancel(&self) -> bool {
        match &self.stream.single {
            Some(single) => {
                single.cancel.cancel();
                true
            }
            None => false,
        }
    }

    /// Whether the stream carries one call and nothing else.
    pub fn is_single(&self) -> bool {
        self.stream.single.is_some()
    }

    /// Whether both routes are the same stream of the same link.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
    }
}

impl Clone for Route {
    fn clone(&self) -> Self {
        Self::counted(&self.stream)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        if self.is_counted {
            self.stream.end_call();
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("is_counted", &self.is_counted).finish_non_exhaustive()
    }
}

/// What a probing PING carries; its PONG tells nothing more than that it came.
const PROBE: &[u8] = &[0; 8];
