//! The command lines of `diff`, `check` and `matrix`.

use clap::{Args as ArgGroup, ValueEnum};

#[derive(Debug, ArgGroup)]
pub(crate) struct DiffArgs {
    /// A declaration: FILE, FILE#NAME, FILE#NAME:VERSION, NAME:VERSION, or PEER/NAME:VERSION
    pub(crate) a: String,
    /// Another one
    pub(crate) b: String,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct CheckArgs {
    /// The earlier declarations, then the new one; a file alone is checked against its own earlier versions
    #[arg(required = true, value_name = "OLD... NEW")]
    pub(crate) declarations: Vec<String>,
    /// Who must be served in full: callers of the old by the new, callers of the new by the old, or both
    #[arg(long, value_enum, default_value_t = CheckMode::Backward)]
    pub(crate) mode: CheckMode,
    /// Check against all earlier versions, not only the last one
    #[arg(long)]
    pub(crate) transitive: bool,
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
    /// A capability's name, for every version that the sidecar knows; or declarations, as diff takes them
    #[arg(required = true, value_name = "NAME|DECLARATION")]
    pub(crate) declarations: Vec<String>,
}
