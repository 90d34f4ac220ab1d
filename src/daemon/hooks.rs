//! Leaves out rules of PROTOCOL 8, so that tests can show that the rules are needed.

use super::Daemon;

/// A part of the promise that a hook can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The ledger knows a call again.
    Ledger,
    /// An ERROR after an unanswered copy is no refusal.
    Doubt,
    /// A call moves only on proof that its executor has not accepted it.
    Proof,
    /// A released call has a tombstone.
    Tombstone,
}

impl Daemon {
    /// Injects a fault for tests: leaves a part of the promise out from here on.
    pub fn leave_out(&self, rule: Rule) {
        match rule {
            Rule::Ledger => self.sidecar.executor.table.set_blind(true),
            Rule::Doubt => self.sidecar.caller.set_credulous(),
            Rule::Proof => self.sidecar.caller.set_restless(),
            Rule::Tombstone => self.sidecar.executor.set_careless(),
        }
    }

    /// Injects a fault for tests: one of its tasks panics with this text.
    pub fn panic(&self, text: String) {
        self.sidecar.ctx.spawn(async move { panic!("{text}") });
    }
}
