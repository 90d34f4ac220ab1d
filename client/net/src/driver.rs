//! Drives one connection from its opening to its end: the only loop that reads, handles, drains and writes.
//!
//! One task per link holds the machine of `capd-proto` and the control stream (or the only byte stream). It decodes
//! frames to typed inputs, encodes the machine's outputs, and keeps its deadline. Once the link is open, messages
//! bypass the machine: they go to the service as they came.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capd_proto::code::Code;
use capd_proto::frame::{ErrorFrame, Frame, FrameType, Goaway};
use capd_proto::limits::{EXT_CHANNEL_AUTH, MSG_SIZE_BYTES_FLOOR};
use capd_proto::link::{self as machine, Input, Output, Role, Terms};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::close::{CloseReason, Fault};
use super::exchange::Exchanges;
use super::greeting::{End, Greeter, config};
use super::host::{Host, Permits};
use super::link::{Identification, Link, Route};
use super::meter::Limit;
use super::outbox::{Precedence, SendError};
use super::quic::Window;
use super::quinn::{self, ConnectionError};
use super::stream::{Flow, Stream};
use super::wire::{self, BoxRead, Filled, FrameReader, Messages, Sender, TURN_FRAMES};
use super::{Refused, connection, early};

/// A connection that is to become a link.
pub(super) struct Opening {
    pub(super) role: Role,
    /// Who is there.
    pub(super) end: End,
    pub(super) receive: BoxRead,
    pub(super) send: Sender,
    /// Carries the exchange streams, on QUIC.
    pub(super) connection: Option<quinn::Connection>,
    pub(super) permits: Option<Permits>,
    /// When HELLO must be done.
    pub(super) deadline: Instant,
}

/// Drives a connection until it closes; returns once it is an open link. **Errors:** why it did not become one.
pub(super) async fn open(host: &Arc<Host>, opening: Opening) -> Opened {
    let (ready, opened) = oneshot::channel();
    host.tasks.spawn(run(Arc::clone(host), opening, ready));
    opened.await.unwrap_or_else(|_| Err(CloseReason::Broken("the driver ended".to_owned())))
}

/// The next connection, or `None` once the host shuts down.
pub(super) async fn accept<T, F, A>(host: &Host, mut accept: F) -> Option<T>
where
    F: FnMut() -> A,
    A: Future<Output = io::Result<T>>,
{
    loop {
        match host.shutdown.run_until_cancelled(accept()).await? {
            Ok(connection) => return Some(connection),
            Err(error) => {
                // Mostly a lack of descriptors, which passes; asking again at once would only burn time.
                warn!(%error, "no connection accepted");
                host.shutdown.run_until_cancelled(sleep(ACCEPT_PAUSE)).await?;
            }
        }
    }
}

/// How opening a link ended.
type Opened = Result<Arc<Link>, CloseReason>;

/// Drives one link to its end.
///
/// An open link keeps this future for as long as it lasts, so it holds no more than that takes: what an async function is
/// given it keeps beside what it makes of it, so the driver is made before; and the end is rare, and boxed.
fn run(host: Arc<Host>, opening: Opening, ready: oneshot::Sender<Opened>) -> impl Future<Output = ()> {
    let (mut driver, mut sender) = Driver::new(host, opening, ready);
    let outbox = Arc::clone(&driver.control.outbox);
    async move {
        let reason = {
            let mut writing = pin!(wire::write_all(&mut sender, &outbox));
            let reason = tokio::select! {
                // Reading stands first: what the service answers while frames are read leaves in one write behind them.
                biased;
                reason = driver.drive() => reason,
                written = &mut writing => driver.gone(match written {
                    // The writer ends by itself only when the peer stops QUIC's control stream.
                    Ok(()) => CloseReason::PeerClosed,
                    Err(error) => broken(driver.connection.as_ref(), &error),
                }),
            };
            driver.flow.set_draining();
            if reason.is_ours() {
                Box::pin(driver.finish(writing)).await;
            }
            // A writer that nobody polls any more must not keep its place in the turnstile.
            reason
        };
        Box::pin(driver.end(reason)).await;
    }
}

