//! Tells frames and HTTP apart on a new local connection: a link, or HTTP requests for the API, out.
//!
//! One socket carries both. A frame begins with the high byte of its length, which is 0 for every accepted frame
//! (PROTOCOL 3). An HTTP/1.1 request begins with the first letter of its method.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use capd_proto::code::Code;
use capd_proto::link::Role;

use super::greeting::End;
use super::host::{Host, OpeningPermit, Permits};
use super::local::{self, Token};
use super::meter::Limit;
use super::socket;

/// Answers HTTP requests of the agent.
pub trait Front: Send + Sync + 'static {
    /// Serves one connection until it ends.
    fn serve(&self, connection: Connection) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A connection that speaks HTTP.
pub struct Connection {
    /// Its bytes.
    pub stream: Box<dyn Stream>,
    /// Its other end.
    pub visitor: Arc<Visitor>,
}

/// The other end of a connection, which counts as a local link until this is dropped.
pub struct Visitor {
    /// The token that each request must show; none on a unix socket, whose mode is the permission.
    pub token: Option<Token>,
    /// Set when it must close for others before it has sent a request.
    pub given_up: CancellationToken,
    /// Set when the sidecar stops: no further request is accepted.
    pub shutdown: CancellationToken,
    opening: Mutex<Option<OpeningPermit>>,
    _permits: Permits,
}

impl Visitor {
    /// Records that it sent the head of a request: it no longer counts as half open.
    pub fn opened(&self) {
        drop(self.opening().take());
    }

    /// Whether it has not sent one yet.
    pub fn is_opening(&self) -> bool {
        self.opening().is_some()
    }

    fn opening(&self) -> MutexGuard<'_, Option<OpeningPermit>> {
        // It is taken in one step, so a panic leaves nothing half done.
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A socket whose first byte can be looked at.
pub(super) trait Peeked: Stream + Sized + Sync {
    /// The byte that it begins with; none when it ends before.
    fn first_byte(&self) -> impl Future<Output = io::Result<Option<u8>>> + Send;

    /// Drives it as a link.
    fn link(self, host: &Arc<Host>, end: End, permits: Permits, deadline: Instant) -> io::Result<()>;
}

macro_rules! peeked {
    ($stream:ty) => {
        impl Peeked for $stream {
            async fn first_byte(&self) -> io::Result<Option<u8>> {
                loop {
                    self.readable().await?;
                    match self.try_io(Interest::READABLE, || peek(self)) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        peeked => return peeked,
                    }
                }
            }

            fn link(self, host: &Arc<Host>, end: End, permits: Permits, deadline: Instant) -> io::Result<()> {
                let halves = socket::split(self.into_std()?)?;
                local::serve(host, local::opening(Role::Server, end, halves, deadline, Some(permits)));
                Ok(())
            }
        }
    };
}

peeked!(UnixStream);
peeked!(TcpStream);

fn peek(socket: &impl AsFd) -> io::Result<Option<u8>> {
    let mut first = [0];
    let (read, _) = rustix::net::recv(socket, &mut first[..], rustix::net::RecvFlags::PEEK)?;
    Ok((read == 1).then_some(first[0]))
}

/// Looks at the first byte of a connection and gives it to whom it speaks to.
pub(super) fn sort<S: Peeked>(
    host: &Arc<Host>,
    stream: S,
    end: End,
    permits: Permits,
    deadline: Instant,
    turned_away: &Arc<Semaphore>,
) {
    let (host, tasks, turned_away) = (Arc::clone(host), host.tasks.clone(), Arc::clone(turned_away));
    tasks.spawn(async move {
        let given_up = permits.wait();
        let first = tokio::select! {
            biased;
            () = given_up.cancelled() => return local::turn_away(&host, stream, Limit::LinksOpening, &turned_away),
            // The link's own rules say what becomes of one that is silent, or open when the sidecar stops.
            () = host.shutdown.cancelled() => Ok(None),
            () = sleep_until(deadline) => Ok(None),
            first = stream.first_byte() => first,
        };
        let first = match first {
            Ok(first) => first,
            Err(error) => return debug!(%error, "a local connection broke before it spoke"),
        };
        match (first, host.front()) {
            (Some(byte), Some(front)) if byte.is_ascii_alphabetic() => {
                serve(&host, &*front, stream, end.token, given_up, permits).await;
            }
            _ => {
                if let Err(error) = stream.link(&host, end, permits, deadline) {
                    warn!(%error, "an agent's connection cannot be watched");
                }
            }
        }
    });
}

/// What somebody who speaks HTTP is told when there is no place.
pub(super) fn crowded(what: &str) -> Vec<u8> {
    let code = Code::OVERLOADED;
    let body = serde_json::json!({
        "type": format!("urn:capd:error:{}", code.0),
        "title": code.name(),
        "status": 503,
        "detail": format!("the sidecar {what}"),
        "code": code.0,
        "retry": "backoff",
        "outcome": "refused",
    })
    .to_string();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn serve(
    host: &Host,
    front: &dyn Front,
    stream: impl Stream,
    token: Option<Token>,
    given_up: CancellationToken,
    mut permits: Permits,
) {
    let opening = Mutex::new(permits.opening.take());
    let shutdown = host.shutdown.clone();
    let visitor = Arc::new(Visitor { token, given_up, shutdown, opening, _permits: permits });
    front.serve(Connection { stream: Box::new(stream), visitor }).await;
}
