//! Bounds nested calls, and runs deep work on a stack that is large enough.
//!
//! Validation recurses once per schema level, and a peer may supply both the schema and the payload. So the levels are
//! bounded before the walk, and a walk too deep for a worker's stack gets its own.

use std::thread;

/// Schema levels that any thread's stack holds.
const INLINE_LEVELS_MAX: usize = 512;
/// Stack of one level, in bytes; measured, with room (see the test beside the validator).
const LEVEL_STACK_BYTES: usize = 2 * 1024;
/// Largest stack of one walk, in bytes.
const STACK_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The walk would need more stack than one walk may have, or the system gave none.
#[derive(Debug)]
pub(super) struct TooDeep;

/// Whether a walk of so many levels may have the stack for them.
pub(super) const fn holds(levels: usize) -> bool {
    levels <= STACK_BYTES_MAX / LEVEL_STACK_BYTES
}

/// Runs `work`, which nests at most `levels` schema levels.
pub(super) fn with_levels<T: Send>(levels: usize, work: impl FnOnce() -> T + Send) -> Result<T, TooDeep> {
    if levels <= INLINE_LEVELS_MAX {
        return Ok(work());
    }
    if !holds(levels) {
        return Err(TooDeep);
    }
    let stack_bytes = levels * LEVEL_STACK_BYTES;
    thread::scope(|scope| {
        let walk = thread::Builder::new().name("schema".into()).stack_size(stack_bytes);
        let walk = walk.spawn_scoped(scope, work).map_err(|_| TooDeep)?;
        // A panic goes on where the walk was asked for.
        walk.join().map_err(|payload| std::panic::resume_unwind(payload))
    })
}
