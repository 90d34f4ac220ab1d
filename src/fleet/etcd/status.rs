//! Why a question was not answered in, the machine's word for it out.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use capd_proto::fleet::engine::EngineError;
use thiserror::Error;
use tonic::{Code, Status};

/// Why a question has no answer.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// etcd said so in its answer.
    #[error(transparent)]
    Said(#[from] EngineError),
    /// etcd refused, or could not be reached.
    #[error("{}", text(.0))]
    Status(Box<Status>),
    /// The time of the question was over.
    #[error("no answer within {} s", .0.as_secs())]
    Silence(Duration),
    /// An answer that is none to the question.
    #[error("etcd answered without {0}")]
    Missing(&'static str),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Failure {
    /// The same in the machine's words.
    pub(super) fn error(&self) -> EngineError {
        match self {
            Self::Said(error) => error.clone(),
            Self::Status(status) => meaning(status),
            Self::Silence(_) | Self::Missing(_) => EngineError::Lost,
        }
    }

    /// Whether an answer was longer than we take.
    pub(super) fn is_too_long(&self) -> bool {
        let Self::Status(status) = self else { return false };
        matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
            && status.message().contains("message length too large")
    }
}

/// etcd's codes alone do not tell its errors apart, so its texts count: they are the same from 3.4 on, for its own clients
/// do so as well.
fn meaning(status: &Status) -> EngineError {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        // Compacted, or a revision that a restored store has not reached yet: in both cases it is not there.
        Code::OutOfRange if says("required revision") => EngineError::Compacted,
        Code::NotFound if says("lease not found") => EngineError::Gone,
        Code::PermissionDenied | Code::Unauthenticated => EngineError::Denied,
        Code::InvalidArgument if says("user name is empty") || says("authentication failed") => {
            EngineError::Denied
        }
        Code::FailedPrecondition if says("user name not found") || says("role name not found") => {
            EngineError::Denied
        }
        Code::ResourceExhausted if says("database space exceeded") => EngineError::Full,
        _ => EngineError::Lost,
    }
}

/// What etcd says, or everything on the way down to why it could not be reached.
fn text(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a text does not fail.
            let _ = write!(text, ": {said}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_etcd_have_their_meaning() {
        for (code, message, error) in [
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                EngineError::Compacted,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                EngineError::Compacted,
            ),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", EngineError::Lost),
            (Code::NotFound, "etcdserver: requested lease not found", EngineError::Gone),
            (Code::PermissionDenied, "etcdserver: permission denied", EngineError::Denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", EngineError::Denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", EngineError::Denied),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", EngineError::Lost),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", EngineError::Full),
            (Code::ResourceExhausted, "etcdserver: too many requests", EngineError::Lost),
            (Code::Unavailable, "etcdserver: no leader", EngineError::Lost),
        ] {
            let failure = Failure::from(Status::new(code, message));
            assert_eq!(failure.error(), error, "{message}");
            assert_eq!(failure.to_string(), message);
        }
    }
}
