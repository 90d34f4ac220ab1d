//! Builds a runtime of one thread that polls for work for a while before it sleeps.
//!
//! To wake a thread on an idle core takes longer than most stages of a call, so a busy sidecar is faster awake. It
//! stops polling when other processes want the core, and backs off when polls find nothing ([`Idling`]).

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// A runtime of one thread: a call's stages run back to back without waking another core (docs/concepts.md). Before it
/// sleeps, it polls for more work for `busy_poll`; it does not poll for zero, or on fewer than two cores.
///
/// # Errors
/// The system gives no more descriptors.
pub fn runtime(busy_poll: Duration) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    // Those whose work is looked for need a core meanwhile; a quota of the system's counts here as well.
    let is_alone = thread::available_parallelism().is_ok_and(|cores| cores.get() < 2);
    if busy_poll.is_zero() || is_alone {
        return builder.build();
    }
    awake(builder, Looker::new(busy_poll))
}

/// Says that bytes of a message come or go on this thread, after which there is soon more to do. What else wakes it, a timer
/// or an acknowledgement, is no reason to look for more: an idle sidecar would spend most of its time on that.
pub(crate) fn stirred() {
    STIRRED.set(true);
}

thread_local! {
    static STIRRED: Cell<bool> = const { Cell::new(false) };
}

/// What `builder` makes, kept awake by `looker`.
fn awake(mut builder: Builder, looker: Looker) -> io::Result<Runtime> {
    // The task belongs to the runtime and knows its waker; held here, both would keep each other for good.
    let shared = Arc::downgrade(&looker.0);
    builder.on_thread_park(move || {
        if let Some(shared) = shared.upgrade() {
            Looker(shared).before_sleep();
        }
    });
    let runtime = builder.build()?;
    runtime.spawn(looker);
    Ok(runtime)
}

/// A task that keeps the thread awake: while it has something to do, the runtime asks the system what has happened and
/// does not wait for it.
#[derive(Debug)]
struct Looker(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    idling: Idling,
    waker: Option<Waker>,
    /// When bytes of a message came or went last.
    stirred: Instant,
    /// When the task was polled after the system was asked; what has happened is handled before its next poll.
    asked: Option<Instant>,
}

