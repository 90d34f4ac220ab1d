//! Calls over HTTP/1.1 in; their callers, the programs that serve them, and two bare proxies between, out.
//!
//! The caller, [`caller`], has a connection for each call in flight, as an agent's client has, and asks whatever it is
//! pointed at: a sidecar of capd or of Dapr, or a proxy. [`app`] is a program that listens, [`stream`] an agent that
//! reads its calls from its sidecar, [`proxy`] forwards and does nothing else.

mod app;
mod caller;
mod proxy;
mod stream;

use axum::http::HeaderValue;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(crate) use app::app;
pub(crate) use caller::{Target, caller};
pub(crate) use proxy::proxy;
pub(crate) use stream::provider;

/// Where the app answers.
pub(crate) const APP_PATH: &str = "/forecast";

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One end of a connection.
type Connection = SendRequest<Full<Bytes>>;

async fn connect(to: &str) -> Connection {
    let stream = TcpStream::connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}
