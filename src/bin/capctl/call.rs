//! Implements `call`: name, params and limits of one call in; its result on stdout, its progress on stderr out.

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::time::Duration;

use capd::client::{
    Answer, CallHandle, CallRequest, Client, ClientError, JsonFault, Progress, Target, value_of_json,
};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::limits::TTL_MS_MAX;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::CallArgs;
use crate::capability::Wanted;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, again, capability, diagnostic, duration, names, output, time};

/// Makes the call and prints its result.
///
/// The first Ctrl-C cancels the call and waits for its end, the second one does not wait.
pub(crate) async fn run(sidecar: &Sidecar, args: CallArgs, json: bool) -> Result<(), Failure> {
    let wanted = Wanted::read(&args.capability, args.version.as_ref())?;
    let params = params(&args.params)?;
    let client = sidecar.connect().await?;
    let request = request(&args, wanted.target(&client).await?, &params);
    let request = match &args.to {
        Some(to) => request.to(names::find(&client, to).await?),
        None => request,
    };
    // From the moment the call may run, Ctrl-C cancels it.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let handle = client.call(request)?;
    let id = handle.id();
    let mut view = View::new(args.progress, json);
    view.sent(id);
    let (outcome, is_interrupted) = wait(&client, handle, &args, &mut interrupts, &mut view).await?;
    view.clear();
    if outcome.is_err() {
        names::learn(&client).await;
    }
    let printed = match outcome {
        Ok(answer) => print(id, &answer, json),
        Err(error @ ClientError::Refused(_)) if is_unknown(&error) => {
            Err(refused(&client, error, id, &args.capability).await)
        }
        Err(error) => Err(failure(error, id, &args)),
    };
    match (printed, is_interrupted) {
        (printed, false) => printed,
        (Ok(()), true) => Err(interrupted("interrupted; the call had already ended")),
        (Err(failure), true) => Err(failure.exit(Exit::Interrupted)),
    }
}

fn request(args: &CallArgs, target: Target, params: &Value) -> CallRequest {
    let mut request = CallRequest::new(target).params_json(params);
    if let Some(timeout) = args.timeout {
        request = request.timeout(timeout);
    }
    if let Some(id) = args.id {
        request = request.id(id);
    }
    if let Some(thread) = &args.thread {
        request = request.thread_id(thread.clone());
    }
    if let Some(affinity) = &args.affinity {
        request = request.affinity(affinity.as_str());
    }
    request.ttl(ttl(args))
}

/// How long the call may be asked about.
fn ttl(args: &CallArgs) -> Duration {
    let ttl = args.ttl.or_else(|| args.timeout.map(|timeout| TTL.max(timeout + TTL_MARGIN))).unwrap_or(TTL);
    ttl.min(Duration::from_millis(TTL_MS_MAX))
}

/// Why a call that was sent has no good end, and how to ask again where that could tell more.
fn failure(error: ClientError, id: MessageId, args: &CallArgs) -> Failure {
    let hint = match &error {
        ClientError::Timeout { .. } | ClientError::Closed(_) => Some(unknown(id, args)),
        ClientError::Result(wire) if !wire.is_final() => Some(unknown(id, args)),
        ClientError::Refused(wire) if wire.code == Code::INVALID_TIMESTAMP && args.id.is_some() => {
            let end_ms = id.ts_ms().saturating_add(duration::ms(ttl(args)));
            let (start, end) = (time::utc(id.ts_ms()), time::utc(end_ms));
            Some(format!("this id is valid from {start} to {end}; omit --id to make a new call"))
        }
        ClientError::Refused(wire) => refusal_hint(wire.code, &args.capability),
        _ => None,
    };
    let failure = Failure::from(error).about(id);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Why a call failed, with the next step after a refusal.
pub(crate) async fn refused(client: &Client, error: ClientError, id: MessageId, capability: &str) -> Failure {
    let hint = match &error {
        ClientError::Refused(wire) => refusal_hint(wire.code, capability),
        _ => None,
    };
    let failure = capability::not_found(client, error, capability).await.about(id);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(wire) if wire.code == Code::CAPABILITY_NOT_FOUND)
}

/// The next step after a refusal, with the capability's own name in it.
fn refusal_hint(code: Code, capability: &str) -> Option<String> {
    let name = capability.split([':', '@']).next().unwrap_or(capability);
    let capability = if capability.contains('@') { name } else { capability };
    match code {
        Code::SCHEMA_VIOLATION => Some(format!("to see the input schema: capctl describe {capability}")),
        Code::VERSION_MISMATCH => Some(format!("to see the versions that are served: capctl ls {name}")),
        Code::SCHEMA_DRIFT | Code::UNSUPPORTED_SCHEMA => Some(format!(
            "to see what is served: capctl describe {capability}; to check all that is required: capctl doctor"
        )),
        _ => None,
    }
}

