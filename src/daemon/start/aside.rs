//! Runs work of a start on a thread of its own, which leaves no memory behind when it ends.

use std::{io, panic, thread};

/// Returns what `work` returns, when it has ended.
///
/// Whoever reads policies and compiles the body schemas frees nearly a megabyte of small pieces some milliseconds later. The
/// allocator keeps many of them for the thread that freed them, which here ends.
///
/// # Errors
/// The system starts no more threads.
pub(super) fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("start".to_owned()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload)))
    })
}
