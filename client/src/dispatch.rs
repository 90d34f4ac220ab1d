//! Dispatches envelopes from the sidecar: each answer to its waiter, each call to the handler that serves it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits::{EXT_CALL, EXT_CAPABILITY_ID};
use capd_proto::message::{ErrorBody, Message, Type};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::handle::Outcome;
use super::notices::{Accepted, Teller};
use super::outgoing::Outgoing;
use super::provide::{Serving, Way};
use super::{ClientError, Progress, WireError, bodies};
use capd_net::pending::Pending;
use capd_net::{CloseReason, Link, Now, Route, Service, System};

/// Who waits for an answer.
pub(super) struct Waiting {
    kind: Kind,
    after: Duration,
    /// Counts the request as in flight on its link.
    route: Option<Route>,
}

enum Kind {
    /// A call: any progress, then one result.
    Call { notices: Teller<Outcome> },
    /// Anything else: one message of this type.
    Request { wanted: Type, answer: oneshot::Sender<Result<Reply, ClientError>> },
}

/// The answer to a request that is no call.
#[derive(Debug)]
pub(super) struct Reply {
    /// Checked against its type's rule.
    pub(super) body: Bytes,
}

impl Waiting {
    pub(super) const fn call(notices: Teller<Outcome>, after: Duration) -> Self {
        Self { kind: Kind::Call { notices }, after, route: None }
    }

    pub(super) const fn request(
        wanted: Type,
        answer: oneshot::Sender<Result<Reply, ClientError>>,
        after: Duration,
    ) -> Self {
        Self { kind: Kind::Request { wanted, answer }, after, route: None }
    }

    /// Ends the wait badly.
    fn fail(self, error: ClientError) {
        // Whoever asked may have stopped waiting.
        match self.kind {
            Kind::Call { notices } => notices.end(Err(error)),
            Kind::Request { answer, .. } => drop(answer.send(Err(error))),
        }
    }

    /// Ends the wait with the answer that came, whatever it is worth; `message` is what its `body` says.
    fn answer(self, typ: Type, envelope: &Envelope<'_>, from: Did, message: Message<'_>, body: Bytes) {
        match (self.kind, message) {
            (Kind::Call { notices }, Message::CapResult(result)) => {
                accept(envelope, &notices);
                notices.end(bodies::answer(envelope, from, result, &body));
            }
            (Kind::Request { wanted, answer }, _) if typ == wanted => drop(answer.send(Ok(Reply { body }))),
            (kind @ (Kind::Call { .. } | Kind::Request { .. }), _) => {
                let error = ClientError::Answer(format!("a {typ:?} came in reply"));
                Self { kind, ..self }.fail(error);
            }
        }
    }
}

/// Where the link's messages arrive.
pub(super) struct Dispatch {
    system: Arc<System>,
    did: OnceLock<Did>,
    /// Who sent the last message: mostly the next one's sender, too.
    sender: Mutex<Option<Did>>,
    pending: Mutex<Pending<Waiting>>,
    /// Wakes the task that ends waits: there is an earlier deadline.
    sooner: Notify,
    pub(super) serving: OnceLock<Serving>,
    closed: OnceLock<String>,
}

impl Dispatch {
    pub(super) fn new(system: Arc<System>, pending_max: usize) -> Arc<Self> {
        Arc::new(Self {
            system,
            did: OnceLock::new(),
            sender: Mutex::default(),
            pending: Mutex::new(Pending::new(pending_max)),
            sooner: Notify::new(),
            serving: OnceLock::new(),
            closed: OnceLock::new(),
        })
    }

    /// The link is open, and this is whose it is.
    pub(super) fn open(&self, did: Did) {
        self.did.get_or_init(|| did);
    }

    /// Remembers who waits for the answer to `id`. **Errors:** too many wait, the id waits already, or all is over.
    pub(super) fn expect(&self, id: MessageId, waiting: Waiting, wait: Duration) -> Result<(), ClientError> {
        if self.closed.get().is_some() {
            return Err(ClientError::Closed(self.close_reason()));
        }
        let deadline_ms = self.system.clock.monotonic_ms().saturating_add(super::ms(wait));
        let mut pending = self.pending();
        let is_earliest = pending.next_deadline_ms().is_none_or(|earliest| deadline_ms < earliest);
        let refused = pending.insert(id, deadline_ms, waiting);
        drop(pending);
        refused.map_err(|_| ClientError::Unsent("too many requests are open, or this id is".to_owned()))?;
        if is_earliest {
            self.sooner.notify_one();
        }
        Ok(())
    }

    /// Keeps the route of a request until its answer.
    pub(super) fn hold(&self, id: &MessageId, route: Route) {
        if let Some(waiting) = self.pending().peek(id) {
            waiting.route = Some(route);
        }
    }

