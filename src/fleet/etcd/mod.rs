//! Speaks to etcd: the machine's questions and watches in, gRPC over one HTTP/2 connection out.
//!
//! Works with etcd 3.4 and later. `connect` makes the connection, with TLS and a client certificate; `ask` turns each
//! question into a request; `watch` keeps all watches on one stream; `status` says what etcd's errors mean. `api` is
//! generated from the `.proto` files beside it, see `tests/etcd_api.rs`.

mod ask;
mod connect;
mod status;
mod watch;

/// etcd's own words, generated.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
mod api {
    pub(super) mod mvccpb {
        include!("api/mvccpb.rs");
    }
    pub(super) mod etcdserverpb {
        include!("api/etcdserverpb.rs");
    }
}

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::fleet::engine::{Ask, EngineError, Revision, Told};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Agent, Cell, Prefix};
use rustls::crypto::CryptoProvider;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::timeout;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::engine::{Answer, Engine, Health, Report, Reporting};
use connect::Connector;
use status::Failure;
use watch::Watches;

pub use connect::{ClientFiles, EtcdError, TlsFiles};

/// How to reach etcd, and as whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of its members: `https://host:2379`, or `http://…` without TLS. One is used at a time.
    pub endpoints: Vec<String>,
    /// Files of TLS; needed where the addresses begin with `https`.
    pub tls: Option<TlsFiles>,
    /// The cell.
    pub cell: Cell,
    /// Our agent.
    pub agent: Agent,
}

/// An etcd, as one sidecar reaches it.
pub struct Etcd {
    shared: Arc<Shared>,
    watches: Watches,
}

/// What questions and watches have in common.
struct Shared {
    cell: Cell,
    agent: Agent,
    line: Arc<Line>,
    health: Mutex<Health>,
    /// Lists at once: they are what is large.
    lists: Semaphore,
}

/// The way to etcd, of one agent or of several.
struct Line {
    connector: Connector,
    connection: Mutex<Connection>,
    /// Wakes the watches when another connection is in use.
    moved: Notify,
}

/// The connection in use.
struct Connection {
    channel: Channel,
    /// Counts connections, so that an error of an old one says nothing of this one.
    number: u64,
    /// Questions in a row that had no answer.
    failures: u32,
}

impl Etcd {
    /// A way to reach etcd; it connects with the first question. Files are read again at each connection, so that
    /// certificates are renewed without a restart.
    ///
    /// **Errors:** an address or a file that is none. That nobody answers is no error here.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn new(settings: Settings, crypto: Arc<CryptoProvider>) -> Result<Arc<Self>, EtcdError> {
        let Settings { endpoints, tls, cell, agent } = settings;
        let connector = Connector::new(&endpoints, tls, &agent, crypto).await?;
        let connection = Mutex::new(Connection { channel: connector.channel(), number: 0, failures: 0 });
        Ok(Self::over(Arc::new(Line { connector, connection, moved: Notify::new() }), cell, agent))
    }

    /// The same etcd for another agent of the same cell, over the same connection: for a program that stands for many.
    pub fn beside(&self, agent: Agent) -> Arc<Self> {
        Self::over(Arc::clone(&self.shared.line), self.shared.cell.clone(), agent)
    }

    fn over(line: Arc<Line>, cell: Cell, agent: Agent) -> Arc<Self> {
        let health = Mutex::new(Health { endpoint: line.connector.endpoint(), ..Health::default() });
        let shared = Shared { cell, agent, line, health, lists: Semaphore::new(LISTS_MAX) };
        Arc::new(Self { shared: Arc::new(shared), watches: Watches::default() })
    }
}

impl Engine for Etcd {
    fn ask(&self, ask: Ask) -> Answer {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if shared.line.connector.is_resting() {
                return Err(EngineError::Lost);
            }
            let is_list = matches!(ask, Ask::List { .. });
            let permit = match is_list {
                true => timeout(TURN_TIME, shared.lists.acquire()).await.map(Some),
                false => Ok(None),
            };
            // A list that does not get its turn is one that was not answered.
            let Ok(_turn) = permit else { return Err(EngineError::Lost) };
            let (channel, number) = shared.channel();
            let answer = timeout(ASK_TIME, shared.answer(channel, ask)).await;
            shared.note(number, answer.unwrap_or(Err(Failure::Silence(ASK_TIME))))
        })
    }

    fn watch(&self, watch: WatchId, prefix: Prefix, after: Revision) {
        self.watches.add(watch, &prefix, &self.shared.cell, after);
    }

    fn unwatch(&self, watch: WatchId) {
        self.watches.remove(watch);
    }

    fn probe(&self) {
        self.watches.probe();
    }

    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting {
        Box::pin(async move { self.watches.report(&self.shared, to).await })
    }

    fn health(&self) -> Health {
        self.shared.health().clone()
    }
}

