//! Compiles a declaration: its two schema documents in, compiled terms out.

use serde_json::Value;

use crate::profile::Profile;
use crate::subtype::{Compiled, Verdict as Proof, is_subtype};
use crate::validator::CompileError;

/// What one declaration of a capability promises about its payloads.
#[derive(Debug)]
pub struct Contract {
    /// What params must fit.
    pub input: Terms,
    /// What results must fit.
    pub output: Terms,
}

/// What is known of the schema of one side.
#[derive(Debug)]
pub enum Terms {
    /// There is none: whoever receives takes anything, and whoever sends promises nothing.
    Undeclared,
    /// There is one.
    Declared(Box<Document>),
    /// There is one that cannot be had or read.
    Unknown {
        /// Why, in words.
        reason: String,
    },
}

/// A schema that can be held against others.
#[derive(Debug)]
pub struct Document {
    pub(super) value: Value,
    pub(super) compiled: Compiled,
}

impl Terms {
    /// Reads a schema document.
    ///
    /// **Errors:** what [`Profile::Full`] refuses; a contract that is not enforced is none.
    pub fn read(document: &[u8]) -> Result<Self, CompileError> {
        Profile::Full.check(document)?;
        let compiled = Compiled::compile(document)?;
        let mut value: serde_json::Value = serde_json::from_slice(document)
            .map_err(|error| CompileError::NotJson { line: error.line(), problem: error.to_string() })?;
        // What differs is told in one order, however the keys stand.
        value.sort_all_objects();
        Ok(Self::Declared(Box::new(Document { value, compiled })))
    }

    /// Reads a schema document of somebody else: one that we cannot enforce is unknown.
    pub fn read_foreign(document: &[u8]) -> Self {
        Self::read(document).unwrap_or_else(|error| Self::Unknown { reason: error.to_string() })
    }

    /// Whether both say the same, word for word; key order and whitespace apart.
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
    /// Whether both say the same, word for word.
    pub fn is_same(&self, other: &Self) -> bool {
        self.input.is_same(&other.input) && self.output.is_same(&other.output)
    }
}
