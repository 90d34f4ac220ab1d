//! Asks servers of others over HTTP: a request in; its answer, or the truth of whether it was sent, out.
//!
//! Each request has a connection of its own, so nothing is sent again behind the caller's back. Redirects are answers like
//! others: they are not followed. A token goes to the one origin that its owner named, and nowhere else.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What a remote server is asked with.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RemoteArgs {
    /// A file with the bearer token for the server; CAPD_REMOTE_TOKEN in the environment has it otherwise.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A file of certificates (PEM) to trust instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// A URL of HTTP or HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
}

/// Asks servers.
pub struct HttpClient {
    tls: Arc<ClientConfig>,
    /// The token, and the place whose origin gets it.
    token: Option<(HeaderValue, Place)>,
}

/// How a request fails that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// Not a byte of it was written.
    #[error("{0}")]
    NotSent(String),
    /// It may have been read: the connection broke afterwards, or the answer cannot be used.
    #[error("{0}")]
    Broken(String),
}

/// An answer whose body is yet to be read. Dropping it closes the connection.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub head: HeaderMap,
    body: Incoming,
    _connection: Connection,
}

/// The server-sent events of an answer.
#[derive(Debug)]
pub struct EventStream {
    answer: Answer,
    read: BytesMut,
    /// Bytes of `read` that end no event.
    searched: usize,
    event_bytes_max: usize,
    /// The id of the last event that had one: where another stream can go on.
    pub last_id: Option<String>,
    /// How long the server wants to be left alone before that.
    pub retry: Option<Duration>,
}

/// The task that drives a connection, for as long as somebody reads from it.
#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Place {
    /// Reads a URL.
    ///
    /// **Errors:** what is accepted instead.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{url:?}: {why}; accepted: a URL such as https://agents.example.com");
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user; tokens come from a file or the environment"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { is_tls, host: authority.host().to_owned(), port, path: path.to_owned() })
    }

    /// Another path and query at the same origin.
    pub fn at(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// A path below this one.
    pub fn below(&self, path: &str) -> Self {
        self.at(&format!("{}{path}", self.path.trim_end_matches('/')))
    }

    /// The path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether both are at one scheme, host and port.
    pub fn has_origin_of(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }

    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

impl RemoteArgs {
    /// The client for the server at `place`.
    ///
    /// **Errors:** a file that cannot be used, or a token that would travel unencrypted.
    pub fn client(&self, place: &Place) -> Result<HttpClient, String> {
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| format!("--token-file {}: {error}", file.display()))?)
            }
            None => std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()),
        };
        HttpClient::new(token.as_deref(), place, self.ca_file.as_deref())
    }
}

impl HttpClient {
    /// A client that sends `token`, if there is one, to the origin of `place` alone.
    ///
    /// **Errors:** a token that is none or would travel unencrypted; certificates that cannot be read.
    pub fn new(token: Option<&str>, place: &Place, ca_file: Option<&Path>) -> Result<Self, String> {
        let token = token.map(|token| bearer(token, place)).transpose()?;
        let roots = match ca_file {
            Some(file) => certificates(file)?,
            None if place.is_tls => system_certificates(),
            None => RootCertStore::empty(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls), token: token.map(|token| (token, place.clone())) })
    }

    /// Sends one request, and gives the head of its answer.
    ///
    /// **Errors:** [`ExchangeError`].
    pub async fn exchange(
        &self,
        method: Method,
        place: &Place,
        head: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Result<Answer, ExchangeError> {
        let request = self.request(method, place, head, body)?;
        let connecting = timeout(CONNECT_WAIT, self.connect(place));
        let stream = connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let unreachable = |error: &dyn fmt::Display| ExchangeError::NotSent(format!("{place}: {error}"));
        let stream = stream.map_err(|error| unreachable(&error))?;
        let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| unreachable(&error))?;
        let connection = Connection(tokio::spawn(drop_errors(connection)).abort_handle());
        match sender.try_send_request(request).await {
            Ok(response) => Ok(Answer::new(response, connection)),
            Err(mut error) => match error.take_message() {
                Some(_unsent) => Err(unreachable(error.error())),
                None => Err(ExchangeError::Broken(format!("{place}: {}", error.error()))),
            },
        }
    }

    fn request(
        &self,
        method: Method,
        place: &Place,
        head: &[(HeaderName, &str)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut request = Request::builder()
            .method(method)
            .uri(&place.path)
            .header(header::HOST, place.authority())
            .header(header::USER_AGENT, concat!("capd/", env!("CARGO_PKG_VERSION")));
        if let Some((token, of)) = &self.token
            && of.has_origin_of(place)
        {
            request = request.header(header::AUTHORIZATION, token);
        }
        for (name, value) in head {
            request = request.header(name, *value);
        }
        request.body(Full::new(body)).map_err(|error| ExchangeError::NotSent(error.to_string()))
    }

    async fn connect(&self, place: &Place) -> io::Result<Box<dyn Stream>> {
        let host = place.host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, place.port)).await?;
        stream.set_nodelay(true)?;
        if !place.is_tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?))
    }
}