/// What came of handling frames.
enum Settled {
    /// All that had arrived whole are handled.
    All,
    /// A turn's are; there may be more.
    Turn,
    /// The link is to close.
    Closing(CloseReason),
}

/// One link, from its connection to its end.
struct Driver {
    host: Arc<Host>,
    machine: machine::Link,
    greeter: Greeter,
    reader: FrameReader<BoxRead>,
    flow: Arc<Flow>,
    control: Arc<Stream>,
    connection: Option<quinn::Connection>,
    permits: Option<Permits>,
    link: Option<Arc<Link>>,
    ready: Option<oneshot::Sender<Opened>>,
    said_goaway: bool,
    /// The last ERROR frame, which is why the peer closes if it closes next.
    reported: Option<Fault>,
}

impl Driver {
    fn new(host: Arc<Host>, opening: Opening, ready: oneshot::Sender<Opened>) -> (Self, Sender) {
        let Opening { role, end, receive, send, connection, permits, deadline } = opening;
        let now_ms = host.system.clock.monotonic_ms();
        let config = config(&host, role, &end, deadline);
        let machine = match role {
            Role::Client => machine::Link::client(config, now_ms),
            Role::Server => machine::Link::server(config, now_ms),
        };
        let window =
            connection.clone().map(|connection| Window::new(connection, host.settings().link_window_bytes));
        let metered = host.meter.link(end.kind);
        let flow = Flow::new(&host, window, metered);
        if let Some(place) = permits.as_ref().and_then(|permits| permits.opening.as_ref()?.place.as_ref()) {
            place.take(&flow);
        }
        let driver = Self {
            machine,
            greeter: Greeter::new(Arc::clone(&host), role, end),
            // PROTOCOL 3: until HANDSHAKE settles the maximum, nothing needs more than every peer must take.
            reader: FrameReader::new(receive, MSG_SIZE_BYTES_FLOOR, &flow),
            control: Stream::shared(&flow),
            flow,
            connection,
            permits,
            link: None,
            ready: Some(ready),
            said_goaway: false,
            reported: None,
            host,
        };
        (driver, send)
    }

    /// Reads and handles until the link is to close; says why.
    async fn drive(&mut self) -> CloseReason {
        let host = Arc::clone(&self.host);
        let shutdown = host.shutdown.child_token();
        let flow = Arc::clone(&self.flow);
        let route = Route::uncounted(Arc::clone(&self.control));
        let mut armed = host.system.clock.far();
        let mut timer = pin!(sleep_until(armed));
        loop {
            match self.settle(&route) {
                Settled::All => {}
                // What was answered leaves, and others have their turn, before the rest is handled.
                Settled::Turn => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Settled::Closing(reason) => return reason,
            }
            // A deadline that moved away is found out when the timer fires, which costs less than moving the timer.
            if self.deadline() < armed {
                armed = self.deadline();
                timer.as_mut().reset(armed);
            }
            tokio::select! {
                biased;
                () = flow.wake.notified() => {
                    if let Some(reason) = self.grant() {
                        return reason;
                    }
                }
                () = shutdown.cancelled(), if !self.said_goaway => self.drain(),
                filled = self.reader.fill() => match filled {
                    Ok(Filled::More) => self.input(Input::Heard),
                    Ok(Filled::TooSlow) => self.malformed(Fault::too_slow()),
                    // PROTOCOL 3: bytes that end inside a frame are no frame.
                    Ok(Filled::End) if self.reader.is_cut() => self.malformed(Fault::invalid("the bytes ended inside a frame")),
                    Ok(Filled::End) => return self.gone(CloseReason::PeerClosed),
                    Err(error) => return self.gone(broken(self.connection.as_ref(), &error)),
                },
                // The server's first stream may overtake its HELLO_ACK, so a client waits.
                accepted = accept_stream(self.connection.as_ref()), if self.link.is_some() || self.machine.role() == Role::Server => match accepted {
                    Ok((send, receive)) => self.serve(send, receive),
                    Err(error) => return self.gone(connection::lost(&error)),
                },
                () = &mut timer => {
                    self.input(Input::Timeout);
                    armed = self.deadline();
                    timer.as_mut().reset(armed);
                }
            }
        }
    }

