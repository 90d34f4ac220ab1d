//! Rounds in, requests over HTTP out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use tokio::time::interval;

use super::{Connection, JSON, connect};
use crate::load::Callee;
use crate::payload::{HTTP_BYTES, request_json, response_bytes};
use crate::role::rounds;

/// What is called.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// Where it listens.
    to: String,
    /// What is posted to.
    path: String,
    /// The file with the token that it wants to be shown.
    #[arg(long)]
    token: Option<PathBuf>,
    /// Whether each call has an idempotency key of its own.
    #[arg(long)]
    keyed: bool,
}

/// Calls there.
pub(crate) async fn caller(target: Target) {
    let read = |path: &PathBuf| format!("Bearer {}", std::fs::read_to_string(path).unwrap().trim());
    let authorization = target.token.as_ref().map(read);
    let caller = Caller { target: Arc::new(target), authorization, params: Bytes::new(), own: Own(None) };
    served(&caller).await;
    rounds(&caller).await;
}

/// Calls until there is a result: whatever stands between has to find the provider first.
async fn served(caller: &Caller) {
    let mut ticks = interval(TICK);
    let deadline = Instant::now() + PATIENCE;
    let mut caller = caller.sized(HTTP_BYTES);
    loop {
        ticks.tick().await;
        match caller.post().await {
            Ok(_) => return,
            Err(answer) => assert!(Instant::now() < deadline, "{answer}"),
        }
    }
}

#[derive(Clone)]
struct Caller {
    target: Arc<Target>,
    authorization: Option<String>,
    params: Bytes,
    own: Own,
}

/// A connection, which a copy does not share.
struct Own(Option<Connection>);

impl Clone for Own {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl Caller {
    /// **Errors:** an answer that is no result.
    async fn post(&mut self) -> Result<Bytes, String> {
        let Target { to, path, keyed, .. } = &*self.target;
        let mut request = Request::post(path).header(HOST, to).header(CONTENT_TYPE, JSON);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if *keyed {
            request = request.header("idempotency-key", key());
        }
        let request = request.body(Full::new(self.params.clone())).unwrap();
        let is_open = match &mut self.own.0 {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_open {
            self.own.0 = Some(connect(to).await);
        }
        let sender = self.own.0.as_mut().expect("it is connected");
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        if status.is_success() { Ok(body) } else { Err(format!("{status}: {body:?}")) }
    }
}

impl Callee for Caller {
    fn sized(&self, bytes: usize) -> Self {
        Self { params: request_json(bytes), ..self.clone() }
    }

    async fn call(&mut self) {
        let result = self.post().await.unwrap_or_else(|answer| panic!("{answer}"));
        assert_eq!(result.len(), response_bytes(self.params.len()), "the result is what the provider gave");
    }
}

/// A key that nobody has had.
fn key() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("e2e-{}-{number}", std::process::id())
}

/// Longest wait for the first result.
const PATIENCE: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(50);
