//! Errors in; what a caller must know before it does anything else out: whether the call was executed.

use std::fmt;
use std::time::Duration;

use capd_proto::code::{Code, Retry};

use super::{ClientError, WireError};

/// What is known of the effect of a call that has no result. **Source:** AGENT-API 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing was executed.
    Refused,
    /// It ran, and this is its one result.
    Failed,
    /// Nobody knows whether it took effect.
    Unknown,
    /// It may still run.
    Pending,
}

impl Outcome {
    /// As the HTTP API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ClientError {
    /// What the error of a call says of the call's effect: decide by it, not by the code.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(_)
            | Self::Unsent(_)
            | Self::Invalid(_)
            | Self::Connect { .. }
            | Self::Owner { .. } => Outcome::Refused,
            Self::Result(error) => match (error.code, error.is_final()) {
                (Code::INTERRUPTED, _) => Outcome::Unknown,
                (_, false) => Outcome::Pending,
                (_, true) => Outcome::Failed,
            },
            Self::Timeout { .. } => Outcome::Pending,
            Self::Closed(_) | Self::Answer(_) => Outcome::Unknown,
        }
    }

    /// The code; the client's own errors have the one that fits.
    pub const fn code(&self) -> Code {
        match self {
            Self::Refused(error) | Self::Result(error) => error.code,
            Self::Connect { .. } | Self::Owner { .. } => Code::ENDPOINT_UNREACHABLE,
            Self::Timeout { .. } => Code::TIMEOUT,
            Self::Closed(_) => Code::INTERRUPTED,
            Self::Unsent(_) => Code::OVERLOADED,
            Self::Answer(_) => Code::INTERNAL_ERROR,
            Self::Invalid(_) => Code::BAD_REQUEST,
        }
    }
}

impl WireError {
    /// An error of a handler that its caller need not know: 5001 without the error's text, which goes to this program's log.
    ///
    /// ```
    /// use capd_client::WireError;
    ///
    /// fn read(path: &str) -> Result<String, WireError> {
    ///     std::fs::read_to_string(path).map_err(WireError::internal)
    /// }
    /// # assert!(!read("/no/such/secret").unwrap_err().message.contains("secret"));
    /// ```
    pub fn internal(error: impl fmt::Display) -> Self {
        tracing::error!(%error, "a handler failed");
        Self::new(Code::INTERNAL_ERROR, "the handler failed")
    }

    /// After which pause a refused call may be made again; `None` where it stays refused.
    ///
    /// **Units:** `details.retry_after_seconds`, at least a second where the code says only that it may succeed later.
    pub fn retry_after(&self) -> Option<Duration> {
        let waits = matches!(self.code, Code::RATE_LIMITED | Code::UNAVAILABLE | Code::OVERLOADED);
        if !waits || self.code.retry() == Retry::No {
            return None;
        }
        let seconds = self.details_json().and_then(|details| details["retry_after_seconds"].as_f64());
        let pause = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Some(pause.unwrap_or(PAUSE_DEFAULT))
    }
}

/// The pause before a refused call is made again where the refusal names none.
const PAUSE_DEFAULT: Duration = Duration::from_secs(1);
