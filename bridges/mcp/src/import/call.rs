//! One call of an imported tool: an invocation in; its one result, with the truth of what ran, out.

use std::sync::Arc;

use bytes::Bytes;
use capd_bridge::import::served::{Served, not_executed};
use capd_bridge::import::tool::Tool;
use capd_client::{Invocation, Reporter, WireError, to_cbor};
use capd_proto::code::Code;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};

use super::peer::{Peer, PeerError, Report};
use crate::content;

/// Serves a call with whichever server runs.
///
/// **Errors:** 5002 when nothing was sent, 5902 when the server may have run it, 5001 when it failed.
pub(super) async fn call(
    served: &Served,
    mut peer: watch::Receiver<Option<Arc<Peer>>>,
    invocation: Invocation,
) -> Result<Bytes, WireError> {
    let arguments = invocation.json()?;
    let (deadline, cancelled) = (invocation.deadline, invocation.cancelled.clone());
    let calls = async {
        let mut may_have_run = false;
        loop {
            let server = match running(&mut peer).await {
                Ok(server) => server,
                // What was written to the server before may have run.
                Err(_) if may_have_run => return Err(failure(&PeerError::Broken)),
                Err(error) => return Err(error),
            };
            match once(served, &server, &arguments, &invocation).await {
                // Nothing was written, or it does no harm to run twice.
                Err(PeerError::NotSent) => {}
                Err(PeerError::Broken) if served.is_idempotent => may_have_run = true,
                Err(error) => return Err(failure(&error)),
                Ok(result) => return result_of(&served.tool, &result, &invocation.reporter),
            }
            // The next server is another one.
            sleep(AGAIN_AFTER).await;
        }
    };
    tokio::select! {
        biased;
        () = cancelled.cancelled() => Err(WireError::new(Code::CANCELLED, "the call was cancelled")),
        ended = calls => ended,
        () = sleep_until(deadline) => Err(WireError::new(Code::TIMEOUT, "the server did not answer in time")),
    }
}

/// The server that runs, or the next one.
async fn running(peer: &mut watch::Receiver<Option<Arc<Peer>>>) -> Result<Arc<Peer>, WireError> {
    let wait = async {
        match peer.wait_for(Option::is_some).await {
            Ok(peer) => peer.clone().ok_or_else(|| not_executed("the server does not run")),
            Err(_) => Err(not_executed("the bridge is stopping")),
        }
    };
    // A server that is being started is waited for a little; a caller is told of a longer outage.
    tokio::time::timeout(START_WAIT, wait).await.unwrap_or_else(|_| {
        Err(not_executed("the server does not run at the moment; it is being started again"))
    })
}

async fn once(
    served: &Served,
    server: &Arc<Peer>,
    arguments: &Value,
    invocation: &Invocation,
) -> Result<Value, PeerError> {
    let mut meta = Map::new();
    meta.insert("io.capd/call".to_owned(), invocation.id.to_string().into());
    let trace = [("traceparent", &invocation.trace.parent), ("tracestate", &invocation.trace.state)];
    for (key, text) in trace {
        meta.extend(text.as_ref().map(|text| (key.to_owned(), text.as_str().into())));
    }
    let (sender, mut reports) = mpsc::channel(REPORTS_MAX);
    let call = server.call(&served.tool.name, arguments.clone(), meta, sender);
    tokio::pin!(call);
    loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv() => pass_on(&invocation.reporter, &report),
            ended = &mut call => return ended,
        }
    }
}

/// A report that is not sent is no reason to fail the call.
fn pass_on(reporter: &Reporter, report: &Report) {
    if let Some(message) = &report.message {
        let _ = reporter.processing(Some(&shortened(message)), None);
    }
    if let Some(pct) = report.pct {
        let _ = reporter.progress(pct);
    }
}

fn result_of(tool: &Tool, result: &Value, reporter: &Reporter) -> Result<Bytes, WireError> {
    if result["resultType"] == "input_required" {
        let prompts = result["inputRequests"].as_object().into_iter().flat_map(|asked| asked.values());
        let prompts: Vec<_> = prompts.filter_map(|asked| asked["params"]["message"].as_str()).collect();
        let prompt = shortened(&prompts.join("; "));
        let _ = reporter.input_required(&prompt);
        let message = format!("the tool asks for input that no agent can give here: {prompt}");
        return Err(WireError::new(Code::INTERNAL_ERROR, message));
    }
    let blocks = result["content"].as_array().cloned().unwrap_or_default();
    if result["isError"] == true {
        let message = shortened(&content::text(&blocks));
        let message = if message.is_empty() { "the tool failed without a word".to_owned() } else { message };
        let details = json!({"content": blocks});
        return Err(WireError { code: Code::INTERNAL_ERROR, message, details: Some(to_cbor(&details)) });
    }
    if tool.output.is_some() {
        return match result.get("structuredContent") {
            Some(structured) => Ok(to_cbor(structured)),
            None => Err(WireError::new(
                Code::RESULT_SCHEMA_VIOLATION,
                "the tool declares an outputSchema and gave no structuredContent",
            )),
        };
    }
    let mut value = json!({"content": blocks});
    if let Some(structured) = result.get("structuredContent") {
        value["structuredContent"] = structured.clone();
    }
    Ok(to_cbor(&value))
}

fn failure(error: &PeerError) -> WireError {
    match error {
        PeerError::Answered(answered) => {
            WireError::new(Code::INTERNAL_ERROR, shortened(&answered.to_string()))
        }
        PeerError::NotSent => not_executed("the server does not run"),
        PeerError::Refused(_) => not_executed(shortened(&error.to_string())),
        PeerError::Broken => WireError::new(
            Code::INTERRUPTED,
            "the connection to the server broke after the request was written; whether the tool ran is unknown",
        ),
        PeerError::Timeout => WireError::new(Code::TIMEOUT, error.to_string()),
    }
}

/// As much of a foreign text as a message has.
fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// Reports that wait for a slow link.
const REPORTS_MAX: usize = 64;
const MESSAGE_CHARS_MAX: usize = 2_000;
/// How long a call waits for a server that is being started.
const START_WAIT: std::time::Duration = std::time::Duration::from_secs(20);
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(50);
