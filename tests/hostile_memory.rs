//! Messages that are refused in; the most memory that a sidecar had at any moment while it refused each, out: at most
//! twice the message's bytes on the wire and 64 KiB.
//!
//! A whole sidecar runs in this process, on a thread of its own, behind an allocator that counts. The agent at the other
//! end of the unix socket writes bytes that are made beforehand and reads into a buffer that is there already, so that
//! whatever is allocated in between, the sidecar allocated. One test at a time may run here, so there is one.

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
const SIZES: [usize; 4] = [1_000, 60_000, 66_000, 1_000_000];
/// Set to a further size, which takes most of the time: `.ci/nightly` does.
const MORE: &str = "CAPD_REFUSED_BYTES";

/// Bytes of keys that hold maps, as many as a message may have.
const MAP_KEYS_BYTES_MAX: usize = capd_proto::limits::CBOR_MAP_KEYS_BYTES_MAX;
/// Items of a wide array.
const WIDEST: usize = 65_000;

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
            // Nothing is said on a link but what is measured, however long the machine takes.
            let settings = [
                ("agent.dir", path.as_str()),
                ("log.access", "off"),
                ("timeouts.keep_alive_ms", "3600000"),
                ("timeouts.idle_ms", "7200000"),
            ];
            let overrides = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
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
        ("an array as a key that stands twice, in two forms", 1001, |agent, size| {
            let count = (size / 5).clamp(2, 65_000);
            let last = |number| if number + 1 == count { loose_array(0) } else { array(number) };
            agent.envelope(PING, &keyed(count, last), |_| {})
        }),
        ("a long array of indefinite length as a key that stands twice", 1001, |agent, size| {
            let items = vec![0x00; (size / 2).clamp(1, WIDEST)];
            let key = [&[0x9f][..], &items, &[0xff, 0xf6]].concat();
            agent.envelope(PING, &[&[0xa2][..], &key, &key].concat(), |_| {})
        }),
        ("a map as a key that stands twice, in two forms", 1001, |agent, size| {
            let count = MAP_KEYS_BYTES_MAX / 6;
            let twice =
                |number| if number + 1 == count { small_map(0, 0x1a) } else { small_map(number, 0x19) };
            agent.envelope(PING, &padded(keyed(count, twice), size), |_| {})
        }),
        ("more maps as keys than may be", 1001, |agent, size| {
            let count = (size / 6).clamp(MAP_KEYS_BYTES_MAX / 5 + 1, 65_000);
            agent.envelope(PING, &keyed(count, |number| small_map(number, 0x19)), |_| {})
        }),
        ("maps as keys in each other", 1001, |agent, size| {
            let innermost = keyed((size / 4).clamp(10_000, 65_000), |number| short(65_535 - number));
            let levels = 50;
            let nested = [&vec![0xa2; levels][..], &innermost, &[0x00, 0x00, 0x00].repeat(levels)].concat();
            agent.envelope(PING, &nested, |_| {})
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
        ("a bad signature over small pairs out of order", 1002, |agent, size| {
            let count = (size / 4).clamp(2, 65_000);
            let pair =
                |number: usize| [&[0x19][..], &(65_535 - number as u16).to_be_bytes(), &[0xf6]].concat();
            badly_signed(agent, &container(0xba, count, pair))
        }),
        ("a bad signature over keys in another form, out of order", 1002, |agent, size| {
            let count = (size / 6).clamp(2, 65_000);
            badly_signed(agent, &container(0xba, count, |number| key(count - number)))
        }),
        ("a bad signature over texts in chunks as keys, out of order", 1002, |agent, size| {
            let count = (size / 7).clamp(2, 65_000);
            let pair = |number: usize| {
                let [high, low] = (65_535 - number as u16).to_be_bytes();
                let digits = [high >> 4, high & 15, low >> 4, low & 15].map(|digit| b'a' + digit);
                vec![0x7f, 0x62, digits[0], digits[1], 0x62, digits[2], digits[3], 0xff, 0xf6]
            };
            badly_signed(agent, &container(0xba, count, pair))
        }),
        ("a bad signature over many small maps out of order", 1002, |agent, size| {
            let count = (size / 5).clamp(2, 65_000);
            badly_signed(agent, &container(0x9a, count, |_| vec![0xa2, 0x02, 0x00, 0x01, 0x00]))
        }),
        ("a bad signature over large maps in each other, out of order", 1002, |agent, size| {
            let count = (size / 16).clamp(2, 65_000);
            let pair =
                |number: usize| [&[0x19][..], &(65_535 - number as u16).to_be_bytes(), &[0xf6]].concat();
            let map = |inner: &[u8]| {
                let mut map = container(0xba, count, pair);
                map.pop();
                [&map, inner].concat()
            };
            badly_signed(agent, &map(&map(&map(&map(&[0xf6])))))
        }),
        ("a bad signature over arrays as keys, out of order", 1002, |agent, size| {
            let count = (size / 6).clamp(2, 65_000);
            badly_signed(agent, &keyed(count, |number| array(65_535 - number)))
        }),
        ("a bad signature over arrays in another form as keys, out of order", 1002, |agent, size| {
            let count = (size / 8).clamp(2, 65_000);
            badly_signed(agent, &keyed(count, |number| loose_array(65_535 - number)))
        }),
        ("a bad signature over tagged items in another form as keys, out of order", 1002, |agent, size| {
            let count = (size / 8).clamp(2, 65_000);
            let tagged = |number: usize| [&[0xd8, 0x01][..], &key(65_535 - number)[..5]].concat();
            let id = encode(&"org.example.none:1.0.0".into());
            let body = body([("id", id), ("params", keyed(count, tagged))]);
            agent.envelope(CAP_INVOKE, &body, |fields| set(fields, "sig", Value::Bytes(vec![1; 64])))
        }),
        ("a bad signature over maps in another form as keys, out of order", 1002, |agent, size| {
            let count = MAP_KEYS_BYTES_MAX / 7;
            let map = |number| small_map(65_535 - number, 0x1a);
            badly_signed(agent, &padded(keyed(count, map), size))
        }),
        ("a bad signature over a large map out of order as a key", 1002, |agent, size| {
            let large = keyed((MAP_KEYS_BYTES_MAX - 5) / 4, |number| short(65_535 - number));
            let map = [&[0xa2][..], &large, &[0xf6, 0x00, 0xf6]].concat();
            badly_signed(agent, &padded(map, size))
        }),
    ]
}