impl Shared {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.line.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection in use, and its number.
    fn channel(&self) -> (Channel, u64) {
        let connection = self.connection();
        (connection.channel.clone(), connection.number)
    }

    /// Returns once another connection than this one is in use.
    async fn replaced(&self, number: u64) {
        loop {
            let moved = self.line.moved.notified();
            if self.channel().1 != number {
                return;
            }
            moved.await;
        }
    }

    /// Takes in what became of a question, and says it in the machine's words.
    fn note(&self, number: u64, answer: Result<Told, Failure>) -> Result<Told, EngineError> {
        match answer {
            Ok(told) => {
                self.note_answer(number);
                Ok(told)
            }
            Err(Failure::Said(error)) => {
                self.note_answer(number);
                Err(error)
            }
            Err(failure) => {
                let error = failure.error();
                if error == EngineError::Lost {
                    self.note_silence(number, failure.to_string());
                } else {
                    self.note_answer(number);
                    if matches!(error, EngineError::Denied | EngineError::Full) {
                        self.health().error = Some(failure.to_string());
                    }
                }
                Err(error)
            }
        }
    }

    fn note_answer(&self, number: u64) {
        let mut connection = self.connection();
        if connection.number == number {
            connection.failures = 0;
        }
        drop(connection);
        let mut health = self.health();
        health.error = None;
        health.endpoint = self.line.connector.endpoint();
    }

    /// A member that does not answer may hang while its connection stands: after a few questions another one is tried. Where there
    /// is no connection, each attempt tries them all.
    fn note_silence(&self, number: u64, error: String) {
        self.health().error = Some(error);
        if self.line.connector.is_resting() {
            return;
        }
        let mut connection = self.connection();
        if connection.number != number {
            return;
        }
        connection.failures += 1;
        if connection.failures >= FAILURES_MAX {
            self.line.connector.skip();
            let number = connection.number + 1;
            *connection = Connection { channel: self.line.connector.channel(), number, failures: 0 };
            drop(connection);
            self.line.moved.notify_waiters();
        }
    }
}

/// FLEET 5: a member that is cut off from the others says so at once, and does not answer from what it last knew.
fn led<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("health", &*self.shared.health()).finish_non_exhaustive()
    }
}

/// How long a question may take.
const ASK_TIME: Duration = Duration::from_secs(5);
/// How long a list may wait for its turn.
const TURN_TIME: Duration = Duration::from_secs(10);
/// Lists at once; ours.
const LISTS_MAX: usize = 8;
/// Questions in a row without an answer, after which another connection is made; ours.
const FAILURES_MAX: u32 = 2;
/// The longest message of etcd's: a page of values of the usual length is a quarter of it. **Units:** bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use capd_proto::identity::Identity;
    use futures_util::FutureExt as _;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_within_the_pause_after_a_failure_opens_no_connection() {
        // Its port is ours, and refuses connections until it listens.
        let member = TcpSocket::new_v4().unwrap();
        member.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let settings = Settings {
            endpoints: vec![format!("http://{}", member.local_addr().unwrap())],
            tls: None,
            cell: "test".parse().unwrap(),
            agent: Identity::from_seed([1; 32]).public_key().into(),
        };
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let etcd = Etcd::new(settings, crypto).await.unwrap();
        assert_eq!(etcd.ask(Ask::ReadFence).await, Err(EngineError::Lost));
        let said = etcd.health().error.unwrap();
        assert!(said.contains("refused"), "{said}");

        let listening = member.listen(8).unwrap();
        assert_eq!(etcd.ask(Ask::ReadFence).await, Err(EngineError::Lost));
        assert!(listening.accept().now_or_never().is_none());
        assert_eq!(etcd.health().error, Some(said));

        advance(Duration::from_millis(500)).await;
        tokio::select! {
            connection = listening.accept() => drop(connection.unwrap()),
            told = etcd.ask(Ask::ReadFence) => panic!("asked without a connection: {told:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agents_beside_each_other_ask_over_one_connection() {
        let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let agent = |seed| Identity::from_seed([seed; 32]).public_key().into();
        let settings = Settings {
            endpoints: vec![format!("http://{}", listening.local_addr().unwrap())],
            tls: None,
            cell: "test".parse().unwrap(),
            agent: agent(1),
        };
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let etcd = Etcd::new(settings, crypto).await.unwrap();
        let other = etcd.beside(agent(2));
        let silent = tokio::join!(etcd.ask(Ask::ReadFence), other.ask(Ask::ReadFence));
        assert_eq!(silent, (Err(EngineError::Lost), Err(EngineError::Lost)));
        assert!(listening.accept().now_or_never().is_some());
        assert!(listening.accept().now_or_never().is_none());
    }
}
