//! Turns errors into exit codes, and into text or JSON for people.

use std::fmt::{self, Write as _};
use std::io;

use capd::client::{ClientError, WireError};
use capd_proto::code::{Category, Code};
use capd_proto::envelope::MessageId;
use serde_json::{Value, json};

use crate::diagnostic;
use crate::names;
use crate::output::{escaped, one_line, printable};

/// How the process ends. **Shape:** the exit codes of docs/capctl.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Whoever reads stdout has seen enough and closed it, which is no failure.
    OutputClosed = 0,
    Unexpected = 1,
    Usage = 2,
    Refused = 3,
    SchemaViolation = 4,
    Unavailable = 5,
    ErrorResult = 6,
    Undecided = 7,
    Interrupted = 130,
}

/// Why a subcommand did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
    hint: Option<String>,
    /// Boxed, since a failure stands in every result.
    wire: Option<Box<WireError>>,
    /// The call that it is about.
    call: Option<MessageId>,
}

impl Failure {
    /// The command line, or a file that it names, is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// None of the reasons that have an exit code of their own.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Exit::Unexpected, message)
    }

    /// An exit code that stdout has given the reason of; there is nothing to add on stderr.
    pub(crate) fn told(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Whether there is something to say on stderr.
    pub(crate) fn has_words(&self) -> bool {
        self.exit != Exit::OutputClosed && !self.message.is_empty()
    }

    /// What went wrong, in one line.
    pub(crate) fn cause(&self) -> String {
        self.message.clone()
    }

    /// What to do next, if that is known.
    pub(crate) fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The same failure with what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same failure with what led there in front.
    pub(crate) fn because(mut self, source: &str) -> Self {
        self.message = format!("{source}: {}", self.message);
        self
    }

    /// The same failure with the call that it is about.
    pub(crate) fn about(mut self, call: MessageId) -> Self {
        self.call = Some(call);
        self
    }

    /// The same failure with another exit code.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// One JSON document: `{"error": {"message", "code"?, "name"?, "details"?, "id"?, "hint"?}, "exit"}`.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({"message": self.wire.as_ref().map_or(&self.message, |wire| &wire.message)});
        if let Some(wire) = &self.wire {
            error["code"] = json!(wire.code.0);
            if let Some(name) = wire.code.name() {
                error["name"] = json!(name);
            }
            if let Some(details) = &wire.details {
                error["details"] = wire.details_json().unwrap_or_else(|| in_notation(details).into());
            }
        }
        if let Some(call) = &self.call {
            error["id"] = json!(call.to_string());
        }
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        json!({"error": error, "exit": self.exit as u8})
    }

    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, wire: None, call: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = names::shown(&self.message).into_owned();
        if let Some(wire) = &self.wire {
            let violations = wire.violations();
            for violation in &violations {
                let (path, message) = (one_line(&violation.path), one_line(&violation.message));
                let _ = write!(text, "\n  at {path}: {message}");
                if !violation.keyword.is_empty() {
                    let _ = write!(text, " ({})", one_line(&violation.keyword));
                }
            }
            let laid_out = laid_out(wire);
            text += &laid_out;
            // What is not final, and what came too soon, has a hint that says so in words.
            let is_told = !violations.is_empty()
                || !laid_out.is_empty()
                || !wire.is_final()
                || rate_hint(wire).is_some();
            if let (false, Some(details)) = (is_told, &wire.details) {
                let details = wire
                    .details_json()
                    .map_or_else(|| in_notation(details), |json| escaped(&json.to_string()));
                let _ = write!(text, "\n  details: {details}");
            }
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\n  {hint}");
        }
        if let Some(call) = self.call.map(|call| call.to_string()) {
            // A command that asks about the call has its id.
            if !self.hint.as_ref().is_some_and(|hint| hint.contains(&call)) {
                let _ = write!(text, "\n  call {call}");
            }
        }
        // The text quotes the peer: what could steer the terminal is shown, not sent.
        f.write_str(&printable(&text))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        // It may quote the peer, whose line ends are not ours.
        let message = one_line(&error.to_string());
        match error {
            ClientError::Connect { is_full: true, .. } => Self::new(Exit::Unavailable, message)
                .hint("close programs that hold links to it, or raise limits.links_max"),
            ClientError::Connect { is_refused: false, .. } => {
                Self::new(Exit::Unavailable, message).hint("to start a sidecar: capd run")
            }
            ClientError::Connect { is_refused: true, .. } => Self::new(Exit::Refused, message)
                .hint("over TCP, --token-file must name the token file of this sidecar"),
            ClientError::Owner { .. } => {
                Self::new(Exit::Refused, message).hint("to use it anyway, add --any-owner")
            }
            ClientError::Refused(wire) => {
                let failure = Self::new(exit_of(wire.code).unwrap_or(Exit::Refused), message);
                let hint = rate_hint(&wire).or_else(|| hint_of(wire.code).map(str::to_owned));
                Self { hint, wire: Some(Box::new(wire)), ..failure }
            }
            ClientError::Result(wire) => {
                let failure = Self::new(exit_of(wire.code).unwrap_or(Exit::ErrorResult), message);
                Self { wire: Some(Box::new(wire)), ..failure }
            }
            ClientError::Timeout { .. } | ClientError::Closed(_) | ClientError::Unsent(_) => {
                Self::new(Exit::Unavailable, message)
            }
            ClientError::Answer(_) => Self::unexpected(message),
            ClientError::Invalid(_) => Self::usage(message),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let exit =
            if error.kind() == io::ErrorKind::BrokenPipe { Exit::OutputClosed } else { Exit::Unexpected };
        Self::new(exit, error.to_string())
    }
}

