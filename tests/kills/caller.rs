//! Calls, one after the other, out; each sent again under its id, byte for byte, until its one result is in.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ciborium::Value;

use crate::history::{self, Event, History, Id};
use crate::link::{self, Link, now_ms};
use crate::provider::{CAPABILITY, random_id};
use crate::random::Random;
use crate::signals::{Signal, Signals};
use crate::support::{Message, encode, map};

const ERROR: u64 = 0x0f;
const CAP_INVOKE: u64 = 0x22;
const CAP_RESULT: u64 = 0x23;

/// One agent that calls, of one world.
pub struct Caller {
    pub socket: PathBuf,
    pub did: String,
    pub random: Random,
    pub history: Arc<Mutex<History>>,
    pub signals: Arc<Signals>,
    /// Set when no further call begins.
    pub stop: Arc<AtomicBool>,
    /// The invokes of all calls so far.
    pub calls: Vec<(Id, Vec<u8>)>,
    pub link: Option<Link>,
}

impl Caller {
    /// Calls until it is told to stop; gives itself back with every call ended, or out of patience.
    pub fn run(mut self) -> Self {
        while !self.stop.load(Ordering::Acquire) {
            let at = match self.calls.len() as u64 {
                // A call that has ended is asked for again every now and then: its result must not have changed.
                known @ 1.. if self.random.once_in(8) => {
                    usize::try_from(self.random.below(known)).expect("an index")
                }
                _ => self.begin(),
            };
            self.pursue(at);
        }
        self
    }

    /// Asks for every call once more.
    pub fn ask_all_again(&mut self) {
        for at in 0..self.calls.len() {
            self.pursue(at);
        }
    }

    /// Makes a call, and its envelope, which is the same from then on.
    fn begin(&mut self) -> usize {
        let id = random_id(&mut self.random, now_ms());
        let params = Value::Bytes(self.random.next().to_be_bytes().to_vec());
        let body =
            map([("id", CAPABILITY.into()), ("params", params), ("timeout_ms", CALL_TIMEOUT_MS.into())]);
        let envelope = link::envelope(&self.did, id, CAP_INVOKE, TTL_MS, body);
        self.calls.push((id, encode(&envelope)));
        self.calls.len() - 1
    }

    /// Sends a call until it is answered for good.
    fn pursue(&mut self, at: usize) {
        let begun = Instant::now();
        while begun.elapsed() < PURSUIT_MAX {
            match self.ask(at) {
                Ok(true) => return,
                Ok(false) => {}
                // Nobody listens at the moment, or the link has just broken.
                Err(_broken) => std::thread::sleep(RETRY_PAUSE),
            }
        }
    }

    /// Sends a call and waits for an answer; `true` when it is final. **Errors:** there is no link, or not any more.
    fn ask(&mut self, at: usize) -> io::Result<bool> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                let random = &mut self.random;
                Link::open(&self.socket, &self.did, &mut |ts| random_id(random, ts))?
            }
        };
        // A retransmission now and then: both are answered, with the same bytes.
        let times = if self.random.once_in(10) { 2 } else { 1 };
        let answer = self.exchange(&mut link, at, times);
        match &answer {
            Ok(_) => self.link = Some(link),
            Err(_) => self.note(self.calls[at].0, Event::LinkLost),
        }
        answer
    }

    fn exchange(&self, link: &mut Link, at: usize, times: usize) -> io::Result<bool> {
        let (id, envelope) = &self.calls[at];
        for _ in 0..times {
            self.note(*id, Event::Sent);
            link.send(envelope)?;
        }
        self.signals.raise(Signal::Sent);
        let sent = Instant::now();
        while sent.elapsed() < RESEND_AFTER {
            let Some(message) = link.next(RESEND_AFTER)? else { break };
            let Some(event) = self.hear(&message) else { continue };
            if message.reply_to().as_deref() == Some(&id[..]) {
                if matches!(event, Event::Final(..)) {
                    return Ok(true);
                }
                std::thread::sleep(RETRY_PAUSE);
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Notes an answer to any of the calls: those sent twice are answered twice.
    fn hear(&self, message: &Message) -> Option<Event> {
        if message.typ() != CAP_RESULT && message.typ() != ERROR {
            return None;
        }
        let id = Id::try_from(message.reply_to()?).expect("an id has 16 bytes");
        let event = history::answer(message);
        self.note(id, event.clone());
        self.signals.raise(Signal::Heard);
        Some(event)
    }

    fn note(&self, id: Id, event: Event) {
        let mut history: MutexGuard<'_, History> =
            self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.note(id, event);
    }
}

/// How long the executor may take; it never needs as long, but for a provider that is gone.
const CALL_TIMEOUT_MS: u64 = 5_000;
/// Longer than any run: what is asked for at its end is still remembered.
const TTL_MS: u64 = 6 * 3_600_000;
/// After so long without an answer a call is sent again, though its link holds.
const RESEND_AFTER: Duration = Duration::from_secs(3);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(3);
/// After so long a call has not ended.
const PURSUIT_MAX: Duration = Duration::from_secs(90);
