//! Writes lines of the log in a thread of its own, and counts the lines it had to drop.
//!
//! Logging never waits: a stopped terminal, or a collector that does not read, must not stop calls. So the queue is
//! bounded. A line that finds it full is dropped and counted.

use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written. Clones are one queue.
#[derive(Clone)]
pub struct Lines(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There is something to write.
    some: Condvar,
    /// There is nothing left to write.
    none: Condvar,
    dropped: AtomicU64,
    #[cfg(feature = "test-hooks")]
    is_in_step: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct State {
    /// Whole lines, one behind the other.
    waiting: Vec<u8>,
    /// Bytes and lines that wait or are being written.
    bytes: usize,
    lines: usize,
    /// Dropped lines that the log does not tell of yet.
    untold: u64,
    /// The thread that writes. Its own lines, which tell of those that were dropped, always find a place.
    writer: Option<ThreadId>,
    /// Whether it writes, or is about to say something.
    is_busy: bool,
}

impl Lines {
    /// A queue of at most [`BYTES_MAX`] and [`LINES_MAX`], written to `out`. Once `out` accepts lines again, `tell` is
    /// called with the number of dropped ones.
    ///
    /// **Errors:** the system gives no thread.
    pub fn start(out: impl Write + Send + 'static, tell: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let lines = Self(Arc::new(Shared {
            state: Mutex::default(),
            some: Condvar::new(),
            none: Condvar::new(),
            dropped: AtomicU64::new(0),
            #[cfg(feature = "test-hooks")]
            is_in_step: false.into(),
        }));
        let shared = Arc::clone(&lines.0);
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.keep_writing(out, tell))?;
        Ok(lines)
    }

    /// Queues a line, its end included, or drops it.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.0.state();
        // A line longer than all that may wait is written while no other waits.
        let has_place = state.bytes == 0
            || state.bytes + line.len() <= BYTES_MAX && state.lines < LINES_MAX
            || state.writer == Some(thread::current().id());
        if !has_place {
            state.untold += 1;
            drop(state);
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        state.bytes += line.len();
        state.lines += 1;
        let is_first = !state.is_busy && state.lines == 1;
        drop(state);
        if is_first {
            self.0.some.notify_one();
        }
        #[cfg(feature = "test-hooks")]
        self.step();
    }

    /// For tests that read the log of a process while it runs: from here on, logging waits, which it never does
    /// otherwise.
    #[cfg(feature = "test-hooks")]
    pub fn keep_in_step(&self) {
        self.0.is_in_step.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "test-hooks")]
    fn step(&self) {
        let is_writer = self.0.state().writer == Some(thread::current().id());
        if self.0.is_in_step.load(Ordering::Relaxed) && !is_writer {
            self.flush(Duration::from_secs(30));
        }
    }

    /// Waits until every queued line is written, at most for `within`; returns whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        let waits = |state: &mut State| state.is_busy || state.lines > 0;
        let waited = self.0.none.wait_timeout_while(self.0.state(), within, waits);
        waited.is_ok_and(|(_, ended)| !ended.timed_out())
    }

    /// Lines dropped so far.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn keep_writing(&self, mut out: impl Write, tell: impl Fn(u64)) {
        let mut batch = Vec::new();
        loop {
            let lines = {
                let mut state = self.state();
                state.writer = Some(thread::current().id());
                state.is_busy = false;
                if state.lines == 0 {
                    self.none.notify_all();
                }
                let waits = |state: &mut State| state.lines == 0;
                let mut state = self.some.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
                state.is_busy = true;
                mem::swap(&mut batch, &mut state.waiting);
                state.lines
            };
            let written = write_all(&mut out, &batch);
            let untold = {
                let mut state = self.state();
                state.bytes -= batch.len();
                state.lines -= lines;
                match written {
                    Ok(()) => mem::take(&mut state.untold),
                    Err(_) => {
                        state.untold += lines as u64;
                        self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
                        0
                    }
                }
            };
            if untold > 0 {
                tell(untold);
            }
            batch.clear();
            batch.shrink_to(BYTES_KEPT);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in a critical section panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of `bytes`, also to a descriptor that others have set not to wait.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

/// Writes one line; an event is written at once.
#[derive(Debug)]
pub struct Line<'a>(&'a Lines);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// Most bytes that wait. Ours: the lines of some thousand calls, so that a burst loses none while the thread waits to
/// run.
pub const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most lines that wait.
pub const LINES_MAX: usize = 32_768;
/// Bytes of a batch that stay allocated for the next.
const BYTES_KEPT: usize = 64 * 1024;
/// Pause before the next attempt to write to a descriptor that is full and does not wait.
const FULL_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Takes a batch when it is told to, and says what it took.
    struct Gate {
        opened: Receiver<io::Result<()>>,
        taken: SyncSender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.opened.recv().unwrap_or(Ok(()))?;
            self.taken.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A queue behind a gate, what opens it, what came through, and how often which number was told.
    fn gated() -> (Lines, SyncSender<io::Result<()>>, Receiver<String>, Receiver<u64>) {
        let (open, opened) = sync_channel(64);
        let (taken, took) = sync_channel(64);
        let (tell, told) = sync_channel(64);
        let lines = Lines::start(Gate { opened, taken }, move |dropped| tell.send(dropped).unwrap()).unwrap();
        (lines, open, took, told)
    }

    #[test]
    fn lines_are_written_in_order_and_a_flush_waits_for_them() {
        let (lines, open, took, _told) = gated();
        lines.push(b"one\n");
        assert!(!lines.flush(Duration::from_millis(10)));
        lines.push(b"two\n");
        drop(open);
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!(took.try_iter().collect::<String>(), "one\ntwo\n");
        assert_eq!(lines.dropped(), 0);
    }

    #[test]
    fn what_finds_no_place_is_dropped_counted_and_told_of_once() {
        let (lines, open, took, told) = gated();
        let line = vec![b'x'; BYTES_MAX / 4];
        for _ in 0..7 {
            lines.push(&line);
        }
        assert_eq!(lines.dropped(), 3);
        drop(open);
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!(took.try_iter().map(|taken| taken.len()).sum::<usize>(), BYTES_MAX);
        lines.push(b"and on\n");
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn more_short_lines_than_may_wait_are_dropped_too() {
        let (lines, open, _took, told) = gated();
        for _ in 0..LINES_MAX + 5 {
            lines.push(b"\n");
        }
        assert_eq!(lines.dropped(), 5);
        drop(open);
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!(told.recv(), Ok(5));
    }

    #[test]
    fn lines_that_cannot_be_written_are_told_of_when_others_can_be() {
        let (lines, open, took, told) = gated();
        open.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        lines.push(b"lost\n");
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!((lines.dropped(), told.try_recv().is_err()), (1, true));
        drop(open);
        lines.push(b"kept\n");
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!((took.recv().unwrap(), told.recv().unwrap()), ("kept\n".to_owned(), 1));
    }

    #[test]
    fn a_line_longer_than_all_that_may_wait_is_written_alone() {
        let (lines, open, took, _told) = gated();
        lines.push(&vec![b'x'; BYTES_MAX + 1]);
        lines.push(b"no place\n");
        drop(open);
        assert!(lines.flush(Duration::from_secs(30)));
        assert_eq!((took.recv().unwrap().len(), lines.dropped()), (BYTES_MAX + 1, 1));
    }
}
