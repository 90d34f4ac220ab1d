//! Chooses the QUIC stream of each message, and runs the task that serves each stream.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use capd_proto::envelope::Encoded;
use capd_proto::frame::{ErrorFrame, FrameType};
use quinn::VarInt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Service;
use super::close::{CloseReason, Fault};
use super::connection::{self, CANCEL};
use super::gather::{self, Gather};
use super::link::{Link, Path, Route};
use super::outbox::{Outbox, Precedence, SendError};
use super::quic;
use super::settings::Settings;
use super::stream::{Flow, Single, Stream};
use super::wire::{Filled, FrameReader, Messages, SIGNED_TURN_FRAMES, TURN_FRAMES};

/// The exchange streams of one QUIC link. **Source:** PROTOCOL 4.
pub(super) struct Exchanges {
    connection: quinn::Connection,
    /// Not held: a service that keeps its links would keep itself.
    service: Weak<dyn Service>,
    /// The long-lived streams that this side opened.
    shared: Mutex<Vec<Arc<Stream>>>,
    shared_max: usize,
    shared_message_bytes_max: usize,
    pub(super) gather: Gather,
    /// Streams that the peer has open.
    accepted: AtomicU32,
    /// Streams that the peer may have open: few at first, and more as it uses them, up to `streams_max`.
    granted: AtomicU32,
    streams_max: u32,
}

impl Exchanges {
    pub(super) fn new(
        connection: quinn::Connection,
        service: &Arc<dyn Service>,
        settings: &Settings,
    ) -> Self {
        Self {
            connection,
            service: Arc::downgrade(service),
            shared: Mutex::default(),
            shared_max: settings.shared_streams.max(1),
            shared_message_bytes_max: settings.shared_message_bytes_max,
            gather: Gather::default(),
            accepted: AtomicU32::new(0),
            granted: AtomicU32::new(quic::streams_first(settings)),
            streams_max: settings.streams_max,
        }
    }

    /// What the connection has measured of its path.
    pub(super) fn path(&self) -> Path {
        let path = self.connection.stats().path;
        Path { round_trip: path.rtt, sent_packets: path.sent_packets, lost_packets: path.lost_packets }
    }

    /// Counts a stream that the peer opened; one that uses half of what it may have may have twice as many.
    ///
    /// The driver alone calls it, so that no two grants meet.
    fn begin_accepted(&self) {
        let accepted = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let granted = self.granted.load(Ordering::Relaxed);
        if accepted > granted / 2 && granted < self.streams_max {
            let more = quic::streams_step(granted.saturating_mul(2), self.streams_max);
            self.granted.store(more, Ordering::Relaxed);
            quic::grant_streams(&self.connection, more);
        }
    }

    /// Queues `payload` on the stream that fits it. **Errors:** [`SendError`].
    pub(super) fn request(
        &self,
        link: &Arc<Link>,
        payload: &Encoded,
        precedence: Precedence,
    ) -> Result<Route, SendError> {
        if link.is_closed() {
            return Err(SendError::Closed);
        }
        if payload.len() > self.shared_message_bytes_max {
            let stream = Stream::single(link.flow());
            let route = Route::counted(&stream);
            stream.send(payload, precedence)?;
            // The peer sees the end of the stream behind the request: it carries a single call.
            stream.outbox.close();
            self.open(link, stream);
            return Ok(route);
        }
        let stream = self.quietest(link);
        let route = Route::counted(&stream);
        stream.send(payload, precedence)?;
        Ok(route)
    }

