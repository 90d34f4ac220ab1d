//! Parses the arguments of `config`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what the sidecar's configuration file would change, without applying it
    Diff,
}
