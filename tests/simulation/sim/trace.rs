//! What happens in a world in, one number out that is the same only for the same happenings at the same times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// The hash of everything so far. Clones are one trace.
#[derive(Clone)]
pub struct Trace {
    start: Instant,
    hash: Arc<AtomicU64>,
}

/// What kind of happening is told.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Happening {
    Packet = 1,
    Commit = 2,
    Execution = 3,
    Answer = 4,
    Crash = 5,
    Audit = 6,
}

impl Trace {
    /// An empty trace; time starts here.
    pub fn start() -> Self {
        Self { start: Instant::now(), hash: Arc::new(AtomicU64::new(0xcbf2_9ce4_8422_2325)) }
    }

    /// Virtual time since the start. **Units:** milliseconds.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment of a virtual time.
    pub fn moment(&self, at_ms: u64) -> Instant {
        self.start + std::time::Duration::from_millis(at_ms)
    }

    pub fn note(&self, happening: Happening, details: &[u64]) {
        let mut hash = mix(mix(self.hash.load(Ordering::Relaxed), self.now_ms()), happening as u64);
        for detail in details {
            hash = mix(hash, *detail);
        }
        self.hash.store(hash, Ordering::Relaxed);
    }

    pub fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }
}

/// One number out of two, the order counting.
pub fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// One number out of bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u64::from_be_bytes(word))
    })
}
