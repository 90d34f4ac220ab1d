//! Answers orchestrators and scrapers: whether the sidecar lives and is ready, and its metrics.
//!
//! `/livez`, `/readyz` and `/metrics`, and nothing else: no payload, no name of a capability or a peer. Whoever reaches
//! `listen.health` may read them. [`Source`] is what a sidecar must tell of itself.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::message::MetricFamily;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::admin;
use crate::net::Task;

/// What a sidecar tells of itself.
pub trait Source: Send + Sync + 'static {
    /// Every part, in the order in which they are listed.
    fn parts(&self) -> Vec<Part>;

    /// Every metric.
    fn metrics(&self) -> Vec<MetricFamily<'static>>;
}

/// One part of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is called.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// Why, or how much of it there is.
    pub detail: String,
}

/// How a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As configured.
    Ok,
    /// Not as wanted; the sidecar can do its work all the same.
    Degraded,
    /// The sidecar cannot do what it was configured to do.
    Failed,
}

impl State {
    const fn mark(self) -> &'static str {
        match self {
            Self::Ok => "[+]",
            Self::Degraded => "[~]",
            Self::Failed => "[-]",
        }
    }

    /// As `/readyz` says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// A listener that is bound and does not answer yet.
pub struct Listening {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Binds `address`. **Errors:** as the system gives them.
pub async fn bind(address: SocketAddr) -> io::Result<Listening> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(Listening { listener, address })
}

impl Listening {
    /// Answers until the future is dropped. `spawn` runs each connection, so that a panic in one is reported as that of any
    /// other task.
    ///
    /// At most 64 connections are open at once; further ones wait in the system's queue.
    pub async fn serve(self, source: Arc<dyn Source>, spawn: impl Fn(Task)) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // Nobody closes it.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let source = Arc::clone(&source);
                    spawn(Box::pin(async move {
                        let _permit = permit;
                        answer_all(stream, source).await;
                    }));
                }
                Err(error) => {
                    tracing::debug!(%error, "a health connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn answer_all(stream: TcpStream, source: Arc<dyn Source>) {
    let requests = service_fn(move |request: Request<Incoming>| {
        let response = answer(&*source, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), requests);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a health connection ended badly"),
    }
}

fn answer(source: &dyn Source, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let is_known = ["/livez", "/readyz", "/metrics"].contains(&request.uri().path());
    if is_known && ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "accepted: GET, HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        // Whoever gets an answer has been met by the one thread that everything runs on, and a part that panics ends the
        // process.
        "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => {
            let is_verbose = request.uri().query().is_some_and(|query| {
                query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="))
            });
            readiness(&source.parts(), is_verbose)
        }
        "/metrics" => {
            let mut metrics = text(StatusCode::OK, admin::text(&source.metrics()));
            metrics.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EXPOSITION));
            metrics
        }
        _ => {
            text(StatusCode::NOT_FOUND, "not found; accepted: /livez, /readyz?verbose, /metrics\n".to_owned())
        }
    }
}

/// **Shape:** `ok` or the parts that failed; with `verbose` every part, a line each, and the verdict last.
fn readiness(parts: &[Part], is_verbose: bool) -> Response<Full<Bytes>> {
    let is_ready = parts.iter().all(|part| part.state != State::Failed);
    let mut told = String::new();
    for part in parts.iter().filter(|part| is_verbose || part.state == State::Failed) {
        let Part { name, state, detail } = part;
        // Writing to a String does not fail.
        let _ = writeln!(told, "{} {name} {}: {detail}", state.mark(), state.as_str());
    }
    if is_verbose || is_ready {
        told.push_str(if is_ready { "ok\n" } else { "not ready\n" });
    }
    text(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, told)
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The text format of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections that are open at once.
const CONNECTIONS_MAX: usize = 64;
/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for all requests of a connection, so that one that reads no answer leaves room for others.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest head of a request. **Units:** bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Pause after the system gave no connection, because files ran out for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn told(parts: &[Part], is_verbose: bool) -> (u16, String) {
        let response = readiness(parts, is_verbose);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap_or_default().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn part(name: &'static str, state: State, detail: &str) -> Part {
        Part { name, state, detail: detail.to_owned() }
    }

    #[tokio::test]
    async fn only_a_part_that_failed_makes_a_sidecar_unready() {
        let mut parts =
            vec![part("journal", State::Ok, "12 changes"), part("peers", State::Degraded, "0 of 2")];
        assert_eq!(told(&parts, false).await, (200, "ok\n".to_owned()));
        let lines = "[+] journal ok: 12 changes\n[~] peers degraded: 0 of 2\n";
        assert_eq!(told(&parts, true).await, (200, format!("{lines}ok\n")));
        parts[0] = part("journal", State::Failed, "its disk is full");
        let failed = "[-] journal failed: its disk is full\n";
        assert_eq!(told(&parts, false).await, (503, failed.to_owned()));
        let lines = format!("{failed}[~] peers degraded: 0 of 2\nnot ready\n");
        assert_eq!(told(&parts, true).await, (503, lines));
    }
}
