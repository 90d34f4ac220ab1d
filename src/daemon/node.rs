//! Messages of all links in, each to the part that deals with its type; answers and refusals out.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Payload, Recipients};
use capd_proto::identity::{Authcrypt, Did, Identity, Keyring, PublicKey};
use capd_proto::limits::CALL_TIMEOUT_MS_DEFAULT;
use capd_proto::message::{ErrorBody, Type};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::executor::Executor;
use super::peers::Peers;
use super::providers::Providers;
use super::relay::Relay;
use super::sessions::Pins;
use crate::net::{Clock, CloseReason, Host, Link, Newcomer, Route, SendError, Service};
use crate::registry::Registry;
use crate::schema::Artifacts;

/// Why a message is not taken: what its ERROR says.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
    /// One CBOR item.
    pub(super) details: Option<Vec<u8>>,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// What an error of the protocol's stages is answered with.
    pub(super) fn of(error: impl Into<capd_proto::error::Error>) -> Self {
        let error = error.into();
        Self::new(error.code(), error.to_string())
    }

    pub(super) fn with_details(mut self, details: Vec<u8>) -> Self {
        self.details = Some(details);
        self
    }
}

/// What a node is made from.
pub(super) struct Parts {
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) rules: Rules,
    pub(super) peers: Peers,
    pub(super) executor: Executor,
    pub(super) keyring: Keyring,
    pub(super) cursor_key: [u8; 32],
}

/// What the owner chose about calls.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Time of a call that names none, in milliseconds.
    pub(super) call_timeout_ms: u64,
    /// How often a peer is asked what it serves, in milliseconds.
    pub(super) refresh_ms: u64,
    /// Most requests that wait for an answer, all links together.
    pub(super) pending_max: usize,
    /// Most calls in flight to one agent on a local link.
    pub(super) provider_calls_max: usize,
    /// Largest message written, in bytes.
    pub(super) message_bytes_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            call_timeout_ms: CALL_TIMEOUT_MS_DEFAULT,
            refresh_ms: 30_000,
            pending_max: 65_536,
            provider_calls_max: 4_096,
            message_bytes_max: capd_proto::limits::MSG_SIZE_BYTES_DEFAULT as usize - 1,
        }
    }
}

/// The sidecar, as its links meet it.
pub(super) struct Node {
    pub(super) me: Weak<Self>,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) rules: Rules,
    pub(super) registry: Registry,
    pub(super) artifacts: Artifacts,
    pub(super) peers: Peers,
    pub(super) providers: Providers,
    pub(super) executor: Executor,
    pub(super) relay: Relay,
    pub(super) pins: Mutex<Pins>,
    /// Keys of DIDs whose documents the owner configured.
    keyring: Mutex<Keyring>,
    pub(super) fetches: super::discovery::Fetches,
    pub(super) cursor_key: [u8; 32],
    pub(super) host: OnceLock<Arc<Host>>,
    pub(super) tasks: TaskTracker,
    /// Set when no new work is taken.
    pub(super) draining: CancellationToken,
    /// Set when tasks are to end.
    pub(super) shutdown: CancellationToken,
}

/// A message that has passed the envelope's checks.
pub(super) struct Inbound<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) route: &'a Route,
    /// The envelope as it came.
    pub(super) payload: &'a Bytes,
    /// Who sent it: the link's principal, under the DID that it calls itself by.
    pub(super) sender: &'a Did,
    pub(super) envelope: &'a Envelope<'a>,
    /// The plaintext body.
    pub(super) body: &'a Bytes,
    /// Whether `payload` has it encrypted.
    pub(super) is_encrypted: bool,
}

impl Inbound<'_> {
    /// Whether the message is for this sidecar's own agent, and not to be passed on to a peer.
    pub(super) fn is_for(&self, did: &Did) -> bool {
        self.envelope.to.names(did.as_str())
    }

    /// When the message expires, in milliseconds since the Unix epoch.
    pub(super) fn expires_at_ms(&self) -> u64 {
        self.envelope.ts.saturating_add(self.envelope.ttl)
    }
}

