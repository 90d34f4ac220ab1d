//! A sidecar in, a link to it over any transport out, with nothing between a test and the bytes.
//!
//! [`RawLink`] is an agent on a unix socket or on loopback TCP, or a peer sidecar over TLS or QUIC with a key of its
//! own. What it sends is whatever the test says; what it receives on a peer link must be signed by the sidecar.

#[allow(dead_code, reason = "not every test binary has so many attackers")]
pub mod greet;
mod pipe;
pub mod tls;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_proto::identity::{Identity, PublicKey};
use ciborium::Value;

use crate::support::{AMP_MESSAGE, Frame, HANDSHAKE, Message, Sidecar, decode, encode, map};

use pipe::Pipe;
pub use tls::Certificate;

/// The frame type of ERROR.
pub const ERROR_FRAME: u8 = 0x06;
const PING_FRAME: u8 = 0x03;
const PONG_FRAME: u8 = 0x04;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// How a link reaches the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// An agent on the unix socket.
    Unix,
    /// An agent on loopback TCP, with the token.
    Loopback,
    /// A peer over TCP with TLS.
    Tcp,
    /// A peer over QUIC; messages travel on an exchange stream.
    Quic,
}

impl Transport {
    pub const ALL: [Self; 4] = [Self::Unix, Self::Loopback, Self::Tcp, Self::Quic];
    pub const PEER: [Self; 2] = [Self::Tcp, Self::Quic];
    pub const LOCAL: [Self; 2] = [Self::Unix, Self::Loopback];

    pub fn is_local(self) -> bool {
        matches!(self, Self::Unix | Self::Loopback)
    }
}

