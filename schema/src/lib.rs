//! JSON Schema for contracts: a schema document and a payload's CBOR in; a verdict with every violation's path out.
//!
//! [`profile`] refuses what would not be enforced. [`validator`] compiles a JSON Schema once and checks payloads
//! straight over their received bytes: values are read where they stand, so nothing is copied into another tree.
//! `quick` tells of most payloads that they fit before that, in one pass. A peer may bring both the schema and the payload:
//! `survey` and `patterns` bound what compiling takes, and `steps` what a verdict takes.
//! [`artifact`] keeps documents by content hash, with their compiled form beside them. [`subtype`] proves that all values
//! of one schema are values of another, or shows one that is not; [`drift`] asks that of a caller's and a provider's
//! schemas, and [`compat`] what the one could do without to use the other. [`hash`] gives a contract a name that changes
//! when it does.

pub mod artifact;
pub mod compat;
mod document;
pub mod drift;
mod fault;
pub mod hash;
mod index;
mod memo;
mod name;
mod node;
mod number;
mod patterns;
pub mod profile;
mod quick;
mod sets;
#[cfg(test)]
mod sets_tests;
mod stack;
mod steps;
#[cfg(test)]
mod steps_tests;
pub mod subtype;
mod survey;
#[cfg(test)]
mod tests;
pub mod validator;
mod values;
mod violation;

pub use artifact::{Artifact, ArtifactError, Artifacts, Keep};
pub use hash::{Contract, Fingerprint, HashError};
pub use profile::Profile;
pub use validator::{CompileError, Side, Validator};
pub use violation::Violation;
