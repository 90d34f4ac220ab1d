//! Messages that are refused in; the most memory that a sidecar had at any moment while it refused each, out: at most
//! twice the message's bytes on the wire and 64 KiB.
//!
//! A whole sidecar runs in this process, on a thread of its own, behind an allocator that counts. The agent at the other
//! end of the unix socket writes bytes that are made beforehand and reads into a buffer that is there already, so that
//! whatever is allocated in between, the sidecar allocated. One test at a time may run here, so there is one.
//!
//! Two kinds are not held to the bound, and take more: a map of many small pairs in another order under a bad signature
//! (some 11 times its bytes, sorted copies of the pairs) and params of many small values that break their schema (some
//! 27 times, an entry of the validator's tape for each).

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "envelopes are made in real time")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use capd::config::Config;
use capd::daemon::Daemon;
use ciborium::{Value, cbor};
use peak_alloc::PeakAlloc;
use tokio::sync::oneshot;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What a refusal may take besides twice the message: buffers of a link, the ERROR, an audit record.
const ALLOWANCE_BYTES: usize = 64 * 1024;
/// Sizes of what each kind of message is filled with.
const SIZES: [usize; 4] = [1_000, 60_000, 1_000_000, 8_000_000];

const AMP_MESSAGE: u8 = 0x01;
const HANDSHAKE: u8 = 0x02;
const ERROR_FRAME: u8 = 0x06;
const PING: u64 = 0x01;
const ERROR: u64 = 0x0f;
const CAP_QUERY: u64 = 0x20;
const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
const CAP_RESULT: u64 = 0x23;

/// A sidecar on a thread of this process.
struct Sidecar {
    dir: tempfile::TempDir,
    did: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Sidecar {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        let (ready, started) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let overrides = [("agent.dir".to_owned(), path), ("log.access".to_owned(), "off".to_owned())];
            let config = Config::layer(None, &[], &overrides).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let daemon = Daemon::start(config, None).await.unwrap();
                ready.send(daemon.did().to_string()).unwrap();
                // The sender never sends: it is dropped.
                let _dropped: Result<(), _> = stopped.await;
                daemon.shutdown().await;
            });
        });
        let did = started.recv().unwrap();
        Self { dir, did, stop: Some(stop), thread: Some(thread) }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("capd.sock")
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been told.
            let _panicked = thread.join();
        }
    }
}

/// An agent's link that allocates nothing between two messages.
struct Agent {
    stream: UnixStream,
    did: String,
    buffer: Vec<u8>,
}

impl Agent {
    fn open(socket: &Path, did: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let mut agent = Self { stream, did: did.to_owned(), buffer: vec![0; 256 * 1024] };
        let request = encode(&cbor!({ "version" => 1, "max_msg_size" => 16 * 1024 * 1024 }).unwrap());
        agent.stream.write_all(&frame(HANDSHAKE, &request)).unwrap();
        assert_eq!(agent.frame().map(|(kind, _)| kind), Some(HANDSHAKE));
        let hello = agent.envelope(0x70, &encode(&cbor!({ "versions" => ["1.0"] }).unwrap()), |_| {});
        agent.stream.write_all(&frame(AMP_MESSAGE, &hello)).unwrap();
        assert_eq!(agent.frame().map(|(kind, _)| kind), Some(AMP_MESSAGE));
        agent
    }

