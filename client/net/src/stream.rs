//! Queues messages as frames on one stream of a link, and holds what all streams of the link share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::envelope::Encoded;
use capd_proto::frame::{self, FrameType};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::close::CloseReason;
use super::host::Host;
use super::meter::{Limit, Metered};
use super::outbox::{Budget, Outbox, Precedence, SendError};
use super::pace::Pace;
use super::quic::Window;
use super::spare::Spare;
use super::system::{Clock, Tasks};
use super::turnstile::Turnstile;

/// One stream of a link: its queue and what it carries.
pub(super) struct Stream {
    pub(super) outbox: Arc<Outbox>,
    pub(super) flow: Arc<Flow>,
    /// Calls in flight, as held routes.
    calls: AtomicUsize,
    /// Messages received on it.
    pub(super) received: AtomicUsize,
    /// Whether the service was told of a reset.
    pub(super) is_reset: AtomicBool,
    /// Set on a stream that this side opened for a single call.
    pub(super) single: Option<Single>,
}

/// How the one call of a stream is cancelled.
#[derive(Clone, Default)]
pub(super) struct Single {
    /// Resets and stops the stream.
    pub(super) cancel: CancellationToken,
    /// Resets its sending half alone: what has not arrived of the request never will, and an answer still may.
    pub(super) cut: CancellationToken,
}

impl Stream {
    /// A stream that carries many calls, or that the peer opened.
    pub(super) fn shared(flow: &Arc<Flow>) -> Arc<Self> {
        Self::new(flow, None)
    }

    /// A stream that this side opens for a single call.
    pub(super) fn single(flow: &Arc<Flow>) -> Arc<Self> {
        Self::new(flow, Some(Single::default()))
    }

    fn new(flow: &Arc<Flow>, single: Option<Single>) -> Arc<Self> {
        Arc::new(Self {
            outbox: Arc::new(Outbox::new(Arc::clone(&flow.budget), flow.frames_max)),
            flow: Arc::clone(flow),
            calls: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            is_reset: AtomicBool::new(false),
            single,
        })
    }

    /// Counts a call in flight.
    pub(super) fn begin_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.flow.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a call as ended; the last one of a draining link wakes its driver.
    pub(super) fn end_call(&self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
        if self.flow.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 && self.flow.is_draining() {
            self.flow.wake.notify_one();
        }
    }

    /// Calls in flight on this stream.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Queues one message. **Errors:** [`SendError`].
    pub(super) fn send(&self, payload: &Encoded, precedence: Precedence) -> Result<(), SendError> {
        let bytes_max = self.flow.message_bytes_max();
        if payload.len() > bytes_max {
            return Err(SendError::TooLarge { bytes: payload.len(), bytes_max });
        }
        self.send_frame(FrameType::AmpMessage, payload, precedence)
    }

    /// Queues one frame of any type. **Errors:** [`SendError::Full`], [`SendError::Closed`].
    pub(super) fn send_frame(
        &self,
        frame_type: FrameType,
        payload: &Encoded,
        precedence: Precedence,
    ) -> Result<(), SendError> {
        let header = frame::encode_header(frame_type, payload.len()).map_err(|_| SendError::TooLarge {
            bytes: payload.len(),
            bytes_max: self.flow.message_bytes_max(),
        })?;
        self.outbox.push(header, payload, precedence)
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
    /// When the other side was asked for a sign of life; 0 is never. **Units:** monotonic milliseconds.
    asked_ms: AtomicU64,
    /// Set just before the service is told of the end, so that no request begins behind its back.
    is_over: AtomicBool,
    wishes: Mutex<Wishes>,
    /// How fast a peer may use up exchange streams, and when the bucket of those it has opened is full again.
    stream_pace: Option<Pace>,
    streams_full_ns: AtomicU64,
    /// Time in which a frame that has begun must end, or the link get on.
    pub(super) frame_timeout: Duration,
    /// Room for frames that are not whole. **Units:** KiB.
    pub(super) receive_room: Arc<Semaphore>,
    receive_kib_max: u32,
    /// What a peer may have on the way to us, on QUIC.
    window: Option<Window>,
    /// Where large frames are read into.
    pub(super) spare: Arc<Spare>,
    /// Wakes the driver: a wish was made, or draining may be done.
    pub(super) wake: Notify,
    /// Set when stream writers are to write what they have and finish.
    pub(super) finish: CancellationToken,
    /// Set when the link is closed and the service knows.
    pub(super) closed: CancellationToken,
    /// The tasks of the link's exchange streams.
    pub(super) tasks: Tasks,
}

/// What the rest of the daemon asks of a link's driver.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) drain: bool,
    pub(super) close: Option<CloseReason>,
}

