//! Resolves host names: a name in, a bounded number of addresses out. The system's resolver holds up no task.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread;

use tokio::sync::{Semaphore, oneshot};

/// Replaces the system's resolver.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses that a host name stands for, in the order in which they are tried. Must not block.
    ///
    /// **Errors:** it stands for none, or nobody can tell.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Where host names are resolved. Clones share it.
#[derive(Clone)]
pub struct Names(Source);

#[derive(Clone)]
enum Source {
    /// The system's, which takes a thread for each question: it may wait long for a server that does not answer.
    System(Arc<Semaphore>),
    Given(Arc<dyn Resolver>),
}

impl Names {
    /// The system's resolver.
    pub fn real() -> Self {
        Self(Source::System(Arc::new(Semaphore::new(QUESTIONS_MAX))))
    }

    /// No resolver: only IP addresses are reached.
    pub fn none() -> Self {
        Self::of(Arc::new(Nobody))
    }

    /// This resolver.
    pub fn of(resolver: Arc<dyn Resolver>) -> Self {
        Self(Source::Given(resolver))
    }

    /// What `host` stands for at this moment, without repetitions, no more than [`ADDRESSES_MAX`]; an IP address stands
    /// for itself.
    ///
    /// **Errors:** those of the resolver, and `NotFound` for a name without an address. There is no time limit here.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let all = match &self.0 {
            Source::Given(resolver) => {
                resolver.resolve(host)?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
            }
            Source::System(places) => of_system(places, host.to_owned(), port).await?,
        };
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in all {
            if found.len() < ADDRESSES_MAX && !found.contains(&address) {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }
}

async fn of_system(places: &Arc<Semaphore>, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let gone = || io::Error::other("the resolver has ended without an answer");
    let place = Arc::clone(places).acquire_owned().await.map_err(|_closed| gone())?;
    let (answer, answered) = oneshot::channel();
    // A thread of its own: at shutdown nobody waits for a resolver that does not answer.
    thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(|found| found.take(TAKEN_MAX).collect());
        // Whoever asked may be gone; the place is taken until the resolver is done.
        drop((answer.send(found), place));
    })?;
    answered.await.map_err(|_gone| gone())?
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::System(_) => "Names(system)",
            Source::Given(_) => "Names(given)",
        })
    }
}

/// Resolves nothing.
struct Nobody;

impl Resolver for Nobody {
    fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "there is no resolver here"))
    }
}

/// Addresses of one name that are tried.
pub(super) const ADDRESSES_MAX: usize = 16;
/// Addresses taken from the system's resolver, which may repeat some.
const TAKEN_MAX: usize = 4 * ADDRESSES_MAX;
/// Questions to the system's resolver at a time; each holds a thread.
const QUESTIONS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each name with its addresses, repeated.
    struct Answers(Vec<IpAddr>);

    impl Resolver for Answers {
        fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
            Ok(self.0.iter().chain(&self.0).copied().collect())
        }
    }

    fn given(count: u8) -> Names {
        Names::of(Arc::new(Answers((0..count).map(|last| IpAddr::from([192, 0, 2, last])).collect())))
    }

    #[tokio::test]
    async fn a_name_stands_for_sixteen_addresses_at_most_and_each_counts_once() {
        for (count, taken) in [(1, 1), (3, 3), (16, 16), (17, 16), (200, 16)] {
            let found = given(count).resolve("capd-headless", 7_001).await.unwrap();
            assert_eq!(found.len(), taken);
            assert_eq!(found[0], "192.0.2.0:7001".parse().unwrap());
        }
        let error = given(0).resolve("capd-headless", 7_001).await.unwrap_err();
        assert_eq!(error.to_string(), "the name has no address");
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_resolver() {
        let at = |host: &'static str| async move { Names::none().resolve(host, 1).await };
        assert_eq!(at("192.0.2.7").await.unwrap(), ["192.0.2.7:1".parse().unwrap()]);
        assert_eq!(at("::1").await.unwrap(), ["[::1]:1".parse().unwrap()]);
        assert_eq!(at("localhost").await.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn the_system_knows_localhost_and_nothing_under_invalid() {
        let names = Names::real();
        let found = names.resolve("localhost", 7_001).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        // RFC 6761: this name stands for nothing, anywhere.
        assert!(names.resolve("capd.invalid", 7_001).await.is_err());
    }
}