impl Looker {
    fn new(busy_poll: Duration) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Shared {
            idling: Idling::new(busy_poll, now),
            waker: None,
            stirred: now,
            asked: None,
        })))
    }

    /// No task has anything to do; unless one has when this returns, the thread sleeps.
    fn before_sleep(&self) {
        let mut shared = self.shared();
        let is_looking = shared.idling.is_looking();
        let mut now = Instant::now();
        if STIRRED.take() {
            shared.stirred = now;
        }
        if !is_looking && now - shared.stirred >= shared.idling.busy_poll {
            return;
        }
        if is_looking {
            let from = now;
            thread::yield_now();
            now = Instant::now();
            if now - from > WANTED {
                return shared.idling.ends(from);
            }
        }
        if shared.idling.looks(now)
            && let Some(waker) = &shared.waker
        {
            waker.wake_by_ref();
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Looker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared();
        if shared.waker.is_none() {
            shared.waker = Some(cx.waker().clone());
        } else if let Some(asked) = shared.asked.take() {
            if asked.elapsed() > NOTHING {
                shared.idling.found();
            }
        } else {
            shared.asked = Some(Instant::now());
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Whether an idle thread looks for work or sleeps, by the times alone.
///
/// A look in vain costs what it took. Looks that find something earn, and so does time, slowly: of the looks of a busy
/// thread one in five may be in vain, and an idle one spends a 64th of a core on them.
#[derive(Debug)]
struct Idling {
    busy_poll: Duration,
    /// What looks in vain may take, and until when that was reckoned.
    credit: Duration,
    reckoned: Instant,
    /// Since when it looks, and has found nothing.
    since: Option<Instant>,
    /// Whether it looks no more until there is credit for several looks: one of many finds nothing where peers sleep, too.
    rests: bool,
}

impl Idling {
    fn new(busy_poll: Duration, now: Instant) -> Self {
        Self { busy_poll, credit: busy_poll * CREDIT_LOOKS_MAX, reckoned: now, since: None, rests: false }
    }

    fn is_looking(&self) -> bool {
        self.since.is_some()
    }

    /// Whether to look, or to go on looking, when there is nothing to do at `now`.
    fn looks(&mut self, now: Instant) -> bool {
        self.earn(now.saturating_duration_since(self.reckoned) / TIME_EARNS);
        self.reckoned = now;
        match self.since {
            None if !self.rests => self.since = Some(now),
            Some(since) if now.saturating_duration_since(since) >= self.busy_poll => self.ends(now),
            None | Some(_) => {}
        }
        self.is_looking()
    }

    /// Nothing was found until `now`.
    fn ends(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.credit = self.credit.saturating_sub(now.saturating_duration_since(since));
            self.rests = self.credit < self.busy_poll;
        }
    }

    /// There is something to do.
    fn found(&mut self) {
        if self.since.take().is_some() {
            self.earn(self.busy_poll / FOUND_EARNS);
        }
    }

    fn earn(&mut self, earned: Duration) {
        self.credit = (self.credit + earned).min(self.busy_poll * CREDIT_LOOKS_MAX);
        self.rests &= self.credit < self.busy_poll * RESTED_LOOKS;
    }
}

/// What is earned: one part in so many of the time that passes, and of a whole look by one that finds something.
const TIME_EARNS: u32 = 64;
const FOUND_EARNS: u32 = 4;

/// Credit for so many looks in vain at most, and for so many before a rest is over.
const CREDIT_LOOKS_MAX: u32 = 100;
const RESTED_LOOKS: u32 = 20;

/// A core that was given away for so long is wanted by others.
const WANTED: Duration = Duration::from_micros(50);

/// Between two polls of the task with nothing between them there is less, by far.
const NOTHING: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const BUSY_POLL: Duration = Duration::from_micros(200);

    /// Looks from `now` until it sleeps, asking every 10 µs; how long that was.
    fn look_in_vain(idling: &mut Idling, now: &mut Instant) -> Duration {
        let from = *now;
        while idling.looks(*now) {
            *now += Duration::from_micros(10);
        }
        *now - from
    }

    #[test]
    fn a_look_ends_when_nothing_comes_of_it() {
        let mut now = Instant::now();
        let mut idling = Idling::new(BUSY_POLL, now);
        assert_eq!(look_in_vain(&mut idling, &mut now), BUSY_POLL);
        assert!(!idling.is_looking());
    }

    #[test]
    fn looks_in_vain_take_a_64th_of_a_core_in_the_long_run() {
        let mut now = Instant::now();
        let mut idling = Idling::new(BUSY_POLL, now);
        let (began, mut spent) = (now, Duration::ZERO);
        for _ in 0..100_000 {
            spent += look_in_vain(&mut idling, &mut now);
            now += Duration::from_micros(500);
        }
        let bound = (now - began) / TIME_EARNS + BUSY_POLL * CREDIT_LOOKS_MAX;
        assert!(spent <= bound, "{spent:?} of {:?}", now - began);
        assert!(spent > bound * 9 / 10, "{spent:?} of {:?}", now - began);
    }

    /// How many of 100,000 looks there are where all but one of `of` find something, after 150 µs.
    fn looks_with_one_in_vain(of: usize) -> usize {
        let mut now = Instant::now();
        let mut idling = Idling::new(BUSY_POLL, now);
        let tries = (0..100_000).filter(|number| {
            let looks = idling.looks(now);
            if number % of == 0 {
                look_in_vain(&mut idling, &mut now);
            } else {
                now += Duration::from_micros(150);
                idling.found();
            }
            looks
        });
        tries.count()
    }

    #[test]
    fn looks_go_on_while_four_of_five_find_something_and_rest_while_two_of_three_do() {
        assert_eq!(looks_with_one_in_vain(5), 100_000);
        let rare = looks_with_one_in_vain(3);
        assert!((1_000..30_000).contains(&rare), "{rare}");
    }

    #[test]
    fn a_look_that_others_end_costs_what_it_took_until_they_came() {
        let now = Instant::now();
        let mut idling = Idling::new(BUSY_POLL, now);
        assert!(idling.looks(now));
        idling.ends(now + Duration::from_micros(30));
        assert!(!idling.is_looking());
        assert_eq!(idling.credit, BUSY_POLL * CREDIT_LOOKS_MAX - Duration::from_micros(30));
    }

    #[test]
    fn a_thread_looks_after_messages_alone() {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        let looker = Looker::new(BUSY_POLL);
        let shared = Arc::clone(&looker.0);
        let runtime = awake(builder, looker).unwrap();
        // Whether it has looked: credit is reckoned then.
        let looks_after = |is_message: bool| {
            runtime.block_on(async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let from = Instant::now();
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    if is_message {
                        stirred();
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                shared.lock().unwrap().idling.reckoned > from
            })
        };
        assert!(!looks_after(false));
        assert!(looks_after(true));
    }

    #[test]
    fn nothing_is_left_of_a_runtime_that_has_ended() {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        let looker = Looker::new(BUSY_POLL);
        let shared = Arc::downgrade(&looker.0);
        let runtime = awake(builder, looker).unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        assert!(shared.upgrade().is_some_and(|shared| shared.lock().unwrap().waker.is_some()));
        drop(runtime);
        assert!(shared.upgrade().is_none());
    }

    #[test]
    fn events_timers_and_other_threads_are_heard_while_it_looks() {
        let runtime = runtime(Duration::from_secs(1)).unwrap();
        runtime.block_on(async {
            let (mut near, mut far) = tokio::io::duplex(1);
            let (mut socket, mut other) = tokio::net::UnixStream::pair().unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
            let answers = tokio::spawn(async move {
                let byte = other.read_u8().await.unwrap();
                far.write_u8(byte).await.unwrap();
            });
            socket.write_u8(9).await.unwrap();
            assert_eq!(near.read_u8().await.unwrap(), 9);
            answers.await.unwrap();
        });
    }
}
