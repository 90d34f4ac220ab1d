//! Serves one connection: each request through the door to its route, and the answers back.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::sleep;
use tower::ServiceExt as _;
use tracing::debug;

use super::{Api, door};
use crate::net::http::{Connection, Front, Visitor};

/// What answers HTTP.
pub(super) struct HttpFront {
    api: Arc<Api>,
    router: Router,
}

impl HttpFront {
    pub(super) fn new(api: Arc<Api>) -> Self {
        Self { router: super::router(Arc::clone(&api)), api }
    }
}

impl Front for HttpFront {
    fn serve(&self, connection: Connection) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (api, router) = (Arc::clone(&self.api), self.router.clone());
        Box::pin(async move { serve(&api, router, connection).await })
    }
}

async fn serve(api: &Api, router: Router, connection: Connection) {
    let Connection { stream, visitor } = connection;
    let requests = {
        let visitor = Arc::clone(&visitor);
        service_fn(move |request| answer(router.clone(), Arc::clone(&visitor), request))
    };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(api.options().request_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), requests);
    let mut http = pin!(http);
    let ended = tokio::select! {
        biased;
        ended = http.as_mut() => ended,
        () = visitor.given_up.cancelled(), if visitor.is_opening() => {
            return debug!("a connection that showed no request made room for another");
        }
        () = visitor.shutdown.cancelled() => {
            http.as_mut().graceful_shutdown();
            tokio::select! {
                ended = http => ended,
                () = sleep(api.options().drain_timeout) => return,
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "an HTTP connection ended badly");
    }
}

async fn answer(
    router: Router,
    visitor: Arc<Visitor>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    visitor.opened();
    let mut response = match door::admit(request.headers(), visitor.token.as_ref()) {
        Ok(()) => router.oneshot(request.map(Body::new)).await?,
        Err(problem) => problem.into_response(),
    };
    let fields = response.headers_mut();
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    fields.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    Ok(response)
}

/// Largest head of a request. **Units:** bytes. **Source:** AGENT-API 1.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Keeps answers out of other sites' pages.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
