//! Decides who may do what, without side effects: a caller and its request in; the decision, and the deciding rule,
//! out.
//!
//! [`rules`] reads grants and Cedar policies into [`Rules`]; [`decide`] has them decide one case; [`decisions`] keeps what
//! was decided until the rules or a descriptor change, as each caller's [`View`]; [`grant`] writes a grant as a policy; [`model`] is what policies may
//! speak of; [`cases`] is a table of cases with the decisions that are expected of them. [`rate`] says whether a caller
//! that may call may do so at this moment.
//!
//! Nobody may do what no rule permits, and what a rule forbids nobody may. The agent beside the sidecar is permitted
//! everything by a rule of its own. Who calls a capability needs each permission that it declares besides: a rule gives
//! those that its annotation `@permissions` names.

pub mod cases;
pub mod decide;
pub mod decisions;
pub mod grant;
pub mod model;
pub mod rate;
pub mod rules;
mod ungranted;
mod view;

pub use decide::{Caller, Subject, Verdict};
pub use decisions::Decisions;
pub use grant::{Grant, Who};
pub use model::Action;
pub use rules::{Mistake, Mistakes, Rules, Source};
pub use view::{Callable, View};

#[cfg(test)]
mod tests;