/// A map of `count` of these keys.
fn keyed(count: usize, key: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    container(0xba, count, |number| [&key(number)[..], &[0xf6]].concat())
}

/// A number in three bytes.
fn short(number: usize) -> Vec<u8> {
    [&[0x19][..], &u16::try_from(number).unwrap().to_be_bytes()].concat()
}

/// An array of one such number.
fn array(number: usize) -> Vec<u8> {
    [&[0x81][..], &short(number)].concat()
}

/// The same with a longer head than it needs.
fn loose_array(number: usize) -> Vec<u8> {
    [&[0x98, 0x01][..], &array(number)[1..]].concat()
}

/// A map of one number, in three or in five bytes.
fn small_map(number: usize, head: u8) -> Vec<u8> {
    let number = u32::try_from(number).unwrap().to_be_bytes();
    [&[0xa1, head][..], if head == 0x19 { &number[2..] } else { &number }, &[0x00]].concat()
}

/// An array of this item and of a byte string, `size` bytes in all or as much as the item takes.
fn padded(item: Vec<u8>, size: usize) -> Vec<u8> {
    [&[0x82][..], &item, &blob(size.saturating_sub(item.len()))].concat()
}

/// An envelope around this body whose signature does not fit.
fn badly_signed(agent: &Agent, body: &[u8]) -> Vec<u8> {
    agent.envelope(PING, body, |fields| set(fields, "sig", Value::Bytes(vec![1; 64])))
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
        ("params of small items that break their schema", 4004, |agent, size| {
            wide_params(agent, size, 1, |_| vec![0x00])
        }),
        ("params of small objects that break their schema", 4004, |agent, size| {
            wide_params(agent, size, 3, |_| vec![0xa1, 0x61, b'a', 0x00])
        }),
        ("params of objects with many keys that break their schema", 4004, |agent, size| {
            wide_params(agent, size, 49, |_| {
                let member = |number: u8| vec![0x61, b'a' + number, 0x00];
                [vec![0xb8, 24], (0..24).flat_map(member).collect()].concat()
            })
        }),
        ("params of a large object that break their schema", 4004, |agent, size| {
            let count = (size / 6).clamp(1, 65_000);
            let member = |number: usize| {
                let [high, low] = (65_535 - number as u16).to_be_bytes();
                vec![0x64, b'a' + (high >> 4), b'a' + (high & 15), b'a' + (low >> 4), b'a' + (low & 15), 0x00]
            };
            call(agent, "strict", container(0xba, count, member))
        }),
        ("params of arrays in arrays that break their schema", 4004, |agent, size| {
            wide_params(agent, size, 51, |_| [vec![0x81; 50], vec![0x00]].concat())
        }),
        ("params that break their schema in many places", 4004, |agent, size| {
            call(agent, "list", container(0x9a, size.clamp(1, WIDEST), |_| vec![0x60]))
        }),
        ("params with a long unknown key", 4004, |agent, size| {
            let key = encode(&Value::from("a".repeat(size)));
            call(agent, "closed", [&[0xa1][..], &key, &[0x00]].concat())
        }),
        ("params with many short unknown keys", 4004, |agent, size| {
            call(agent, "closed", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short unknown keys, and a required one", 4004, |agent, size| {
            call(agent, "closed-required", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys that match no pattern", 4004, |agent, size| {
            call(agent, "closed-patterns", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys that no schema evaluates", 4004, |agent, size| {
            call(agent, "unevaluated", named(size / 6, 4, &[0x00]))
        }),
        (
            "params with many short keys whose values are held against unevaluatedProperties",
            4004,
            |agent, size| call(agent, "unevaluated-typed", named(size / 6, 4, &[0x00])),
        ),
        ("params with many unknown keys of some length", 4004, |agent, size| {
            call(agent, "closed", named(size / 62, 60, &[0x00]))
        }),
        ("params with many short keys beside anyOf", 4004, |agent, size| {
            call(agent, "unevaluated-any", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside oneOf, reached by its name", 4004, |agent, size| {
            call(agent, "unevaluated-one", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside if", 4004, |agent, size| {
            call(agent, "unevaluated-if", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside allOf", 4004, |agent, size| {
            call(agent, "unevaluated-all", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside $ref", 4004, |agent, size| {
            call(agent, "unevaluated-ref", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside $dynamicRef", 4004, |agent, size| {
            call(agent, "unevaluated-dynamic", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys beside dependentSchemas", 4004, |agent, size| {
            call(agent, "unevaluated-dependent", named(size / 6, 4, &[0x00]))
        }),
        ("params with many short keys that a branch evaluates, and another fault", 4004, |agent, size| {
            call(agent, "unevaluated-known", named(size / 6, 4, &[0x00]))
        }),
        ("params with as many short keys as one object may have beside branches", 4004, |agent, _| {
            call(agent, "unevaluated-any", named(448, 4, &[0x00]))
        }),
        ("params with as many short keys, all of them evaluated, and another fault", 4004, |agent, _| {
            call(agent, "unevaluated-known", named(448, 4, &[0x00]))
        }),
        ("params with as many short keys, and branches in branches", 4004, |agent, _| {
            call(agent, "unevaluated-branches", named(448, 4, &[0x00]))
        }),
        ("params with few short keys, and branches in branches", 4004, |agent, _| {
            call(agent, "unevaluated-branches", named(112, 4, &[0x00]))
        }),
        ("params of many objects beside branches", 4004, |agent, size| {
            let count = (size / 2_700).clamp(1, 1_000);
            call(agent, "unevaluated-list", container(0x9a, count, |_| named(448, 4, &[0x00])))
        }),
        ("params of objects in one another beside branches", 4004, |agent, size| {
            call(agent, "unevaluated-tree", tree((size / 6 / 50).clamp(1, 9_000), 50))
        }),
        ("params of small objects in one another beside branches", 4004, |agent, _| {
            call(agent, "unevaluated-tree", tree(8, 50))
        }),
        ("params with a large object beside one of many keys beside branches", 4004, |agent, size| {
            let large = named(size / 6, 4, &[0x00]);
            let narrow = named(448, 4, &[0x00]);
            let params = body([("narrow", narrow), ("wide", large)]);
            call(agent, "unevaluated-narrow", params)
        }),
        (
            "params with many keys of a few bytes beside one of many keys beside branches",
            4004,
            |agent, size| {
                // The least bytes for each of which the key's place is kept.
                let large = container(0xba, (size / 16 * 3).clamp(3, 30_000), |number| {
                    let name =
                        [number >> 10, (number >> 5) & 31, number & 31].map(|digit| b'@' + digit as u8);
                    let longer: &[u8] = if number % 3 == 0 { b"z" } else { b"" };
                    [&[0x63 + longer.len() as u8][..], &name, longer, &[0x00]].concat()
                });
                let params = body([("narrow", named(448, 4, &[0x00])), ("wide", large)]);
                call(agent, "unevaluated-narrow", params)
            },
        ),
        ("params with a long key in chunks beside branches", 4004, |agent, size| {
            let chunk = encode(&Value::from("a".repeat(size / 2)));
            let name = |end: u8| [&[0x7f][..], &chunk, &[0x61, end, 0xff, 0x00]].concat();
            call(agent, "unevaluated-known", [&[0xa2][..], &name(b'b'), &name(b'c')].concat())
        }),
        ("params with keys in chunks beside branches", 4004, |agent, size| {
            let name = |number: usize| {
                let name = named(number + 1, 40, &[]);
                let name = &name[name.len() - 42..];
                [&[0x7f][..], name, &[0xff, 0x00]].concat()
            };
            let count = (size / 45).clamp(1, 400);
            call(agent, "unevaluated-known", container(0xba, count, name))
        }),
        ("params of items that no schema evaluates", 4004, |agent, size| {
            call(agent, "unevaluated-items", container(0x9a, size.clamp(2, WIDEST), |_| vec![0x00]))
        }),
        ("params of large items that no schema evaluates", 4004, |agent, size| {
            let item = container(0x9a, (size / 2).clamp(1, WIDEST), |_| vec![0x00]);
            call(agent, "unevaluated-items", container(0x9a, 2 + (size / WIDEST).min(12), |_| item.clone()))
        }),
        ("params of items that are held against unevaluatedItems", 4004, |agent, size| {
            call(agent, "unevaluated-items-typed", container(0x9a, size.clamp(2, WIDEST), |_| vec![0x00]))
        }),
        ("params of many lists with an item that no schema evaluates", 4004, |agent, size| {
            let count = (size / 3).clamp(2, WIDEST);
            call(agent, "unevaluated-items-list", container(0x9a, count, |_| vec![0x82, 0x00, 0x00]))
        }),
        ("params of items beside branches in branches", 4004, |agent, size| {
            call(agent, "unevaluated-items-branches", container(0x9a, size.clamp(2, WIDEST), |_| vec![0x00]))
        }),
        ("params of few items beside branches in branches", 4004, |agent, _| {
            call(agent, "unevaluated-items-branches", container(0x9a, 1_000, |_| vec![0x00]))
        }),
        ("params of lists that a schema leads back to", 4004, |agent, size| {
            call(agent, "lists", lists(size))
        }),
        ("params of lists that a schema leads back to in several ways", 4004, |agent, size| {
            call(agent, "lists-twice", lists(size))
        }),
        ("params with faults far down that a schema leads back to in several ways", 4004, |agent, size| {
            let faults = container(0x9a, size.clamp(1, 60_000), |_| vec![0x60]);
            call(agent, "lists-twice", [vec![0x81; 40], faults].concat())
        }),
        ("params of many objects with unknown keys", 4004, |agent, size| {
            // No more objects than their members are taken in one message.
            let count = (size / 6_000).clamp(1, 490);
            call(agent, "closed-list", container(0x9a, count, |_| named(1_000, 4, &[0x00])))
        }),
        ("params of many small objects with an unknown key", 4004, |agent, size| {
            call(
                agent,
                "closed-list",
                container(0x9a, (size / 4).clamp(1, WIDEST), |_| vec![0xa1, 0x61, b'b', 0x00]),
            )
        }),
        ("params with many short unknown keys in each branch", 4004, |agent, size| {
            call(agent, "closed-branches", named(size / 6, 4, &[0x00]))
        }),
        ("params of which each item breaks many schemas in one way", 4004, |agent, size| {
            call(agent, "list-all", container(0x9a, size.clamp(1, WIDEST), |_| vec![0x60]))
        }),
        ("params of which each item breaks every branch", 4004, |agent, size| {
            call(agent, "list-any", container(0x9a, size.clamp(1, WIDEST), |_| vec![0x00]))
        }),
        ("params that break their schema in many places under a name of some length", 4004, |agent, size| {
            let list = container(0x9a, size.clamp(1, WIDEST), |_| vec![0x60]);
            call(agent, "map-of-lists", [&named(1, 90, &[])[..], &list].concat())
        }),
        ("params that break their schema under names of some length", 4004, |agent, size| {
            call(agent, "map", named(size / 1_000, 1_000, &[0x60]))
        }),
        ("params that break their schema under long names", 4004, |agent, size| {
            call(agent, "map", named(size / 100_000, 100_000, &[0x60]))
        }),
        ("params that break their schema under long names in each other", 4004, |agent, size| {
            let innermost = named(size / 10, 8, &[0x60]);
            let above = named(1, 200, &[]);
            call(agent, "tree", [above.repeat(40), innermost].concat())
        }),
        ("params with two equal items", 4004, |agent, size| {
            let count = (size / 3).clamp(2, WIDEST);
            let item = |number: usize| [&[0x19][..], &(number.max(1) as u16 + 300).to_be_bytes()].concat();
            call(agent, "set", container(0x9a, count, item))
        }),
        ("params of byte strings that break their schema", 4004, |agent, size| {
            wide_params(agent, size, 1, |_| blob(100))
        }),
        ("a result that answers nothing", 4001, |agent, size| {
            let status = encode(&"success".into());
            agent.envelope(CAP_RESULT, &body([("status", status), ("result", blob(size))]), |_| {})
        }),
    ]
}

/// A call of one of the declared capabilities.
fn call(agent: &Agent, capability: &str, params: Vec<u8>) -> Vec<u8> {
    let id = encode(&format!("org.example.{capability}:1.0.0").into());
    agent.envelope(CAP_INVOKE, &body([("id", id), ("params", params)]), |_| {})
}

/// A call that wants an integer, with arrays of some `size` bytes of these items, each of which counts as so many; as many as are taken.
fn wide_params(agent: &Agent, size: usize, items_each: usize, item: fn(usize) -> Vec<u8>) -> Vec<u8> {
    const ITEMS_MAX: usize = 990_000;
    let count = (size / item(0).len()).clamp(1, ITEMS_MAX / items_each);
    let (whole, rest) = (count / WIDEST, count % WIDEST);
    let array = container(0x9a, WIDEST, item);
    let arrays = |number: usize| if number < whole { array.clone() } else { container(0x9a, rest, item) };
    call(agent, "strict", container(0x9a, whole + 1, arrays))
}

/// An object of so many members, as many as are taken, with names of some bytes and this value.
fn named(count: usize, name_bytes: usize, value: &[u8]) -> Vec<u8> {
    container(0xba, count.clamp(1, WIDEST), |number| {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        let mut name =
            [high >> 4, high & 15, low >> 4, low & 15].map(|digit| (b'a' + digit) as char).to_vec();
        name.resize(name_bytes, 'z');
        [&encode(&Value::from(name.into_iter().collect::<String>())), value].concat()
    })
}

/// A list of some `size` bytes of short lists of numbers, as many as are taken; the last of them ends in a text.
fn lists(size: usize) -> Vec<u8> {
    let count = (size / 18).clamp(1, 54_000);
    container(0x9a, count, |number| {
        let last = if number + 1 == count { 0x60 } else { 0x00 };
        [&[0x82, 0x00, 0x8f][..], &[0x00; 14], &[last]].concat()
    })
}

/// Objects of so many members in one another, so many levels; the last member of each is the next one, or else a text.
fn tree(count: usize, levels: usize) -> Vec<u8> {
    let level = named(count, 4, &[0x01]);
    let above = &level[..level.len() - 1];
    [above.repeat(levels), vec![0x60]].concat()
}

/// Capabilities, and the schemas of their params.
const SCHEMAS: [(&str, &str); 33] = [
    ("strict", r#"{"type":"integer"}"#),
    ("list", r#"{"type":"array","items":{"type":"integer"}}"#),
    ("closed", r#"{"type":"object","properties":{"a":true},"additionalProperties":false}"#),
    ("set", r#"{"type":"array","uniqueItems":true}"#),
    (
        "closed-required",
        r#"{"type":"object","properties":{"a":true},"required":["a"],"additionalProperties":false}"#,
    ),
    (
        "closed-patterns",
        r#"{"type":"object","patternProperties":{"^x-":true,"-x$":true},"additionalProperties":false}"#,
    ),
    ("closed-list", r#"{"items":{"type":"object","properties":{"a":true},"additionalProperties":false}}"#),
    (
        "closed-branches",
        r#"{"anyOf":[{"properties":{"a":true},"additionalProperties":false},
            {"properties":{"b":true},"additionalProperties":false}]}"#,
    ),
    ("unevaluated", r#"{"type":"object","properties":{"a":true},"unevaluatedProperties":false}"#),
    (
        "unevaluated-typed",
        r#"{"type":"object","properties":{"a":true},"unevaluatedProperties":{"type":"string"}}"#,
    ),
    (
        "unevaluated-any",
        r#"{"anyOf":[{"properties":{"a":true}},{"required":["b"]}],"unevaluatedProperties":false}"#,
    ),
    (
        "unevaluated-one",
        r#"{"$ref":"https://schemas.example/one","$defs":{"one":{"$id":"https://schemas.example/one",
            "oneOf":[{"properties":{"a":true}},{"required":["b"]}],"unevaluatedProperties":false}}}"#,
    ),
    (
        "unevaluated-if",
        r#"{"if":{"properties":{"a":true}},"then":{"properties":{"b":true}},"unevaluatedProperties":false}"#,
    ),
    ("unevaluated-all", r#"{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}"#),
    (
        "unevaluated-ref",
        r##"{"$ref":"#/$defs/one","unevaluatedProperties":false,
            "$defs":{"one":{"anyOf":[{"properties":{"a":true}},{"required":["b"]}]}}}"##,
    ),
    (
        "unevaluated-dynamic",
        r##"{"$dynamicRef":"#one","unevaluatedProperties":false,
            "$defs":{"one":{"$dynamicAnchor":"one","properties":{"a":true}}}}"##,
    ),
    (
        "unevaluated-dependent",
        r#"{"dependentSchemas":{"a":{"properties":{"b":true}}},"dependentRequired":{"a":["b"]},
            "unevaluatedProperties":false}"#,
    ),
    (
        "unevaluated-known",
        r##"{"anyOf":[{"additionalProperties":true}],"unevaluatedProperties":false,"$ref":"#/$defs/not",
            "$defs":{"not":{"required":["A"]}}}"##,
    ),
    (
        "unevaluated-branches",
        r##"{"anyOf":[{"anyOf":[{"anyOf":[{"anyOf":[{"additionalProperties":true}],"unevaluatedProperties":{}}],
            "unevaluatedProperties":{}}],"unevaluatedProperties":{}},{"required":["A"]}],
            "unevaluatedProperties":{},"$ref":"#/$defs/not","$defs":{"not":{"required":["A"]}}}"##,
    ),
    (
        "unevaluated-narrow",
        r#"{"properties":{"narrow":{"anyOf":[{"additionalProperties":true}],"unevaluatedProperties":false},
            "wide":{"minProperties":2}},"additionalProperties":{"type":"integer"},"oneOf":[{"required":["none"]}]}"#,
    ),
    ("lists", r##"{"anyOf":[{"type":"integer"},{"type":"array","items":{"$ref":"#"}}]}"##),
    (
        "lists-twice",
        r##"{"allOf":[{"$ref":"#/$defs/a"}],"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],
            "$defs":{"a":{"type":["integer","array"],"items":{"$ref":"#/$defs/b"}},
                "b":{"type":["integer","array"],"items":{"$ref":"#"}}}}"##,
    ),
    (
        "unevaluated-list",
        r#"{"items":{"anyOf":[{"properties":{"a":true}},{"required":["b"]}],"unevaluatedProperties":false}}"#,
    ),
    (
        "unevaluated-tree",
        r##"{"anyOf":[{"properties":{"a":true}},{"required":["b"]}],"unevaluatedProperties":
            {"anyOf":[{"type":"integer","minimum":1},{"type":"object","$ref":"#"}]}}"##,
    ),
    ("unevaluated-items", r#"{"prefixItems":[true],"unevaluatedItems":false}"#),
    ("unevaluated-items-typed", r#"{"prefixItems":[true],"unevaluatedItems":{"type":"string"}}"#),
    ("unevaluated-items-list", r#"{"items":{"prefixItems":[true],"unevaluatedItems":false}}"#),
    (
        "unevaluated-items-branches",
        r##"{"anyOf":[{"anyOf":[{"anyOf":[{"anyOf":[{"prefixItems":[true]}],"unevaluatedItems":{}}],
            "unevaluatedItems":{}}],"unevaluatedItems":{}}],"unevaluatedItems":false,"$ref":"#/$defs/not",
            "$defs":{"not":{"type":"string"}}}"##,
    ),
    (
        "list-all",
        r#"{"items":{"allOf":[{"type":"integer"},{"type":"integer","minimum":1},{"type":"integer","minimum":2},
            {"type":"integer","minimum":3},{"type":"integer","minimum":4},{"type":"integer","minimum":5}]}}"#,
    ),
    (
        "list-any",
        r#"{"items":{"anyOf":[{"minimum":1},{"minimum":2},{"minimum":3},{"minimum":4},{"minimum":5},{"minimum":6}]}}"#,
    ),
    ("map-of-lists", r#"{"additionalProperties":{"items":{"type":"integer","enum":[1,2,3,4,5,6,7,8]}}}"#),
    ("map", r#"{"additionalProperties":{"type":"integer"}}"#),
    ("tree", r##"{"type":"object","additionalProperties":{"$ref":"#"}}"##),
];

/// Declares them, and serves nothing.
fn declare(agent: &mut Agent) {
    use sha2::Digest as _;
    let capabilities: Vec<Value> = SCHEMAS
        .into_iter()
        .map(|(name, schema)| {
            let id = format!("org.example.{name}:1.0.0");
            let hash = Value::Bytes(sha2::Sha256::digest(schema.as_bytes()).to_vec());
            let schema = cbor!({ "hash_alg" => "sha-256", "hash" => hash, "inline" => schema }).unwrap();
            cbor!({ "id" => id, "input_schema" => schema }).unwrap()
        })
        .collect();
    let body = cbor!({ "capabilities" => capabilities }).unwrap();
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
    declare(&mut provider);
    let mut above = Vec::new();
    let more = std::env::var(MORE).ok().map(|size| size.parse().unwrap());
    for (what, code, make) in kinds() {
        // Once to warm up: what is made once for all messages is not the message's. The link stays until the others
        // are done, so that nothing of it is given back while they are measured.
        let mut first = Agent::open(&sidecar.socket(), &sidecar.did);
        assert_eq!(first.refused(&frame(AMP_MESSAGE, &make(&first, SIZES[0]))).0, code, "{what}");
        let mut agents = vec![first];
        for size in SIZES.into_iter().chain(more) {
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