/// The exit code that a wire code asks for, however it came.
fn exit_of(code: Code) -> Option<Exit> {
    match code {
        Code::SCHEMA_VIOLATION | Code::REPAIR_EXHAUSTED | Code::RESULT_SCHEMA_VIOLATION => {
            Some(Exit::SchemaViolation)
        }
        // As check, diff and doctor say it.
        Code::SCHEMA_DRIFT | Code::UNSUPPORTED_SCHEMA => Some(Exit::SchemaViolation),
        Code::UNAVAILABLE | Code::TIMEOUT | Code::OVERLOADED => Some(Exit::Unavailable),
        code if code.category() == Category::Routing => Some(Exit::Unavailable),
        _ => None,
    }
}

fn hint_of(code: Code) -> Option<&'static str> {
    match code {
        Code::CAPABILITY_NOT_FOUND => Some("capctl ls shows what the sidecar knows"),
        Code::SCHEMA_VIOLATION => Some("capctl describe shows the input schema"),
        Code::ENDPOINT_UNREACHABLE => Some("capctl ls --peers shows why each peer is not connected"),
        _ => None,
    }
}

/// The findings of a 4902 or 4903 and the versions of a 4003, as violations are: a line each.
fn laid_out(wire: &WireError) -> String {
    let mut text = String::new();
    let Some(details) = wire.details_json() else { return text };
    let word = |value: &Value, key: &str| value[key].as_str().map(one_line).unwrap_or_default();
    if wire.code == Code::VERSION_MISMATCH {
        let served: Vec<_> =
            details["available"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !served.is_empty() {
            let _ = write!(text, "\n  served: {}", one_line(&served.join(", ")));
        }
    }
    for finding in details["findings"].as_array().into_iter().flatten().take(FINDINGS_MAX) {
        for violation in finding["violations"].as_array().into_iter().flatten() {
            let (path, message) = (word(violation, "path"), word(violation, "message"));
            let _ = write!(text, "\n  at {path}: {message} ({})", word(violation, "keyword"));
        }
        if let Some(construct) = finding["construct"].as_str() {
            let _ =
                write!(text, "\n  at {}: {} cannot be decided", word(finding, "path"), one_line(construct));
        }
        if let Some(witness) = finding.get("witness") {
            let _ = write!(
                text,
                "\n  for example, as {}: {}",
                word(finding, "side"),
                escaped(&witness.to_string())
            );
        }
    }
    text
}

/// When to come back, in words; for a 3005 whose details say so.
fn rate_hint(wire: &WireError) -> Option<String> {
    let details = wire.details_json().filter(|_| wire.code == Code::RATE_LIMITED)?;
    let after_s = details["retry_after_seconds"].as_u64()?;
    let mut hint = format!("the next call is accepted in {after_s} s");
    if let (Some(limit), Some(reset_at)) = (details["limit"].as_u64(), details["reset_at"].as_str()) {
        let _ = write!(hint, "; the limit of {limit} is free again at {}", one_line(reset_at));
    }
    Some(hint)
}

/// Findings that are shown.
const FINDINGS_MAX: usize = 16;

fn in_notation(item: &[u8]) -> String {
    diagnostic::notation(item, 0).unwrap_or_else(|error| format!("(malformed: {error})"))
}

#[cfg(test)]
mod tests {
    use capd_proto::cbor::json::from_json;

    use super::*;

    fn wire(code: u32) -> WireError {
        WireError { code: Code(code), message: "m".to_owned(), details: None }
    }

    #[test]
    fn each_code_of_a_refusal_has_its_exit_code() {
        for code in Code::ALL {
            let expected = match code.0 {
                4004 | 4902 | 4903 | 4904 | 5901 => Exit::SchemaViolation,
                2001 | 2002 | 5002 | 5003 | 5004 => Exit::Unavailable,
                _ => Exit::Refused,
            };
            assert_eq!(Failure::from(ClientError::Refused(wire(code.0))).exit, expected, "{code}");
        }
        assert_eq!(Failure::from(ClientError::Refused(wire(2999))).exit, Exit::Unavailable);
        assert_eq!(Failure::from(ClientError::Refused(wire(9999))).exit, Exit::Refused);
    }

    #[test]
    fn an_error_result_is_told_from_a_refusal() {
        for (code, exit) in [
            (5001, Exit::ErrorResult),
            (4901, Exit::ErrorResult),
            (5902, Exit::ErrorResult),
            (5901, Exit::SchemaViolation),
            (5003, Exit::Unavailable),
        ] {
            assert_eq!(Failure::from(ClientError::Result(wire(code))).exit, exit, "{code}");
        }
    }

    #[test]
    fn a_call_that_came_too_soon_is_told_when_to_come_back() {
        let refused = |details: Value| {
            let mut bytes = Vec::new();
            from_json(&details, &mut bytes);
            Failure::from(ClientError::Refused(WireError { details: Some(bytes.into()), ..wire(3005) }))
        };
        let reset_at = "2026-01-15T12:05:00Z";
        let whole = json!({"limit": 100, "remaining": 0, "reset_at": reset_at, "retry_after_seconds": 42});
        let failure = refused(whole.clone());
        let hint =
            "the next call is accepted in 42 s; the limit of 100 is free again at 2026-01-15T12:05:00Z";
        assert_eq!(failure.to_string(), format!("3005 RATE_LIMITED: m\n  {hint}"));
        assert_eq!((&failure.json()["error"]["details"], failure.exit), (&whole, Exit::Refused));
        let some = refused(json!({"retry_after_seconds": 1}));
        assert_eq!(some.to_string(), "3005 RATE_LIMITED: m\n  the next call is accepted in 1 s");
        let other = refused(json!({"retry_after_seconds": "soon"}));
        assert_eq!(other.to_string(), "3005 RATE_LIMITED: m\n  details: {\"retry_after_seconds\":\"soon\"}");
    }

    #[test]
    fn a_missing_sidecar_says_how_to_start_one() {
        let error = ClientError::Connect {
            place: "/s".into(),
            reason: "not found".into(),
            is_refused: false,
            is_full: false,
        };
        let failure = Failure::from(error);
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.to_string().contains("capd run"), "{failure}");
        let refused = |is_full: bool| ClientError::Connect {
            place: "/s".into(),
            reason: "no".into(),
            is_refused: !is_full,
            is_full,
        };
        assert_eq!(Failure::from(refused(false)).exit, Exit::Refused);
        let full = Failure::from(refused(true));
        assert_eq!(full.exit, Exit::Unavailable);
        assert!(full.to_string().contains("limits.links_max") && !full.to_string().contains("capd run"));
    }

    #[test]
    fn violations_are_listed_with_their_paths_and_nothing_steers_the_terminal() {
        let mut details = Vec::new();
        let violation = json!({"path": "/code", "message": "is \u{1b}[2J a number", "keyword": "type"});
        from_json(&json!({"violations": [violation]}), &mut details);
        let error = WireError { details: Some(details.into()), ..wire(4004) };
        let failure = Failure::from(ClientError::Refused(error));
        let text = failure.to_string();
        assert!(text.contains("\n  at /code: is \\u{1b}[2J a number (type)"), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert_eq!(failure.json()["error"]["details"]["violations"][0]["path"], "/code");
        assert_eq!(failure.json()["exit"], 4);
        assert_eq!(failure.json()["error"]["name"], "SCHEMA_VIOLATION");
    }
}
