//! Frames of an opening link in, the machine's inputs out, and its outputs back to frames: HANDSHAKE and HELLO.
//!
//! What the machine cannot judge is judged here: whether the token fits, whether the owner admits the newcomer, and
//! whether a HELLO's envelope is good and from whom it must be (PROTOCOL 2, 4, 5).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::cbor::{Reader, Writer};
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_proto::frame::{ErrorFrame, FrameType, Goaway, HandshakeRequest, HandshakeResponse};
use capd_proto::identity::{Did, PublicKey};
use capd_proto::limits::EXT_CHANNEL_AUTH;
use capd_proto::link::{Input, Output, Role};

use super::Newcomer;
use super::host::{Host, Owner};
use super::link::{Fault, Kind};
use super::local::Token;

/// Who is at the other end of a connection, as far as the transport knows.
pub(super) struct End {
    pub(super) kind: Kind,
    /// Whom TLS proved; local connections prove nobody.
    pub(super) principal: Option<Did>,
    pub(super) remote: String,
    pub(super) address: Option<SocketAddr>,
    /// What a client shows and a server asks for.
    pub(super) token: Option<Token>,
}

impl End {
    /// Another sidecar, whose key TLS proved.
    pub(super) fn peer(kind: Kind, principal: Did, address: SocketAddr) -> Self {
        Self {
            kind,
            principal: Some(principal),
            remote: address.to_string(),
            address: Some(address),
            token: None,
        }
    }

    /// The other end of a unix socket.
    pub(super) const fn local(kind: Kind, remote: String) -> Self {
        Self { kind, principal: None, remote, address: None, token: None }
    }

