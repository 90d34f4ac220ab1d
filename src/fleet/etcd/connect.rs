//! Addresses and files in, one connection to one member of etcd out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::fleet::Agent;
use hyper_util::rt::TokioIo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

/// The files of TLS with etcd, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that etcd's certificate may be of.
    pub ca: PathBuf,
    /// What we show; none where etcd does not ask for it.
    pub client: Option<ClientFiles>,
}

/// Our certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate, and those that lead from it to etcd's authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why etcd cannot be reached as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No address.
    #[error("no endpoint of etcd is given: name at least one, such as https://127.0.0.1:2379")]
    NoEndpoint,
    /// An address that is none.
    #[error("endpoint {endpoint:?}: {why}")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file that cannot be read, or holds something else.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The TLS library refuses certificate or key.
    #[error("TLS to etcd: {0}")]
    Tls(#[from] rustls::Error),
}

/// One member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    text: String,
    host: String,
    port: u16,
    is_tls: bool,
}

/// Makes connections. Clones share which member is next.
#[derive(Clone)]
pub(super) struct Connector(Arc<Parts>);

struct Parts {
    members: Vec<Member>,
    /// Which member is used, or tried first.
    at: AtomicUsize,
    tls: Option<TlsFiles>,
    crypto: Arc<CryptoProvider>,
    rest: Mutex<Rest>,
}

/// The pause after attempts of which none reached a member.
#[derive(Debug, Default)]
struct Rest {
    /// Attempts in a row that failed.
    failures: u32,
    until: Option<Instant>,
}

/// A connection, with TLS or without.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connector {
    pub(super) async fn new(
        endpoints: &[String],
        tls: Option<TlsFiles>,
        agent: &Agent,
        crypto: Arc<CryptoProvider>,
    ) -> Result<Self, EtcdError> {
        let members = endpoints.iter().map(|endpoint| Member::parse(endpoint));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let first = members.first().ok_or(EtcdError::NoEndpoint)?;
        if first.is_tls && tls.is_none() {
            let (endpoint, why) = (first.text.clone(), "https needs the certificate of etcd's authority");
            return Err(EtcdError::Endpoint { endpoint, why });
        }
        if let Some(mixed) = members.iter().find(|member| member.is_tls != first.is_tls) {
            let (endpoint, why) = (mixed.text.clone(), "either all endpoints begin with https, or none does");
            return Err(EtcdError::Endpoint { endpoint, why });
        }
        // Each sidecar begins with another member, and with the same one each time.
        let at = usize::from(agent.as_bytes()[0]) % members.len();
        let parts = Parts { members, at: AtomicUsize::new(at), tls, crypto, rest: Mutex::default() };
        if let Some(tls) = &parts.tls {
            parts.tls_config(tls).await?;
        }
        Ok(Self(Arc::new(parts)))
    }

    /// The address of the member in use.
    pub(super) fn endpoint(&self) -> String {
        self.0.member(0).text.clone()
    }

    /// Lets the next connection begin with another member.
    pub(super) fn skip(&self) {
        self.0.at.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether no member took a connection so recently that none is to be asked again yet. A registry that is gone is asked for by
    /// each of a sidecar's feeds and leases, and one of them is enough to see that it is back.
    pub(super) fn is_resting(&self) -> bool {
        self.0.rest().until.is_some_and(|until| Instant::now() < until)
    }

    /// A connection that is made when it is used first, and again when it was lost.
    pub(super) fn channel(&self) -> Channel {
        let parts = Arc::clone(&self.0);
        let connect = move |_: Uri| {
            let parts = Arc::clone(&parts);
            async move { parts.connect().await.map(TokioIo::new) }
        };
        // The address here only names the authority, which etcd does not look at.
        Endpoint::from_static("http://etcd")
            .user_agent(concat!("capd/", env!("CARGO_PKG_VERSION")))
            .expect("the text is a header's")
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIME)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .buffer_size(QUEUED_MAX)
            .connect_with_connector_lazy(tower::service_fn(connect))
    }
}

impl Parts {
    fn member(&self, skipped: usize) -> &Member {
        let at = self.at.load(Ordering::Relaxed).wrapping_add(skipped);
        // There is at least one.
        &self.members[at % self.members.len()]
    }

