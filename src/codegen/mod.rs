//! Generates code for callers: an agent's declaration in; one source file with types, functions and the schemas behind
//! them, out.
//!
//! The same declaration gives the same bytes on every machine, in any order of its keys. Names and descriptions are
//! foreign text: `names` turns them into identifiers, `text` into literals and comments that they cannot leave. `read`
//! translates a schema to the terms of `model`, `merge` combines several schemas, and each emitter writes the result in
//! its language. A construct that a language cannot express becomes its unknown type, with a comment that names the
//! place.

mod go;
mod merge;
mod model;
mod names;
mod plan;
mod python;
mod read;
mod rust;
mod source;
mod text;
mod types;
mod typescript;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use source::{Agent, Capability, Schema, SourceError};

/// A language that code is generated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// TypeScript, as an ES module.
    TypeScript,
    /// Python 3.9 and later.
    Python,
    /// Go 1.22 and later.
    Go,
    /// Rust, edition 2021 and later.
    Rust,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 4] = [Self::TypeScript, Self::Python, Self::Go, Self::Rust];

    /// Its name on a command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TypeScript => "typescript",
            Self::Python => "python",
            Self::Go => "go",
            Self::Rust => "rust",
        }
    }
}

/// One generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Its path below the folder for generated code. **Shape:** one or two names of ASCII letters, digits, `-` and `_`
    /// and an ending; never absolute, and no step leads up.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// Writes the file of one agent.
pub fn generate(language: Language, agent: &Agent) -> Generated {
    let plan = plan::Plan::of(agent);
    match language {
        Language::TypeScript => typescript::file(&plan),
        Language::Python => python::file(&plan),
        Language::Go => go::file(&plan),
        Language::Rust => rust::file(&plan),
    }
}
