//! Rules of PROTOCOL 8 in; a sidecar that leaves them out, so that tests can see that they are missed, out.

use std::sync::atomic::{AtomicU8, Ordering};

use capd_proto::call::caller::Caller;

use crate::daemon::node::Node;

/// A part of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The ledger knows a call again.
    Ledger,
    /// An ERROR after an unanswered copy is no refusal.
    Doubt,
}

impl Rule {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The rules that are left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut(AtomicU8);

impl LeftOut {
    pub(super) fn has(&self, rule: Rule) -> bool {
        self.0.load(Ordering::Relaxed) & rule.bit() != 0
    }

    /// A call's machine, without the rules that are left out.
    pub(super) fn tampered(&self, mut machine: Caller) -> Caller {
        machine.set_credulous(self.has(Rule::Doubt));
        machine
    }
}

impl Node {
    pub(super) fn panic(&self, text: String) {
        self.ctx.spawn(async move { panic!("{text}") });
    }

    pub(super) fn leave_out(&self, rule: Rule) {
        self.left_out.0.fetch_or(rule.bit(), Ordering::Relaxed);
        if rule == Rule::Ledger {
            self.executor.table.set_blind(true);
        }
    }
}
