//! Leads to the sidecar: a local link for requests of ours, and HTTP over the same socket.

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::fault::Fault;
use crate::client::{Client, ClientError, Endpoint, Options};
use crate::net::Tasks;

/// The sidecar that the page shows.
pub(super) struct Sidecar {
    endpoint: Endpoint,
    any_owner: bool,
    /// The link; opened anew when it is closed.
    client: Mutex<Option<Client>>,
    tasks: Tasks,
}

impl Sidecar {
    pub(super) fn new(endpoint: Endpoint, any_owner: bool) -> Self {
        Self { endpoint, any_owner, client: Mutex::default(), tasks: Tasks::new() }
    }

    /// The link. **Errors:** the sidecar cannot be reached.
    pub(super) async fn connect(&self) -> Result<Client, ClientError> {
        let mut client = self.client.lock().await;
        if let Some(open) = client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(open.clone());
        }
        let options = Options {
            agent_name: TOOL.to_owned(),
            any_owner: self.any_owner,
            connect_timeout: CONNECT_TIMEOUT,
            ..Options::default()
        };
        let open = Client::connect(self.endpoint.clone(), options).await?;
        *client = Some(open.clone());
        Ok(open)
    }

    /// The answer to a GET, as JSON. **Errors:** what the sidecar says, or that it does not answer.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Fault> {
        let response = self.ask(request(Method::GET, path, Body::empty())?).await?;
        let status = response.status();
        let body =
            timeout(ANSWER_TIMEOUT, Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect()).await;
        let body = body.map_err(|_| Fault::away("the sidecar did not answer in time"))?;
        let bytes =
            body.map_err(|error| Fault::away(format!("the sidecar's answer broke off: {error}")))?.to_bytes();
        let document: Value = serde_json::from_slice(&bytes)
            .map_err(|error| Fault::away(format!("the sidecar's answer is no JSON: {error}")))?;
        if status.is_success() { Ok(document) } else { Err(said(status, &document)) }
    }

    /// Sends a request, and gives the answer while it comes. **Errors:** the sidecar cannot be reached.
    pub(super) async fn ask(&self, mut request: Request<Body>) -> Result<Response<Incoming>, Fault> {
        let fields = request.headers_mut();
        fields.insert(header::HOST, axum::http::HeaderValue::from_static("localhost"));
        let connected = async {
            match &self.endpoint {
                Endpoint::Unix(path) => {
                    let stream = UnixStream::connect(path).await?;
                    self.owned(&stream)?;
                    self.send(stream, request).await
                }
                Endpoint::Tcp { addr, token } => {
                    let bearer = [b"Bearer ", token.as_slice()].concat();
                    let bearer =
                        axum::http::HeaderValue::from_bytes(&bearer).map_err(std::io::Error::other)?;
                    request.headers_mut().insert(header::AUTHORIZATION, bearer);
                    self.send(TcpStream::connect(addr).await?, request).await
                }
            }
        };
        let response = timeout(ANSWER_TIMEOUT, connected).await;
        let response = response.map_err(|_| Fault::away("the sidecar did not answer in time"))?;
        response.map_err(|error| Fault::away(format!("the sidecar cannot be reached: {error}")))
    }

    /// **Errors:** another user listens on the socket.
    fn owned(&self, stream: &UnixStream) -> std::io::Result<()> {
        let owner = stream.peer_cred()?.uid();
        if self.any_owner || owner == 0 || owner == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        Err(std::io::Error::other(format!("its socket belongs to the user {owner}")))
    }

    async fn send<S>(&self, stream: S, request: Request<Body>) -> std::io::Result<Response<Incoming>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        self.tasks.spawn(async move {
            // Who reads the answer learns that it broke off.
            let _ended = connection.await;
        });
        sender.send_request(request).await.map_err(std::io::Error::other)
    }
}

/// A request of the page's. **Errors:** the path is none.
pub(super) fn request(method: Method, path: &str, body: Body) -> Result<Request<Body>, Fault> {
    let built = Request::builder().method(method).uri(path).header("capd-operator", TOOL).body(body);
    built.map_err(Fault::bad)
}

/// What the sidecar said instead of an answer.
pub(super) fn said(status: StatusCode, problem: &Value) -> Fault {
    let detail = problem["detail"].as_str().unwrap_or("the sidecar refused without a reason");
    let fault = Fault::new(status, detail);
    match problem["code"].as_u64().and_then(|code| u32::try_from(code).ok()) {
        Some(code) => fault.code(code),
        None => fault,
    }
}

/// How the page names itself to the sidecar, and in audit records.
const TOOL: &str = "capd-page";
/// Time for connecting to the sidecar.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the head of an answer, and again for the rest of one that is read whole.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer that is read whole. **Units:** bytes.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
