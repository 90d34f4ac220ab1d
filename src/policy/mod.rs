//! Decides who may do what, without side effects: a caller and its request in; the decision, and the deciding rule,
//! out.
//!
//! [`rules`] reads grants and Cedar policies into [`Rules`]. [`decide`] decides one case by them. [`decisions`] caches
//! decisions until the rules or a descriptor change, as each caller's [`View`]. [`grant`] writes a grant as a policy.
//! [`model`] lists what policies may refer to. [`cases`] is a table of cases with expected decisions. [`Usage`] names rules that
//! decide nothing or are overruled. [`rate`] says
//! whether a permitted caller may call at this moment.
//!
//! Nobody may do what no rule permits, or what a rule forbids. A built-in rule permits the agent beside the sidecar
//! everything. A caller also needs each permission that a capability declares: a rule grants those that its annotation
//! `@permissions` names.

pub mod cases;
pub mod decide;
pub mod decisions;
pub mod grant;
pub mod model;
pub mod rate;
pub mod rules;
mod ungranted;
mod usage;
mod view;

pub use decide::{Caller, Subject, Verdict};
pub use decisions::Decisions;
pub use grant::{Grant, Who};
pub use model::Action;
pub use rules::{Mistake, Mistakes, Rules, Source};
pub use usage::{Overruled, Usage};
pub use view::{Callable, View};

#[cfg(test)]
mod tests;
