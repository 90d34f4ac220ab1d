//! Collects panics: the first one goes to the program that runs the sidecar.
//!
//! A task that panicked is gone, and every task that waits for it would wait forever. So no task may fail in silence.
//! Everything that runs for a sidecar runs [guarded](Faults::guard). The program that runs the sidecar awaits its
//! [`Faults`] and restarts it. A program that is only a sidecar ends at any panic of its process: [`end_process`].

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio_util::sync::CancellationToken;

/// A panic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its message; cut to [`TEXT_CHARS_MAX`].
    pub text: String,
    /// File, line and column; known to [`end_process`] only.
    pub location: Option<String>,
    /// The name of its thread; empty for one without.
    pub thread: String,
}

impl Fault {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (None, Some(text)) => text.as_str(),
            (None, None) => "it did not say why",
        };
        let text = text.chars().take(TEXT_CHARS_MAX).collect();
        Self { text, location: None, thread: thread::current().name().unwrap_or_default().to_owned() }
    }

    fn of(panic: &PanicHookInfo<'_>) -> Self {
        Self {
            text: panic
                .payload_as_str()
                .unwrap_or("it did not say why")
                .chars()
                .take(TEXT_CHARS_MAX)
                .collect(),
            location: panic.location().map(ToString::to_string),
            thread: thread::current().name().unwrap_or_default().to_owned(),
        }
    }

    fn log(&self) {
        let Self { text, location, thread } = self;
        tracing::error!(panic = ?text, location, thread = ?thread, "a part of the sidecar panicked");
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {:?} panicked", self.thread)?;
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Collects the panics of a group of tasks and threads; the first one counts. Clones are one group.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    reported: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    first: Option<Fault>,
    /// Another group that is also told.
    forward: Option<Faults>,
}

impl Faults {
    /// A group in which nothing has panicked.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first panic, once there is one.
    pub async fn first(&self) -> Fault {
        loop {
            self.0.reported.cancelled().await;
            if let Some(fault) = self.seen() {
                return fault;
            }
        }
    }

    /// The first panic so far.
    pub fn seen(&self) -> Option<Fault> {
        self.state().first.clone()
    }

    /// Reports the panics of this group to `others` too, including an earlier one.
    pub fn forward(&self, others: &Self) {
        let first = {
            let mut state = self.state();
            state.forward = Some(others.clone());
            state.first.clone()
        };
        if let Some(fault) = first {
            others.report(fault);
        }
    }

    /// Runs `work` to its end, or to its panic, which is reported.
    pub fn guard<F: Future>(&self, work: F) -> Guarded<F> {
        Guarded { work, faults: self.clone() }
    }

    /// Runs `work`; `None` if it panicked, which is reported.
    pub fn catch<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| self.caught(&*payload)).ok()
    }

    fn caught(&self, payload: &(dyn Any + Send)) {
        let fault = Fault::new(payload);
        fault.log();
        self.report(fault);
    }

    fn report(&self, fault: Fault) {
        let forward = {
            let mut state = self.state();
            state.first.get_or_insert_with(|| fault.clone());
            state.forward.clone()
        };
        self.0.reported.cancel();
        if let Some(others) = forward {
            others.report(fault);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is changed in whole values.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pin_project! {
    /// A future whose panic is reported and ends it.
    #[derive(Debug)]
    pub struct Guarded<F> {
        #[pin]
        work: F,
        faults: Faults,
    }
}

impl<F: Future> Future for Guarded<F> {
    /// `None` when it panicked.
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match catch_unwind(AssertUnwindSafe(|| this.work.poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(payload) => {
                this.faults.caught(&*payload);
                Poll::Ready(None)
            }
        }
    }
}

/// Ends this process with `exit_code` when anything in it panics, in whatever thread or library, instead of printing it.
///
/// The panic is logged, and then told to `end`, which saves what can be saved. Both happen on another thread, at most
/// for `within`: the one that panicked stands still, and may hold a lock. Nothing unwinds. Only for programs: a process
/// has one such hook.
pub fn end_process(exit_code: i32, within: Duration, end: impl Fn(&Fault) + Send + Sync + 'static) {
    let (end, is_ending) = (Arc::new(end), AtomicBool::new(false));
    std::panic::set_hook(Box::new(move |panic| {
        if thread::current().name() == Some(ENDING) {
            exit(exit_code);
        }
        if is_ending.swap(true, Ordering::Relaxed) {
            // The first panic counts, and ends the process soon.
            loop {
                thread::park();
            }
        }
        let fault = Fault::of(panic);
        // It is taken where the owner asks for one (RUST_BACKTRACE).
        let backtrace = Backtrace::capture();
        let (ended, ending) = mpsc::sync_channel::<()>(1);
        let end = Arc::clone(&end);
        // Without a thread nothing is saved, and nobody waits.
        let _thread = thread::Builder::new().name(ENDING.into()).spawn(move || {
            fault.log();
            if backtrace.status() == BacktraceStatus::Captured {
                tracing::error!(%backtrace, "where it panicked");
            }
            end(&fault);
            drop(ended);
        });
        let _ended = ending.recv_timeout(within);
        exit(exit_code)
    }));
}

/// The thread that ends the process.
const ENDING: &str = "fault";
/// Characters kept of a panic's message.
pub const TEXT_CHARS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_is_kept_and_told_to_others() {
        let (faults, others) = (Faults::new(), Faults::new());
        assert_eq!(faults.guard(async { 7 }).await, Some(7));
        assert_eq!((faults.catch(|| 8), faults.seen()), (Some(8), None));
        assert_eq!(faults.guard(async { panic!("first of {}", 2) }).await, None::<()>);
        faults.forward(&others);
        assert_eq!(faults.catch(|| panic!("second")), None::<()>);
        assert_eq!(faults.first().await.text, "first of 2");
        assert_eq!(others.first().await, faults.first().await);
    }

    #[tokio::test]
    async fn a_panic_is_told_to_others_that_were_there_before() {
        let (faults, others) = (Faults::new(), Faults::new());
        faults.forward(&others);
        assert_eq!(faults.catch(|| std::panic::panic_any(7)), None::<()>);
        assert_eq!(others.seen().unwrap().text, "it did not say why");
    }
}
