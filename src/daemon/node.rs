//! What a sidecar is made of, and how it writes: envelopes sealed, answers and refusals sent.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Encoded, Ext, MessageId, Recipients};
use capd_proto::identity::{Did, Identity, Keyring};
use capd_proto::ledger::JournalId;
use capd_proto::message::{ErrorBody, Type};
use tokio_util::future::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::calls::Gifts;
use super::denials::Denials;
use super::executor::{Executor, Written};
use super::gate::Drift;
use super::inbound::Inbound;
use super::meter::Meter;
use super::peers::Peers;
use super::providers::Providers;
use super::relay::Relay;
use super::reload::Reading;
use super::serves::Serves;
use super::sessions::Pins;
use super::turns::Turns;
use super::unlinked::Unlinked;
use crate::config::Limits;
use crate::log::Lines;
use crate::net::{Clock, CloseReason, Host, Link, Random, Route, SendError, System, Tasks};
use crate::policy::Decisions;
use crate::policy::rate::{PeerRates, Rates};
use crate::registry::Registry;
use crate::schema::Artifacts;
use crate::schema::drift::Gate;
use crate::store::Journal;
use crate::store::audit::Audit;

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

    /// The body of an ERROR that says it.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut error = ErrorBody::new(self.code, self.message.as_str());
        error.details = self.details.as_deref();
        error.encode(&mut body);
        body
    }

    pub(super) fn with_details(mut self, details: Vec<u8>) -> Self {
        self.details = Some(details);
        self
    }
}

/// What a node is made from.
pub(super) struct Parts {
    pub(super) identity: Identity,
    pub(super) system: System,
    pub(super) rules: Rules,
    pub(super) peers: Peers,
    pub(super) serves: Serves,
    pub(super) executor: Executor,
    pub(super) journal_id: JournalId,
    pub(super) journal: Journal<Written>,
    pub(super) audit: Audit,
    pub(super) gifts: Gifts,
    pub(super) keyring: Keyring,
    pub(super) artifacts: Artifacts,
    pub(super) gate: Gate,
    pub(super) policy: Decisions,
    pub(super) reading: Option<Reading>,
    pub(super) cursor_key: [u8; 32],
}

/// What the owner chose about calls.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Time of a call that names none, in milliseconds.
    pub(super) call_timeout_ms: u64,
    /// Time for a peer to answer PING while something waits for it, in milliseconds.
    pub(super) dead_ms: u64,
    /// How often a peer is asked what it serves, in milliseconds.
    pub(super) refresh_ms: u64,
    /// Largest message written, in bytes.
    pub(super) message_bytes_max: usize,
    /// Bytes kept of a result that breaks its schema.
    pub(super) raw_bytes_max: usize,
    /// Most repairs of params in one turn.
    pub(super) argument_repairs_max: u64,
    /// How often peers may call.
    pub(super) peer_rates: PeerRates,
    /// What is logged of calls.
    pub(super) access: Access,
    /// All bounds, as the owner set them.
    pub(super) limits: Limits,
}

/// The sidecar, as its links meet it.
pub(super) struct Node {
    pub(super) me: Weak<Self>,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) started_at_ms: u64,
    /// Counts calls.
    pub(super) meter: Meter,
    /// Where its log goes, for those who count what it drops.
    pub(super) log: OnceLock<Lines>,
    /// Where its links meet; set once they may.
    pub(super) host: OnceLock<Weak<Host>>,
    pub(super) random: Random,
    pub(super) rules: Rules,
    pub(super) registry: Registry,
    pub(super) artifacts: Artifacts,
    /// What the agent was built against.
    pub(super) drift: Drift,
    /// Who may do what.
    pub(super) policy: Decisions,
    /// Where that is read from; none where it is not.
    pub(super) reading: Option<Reading>,
    pub(super) peers: Peers,
    /// What peers may serve.
    pub(super) serves: Serves,
    pub(super) unlinked: Unlinked,
    pub(super) providers: Providers,
    pub(super) executor: Executor,
    /// Who has called how often.
    pub(super) rates: Rates,
    /// Who was denied how often.
    pub(super) denials: Denials,
    /// What names the journal to peers.
    pub(super) journal_id: JournalId,
    /// Calls that may run only once, on disk.
    pub(super) journal: Journal<Written>,
    /// What must be accounted for.
    pub(super) audit: Audit,
    /// Whom such calls of the agent's were given to.
    pub(super) gifts: Gifts,
    pub(super) relay: Relay,
    pub(super) turns: Turns,
    pub(super) pins: Mutex<Pins>,
    pub(super) warned: super::deprecation::Warned,
    /// Keys of DIDs whose documents the owner configured.
    pub(super) keyring: Mutex<Keyring>,
    pub(super) fetches: super::discovery::Fetches,
    pub(super) cursor_key: [u8; 32],
    pub(super) tasks: Tasks,
    /// Set when no new work is taken.
    pub(super) draining: CancellationToken,
    /// Set when tasks are to end.
    pub(super) shutdown: CancellationToken,
    #[cfg(feature = "test-hooks")]
    pub(super) left_out: super::hooks::LeftOut,
}