impl Flow {
    /// The state of a link that is opening.
    pub(super) fn new(host: &Host, window: Option<Window>, metered: Metered) -> Arc<Self> {
        let settings = host.settings();
        let receive_kib_max = kib(settings.receive_bytes_max);
        Arc::new(Self {
            budget: Arc::new(Budget::new(metered, Arc::clone(&host.turnstile), settings.outbox_bytes_max)),
            frames_max: settings.outbox_frames_max,
            message_bytes_max: AtomicUsize::new(settings.msg_size_bytes_max as usize - 1),
            in_flight: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            asked_ms: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            wishes: Mutex::default(),
            // A peer may have all its streams open at once, and is charged for each as it opens.
            stream_pace: settings.stream_reset_rate.map(|rate| Pace::new(rate, settings.streams_max.into())),
            streams_full_ns: AtomicU64::new(0),
            frame_timeout: settings.frame_timeout,
            receive_room: Arc::new(Semaphore::new(receive_kib_max as usize)),
            receive_kib_max,
            window,
            spare: Arc::clone(&host.spare),
            wake: Notify::new(),
            finish: CancellationToken::new(),
            closed: CancellationToken::new(),
            tasks: host.system.tasks.group(),
        })
    }

    /// The link's place in the meter.
    pub(super) fn metered(&self) -> &Metered {
        self.budget.metered()
    }

    /// Where work on large messages waits for its turn.
    pub(super) fn turnstile(&self) -> &Turnstile {
        self.budget.turnstile()
    }

    /// Makes the link ready for a large frame that has begun.
    pub(super) fn begin_large(&self) {
        if let Some(window) = &self.window {
            window.fit();
        }
    }

    /// Makes the link ready for large frames that wait for others to end.
    pub(super) fn hold_back(&self) {
        if let Some(window) = &self.window {
            window.open();
        }
    }

    /// What room a frame of so many bytes needs while it is not whole: all there is where it is larger. **Units:** KiB.
    pub(super) fn receive_kib(&self, bytes: usize) -> u32 {
        kib(bytes).min(self.receive_kib_max)
    }

    /// Charges the peer for an exchange stream that it opened; `false` when it has used up too many.
    pub(super) fn charge_stream(&self, clock: &Clock) -> bool {
        let Some(pace) = self.stream_pace else { return true };
        let now_ms = clock.monotonic_ms();
        let take = |full_ns| pace.take(full_ns, now_ms);
        let taken = self.streams_full_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if !taken {
            self.metered().meter.refused(Limit::StreamResetRate);
        }
        taken
    }

    /// Gives the charge back: the stream brought messages, and ended in good order.
    pub(super) fn acquit_stream(&self) {
        let Some(pace) = self.stream_pace else { return };
        let give_back = |full_ns| Some(pace.give_back(full_ns));
        // The closure always gives a value, so the update cannot fail.
        let _before = self.streams_full_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give_back);
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

    /// When bytes last came, on any stream. **Units:** monotonic milliseconds.
    pub(super) fn heard_ms(&self) -> u64 {
        self.metered().traffic.heard_ms.load(Ordering::Relaxed)
    }

    /// Since when a question for a sign of life is unanswered; any bytes are an answer. **Units:** monotonic milliseconds.
    pub(super) fn unanswered_since_ms(&self) -> Option<u64> {
        let asked_ms = self.asked_ms.load(Ordering::Relaxed);
        (asked_ms > self.heard_ms()).then_some(asked_ms)
    }

    /// Counts the time for an answer from here.
    pub(super) fn ask_at(&self, now_ms: u64) {
        self.asked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Takes what was asked since the last look.
    pub(super) fn take_wishes(&self) -> Wishes {
        std::mem::take(&mut *self.wishes())
    }

    /// Refuses requests from here on.
    pub(super) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
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

    pub(super) fn wish(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.wishes());
        self.wake.notify_one();
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        // A wish is made by single assignments, so a panic leaves none half made.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whole KiB, rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}
