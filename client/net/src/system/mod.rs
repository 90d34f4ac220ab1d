//! Provides everything that a process takes from its machine: time, randomness, keys, threads, tasks and sockets.
//!
//! A sidecar and an agent's client each hold one [`System`]. The binaries use [`System::real`]. A simulation
//! substitutes its own parts, and the rest of the code does not notice.

mod clock;
#[cfg(feature = "peer")]
mod datagrams;
#[cfg(feature = "peer")]
mod names;
mod random;
mod readiness;
mod runtime;
mod tasks;
#[cfg(feature = "peer")]
mod udp;

use std::fmt;
#[cfg(feature = "peer")]
use std::sync::Arc;

#[cfg(feature = "peer")]
use rustls::crypto::{CryptoProvider, ring};

pub use clock::{Clock, Now, WallClock};
#[cfg(feature = "peer")]
pub(crate) use datagrams::DATAGRAM_BYTES_MAX;
#[cfg(feature = "peer")]
pub use names::{Names, Resolver};
pub use random::Random;
pub(crate) use readiness::{Descriptor, WhenWritable, watch};
pub use runtime::runtime;
pub(crate) use runtime::stirred;
pub use tasks::{Spawn, Task, Tasks, Work};
#[cfg(feature = "peer")]
pub use udp::{Network, Udp};

/// The machine as one process sees it. Clones share their parts.
#[derive(Clone)]
pub struct System {
    /// The time.
    pub clock: Clock,
    /// Ids, ephemeral keys, and jitter.
    pub random: Random,
    /// The cryptography of TLS, and the source of its handshake keys.
    #[cfg(feature = "peer")]
    pub crypto: Arc<CryptoProvider>,
    /// Where tasks run.
    pub tasks: Tasks,
    /// Where QUIC's sockets come from.
    #[cfg(feature = "peer")]
    pub udp: Udp,
    /// Where the host names of peers are resolved.
    #[cfg(feature = "peer")]
    pub names: Names,
}

impl System {
    /// The machine itself; the clock's monotonic time starts here.
    pub fn real() -> Self {
        Self {
            clock: Clock::start(),
            random: Random::system(),
            #[cfg(feature = "peer")]
            crypto: Arc::new(ring::default_provider()),
            tasks: Tasks::new(),
            #[cfg(feature = "peer")]
            udp: Udp::real(),
            #[cfg(feature = "peer")]
            names: Names::real(),
        }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("clock", &self.clock).finish_non_exhaustive()
    }
}