    /// The other end of a loopback connection.
    pub(super) fn loopback(address: SocketAddr, token: Token) -> Self {
        Self {
            kind: Kind::LocalTcp,
            principal: None,
            remote: address.to_string(),
            address: Some(address),
            token: Some(token),
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
}

impl Greeter {
    pub(super) const fn new(host: Arc<Host>, role: Role, end: End) -> Self {
        Self { host, role, end, told: None, channel_auth: false, hello: None }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.end.kind
    }

    pub(super) fn remote(&self) -> &str {
        &self.end.remote
    }

    /// Who the other side is: proven by TLS, or on a local link the one agent that both sides are for (PROTOCOL 2).
    pub(super) fn principal(&self) -> Option<Did> {
        self.end.principal.clone().or_else(|| self.ours())
    }

    /// Who this side is.
    fn ours(&self) -> Option<Did> {
        self.host.did().or(self.told.as_ref()).cloned()
    }

    /// Reads the other side's HANDSHAKE. **Errors:** 1001.
    pub(super) fn read_handshake<'a>(&mut self, payload: &'a [u8]) -> Result<Input<'a>, Fault> {
        let ours = self.host.settings.channel_auth && !self.end.kind.is_local();
        let names = |extensions: &Option<Vec<Cow<'_, str>>>| {
            extensions.iter().flatten().any(|name| name == EXT_CHANNEL_AUTH)
        };
        match self.role {
            Role::Server => {
                let request = HandshakeRequest::decode(payload)?;
                self.channel_auth = ours && names(&request.extensions);
                let admitted = self.admits(&request);
                Ok(Input::HandshakeRequest { request, admitted })
            }
            Role::Client => {
                let response = HandshakeResponse::decode(payload)?;
                self.channel_auth = ours && names(&response.extensions);
                if self.end.kind.is_local() && response.accepted {
                    let did = response.did.as_deref().and_then(|did| Did::parse(did).ok());
                    self.told =
                        Some(did.ok_or_else(|| Fault::invalid("the sidecar's HANDSHAKE names no DID"))?);
                }
                Ok(Input::HandshakeResponse(response))
            }
        }
    }

    fn admits(&self, request: &HandshakeRequest<'_>) -> bool {
        if let Some(token) = &self.end.token
            && !token.is(request.token.as_deref().unwrap_or_default())
        {
            return false;
        }
        let Some(principal) = self.principal() else { return false };
        // PROTOCOL 2: who the peer is, is its key; saying otherwise is not a way to be someone else.
        if request.did.as_deref().is_some_and(|did| Did::bare_of(did) != principal.as_str()) {
            return false;
        }
        self.host.service.admit(&Newcomer {
            principal: &principal,
            kind: self.end.kind,
            address: self.end.address,
        })
    }

    /// Reads a message that came before the link is open. **Errors:** the code of what is wrong with its envelope.
    pub(super) fn read<'a>(&mut self, payload: &'a [u8]) -> Result<Input<'a>, Fault> {
        let envelope = Envelope::decode(payload)?;
        envelope.check_time(self.host.clock.wall_ms())?;
        let (Some(ours), Some(principal)) = (self.ours(), self.principal()) else {
            return Ok(Input::Message);
        };
        envelope.check_recipient(&ours)?;
        // PROTOCOL 2: `from` is the DID of the link's TLS key; on a local link it is the agent's.
        if Did::bare_of(&envelope.from) != principal.as_str() {
            return Err(unauthorized("`from` is not the link's own principal"));
        }
        if envelope.sig.is_some() || !(self.end.kind.is_local() || self.channel_auth) {
            let key = PublicKey::from_did(&envelope.from).map_err(|_| unauthorized("no key for `from`"))?;
            envelope.verify(&key, &mut Vec::new())?;
        }
        let body = envelope.body().ok_or_else(|| Fault::invalid("HELLO is not encrypted"))?;
        match envelope.typ {
            HELLO => {
                self.hello = Some(envelope.id);
                Ok(Input::Hello { versions: read_versions(body)? })
            }
            HELLO_ACK => {
                self.check_answer(&envelope)?;
                let selected = read_text(body, "selected")?
                    .ok_or_else(|| Fault::invalid("HELLO_ACK lacks `selected`"))?;
                Ok(Input::HelloAck { selected })
            }
            HELLO_REJECT => {
                self.check_answer(&envelope)?;
                Ok(Input::HelloReject { reason: read_text(body, "reason")? })
            }
            _ => Ok(Input::Message),
        }
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
                return self.message(HELLO, &hello_body(&versions, &self.host.settings.agent_name));
            }
            Output::SendHelloAck { selected } => {
                return self.message(HELLO_ACK, &text_body("selected", &selected));
            }
            Output::SendHelloReject { reason } => {
                return self.message(HELLO_REJECT, &text_body("reason", &reason));
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
    fn message(&mut self, typ: u64, body: &[u8]) -> Option<(FrameType, Bytes)> {
        let (ours, theirs) = (self.ours()?, self.principal()?);
        let ts = self.host.clock.wall_ms();
        let mut random = [0; 8];
        // The id need not be hard to guess, only new: it is matched on this link alone.
        let _predictable = getrandom::fill(&mut random);
        let id = MessageId::new(ts, random);
        let answered = match typ {
            HELLO => self.hello.insert(id).to_owned(),
            _ => self.hello?,
        };
        let draft = Draft {
            id,
            typ,
            ts,
            ttl: HELLO_TTL_MS,
            from: ours.as_str(),
            to: Recipients::one(theirs.as_str()),
            reply_to: (typ != HELLO).then_some(answered.as_bytes()),
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

fn unauthorized(message: &str) -> Fault {
    Fault { code: Code::UNAUTHORIZED, message: message.to_owned() }
}

fn hello_body(versions: &[String], agent_name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = Writer::new(&mut body);
    writer.map(2).text("versions").array(versions.len() as u64);
    for version in versions {
        writer.text(version);
    }
    writer.text("agent_info").map(2).text("name").text(agent_name);
    writer.text("implementation").text(concat!("capd/", env!("CARGO_PKG_VERSION")));
    body
}

fn text_body(key: &str, value: &str) -> Vec<u8> {
    let mut body = Vec::new();
    Writer::new(&mut body).map(1).text(key).text(value);
    body
}

fn read_versions(body: &[u8]) -> Result<Vec<Cow<'_, str>>, Fault> {
    let mut versions = Vec::new();
    let mut reader = Reader::new(body);
    let mut left = reader.map().map_err(ill_formed)?;
    while reader.has_next(&mut left) {
        if reader.text().map_err(ill_formed)? != "versions" {
            reader.skip().map_err(ill_formed)?;
            continue;
        }
        let mut left = reader.array().map_err(ill_formed)?;
        while reader.has_next(&mut left) {
            versions.push(reader.text().map_err(ill_formed)?);
        }
    }
    if versions.is_empty() {
        return Err(Fault::invalid("HELLO lacks `versions`"));
    }
    Ok(versions)
}

fn read_text<'a>(body: &'a [u8], wanted: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let mut reader = Reader::new(body);
    let mut left = reader.map().map_err(ill_formed)?;
    let mut found = None;
    while reader.has_next(&mut left) {
        if reader.text().map_err(ill_formed)? == wanted {
            found = Some(reader.text().map_err(ill_formed)?);
        } else {
            reader.skip().map_err(ill_formed)?;
        }
    }
    Ok(found)
}

fn ill_formed(error: capd_proto::cbor::Error) -> Fault {
    Fault::invalid(error.to_string())
}

const HELLO: u64 = 0x70;
const HELLO_ACK: u64 = 0x71;
const HELLO_REJECT: u64 = 0x72;
/// How long a HELLO or its answer is valid; longer than any handshake may take.
const HELLO_TTL_MS: u64 = 60_000;
