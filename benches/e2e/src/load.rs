//! Calls and how many of them, or how often, in; how long they took, out.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

/// What a caller is asked for: one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Bytes of each call's params.
    pub(crate) bytes: usize,
    /// Calls kept in flight, each followed by the next.
    pub(crate) in_flight: usize,
    /// Calls a second, each made when it is due, in place of one after the other.
    pub(crate) rate: Option<f64>,
    /// How long it is measured, after [`Load::warm_up_ms`].
    pub(crate) ms: u64,
}

impl Load {
    /// How long calls go on before they are measured, so that windows and caches are what they are under load.
    pub(crate) const fn warm_up_ms(&self) -> u64 {
        self.ms / 5
    }
}

/// How a round went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Calls that ended while it was measured.
    pub(crate) calls: u64,
    /// All calls that ended, those before it was measured included.
    pub(crate) all: u64,
    pub(crate) seconds: f64,
    /// **Units:** microseconds.
    pub(crate) p50_us: f64,
    /// **Units:** microseconds.
    pub(crate) p99_us: f64,
}

impl Round {
    pub(crate) fn calls_per_s(&self) -> f64 {
        self.calls as f64 / self.seconds
    }
}

/// Something that can be called.
pub(crate) trait Callee: Clone + Send + 'static {
    /// The same with params of so many bytes, made beforehand.
    fn sized(&self, bytes: usize) -> Self;
    /// Calls, and checks that the answer is a result of the length that belongs to the params.
    fn call(&mut self) -> impl Future<Output = ()> + Send;
}

/// The calls that ended while it was measured.
#[derive(Debug)]
pub(crate) struct Record {
    begins: Instant,
    ends: Instant,
    all: u64,
    /// **Units:** nanoseconds.
    times: Histogram<u64>,
}

impl Record {
    /// A round that begins here.
    pub(crate) fn begin(load: &Load) -> Self {
        let begins = Instant::now() + Duration::from_millis(load.warm_up_ms());
        let times = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS);
        let ends = begins + Duration::from_millis(load.ms);
        Self { begins, ends, all: 0, times: times.expect("constant bounds") }
    }

    /// Takes a call from when it was made, or due, to when it ended; whether there is to be another.
    pub(crate) fn add(&mut self, from: Instant, ended: Instant) -> bool {
        self.all += 1;
        // A round has one call at least: it lasts longer where none ends in time.
        if ended >= self.ends && !self.times.is_empty() {
            return false;
        }
        if ended >= self.begins {
            self.ends = self.ends.max(ended);
            let ns = u64::try_from((ended - from).as_nanos()).unwrap_or(u64::MAX);
            self.times.saturating_record(ns);
        }
        true
    }

    pub(crate) fn round(&self) -> Round {
        let us = |quantile: f64| self.times.value_at_quantile(quantile) as f64 / 1_000.0;
        let seconds = (self.ends - self.begins).as_secs_f64();
        Round { calls: self.times.len(), all: self.all, seconds, p50_us: us(0.5), p99_us: us(0.99) }
    }
}

/// Calls `callee` as `load` says.
pub(crate) async fn run(callee: &impl Callee, load: &Load) -> Round {
    let callee = callee.sized(load.bytes);
    let record = Arc::new(Mutex::new(Record::begin(load)));
    match load.rate {
        None => closed(&callee, load.in_flight, &record).await,
        Some(rate) => open(&callee, rate, load.in_flight, &record).await,
    }
    let record = record.lock().unwrap();
    record.round()
}

/// So many callers, each of which calls again once it has its answer.
async fn closed(callee: &impl Callee, in_flight: usize, record: &Arc<Mutex<Record>>) {
    let callers = (0..in_flight).map(|_| {
        let (mut callee, record) = (callee.clone(), Arc::clone(record));
        tokio::spawn(async move {
            loop {
                let made = Instant::now();
                callee.call().await;
                if !record.lock().unwrap().add(made, Instant::now()) {
                    return;
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// Calls that are made when they are due, at most `in_flight` at once. Times are told from when each was due, so that
/// a stall counts for all the calls that it held up.
async fn open(callee: &impl Callee, rate: f64, in_flight: usize, record: &Arc<Mutex<Record>>) {
    let permits = Arc::new(Semaphore::new(in_flight));
    let ends = record.lock().unwrap().ends;
    let mut due = moments(Instant::now(), rate, ends);
    while let Some(due) = due.recv().await {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let (mut callee, record) = (callee.clone(), Arc::clone(record));
        tokio::spawn(async move {
            callee.call().await;
            record.lock().unwrap().add(due, Instant::now());
            drop(permit);
        });
    }
    // All permits together are there once all calls have ended.
    let all = u32::try_from(in_flight).unwrap();
    let _ended = permits.acquire_many(all).await.expect("it is never closed");
}

/// Moments at which calls are due, each when it has come. An async timer counts in milliseconds, which is more than a
/// call takes, so a thread sleeps instead.
fn moments(first: Instant, rate: f64, ends: Instant) -> mpsc::Receiver<Instant> {
    let (sender, receiver) = mpsc::channel(DUE_MAX);
    thread::spawn(move || {
        // Without it the system may wake us some fifty microseconds late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        for number in 0_u64.. {
            let due = first + Duration::from_secs_f64(number as f64 / rate);
            if due >= ends {
                return;
            }
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                thread::sleep(wait.max(SLEEP_MIN));
            }
            if sender.blocking_send(due).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What takes a core some tens of microseconds, each wake-up, is not done for every call: those that are due meanwhile are
/// made together, and count from when they were due.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Moments that may wait to be taken; more wait in the thread.
const DUE_MAX: usize = 1_024;
/// Times are told apart to a thousandth, from a microsecond to a minute.
const DIGITS: u8 = 3;
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 60_000_000_000;