/// What to do about a call that may have run.
fn unknown(id: MessageId, args: &CallArgs) -> String {
    format!("the call may have run, or may still run; to find out: {}", again::command(args, id))
}

/// Params from the command line, a file, or stdin.
pub(crate) fn params(text: &str) -> Result<Value, Failure> {
    let (source, bytes) = if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        ("stdin".to_owned(), bytes)
    } else if let Some(file) = text.strip_prefix('@') {
        let bytes =
            std::fs::read(Path::new(file)).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        (file.to_owned(), bytes)
    } else {
        ("--params".to_owned(), text.as_bytes().to_vec())
    };
    value_of_json(&bytes).map_err(|fault| {
        let failure = Failure::usage(format!("{source}: {fault}"));
        match fault {
            JsonFault::Malformed(_) => failure.hint("accepted: JSON, @FILE, or - for stdin"),
            JsonFault::Integer { .. } => failure,
        }
    })
}

/// Shows progress until the outcome; the flag says whether Ctrl-C came before.
async fn wait(
    client: &Client,
    mut handle: CallHandle,
    args: &CallArgs,
    interrupts: &mut Signal,
    view: &mut View,
) -> Result<(Result<Answer, ClientError>, bool), Failure> {
    let id = handle.id();
    let mut is_interrupted = false;
    loop {
        tokio::select! {
            progress = handle.progress() => match progress {
                Some(progress) => view.show(&progress),
                None => break,
            },
            _ = interrupts.recv() => {
                if is_interrupted {
                    view.clear();
                    return Err(interrupted("interrupted").about(id).hint(unknown(id, args)));
                }
                is_interrupted = true;
                view.note("cancelling; press Ctrl-C again to exit without waiting");
                let client = client.clone();
                tokio::spawn(async move {
                    if let Err(error) = client.cancel(id).await {
                        output::note(&format!("capctl: not cancelled: {}", output::printable(&error.to_string())));
                    }
                });
            }
        }
    }
    Ok((handle.outcome().await, is_interrupted))
}

fn print(id: MessageId, answer: &Answer, json: bool) -> Result<(), Failure> {
    let result = answer.json();
    if !json {
        if answer.is_deprecated {
            output::note("capctl: this version is deprecated");
        }
        if let Some(cost) = answer.cost_json() {
            output::note(&format!("capctl: estimated cost {cost}"));
        }
        return match result {
            Some(result) => output::print(&output::pretty(&result)),
            None => output::print(&notation(&answer.result)),
        };
    }
    let mut document = json!({"id": id.to_string(), "status": "success", "from": answer.from.as_str()});
    match result {
        Some(result) => document["result"] = result,
        None => document["result_diagnostic"] = notation(&answer.result).into(),
    }
    if let Some(ms) = answer.execution_time_ms {
        document["execution_time_ms"] = ms.into();
    }
    if let Some(cost) = answer.cost_json() {
        document["cost_estimate"] = cost;
    }
    if answer.is_deprecated {
        document["deprecated"] = true.into();
    }
    output::print_json(&document)
}

fn notation(item: &[u8]) -> String {
    diagnostic::notation(item, 0).unwrap_or_else(|error| format!("/ malformed: {error} /"))
}

fn interrupted(message: &str) -> Failure {
    Failure::unexpected(message).exit(Exit::Interrupted)
}

/// What of a call's course is shown on stderr: one line that changes, lines, JSON lines, or nothing.
enum View {
    Terminal { has_line: bool },
    Lines,
    Json,
    Nothing,
}

impl View {
    fn new(is_wanted: bool, json: bool) -> Self {
        match (json, std::io::stderr().is_terminal(), is_wanted) {
            (true, _, true) => Self::Json,
            (true, _, false) | (false, false, false) => Self::Nothing,
            (false, true, _) => Self::Terminal { has_line: false },
            (false, false, true) => Self::Lines,
        }
    }

    fn sent(&mut self, id: MessageId) {
        match self {
            Self::Json => output::note(&output::json_line(&json!({"event": "sent", "id": id.to_string()}))),
            Self::Terminal { .. } | Self::Lines | Self::Nothing => self.note(&format!("call {id}")),
        }
    }

    fn show(&mut self, progress: &Progress) {
        match self {
            Self::Json => output::note(&output::json_line(&event(progress))),
            Self::Terminal { .. } | Self::Lines | Self::Nothing => self.note(&words(progress)),
        }
    }

    fn note(&mut self, text: &str) {
        let text = output::one_line(text);
        match self {
            Self::Terminal { has_line } => {
                *has_line = true;
                output::overwrite(&text);
            }
            Self::Lines => output::note(&text),
            Self::Json => output::note(&output::json_line(&json!({"event": "note", "text": text}))),
            Self::Nothing => {}
        }
    }

    fn clear(&mut self) {
        if let Self::Terminal { has_line: true } = self {
            output::overwrite("");
        }
    }
}

