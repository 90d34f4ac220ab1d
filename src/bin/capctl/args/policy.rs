//! Defines the command lines of `policy`.

use std::path::PathBuf;

use capd_proto::capability::CapabilityName;
use clap::Subcommand;

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
    /// Test a configuration's rules with a table of cases; exit code 4 if a decision differs
    Test {
        /// The table: `[[case]]` with caller, capability, expect, and optionally action, provider, permissions and category
        file: PathBuf,
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Ask the sidecar what a caller may do with a capability, and which rules decide
    Why {
        /// The caller's DID
        caller: String,
        /// The capability's name
        capability: CapabilityName,
        /// The DID of the provider, for calls of the sidecar's own agent to a peer [default: its own agent]
        #[arg(long, value_name = "DID")]
        provider: Option<String>,
    },
    /// Reload the whole configuration, as `capctl reload` does, and print how many rules are in force
    Reload,
}