    /// A connection to the first member that takes one.
    async fn connect(&self) -> io::Result<Box<dyn Io>> {
        let mut failed = None;
        for skipped in 0..self.members.len() {
            let member = self.member(skipped);
            let connected = timeout(CONNECT_TIME, self.connect_to(member)).await;
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within three seconds");
            match connected.unwrap_or_else(|_| Err(late())) {
                Ok(connection) => {
                    self.at.fetch_add(skipped, Ordering::Relaxed);
                    *self.rest() = Rest::default();
                    return Ok(connection);
                }
                Err(error) => {
                    let error = io::Error::new(error.kind(), format!("{}: {error}", member.text));
                    failed.get_or_insert(error);
                }
            }
        }
        let mut rest = self.rest();
        rest.failures = rest.failures.saturating_add(1);
        let doubled = REST_TIME_MIN.saturating_mul(1 << (rest.failures - 1).min(16));
        rest.until = Some(Instant::now() + doubled.min(REST_TIME_MAX));
        Err(failed.unwrap_or_else(|| io::Error::other("no endpoint")))
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect_to(&self, member: &Member) -> io::Result<Box<dyn Io>> {
        let socket = TcpStream::connect((member.host.as_str(), member.port)).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = self.tls.as_ref().filter(|_| member.is_tls) else { return Ok(Box::new(socket)) };
        let config = self.tls_config(tls).await.map_err(io::Error::other)?;
        let name = ServerName::try_from(member.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, socket).await?))
    }

    /// Reads the files; they may have been replaced.
    async fn tls_config(&self, tls: &TlsFiles) -> Result<ClientConfig, EtcdError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&tls.ca).await? {
            roots.add(certificate)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.crypto))
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots);
        let mut config = match &tls.client {
            Some(ClientFiles { certificate, key }) => {
                let chain = certificates(certificate).await?;
                let bytes = read(key).await?;
                let key = PrivateKeyDer::from_pem_slice(&bytes)
                    .map_err(|error| not_pem(key, format!("no private key in PEM: {error}")))?;
                config.with_client_auth_cert(chain, key)?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

impl Member {
    fn parse(text: &str) -> Result<Self, EtcdError> {
        let wrong = |why| EtcdError::Endpoint { endpoint: text.to_owned(), why };
        let uri: Uri = text.parse().map_err(|_| wrong("no address; write https://HOST:PORT"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(wrong("must begin with https:// or http://")),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("must end after the port"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(PORT);
        if is_tls && ServerName::try_from(host.clone()).is_err() {
            return Err(wrong("has a host that no certificate can name"));
        }
        Ok(Self { text: text.to_owned(), host, port, is_tls })
    }
}

async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let bytes = read(path).await?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| not_pem(path, format!("no certificate in PEM: {error}")))?;
    if found.is_empty() {
        return Err(not_pem(path, "no certificate in PEM".to_owned()));
    }
    Ok(found)
}

async fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    let failed = |source| EtcdError::File { path: path.to_owned(), source };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).await.map_err(failed)?;
    Ok(bytes)
}

fn not_pem(path: &Path, why: String) -> EtcdError {
    EtcdError::File { path: path.to_owned(), source: io::Error::other(why) }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("members", &self.0.members).finish_non_exhaustive()
    }
}

/// The port of etcd's clients.
const PORT: u16 = 2379;
/// How long one member has to take a connection.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// After the first attempt that reached no member, doubled with each further one, and the most; ours. Attempts need no jitter: they
/// are made for questions, whose pauses have some.
const REST_TIME_MIN: Duration = Duration::from_millis(500);
const REST_TIME_MAX: Duration = Duration::from_secs(4);
/// How often a silent connection is tried, and how long the answer may take; etcd allows a ping every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(5);
/// What etcd may send before we have taken it in: one of its longest messages. **Units:** bytes.
const WINDOW_BYTES: u32 = super::MESSAGE_BYTES_MAX as u32;
/// Requests that wait for the connection.
const QUEUED_MAX: usize = 1_024;
/// The longest file of certificates. **Units:** bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    async fn connector(endpoints: &[&str], tls: Option<TlsFiles>) -> Result<Connector, EtcdError> {
        let endpoints: Vec<_> = endpoints.iter().map(|text| (*text).to_owned()).collect();
        let agent = Identity::from_seed([1; 32]).public_key().into();
        Connector::new(&endpoints, tls, &agent, Arc::new(rustls::crypto::ring::default_provider())).await
    }

    #[tokio::test]
    async fn endpoints_are_read_and_mistakes_in_them_named() {
        let read = |text| Member::parse(text).map(|member| (member.host, member.port, member.is_tls));
        assert_eq!(read("http://127.0.0.1:2479").unwrap(), ("127.0.0.1".into(), 2479, false));
        assert_eq!(read("https://etcd-0.etcd.svc/").unwrap(), ("etcd-0.etcd.svc".into(), 2379, true));
        assert_eq!(read("https://[::1]:1").unwrap(), ("::1".into(), 1, true));
        for (text, why) in [
            ("etcd-0:2379", "must begin with"),
            ("", "no address"),
            ("ftp://etcd-0", "must begin with"),
            ("http://etcd-0/v3", "must end after the port"),
            ("https://a b", "no address"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("endpoint {text:?}: {why}")), "{error}");
        }
        assert!(matches!(connector(&[], None).await, Err(EtcdError::NoEndpoint)));
        let error = connector(&["https://a"], None).await.unwrap_err().to_string();
        assert!(error.contains("https needs"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_attempt_that_reached_no_member_there_is_a_pause_that_doubles() {
        // Its port is ours, and refuses connections until it listens.
        let member = tokio::net::TcpSocket::new_v4().unwrap();
        member.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoint = format!("http://{}", member.local_addr().unwrap());
        let connector = connector(&[&endpoint], None).await.unwrap();
        assert!(!connector.is_resting());
        for pause_ms in [500, 1_000, 2_000, 4_000, 4_000] {
            assert!(connector.0.connect().await.is_err());
            tokio::time::advance(Duration::from_millis(pause_ms - 1)).await;
            assert!(connector.is_resting(), "{pause_ms}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!connector.is_resting(), "{pause_ms}");
        }
        let listening = member.listen(1).unwrap();
        assert!(connector.0.connect().await.is_ok());
        assert!(!connector.is_resting());
        drop(listening);
        assert!(connector.0.connect().await.is_err());
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(!connector.is_resting());
    }

    #[tokio::test]
    async fn files_that_hold_something_else_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let tls = || Some(TlsFiles { ca: ca.clone(), client: None });
        let missing = connector(&["https://a"], tls()).await.unwrap_err().to_string();
        assert!(missing.contains("ca.pem: No such file"), "{missing}");
        std::fs::write(&ca, "nothing").unwrap();
        let empty = connector(&["https://a"], tls()).await.unwrap_err().to_string();
        assert!(empty.ends_with("ca.pem: no certificate in PEM"), "{empty}");
        let error = connector(&["https://a", "http://b"], tls()).await.unwrap_err().to_string();
        assert!(error.contains("either all endpoints"), "{error}");
    }
}
