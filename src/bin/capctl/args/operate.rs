//! Parses the arguments of `config`, `drain`, `backup` and `restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ArgGroup, Subcommand};

use crate::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what the sidecar's configuration file would change, without applying it
    Diff,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct DrainArgs {
    /// Wait until no caller can ask this sidecar for a result, too: only then may its agent.dir be deleted
    #[arg(long)]
    pub(crate) retire: bool,
    /// How long to wait for the calls in flight to end [default: as long as they take]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist [default: a file in the sidecar's state directory, which is printed]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The configuration of the sidecar to restore, which says where its state is [default: CAPD_CONFIG, else the defaults]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Move a state that is there into a folder beside it
    #[arg(long)]
    pub(crate) replace: bool,
}
