//! Rules of PROTOCOL 8 in; a sidecar that leaves them out, so that tests can see that they are missed, out.

use super::Sidecar;

/// A part of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The ledger knows a call again.
    Ledger,
    /// An ERROR after an unanswered copy is no refusal.
    Doubt,
}

impl Sidecar {
    pub(in crate::daemon) fn panic(&self, text: String) {
        self.ctx.spawn(async move { panic!("{text}") });
    }

    pub(in crate::daemon) fn leave_out(&self, rule: Rule) {
        match rule {
            Rule::Ledger => self.executor.table.set_blind(true),
            Rule::Doubt => self.caller.set_credulous(),
        }
    }
}
