//! Holds facts of a call that only lists need; the ledger decides nothing by them.

use std::sync::Arc;

use crate::capability::CapabilityId;
use crate::code::Code;

use super::{Key, Ledger, Status};

/// Facts of a call for lists, besides its state. Unknown facts are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The capability that was called; shared among its calls.
    pub capability: Option<Arc<CapabilityId>>,
    /// When its result was recorded. **Units:** milliseconds since the Unix epoch.
    pub finished_at_ms: Option<u64>,
    /// How it ended: in success, or with an error of this code.
    pub outcome: Option<Result<(), Code>>,
    /// Whether its caller's sidecar has said that it has the result.
    pub is_fetched: bool,
}

impl<W> Ledger<W> {
    /// The state and the facts of a call; `None` if it is unknown.
    pub fn known(&self, key: &Key) -> Option<(Status, &Facts)> {
        let call = self.call(key).filter(|call| !self.is_blind() && !call.is_released())?;
        Some((call.status(), &call.facts))
    }

    /// The facts of a call, to be filled in; `None` if it is unknown.
    pub fn facts_mut(&mut self, key: &Key) -> Option<&mut Facts> {
        let call = self.peers.get_mut(&key.from)?.calls.get_mut(&key.id)?;
        Some(&mut call.facts)
    }
}
