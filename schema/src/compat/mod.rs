//! Compares two declarations of one capability: whether a caller of one can use a provider of the other, what it loses,
//! and which version the change needs.
//!
//! Requests go from the caller to the provider, so every value of the caller's input schema must fit the provider's.
//! Results return, so every value of the provider's output schema must fit the caller's. `requests` and `results` prove
//! that with [`subtype`](super::subtype). If a proof fails, they look for features that the caller can give up: `place`
//! finds the schemas at a place of a payload, `narrow` makes a schema smaller there. `unused` finds what one side
//! declares and the other does not know. [`version`] turns the outcome into a SemVer step.

mod contract;
mod give_up;
mod json;
mod lost;
mod narrow;
mod place;
mod requests;
mod results;
#[cfg(test)]
mod tests;
mod unused;
pub mod version;
mod words;
mod work;

pub use contract::{Contract, Terms};
pub use lost::{Feature, Lost};

use serde_json::Value;

use work::Work;

/// How well a caller and a provider fit, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Proven, and nothing that the caller knows is unknown to the provider.
    Full,
    /// Proven for a caller that gives up the listed features.
    Partial,
    /// Undecided: the proof does not model a construct, or a schema is unknown.
    Unknown,
    /// Refuted, whatever optional parts the caller gives up, within a bounded search.
    Incompatible,
}

impl Verdict {
    /// `full`, `partial`, `unknown` or `incompatible`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Incompatible => "incompatible",
        }
    }
}

/// A payload that one side may send and the other refuses.
#[derive(Clone, Debug, PartialEq)]
pub struct Refutation {
    /// Valid for the sender, and not for the receiver.
    pub witness: Value,
    /// JSON pointer to what is wrong in the witness, `/` for all of it.
    pub path: String,
    /// The keyword of the receiver's schema that refuses it.
    pub rule: String,
}

/// The outcome of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Everything that may be sent is accepted.
    Full,
    /// Everything is accepted without these features; at least one.
    Partial(Vec<Lost>),
    /// Neither shown nor refuted.
    Unknown {
        /// JSON pointer into the schema of `construct`, `/` for all of it.
        path: String,
        /// The undecided keyword; `budget` if the steps ran out, `schema` if a schema is missing.
        construct: String,
        /// The reason in words.
        reason: String,
    },
    /// A payload may be sent that is refused.
    Incompatible(Refutation),
}

impl Outcome {
    /// The verdict alone.
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Full => Verdict::Full,
            Self::Partial(_) => Verdict::Partial,
            Self::Unknown { .. } => Verdict::Unknown,
            Self::Incompatible(_) => Verdict::Incompatible,
        }
    }

    /// The features that the caller loses in a partial outcome.
    pub fn lost(&self) -> &[Lost] {
        match self {
            Self::Partial(lost) => lost,
            Self::Full | Self::Unknown { .. } | Self::Incompatible(_) => &[],
        }
    }

    fn partial(lost: Vec<Lost>) -> Self {
        if lost.is_empty() { Self::Full } else { Self::Partial(lost) }
    }

    fn undecided(path: String, construct: String) -> Self {
        let reason = if construct == "budget" {
            "the proof needs more steps than the limit".to_owned()
        } else {
            format!("the proof does not decide `{construct}` here")
        };
        Self::Unknown { path, construct, reason }
    }

    /// What a proof without a verdict comes to: past the last step of the work, what was refuted stays so.
    fn unproven(path: String, construct: String, lost: Vec<Lost>, work: &Work) -> Self {
        let refuted = lost.into_iter().rev().find_map(|lost| lost.refutation);
        match refuted {
            Some(refutation) if work.is_spent() => Self::Incompatible(refutation),
            Some(_) | None => Self::undecided(path, construct),
        }
    }

    fn unknown_schema(reason: String) -> Self {
        Self::Unknown { path: "/".to_owned(), construct: "schema".to_owned(), reason }
    }
}

/// The outcome for a caller and a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Compatibility {
    /// From the caller to the provider.
    pub requests: Outcome,
    /// From the provider to the caller.
    pub results: Outcome,
}

impl Compatibility {
    /// The worse of both directions. A refutation is certain, so it outranks an unknown.
    pub fn verdict(&self) -> Verdict {
        self.requests.verdict().max(self.results.verdict())
    }
}

/// Compares a caller, built against one declaration, with a provider of another.
///
/// The work is bounded: at most [`LOST_MAX`] features in a direction, within one step limit over all proofs. A caller
/// that loses more is incompatible.
///
/// ```
/// use capd_schema::compat::{Contract, Terms, Verdict, compare};
///
/// let contract = |input: &[u8]| Ok::<_, capd_schema::CompileError>(Contract {
///     input: Terms::read(input)?,
///     output: Terms::Undeclared,
/// });
/// let old = contract(br#"{"type": "integer"}"#)?;
/// let new = contract(br#"{"type": "number"}"#)?;
/// assert_eq!(compare(&old, &new).verdict(), Verdict::Full);
/// assert_eq!(compare(&new, &old).verdict(), Verdict::Incompatible);
/// # Ok::<(), capd_schema::CompileError>(())
/// ```
pub fn compare(caller: &Contract, provider: &Contract) -> Compatibility {
    Compatibility {
        requests: requests::compare(&caller.input, &provider.input, &mut Work::new()),
        results: results::compare(&provider.output, &caller.output, &mut Work::new()),
    }
}

/// Most features that a partial outcome lists in one direction; a caller that loses more is incompatible.
pub const LOST_MAX: usize = 64;