    /// The next frame's type and where its payload stands in the buffer; `None` at the end.
    fn frame(&mut self) -> Option<(u8, usize)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize - 1;
        self.stream.read_exact(&mut self.buffer[..length]).unwrap();
        Some((head[4], length))
    }

    /// An envelope whose body is these bytes and whose fields `change` may change.
    fn envelope(&self, typ: u64, body: &[u8], change: impl FnOnce(&mut Vec<(Value, Value)>)) -> Vec<u8> {
        let ts = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let id = [ts.to_be_bytes(), ts.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat();
        let mut fields: Vec<(Value, Value)> = vec![
            ("v".into(), 1.into()),
            ("id".into(), Value::Bytes(id)),
            ("to".into(), self.did.as_str().into()),
            ("ts".into(), ts.into()),
            ("sig".into(), Value::Bytes(vec![])),
            ("ttl".into(), 60_000.into()),
            ("typ".into(), typ.into()),
            ("from".into(), self.did.as_str().into()),
        ];
        change(&mut fields);
        let mut bytes = vec![0xa0 + u8::try_from(fields.len() + 1).unwrap()];
        for (key, value) in &fields {
            bytes.extend(encode(key));
            bytes.extend(encode(value));
        }
        bytes.extend(encode(&"body".into()));
        bytes.extend(body);
        bytes
    }

    /// Writes `bytes`, waits for the refusal, and returns the code and the most memory in between, in bytes above what
    /// there was before.
    fn refused(&mut self, bytes: &[u8]) -> (u64, usize) {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        // A link that is closed takes no more of it.
        let _closed = self.stream.write_all(bytes);
        let (kind, length) = self.frame().expect("a refusal");
        let peak = MEMORY.peak_usage().saturating_sub(before);
        let said: Value = ciborium::from_reader(&self.buffer[..length]).unwrap();
        let body = if kind == ERROR_FRAME { Some(&said) } else { field(&said, "body") };
        assert!(kind == ERROR_FRAME || field(&said, "typ") == Some(&ERROR.into()), "{said:?}");
        let code = body.and_then(|body| field(body, "code")).and_then(Value::as_integer);
        (u64::try_from(code.unwrap()).unwrap(), peak)
    }
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
}

fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 1).unwrap().to_be_bytes();
    [&length[..], &[kind], payload].concat()
}

/// A container's head and `count` of these items.
fn container(head: u8, count: usize, item: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let count_bytes = u32::try_from(count).unwrap().to_be_bytes();
    [head].into_iter().chain(count_bytes).chain((0..count).flat_map(item)).collect()
}

/// A byte string of `size` bytes.
fn blob(size: usize) -> Vec<u8> {
    encode(&Value::Bytes(vec![7; size]))
}

fn key(number: usize) -> Vec<u8> {
    [&[0x1a][..], &u32::try_from(number).unwrap().to_be_bytes(), &[0xf6]].concat()
}

/// `{"…": …}` of texts and encoded values.
fn body<const N: usize>(fields: [(&str, Vec<u8>); N]) -> Vec<u8> {
    let mut bytes = vec![0xa0 + u8::try_from(N).unwrap()];
    for (key, value) in fields {
        bytes.extend(encode(&key.into()));
        bytes.extend(value);
    }
    bytes
}

