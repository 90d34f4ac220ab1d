//! Holds facts of a call that only lists need; the ledger decides nothing by them.

use std::sync::Arc;

use crate::capability::CapabilityId;
use crate::code::Code;

use super::{Key, Ledger, Status};

/// What a list says of a call besides where it stands. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The capability that was called; shared among its calls.
    pub capability: Option<Arc<CapabilityId>>,
    /// When its result was made. **Units:** milliseconds since the Unix epoch.
    pub finished_at_ms: Option<u64>,
    /// How it ended: well, or with an error of this code.
    pub outcome: Option<Result<(), Code>>,
}

impl<W> Ledger<W> {
    /// Where a call stands, and the facts of it; `None` for one that is not known.
    pub fn known(&self, key: &Key) -> Option<(Status, &Facts)> {
        let call = self.call(key).filter(|_| !self.is_blind())?;
        Some((call.status(), &call.facts))
    }

    /// The facts of a call, to be filled in; `None` for one that is not known.
    pub fn facts_mut(&mut self, key: &Key) -> Option<&mut Facts> {
        let call = self.peers.get_mut(&key.from)?.calls.get_mut(&key.id)?;
        Some(&mut call.facts)
    }
}