    /// Nobody waits for the answer to `id` any more.
    pub(super) fn forget(&self, id: &MessageId) {
        // What is dropped here is dropped after the lock.
        let _forgotten = self.pending().take(id);
    }

    /// Why the link is closed.
    pub(super) fn close_reason(&self) -> String {
        self.closed.get().cloned().unwrap_or_else(|| "it is closed".to_owned())
    }

    /// Ends every wait at its deadline, and those that are left when the link closes.
    pub(super) async fn expire(self: Arc<Self>, link: Arc<Link>) {
        loop {
            let next = self.pending().next_deadline_ms();
            let due = async {
                match next {
                    Some(ms) => sleep_until(self.system.clock.moment(ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = link.closed() => return self.fail_all(),
                () = due => {}
                () = self.sooner.notified() => {}
            }
            while let Some((id, waiting)) = self.take_expired() {
                let after = waiting.after;
                waiting.fail(ClientError::Timeout { id, after });
            }
        }
    }

    /// Ends every wait because the link is closed.
    fn fail_all(&self) {
        let waiting = self.pending().take_where(|_| true);
        for (_, waiting) in waiting {
            waiting.fail(ClientError::Closed(self.close_reason()));
        }
    }

    fn take_expired(&self) -> Option<(MessageId, Waiting)> {
        let now_ms = self.system.clock.monotonic_ms();
        self.pending().take_expired(now_ms)
    }

    /// Word of how a call goes.
    fn on_progress(&self, envelope: &Envelope<'_>, progress: Progress) {
        let Some(id) = envelope.reply_id() else { return };
        if let Some(Waiting { kind: Kind::Call { notices }, .. }) = self.pending().peek(&id) {
            accept(envelope, notices);
            // A slow reader misses some, the end never.
            notices.tell(progress);
        }
    }

    /// An ACK: a call is taken in, or what was sent is.
    fn on_ack(&self, envelope: &Envelope<'_>) {
        let Some(id) = envelope.reply_id() else { return };
        let mut pending = self.pending();
        match pending.peek(&id) {
            Some(Waiting { kind: Kind::Call { notices }, .. }) => accept(envelope, notices),
            Some(Waiting { kind: Kind::Request { wanted: Type::Ack, .. }, .. }) => {
                let waiting = pending.take(&id);
                drop(pending);
                if let Some(Waiting { kind: Kind::Request { answer, .. }, .. }) = waiting {
                    // Whoever asked may have stopped waiting.
                    drop(answer.send(Ok(Reply { body: Bytes::new() })));
                }
            }
            // A receipt that nobody asked for.
            Some(_) | None => {}
        }
    }

    /// The answer to a request, if it still waits.
    fn on_answer(
        &self,
        typ: Type,
        envelope: &Envelope<'_>,
        message: Message<'_>,
        body: Bytes,
        route: &Route,
    ) {
        let waiting = envelope.reply_id().and_then(|id| self.pending().take(&id));
        match waiting {
            Some(waiting) => match self.sender(envelope) {
                Some(from) => waiting.answer(typ, envelope, from, message, body),
                None => waiting.fail(ClientError::Answer("its sender is not a DID".to_owned())),
            },
            // PROTOCOL 8: a CAP_RESULT that nothing waits for is told so; anything else came too late.
            None if typ == Type::CapResult => {
                self.refuse(route, Some(envelope.id), Code::BAD_REQUEST, "no call waits for this result");
            }
            None => {}
        }
    }

    /// A refusal of a request, if it still waits.
    fn on_error(&self, envelope: &Envelope<'_>, error: &ErrorBody<'_>) {
        let waiting = envelope.reply_id().and_then(|id| self.pending().take(&id));
        let refusal = WireError {
            code: error.code,
            message: error.message.clone().into_owned(),
            details: error.details.map(Bytes::copy_from_slice),
        };
        match waiting {
            Some(waiting) => waiting.fail(ClientError::Refused(refusal)),
            None => tracing::debug!(%refusal, "an ERROR that nothing waits for"),
        }
    }

    /// Says ERROR to the sidecar.
    pub(super) fn refuse(&self, route: &Route, id: Option<MessageId>, code: Code, why: &str) {
        let body = bodies::error(code, why);
        let Some(did) = self.did.get() else { return };
        let message = Outgoing { reply_to: id, ..Outgoing::new(Type::Error, did, &body) };
        self.reply(route, &message);
    }

    /// Sends a message on the stream where what it answers came from.
    pub(super) fn reply(&self, route: &Route, message: &Outgoing<'_>) {
        match message.seal(&self.system) {
            Ok((_, bytes)) => {
                if let Err(error) = route.send(bytes) {
                    tracing::debug!(%error, "an answer was not sent");
                }
            }
            Err(error) => tracing::debug!(%error, "an answer was not made"),
        }
    }

    /// What serves a message, and how its answers go back; none while nothing is served.
    fn way_back(&self, now: Now, envelope: &Envelope<'_>, route: &Route) -> Option<(&Serving, Way)> {
        let (serving, did) = (self.serving.get()?, self.did.get()?);
        let to = self.sender(envelope)?;
        let way = Way::new(now, envelope, to, did.clone(), route.clone(), Arc::clone(&self.system));
        Some((serving, way))
    }

    /// Who sent a message; `None` where that is no DID, which a sidecar does not pass on.
    fn sender(&self, envelope: &Envelope<'_>) -> Option<Did> {
        let mut last = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|did| did.as_str() != envelope.from) {
            *last = Some(Did::parse(&envelope.from).ok()?);
        }
        last.clone()
    }

    fn pending(&self) -> MutexGuard<'_, Pending<Waiting>> {
        // The table changes in single steps, so a panic leaves none half done.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dispatch {
    /// One message of those that came at `now`.
    fn take(&self, now: Now, route: &Route, payload: &Bytes) {
        let envelope = match Envelope::decode(payload) {
            Ok(envelope) => envelope,
            Err(error) => return self.refuse(route, error.id, error.code(), &error.to_string()),
        };
        let id = envelope.id;
        let Some(typ) = Type::from_code(envelope.typ) else {
            return self.refuse(route, Some(id), Code::UNKNOWN_TYPE, "unknown message type");
        };
        let Some(checked) = envelope.checked_body() else {
            return self.refuse(route, Some(id), Code::UNAUTHORIZED, "not authorized");
        };
        let message = match Message::decode_checked(typ, checked) {
            Ok(message) => message,
            // An ERROR is never answered, or two sides could go on for ever.
            Err(_) if typ == Type::Error => return,
            Err(error) => return self.refuse(route, Some(id), error.code(), &error.to_string()),
        };
        let body = payload.slice_ref(checked.bytes());
        match message {
            Message::Ping(_) => {
                let Some(did) = self.did.get() else { return };
                let body = body.to_vec().into();
                let pong = Outgoing { reply_to: Some(id), ..Outgoing::new(Type::Pong, did, &body) };
                self.reply(route, &pong);
            }
            Message::Ack(_) => self.on_ack(&envelope),
            Message::Processing(processing) => self.on_progress(&envelope, processing.into()),
            Message::Progress(progress) => self.on_progress(&envelope, progress.into()),
            Message::InputRequired(input) => self.on_progress(&envelope, input.into()),
            Message::Error(error) => self.on_error(&envelope, &error),
            Message::Pong(_)
            | Message::Response(_)
            | Message::CapDeclare(_)
            | Message::CapResult(_)
            | Message::DocSend(_) => self.on_answer(typ, &envelope, message, body, route),
            Message::CapInvoke(invoke) => match self.way_back(now, &envelope, route) {
                Some((serving, way)) => {
                    let chosen = envelope.ext_text(EXT_CAPABILITY_ID);
                    serving.on_invoke(&invoke, chosen.as_deref(), &body, way);
                }
                None => self.refuse(route, Some(id), Code::CAPABILITY_NOT_FOUND, "nothing is served here"),
            },
            Message::Request(request) => match self.way_back(now, &envelope, route) {
                Some((serving, way)) => serving.on_request(&request, &way),
                None => self.refuse(route, Some(id), Code::BAD_REQUEST, "nothing is served here"),
            },
            Message::CapQuery(_) | Message::DocRequest(_) => {
                self.refuse(
                    route,
                    Some(id),
                    Code::BAD_REQUEST,
                    "an agent answers no queries; its sidecar does",
                );
            }
            Message::Hello(_) | Message::HelloAck(_) | Message::HelloReject(_) => {
                self.refuse(route, Some(id), Code::INVALID_MESSAGE, "the link is open already");
            }
        }
    }
}

/// Tells which call an invoke with a key stands for, where a message names it.
fn accept(envelope: &Envelope<'_>, notices: &Teller<Outcome>) {
    let call = envelope.ext_bytes(EXT_CALL).and_then(|id| MessageId::from_slice(&id));
    if let Some(call) = call {
        let capability = envelope.ext_text(EXT_CAPABILITY_ID).map(Into::into);
        notices.accept(Accepted { call, capability });
    }
}

impl Service for Dispatch {
    fn on_open(&self, _link: &Arc<Link>) {}

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        self.on_messages(link, route, &[payload]);
    }

    fn on_messages(&self, _link: &Arc<Link>, route: &Route, payloads: &[Bytes]) {
        let now = self.system.clock.now();
        payloads.iter().for_each(|payload| self.take(now, route, payload));
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {
        // Only streams of their own are reset, and a local link has one stream for everything.
    }

    fn on_close(&self, _link: &Arc<Link>, reason: &CloseReason) {
        self.closed.get_or_init(|| reason.to_string());
        self.fail_all();
        if let Some(serving) = self.serving.get() {
            serving.on_close();
        }
    }
}
