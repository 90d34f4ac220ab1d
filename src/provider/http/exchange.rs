//! Makes one request on its own connection, and interprets the answer.

use std::io;
use std::pin::pin;

use axum::http::{HeaderValue, Request, StatusCode, header};
use bytes::Bytes;
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::code::Code;
use capd_proto::envelope::Envelope;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use super::place::Reach;
use super::{HttpSpec, failure};
use crate::provider::{Invocation, Outcome, error_result};

/// What a program answered.
struct Answer {
    status: StatusCode,
    kind: String,
    body: Bytes,
}

/// Posts a call, and says how it ended.
pub(super) async fn exchange(spec: &HttpSpec, invocation: &Invocation) -> Outcome {
    let params = match to_json(&invocation.params) {
        Ok(params) => params.to_string(),
        Err(error) => return failure(Code::SCHEMA_VIOLATION, error.to_string()),
    };
    let Ok(request) = request(spec, invocation, params) else {
        return failure(Code::INTERNAL_ERROR, "the provider's URL and headers make no request".to_owned());
    };
    let stream = match connect(&spec.place.reach).await {
        Ok(stream) => stream,
        // Nothing was written yet.
        Err(error) => {
            let message = format!("the provider does not take connections: {}", error.kind());
            return failure(Code::UNAVAILABLE, message);
        }
    };
    match answer(stream, request, spec.answer_bytes_max).await {
        Ok(answer) => outcome(&answer),
        // The program may have read the request, so it is not sent again from here.
        Err(_) if spec.idempotent => Outcome::Lost,
        Err(error) => {
            let message =
                format!("the connection to the provider broke after the request was written: {error}");
            failure(Code::INTERRUPTED, message)
        }
    }
}

fn request(
    spec: &HttpSpec,
    invocation: &Invocation,
    params: String,
) -> Result<Request<Full<Bytes>>, axum::http::Error> {
    let left = invocation.deadline.saturating_duration_since(Instant::now());
    let mut request = Request::post(spec.place.path.as_str())
        .header(header::HOST, spec.place.host.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, application/problem+json")
        .header(header::USER_AGENT, concat!("capd/", env!("CARGO_PKG_VERSION")))
        .header("capd-call", invocation.key.id.to_string())
        .header("capd-capability", invocation.capability.to_string())
        .header("capd-caller", invocation.key.from.as_str())
        .header("capd-deadline-ms", u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    for field in ["traceparent", "tracestate"] {
        let envelope = Envelope::decode(&invocation.envelope).ok();
        let text = envelope.and_then(|envelope| envelope.ext_text(field).map(|text| text.into_owned()));
        // Callers write it, so it may be no header's value.
        if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
            request = request.header(field, value);
        }
    }
    for (name, value) in &spec.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::from(params)))
}

/// A stream of bytes in both directions.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn connect(reach: &Reach) -> io::Result<Box<dyn Stream>> {
    let stream = match reach {
        Reach::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Reach::Addresses(addresses) => TcpStream::connect(addresses.as_slice()).await?,
        Reach::Name(name, port) => TcpStream::connect((name.as_str(), *port)).await?,
    };
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

async fn answer(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut exchanged = pin!(async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let body = Limited::new(response.into_body(), bytes_max).collect().await?.to_bytes();
        Ok(Answer { status, kind, body })
    });
    tokio::select! {
        biased;
        answer = exchanged.as_mut() => answer,
        // What the program sent before it closed the connection may still be on its way here.
        _ = connection => exchanged.await,
    }
}

/// 2xx JSON is the result, `problem+json` an error, anything else 5001.
fn outcome(answer: &Answer) -> Outcome {
    let Answer { status, kind, body } = answer;
    let unusable = |what: &str| {
        failure(
            Code::INTERNAL_ERROR,
            format!("the provider answered with HTTP status {}: {what}", status.as_u16()),
        )
    };
    if kind == "application/problem+json" {
        return match serde_json::from_slice(body) {
            Ok(problem) => of_problem(&problem),
            Err(_) => unusable("its problem document is not JSON"),
        };
    }
    if status.is_redirection() {
        return unusable("redirects are not followed");
    }
    if !status.is_success() {
        return unusable("no problem document says why");
    }
    let value = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
    match value {
        Ok(value) if kind == "application/json" || body.is_empty() => {
            let mut result = Vec::with_capacity(body.len());
            from_json(&value, &mut result);
            Outcome::Success(result.into())
        }
        Ok(_) => unusable("its body is not of type application/json"),
        Err(error) => unusable(&format!("its body is not one JSON document: {error}")),
    }
}

/// An error result: `code` and `details` as we spell them, `detail` or `title` for people.
fn of_problem(problem: &Value) -> Outcome {
    let code = problem["code"].as_u64().and_then(|code| u32::try_from(code).ok());
    let code = code.map_or(Code::INTERNAL_ERROR, Code);
    let words = problem["detail"].as_str().or(problem["title"].as_str());
    let words = words.unwrap_or("the provider gave no reason");
    error_result(code, words, &problem["details"])
}