    /// Handles frames that have arrived whole, at most a turn's, and does what the machine says.
    fn settle(&mut self, route: &Route) -> Settled {
        let mut messages = Messages::new();
        let settled = self.turn(route, &mut messages);
        self.hand_up(route, &mut messages);
        settled
    }

    /// The messages that came last are left in `messages`.
    fn turn(&mut self, route: &Route, messages: &mut Messages) -> Settled {
        for _ in 0..TURN_FRAMES {
            if let Some(reason) = self.outputs() {
                return Settled::Closing(reason);
            }
            match self.reader.next() {
                Ok(Some(Frame { frame_type: FrameType::AmpMessage, payload })) if self.link.is_some() => {
                    messages.push(payload);
                }
                Ok(Some(frame)) => {
                    self.hand_up(route, messages);
                    self.frame(frame);
                }
                Ok(None) => return Settled::All,
                Err(error) => {
                    self.hand_up(route, messages);
                    self.malformed(error.into());
                }
            }
        }
        Settled::Turn
    }

    /// Gives the service the messages that came so far, before anything that came behind them.
    fn hand_up(&self, route: &Route, messages: &mut Messages) {
        if let (Some(link), false) = (&self.link, messages.is_empty()) {
            self.host.service.on_messages(link, route, messages);
            messages.clear();
        }
    }

