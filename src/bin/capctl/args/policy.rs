//! Defines the command lines of `policy`.

use std::path::PathBuf;

use clap::{Args as ArgGroup, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print every rule of a configuration as a Cedar policy, including the grants of `[[allow]]`
    Show {
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check the syntax and the names of a configuration's rules
    Check {
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Test a configuration's rules with a table of cases
    Test {
        /// The table: `[[case]]` with caller, capability, expect, and optionally action, provider, permissions and category
        file: PathBuf,
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Ask the sidecar what a caller may do with a capability, and which rules decide
    Why {
        /// The caller, by its name or DID
        caller: String,
        /// The capability: NAME, NAME:VERSION or NAME@RANGE; the end of a name is enough if it is unique
        capability: String,
        /// The provider, by its name or DID, for calls of the sidecar's own agent to a peer [default: its own agent]
        #[arg(long, value_name = "PEER")]
        provider: Option<String>,
    },
    /// Let a peer call a capability: write `[[allow]]` into the configuration, and reload it
    Grant(GrantArgs),
    /// Take a grant back: remove it from the configuration, and reload it
    Revoke(GrantArgs),
    /// Reload the whole configuration, as `capctl reload` does, and print how many rules are in force
    Reload,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct GrantArgs {
    /// The peer's name or DID, group:NAME, or * for every peer
    pub(crate) caller: String,
    /// The capability's name or the unique end of it, a namespace (org.example.*), or * for everything
    pub(crate) capability: String,
    /// A permission that the capability declares, such as db:read; repeatable
    #[arg(long = "permission", value_name = "SCOPE:VERB")]
    pub(crate) permissions: Vec<String>,
    /// The sidecar's configuration [env: CAPD_CONFIG] [default: the file of the running sidecar]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