fn words(progress: &Progress) -> String {
    match progress {
        Progress::Processing { status_text, eta_ms, .. } => {
            let text = status_text.as_deref().unwrap_or("working");
            eta_ms.map_or_else(|| text.to_owned(), |ms| format!("{text} (about {} s)", ms.div_ceil(1_000)))
        }
        Progress::Progress { pct } => format!("{pct} %"),
        Progress::InputRequired { prompt } => format!("waits for input: {prompt}"),
    }
}

fn event(progress: &Progress) -> Value {
    match progress {
        Progress::Processing { status_text, eta_ms, cancellable } => json!({
            "event": "processing", "status_text": status_text, "eta_ms": eta_ms, "cancellable": cancellable,
        }),
        Progress::Progress { pct } => json!({"event": "progress", "progress_pct": pct}),
        Progress::InputRequired { prompt } => json!({"event": "input_required", "prompt": prompt}),
    }
}

/// How long a call may be asked about unless its command line says otherwise: long enough for somebody to come back to it,
/// at the price of its place in the executor's ledger.
const TTL: Duration = Duration::from_secs(3_600);
/// How much longer than its timeout a call may be asked about at least, so that its end is still told.
const TTL_MARGIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};
    use capd::client::WireError;

    #[test]
    fn params_come_from_the_line_or_a_file() {
        assert_eq!(params(r#"{"a": 1}"#).unwrap(), json!({"a": 1}));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("params.json");
        std::fs::write(&file, "[1, 2]\n").unwrap();
        assert_eq!(params(&format!("@{}", file.display())).unwrap(), json!([1, 2]));
    }

    #[test]
    fn params_that_are_not_json_are_a_usage_error_with_their_place() {
        let failure = params("{a: 1}").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("line 1 column 2"), "{failure}");
        let failure = params("@/nonexistent/params.json").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("/nonexistent/params.json"), "{failure}");
    }

    const ID: &str = "0000018d746b37000000000000000001";

    fn call(line: &[&str]) -> CallArgs {
        let line = ["capctl", "call", "a.b.c"].iter().chain(line).copied();
        match args::parse(line.map(Into::into)).unwrap().command {
            Command::Call(call) => call,
            other => panic!("{other:?}"),
        }
    }

    fn of_wire(code: Code, details: Option<&Value>) -> WireError {
        let mut bytes = Vec::new();
        if let Some(details) = details {
            capd_proto::cbor::json::from_json(details, &mut bytes);
        }
        WireError { code, message: "m".to_owned(), details: details.map(|_| bytes.into()) }
    }

    #[test]
    fn a_call_without_a_last_word_says_how_to_ask_for_it() {
        let id: MessageId = ID.parse().unwrap();
        for error in [
            ClientError::Result(of_wire(Code::TIMEOUT, Some(&json!({"final": false})))),
            ClientError::Timeout { id, after: Duration::from_secs(1) },
            ClientError::Closed("gone".to_owned()),
        ] {
            let failure = failure(error, id, &call(&[]));
            let text = failure.to_string();
            assert!(text.contains("the call may have run") && text.contains(&format!("--id {ID}")), "{text}");
            assert!(!text.contains("details"), "{text}");
            assert_eq!(failure.json()["error"]["id"], ID);
        }
    }

    #[test]
    fn a_last_word_is_left_as_it_is() {
        let id: MessageId = ID.parse().unwrap();
        for error in [
            ClientError::Result(of_wire(Code::TIMEOUT, None)),
            ClientError::Result(of_wire(Code::INTERRUPTED, Some(&json!({"final": true})))),
            ClientError::Refused(of_wire(Code::OVERLOADED, None)),
            ClientError::Refused(of_wire(Code::INVALID_TIMESTAMP, None)),
        ] {
            let failure = failure(error, id, &call(&[]));
            assert!(!failure.to_string().contains("--id"), "{failure}");
            assert_eq!(failure.json()["error"]["id"], ID);
        }
    }

    #[test]
    fn an_id_past_its_time_says_when_that_was() {
        let error = ClientError::Refused(of_wire(Code::INVALID_TIMESTAMP, None));
        let failure = failure(error, ID.parse().unwrap(), &call(&["--id", ID, "--ttl", "2h"]));
        let text = failure.to_string();
        assert!(text.contains("from 2024-02-04T14:00:00Z to 2024-02-04T16:00:00Z"), "{text}");
    }

    #[test]
    fn a_call_may_be_asked_about_for_an_hour_and_longer_than_it_may_take() {
        for (line, seconds) in [
            (&[][..], 3_600),
            (&["--timeout", "30s"], 3_600),
            (&["--timeout", "2h"], 7_260),
            (&["--timeout", "720h"], 720 * 3_600),
            (&["--timeout", "2h", "--ttl", "10m"], 600),
        ] {
            assert_eq!(ttl(&call(line)), Duration::from_secs(seconds), "{line:?}");
        }
    }
}
