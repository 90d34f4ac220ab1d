//! An attack in; what an honest peer finds meanwhile, and what the sidecar's process still holds afterwards, out.

use std::time::{Duration, Instant};

use ciborium::{Value, cbor};

use crate::crowd::Crowd;
use crate::peer::{Certificate, RawLink, Transport, fresh_seed};
use crate::support::{BytePeer, Message, PATIENCE, Setup, Sidecar, field, map, set};

pub const ERROR: u64 = 0x0f;
pub const CAP_QUERY: u64 = 0x20;
pub const CAP_DECLARE: u64 = 0x21;
pub const CAP_INVOKE: u64 = 0x22;
pub const CAP_RESULT: u64 = 0x23;

/// The capability that the sidecar under attack serves by an honest agent.
pub const ECHO: &str = "org.example.echo:1.0.0";

/// What an attack may leave behind, in KiB: the allocator gives pages back only when all of a page is free.
const MEMORY_ALLOWANCE_KIB: u64 = 8 * 1024;
/// Descriptors that may be opened once and stay: the audit log's and the journal's files.
const FILES_ALLOWANCE: usize = 8;
/// Descriptors of the largest attack, 2,000 links, and of what else a test process holds.
const FILES_NEEDED: u64 = 3_000;
/// Honest calls whose median is told.
const HONEST_CALLS: usize = 15;
/// Pause between two looks at what another process does; it stands for no condition.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A sidecar under attack, an honest agent that serves, and an honest peer that calls it.
pub struct Field {
    pub sidecar: Sidecar,
    pub crowd: Crowd,
    /// The honest peer; its sidecar's process must outlive the caller's link.
    caller: BytePeer,
    honest: Sidecar,
    /// Descriptors of the process when nobody attacks.
    files: usize,
}

impl Field {
    pub fn start() -> Self {
        Self::with(Setup::new())
    }

    /// The sidecar under attack is started with `setup`.
    pub fn with(setup: Setup) -> Self {
        raise_files_limit();
        // At level `debug` each refusal is a line, and the log would be what is measured.
        let sidecar = setup.set("log.level", "info").set("log.access", "off").start();
        serve_echo(&sidecar);
        let honest = Setup::new().peer(&sidecar).set("log.level", "info").set("log.access", "off").start();
        let caller = BytePeer::open(&honest.socket);
        let mut field = Self { caller, honest, crowd: Crowd::gather(), files: 0, sidecar };
        field.honest_call();
        field.files = field.open_files();
        field
    }

    /// The DID of the honest peer.
    pub fn honest_did(&self) -> &str {
        &self.honest.did
    }

    /// Attacks twice, the first time to warm up; checks what honest peers find while the second attack is held, and what
    /// is left when it is over.
    #[track_caller]
    pub fn withstands<H>(&mut self, what: &str, mut attack: impl FnMut(&Self) -> H) {
        let idle = self.median_call();
        self.newcomers_get_in();
        self.round(&mut attack);
        let level = self.sidecar.memory_kib();
        let attacked = self.round(&mut attack);
        let left = self.memory_comes_back(level);
        println!(
            "{what}: honest call {idle:?} before, {attacked:?} during; {level} KiB after the first attack, {left} KiB \
             after the second"
        );
    }

    /// One attack; the median time of honest calls while it is held.
    #[track_caller]
    fn round<H>(&mut self, attack: &mut impl FnMut(&Self) -> H) -> Duration {
        let held = attack(self);
        let attacked = self.median_call();
        self.newcomers_get_in();
        drop(held);
        self.files_come_back();
        attacked
    }