/// An identity that no other test has.
pub fn fresh_seed() -> [u8; 32] {
    let mut seed = [0x5e; 32];
    seed[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    seed[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    seed
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An id that no other message has, of a message made at `ts`.
pub fn id_at(ts: u64) -> [u8; 16] {
    let next = u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&ts.to_be_bytes());
    id[8..].copy_from_slice(&next.to_be_bytes());
    id
}

/// An envelope before it is sealed; every field can be changed.
#[derive(Clone, Debug)]
pub struct Letter {
    pub id: [u8; 16],
    pub typ: u64,
    pub ts: u64,
    pub ttl: u64,
    pub from: String,
    pub to: Vec<String>,
    pub reply_to: Option<Vec<u8>>,
    /// One CBOR item.
    pub body: Vec<u8>,
    /// A CBOR map.
    pub ext: Option<Vec<u8>>,
}

impl Letter {
    /// The envelope's bytes, with a signature of `identity`'s or with an empty `sig`.
    pub fn seal(&self, identity: &Identity, signed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.draft(|draft| draft.seal(identity, signed, &mut out));
        out
    }

    /// Hands the draft that this letter is to `then`.
    pub fn draft<T>(&self, then: impl FnOnce(Draft<'_>) -> T) -> T {
        let to = match self.to.as_slice() {
            [one] => Recipients::one(one),
            many => Recipients::Many(many.iter().map(|did| did.as_str().into()).collect()),
        };
        then(Draft {
            id: MessageId(self.id),
            typ: self.typ,
            ts: self.ts,
            ttl: self.ttl,
            from: &self.from,
            to,
            reply_to: self.reply_to.as_deref(),
            thread_id: None,
            body: &self.body,
            ext: self.ext.as_deref().map_or(Ext::None, Ext::Raw),
        })
    }
}

/// One side of a link, as raw as it gets. Every read waits at most [`PATIENCE`].
pub struct RawLink {
    pub transport: Transport,
    /// Our key; on a local link one that nobody asks for.
    pub identity: Identity,
    /// Whose messages ours are.
    pub from: String,
    /// The sidecar's DID.
    pub sidecar: String,
    pipe: Pipe,
    token: Option<Vec<u8>>,
}

impl fmt::Debug for RawLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawLink({:?})", self.transport)
    }
}

impl RawLink {
    /// Connects, and says nothing above TLS.
    pub fn connect(sidecar: &Sidecar, transport: Transport) -> Self {
        Self::connect_as(sidecar, transport, fresh_seed())
    }

    /// Connects with a key.
    pub fn connect_as(sidecar: &Sidecar, transport: Transport, seed: [u8; 32]) -> Self {
        let link = Self::try_connect(sidecar, transport, seed, &Certificate::Of(seed));
        link.unwrap_or_else(|error| panic!("{transport:?}: {error}"))
    }

    /// Connects with a certificate that need not be good.
    pub fn try_connect(
        sidecar: &Sidecar,
        transport: Transport,
        seed: [u8; 32],
        certificate: &Certificate,
    ) -> io::Result<Self> {
        let identity = Identity::from_seed(seed);
        let pipe = Pipe::connect(sidecar, transport, certificate)?;
        let token = (transport == Transport::Loopback).then(|| token(sidecar));
        let from =
            if transport.is_local() { sidecar.did.clone() } else { identity.did().as_str().to_owned() };
        Ok(Self { transport, identity, from, sidecar: sidecar.did.clone(), pipe, token })
    }

    /// Connects and opens the link: HANDSHAKE, HELLO.
    pub fn open(sidecar: &Sidecar, transport: Transport) -> Self {
        Self::open_as(sidecar, transport, fresh_seed())
    }

    /// Connects with a key and opens the link.
    pub fn open_as(sidecar: &Sidecar, transport: Transport, seed: [u8; 32]) -> Self {
        let mut link = Self::connect_as(sidecar, transport, seed);
        link.handshake();
        link.hello();
        link.use_exchange_stream();
        link
    }

    /// The HANDSHAKE that opens a link.
    pub fn handshake_request(&self) -> Value {
        let mut request = map([("version", 1.into()), ("max_msg_size", (16 * 1024 * 1024).into())]);
        if let Some(token) = &self.token {
            crate::support::set(&mut request, "token", Value::Bytes(token.clone()));
        }
        request
    }

    /// Sends HANDSHAKE and takes its answer, which accepts.
    pub fn handshake(&mut self) -> Value {
        let request = self.handshake_request();
        self.send_frame(HANDSHAKE, &encode(&request));
        let frame = self.frame();
        assert_eq!(frame.frame_type, HANDSHAKE, "{frame:?}");
        decode(&frame.payload)
    }

    /// Sends HELLO and takes HELLO_ACK.
    pub fn hello(&mut self) -> Message {
        let id = self.send(0x70, map([("versions", Value::Array(vec!["1.0".into()]))]));
        let ack = self.message();
        assert_eq!((ack.typ(), ack.reply_to()), (0x71, Some(id)), "{ack:?}");
        ack
    }

    /// On QUIC, what follows travels on an exchange stream; elsewhere there is one stream for everything.
    pub fn use_exchange_stream(&mut self) {
        self.pipe.use_exchange_stream();
    }

    /// On QUIC, what follows travels on the control stream.
    pub fn use_control_stream(&mut self) {
        self.pipe.use_control_stream();
    }

    /// Resets the QUIC stream that messages travel on, with an application code.
    pub fn reset_stream(&mut self, code: u32) {
        self.pipe.reset_stream(code);
    }

    /// A message from us to the sidecar.
    pub fn letter(&self, typ: u64, body: &Value) -> Letter {
        let ts = now_ms();
        Letter {
            id: id_at(ts),
            typ,
            ts,
            ttl: 60_000,
            from: self.from.clone(),
            to: vec![self.sidecar.clone()],
            reply_to: None,
            body: encode(body),
            ext: None,
        }
    }

    /// The bytes of a message from us: signed on a peer link, unsigned on a local one.
    pub fn seal(&self, letter: &Letter) -> Vec<u8> {
        letter.seal(&self.identity, !self.transport.is_local())
    }

    /// Sends a message, and returns its id.
    pub fn send(&mut self, typ: u64, body: Value) -> Vec<u8> {
        let letter = self.letter(typ, &body);
        self.send_letter(&letter)
    }

    /// Sends a message, and returns its id.
    pub fn send_letter(&mut self, letter: &Letter) -> Vec<u8> {
        let payload = self.seal(letter);
        self.send_frame(AMP_MESSAGE, &payload);
        letter.id.to_vec()
    }

    /// Answers a message.
    pub fn answer(&mut self, request: &Message, typ: u64, body: &Value) -> Vec<u8> {
        let mut letter = self.letter(typ, body);
        letter.reply_to = Some(request.id());
        self.send_letter(&letter)
    }

    /// Sends a message and takes the first message that answers it.
    pub fn ask(&mut self, typ: u64, body: Value) -> Message {
        let id = self.send(typ, body);
        self.reply(&id)
    }

    /// Writes bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.try_send_raw(bytes).unwrap();
    }

    /// Writes bytes as they are, unless the link is closed.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pipe.write(bytes)
    }

    /// Writes one frame.
    pub fn send_frame(&mut self, frame_type: u8, payload: &[u8]) {
        self.send_raw(&frame(frame_type, payload));
    }

    /// Ends our sending half.
    pub fn finish(&mut self) {
        self.pipe.finish();
    }

    /// The next frame. Panics when the link closes first.
    pub fn frame(&mut self) -> Frame {
        let transport = self.transport;
        self.try_frame().unwrap_or_else(|| panic!("{transport:?}: closed before a frame came"))
    }

    /// The next frame, or `None` when the link is closed.
    pub fn try_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 5];
        if !self.pipe.fill(&mut head) {
            return None;
        }
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let mut payload = vec![0; (length - 1) as usize];
        self.pipe.fill(&mut payload).then_some(Frame { frame_type: head[4], payload })
    }

    /// The next message. A PING on the way is answered; any other frame is an error.
    pub fn message(&mut self) -> Message {
        let mut frame = self.frame();
        while frame.frame_type == PING_FRAME {
            self.send_frame(PONG_FRAME, &frame.payload);
            frame = self.frame();
        }
        assert_eq!(frame.frame_type, AMP_MESSAGE, "{:?}: {frame:?}", self.transport);
        let envelope = Envelope::decode(&frame.payload).unwrap();
        if !self.transport.is_local() {
            let key = PublicKey::from_did(&self.sidecar).unwrap();
            envelope.verify(&key, &mut Vec::new()).expect("the sidecar signs what leaves for a peer");
        }
        Message { value: decode(&frame.payload), bytes: frame.payload }
    }

    /// The next message of a type.
    pub fn message_of(&mut self, typ: u64) -> Message {
        self.message_where(|message| message.typ() == typ)
    }

    /// The next message that answers `id`.
    pub fn reply(&mut self, id: &[u8]) -> Message {
        self.message_where(|message| message.reply_to().as_deref() == Some(id))
    }

    /// The next message that fits. Others, such as the sidecar's own questions, are passed over.
    pub fn message_where(&mut self, fits: impl Fn(&Message) -> bool) -> Message {
        loop {
            let message = self.message();
            if fits(&message) {
                return message;
            }
        }
    }

    /// The link still works: a PING message gets its PONG.
    pub fn ping(&mut self) {
        let pong = self.ask(0x01, map([]));
        assert_eq!(pong.typ(), 0x02, "{pong:?}");
    }

    /// Waits until the sidecar has closed the link; returns the frames that came before, but for those that it sends of
    /// its own accord: questions, and PING when the peer opens another link or was silent.
    pub fn closed(&mut self) -> Vec<Frame> {
        let frames = std::iter::from_fn(|| self.try_frame());
        frames.filter(|frame| !is_unasked(frame)).collect()
    }

    /// The next frame that answers what was sent.
    pub fn answering_frame(&mut self) -> Frame {
        std::iter::repeat_with(|| self.frame()).find(|frame| !is_unasked(frame)).expect("frames without end")
    }
}

fn is_unasked(frame: &Frame) -> bool {
    frame.frame_type == PING_FRAME || is_question(frame)
}

fn is_question(frame: &Frame) -> bool {
    frame.frame_type == AMP_MESSAGE
        && Envelope::decode(&frame.payload)
            .is_ok_and(|envelope| envelope.reply_to.is_none() && envelope.typ == 0x20)
}

/// A frame's bytes.
pub fn frame(frame_type: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 1).unwrap();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.push(frame_type);
    bytes.extend_from_slice(payload);
    bytes
}

/// The token of a sidecar's loopback port.
pub fn token(sidecar: &Sidecar) -> Vec<u8> {
    std::fs::read(sidecar.dir.join("state/token")).unwrap().trim_ascii().to_vec()
}
