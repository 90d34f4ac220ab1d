//! Translates the frames of an opening link, HANDSHAKE and HELLO, to inputs of the machine, and its outputs to frames.
//!
//! It also makes the checks that the machine cannot make: whether the token fits, whether the owner admits the peer,
//! and whether a HELLO's envelope is valid and of the right sender (PROTOCOL 2, 4, 5).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Envelope, EnvelopeErrorKind, Ext, MessageId, Recipients};
use capd_proto::fleet::Membership;
use capd_proto::frame::{ErrorFrame, FrameType, Goaway, HandshakeRequest, HandshakeResponse};
use capd_proto::identity::{Did, PublicKey};
use capd_proto::ledger::JournalId;
use capd_proto::limits::{EXT_CHANNEL_AUTH, EXT_FLEET, PROOF_BYTES};
use capd_proto::link::{self as machine, Input, NotAdmitted, Output, Role};
use capd_proto::message::{AgentInfo, Hello, HelloAck, HelloReject, Member, Type};
use tokio::time::Instant;

use super::claim::Claim;
use super::close::Fault;
use super::host::{Host, Owner};
use super::link::Kind;
use super::local::{Nonces, Token};
use super::{Admit, Newcomer};

/// A nonce, or a proof for one.
type Proof = [u8; PROOF_BYTES];

/// Who is at the other end of a connection, as far as the transport knows.
pub(super) struct End {
    pub(super) kind: Kind,
    /// Whom TLS proved, and the key that it is; local connections prove nobody.
    pub(super) principal: Option<(Did, PublicKey)>,
    pub(super) remote: String,
    pub(super) address: Option<SocketAddr>,
    /// What both ends are to know.
    pub(super) token: Option<Token>,
    /// What a client has the server prove the token for.
    pub(super) nonce: Option<Proof>,
}

impl End {
    /// Another sidecar, whose key TLS proved.
    pub(super) fn peer(kind: Kind, key: PublicKey, address: SocketAddr) -> Self {
        Self {
            kind,
            principal: Some((key.did(), key)),
            remote: address.to_string(),
            address: Some(address),
            token: None,
            nonce: None,
        }
    }

    /// The other end of a unix socket.
    pub(super) const fn local(kind: Kind, remote: String) -> Self {
        Self { kind, principal: None, remote, address: None, token: None, nonce: None }
    }

    /// The other end of a loopback connection.
    pub(super) fn loopback(address: SocketAddr, token: Token) -> Self {
        Self {
            kind: Kind::LocalTcp,
            principal: None,
            remote: address.to_string(),
            address: Some(address),
            token: Some(token),
            nonce: None,
        }
    }
}

/// Reads and writes the frames of one opening link.
pub(super) struct Greeter {
    host: Arc<Host>,
    role: Role,
    end: End,
    /// The sidecar's DID as a local link's HANDSHAKE told it.
    told: Option<Did>,
    /// Whether both sides named `channel-auth`.
    channel_auth: bool,
    /// The HELLO, sent or received, that HELLO_ACK and HELLO_REJECT answer.
    hello: Option<MessageId>,
    /// What a server has proven the token for, and a client is to.
    nonces: Option<Nonces>,
    /// The journal that the peer's HELLO named.
    journal: Option<JournalId>,
    /// The process that it named.
    incarnation: Option<u64>,
    /// The membership that it showed, if that counts.
    membership: Option<Arc<Membership>>,
    /// Whether a link depends on that.
    is_member_wanted: bool,
    /// The link's place among those that its peer opened.
    place: Option<Claim<Did>>,
}

impl Greeter {
    pub(super) const fn new(host: Arc<Host>, role: Role, end: End) -> Self {
        Self {
            host,
            role,
            end,
            told: None,
            channel_auth: false,
            hello: None,
            nonces: None,
            journal: None,
            incarnation: None,
            membership: None,
            is_member_wanted: false,
            place: None,
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.end.kind
    }

    pub(super) fn remote(&self) -> &str {
        &self.end.remote
    }

    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.end.address
    }

    /// Who the other side is: proven by TLS, or on a local link the one agent that both sides are for (PROTOCOL 2).
    pub(super) fn principal(&self) -> Option<Did> {
        self.end.principal.as_ref().map(|(did, _)| did.clone()).or_else(|| self.ours())
    }

    /// The key that TLS proved.
    pub(super) fn key(&self) -> Option<PublicKey> {
        self.end.principal.as_ref().map(|(_, key)| *key)
    }

    /// The journal that a peer said it remembers calls in.
    pub(super) const fn journal(&self) -> Option<JournalId> {
        self.journal
    }

    /// The process of a fleet's member that a peer named.
    pub(super) const fn incarnation(&self) -> Option<u64> {
        self.incarnation
    }

