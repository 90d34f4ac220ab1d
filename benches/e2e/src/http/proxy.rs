//! Requests in; the same requests on pooled connections, and their answers back, out.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::uri::{Authority, Scheme};
use axum::response::{IntoResponse as _, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::app::serve;

/// Forwards to `to`.
pub(crate) async fn proxy(to: &str) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let next = Next { client, authority: to.parse().unwrap() };
    serve(Router::new().fallback(forward).with_state(next)).await;
}

#[derive(Clone)]
struct Next {
    client: Client<HttpConnector, Body>,
    authority: Authority,
}

async fn forward(State(next): State<Next>, mut request: Request) -> Response {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(next.authority);
    *request.uri_mut() = Uri::from_parts(parts).unwrap();
    next.client.request(request).await.unwrap().into_response()
}
