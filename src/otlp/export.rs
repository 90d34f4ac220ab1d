//! Posts batches to a collector: one at a time, again after a failure, and no longer than their time.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::protobuf::{Field, Message, field};
use super::queue::{Batch, Queue};
use super::span::{Value, write};

/// Whose spans they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `service.name`.
    pub name: String,
    /// `service.instance.id`.
    pub instance: String,
}

/// Why a batch was not taken.
#[derive(Debug)]
enum Failure {
    /// The collector may take it later.
    Later(String),
    /// It never will.
    Refused(String),
}

impl Queue {
    /// Exports spans for ever. `target` says where to, and whose they are, each time that it is asked; without a target
    /// spans are dropped.
    pub async fn export(&self, target: impl Fn() -> Option<(Endpoint, Resource)> + Sync) {
        let mut is_failing = false;
        loop {
            let batch = self.next().await;
            let taken = self.deliver(&batch, &target, &mut is_failing).await;
            self.settle(taken, batch.count - taken);
        }
    }

    /// Sends a batch, again after a pause where that may help. How many of its spans the collector took.
    async fn deliver(
        &self,
        batch: &Batch,
        target: &(impl Fn() -> Option<(Endpoint, Resource)> + Sync),
        is_failing: &mut bool,
    ) -> u64 {
        let mut pause = PAUSE_MIN;
        for attempt in 1..=ATTEMPTS_MAX {
            let Some((endpoint, resource)) = target() else { return 0 };
            match send(&endpoint, body(&resource, batch)).await {
                Ok(rejected) => {
                    if std::mem::take(is_failing) {
                        tracing::info!(%endpoint, "the collector takes spans again");
                    }
                    return batch.count.saturating_sub(rejected);
                }
                Err(failure) => {
                    let (Failure::Later(error) | Failure::Refused(error)) = &failure;
                    // Once, not every few seconds.
                    if !std::mem::replace(is_failing, true) {
                        tracing::warn!(%endpoint, error, "the collector does not take spans; calls go on without them");
                    }
                    if matches!(failure, Failure::Refused(_)) || attempt == ATTEMPTS_MAX || self.is_closing()
                    {
                        return 0;
                    }
                }
            }
            let _closing = timeout(pause, self.closing()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        0
    }
}

/// The body of an export. **Shape:** `ExportTraceServiceRequest`.
fn body(resource: &Resource, batch: &Batch) -> Bytes {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = Vec::with_capacity(batch.spans.len() + ENVELOPE_BYTES);
    Message(&mut out).message(1, |resource_spans| {
        resource_spans.message(1, |message| {
            for (key, value) in [
                ("service.name", resource.name.as_str()),
                ("service.instance.id", &resource.instance),
                ("telemetry.sdk.name", "capd"),
                ("telemetry.sdk.language", "rust"),
                ("telemetry.sdk.version", version),
            ] {
                message.message(1, |attribute| write(attribute, key, Value::Text(value)));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, b"capd").bytes(2, version.as_bytes());
            });
            scope_spans.0.extend_from_slice(&batch.spans);
        });
    });
    out.into()
}

/// Posts a body. How many of its spans the collector rejected.
async fn send(endpoint: &Endpoint, body: Bytes) -> Result<u64, Failure> {
    let later = |error: &dyn std::fmt::Display| Failure::Later(error.to_string());
    match timeout(REQUEST_TIMEOUT, exchange(endpoint, body)).await {
        Err(_) => Err(Failure::Later(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
        Ok(Err(error)) => Err(later(&error)),
        Ok(Ok((status, _))) if RETRYABLE.contains(&status) => {
            Err(later(&format_args!("HTTP status {status}")))
        }
        Ok(Ok((status, _))) if !status.is_success() => Err(Failure::Refused(format!("HTTP status {status}"))),
        Ok(Ok((_, answer))) => Ok(rejected(&answer)),
    }
}

async fn exchange(
    endpoint: &Endpoint,
    body: Bytes,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let request = Request::post(endpoint.path())
        .header(HOST, endpoint.authority.as_str())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("capd/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))?;
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut exchanged = pin!(async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
        Ok((status, answer.to_bytes()))
    });
    tokio::select! {
        biased;
        answer = exchanged.as_mut() => answer,
        // What the collector sent before it closed the connection may still be on its way here.
        _ = connection => exchanged.await,
    }
}

/// `partial_success.rejected_spans` of an `ExportTraceServiceResponse`.
fn rejected(answer: &[u8]) -> u64 {
    let Some(Field::Bytes(partial)) = field(answer, 1) else { return 0 };
    match field(partial, 1) {
        Some(Field::Number(rejected)) => rejected,
        Some(Field::Bytes(_)) | None => 0,
    }
}

/// What a collector answers that may take the spans later. **Source:** OTLP, retryable response codes.
const RETRYABLE: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];
/// How long one request may take, from the connection to the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is sent before it is dropped.
const ATTEMPTS_MAX: u32 = 5;
/// Pause before a batch is sent again; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes around the spans, for one allocation that fits.
const ENVELOPE_BYTES: usize = 1024;
