//! Name, params and limits of one call in; its result on stdout, its progress on stderr out.

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use capd::client::{Answer, CallHandle, CallRequest, Client, ClientError, Progress, Target};
use capd_proto::capability::CapabilityName;
use capd_proto::envelope::MessageId;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::CallArgs;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, diagnostic, output};

/// Makes the call and prints its result.
///
/// The first Ctrl-C cancels the call and waits for its end, the second one does not wait.
pub(crate) async fn run(sidecar: &Sidecar, args: CallArgs, json: bool) -> Result<(), Failure> {
    let request = request(&args)?;
    let client = sidecar.connect().await?;
    // From the moment the call may run, Ctrl-C cancels it.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let handle = client.call(request)?;
    let id = handle.id();
    let mut view = View::new(args.progress, json);
    view.sent(id);
    let (outcome, is_interrupted) = wait(&client, handle, &mut interrupts, &mut view).await?;
    view.clear();
    let printed = outcome.map_err(Failure::from).and_then(|answer| print(id, &answer, json));
    match (printed, is_interrupted) {
        (printed, false) => printed,
        (Ok(()), true) => Err(interrupted("interrupted; the call had ended before it could be cancelled")),
        (Err(failure), true) => Err(failure.exit(Exit::Interrupted)),
    }
}

fn request(args: &CallArgs) -> Result<CallRequest, Failure> {
    let bad_name = |error| Failure::usage(format!("{:?}: {error}", args.capability));
    let target = if args.capability.contains(':') {
        if args.version.is_some() {
            return Err(Failure::usage("an id has its version already: give --version with a name only"));
        }
        Target::Id(args.capability.parse().map_err(bad_name)?)
    } else {
        let name: CapabilityName = args.capability.parse().map_err(bad_name)?;
        args.version
            .clone()
            .map_or_else(|| Target::newest(name.clone()), |range| Target::in_range(name.clone(), range))
    };
    let mut request = CallRequest::new(target).params_json(&params(&args.params)?);
    if let Some(timeout) = args.timeout {
        request = request.timeout(timeout);
    }
    if let Some(to) = &args.to {
        request = request.to(crate::reach::did(to)?);
    }
    Ok(request)
}

/// Params from the command line, a file, or stdin.
fn params(text: &str) -> Result<Value, Failure> {
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
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::usage(format!("{source}: not JSON: {error}")).hint("give JSON, @FILE, or - for stdin")
    })
}

/// Shows progress until the outcome; the flag says whether Ctrl-C came before.
async fn wait(
    client: &Client,
    mut handle: CallHandle,
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
                    return Err(interrupted("interrupted; the call may still run"));
                }
                is_interrupted = true;
                view.note("cancelling; Ctrl-C again leaves without waiting");
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
        return match result {
            Some(result) => output::print(&output::pretty(&result)),
            None => output::print(&notation(&answer.result)),
        };
    }
    let mut document = json!({"id": id.to_string(), "status": "success", "from": answer.from});
    match result {
        Some(result) => document["result"] = result,
        None => document["result_diagnostic"] = notation(&answer.result).into(),
    }
    if let Some(ms) = answer.execution_time_ms {
        document["execution_time_ms"] = ms.into();
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
            Self::Json => output::note(&json!({"event": "sent", "id": id.to_string()}).to_string()),
            Self::Terminal { .. } | Self::Lines | Self::Nothing => self.note(&format!("call {id}")),
        }
    }

    fn show(&mut self, progress: &Progress) {
        match self {
            Self::Json => output::note(&event(progress).to_string()),
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
            Self::Json => output::note(&json!({"event": "note", "text": text}).to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
