//! CAP_INVOKE in; a line in a file, and then the CAP_RESULT, out: the agent whose executions are counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ciborium::Value;

use crate::history::{Event, History, Id, hex};
use crate::link::{self, Link, now_ms};
use crate::random::Random;
use crate::signals::{Signal, Signals};
use crate::support::{Message, encode, field, map, set};

const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
const CAP_RESULT: u64 = 0x23;

/// What it serves; not idempotent, so each call may be executed once at most.
pub const CAPABILITY: &str = "org.example.append:1.0.0";

/// The provider of one world. It comes back whenever its link breaks, until it is told to stop.
pub struct Provider {
    pub socket: PathBuf,
    pub did: String,
    pub file: PathBuf,
    pub random: Random,
    pub history: Arc<Mutex<History>>,
    pub signals: Arc<Signals>,
    pub stop: Arc<AtomicBool>,
    /// With which the provider is killed, as far as its sidecar can tell.
    pub handle: Arc<Mutex<Option<UnixStream>>>,
}

impl Provider {
    /// Serves until it is told to stop.
    pub fn run(mut self) {
        let mut lines = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        while !self.stop.load(Ordering::Acquire) {
            // A sidecar that is being killed takes no link, or breaks it: both end here, and it is tried again.
            if self.serve(&mut lines).is_err() {
                std::thread::sleep(RECONNECT_PAUSE);
            }
        }
    }

    fn serve(&mut self, lines: &mut File) -> io::Result<()> {
        let random = &mut self.random;
        let mut link = Link::open(&self.socket, &self.did, &mut |ts| random_id(random, ts))?;
        let handle = link.handle()?;
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        self.declare(&mut link)?;
        while !self.stop.load(Ordering::Acquire) {
            if let Some(message) = link.next(LOOK_AROUND)?
                && message.typ() == CAP_INVOKE
            {
                self.execute(&mut link, &message, lines)?;
            }
        }
        Ok(())
    }

    fn declare(&mut self, link: &mut Link) -> io::Result<()> {
        let policy = map([("max_attempts", 5.into()), ("initial_delay_ms", 20.into())]);
        let descriptor =
            map([("id", CAPABILITY.into()), ("idempotent", false.into()), ("retry_policy", policy)]);
        let body = map([("capabilities", Value::Array(vec![descriptor]))]);
        let declare = link.envelope(random_id(&mut self.random, now_ms()), CAP_DECLARE, 60_000, body);
        link.send(&encode(&declare))?;
        let before = link.ping(random_id(&mut self.random, now_ms()))?;
        assert!(before.iter().all(|message| message.typ() == CAP_INVOKE), "{before:?}");
        // None of these is executed: its link is dropped, and with it the calls.
        if before.is_empty() { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    fn execute(&mut self, link: &mut Link, call: &Message, lines: &mut File) -> io::Result<()> {
        let called = Id::try_from(call.id()).expect("an id has 16 bytes");
        self.history.lock().unwrap_or_else(PoisonError::into_inner).note(called, Event::Executed);
        self.signals.raise(Signal::Invoked);
        if self.random.once_in(4) {
            std::thread::sleep(self.random.moment(WORK_MAX));
        }
        // One write, at the file's end: a kill can cut no line of it, since this process is not killed.
        lines.write_all(format!("{} {}\n", link::from(call), hex(&call.id())).as_bytes())?;
        if self.random.once_in(3) {
            std::thread::sleep(self.random.moment(WORK_MAX));
        }
        // A second execution of the same call would give another result.
        let result = Value::Bytes(random_id(&mut self.random, now_ms()).to_vec());
        let body = map([("status", "success".into()), ("result", result)]);
        let id = random_id(&mut self.random, now_ms());
        let mut answer = link.envelope(id, CAP_RESULT, 60_000, body);
        set(&mut answer, "to", field(&call.value, "from").cloned().expect("an envelope names its sender"));
        set(&mut answer, "reply_to", Value::Bytes(call.id()));
        link.send(&encode(&answer))?;
        self.signals.raise(Signal::Answered);
        Ok(())
    }
}

/// Breaks the provider's link, as the end of its process would.
pub fn kill(handle: &Mutex<Option<UnixStream>>) {
    if let Some(stream) = handle.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // It may be broken already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// The ids in the provider's file, each as often as it was executed; every line must name `from`.
pub fn executions(file: &Path, from: &str) -> Vec<Id> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    let id = |line: &str| {
        let (caller, digits) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?} is no line of ours"));
        assert_eq!(caller, from, "{line:?}");
        let bytes = (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap());
        Id::try_from(bytes.collect::<Vec<_>>()).unwrap()
    };
    text.lines().map(id).collect()
}

/// An id of a message made at `ts`.
pub fn random_id(random: &mut Random, ts: u64) -> Id {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&ts.to_be_bytes());
    id[8..].copy_from_slice(&random.next().to_be_bytes());
    id
}

/// Longest pause of the provider's at either side of its line.
const WORK_MAX: Duration = Duration::from_millis(12);
/// How often it looks whether it is to stop.
const LOOK_AROUND: Duration = Duration::from_millis(50);
/// Between two tries to reach a sidecar that is not there.
const RECONNECT_PAUSE: Duration = Duration::from_millis(2);
