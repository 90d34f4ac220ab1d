//! Tasks in; all of them stopped at one moment out, as `kill -9` stops a process.
//!
//! Every poll of every task of a process is counted, and a crash can be set for any of them. That is every await point
//! of everything that the process does: at such a point nothing but what it holds in memory knows how far it was.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant as StdInstant;

use capd::net::{Clock, Names, Random, Spawn, System, Task, Tasks, Udp, WallClock};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::keys;

/// One simulated process. Clones are one process.
#[derive(Clone)]
pub struct Process(Arc<Shared>);

struct Shared {
    is_alive: AtomicBool,
    polls: AtomicU64,
    crash_at: AtomicU64,
    slots: Mutex<Slots>,
    ended: CancellationToken,
    panics: Arc<AtomicU64>,
}

#[derive(Default)]
struct Slots {
    next: u64,
    tasks: BTreeMap<u64, Arc<Slot>>,
}

/// A task, until it has ended or its process has.
type Slot = Mutex<Option<Task>>;

impl Process {
    /// A process without tasks; what panics in it is counted in `panics`.
    pub fn start(panics: &Arc<AtomicU64>) -> Self {
        Self(Arc::new(Shared {
            is_alive: AtomicBool::new(true),
            polls: AtomicU64::new(0),
            crash_at: AtomicU64::new(u64::MAX),
            slots: Mutex::default(),
            ended: CancellationToken::new(),
            panics: Arc::clone(panics),
        }))
    }

    pub fn is_alive(&self) -> bool {
        self.0.is_alive.load(Ordering::Relaxed)
    }

    /// Polls of its tasks so far.
    pub fn polls(&self) -> u64 {
        self.0.polls.load(Ordering::Relaxed)
    }

    /// Has it crash in place of its poll of this number.
    pub fn crash_at(&self, poll: u64) {
        self.0.crash_at.store(poll, Ordering::Relaxed);
    }

    /// Ends it at once. Not for its own tasks: they [`condemn`](Self::condemn) it.
    pub fn kill(&self) {
        self.condemn();
        self.bury();
    }

    /// Ends it from within one of its tasks: from here on nothing leaves it, and the poll that runs is its last.
    pub fn condemn(&self) {
        self.0.is_alive.store(false, Ordering::Relaxed);
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// The machine as this process meets it.
    pub fn system(&self, wall: &WallClock, seed: u64, udp: Udp) -> System {
        System {
            clock: Clock::set_by(wall.clone()),
            random: Random::seeded(seed),
            crypto: keys::provider(),
            tasks: Tasks::run_by(Arc::new(self.clone())),
            udp,
            names: Names::none(),
        }
    }

    /// Drops every task; the one that is being polled drops itself behind its poll.
    fn bury(&self) {
        let tasks = std::mem::take(&mut self.slots().tasks);
        for slot in tasks.into_values() {
            let task = slot.try_lock().ok().and_then(|mut slot| slot.take());
            // A destructor's panic, say of a lock that a panic poisoned, is a fault as well.
            if catch_unwind(AssertUnwindSafe(|| drop(task))).is_err() {
                self.0.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.0.ended.cancel();
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawn for Process {
    fn spawn(&self, task: Task) {
        if !self.is_alive() {
            return;
        }
        let slot = Arc::new(Mutex::new(Some(task)));
        let number = {
            let mut slots = self.slots();
            slots.next += 1;
            let number = slots.next;
            slots.tasks.insert(number, Arc::clone(&slot));
            number
        };
        tokio::spawn(Polled { process: self.clone(), number, slot });
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({} polls)", self.polls())
    }
}

/// A task as tokio runs it.
struct Polled {
    process: Process,
    number: u64,
    slot: Arc<Slot>,
}

impl Future for Polled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let process = &self.process;
        if !process.is_alive() {
            return Poll::Ready(());
        }
        let poll = process.0.polls.fetch_add(1, Ordering::Relaxed);
        if poll >= process.0.crash_at.load(Ordering::Relaxed) {
            process.kill();
            return Poll::Ready(());
        }
        let polled = {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(task) = slot.as_mut() else { return Poll::Ready(()) };
            catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)))
        };
        if polled.is_err() {
            process.0.panics.fetch_add(1, Ordering::Relaxed);
        }
        if !process.is_alive() {
            process.bury();
        } else if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        process.slots().tasks.remove(&self.number);
        let ended = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ended);
        Poll::Ready(())
    }
}

/// What quinn's endpoints of one process are driven by.
#[derive(Debug)]
pub struct Driven(pub Process);

impl Runtime for Driven {
    fn new_timer(&self, due: StdInstant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(Box::pin(sleep_until(Instant::from_std(due)))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        Spawn::spawn(&self.0, future);
    }

    fn wrap_udp_socket(&self, _socket: std::net::UdpSocket) -> std::io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }
}

#[derive(Debug)]
struct Timer(Pin<Box<Sleep>>);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, due: StdInstant) {
        self.0.as_mut().reset(Instant::from_std(due));
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Future::poll(self.0.as_mut(), context)
    }
}
