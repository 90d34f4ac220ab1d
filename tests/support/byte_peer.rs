//! Bytes in, bytes out: an agent on a local unix socket that makes its frames and envelopes by hand.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ciborium::Value;

use super::PATIENCE;

pub const AMP_MESSAGE: u8 = 0x01;
/// The frame that a peer answers with PONG.
pub const PING: u8 = 0x03;
const PONG: u8 = 0x04;
pub const HANDSHAKE: u8 = 0x02;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// One raw frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub frame_type: u8,
    pub payload: Vec<u8>,
}

/// One received envelope, as the map that it is.
#[derive(Clone, Debug)]
pub struct Message {
    pub value: Value,
    pub bytes: Vec<u8>,
}

impl Message {
    pub fn typ(&self) -> u64 {
        let typ = field(&self.value, "typ").and_then(Value::as_integer).expect("typ is an integer");
        typ.try_into().expect("typ is unsigned")
    }

    pub fn id(&self) -> Vec<u8> {
        field(&self.value, "id").and_then(Value::as_bytes).expect("id is bytes").clone()
    }

    pub fn reply_to(&self) -> Option<Vec<u8>> {
        field(&self.value, "reply_to").and_then(Value::as_bytes).cloned()
    }

    pub fn body(&self) -> &Value {
        field(&self.value, "body").expect("a body")
    }

    /// The code of an ERROR, or of the error in a CAP_RESULT.
    pub fn code(&self) -> Option<u64> {
        let error = field(self.body(), "error").unwrap_or(self.body());
        field(error, "code").and_then(Value::as_integer).and_then(|code| code.try_into().ok())
    }
}

/// A map's value under a text key.
pub fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
}

/// A map with text keys, in this order.
pub fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

/// A client of a local unix socket. Every read waits at most [`PATIENCE`].
#[derive(Debug)]
pub struct BytePeer {
    stream: UnixStream,
    /// The sidecar's DID, once HANDSHAKE is done.
    pub did: String,
}

impl BytePeer {
    /// Connects and sends nothing.
    pub fn connect(socket: &Path) -> Self {
        let stream =
            UnixStream::connect(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, did: String::new() }
    }

    /// Connects and opens the link: HANDSHAKE, HELLO.
    pub fn open(socket: &Path) -> Self {
        let mut peer = Self::connect(socket);
        peer.handshake();
        peer.hello();
        peer
    }

    /// Sends HANDSHAKE and takes its answer.
    pub fn handshake(&mut self) -> Value {
        let request = map([("version", 1.into()), ("max_msg_size", (16 * 1024 * 1024).into())]);
        self.send_frame(HANDSHAKE, &encode(&request));
        let frame = self.frame();
        assert_eq!(frame.frame_type, HANDSHAKE, "{frame:?}");
        let response = decode(&frame.payload);
        if let Some(did) = field(&response, "did").and_then(Value::as_text) {
            self.did = did.to_owned();
        }
        response
    }

    /// Sends HELLO and takes HELLO_ACK.
    pub fn hello(&mut self) -> Message {
        let id = self.send(0x70, map([("versions", Value::Array(vec!["1.0".into()]))]));
        let ack = self.message();
        assert_eq!((ack.typ(), ack.reply_to()), (0x71, Some(id)), "{ack:?}");
        ack
    }

    /// Writes bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes bytes as they are, unless the other side has closed already.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes one frame.
    pub fn send_frame(&mut self, frame_type: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len() + 1).unwrap();
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.push(frame_type);
        bytes.extend_from_slice(payload);
        self.send_raw(&bytes);
    }

    /// Writes one envelope from and to the sidecar's agent, and returns its id.
    pub fn send(&mut self, typ: u64, body: Value) -> Vec<u8> {
        let envelope = self.envelope(typ, body);
        self.send_envelope(&envelope)
    }

    /// Writes one envelope that answers `request`, and returns its id.
    pub fn answer(&mut self, request: &Message, typ: u64, body: Value) -> Vec<u8> {
        let mut envelope = self.envelope(typ, body);
        let to = field(&request.value, "from").cloned().expect("from");
        set(&mut envelope, "to", to);
        set(&mut envelope, "reply_to", Value::Bytes(request.id()));
        self.send_envelope(&envelope)
    }

    /// An envelope from and to the sidecar's agent; fields can be changed with [`set`] before it is sent.
    pub fn envelope(&self, typ: u64, body: Value) -> Value {
        let ts = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let mut id = ts.to_be_bytes().to_vec();
        // Unique within this process and, by its pid, on this machine.
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        id.extend_from_slice(&(u64::from(std::process::id()) << 32 | next).to_be_bytes());
        map([
            ("v", 1.into()),
            ("id", Value::Bytes(id)),
            ("to", self.did.as_str().into()),
            ("ts", ts.into()),
            ("sig", Value::Bytes(vec![])),
            ("ttl", 60_000.into()),
            ("typ", typ.into()),
            ("body", body),
            ("from", self.did.as_str().into()),
        ])
    }

    /// Writes an envelope in one frame, and returns its id.
    pub fn send_envelope(&mut self, envelope: &Value) -> Vec<u8> {
        self.send_frame(AMP_MESSAGE, &encode(envelope));
        field(envelope, "id").and_then(Value::as_bytes).cloned().unwrap_or_default()
    }

    /// The next frame. Panics when the link closes first.
    pub fn frame(&mut self) -> Frame {
        self.try_frame().expect("a frame before the link closes")
    }

    /// The next frame, or `None` when the link is closed.
    pub fn try_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let mut payload = vec![0; (length - 1) as usize];
        self.fill(&mut payload)?;
        Some(Frame { frame_type: head[4], payload })
    }

    /// The next envelope. A PING frame is answered, as every peer must; other frames are an error.
    pub fn message(&mut self) -> Message {
        let deadline = Instant::now() + PATIENCE;
        let mut frame = self.frame();
        while frame.frame_type == PING {
            assert!(Instant::now() < deadline, "nothing but PING frames");
            self.send_frame(PONG, &frame.payload);
            frame = self.frame();
        }
        assert_eq!(frame.frame_type, AMP_MESSAGE, "{frame:?}");
        Message { value: decode(&frame.payload), bytes: frame.payload }
    }

    /// Waits until the other side has closed the link; frames on the way are returned.
    pub fn closed(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.try_frame()).collect()
    }

    /// Whether the link still works: a PING message gets its PONG; what comes before it is returned.
    pub fn ping(&mut self) -> Vec<Message> {
        let id = self.send(0x01, map([]));
        let mut before = Vec::new();
        loop {
            let message = self.message();
            if message.typ() == 0x02 && message.reply_to().as_deref() == Some(&id) {
                return before;
            }
            before.push(message);
        }
    }

    /// Ends our sending half.
    pub fn shutdown_write(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(buffer) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                None
            }
            Err(error) => panic!("nothing came within {PATIENCE:?}: {error}"),
        }
    }
}

/// Sets a field of an envelope or body, at its end if it is new.
pub fn set(map: &mut Value, key: &str, value: Value) {
    let Value::Map(fields) = map else { panic!("not a map") };
    match fields.iter_mut().find(|(name, _)| name.as_text() == Some(key)) {
        Some((_, old)) => *old = value,
        None => fields.push((key.into(), value)),
    }
}

/// CBOR of a value.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// The value of CBOR.
pub fn decode(bytes: &[u8]) -> Value {
    ciborium::from_reader(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"))
}