/// What is sent for each size, and the code that refuses it.
type Kind = (&'static str, u64, fn(&Agent, usize) -> Vec<u8>);

fn set(fields: &mut [(Value, Value)], key: &str, value: Value) {
    fields.iter_mut().find(|(name, _)| name.as_text() == Some(key)).unwrap().1 = value;
}

fn kinds() -> Vec<Kind> {
    let mut kinds = malformed();
    kinds.extend(refused_envelopes());
    kinds.extend(refused_bodies());
    kinds
}

/// What is not CBOR that we accept, or no envelope.
fn malformed() -> Vec<Kind> {
    vec![
        ("no envelope at all", 1001, |_, size| vec![0xff; size]),
        ("an envelope that ends early", 1001, |agent, size| {
            let mut bytes = agent.envelope(PING, &blob(size), |_| {});
            bytes.truncate(bytes.len() - 1);
            bytes
        }),
        ("a field missing", 1001, |agent, size| {
            agent.envelope(PING, &blob(size), |fields| fields.retain(|(key, _)| key.as_text() != Some("ttl")))
        }),
        ("trailing bytes", 1001, |agent, size| {
            [agent.envelope(PING, &[0xf6], |_| {}), vec![0xf6; size]].concat()
        }),
        ("arrays in arrays", 1001, |agent, size| agent.envelope(PING, &vec![0x81; size], |_| {})),
        ("indefinite maps in maps", 1001, |agent, size| {
            agent.envelope(PING, &[0xbf, 0x00].repeat(size / 2), |_| {})
        }),
        ("an array that is too wide", 1001, |agent, size| {
            agent.envelope(PING, &container(0x9a, size.max(65_537), |_| vec![0x00]), |_| {})
        }),
        ("too many items", 1001, |agent, size| {
            let array = container(0x9a, 65_000, |_| vec![0x00]);
            agent.envelope(PING, &[&[0x98, 32][..], &array.repeat(32), &vec![0; size]].concat(), |_| {})
        }),
        ("a key that stands twice", 1001, |agent, size| {
            let count = (size / 6).clamp(2, 65_536);
            agent.envelope(
                PING,
                &container(0xba, count, |number| key(if number + 1 == count { 0 } else { number })),
                |_| {},
            )
        }),
        ("a float that stands twice", 1001, |agent, size| {
            let count = (size / 6).clamp(2, 65_536);
            let float = |number: usize| [&[0xfa][..], &(number as f32 + 0.3).to_be_bytes(), &[0xf6]].concat();
            let last = |number| float(if number + 1 == count { 0 } else { number });
            agent.envelope(PING, &container(0xba, count, last), |_| {})
        }),
        ("a key of two chunks that stands twice", 1001, |agent, size| {
            let chunk = blob(size / 4);
            let key = [&[0x5f][..], &chunk, &chunk, &[0xff, 0xf6]].concat();
            agent.envelope(PING, &[&[0xa2][..], &key, &key].concat(), |_| {})
        }),
        ("the shortest key that stands twice", 1001, |agent, size| {
            let count = (size / 4).clamp(2, 65_000);
            let short = |number: usize| {
                let key = if number + 1 == count { 300 } else { 300 + number };
                [&[0x19][..], &u16::try_from(key).unwrap().to_be_bytes(), &[0xf6]].concat()
            };
            agent.envelope(PING, &container(0xba, count, short), |_| {})
        }),
        ("text that is no UTF-8", 1001, |agent, size| {
            let mut text = encode(&Value::from("a".repeat(size)));
            *text.last_mut().unwrap() = 0xff;
            agent.envelope(PING, &text, |_| {})
        }),
        ("empty chunks without end", 1001, |agent, size| {
            agent.envelope(PING, &[vec![0x7f], vec![0x60; size]].concat(), |_| {})
        }),
    ]
}

/// Envelopes that are refused for what they say.
fn refused_envelopes() -> Vec<Kind> {
    vec![
        ("another version", 1004, |agent, size| {
            agent.envelope(PING, &blob(size), |fields| set(fields, "v", 2.into()))
        }),
        ("a type that is not spoken", 1005, |agent, size| agent.envelope(0xfe, &blob(size), |_| {})),
        ("expired", 1003, |agent, size| {
            agent.envelope(PING, &blob(size), |fields| {
                set(fields, "ts", 1_000.into());
                set(fields, "id", Value::Bytes([1_000_u64.to_be_bytes(), [1; 8]].concat()));
            })
        }),
        ("another sender", 3001, |agent, size| {
            agent.envelope(PING, &blob(size), |fields| set(fields, "from", "did:key:z6Mk".into()))
        }),
        ("a bad signature", 1002, |agent, size| {
            agent.envelope(PING, &blob(size), |fields| set(fields, "sig", Value::Bytes(vec![1; 64])))
        }),
        ("a bad signature over a body in another form", 1002, |agent, size| {
            // A length in more bytes than it needs: the body is written anew for verification.
            let length = u64::try_from(size).unwrap().to_be_bytes();
            let body = [&[0x5b][..], &length, &vec![7; size]].concat();
            agent.envelope(PING, &body, |fields| set(fields, "sig", Value::Bytes(vec![1; 64])))
        }),
    ]
}

/// Bodies that are refused for what they say.
fn refused_bodies() -> Vec<Kind> {
    vec![
        ("a query without a filter", 1001, |agent, size| {
            agent.envelope(CAP_QUERY, &body([("padding", blob(size))]), |_| {})
        }),
        ("a query for what is not there", 4002, |agent, size| {
            let filter = encode(&cbor!({ "capability" => "org.example.none" }).unwrap());
            agent.envelope(CAP_QUERY, &body([("filter", filter), ("padding", blob(size))]), |_| {})
        }),
        ("a declaration of nothing", 1001, |agent, size| {
            agent.envelope(CAP_DECLARE, &body([("padding", blob(size))]), |_| {})
        }),
        ("a call without an identity", 4001, |agent, size| {
            agent.envelope(CAP_INVOKE, &body([("params", blob(size))]), |_| {})
        }),
        ("a call of what is not there", 4002, |agent, size| {
            let id = encode(&"org.example.none:1.0.0".into());
            agent.envelope(CAP_INVOKE, &body([("id", id), ("params", blob(size))]), |_| {})
        }),
        ("params that break their schema", 4004, |agent, size| {
            let id = encode(&"org.example.strict:1.0.0".into());
            let params = encode(&Value::from("a".repeat(size)));
            agent.envelope(CAP_INVOKE, &body([("id", id), ("params", params)]), |_| {})
        }),
        ("a result that answers nothing", 4001, |agent, size| {
            let status = encode(&"success".into());
            agent.envelope(CAP_RESULT, &body([("status", status), ("result", blob(size))]), |_| {})
        }),
    ]
}

/// Declares a capability whose params are integers, and serves nothing.
fn declare_strict(agent: &mut Agent) {
    use sha2::Digest as _;
    let schema = r#"{"type":"integer"}"#;
    let hash = Value::Bytes(sha2::Sha256::digest(schema.as_bytes()).to_vec());
    let descriptor = cbor!({
        "id" => "org.example.strict:1.0.0",
        "input_schema" => { "hash_alg" => "sha-256", "hash" => hash, "inline" => schema },
    });
    let body = cbor!({ "capabilities" => [descriptor.unwrap()] }).unwrap();
    let declare = agent.envelope(CAP_DECLARE, &encode(&body), |_| {});
    agent.stream.write_all(&frame(AMP_MESSAGE, &declare)).unwrap();
    let ping = agent.envelope(PING, &[0xf6], |_| {});
    agent.stream.write_all(&frame(AMP_MESSAGE, &ping)).unwrap();
    assert_eq!(agent.frame().map(|(kind, _)| kind), Some(AMP_MESSAGE));
}

#[test]
fn a_refused_message_takes_at_most_twice_its_bytes_and_64_kib() {
    let sidecar = Sidecar::start();
    let mut provider = Agent::open(&sidecar.socket(), &sidecar.did);
    declare_strict(&mut provider);
    let mut above = Vec::new();
    for (what, code, make) in kinds() {
        // Once to warm up: what is made once for all messages is not the message's. The link stays until the others
        // are done, so that nothing of it is given back while they are measured.
        let mut first = Agent::open(&sidecar.socket(), &sidecar.did);
        assert_eq!(first.refused(&frame(AMP_MESSAGE, &make(&first, SIZES[0]))).0, code, "{what}");
        let mut agents = vec![first];
        for size in SIZES {
            // A link that has read large messages has room for the next one.
            agents.push(Agent::open(&sidecar.socket(), &sidecar.did));
            let agent = agents.last_mut().expect("one was pushed");
            let bytes = frame(AMP_MESSAGE, &make(agent, size));
            let (refused_with, peak) = agent.refused(&bytes);
            assert_eq!(refused_with, code, "{what}");
            let most = 2 * bytes.len() + ALLOWANCE_BYTES;
            println!("{what}: {} bytes on the wire, {peak} at most in memory ({most})", bytes.len());
            if peak > most {
                above.push((what, bytes.len(), peak));
            }
        }
    }
    for (what, head) in [("a length of 4 GiB", [0xff; 4]), ("a length of 0", [0; 4])] {
        let mut agent = Agent::open(&sidecar.socket(), &sidecar.did);
        let (code, peak) = agent.refused(&head);
        assert_eq!(code, 1001, "{what}");
        if peak > 2 * head.len() + ALLOWANCE_BYTES {
            above.push((what, head.len(), peak));
        }
    }
    assert!(above.is_empty(), "more than twice the message and 64 KiB: {above:#?}");
}