    /// The membership that a peer showed, if it counts.
    pub(super) const fn take_membership(&mut self) -> Option<Arc<Membership>> {
        self.membership.take()
    }

    /// Asks what a peer's HELLO or HELLO_ACK makes it here. **Errors:** why it gets no link.
    fn meet(&mut self, journal: Option<JournalId>, shown: &Member<'_>) -> Result<(), &'static str> {
        self.journal = journal;
        let Some(principal) = self.principal().filter(|_| !self.end.kind.is_local()) else { return Ok(()) };
        self.incarnation = shown.incarnation;
        if self.is_member_wanted && shown.membership.is_none() {
            return Err(NotAdmitted::NotListed.as_str());
        }
        let newcomer = Newcomer { principal: &principal, kind: self.end.kind, address: self.end.address };
        self.membership = self.host.service.member(&newcomer, shown)?;
        Ok(())
    }

    /// What this side shows of its part in a fleet; an agent's link needs none.
    fn our_part(&self) -> Member<'static> {
        if self.end.kind.is_local() { Member::default() } else { self.host.service.part() }
    }

    /// The journal that this side names; an agent's link needs none.
    fn our_journal(&self) -> Option<JournalId> {
        if self.end.kind.is_local() { None } else { self.host.service.journal() }
    }

    /// Who this side is.
    fn ours(&self) -> Option<Did> {
        self.host.did().or(self.told.as_ref()).cloned()
    }

