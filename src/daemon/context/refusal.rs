//! Turns errors of all parts into a refusal, as its ERROR states it.

use capd_proto::code::Code;
use capd_proto::message::{ErrorBody, available_details};

use crate::router;
use crate::schema::ArtifactError;

/// Why a message is not taken: what its ERROR says.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Refusal {
    pub(in crate::daemon) code: Code,
    pub(in crate::daemon) message: String,
    /// One CBOR item.
    pub(in crate::daemon) details: Option<Vec<u8>>,
}

impl Refusal {
    pub(in crate::daemon) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// What an error of the protocol's stages is answered with.
    pub(in crate::daemon) fn of(error: impl Into<capd_proto::error::Error>) -> Self {
        let error = error.into();
        Self::new(error.code(), error.to_string())
    }

    /// The body of an ERROR that says it.
    pub(in crate::daemon) fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut error = ErrorBody::new(self.code, self.message.as_str());
        error.details = self.details.as_deref();
        error.encode(&mut body);
        body
    }

    pub(in crate::daemon) fn with_details(mut self, details: Vec<u8>) -> Self {
        self.details = Some(details);
        self
    }
}

/// The one refusal, whatever for. **Source:** PROTOCOL 7.3.
pub(in crate::daemon) fn denied() -> Refusal {
    Refusal::new(Code::UNAUTHORIZED, "not authorized")
}

/// PROTOCOL 8: a call that may have run, and of which nothing is known any more.
pub(in crate::daemon) fn forgotten() -> Refusal {
    Refusal::new(Code::INVALID_TIMESTAMP, "calls of this age are no longer remembered")
}

/// PROTOCOL 7.1, 7.5: an unknown name is 4002, a known one without a fitting version 4003, one that may not be called 3001.
pub(in crate::daemon) fn mismatch(refusal: router::Refusal) -> Refusal {
    match refusal {
        router::Refusal::NameUnknown => {
            Refusal::new(Code::CAPABILITY_NOT_FOUND, "no capability of that name")
        }
        router::Refusal::Denied => denied(),
        router::Refusal::VersionMismatch(available) => {
            let details = available_details(&available);
            Refusal::new(Code::VERSION_MISMATCH, "no served version fits").with_details(details)
        }
    }
}

/// A schema document that is not here, or cannot be enforced.
pub(in crate::daemon) fn refused_artifact(error: ArtifactError) -> Refusal {
    Refusal::new(error.code(), error.to_string())
}