    fn frame(&mut self, Frame { frame_type, payload }: Frame) {
        let input = match frame_type {
            FrameType::AmpMessage => self.greeter.read(&payload),
            FrameType::Handshake => self.greeter.read_handshake(&payload),
            FrameType::Ping => Ok(Input::Ping(payload.clone())),
            FrameType::Pong => Ok(Input::Pong(payload.clone())),
            FrameType::Goaway => Goaway::decode(&payload).map(Input::Goaway).map_err(Fault::from),
            FrameType::Error => ErrorFrame::decode(&payload).map(Input::ErrorFrame).map_err(Fault::from),
        };
        match input {
            Ok(input) => {
                if let Input::ErrorFrame(error) = &input {
                    self.reported = Some(Fault::reported(error));
                }
                if let (Input::Pong(_), Some(link)) = (&input, &self.link) {
                    self.host.service.on_pong(link);
                }
                self.input(input);
            }
            Err(fault) => self.malformed(fault),
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.machine.handle(input, self.host.system.clock.monotonic_ms());
    }

    fn malformed(&mut self, fault: Fault) {
        self.input(Input::Malformed { code: fault.code, message: fault.message });
    }

    fn drain(&mut self) {
        self.said_goaway = true;
        self.input(Input::InFlight(self.flow.in_flight()));
        self.input(Input::Drain { reason: 0 });
    }

    /// Does what the rest of the daemon asked for; gives the reason if that is to close.
    fn grant(&mut self) -> Option<CloseReason> {
        let wishes = self.flow.take_wishes();
        match wishes.close {
            Some(CloseReason::Fault(fault)) => self.malformed(fault),
            Some(reason) => return Some(reason),
            None => {}
        }
        if wishes.drain {
            self.drain();
        } else {
            self.input(Input::InFlight(self.flow.in_flight()));
        }
        None
    }

    /// Does what the machine says, in order; gives the reason if that is to close.
    fn outputs(&mut self) -> Option<CloseReason> {
        while let Some(output) = self.machine.poll_output() {
            let sent = match output {
                Output::Opened(terms) => {
                    self.opened(&terms);
                    Ok(())
                }
                Output::Draining { by_peer } => {
                    debug!(by_peer, "draining");
                    self.flow.set_draining();
                    Ok(())
                }
                // Messages on an open link pass the machine by; one before is a violation, never delivered.
                Output::Deliver { .. } => Ok(()),
                Output::PeerError { code } => {
                    warn!(code, remote = self.greeter.remote(), "the peer reports an error");
                    Ok(())
                }
                Output::Close(reason) => return Some(self.reason(reason)),
                output => match self.greeter.write(output) {
                    Some((frame_type, payload)) => {
                        self.control.send_frame(frame_type, &payload.into(), precedence_of(frame_type))
                    }
                    None => Ok(()),
                },
            };
            if sent == Err(SendError::Full) {
                return Some(CloseReason::Local("the peer does not read its control stream".to_owned()));
            }
        }
        None
    }

    fn opened(&mut self, terms: &Terms) {
        let Some(principal) = self.greeter.principal() else { return };
        self.reader.set_frame_length_max(terms.max_msg_size);
        self.flow.set_frame_length_max(terms.max_msg_size);
        if let Some(permits) = &mut self.permits {
            permits.opening = None;
        }
        let exchanges = self
            .connection
            .as_ref()
            .map(|connection| Exchanges::new(connection.clone(), &self.host.service, &self.host.settings()));
        let identification = Identification {
            role: self.machine.role(),
            kind: self.greeter.kind(),
            principal,
            key: self.greeter.key(),
            remote: self.greeter.remote().to_owned(),
            channel_auth: !self.greeter.kind().is_local()
                && terms.extensions.iter().any(|name| name == EXT_CHANNEL_AUTH),
            journal: self.greeter.journal(),
            incarnation: self.greeter.incarnation(),
            membership: self.greeter.take_membership(),
        };
        let link = Link::new(identification, Arc::clone(&self.flow), Arc::clone(&self.control), exchanges);
        debug!(?link, "open");
        self.link = Some(Arc::clone(&link));
        let traffic = &self.flow.metered().traffic;
        traffic.is_open.store(true, Ordering::Relaxed);
        if !link.kind().is_local() {
            // A link opens once.
            let _first = traffic.peer.set(link.principal().clone());
        }
        self.host.service.on_open(&link);
        let is_wanted = self.ready.take().is_some_and(|ready| ready.send(Ok(Arc::clone(&link))).is_ok());
        if !is_wanted && link.role() == Role::Client {
            link.close(CloseReason::Local("nobody waits for the link any more".to_owned()));
        }
    }

    fn serve(&mut self, send: quinn::SendStream, receive: quinn::RecvStream) {
        if !self.flow.charge_stream(&self.host.system.clock) {
            // What comes after it is not looked at: the link closes.
            return self.malformed(Fault::too_many_streams());
        }
        match &self.link {
            Some(link) => Exchanges::accept(link, &self.host.service, send, receive),
            None => early::judge(&self.flow, send, receive),
        }
    }

    fn deadline(&self) -> Instant {
        self.machine
            .poll_timeout()
            .map_or_else(|| self.host.system.clock.far(), |due_ms| self.host.system.clock.moment(due_ms))
    }

    /// The reason why the peer is gone: its ERROR frame, if it sent one.
    fn gone(&mut self, otherwise: CloseReason) -> CloseReason {
        self.reported.take().map_or(otherwise, CloseReason::PeerFault)
    }

    fn reason(&mut self, reason: machine::CloseReason) -> CloseReason {
        match reason {
            machine::CloseReason::Drained => CloseReason::Drained,
            machine::CloseReason::DrainTimeout { .. } => CloseReason::DrainTimedOut,
            machine::CloseReason::HandshakeTimeout => CloseReason::OpenTimedOut,
            machine::CloseReason::IdleTimeout => CloseReason::Silent,
            machine::CloseReason::Refused(why) => CloseReason::Refused(why.to_owned()),
            machine::CloseReason::RefusedByPeer(why) => CloseReason::RefusedByPeer(why),
            machine::CloseReason::Violation { code, message } => CloseReason::Fault(Fault { code, message }),
            machine::CloseReason::PeerError(_)
            | machine::CloseReason::PeerGoaway(_)
            | machine::CloseReason::TransportClosed => self.gone(CloseReason::PeerClosed),
        }
    }

    /// Writes what is queued on every stream and waits, for a while, until the peer has it.
    async fn finish(&mut self, writing: impl Future<Output = io::Result<()>>) {
        self.control.outbox.close();
        self.flow.finish.cancel();
        self.flow.tasks.close();
        let written = async { tokio::join!(writing, self.flow.tasks.wait()).0 };
        // A peer that does not take the last frames in time does without.
        let _given_up = timeout(CLOSE_TIMEOUT, written).await;
    }

    async fn end(mut self, reason: CloseReason) {
        debug!(remote = self.greeter.remote(), %reason, "closed");
        match &reason {
            CloseReason::OpenTimedOut => self.host.meter.refused(Limit::HandshakeTime),
            CloseReason::Silent => self.host.meter.refused(Limit::IdleTime),
            CloseReason::Dead => self.host.meter.refused(Limit::DeadTime),
            _ => {}
        }
        self.control.outbox.abort();
        self.flow.tasks.close();
        if !reason.is_ours() && reason != CloseReason::Dead {
            // Answers that arrived before the end are handed up before the end is.
            let _late = timeout(CLOSE_TIMEOUT, self.flow.tasks.wait()).await;
        }
        if let Some(connection) = &self.connection {
            let code = match &reason {
                CloseReason::Fault(fault) => fault.code.0,
                _ => 0,
            };
            connection::close(connection, code);
            self.flow.tasks.wait().await;
        }
        self.flow.set_over();
        // One that makes room for another does so at once.
        let makes_room = self.link.is_none()
            && matches!(&reason, CloseReason::Fault(fault) if fault.code == Code::OVERLOADED);
        let lingers = reason.is_ours() && self.connection.is_none() && !makes_room;
        match (self.link.take(), self.ready.take()) {
            (Some(link), _) => self.host.service.on_close(&link, &reason),
            // Nobody may be waiting any more, and then nobody needs to know.
            (None, Some(ready)) => {
                if let (Role::Server, Some(address)) = (self.machine.role(), self.greeter.address())
                    && !self.greeter.kind().is_local()
                {
                    let peer = self.greeter.principal();
                    let refused = Refused { peer: peer.as_ref(), address, reason: &reason };
                    self.host.service.on_refused(&refused);
                }
                drop(ready.send(Err(reason)));
            }
            (None, None) => {}
        }
        self.flow.closed.cancel();
        if lingers {
            self.reader.linger().await;
        }
    }
}

async fn accept_stream(
    connection: Option<&quinn::Connection>,
) -> Result<(quinn::SendStream, quinn::RecvStream), ConnectionError> {
    match connection {
        Some(connection) => connection::accept(connection).await,
        None => std::future::pending().await,
    }
}

fn broken(connection: Option<&quinn::Connection>, error: &io::Error) -> CloseReason {
    connection.and_then(connection::close_reason).unwrap_or_else(|| CloseReason::Broken(error.to_string()))
}

/// PING and PONG measure the link, not what waits on it; whatever else the machine says belongs where it said it.
const fn precedence_of(frame_type: FrameType) -> Precedence {
    match frame_type {
        FrameType::Ping | FrameType::Pong => Precedence::BySize,
        FrameType::AmpMessage | FrameType::Handshake | FrameType::Goaway | FrameType::Error => {
            Precedence::InOrder
        }
    }
}

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for the last frames to reach the peer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