    /// Reads the other side's HANDSHAKE. **Errors:** 1001.
    pub(super) fn read_handshake<'a>(&mut self, payload: &'a [u8]) -> Result<Input<'a>, Fault> {
        let ours = self.host.settings().channel_auth && !self.end.kind.is_local();
        let names = |extensions: &Option<Vec<Cow<'_, str>>>| {
            extensions.iter().flatten().any(|name| name == EXT_CHANNEL_AUTH)
        };
        match self.role {
            Role::Server => {
                let request = HandshakeRequest::decode(payload)?;
                self.channel_auth = ours && names(&request.extensions);
                if let Some((nonce, proof)) = self.challenge(&request)? {
                    return Ok(Input::Challenge { request, nonce, proof });
                }
                let admitted = self.admits(&request);
                Ok(Input::HandshakeRequest { request, admitted })
            }
            Role::Client => {
                let response = HandshakeResponse::decode(payload)?;
                self.channel_auth = ours && names(&response.extensions);
                if let (Some(server), Some(proof)) = (response.nonce, response.proof) {
                    return Ok(Input::Challenged { proof: self.own_proof(server, &proof) });
                }
                if self.end.kind.is_local() && response.accepted {
                    let did = response.did.as_deref().and_then(|did| Did::parse(did).ok());
                    self.told =
                        Some(did.ok_or_else(|| Fault::invalid("the sidecar's HANDSHAKE names no DID"))?);
                }
                Ok(Input::HandshakeResponse(response))
            }
        }
    }

    /// The nonce and the proof for a client that asks for one before anything else. **Errors:** no random numbers.
    fn challenge(&mut self, request: &HandshakeRequest<'_>) -> Result<Option<(Proof, Proof)>, Fault> {
        let (Some(token), Some(client)) = (&self.end.token, request.nonce) else { return Ok(None) };
        let random = self.host.system.random.bytes();
        let server =
            random.map_err(|_missing| Fault { code: Code::INTERNAL_ERROR, message: NO_NONCE.to_owned() })?;
        let nonces = Nonces { client, server };
        let proof = token.prove(Role::Server, &nonces);
        self.nonces = Some(nonces);
        Ok(Some((server, proof)))
    }

    /// The proof for a server that has proven that it knows the token; none for another.
    fn own_proof(&self, server: Proof, theirs: &Proof) -> Option<Proof> {
        let (token, client) = (self.end.token.as_ref()?, self.end.nonce?);
        let nonces = Nonces { client, server };
        token.is_proven(Role::Server, &nonces, theirs).then(|| token.prove(Role::Client, &nonces))
    }

    /// Whether a client knows the token, where it is to.
    fn knows_the_token(&self, request: &HandshakeRequest<'_>) -> bool {
        let Some(token) = &self.end.token else { return true };
        if let Some(nonces) = &self.nonces {
            return request.proof.is_some_and(|proof| token.is_proven(Role::Client, nonces, &proof));
        }
        let shown = request.token.as_deref();
        if shown.is_some() && !self.host.settings().token_plain {
            tracing::warn!(
                remote = self.end.remote,
                "a local link sent the token: agents prove it, or listen.token_plain is on"
            );
            return false;
        }
        shown.is_some_and(|shown| token.is(shown))
    }

    fn admits(&mut self, request: &HandshakeRequest<'_>) -> Result<(), NotAdmitted> {
        if !self.knows_the_token(request) {
            return Err(NotAdmitted::Token);
        }
        let principal = self.principal().ok_or(NotAdmitted::NotListed)?;
        let newcomer = Newcomer { principal: &principal, kind: self.end.kind, address: self.end.address };
        match self.host.service.admit(&newcomer) {
            Admit::Yes => {}
            Admit::No => return Err(NotAdmitted::NotListed),
            Admit::IfMember => self.is_member_wanted = true,
        }
        // PROTOCOL 2: who the peer is, is its key; saying otherwise is not a way to be someone else.
        if request.did.as_deref().is_some_and(|did| Did::bare_of(did) != principal.as_str()) {
            return Err(NotAdmitted::OtherDid);
        }
        if !self.end.kind.is_local() && self.place.is_none() {
            self.place = Some(self.host.peer_link(&principal).ok_or(NotAdmitted::TooManyLinks)?);
        }
        Ok(())
    }

    /// Reads a message that came before the link is open. **Errors:** the code of what is wrong with its envelope.
    pub(super) fn read<'a>(&mut self, payload: &'a [u8]) -> Result<Input<'a>, Fault> {
        let envelope = Envelope::decode(payload)?;
        self.check_time(&envelope)?;
        let (Some(ours), Some(principal)) = (self.ours(), self.principal()) else {
            return Ok(Input::Message);
        };
        envelope.check_recipient(&ours)?;
        // PROTOCOL 2: `from` is the DID of the link's TLS key; on a local link it is the agent's.
        if Did::bare_of(&envelope.from) != principal.as_str() {
            return Err(unauthorized("`from` is not the link's own principal"));
        }
        if envelope.sig.is_some() || !(self.end.kind.is_local() || self.channel_auth) {
            let key = self.key().map_or_else(|| PublicKey::from_did(&envelope.from), Ok);
            let key = key.map_err(|_| unauthorized("no key for `from`"))?;
            envelope.verify(&key, &mut Vec::new())?;
        }
        let body = envelope.body().ok_or_else(|| Fault::invalid("HELLO is not encrypted"))?;
        match Type::from_code(envelope.typ) {
            Some(Type::Hello) => {
                self.hello = Some(envelope.id);
                let hello = Hello::decode(body)?;
                let met = match self.role {
                    Role::Server => self.meet(hello.journal, &hello.member),
                    // The machine has no place for it.
                    Role::Client => Ok(()),
                };
                Ok(met.map_or_else(Input::HelloRefused, |()| Input::Hello { versions: hello.versions }))
            }
            // PROTOCOL 4: to a server these are messages like any other before the link is open.
            Some(Type::HelloAck | Type::HelloReject) if self.role == Role::Server => Ok(Input::Message),
            Some(Type::HelloAck) => {
                self.check_answer(&envelope)?;
                let ack = HelloAck::decode(body)?;
                let met = self.meet(ack.journal, &ack.member);
                Ok(met.map_or_else(Input::HelloRefused, |()| Input::HelloAck { selected: ack.selected }))
            }
            Some(Type::HelloReject) => {
                self.check_answer(&envelope)?;
                Ok(Input::HelloReject { reason: HelloReject::decode(body)?.reason })
            }
            _ => Ok(Input::Message),
        }
    }

    /// **Errors:** 1003, with how far apart the clocks are: both sides' owners have to know, and one sees nothing else.
    fn check_time(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        let now_ms = self.host.system.clock.wall_ms();
        envelope.check_time(now_ms).map_err(|error| {
            let side = match error.kind {
                EnvelopeErrorKind::Future => "ahead of",
                EnvelopeErrorKind::Expired => "behind",
                _ => return error.into(),
            };
            let seconds = envelope.ts.abs_diff(now_ms) / 1_000;
            Fault { message: format!("HELLO is {seconds} s {side} the receiver's clock"), ..error.into() }
        })
    }

    fn check_answer(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        if self.hello.is_some() && envelope.reply_id() == self.hello {
            return Ok(());
        }
        Err(Fault::invalid("the answer to HELLO answers another message"))
    }

    /// The frame that an output asks to send, if it asks for one.
    pub(super) fn write(&mut self, output: Output) -> Option<(FrameType, Bytes)> {
        let mut payload = Vec::new();
        let frame_type = match output {
            Output::SendHandshakeRequest(request) => {
                request.encode(&mut payload);
                FrameType::Handshake
            }
            Output::SendHandshakeResponse(response) => {
                response.encode(&mut payload);
                FrameType::Handshake
            }
            Output::SendHello { versions } => {
                let settings = self.host.settings();
                let member = self.our_part();
                let hello = Hello {
                    versions: versions.into_iter().map(Cow::Owned).collect(),
                    extensions: member.membership.iter().map(|_| EXT_FLEET.into()).collect(),
                    agent_info: Some(AgentInfo {
                        name: settings.agent_name.as_str().into(),
                        implementation: Some(IMPLEMENTATION.into()),
                    }),
                    journal: self.our_journal(),
                    member,
                };
                let mut body = Vec::new();
                hello.encode(&mut body);
                return self.message(Type::Hello, &body);
            }
            Output::SendHelloAck { selected } => {
                let mut body = Vec::new();
                let (journal, member) = (self.our_journal(), self.our_part());
                HelloAck { selected: selected.into(), journal, member }.encode(&mut body);
                return self.message(Type::HelloAck, &body);
            }
            Output::SendHelloReject { reason } => {
                let mut body = Vec::new();
                HelloReject { reason: Some(reason.into()) }.encode(&mut body);
                return self.message(Type::HelloReject, &body);
            }
            Output::SendError { code, message } => {
                ErrorFrame { code: u64::from(code.0), message: message.into(), msg_id: None }
                    .encode(&mut payload);
                FrameType::Error
            }
            Output::SendPing(payload) => return Some((FrameType::Ping, payload)),
            Output::SendPong(payload) => return Some((FrameType::Pong, payload)),
            Output::SendGoaway { reason } => {
                Goaway { reason, ..Goaway::default() }.encode(&mut payload);
                FrameType::Goaway
            }
            Output::Opened(_)
            | Output::Draining { .. }
            | Output::Deliver { .. }
            | Output::PeerError { .. }
            | Output::Close(_) => {
                return None;
            }
        };
        Some((frame_type, payload.into()))
    }

    /// One of the three HELLO messages, sealed for the other side.
    fn message(&mut self, typ: Type, body: &[u8]) -> Option<(FrameType, Bytes)> {
        let (ours, theirs) = (self.ours()?, self.principal()?);
        let ts = self.host.system.clock.wall_ms();
        // The id need not be hard to guess, only new: it is matched on this link alone.
        let random = self.host.system.random.bytes().unwrap_or_default();
        let id = MessageId::new(ts, random);
        let answered = if typ == Type::Hello {
            self.hello = Some(id);
            None
        } else {
            self.hello
        };
        let draft = Draft {
            id,
            typ: typ.code(),
            ts,
            ttl: HELLO_TTL_MS,
            from: ours.as_str(),
            to: Recipients::one(theirs.as_str()),
            reply_to: answered.as_ref().map(|id| &id.as_bytes()[..]),
            thread_id: None,
            body,
            ext: Ext::None,
        };
        let mut payload = Vec::new();
        match &self.host.owner {
            Owner::Sidecar { identity, .. } => draft.seal(identity, !self.end.kind.is_local(), &mut payload),
            // PROTOCOL 2: on a local link `sig` may be empty.
            Owner::Agent => draft.write_unsigned(&mut payload),
        }
        Some((FrameType::AmpMessage, payload.into()))
    }
}

