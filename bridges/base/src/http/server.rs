//! Serves HTTP on loopback: a listening socket in; requests of this machine, within bounds, out.
//!
//! It believes no page of a browser: `Host` must be this machine, or the name that its owner gave, and `Origin`, where there
//! is one, too.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::body::{self, Body};

/// Binds a loopback address. **Errors:** another address; those of the system.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let message =
            format!("{address} is no loopback address; put a proxy that authenticates clients before it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    TcpListener::bind(address).await
}

/// Serves clients until `stopped`, each request by `handle`.
///
/// **Errors:** those of the listening socket.
pub async fn serve<H, A>(listener: TcpListener, stopped: CancellationToken, handle: H) -> io::Result<()>
where
    H: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&connections).acquire_owned().await else { return Ok(()) };
        let stream = tokio::select! {
            () = stopped.cancelled() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (handle, stopped) = (handle.clone(), stopped.clone());
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(|request| {
                let answer = handle(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WAIT)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = stopped.cancelled() => {}
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                },
            }
        });
    }
}

/// Whether a request is for this machine, or for `public`, and of no other site's page.
///
/// **Errors:** 421 for another `Host`, 403 for another `Origin`.
pub fn check_origin(head: &HeaderMap, public: Option<&str>) -> Result<(), StatusCode> {
    let is_here = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let host = host_of(text);
        matches!(host, "localhost" | "127.0.0.1" | "[::1]") || public.is_some_and(|public| host == public)
    };
    let mut hosts = head.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_here(host) => {}
        _ => return Err(StatusCode::MISDIRECTED_REQUEST),
    }
    if !head.get_all(header::ORIGIN).iter().all(is_here) {
        return Err(StatusCode::FORBIDDEN);
    }
    Ok(())
}

/// The host of an authority, an origin or a URL.
pub fn host_of(text: &str) -> &str {
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest.split('/').next().unwrap_or(rest));
    authority.rsplit_once(':').map_or(authority, |(host, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority }
    })
}

/// The media type of a body, without parameters.
pub fn media_type(head: &HeaderMap) -> &str {
    let kind = head.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// The whole body, if it comes in time and is not too long.
///
/// **Errors:** 413 and 408.
pub async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, StatusCode> {
    if body::lower_bound(&body) > bytes_max as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    match timeout(BODY_WAIT, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEAD_WAIT: Duration = Duration::from_secs(30);
const BODY_WAIT: Duration = Duration::from_secs(60);
/// Connections at once; more of them wait.
const CONNECTIONS_MAX: usize = 512;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_no_scheme_port_or_path() {
        for text in ["a.example", "a.example:80", "http://a.example", "https://a.example:443/x:1/y"] {
            assert_eq!(host_of(text), "a.example", "{text}");
        }
        assert_eq!(host_of("[::1]:80"), "[::1]");
    }
}
