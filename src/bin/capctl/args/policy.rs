//! The command lines of `policy`.

use std::path::PathBuf;

use capd_proto::capability::CapabilityName;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print every rule of a configuration as a policy in Cedar, what `[[allow]]` grants among them
    Show {
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a configuration's rules: their syntax, and the names in them
    Check {
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Hold a configuration's rules against a table of cases; exit code 4 when one is decided otherwise
    Test {
        /// The table: `[[case]]` with caller, capability, expect, and where wanted action, permissions and category
        file: PathBuf,
        /// The sidecar's configuration [env: CAPD_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Ask the sidecar what a caller may do with a capability, and which rules say so
    Why {
        /// The caller's DID
        caller: String,
        /// The capability's name
        capability: CapabilityName,
        /// The DID of the agent that serves it, for calls of the sidecar's own agent to a peer [default: its own agent]
        #[arg(long, value_name = "DID")]
        provider: Option<String>,
    },
    /// Have the sidecar read its rules anew; with a mistake in them, those that stand still stand
    Reload,
}