    /// The shared stream with the fewest calls in flight; one more is opened when none is idle and there may be more.
    fn quietest(&self, link: &Arc<Link>) -> Arc<Stream> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|stream| !stream.outbox.is_closed());
        let quietest = shared.iter().min_by_key(|stream| stream.calls());
        match quietest {
            Some(stream) if shared.len() == self.shared_max || stream.calls() == 0 => Arc::clone(stream),
            _ => {
                let stream = Stream::shared(link.flow());
                shared.push(Arc::clone(&stream));
                self.open(link, Arc::clone(&stream));
                stream
            }
        }
    }

    /// Opens `stream` at the peer and serves it; frames queue until the peer grants the stream.
    fn open(&self, link: &Arc<Link>, stream: Arc<Stream>) {
        let connection = self.connection.clone();
        // A service that is gone has no use for answers.
        let Some(service) = self.service.upgrade() else { return stream.outbox.abort() };
        let link = Arc::clone(link);
        let flow = Arc::clone(link.flow());
        flow.tasks.spawn(async move {
            let opened = tokio::select! {
                biased;
                () = set(stream.single.as_ref().map(|single| &single.cancel)) => return stream.outbox.abort(),
                opened = connection.open_bi() => opened,
            };
            match opened {
                Ok((send, receive)) => serve(link, service, stream, send, receive, Opener::Here).await,
                Err(error) => {
                    debug!(%error, "no exchange stream");
                    stream.outbox.abort();
                }
            }
        });
    }

    /// Serves a stream that the peer opened.
    pub(super) fn accept(
        link: &Arc<Link>,
        service: &Arc<dyn Service>,
        send: quinn::SendStream,
        receive: quinn::RecvStream,
    ) {
        let stream = Stream::shared(link.flow());
        if let Some(exchanges) = link.exchanges() {
            exchanges.begin_accepted();
        }
        let (link, service) = (Arc::clone(link), Arc::clone(service));
        let tasks = link.flow().tasks.clone();
        tasks.spawn(async move {
            serve(Arc::clone(&link), service, stream, send, receive, Opener::Peer).await;
            if let Some(exchanges) = link.exchanges() {
                exchanges.accepted.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

/// Which side opened a stream; only the opener's reset means that a call is cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opener {
    Here,
    Peer,
}

/// Reads and writes one exchange stream until both halves have ended.
///
/// The reading half stands first: answers that the service gives while it reads leave together behind it.
async fn serve(
    link: Arc<Link>,
    service: Arc<dyn Service>,
    stream: Arc<Stream>,
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    opener: Opener,
) {
    let outbox = Arc::clone(&stream.outbox);
    let single = stream.single.clone();
    let finish = link.flow().finish.clone();
    let _counted = (opener == Opener::Peer).then(|| Counted::of(&link));
    // The writer must not keep the stream alive: it ends when the last route and the reader are gone.
    let observed = Arc::downgrade(&stream);
    let writing = async {
        let ended = write(send, &outbox, single.as_ref(), &finish).await;
        outbox.abort();
        if ended == WriteEnd::CancelledByPeer
            && opener == Opener::Peer
            && let Some(stream) = observed.upgrade()
        {
            reset(&link, service.as_ref(), &stream);
        }
        ended
    };
    let reading = async {
        let ended = read(&link, service.as_ref(), stream, receive, opener).await;
        if opener == Opener::Here {
            // No answer can come on it any more, so no request may go.
            outbox.close();
        }
        ended
    };
    let ended = tokio::join!(biased; reading, writing);
    if opener == Opener::Peer && ended == (ReadEnd::Served, WriteEnd::Done) {
        link.flow().acquit_stream();
    }
}

/// A stream that the peer has open, until it is dropped.
struct Counted(Arc<Flow>);

impl Counted {
    fn of(link: &Link) -> Self {
        let flow = Arc::clone(link.flow());
        flow.metered().traffic.streams.fetch_add(1, Ordering::Relaxed);
        Self(flow)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metered().traffic.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a receiving half ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    /// It brought messages and then its end.
    Served,
    /// It was reset, given up, or brought nothing.
    Spent,
}

/// Frames of one stream to the service, until the stream ends.
async fn read(
    link: &Arc<Link>,
    service: &dyn Service,
    stream: Arc<Stream>,
    receive: quinn::RecvStream,
    opener: Opener,
) -> ReadEnd {
    let cancel = stream.single.as_ref().map(|single| single.cancel.clone());
    let finish = link.flow().finish.clone();
    let mut reader = FrameReader::new(receive, link.flow().frame_length_max(), link.flow());
    let route = Route::uncounted(Arc::clone(&stream));
    loop {
        let (delivered, leads) = match deliver(link, service, &stream, &route, &mut reader) {
            Ok(delivered) => delivered,
            Err(reason) => {
                link.close(reason);
                return ReadEnd::Spent;
            }
        };
        let is_all = delivered == Delivered::All;
        if leads || !is_all {
            // What was answered leaves, and others have their turn, before the rest is handed up.
            tokio::task::yield_now().await;
        }
        if leads {
            gather::hand_up_all(link, service);
        }
        if !is_all {
            continue;
        }
        let filled = tokio::select! {
            biased;
            () = set(cancel.as_ref()) => {
                // A stream that has ended needs no stop.
                let _ended = reader.receive_mut().stop(CANCEL);
                return ReadEnd::Spent;
            }
            () = finish.cancelled() => return ReadEnd::Spent,
            filled = reader.fill() => filled,
        };
        match filled {
            Ok(Filled::More) => {}
            Ok(Filled::TooSlow) => {
                link.close(CloseReason::Fault(Fault::too_slow()));
                return ReadEnd::Spent;
            }
            // PROTOCOL 3: bytes that end inside a frame are no frame.
            Ok(Filled::End) if reader.is_cut() => {
                link.close(CloseReason::Fault(Fault::invalid("the stream ended inside a frame")));
                return ReadEnd::Spent;
            }
            Ok(Filled::End) if stream.received.load(Ordering::Relaxed) > 0 => return ReadEnd::Served,
            Ok(Filled::End) => return ReadEnd::Spent,
            Err(error) => {
                if connection::is_cancelled_by_peer(&error) && opener == Opener::Peer {
                    reset(link, service, &stream);
                }
                return ReadEnd::Spent;
            }
        }
    }
}

/// What came of handing frames up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivered {
    /// All that had arrived whole are handed up, or wait for those of other streams.
    All,
    /// A turn's are; there may be more.
    Turn,
}

/// Hands frames that have arrived whole to the service, at most a turn's; and whether this stream is to hand up those that
/// wait for others.
fn deliver(
    link: &Arc<Link>,
    service: &dyn Service,
    stream: &Stream,
    route: &Route,
    reader: &mut FrameReader<quinn::RecvStream>,
) -> Result<(Delivered, bool), CloseReason> {
    let mut messages = Messages::new();
    let delivered = turn(link, stream, reader, &mut messages);
    let leads = gather::hand_up(link, service, route, messages);
    if delivered.is_err() {
        // What came before a violation is handed up all the same.
        gather::hand_up_all(link, service);
    }
    Ok((delivered?, leads))
}

/// The messages among a turn's frames, up to the first violation.
fn turn(
    link: &Link,
    stream: &Stream,
    reader: &mut FrameReader<quinn::RecvStream>,
    messages: &mut Messages,
) -> Result<Delivered, CloseReason> {
    let frames_max = if link.channel_auth() { TURN_FRAMES } else { SIGNED_TURN_FRAMES };
    for _ in 0..frames_max {
        let Some(frame) = reader.next().map_err(Fault::from)? else { return Ok(Delivered::All) };
        match frame.frame_type {
            FrameType::AmpMessage => {
                stream.received.fetch_add(1, Ordering::Relaxed);
                messages.push(frame.payload);
            }
            FrameType::Error => {
                let error = ErrorFrame::decode(&frame.payload).map_err(Fault::from)?;
                warn!(?link, code = error.code, "the peer reports an error");
            }
            // PROTOCOL 4: these belong on the control stream.
            FrameType::Handshake | FrameType::Ping | FrameType::Pong | FrameType::Goaway => {
                return Err(Fault::invalid("only messages belong on an exchange stream").into());
            }
        }
    }
    Ok(Delivered::Turn)
}

/// Tells the service once that the peer cancelled the stream's call; on a stream of several it means nothing.
fn reset(link: &Arc<Link>, service: &dyn Service, stream: &Arc<Stream>) {
    // PROTOCOL 4: on shared streams a call is cancelled by message.
    if stream.received.load(Ordering::Relaxed) == 1 && !stream.is_reset.swap(true, Ordering::Relaxed) {
        // The call may be among those that wait.
        gather::hand_up_all(link, service);
        service.on_reset(link, &Route::uncounted(Arc::clone(stream)));
    }
}

/// Why a sending half ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteEnd {
    Done,
    CancelledByPeer,
}

/// Batches of the outbox to the stream, until the outbox is closed and the peer has it all, or either side gives up.
async fn write(
    mut send: quinn::SendStream,
    outbox: &Outbox,
    single: Option<&Single>,
    finish: &CancellationToken,
) -> WriteEnd {
    let mut stopped = pin!(send.stopped());
    let mut is_finishing = false;
    loop {
        let batch = tokio::select! {
            biased;
            () = cut_off(single) => break,
            end = &mut stopped => return WriteEnd::of(end),
            () = finish.cancelled(), if !is_finishing => {
                outbox.close();
                is_finishing = true;
                continue;
            }
            batch = outbox.batch() => batch,
        };
        let Some(mut batch) = batch else {
            // A stream that the peer stopped meanwhile is as good as finished.
            let _stopped = send.finish();
            tokio::select! {
                biased;
                () = cut_off(single) => break,
                end = &mut stopped => return WriteEnd::of(end),
            }
        };
        let written = tokio::select! {
            biased;
            () = cut_off(single) => break,
            written = send.write_all_chunks(&mut batch.chunks) => written,
        };
        match written {
            Ok(()) => {}
            Err(quinn::WriteError::Stopped(code)) => return WriteEnd::of(Ok(Some(code))),
            Err(_) => return WriteEnd::Done,
        }
    }
    // PROTOCOL 4: a reset with this code cancels the call; a stream that has ended needs none.
    let _ended = send.reset(CANCEL);
    WriteEnd::Done
}

impl WriteEnd {
    fn of(stopped: Result<Option<VarInt>, quinn::StoppedError>) -> Self {
        match stopped {
            Ok(Some(code)) if code == CANCEL => Self::CancelledByPeer,
            Ok(_) | Err(_) => Self::Done,
        }
    }
}

/// Waits until the sending half of a single call's stream is to be reset.
async fn cut_off(single: Option<&Single>) {
    match single {
        Some(single) => tokio::select! {
            biased;
            () = single.cancel.cancelled() => {}
            () = single.cut.cancelled() => {}
        },
        None => std::future::pending().await,
    }
}

/// Waits for a token that may not be there.
async fn set(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}
