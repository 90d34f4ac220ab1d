//! Gives the verdict on two compiled schemas, after both validators judged the witness.

use capd_proto::cbor::json::from_json;
use serde_json::Value;

use super::budget::{Budget, STEPS_MAX};
use super::compiled::Compiled;
use super::literal::Lit;
use super::solve::{Outcome, Solver};
use crate::validator::Side;

/// Whether every value of one schema is a value of another.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every value is.
    Proven,
    /// Some value is not.
    Refuted {
        /// A value that the validator accepts under the first schema and rejects under the second.
        witness: Value,
        /// JSON pointer to the fault inside the witness, `/` for all of it.
        path: String,
        /// The keyword of the second schema that rejects it.
        rule: String,
    },
    /// Neither is shown.
    Unknown {
        /// JSON pointer into the schema of [`construct`](Verdict::Unknown::construct), `/` for all of it.
        path: String,
        /// The undecided keyword, or `budget` if the steps ran out.
        construct: String,
    },
}

/// Asks whether every value of `a` is a value of `b`. A schema without values is a subtype of any.
///
/// The same two schemas always have the same verdict; the work is bounded by a count of steps.
///
/// ```
/// use capd_schema::subtype::{Compiled, Verdict, is_subtype};
///
/// let old = Compiled::compile(br#"{"type": "integer", "minimum": 1}"#)?;
/// let new = Compiled::compile(br#"{"type": "number"}"#)?;
/// assert_eq!(is_subtype(&old, &new), Verdict::Proven);
/// let Verdict::Refuted { witness, path, rule } = is_subtype(&new, &old) else { unreachable!("a number may be 0") };
/// assert_eq!((witness, path.as_str(), rule.as_str()), (0.into(), "/", "minimum"));
/// # Ok::<(), capd_schema::CompileError>(())
/// ```
pub fn is_subtype(a: &Compiled, b: &Compiled) -> Verdict {
    is_subtype_within(a, b, &mut Budget::of(STEPS_MAX))
}

/// Asks the same within a budget that several proofs share, and charges the budget.
///
/// The verdict is `Unknown` with the construct `budget` if it runs out.
pub fn is_subtype_within(a: &Compiled, b: &Compiled, budget: &mut Budget) -> Verdict {
    // What is not modelled means the same on both sides of one document.
    if a.identity == b.identity {
        return Verdict::Proven;
    }
    let steps = STEPS_MAX.min(budget.left());
    let mut solver = Solver::new(a, b, steps);
    let outcome = solver.solve(&[Lit::new(0, a.root), Lit::new(1, b.root).not()]);
    budget.take((steps - solver.budget().left()) as usize);
    match outcome {
        Outcome::Empty => Verdict::Proven,
        // The solver let the validators judge it.
        Outcome::Found(mut witness) => {
            // It is shown with its keys in one order, whichever way the proof came upon them.
            witness.sort_all_objects();
            refuted(b, witness)
        }
        Outcome::Unknown => unknown(&solver, a, b),
    }
}

fn refuted(b: &Compiled, witness: Value) -> Verdict {
    let mut payload = Vec::new();
    from_json(&witness, &mut payload);
    let first = b.validator.validate(&payload, Side::Response).err().and_then(|all| all.into_iter().next());
    let (path, rule) =
        first.map_or_else(|| ("/".to_owned(), "schema".to_owned()), |first| (first.path, first.keyword));
    Verdict::Refuted { witness, path, rule }
}

fn unknown(solver: &Solver<'_>, a: &Compiled, b: &Compiled) -> Verdict {
    let doubt = solver.doubt();
    let schema = if doubt.side == 0 { a } else { b };
    Verdict::Unknown { path: schema.pointer(doubt.origin), construct: doubt.construct.to_owned() }
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
