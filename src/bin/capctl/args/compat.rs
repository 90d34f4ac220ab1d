//! Defines the command lines of `diff`, `check` and `matrix`.

use clap::{Args as ArgGroup, ValueEnum};

#[derive(Debug, ArgGroup)]
pub(crate) struct DiffArgs {
    /// A declaration: FILE, FILE#CAPABILITY, CAPABILITY, or PEER/CAPABILITY. A CAPABILITY is NAME, NAME:VERSION or NAME@RANGE;
    /// the end of a name is enough if it is unique
    pub(crate) a: String,
    /// The declaration to compare it with
    pub(crate) b: String,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct CheckArgs {
    /// The earlier declarations, and those of agents that require it, then the new one; a single file is checked against
    /// its own earlier versions
    #[arg(required = true, value_name = "OLD... NEW")]
    pub(crate) declarations: Vec<String>,
    /// Which callers must be served in full: old ones by the new declaration, new ones by the old, or both
    #[arg(long, value_enum, default_value_t = CheckMode::Backward)]
    pub(crate) mode: CheckMode,
    /// Check against all earlier versions, not only the last
    #[arg(long)]
    pub(crate) transitive: bool,
    /// How to show what is found: for people, or with annotations that GitHub shows beside the lines of a change
    #[arg(long, value_enum, default_value_t = CheckFormat::Text, conflicts_with = "json")]
    pub(crate) format: CheckFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    Text,
    Github,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckMode {
    Backward,
    Forward,
    Full,
}

impl CheckMode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Backward => "backward",
            Self::Forward => "forward",
            Self::Full => "full",
        }
    }
}

#[derive(Debug, ArgGroup)]
pub(crate) struct MatrixArgs {
    /// A CAPABILITY, for every version of it that the sidecar knows; or declarations, in the forms of diff
    #[arg(required = true, value_name = "CAPABILITY|DECLARATION")]
    pub(crate) declarations: Vec<String>,
}
