//! Validates payloads against JSON Schema contracts: a schema document and a payload's CBOR in; a verdict with the path
//! of every violation out.
//!
//! [`profile`] refuses keywords that would not be enforced. [`validator`] compiles a JSON Schema once, and checks
//! payloads over their received bytes: values are read in place and never copied into another tree. Before that,
//! `quick` accepts most payloads in one pass. A peer may supply both the schema and the payload: `survey` and
//! `patterns` bound the cost of compiling, `steps` the cost of a verdict. [`artifact`] keeps documents by content hash,
//! with their compiled form. [`subtype`] proves that all values of one schema are values of another, or shows one that
//! is not. [`drift`] uses this proof for the schemas of a caller and a provider, and [`compat`] finds what one side can
//! give up to use the other. [`hash`] gives a contract a name that changes with it.

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