/// An envelope that we write.
pub(super) struct Outbound<'a> {
    pub(super) id: MessageId,
    pub(super) typ: Type,
    pub(super) to: &'a str,
    pub(super) reply_to: Option<MessageId>,
    pub(super) ttl_ms: u64,
    pub(super) body: &'a [u8],
    pub(super) ext: Ext<'a>,
}

impl Node {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            identity: parts.identity,
            clock: parts.clock,
            registry: Registry::new(),
            artifacts: Artifacts::default(),
            peers: parts.peers,
            providers: Providers::default(),
            executor: parts.executor,
            relay: Relay::new(parts.rules.pending_max),
            pins: Mutex::default(),
            keyring: Mutex::new(parts.keyring),
            rules: parts.rules,
            fetches: super::discovery::Fetches::default(),
            cursor_key: parts.cursor_key,
            host: OnceLock::new(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            shutdown: CancellationToken::new(),
        })
    }

    pub(super) fn did(&self) -> &Did {
        self.identity.did()
    }

    /// This node for a task; `None` once the daemon is being dropped.
    pub(super) fn shared(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Runs a task that ends at the latest when the daemon shuts down.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            shutdown.run_until_cancelled(work).await;
        });
    }

    /// A fresh id for a message made at `now_ms`.
    pub(super) fn fresh_id(&self, now_ms: u64) -> MessageId {
        let mut random = [0u8; 8];
        // Without randomness ids could repeat, and a repeated id is another call's: better no daemon than that.
        getrandom::fill(&mut random).expect("the system has randomness");
        MessageId::new(now_ms, random)
    }

    /// The bytes of an envelope of ours, signed unless `link` proves us otherwise.
    pub(super) fn seal(&self, message: &Outbound<'_>, link: &Link) -> Bytes {
        self.seal_signed(message, needs_signature(link))
    }

    pub(super) fn seal_signed(&self, message: &Outbound<'_>, signed: bool) -> Bytes {
        let reply_to = message.reply_to;
        let draft = Draft {
            id: message.id,
            typ: message.typ.code(),
            ts: message.id.ts_ms(),
            ttl: message.ttl_ms,
            from: self.did().as_str(),
            to: Recipients::one(message.to),
            reply_to: reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: None,
            body: message.body,
            ext: message.ext,
        };
        let mut out = Vec::with_capacity(message.body.len() + ENVELOPE_BYTES_TYPICAL);
        draft.seal(&self.identity, signed, &mut out);
        Bytes::from(out)
    }

    /// A short message of ours to the other side of `link`, which calls itself `to`.
    pub(super) fn answer(
        &self,
        link: &Link,
        to: &Did,
        reply_to: Option<MessageId>,
        typ: Type,
        body: &[u8],
    ) -> Bytes {
        let id = self.fresh_id(self.clock.wall_ms());
        let message =
            Outbound { id, typ, to: to.as_str(), reply_to, ttl_ms: ANSWER_TTL_MS, body, ext: Ext::None };
        self.seal(&message, link)
    }

    /// Answers a message on the stream it came on; a link that takes no more is closing anyway.
    pub(super) fn reply(&self, inbound: &Inbound<'_>, typ: Type, body: &[u8]) {
        let envelope = self.answer(inbound.link, inbound.sender, Some(inbound.envelope.id), typ, body);
        self.send(inbound.link, inbound.route, envelope);
    }

    /// Sends an answer. An answer that does not fit the link's queue is lost with the link: whoever asks again finds
    /// it in the ledger.
    pub(super) fn send(&self, link: &Arc<Link>, route: &Route, envelope: Bytes) {
        match route.send(envelope) {
            Ok(()) | Err(SendError::Closed | SendError::Draining) => {}
            Err(error @ SendError::Full) => {
                tracing::warn!(link = %link.id(), peer = %link.principal(), %error, "closing a link that does not read");
                link.close(CloseReason::Local("its reader is too slow".to_owned()));
            }
            Err(error @ SendError::TooLarge { .. }) => {
                tracing::warn!(link = %link.id(), peer = %link.principal(), %error, "an answer was not sent");
            }
        }
    }

    /// Answers with an ERROR. `reply_to` is the refused message's id, when it could be read (PROTOCOL 9).
    pub(super) fn refuse(
        &self,
        link: &Arc<Link>,
        route: &Route,
        reply_to: Option<MessageId>,
        refusal: &Refusal,
    ) {
        tracing::debug!(link = %link.id(), code = %refusal.code, reason = refusal.message, "refused");
        let mut body = Vec::new();
        let mut error = ErrorBody::new(refusal.code, refusal.message.as_str());
        error.details = refusal.details.as_deref();
        error.encode(&mut body);
        let envelope = self.answer(link, link.principal(), reply_to, Type::Error, &body);
        self.send(link, route, envelope);
    }

    /// The envelope's own checks, in the order of PROTOCOL 7.3, after its shape.
    ///
    /// Returns the sender.
    fn admit(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Did, Refusal> {
        if Type::from_code(envelope.typ).is_none() {
            return Err(Refusal::new(
                Code::UNKNOWN_TYPE,
                format!("message type {} is not spoken here", envelope.typ),
            ));
        }
        envelope.check_time(self.clock.wall_ms()).map_err(Refusal::of)?;
        if !link.kind().is_local() && !self.peers.admits(link.principal()) {
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        }
        // PROTOCOL 2: on a peer link the sender is the TLS key's DID, on a local link the sidecar's own agent.
        let Some(sender) = self.sender(link, &envelope.from) else {
            tracing::warn!(
                target: "audit",
                kind = "binding_mismatch",
                principal = %link.principal(),
                from = %envelope.from,
                id = %envelope.id,
                "a sender is not its link's principal"
            );
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        };
        if !link.kind().is_local() {
            envelope.check_recipient(self.did()).map_err(Refusal::of)?;
        }
        if envelope.sig.is_none() {
            if needs_signature(link) {
                return Err(Refusal::new(Code::INVALID_SIGNATURE, "not signed"));
            }
            return Ok(sender);
        }
        // The signature is over the plaintext: that of an encrypted body is checked once it is open.
        if let Payload::Body(_) = envelope.payload {
            self.verify(link, envelope)?;
        }
        Ok(sender)
    }

    /// The sender that `from` names, if it is the link's principal: its DID, or another DID whose configured document
    /// has the principal's key (PROTOCOL 2).
    fn sender(&self, link: &Link, from: &str) -> Option<Did> {
        if from == link.principal().as_str() {
            return Some(link.principal().clone());
        }
        if link.kind().is_local() {
            return None;
        }
        let key = lock(&self.keyring).resolve(from)?;
        let is_same = self.peers.key(link.principal()).is_some_and(|own| own.as_bytes() == key.as_bytes());
        if is_same { Did::parse(from).ok() } else { None }
    }

    fn verify(&self, link: &Link, envelope: &Envelope<'_>) -> Result<(), Refusal> {
        let key = self
            .peers
            .key(link.principal())
            .ok_or_else(|| Refusal::new(Code::UNAUTHORIZED, "not authorized"))?;
        envelope.verify(&key, &mut Vec::new()).map_err(Refusal::of)
    }

    /// The plaintext of an encrypted body. **Errors:** 3001 without detail (PROTOCOL 5).
    fn open(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Vec<u8>, Refusal> {
        let key = PublicKey::from_did(link.principal().as_str())
            .map_err(|_| Refusal::new(Code::UNAUTHORIZED, "not authorized"))?;
        let shared = Authcrypt::new(&self.identity.agreement_secret(), &key.agreement_key());
        let mut plaintext = Vec::new();
        envelope.open(&shared, &mut plaintext).map_err(Refusal::of)?;
        Ok(plaintext)
    }

    fn receive(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
    ) -> Result<(), (Option<MessageId>, Refusal)> {
        let envelope = Envelope::decode(payload).map_err(|error| (error.id, Refusal::of(error)))?;
        let id = Some(envelope.id);
        let is_error = envelope.typ == Type::Error.code();
        match self.take(link, route, payload, envelope) {
            // Two sides that refuse each other's refusals would go on for ever.
            Err(refusal) if is_error => {
                tracing::debug!(link = %link.id(), code = %refusal.code, reason = refusal.message, "an ERROR was not taken");
                Ok(())
            }
            outcome => outcome.map_err(|refusal| (id, refusal)),
        }
    }

    /// One message whose envelope has the right shape.
    fn take(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        envelope: Envelope<'_>,
    ) -> Result<(), Refusal> {
        let sender = &self.admit(link, &envelope)?;
        match envelope.body() {
            Some(body) => {
                let body = &payload.slice_ref(body);
                self.dispatch(&Inbound {
                    link,
                    route,
                    payload,
                    sender,
                    envelope: &envelope,
                    body,
                    is_encrypted: false,
                })
            }
            None => self.receive_encrypted(link, route, payload, sender, envelope),
        }
    }

    fn receive_encrypted(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        sender: &Did,
        envelope: Envelope<'_>,
    ) -> Result<(), Refusal> {
        let plaintext = Bytes::from(self.open(link, &envelope)?);
        let envelope = envelope.with_body(&plaintext).map_err(Refusal::of)?;
        if envelope.sig.is_some() {
            self.verify(link, &envelope)?;
        }
        self.dispatch(&Inbound {
            link,
            route,
            payload,
            sender,
            envelope: &envelope,
            body: &plaintext,
            is_encrypted: true,
        })
    }

    /// One message to the part that deals with its type.
    fn dispatch(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(typ) = Type::from_code(inbound.envelope.typ) else {
            return Err(Refusal::new(Code::UNKNOWN_TYPE, "message type is not spoken here"));
        };
        let is_ours = inbound.is_for(self.did());
        match typ {
            Type::CapInvoke => self.on_invoke(inbound),
            Type::CapResult => self.on_result(inbound),
            Type::Error => self.on_error(inbound),
            Type::Processing | Type::Progress | Type::InputRequired => self.on_progress(inbound, typ),
            Type::CapDeclare if inbound.envelope.reply_to.is_none() => self.on_declare(inbound),
            Type::CapDeclare | Type::DocSend | Type::Response | Type::Pong => self.on_answer(inbound, typ),
            Type::Ping if is_ours => self.on_ping(inbound),
            Type::CapQuery if is_ours => self.on_query(inbound),
            Type::DocRequest if is_ours => self.on_doc_request(inbound),
            Type::Request => self.on_request(inbound, is_ours),
            Type::Ping | Type::CapQuery | Type::DocRequest => self.forward(inbound, typ),
            // PROTOCOL 7: taken, and needs no answer.
            Type::Ack => Ok(()),
            Type::Hello | Type::HelloAck | Type::HelloReject => {
                Err(Refusal::new(Code::BAD_REQUEST, "the link is open already"))
            }
        }
    }

    fn on_ping(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        self.reply(inbound, Type::Pong, inbound.body);
        Ok(())
    }
}

impl Service for Node {
    fn admit(&self, newcomer: &Newcomer<'_>) -> bool {
        newcomer.kind.is_local() || self.peers.admits(newcomer.principal)
    }

    fn on_open(&self, link: &Arc<Link>) {
        if link.kind().is_local() {
            tracing::debug!(link = %link.id(), kind = %link.kind(), "an agent connected");
            return;
        }
        self.on_peer_open(link);
    }

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        if let Err((id, refusal)) = self.receive(link, route, &payload) {
            self.refuse(link, route, id, &refusal);
        }
    }

    fn on_reset(&self, _link: &Arc<Link>, route: &Route) {
        self.cancel_route(route);
    }

    fn on_close(&self, link: &Arc<Link>, reason: &CloseReason) {
        tracing::debug!(link = %link.id(), peer = %link.principal(), %reason, "link closed");
        if link.kind().is_local() {
            self.withdraw(link);
        } else {
            self.on_peer_close(link);
        }
    }
}

/// PROTOCOL 2, 5: a local link's envelopes may be unsigned, and a channel-authenticated peer link's as well.
pub(super) fn needs_signature(link: &Link) -> bool {
    !link.kind().is_local() && !link.channel_auth()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long an answer of ours stays valid, in milliseconds.
pub(super) const ANSWER_TTL_MS: u64 = 60_000;
/// Bytes of an envelope around its body, for one allocation that fits.
const ENVELOPE_BYTES_TYPICAL: usize = 320;
