//! The command lines of `fleet`.

use std::path::PathBuf;

use capd_proto::capability::CapabilityPattern;
use capd_proto::fleet::Cell;
use clap::{Args as ArgGroup, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Make the authority key of a new cell, and print the etcd commands that prepare its registry
    Init(AuthorityArgs),
    /// Sign the membership of an agent, and print the etcd commands that let it register
    Admit(AdmitArgs),
    /// Sign the end of all memberships that an agent has, and print the etcd command that publishes it
    Revoke(RevokeArgs),
    /// List the names of the registry, and who registered each
    Ls,
    /// Explain who is called for a name: each provider, its state, and why it is chosen or not
    Why(WhyNameArgs),
    /// Check the registry, how current it is known, the sidecar's identity there and its registration
    Doctor,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct WhyNameArgs {
    /// The name of a capability, or the unique end of it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct AuthorityArgs {
    /// The cell: the sidecars of one registry, 1 to 32 lower-case letters, digits and hyphens
    #[arg(long, value_name = "CELL")]
    pub(crate) cell: Cell,
    /// The file of the cell's authority key; keep it off sidecars and etcd machines [default: CELL.authority.key]
    #[arg(long, value_name = "FILE")]
    pub(crate) authority: Option<PathBuf>,
}

impl AuthorityArgs {
    pub(crate) fn file(&self) -> PathBuf {
        self.authority.clone().unwrap_or_else(|| format!("{}.authority.key", self.cell).into())
    }
}

#[derive(Debug, ArgGroup)]
pub(crate) struct AdmitArgs {
    /// The agent's DID; `capctl id` prints it
    #[arg(value_name = "DID")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) authority: AuthorityArgs,
    /// A name that the agent may serve, or a namespace (org.example.billing.*); repeat it for more. Without it, the agent
    /// may only call
    #[arg(long, value_name = "PATTERN")]
    pub(crate) serves: Vec<CapabilityPattern>,
    /// Days until the membership ends
    #[arg(long, value_name = "COUNT", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3_650))]
    pub(crate) days: u16,
    /// Also write the membership to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct RevokeArgs {
    /// The agent's DID
    #[arg(value_name = "DID")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) authority: AuthorityArgs,
    /// Also publish it in this registry file, which `fleet.file` of the sidecars names
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