/// What this side brings to a link whose HELLO must be done at `deadline`.
pub(super) fn config(host: &Host, role: Role, end: &End, deadline: Instant) -> machine::Config {
    let settings = host.settings();
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let is_quic = end.kind == Kind::PeerQuic;
    let offers_channel_auth = settings.channel_auth && !end.kind.is_local();
    machine::Config {
        max_msg_size: settings.msg_size_bytes_max,
        // A server says who it is, which a client on a local link cannot know otherwise.
        did: host.did().filter(|_| role == Role::Server).map(ToString::to_string),
        nonce: end.nonce,
        extensions: if offers_channel_auth { vec![EXT_CHANNEL_AUTH.to_owned()] } else { Vec::new() },
        handshake_timeout_ms: milliseconds(deadline.saturating_duration_since(Instant::now())),
        drain_timeout_ms: milliseconds(settings.drain_timeout),
        // QUIC keeps its own watch, over all streams.
        idle_timeout_ms: (!is_quic).then(|| milliseconds(settings.idle_timeout)),
        keep_alive_ms: (!is_quic).then(|| milliseconds(settings.keep_alive_interval)),
        ..machine::Config::default()
    }
}

fn unauthorized(message: &str) -> Fault {
    Fault { code: Code::UNAUTHORIZED, message: message.to_owned() }
}

const NO_NONCE: &str = "no random number is available for a nonce";
/// How long a HELLO or its answer is valid; longer than any handshake may take.
const HELLO_TTL_MS: u64 = 60_000;
/// What HELLO says that we run.
const IMPLEMENTATION: &str = concat!("capd/", env!("CARGO_PKG_VERSION"));