impl fmt::Debug for HttpClient {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("has_token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Answer {
    fn new(response: Response<Incoming>, connection: Connection) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, head: head.headers, body, _connection: connection }
    }

    /// The media type of its body, without parameters.
    pub fn media_type(&self) -> &str {
        super::server::media_type(&self.head)
    }

    /// The text of a header field.
    pub fn field(&self, name: &HeaderName) -> Option<&str> {
        self.head.get(name).and_then(|value| value.to_str().ok())
    }

    /// The whole body.
    ///
    /// **Errors:** [`ExchangeError::Broken`], also for a body that is too long.
    pub async fn bytes(self, bytes_max: usize) -> Result<Bytes, ExchangeError> {
        let Self { body, _connection, .. } = self;
        let read = Limited::new(body, bytes_max).collect().await;
        let broken = |error: Box<dyn std::error::Error + Send + Sync>| {
            ExchangeError::Broken(format!("the answer was not read: {error}"))
        };
        read.map(|body| body.to_bytes()).map_err(broken)
    }

    /// The events of its body.
    pub fn events(self, event_bytes_max: usize) -> EventStream {
        EventStream {
            answer: self,
            read: BytesMut::new(),
            searched: 0,
            event_bytes_max,
            last_id: None,
            retry: None,
        }
    }
}

impl EventStream {
    /// The data of the next event; none at the end. Cancelling this future loses nothing.
    ///
    /// **Errors:** [`ExchangeError::Broken`], also for an event that is too long.
    pub async fn next(&mut self) -> Result<Option<String>, ExchangeError> {
        loop {
            while let Some(event) = self.whole() {
                self.note(&event);
                if let Some(data) = data_of(&event) {
                    return Ok(Some(data));
                }
            }
            if self.read.len() > self.event_bytes_max {
                let max = self.event_bytes_max;
                return Err(ExchangeError::Broken(format!("an event has more than {max} bytes")));
            }
            match self.answer.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ExchangeError::Broken(format!("the stream broke: {error}"))),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.read.extend(bytes.iter().filter(|byte| **byte != b'\r'));
                    }
                }
            }
        }
    }

    /// Remembers what an event says of the stream.
    fn note(&mut self, event: &[u8]) {
        let text = String::from_utf8_lossy(event);
        for line in text.lines() {
            if let Some(id) = value(line, "id").filter(|id| id.len() <= ID_BYTES_MAX) {
                self.last_id = Some(id.to_owned()).filter(|id| !id.is_empty());
            }
            if let Some(retry) = value(line, "retry").and_then(|millis| millis.parse().ok()) {
                self.retry = Some(Duration::from_millis(retry));
            }
        }
    }

    /// The lines up to the next empty one.
    fn whole(&mut self) -> Option<BytesMut> {
        let Some(end) = self.read[self.searched..].windows(2).position(|pair| pair == b"\n\n") else {
            self.searched = self.read.len().saturating_sub(1);
            return None;
        };
        let event = self.read.split_to(self.searched + end);
        self.searched = 0;
        drop(self.read.split_to(2));
        Some(event)
    }
}

/// The value of a line of an event, if the line is of this field.
fn value<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let value = line.strip_prefix(field)?.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

/// The data of an event; none of comments and of events without.
fn data_of(event: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(event);
    let lines: Vec<_> = text.lines().filter_map(|line| value(line, "data")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn bearer(token: &str, place: &Place) -> Result<HeaderValue, String> {
    if !place.is_tls && !place.is_loopback() {
        return Err(format!("{place}: a token would travel unencrypted; use https://"));
    }
    let wrong = || "the token is empty, or has characters that no header may have".to_owned();
    let token = Some(token.trim()).filter(|token| !token.is_empty()).ok_or_else(wrong)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}

fn certificates(file: &Path) -> Result<RootCertStore, String> {
    let failed = |error: &dyn fmt::Display| format!("--ca-file {}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    let read = CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() { Err(failed(&"it has no certificate")) } else { Ok(roots) }
}

fn system_certificates() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "certificates of the system were not read");
    }
    // A store that has some broken entries is as good as its others.
    roots.add_parsable_certificates(found.certs);
    roots
}

async fn drop_errors(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to a server ended");
    }
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The variable with the token.
pub const TOKEN_VARIABLE: &str = "CAPD_REMOTE_TOKEN";
/// Bytes of an event's id.
const ID_BYTES_MAX: usize = 1024;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const CONNECT_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_with_a_host_and_without_a_user() {
        let place = Place::parse("https://a.example/x/?y=1").unwrap();
        assert_eq!(place.to_string(), "https://a.example:443/x/?y=1");
        assert_eq!(
            Place::parse("http://[::1]:8080").unwrap().below("/tasks").to_string(),
            "http://[::1]:8080/tasks"
        );
        for wrong in ["", "a.example", "ftp://a.example", "https://user:pass@a.example/"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_goes_to_its_own_origin_and_never_unencrypted() {
        let place = |url: &str| Place::parse(url).unwrap();
        let client = HttpClient::new(Some("secret\n"), &place("http://127.0.0.1:1/card"), None).unwrap();
        let sent = |url: &str| {
            let request = client.request(Method::GET, &place(url), &[], Bytes::new()).unwrap();
            request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(sent("http://127.0.0.1:1/other").as_deref(), Some("Bearer secret"));
        for other in ["http://127.0.0.1:2/", "https://127.0.0.1:1/", "http://localhost:1/"] {
            assert_eq!(sent(other), None, "{other}");
        }
        assert!(!format!("{client:?}").contains("secret"));
        for (token, url) in
            [("secret", "http://a.example/"), ("", "https://a.example/"), ("a\nb", "https://a/")]
        {
            assert!(HttpClient::new(Some(token), &place(url), None).is_err(), "{token:?} {url}");
        }
    }

    #[test]
    fn data_of_an_event_is_its_data_lines() {
        assert_eq!(data_of(b"event: message\ndata: a\ndata:b").as_deref(), Some("a\nb"));
        assert_eq!(data_of(b": alive"), None);
        assert_eq!(data_of(b"id: 1"), None);
    }
}
