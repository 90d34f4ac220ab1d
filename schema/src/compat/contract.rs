//! Compiles a declaration: its two schema documents in, compiled terms out.

use serde_json::Value;

use crate::profile::Profile;
use crate::subtype::{Compiled, Verdict as Proof, is_subtype};
use crate::validator::CompileError;

/// The promise of one declaration about its payloads.
#[derive(Debug)]
pub struct Contract {
    /// The schema of params.
    pub input: Terms,
    /// The schema of results.
    pub output: Terms,
}

/// The schema of one side, as far as known.
#[derive(Debug)]
pub enum Terms {
    /// No schema: the receiver accepts anything, and the sender promises nothing.
    Undeclared,
    /// A schema.
    Declared(Box<Document>),
    /// A schema that cannot be fetched or read.
    Unknown {
        /// Why, in words.
        reason: String,
    },
}

/// A schema that can be compared with others.
#[derive(Debug)]
pub struct Document {
    pub(super) value: Value,
    pub(super) compiled: Compiled,
}

impl Terms {
    /// Reads a schema document.
    ///
    /// **Errors:** what [`Profile::Full`] refuses; an unenforced contract is not a contract.
    pub fn read(document: &[u8]) -> Result<Self, CompileError> {
        Profile::Full.check(document)?;
        let compiled = Compiled::compile(document)?;
        let mut value: serde_json::Value = serde_json::from_slice(document)
            .map_err(|error| CompileError::NotJson { line: error.line(), problem: error.to_string() })?;
        // What differs is told in one order, however the keys stand.
        value.sort_all_objects();
        Ok(Self::Declared(Box::new(Document { value, compiled })))
    }

    /// Reads another agent's schema document; one that capd cannot enforce is unknown.
    pub fn read_foreign(document: &[u8]) -> Self {
        Self::read(document).unwrap_or_else(|error| Self::Unknown { reason: error.to_string() })
    }

    /// Whether both are literally equal, except key order and white space.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Undeclared, Self::Undeclared) => true,
            (Self::Declared(one), Self::Declared(other)) => one.value == other.value,
            (Self::Undeclared | Self::Declared(_) | Self::Unknown { .. }, _) => false,
        }
    }
}

impl Document {
    /// Whether it is proven to take every JSON value.
    pub(super) fn takes_anything(&self) -> bool {
        Compiled::compile(b"true").is_ok_and(|any| is_subtype(&any, &self.compiled) == Proof::Proven)
    }
}

impl Contract {
    /// Whether both are literally equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.input.is_same(&other.input) && self.output.is_same(&other.output)
    }
}
