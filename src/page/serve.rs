//! Accepts connections of browsers, and leads each request through the door to its route.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::door::{self, Wanted};
use super::fault::{Fault, Json};
use super::{
    Shown, actions, assets, audit, configuration, contracts, fleet, lists, overview, policy, stream,
};

/// Answers until the future is dropped. At most 64 connections are open at once; further ones wait in the system's queue.
pub(super) async fn serve(listener: TcpListener, shown: &Arc<Shown>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = router(Arc::clone(shown));
    loop {
        // Nobody closes it.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shown, router) = (Arc::clone(shown), router.clone());
                let tasks = shown.system.tasks.clone();
                tasks.spawn(async move {
                    let _permit = permit;
                    connection(stream, shown, router).await;
                });
            }
            // Too many files are open, for example.
            Err(_error) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, shown: Arc<Shown>, router: Router) {
    // The option only saves time.
    let _unset = stream.set_nodelay(true);
    let requests = service_fn(move |request| answer(Arc::clone(&shown), router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), requests);
    // A browser that goes away is no fault.
    let _ended = connection.await;
}

fn router(shown: Arc<Shown>) -> Router {
    Router::new()
        .route("/session", post(session))
        .route("/data/overview", get(overview::overview))
        .route("/data/events", get(stream::events))
        .route("/data/self", get(lists::about))
        .route("/data/capabilities", get(lists::capabilities))
        .route("/data/capabilities/{id}", get(lists::capability))
        .route("/data/calls", get(lists::calls))
        .route("/data/calls/{id}", get(lists::call))
        .route("/data/contracts/{name}", get(contracts::matrix))
        .route("/data/requires", get(contracts::requires))
        .route("/data/fleet", get(fleet::report))
        .route("/data/policy", get(policy::rules))
        .route("/data/policy/why", get(policy::why))
        .route("/data/audit", get(audit::records))
        .route("/data/audit/check", get(audit::check))
        .route("/data/audit/export", get(audit::export))
        .route("/data/configuration", get(configuration::configuration))
        .route("/act/call", post(actions::call))
        .route("/act/cancel", post(actions::cancel))
        .route("/act/reload", post(actions::reload))
        .route("/act/drain", post(actions::drain))
        .route("/act/log", post(actions::log))
        .route("/act/ping", post(actions::ping))
        .fallback(nothing)
        .with_state(shown)
}

async fn answer(
    shown: Arc<Shown>,
    router: Router,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let asset = assets::find(request.uri().path());
    let wanted = match (asset, request.uri().path()) {
        (Some(_), _) => Wanted::Asset,
        (None, "/session") => Wanted::Session,
        (None, _) => Wanted::Data,
    };
    let admitted = door::admit(&shown.sessions, request.method(), request.headers(), wanted);
    let mut response = match (admitted, asset) {
        (Err(fault), _) => fault.into_response(),
        (Ok(()), Some(asset)) => file(request.method(), asset),
        (Ok(()), None) => router.oneshot(request.map(Body::new)).await?,
    };
    door::guard(response.headers_mut());
    Ok(response)
}

fn file(method: &Method, asset: assets::Asset) -> Response {
    if ![Method::GET, Method::HEAD].contains(method) {
        return Fault::new(StatusCode::METHOD_NOT_ALLOWED, "accepted: GET, HEAD").into_response();
    }
    let mut response = Response::new(Body::from(asset.bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    // Another version of the program has other files at the same place.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Opens a session for whoever knows the token.
async fn session(State(shown): State<Arc<Shown>>, body: Body) -> Result<Response, Fault> {
    let asked = document(body).await?;
    let opened = shown.sessions.open(asked["token"].as_str().unwrap_or_default())?;
    let mut response = Json(json!({"key": opened.key})).into_response();
    let cookie = HeaderValue::try_from(opened.cookie).map_err(Fault::away)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// A body that is JSON. **Errors:** 400, 408, 413.
pub(super) async fn document(body: Body) -> Result<Value, Fault> {
    let late = |_| Fault::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let read = timeout(HEAD_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await.map_err(late)?;
    let bytes =
        read.map_err(|error| Fault::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?.to_bytes();
    crate::client::value_of_json(&bytes).map_err(|fault| Fault::bad(format!("the body is {fault}")))
}

async fn nothing(uri: Uri) -> Fault {
    Fault::new(StatusCode::NOT_FOUND, format!("the page has no {:?}", uri.path()))
}

/// Connections that are open at once.
const CONNECTIONS_MAX: usize = 64;
/// Time for the head of a request, and again for its body.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request. **Units:** bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Largest body of a request: the params of a call. **Units:** bytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pause after the system gave no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
