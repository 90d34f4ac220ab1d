//! Keeps a link to a peer up: tries its addresses in order, with growing pauses, until shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::identity::Did;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{Address, ConnectError, Transport};
use crate::close::CloseReason;
use crate::host::Host;
use crate::link::Link;
use crate::system::Random;
use crate::tls::ServerPin;
use crate::{quic, tcp};

impl ConnectError {
    /// The reason of a failed TLS handshake.
    pub(crate) fn of(error: io::Error, pin: Option<&Did>, pinned: &ServerPin) -> Self {
        match (pin, pinned.mismatch()) {
            (Some(expected), Some(found)) => Self::WrongPeer { expected: expected.clone(), found },
            _ => Self::Io(error),
        }
    }
}

/// Opens a link to `peer` at `address`: its name is resolved, and every IP address that it stands for is tried in turn. Who
/// answers there is decided by the key of `peer` alone.
///
/// **Errors:** [`ConnectError`] of the last try.
pub async fn connect(
    host: &Arc<Host>,
    address: &Address,
    peer: Option<&Did>,
) -> Result<Arc<Link>, ConnectError> {
    let mut last = None;
    for found in resolve(host, address).await? {
        let connected = match address.transport {
            Transport::Quic => quic::connect(host, found, peer).await,
            Transport::Tcp => tcp::connect(host, found, peer).await,
        };
        match connected {
            Ok(link) => return Ok(link),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(ConnectError::Closed(CloseReason::OpenTimedOut)))
}

/// What the address's name stands for at this moment: at least one.
async fn resolve(host: &Host, address: &Address) -> Result<Vec<SocketAddr>, ConnectError> {
    let resolved = host.system.names.resolve(&address.host, address.port);
    let unresolved = |source| ConnectError::Unresolved { host: address.host.clone(), source };
    match timeout(host.settings().handshake_timeout, resolved).await {
        Ok(resolved) => resolved.map_err(unresolved),
        Err(_elapsed) => {
            Err(unresolved(io::Error::new(io::ErrorKind::TimedOut, "the resolver has not answered in time")))
        }
    }
}

/// A peer that is dialled until it is [stopped](Self::stop) or the host shuts down. Dropping this changes nothing.
#[derive(Clone)]
pub struct Dialling(Arc<Shared>);

struct Shared {
    addresses: Mutex<Arc<[Address]>>,
    /// Ends the pause before the next round.
    renewed: Notify,
    stopped: CancellationToken,
}

impl Dialling {
    /// Dials other addresses from the next round on, which begins at once unless there is a link.
    pub fn set_addresses(&self, addresses: Vec<Address>) {
        *lock(&self.0.addresses) = addresses.into();
        self.0.renewed.notify_one();
    }

    /// Stops dialling. An open link stays.
    pub fn stop(&self) {
        self.0.stopped.cancel();
    }

    fn addresses(&self) -> Arc<[Address]> {
        Arc::clone(&lock(&self.0.addresses))
    }
}

/// Keeps a link to `peer` up until the host shuts down: dials the addresses in order, and again when the link is lost.
///
/// Pauses start at `redial_delay_min`, double up to `redial_delay_max`, and are shortened at random by up to half. They
/// start over once a link has lasted as long as the pause that would follow it. The service learns the outcome of each
/// failed round. A round in which the service [wants no link](crate::Service::wants_link) passes without a dial.
pub fn keep_connected(host: &Arc<Host>, peer: Did, addresses: Vec<Address>) -> Dialling {
    let dialling = Dialling(Arc::new(Shared {
        addresses: Mutex::new(addresses.into()),
        renewed: Notify::new(),
        stopped: CancellationToken::new(),
    }));
    let (host, dialled) = (Arc::clone(host), dialling.clone());
    let (tasks, shutdown) = (host.tasks.clone(), host.shutdown.clone());
    tasks.spawn(async move {
        // Stopping at any point is fine: links drain by themselves at shutdown, and half-open ones are given up.
        let dials = shutdown.run_until_cancelled(dial_forever(&host, &peer, &dialled));
        dialled.0.stopped.run_until_cancelled(dials).await;
    });
    dialling
}

async fn dial_forever(host: &Arc<Host>, peer: &Did, dialling: &Dialling) {
    let mut failures = 0;
    loop {
        let delay_after = |failures| {
            let settings = host.settings();
            delay(failures, settings.redial_delay_min, settings.redial_delay_max)
        };
        let linked = match host.service.wants_link(peer) {
            true => dial(host, peer, &dialling.addresses(), Some(delay_after(failures))).await,
            false => None,
        };
        if let Some(link) = linked {
            let since = Instant::now();
            link.closed().await;
            // A peer that takes links only to drop them is not dialled at full speed; one that crashes is.
            if since.elapsed() >= delay_after(failures) {
                failures = 0;
            }
        }
        let delay = delay_after(failures);
        failures = failures.saturating_add(1);
        tokio::select! {
            biased;
            () = sleep(jittered(delay, &host.system.random)) => {}
            () = dialling.0.renewed.notified() => failures = 0,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One round of dialling: the addresses in order, until one has a link. The service learns of a failed round.
pub async fn dial_once(host: &Arc<Host>, peer: &Did, addresses: &[Address]) -> Option<Arc<Link>> {
    dial(host, peer, addresses, None).await
}

/// The same; `again` is the longest time until the next round.
async fn dial(
    host: &Arc<Host>,
    peer: &Did,
    addresses: &[Address],
    again: Option<Duration>,
) -> Option<Arc<Link>> {
    let mut failures = Vec::new();
    for address in addresses {
        match connect(host, address, Some(peer)).await {
            Ok(link) => {
                info!(%peer, %address, link = %link.id(), "connected");
                return Some(link);
            }
            Err(error) => {
                debug!(%peer, %address, %error, "not reached");
                failures.push((address, error));
            }
        }
    }
    host.service.on_unreachable(peer, &failures, again);
    None
}

/// The pause after `failures` tries in a row: the smallest, doubled each time, at most the longest.
fn delay(failures: u32, min: Duration, max: Duration) -> Duration {
    2_u32.checked_pow(failures).and_then(|factor| min.checked_mul(factor)).map_or(max, |delay| delay.min(max))
}

/// Between half of `delay` and all of it, so that peers that lost each other at once do not return at once.
fn jittered(delay: Duration, random: &Random) -> Duration {
    // Without randomness the pause is its longest, which is safe.
    let random = random.u32().unwrap_or(u32::MAX);
    delay / 2 + (delay / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let (min, max) = (Duration::from_millis(250), Duration::from_secs(30));
        let delays: Vec<_> = (0..9).map(|failures| delay(failures, min, max).as_millis()).collect();
        assert_eq!(delays, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(delay(u32::MAX, min, max), max);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        let delay = Duration::from_secs(8);
        for _ in 0..1_000 {
            let jittered = jittered(delay, &Random::system());
            assert!(jittered >= delay / 2 && jittered <= delay, "{jittered:?}");
        }
    }
}
