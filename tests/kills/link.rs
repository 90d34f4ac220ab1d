//! A unix socket in, envelopes out; a link that breaks is an error to go on from, since here every link is going to.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ciborium::Value;

use crate::support::{AMP_MESSAGE, HANDSHAKE, Message, PATIENCE, decode, encode, field, map};

const HELLO: u64 = 0x70;
const HELLO_ACK: u64 = 0x71;
const PING: u64 = 0x01;
const PONG: u64 = 0x02;

/// A local link, spoken over as the sidecar's agent.
pub struct Link {
    stream: UnixStream,
    received: Vec<u8>,
    did: String,
}

impl Link {
    /// Connects and opens the link. **Errors:** nobody listens, or the sidecar ended meanwhile.
    pub fn open(socket: &Path, did: &str, fresh_id: &mut dyn FnMut(u64) -> [u8; 16]) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut link = Self { stream, received: Vec::new(), did: did.to_owned() };
        let request = map([("version", 1.into()), ("max_msg_size", (1024 * 1024).into())]);
        link.send_frame(HANDSHAKE, &encode(&request))?;
        link.wait_for(HANDSHAKE)?;
        let versions = map([("versions", Value::Array(vec!["1.0".into()]))]);
        let hello = link.envelope(fresh_id(now_ms()), HELLO, 60_000, versions);
        link.send(&encode(&hello))?;
        let ack = message(link.wait_for(AMP_MESSAGE)?);
        assert_eq!(ack.typ(), HELLO_ACK, "{ack:?}");
        Ok(link)
    }

    /// A second hold on the link, with which another thread can break it.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// An envelope of the agent to its own sidecar, made at the id's time.
    pub fn envelope(&self, id: [u8; 16], typ: u64, ttl_ms: u64, body: Value) -> Value {
        envelope(&self.did, id, typ, ttl_ms, body)
    }

    /// Writes one envelope.
    pub fn send(&mut self, envelope: &[u8]) -> io::Result<()> {
        self.send_frame(AMP_MESSAGE, envelope)
    }

    /// The next message, or `None` when none comes within `wait`. **Errors:** the link broke.
    pub fn next(&mut self, wait: Duration) -> io::Result<Option<Message>> {
        while let Some((frame_type, payload)) = self.frame(wait)? {
            if frame_type == AMP_MESSAGE {
                return Ok(Some(message(payload)));
            }
            // PING and GOAWAY frames need no answer of a test that keeps the link busy.
        }
        Ok(None)
    }

    /// Waits until everything sent before was handled; what comes before the PONG is dropped.
    pub fn ping(&mut self, id: [u8; 16]) -> io::Result<Vec<Message>> {
        let ping = self.envelope(id, PING, 60_000, map([]));
        self.send(&encode(&ping))?;
        let mut before = Vec::new();
        loop {
            let message = self.next(PATIENCE)?.ok_or(ErrorKind::TimedOut)?;
            if message.typ() == PONG && message.reply_to().as_deref() == Some(&id[..]) {
                return Ok(before);
            }
            before.push(message);
        }
    }

    fn wait_for(&mut self, wanted: u8) -> io::Result<Vec<u8>> {
        match self.frame(PATIENCE)? {
            Some((frame_type, payload)) if frame_type == wanted => Ok(payload),
            Some((frame_type, _)) => panic!("frame {frame_type:#x} in place of {wanted:#x}"),
            None => Err(ErrorKind::TimedOut.into()),
        }
    }

    fn send_frame(&mut self, frame_type: u8, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len() + 1).expect("messages here are small");
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.push(frame_type);
        bytes.extend_from_slice(payload);
        self.stream.write_all(&bytes)
    }

    fn frame(&mut self, wait: Duration) -> io::Result<Option<(u8, Vec<u8>)>> {
        self.stream.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            let mut bytes = [0; 8192];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (head, rest) = self.received.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*head) as usize;
        let frame = rest.get(..length)?;
        let (frame_type, payload) = frame.split_first().expect("a frame has a type");
        let taken = (*frame_type, payload.to_vec());
        self.received.drain(..4 + length);
        Some(taken)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It may be broken already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// An envelope of the agent `did` to its own sidecar, made at the id's time.
pub fn envelope(did: &str, id: [u8; 16], typ: u64, ttl_ms: u64, body: Value) -> Value {
    let ts = u64::from_be_bytes(*id.first_chunk().expect("an id begins with its time"));
    map([
        ("v", 1.into()),
        ("id", Value::Bytes(id.to_vec())),
        ("to", did.into()),
        ("ts", ts.into()),
        ("sig", Value::Bytes(vec![])),
        ("ttl", ttl_ms.into()),
        ("typ", typ.into()),
        ("body", body),
        ("from", did.into()),
    ])
}

/// Who sent a message.
pub fn from(message: &Message) -> &str {
    field(&message.value, "from").and_then(Value::as_text).expect("an envelope names its sender")
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("milliseconds fit")
}

fn message(payload: Vec<u8>) -> Message {
    Message { value: decode(&payload), bytes: payload }
}