/// An envelope that we write.
pub(super) struct Outbound<'a> {
    pub(super) id: MessageId,
    pub(super) typ: Type,
    pub(super) to: &'a str,
    pub(super) reply_to: Option<MessageId>,
    /// The conversation that the agent says it belongs to.
    pub(super) thread_id: Option<&'a [u8]>,
    pub(super) ttl_ms: u64,
    pub(super) body: &'a [u8],
    pub(super) ext: Ext<'a>,
}

impl<'a> Outbound<'a> {
    /// The envelope that the agent `did` makes of it.
    pub(super) fn draft(&'a self, did: &'a Did) -> Draft<'a> {
        Draft {
            id: self.id,
            typ: self.typ.code(),
            ts: self.id.ts_ms(),
            ttl: self.ttl_ms,
            from: did.as_str(),
            to: Recipients::one(self.to),
            reply_to: self.reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: self.thread_id,
            body: self.body,
            ext: self.ext,
        }
    }
}

impl Node {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            identity: parts.identity,
            rates: Rates::new(parts.system.clock.clone(), parts.rules.peer_rates),
            denials: Denials::default(),
            started_at_ms: parts.system.clock.wall_ms(),
            meter: Meter::default(),
            log: OnceLock::new(),
            host: OnceLock::new(),
            clock: parts.system.clock,
            random: parts.system.random,
            registry: Registry::new(),
            artifacts: parts.artifacts,
            drift: Drift::new(parts.gate),
            policy: parts.policy,
            reading: parts.reading,
            peers: parts.peers,
            serves: parts.serves,
            unlinked: Unlinked::default(),
            providers: Providers::default(),
            executor: parts.executor,
            journal_id: parts.journal_id,
            journal: parts.journal,
            audit: parts.audit,
            gifts: parts.gifts,
            relay: Relay::new(parts.rules.limits.requests_waiting_max),
            turns: Turns::new(parts.rules.argument_repairs_max),
            pins: Mutex::default(),
            warned: Mutex::default(),
            keyring: Mutex::new(parts.keyring),
            rules: parts.rules,
            fetches: super::discovery::Fetches::default(),
            cursor_key: parts.cursor_key,
            tasks: parts.system.tasks.group(),
            draining: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            #[cfg(feature = "test-hooks")]
            left_out: super::hooks::LeftOut::default(),
        })
    }

    /// Drops what would keep the node alive: calls whose tickets answer to it.
    pub(super) fn let_go(&self) {
        self.executor.let_go();
        self.providers.let_go();
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
        // Awaited inside another async block it would be kept there several times over.
        self.tasks.spawn(work.with_cancellation_token_owned(self.shutdown.clone()));
    }

    /// A fresh id for a message made at `now_ms`.
    pub(super) fn fresh_id(&self, now_ms: u64) -> MessageId {
        // Without randomness ids could repeat, and a repeated id is another call's: better no daemon than that.
        MessageId::new(now_ms, self.random.bytes().expect("the system has randomness"))
    }

    /// The bytes of an envelope of ours, signed unless `link` proves us otherwise.
    pub(super) fn seal(&self, message: &Outbound<'_>, link: &Link) -> Bytes {
        self.seal_signed(message, needs_signature(link))
    }

    pub(super) fn seal_signed(&self, message: &Outbound<'_>, signed: bool) -> Bytes {
        self.seal_around(&message.draft(self.did()), signed).0
    }

    /// The bytes of an envelope of ours around a body that came, which is not copied if it is large. Gives the body where
    /// it is from here on, too.
    pub(super) fn pass_on(&self, draft: Draft<'_>, body: &Bytes, signed: bool) -> (Encoded, Bytes) {
        // What is signed has to stand in one piece.
        if signed || body.len() < Encoded::APART_BYTES_MIN {
            let (envelope, body) = self.seal_around(&Draft { body, ..draft }, signed);
            return (envelope.into(), body);
        }
        (Draft { body: &[], ..draft }.write_apart(0, body.clone()), body.clone())
    }

    fn seal_around(&self, draft: &Draft<'_>, signed: bool) -> (Bytes, Bytes) {
        let mut out = Vec::with_capacity(draft.body.len() + ENVELOPE_BYTES_TYPICAL);
        let body = draft.seal_around(&self.identity, signed, &mut out);
        let out = Bytes::from(out);
        let body = out.slice(body);
        (out, body)
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
        let message = Outbound {
            id,
            typ,
            to: to.as_str(),
            reply_to,
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        self.seal(&message, link)
    }

    /// Answers a message on the stream it came on; a link that takes no more is closing anyway.
    pub(super) fn reply(&self, inbound: &Inbound<'_>, typ: Type, body: &[u8]) {
        let envelope = self.answer(inbound.link, inbound.sender, Some(inbound.envelope.id), typ, body);
        self.send(inbound.link, inbound.route, envelope);
    }

    /// Sends an answer. An answer that does not fit the link's queue is lost with the link: whoever asks again finds
    /// it in the ledger.
    pub(super) fn send(&self, link: &Arc<Link>, route: &Route, envelope: impl Into<Encoded>) {
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
        let envelope = self.answer(link, link.principal(), reply_to, Type::Error, &refusal.body());
        self.send(link, route, envelope);
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
