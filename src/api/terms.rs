//! Defines the terms of a call besides its params: as a request has them, as the journal keeps them, and as an invoke.

use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::{CapabilityName, Range};
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use crate::client::{CallRequest, Target};

/// Everything of an invoke's body but its params, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// A name or an id.
    pub(super) capability: String,
    /// A range of versions, with a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    /// The DID of the agent to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<String>,
}

impl Terms {
    /// As the journal keeps them.
    pub(super) fn written(&self) -> Bytes {
        // Texts and numbers are always JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// `None` for what [`Terms::written`] does not write.
    pub(super) fn read(written: &[u8]) -> Option<Self> {
        serde_json::from_slice(written).ok()
    }

    /// The capability's name, without a version.
    pub(super) fn name(&self) -> &str {
        self.capability.split(':').next().unwrap_or_default()
    }

    /// The call that they ask for. **Errors:** 400 for a name, a range or a DID that is none.
    pub(super) fn request(&self, params: Bytes) -> Result<CallRequest, Problem> {
        let target = target(&self.capability, self.version.as_deref())?;
        let mut request = CallRequest::new(target).params_cbor(params);
        if let Some(to) = &self.to {
            let to = to.parse().map_err(|error| Problem::bad(format!("to={to:?}: {error}")))?;
            request = request.to(to);
        }
        if let Some(timeout_ms) = self.timeout_ms {
            request = request.timeout(Duration::from_millis(timeout_ms));
        }
        if let Some(thread) = &self.thread {
            request = request.thread_id(thread.clone());
        }
        Ok(request)
    }
}

/// The capability that a path and perhaps a range of versions stand for.
pub(super) fn target(text: &str, version: Option<&str>) -> Result<Target, Problem> {
    let bad = |error: &dyn std::fmt::Display| Problem::bad(format!("{text:?}: {error}"));
    if text.contains(':') {
        if version.is_some() {
            return Err(Problem::bad("an id has its version already: give ?version= with a name only"));
        }
        return Ok(Target::Id(text.parse().map_err(|error| bad(&error))?));
    }
    let name: CapabilityName = text.parse().map_err(|error| bad(&error))?;
    match version {
        None => Ok(Target::newest(name)),
        Some(range) => {
            let parsed: Result<Range, _> = range.parse();
            let range = parsed.map_err(|error| Problem::bad(format!("version={range:?}: {error}")))?;
            Ok(Target::in_range(name, range))
        }
    }
}