    /// One call of the honest peer's, answered as it should be.
    pub fn honest_call(&mut self) {
        let params = cbor!({ "text" => "an honest call" }).unwrap();
        let body = map([("id", ECHO.into()), ("params", params.clone())]);
        let mut envelope = self.caller.envelope(CAP_INVOKE, body);
        set(&mut envelope, "to", self.sidecar.did.as_str().into());
        let id = self.caller.send_envelope(&envelope);
        let begin = Instant::now();
        let result = loop {
            let message = self.caller.message();
            if message.reply_to().as_ref() == Some(&id) {
                break message;
            }
            assert!(begin.elapsed() < PATIENCE, "nothing but other messages");
        };
        assert!(begin.elapsed() < PATIENCE, "an honest call took {:?}", begin.elapsed());
        assert_eq!(field(result.body(), "result"), Some(&params), "{result:?}");
    }

    /// The median time of honest calls, each answered as it should be.
    fn median_call(&mut self) -> Duration {
        let mut times: Vec<_> = (0..HONEST_CALLS)
            .map(|_| {
                let begin = Instant::now();
                self.honest_call();
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[HONEST_CALLS / 2]
    }

    /// A peer that nobody has seen before opens a link, over either transport, and is answered. It may be turned away
    /// while all places are taken, as long as one becomes free in time.
    #[track_caller]
    fn newcomers_get_in(&self) {
        for transport in Transport::PEER {
            let begin = Instant::now();
            loop {
                let seed = fresh_seed();
                match RawLink::try_connect(&self.sidecar, transport, seed, &Certificate::Of(seed)) {
                    Ok(mut link) => {
                        link.handshake();
                        link.hello();
                        link.use_exchange_stream();
                        link.ping();
                        break;
                    }
                    Err(error) => {
                        assert!(begin.elapsed() < PATIENCE, "{transport:?}: no newcomer got in: {error}");
                        std::thread::sleep(LOOK_AGAIN);
                    }
                }
            }
        }
    }

    /// Waits until the process has no more descriptors open than before the attack.
    #[track_caller]
    fn files_come_back(&self) {
        let allowed = self.files + FILES_ALLOWANCE;
        let begin = Instant::now();
        while self.open_files() > allowed {
            let open = self.open_files();
            assert!(begin.elapsed() < PATIENCE, "{open} descriptors are open, there were {}", self.files);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until the process has no more memory than `level_kib` and the allowance; returns what it has.
    #[track_caller]
    fn memory_comes_back(&self, level_kib: u64) -> u64 {
        let begin = Instant::now();
        loop {
            let memory = self.sidecar.memory_kib();
            if memory <= level_kib + MEMORY_ALLOWANCE_KIB {
                return memory;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{memory} KiB are resident; after the first attack it was {level_kib} KiB"
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.sidecar.pid())).unwrap().count()
    }
}

/// Lets this process, and the sidecars it starts, open the sockets that the largest attack takes.
fn raise_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    assert!(
        maximum.is_none_or(|maximum| maximum >= FILES_NEEDED),
        "{FILES_NEEDED} descriptors are needed, and the hard limit is {maximum:?}: raise it (ulimit -Hn)"
    );
    let current = Some(maximum.unwrap_or(FILES_NEEDED).min(2 * FILES_NEEDED));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Declares [`ECHO`] and answers each call with its params, on a thread that ends with the sidecar.
fn serve_echo(sidecar: &Sidecar) {
    let mut agent = BytePeer::open(&sidecar.socket);
    let descriptor = map([("id", ECHO.into()), ("idempotent", true.into())]);
    agent.send(CAP_DECLARE, map([("capabilities", Value::Array(vec![descriptor]))]));
    assert!(agent.ping().is_empty(), "the declaration is refused");
    std::thread::spawn(move || {
        while let Some(frame) = agent.try_frame() {
            if frame.frame_type != crate::support::AMP_MESSAGE {
                // Silence is answered by PING: an agent that never answers one is closed.
                agent.send_frame(PONG_FRAME, &frame.payload);
                continue;
            }
            let value = crate::support::decode(&frame.payload);
            let call = Message { value, bytes: frame.payload };
            if call.typ() == CAP_INVOKE {
                let params = field(call.body(), "params").unwrap().clone();
                agent.answer(&call, CAP_RESULT, map([("status", "success".into()), ("result", params)]));
            }
        }
    });
}

const PONG_FRAME: u8 = 0x04;
