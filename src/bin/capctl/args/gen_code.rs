//! Defines the command line of `gen`.

use std::path::PathBuf;

use capd::codegen::Language;
use clap::{Args as ArgGroup, ValueEnum};

#[derive(Debug, ArgGroup)]
pub(crate) struct GenArgs {
    /// The language of the code
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub(crate) lang: LanguageArg,
    /// The agent to call: its name, its DID or the end of it, or the NAME of agent://NAME; without it, every agent that
    /// the sidecar knows. A NAME whose agents/NAME/capabilities.yaml exists here is read from there, without a sidecar
    #[arg(long, value_name = "NAME|DID")]
    pub(crate) peer: Option<String>,
    /// Read this capabilities.yaml instead of asking the sidecar
    #[arg(long, value_name = "PATH", conflicts_with = "peer")]
    pub(crate) capabilities: Option<PathBuf>,
    /// The folder for generated code; nothing is written outside it
    #[arg(long, value_name = "DIR", default_value = "generated")]
    pub(crate) out: PathBuf,
    /// Write nothing: print what would change as a diff, and end with exit code 1 if anything would
    #[arg(long)]
    pub(crate) check: bool,
    /// Only these capabilities, each as NAME, NAME:VERSION or NAME@RANGE, or the end of a name
    #[arg(value_name = "CAPABILITY")]
    pub(crate) ids: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageArg {
    #[value(name = "typescript")]
    TypeScript,
    Python,
    Go,
    Rust,
}

impl From<LanguageArg> for Language {
    fn from(language: LanguageArg) -> Self {
        match language {
            LanguageArg::TypeScript => Self::TypeScript,
            LanguageArg::Python => Self::Python,
            LanguageArg::Go => Self::Go,
            LanguageArg::Rust => Self::Rust,
        }
    }
}
