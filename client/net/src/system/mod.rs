//! Nothing in; time, randomness, keys, threads, tasks and sockets out: all that a process takes from the machine under it.
//!
//! A sidecar and an agent's client each hold one [`System`]. The binaries use [`System::real`]. A simulation puts its
//! own parts in their places, and the rest of the code is none the wiser.

mod clock;
mod datagrams;
mod random;
mod readiness;
mod runtime;
mod tasks;
mod udp;

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub use clock::{Clock, Now, WallClock};
pub(crate) use datagrams::DATAGRAM_BYTES_MAX;
pub use random::Random;
pub(crate) use readiness::{Descriptor, WhenWritable, watch};
pub use runtime::runtime;
pub use tasks::{Spawn, Task, Tasks};
pub use udp::{Network, Udp};

/// The machine as one process meets it. Clones share their parts.
#[derive(Clone)]
pub struct System {
    /// What time it is.
    pub clock: Clock,
    /// Ids, keys of the moment, and jitter.
    pub random: Random,
    /// What TLS encrypts with, and where its handshakes draw their keys.
    pub crypto: Arc<CryptoProvider>,
    /// Where tasks run.
    pub tasks: Tasks,
    /// Where QUIC's sockets come from.
    pub udp: Udp,
}

impl System {
    /// The machine itself; the clock's monotonic time starts here.
    pub fn real() -> Self {
        Self {
            clock: Clock::start(),
            random: Random::system(),
            crypto: Arc::new(ring::default_provider()),
            tasks: Tasks::new(),
            udp: Udp::real(),
        }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("clock", &self.clock).finish_non_exhaustive()
    }
}
