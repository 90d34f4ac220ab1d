//! Compiles schemas and answers questions until the steps of one comparison are used up.

use serde_json::Value;

use crate::subtype::{Budget, Compiled, Verdict as Proof, is_subtype_within};

/// What one direction of a comparison may still cost.
#[derive(Debug)]
pub(super) struct Work {
    budget: Budget,
}

/// Steps of one direction of a comparison, over all its proofs.
///
/// What a caller has to give up is looked for by trying, and each try compiles a schema and takes a few proofs.
pub(super) const STEPS_MAX: u64 = 1_000_000;
/// Bytes of a document whose compilation weighs as much as a step of a proof.
const BYTES_A_STEP: usize = 4;

impl Work {
    /// All of it.
    pub(super) const fn new() -> Self {
        Self { budget: Budget::of(STEPS_MAX) }
    }

    /// Compiles a schema; `None` when it is none, or there are no steps left.
    pub(super) fn compile(&mut self, schema: &Value) -> Option<Compiled> {
        let bytes = serde_json::to_vec(schema).ok()?;
        if !self.budget.take(1 + bytes.len() / BYTES_A_STEP) {
            return None;
        }
        let compiled = Compiled::compile(&bytes).ok()?;
        self.budget.take(compiled.pattern_states()).then_some(compiled)
    }

    /// Asks whether every value of `a` is one of `b`.
    pub(super) fn prove(&mut self, a: &Compiled, b: &Compiled) -> Proof {
        is_subtype_within(a, b, &mut self.budget)
    }

    /// Takes steps for looking at so many schemas; `false` when there are none left.
    pub(super) fn look(&mut self, schemas: usize) -> bool {
        self.budget.take(1 + schemas)
    }

    /// Whether all steps are used up.
    pub(super) const fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }
}

#[cfg(test)]
mod tests;
