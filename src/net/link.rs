//! Messages in, frames on the right stream out: an open link as the rest of the daemon sees it.
//!
//! A [`Link`] exists from the moment HELLO is done until it closes. A [`Route`] names the stream that one request came
//! or went on; while a route is held, its call counts as in flight, which is what choosing a stream and draining go by.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::EnvelopeError;
use capd_proto::frame::{self, ErrorFrame, FrameError, FrameType, PayloadError};
use capd_proto::identity::Did;
use capd_proto::link::Role;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::Exchanges;
use super::outbox::{Budget, Outbox, SendError};
use super::settings::Settings;

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

/// Who is at the other end, and what carries the bytes. **Source:** PROTOCOL 1.
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

/// A breach of the protocol that a link does not survive: what the peer is told in an ERROR frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Fault {
    /// The wire code.
    pub code: Code,
    /// Why, in words that quote no secret.
    pub message: String,
}

impl Fault {
    /// A 1001 with this reason.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::INVALID_MESSAGE, message: message.into() }
    }

    /// What an ERROR frame says.
    pub(super) fn reported(error: &ErrorFrame<'_>) -> Self {
        Self {
            code: Code(u32::try_from(error.code).unwrap_or(u32::MAX)),
            message: error.message.clone().into_owned(),
        }
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<PayloadError> for Fault {
    fn from(error: PayloadError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

impl From<EnvelopeError> for Fault {
    fn from(error: EnvelopeError) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

/// Why a link closed, or never opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Drained: nothing was in flight any more.
    #[error("drained")]
    Drained,
    /// The time for draining ran out with calls in flight.
    #[error("calls were still in flight when the time for draining ran out")]
    DrainTimedOut,
    /// This side ended it.
    #[error("closed here: {0}")]
    Local(String),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Fault(Fault),
    /// The peer sent an ERROR frame.
    #[error("the peer reported {0}")]
    PeerFault(Fault),
    /// This side did not let the peer in.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer did not let this side in.
    #[error("refused by the peer: {0}")]
    RefusedByPeer(String),
    /// Handshake and HELLO did not finish in time.
    #[error("handshake and HELLO did not finish in time")]
    OpenTimedOut,
    /// Nothing was heard of the peer for the idle timeout.
    #[error("the peer fell silent")]
    Silent,
    /// The peer ended the connection in good order.
    #[error("the peer closed the link")]
    PeerClosed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl CloseReason {
    /// Whether this side ends the link, so that the peer is there to take the last frames.
    pub(super) const fn is_ours(&self) -> bool {
        match self {
            Self::Drained
            | Self::DrainTimedOut
            | Self::Local(_)
            | Self::Fault(_)
            | Self::Refused(_)
            | Self::OpenTimedOut => true,
            Self::PeerFault(_)
            | Self::RefusedByPeer(_)
            | Self::Silent
            | Self::PeerClosed
            | Self::Broken(_) => false,
        }
    }
}

impl From<Fault> for CloseReason {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// An open link. Cheap to share; closing it is asking the driver to.
pub struct Link {
    id: LinkId,
    role: Role,
    kind: Kind,
    principal: Did,
    remote: String,
    channel_auth: bool,
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
    pub(super) remote: String,
    pub(super) channel_auth: bool,
}

impl Link {
    pub(super) fn new(
        identification: Identification,
        flow: Arc<Flow>,
        control: Arc<Stream>,
        exchanges: Option<Exchanges>,
    ) -> Arc<Self> {
        let Identification { role, kind, principal, remote, channel_auth } = identification;
        Arc::new(Self {
            id: LinkId::next(),
            role,
            kind,
            principal,
            remote,
            channel_auth,
            flow,
            control,
            exchanges,
        })
    }

    /// The link's name in this process.
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Whether this side opened the link.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Who is at the other end, and over what.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The DID that the other side proved: its TLS key's on a peer link, the agent's own on a local one. **Source:** PROTOCOL 2.
    pub const fn principal(&self) -> &Did {
        &self.principal
    }

    /// The other side's address, for logs.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// Whether `sig` may be empty on envelopes of the link's own principal. **Source:** PROTOCOL 5.
    pub const fn channel_auth(&self) -> bool {
        self.channel_auth
    }

    /// Largest message both sides take, in bytes of the envelope. **Source:** PROTOCOL 3.
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
    /// calls in flight and a large one a stream of its own, which ends with the answer (PROTOCOL 4).
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn request(self: &Arc<Self>, payload: Bytes) -> Result<Route, SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        if self.flow.is_draining() {
            return Err(SendError::Draining);
        }
        let Some(exchanges) = &self.exchanges else {
            let route = Route::counted(&self.control);
            self.control.send(&payload)?;
            return Ok(route);
        };
        exchanges.request(self, payload)
    }

    /// Sends a message that begins no call, on a stream as [`Link::request`] would choose it; allowed while draining.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn notify(self: &Arc<Self>, payload: Bytes) -> Result<(), SendError> {
        match &self.exchanges {
            None => self.control.send(&payload),
            Some(exchanges) => exchanges.request(self, payload).map(drop),
        }
    }

    /// Says GOAWAY, lets calls in flight end, then closes the link. **Source:** PROTOCOL 4.
    pub fn drain(&self) {
        self.flow.wish(|wishes| wishes.drain = true);
    }

    /// Closes the link at once; what is queued is still written, within a second. The first reason given stands.
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

    /// Whether the link is closed: it takes no message and none comes from it.
    pub fn is_closed(&self) -> bool {
        self.flow.is_over.load(Ordering::Acquire)
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

/// The stream that a request came or went on, where its answer belongs.
///
/// A held route is a call in flight on its stream and link; what is passed to [`super::Service::on_message`] is not
/// held, its clone is. Dropping the last route of a stream that carried a single call ends the stream.
pub struct Route {
    stream: Arc<Stream>,
    is_counted: bool,
}

impl Route {
    /// A route that counts as a call in flight.
    pub(super) fn counted(stream: &Arc<Stream>) -> Self {
        stream.calls.fetch_add(1, Ordering::Relaxed);
        stream.flow.in_flight.fetch_add(1, Ordering::AcqRel);
        Self { stream: Arc::clone(stream), is_counted: true }
    }

    /// A reader's own route.
    pub(super) const fn uncounted(stream: Arc<Stream>) -> Self {
        Self { stream, is_counted: false }
    }

    /// Sends a message on this stream: an answer to the request that came on it.
    ///
    /// **Errors:** [`SendError`]; nothing was sent then.
    pub fn send(&self, payload: Bytes) -> Result<(), SendError> {
        self.stream.send(&payload)
    }

    /// Cancels the call by resetting its stream (code 0x4901), if it has one of its own; the answer is not waited for.
    /// Returns `false` on a shared stream, where a call is cancelled by message. **Source:** PROTOCOL 4.
    pub fn cancel(&self) -> bool {
        match &self.stream.cancel {
            Some(cancel) => {
                cancel.cancel();
                true
            }
            None => false,
        }
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
            self.stream.calls.fetch_sub(1, Ordering::Relaxed);
            if self.stream.flow.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.stream.flow.idle();
            }
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("is_counted", &self.is_counted).finish_non_exhaustive()
    }
}

/// One stream of a link: its queue and what it carries.
pub(super) struct Stream {
    pub(super) outbox: Arc<Outbox>,
    pub(super) flow: Arc<Flow>,
    /// Calls in flight, as held routes.
    pub(super) calls: AtomicUsize,
    /// Messages received on it.
    pub(super) received: AtomicUsize,
    /// Whether the service was told of a reset.
    pub(super) is_reset: AtomicBool,
    /// Set on a stream that this side opened for a single call.
    pub(super) cancel: Option<CancellationToken>,
}

impl Stream {
    /// A stream that carries many calls, or that the peer opened.
    pub(super) fn shared(flow: &Arc<Flow>) -> Arc<Self> {
        Self::new(flow, None)
    }

    /// A stream that this side opens for a single call.
    pub(super) fn single(flow: &Arc<Flow>) -> Arc<Self> {
        Self::new(flow, Some(CancellationToken::new()))
    }

    fn new(flow: &Arc<Flow>, cancel: Option<CancellationToken>) -> Arc<Self> {
        Arc::new(Self {
            outbox: Arc::new(Outbox::new(Arc::clone(&flow.budget), flow.frames_max)),
            flow: Arc::clone(flow),
            calls: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            is_reset: AtomicBool::new(false),
            cancel,
        })
    }

    /// Queues one message. **Errors:** [`SendError`].
    pub(super) fn send(&self, payload: &Bytes) -> Result<(), SendError> {
        let bytes_max = self.flow.message_bytes_max();
        if payload.len() > bytes_max {
            return Err(SendError::TooLarge { bytes: payload.len(), bytes_max });
        }
        self.send_frame(FrameType::AmpMessage, payload)
    }

    /// Queues one frame of any type. **Errors:** [`SendError::Full`], [`SendError::Closed`].
    pub(super) fn send_frame(&self, frame_type: FrameType, payload: &Bytes) -> Result<(), SendError> {
        let header = frame::encode_header(frame_type, payload.len()).map_err(|_| SendError::TooLarge {
            bytes: payload.len(),
            bytes_max: self.flow.message_bytes_max(),
        })?;
        self.outbox.push(header, payload)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// What a link's streams, routes and driver share.
pub(super) struct Flow {
    budget: Arc<Budget>,
    frames_max: usize,
    /// Largest message, without its frame's header; both sides' smaller one once HANDSHAKE is done.
    message_bytes_max: AtomicUsize,
    in_flight: AtomicUsize,
    is_draining: AtomicBool,
    /// Set just before the service is told of the end, so that no request begins behind its back.
    is_over: AtomicBool,
    wishes: Mutex<Wishes>,
    /// Wakes the driver: a wish was made, or draining may be done.
    pub(super) wake: Notify,
    /// Set when stream writers are to write what they have and finish.
    pub(super) finish: CancellationToken,
    /// Set when the link is closed and the service knows.
    pub(super) closed: CancellationToken,
    /// The tasks of the link's exchange streams.
    pub(super) tasks: TaskTracker,
}

/// What the rest of the daemon asks of a link's driver.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) drain: bool,
    pub(super) close: Option<CloseReason>,
}

impl Flow {
    /// The state of a link that is opening.
    pub(super) fn new(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::new(Budget::new(settings.outbox_bytes_max)),
            frames_max: settings.outbox_frames_max,
            message_bytes_max: AtomicUsize::new(settings.msg_size_bytes_max as usize - 1),
            in_flight: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            wishes: Mutex::default(),
            wake: Notify::new(),
            finish: CancellationToken::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Bounds messages by the frame `length` that both sides agreed to, which counts the type besides the payload.
    pub(super) fn set_frame_length_max(&self, bytes: u32) {
        self.message_bytes_max.store((bytes as usize).saturating_sub(1), Ordering::Relaxed);
    }

    /// Largest frame `length` that both sides agreed to.
    pub(super) fn frame_length_max(&self) -> u32 {
        u32::try_from(self.message_bytes_max() + 1).unwrap_or(u32::MAX)
    }

    pub(super) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max.load(Ordering::Relaxed)
    }

    /// Takes what was asked since the last look.
    pub(super) fn take_wishes(&self) -> Wishes {
        std::mem::take(&mut *self.wishes())
    }

    /// Refuses requests from here on.
    pub(super) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Refuses everything from here on.
    pub(super) fn set_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    fn wish(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.wishes());
        self.wake.notify_one();
    }

    fn idle(&self) {
        if self.is_draining() {
            self.wake.notify_one();
        }
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        // A wish is made by single assignments, so a panic leaves none half made.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
