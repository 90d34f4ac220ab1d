//! Parses the command line into its typed form.

mod bench;
mod calls;
mod compat;
mod fleet;
mod gen_code;
mod line;
mod operate;
mod policy;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use capd::client::Order;
use capd::manual::{CompletionArgs, ManArgs};
use capd::store::audit::Kind;
use capd_proto::capability::{CapabilityId, Range};
use capd_proto::envelope::MessageId;
use capd_proto::limits::AFFINITY_BYTES_MAX;
use clap::{Args as ArgGroup, Parser, Subcommand, ValueEnum};

use crate::audit::Anchor;
use crate::duration;
use crate::moment::{self, Moment};

pub(crate) use bench::BenchArgs;
pub(crate) use calls::{CallsArgs, TopArgs};
pub(crate) use compat::{CheckArgs, CheckFormat, CheckMode, DiffArgs, MatrixArgs};
pub(crate) use fleet::{AdmitArgs, AuthorityArgs, FleetCommand, RevokeArgs, WhyNameArgs};
pub(crate) use gen_code::GenArgs;
pub(crate) use line::{command, parse};
pub(crate) use operate::{BackupArgs, ConfigCommand, DrainArgs, RestoreArgs};
pub(crate) use policy::{GrantArgs, PolicyCommand};

/// Call what other agents can do, through the capd sidecar beside your agent.
#[derive(Debug, Parser)]
#[command(name = "capctl", version, max_term_width = 110)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) sidecar: SidecarArgs,
    /// Print JSON: one document or one line for each item on stdout, errors on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show the DIDs of peers instead of their names
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the sidecar listens; see [`context`](crate::context) for what applies when nothing is given.
///
/// [`command`] adds it to each verb that asks a sidecar.
#[derive(Clone, Debug, Default, ArgGroup)]
#[command(next_help_heading = "Sidecar")]
pub(crate) struct SidecarArgs {
    /// The sidecar's unix socket [env: CAPD_SOCKET]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["address", "context"])]
    pub(crate) socket: Option<PathBuf>,
    /// A context of contexts.toml [env: CAPD_CONTEXT]
    #[arg(long, value_name = "NAME", conflicts_with = "address")]
    pub(crate) context: Option<String>,
    /// The sidecar's loopback TCP address, with --token-file
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// The file that holds the token for --address
    #[arg(long, value_name = "PATH", conflicts_with_all = ["socket", "context"])]
    pub(crate) token_file: Option<PathBuf>,
    /// Use a socket that neither you nor root opened
    #[arg(long)]
    pub(crate) any_owner: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a capability and print its result
    Call(CallArgs),
    /// Show which calls the sidecar runs, relays and remembers
    Calls(CallsArgs),
    /// Show what the sidecar does, anew each second: calls per second, latency, limits, peers
    Top(TopArgs),
    /// Print the sidecar's counters and the use of its limits, in the text format of Prometheus
    Metrics,
    /// Show what the sidecar refused, dropped or lost, and verify the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List the capabilities that the sidecar knows: all, those of a namespace, or the versions of one
    #[command(alias = "query")]
    Ls(LsArgs),
    /// Check the configuration, the sidecar, its peers, and the capabilities that the agent requires
    Doctor(DoctorArgs),
    /// Show one capability with its schemas
    Describe(DescribeArgs),
    /// Provide a capability: each call runs COMMAND, params on stdin, result on stdout, both JSON
    Serve(ServeArgs),
    /// Cancel a call that is running
    Cancel(CancelArgs),
    /// Measure the round trip to a sidecar
    Ping(PingArgs),
    /// Measure calls per second and latency of a capability; every call is executed for real
    Bench(BenchArgs),
    /// Print the DID of the sidecar's agent
    Id,
    /// Show what changes between two declarations of a capability, for callers and providers
    Diff(DiffArgs),
    /// Check that a new declaration breaks no caller
    Check(CheckArgs),
    /// Draw which versions of a capability fit together
    Matrix(MatrixArgs),
    /// Show frames, an envelope or a body, and whether the protocol accepts them
    Decode(DecodeArgs),
    /// Write types and functions for calling what an agent declares, in TypeScript, Python, Go or Rust
    Gen(GenArgs),
    /// Check any CBOR against any CDDL (RFC 8610)
    #[command(subcommand)]
    Cddl(CddlCommand),
    /// Print the hashes of a capabilities.yaml, which change when a contract changes
    Hash(HashArgs),
    /// Prove that all values of one JSON Schema are values of another, or show one that is not
    Subtype(SubtypeArgs),
    /// Show which callers may call what, test the rules, and explain a decision
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Apply the sidecar's configuration file as a whole, and show what that changes
    Reload,
    /// Compare the sidecar's configuration file with what runs
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make the sidecar take no new calls, and wait for those in flight
    Drain(DrainArgs),
    /// Copy the sidecar's state into one file while it runs: key, journal, audit log, configuration
    Backup(BackupArgs),
    /// Restore a state from a backup, while the sidecar does not run; no call runs twice
    Restore(RestoreArgs),
    /// Decide which agents are members of a cell, and see who serves what there
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Name your sidecars, and choose one
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print the completions of capctl for a shell
    Completion(CompletionArgs),
    /// Print the manual page of capctl, or write those of all its commands into a folder
    Man(ManArgs),
}

#[derive(Debug, ArgGroup)]
pub(crate) struct CallArgs {
    /// A capability: NAME, NAME:VERSION or NAME@RANGE; the end of a name is enough if it is unique
    #[arg(value_name = "CAPABILITY")]
    pub(crate) capability: String,
    /// Accepted versions, such as '>=1.0.0 <2.0.0' [default: the highest release]
    #[arg(long, value_name = "RANGE")]
    pub(crate) version: Option<Range>,
    /// The call's params: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "null", allow_hyphen_values = true)]
    pub(crate) params: String,
    /// Time limit of the call, such as 500ms, 30s, 2m [default: the capability's own, or 60s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
    /// The agent to call, by its name or DID [default: the sidecar chooses]
    #[arg(long, value_name = "PEER")]
    pub(crate) to: Option<String>,
    /// Repeat the call with this id, 32 hexadecimal digits: a call that ran returns its recorded result and does not run
    /// again. Repeat all other arguments unchanged
    #[arg(long, value_name = "HEX")]
    pub(crate) id: Option<MessageId>,
    /// How long --id may repeat the call, from its first attempt [default: 1h, or --timeout plus one minute if that is
    /// longer]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// The turn of the call, 2 to 128 hexadecimal digits: params that do not fit use up its repairs
    #[arg(long, value_name = "HEX", value_parser = thread)]
    pub(crate) thread: Option<bytes::Bytes>,
    /// Keep idempotent calls with the same TEXT at one provider, 1 to 255 bytes: a customer's name, a document's
    #[arg(long, value_name = "TEXT", value_parser = affinity)]
    pub(crate) affinity: Option<String>,
    /// Show the call's id and progress on stderr even if stderr is not a terminal
    #[arg(long)]
    pub(crate) progress: bool,
}

/// A turn's name: any bytes, within a bound that any program can keep.
fn thread(text: &str) -> Result<bytes::Bytes, String> {
    let bytes = crate::hex::decode(text)?;
    if (1..=THREAD_BYTES_MAX).contains(&bytes.len()) {
        Ok(bytes.into())
    } else {
        Err(format!("{} bytes; accepted: 1 to {THREAD_BYTES_MAX} bytes", bytes.len()))
    }
}

fn affinity(text: &str) -> Result<String, String> {
    if (1..=AFFINITY_BYTES_MAX).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(format!("{} bytes; accepted: 1 to {AFFINITY_BYTES_MAX} bytes", text.len()))
    }
}

const THREAD_BYTES_MAX: usize = 64;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show records, oldest first
    Query(AuditQueryArgs),
    /// Verify the chain of records, and name the first row that was altered
    Verify {
        /// A row and its hash, as verify once printed them; the chain must still contain them
        #[arg(long, value_name = "ROW:HASH")]
        anchor: Option<Anchor>,
        /// Read this file instead of asking the sidecar
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Print every entry of the chain as a JSON line, including pruned ones
    Export {
        /// Write to this file instead of stdout
        #[arg(long, value_name = "PATH")]
        output: Option<PathBuf>,
        /// Read this file instead of asking the sidecar
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Remove old records; the chain can still be verified
    Prune {
        /// An age such as 90d, or a time: older records are removed
        #[arg(long, value_name = "DURATION|TIME", value_parser = moment::parse)]
        older_than: Moment,
        /// Read this file instead of asking the sidecar
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, ArgGroup)]
pub(crate) struct AuditQueryArgs {
    /// Only records of this kind
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
    /// Only records of the last 24h, for example, or since this time
    #[arg(long, value_name = "DURATION|TIME", value_parser = moment::parse)]
    pub(crate) since: Option<Moment>,
    /// Only records about this capability: its name or the unique end of it; or a namespace: org.example.*
    #[arg(long, value_name = "NAME|NAMESPACE.*")]
    pub(crate) capability: Option<String>,
    /// Only records about this peer, by its name or DID; with --file, by its DID
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Read this file instead of asking the sidecar
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    NewestFirst,
    OldestFirst,
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::NewestFirst => Self::NewestFirst,
            OrderArg::OldestFirst => Self::OldestFirst,
        }
    }
}

#[derive(Debug, ArgGroup)]
pub(crate) struct LsArgs {
    /// NAME, NAME:VERSION or NAME@RANGE; any part of a name, for all names that have it; or a namespace: org.example.*
    #[arg(value_name = "CAPABILITY|NAMESPACE.*")]
    pub(crate) wanted: Option<String>,
    /// Only versions in this range
    #[arg(long, value_name = "RANGE")]
    pub(crate) version: Option<Range>,
    /// At most so many; the cursor for those that follow is printed
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) limit: Option<u64>,
    /// Continue where an earlier list of the same kind stopped
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Which version of a name comes first
    #[arg(long, value_enum, default_value_t = OrderArg::NewestFirst)]
    pub(crate) order: OrderArg,
    /// Only capabilities of this agent, by its name or DID, from its own sidecar
    #[arg(long, value_name = "PEER")]
    pub(crate) to: Option<String>,
    /// List the sidecar's peers instead, and why one is not connected
    #[arg(long, conflicts_with_all = ["wanted", "version", "limit", "cursor", "to"])]
    pub(crate) peers: bool,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct DescribeArgs {
    /// A capability: NAME, NAME:VERSION or NAME@RANGE [default version: the highest release]
    #[arg(value_name = "CAPABILITY")]
    pub(crate) capability: String,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct DoctorArgs {
    /// Check this file first, then its sidecar [default: CAPD_CONFIG, else the running sidecar alone]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct ServeArgs {
    /// The capability's id, such as org.example.upper:1.0.0
    #[arg(value_name = "NAME:VERSION")]
    pub(crate) id: CapabilityId,
    /// JSON Schema of the params
    #[arg(long, value_name = "FILE")]
    pub(crate) input_schema: Option<PathBuf>,
    /// JSON Schema of the result
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// A call may safely run more than once
    #[arg(long)]
    pub(crate) idempotent: bool,
    /// Time limit of a call whose caller sets none
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
    /// What the capability does, for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Commands that run at once; as many calls again may wait
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(crate) concurrency: u16,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct CancelArgs {
    /// The call's id, 32 hexadecimal digits
    pub(crate) id: MessageId,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct PingArgs {
    /// The agent to reach, by its name or DID [default: the sidecar itself]
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Number of pings
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Time to wait for each answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct DecodeArgs {
    /// The file to read, or - for stdin; its bytes as they are, or as hexadecimal text
    #[arg(value_name = "FILE", required_unless_present = "hex", conflicts_with = "hex")]
    pub(crate) file: Option<PathBuf>,
    /// The bytes as hexadecimal text; spaces and colons between them are ignored
    #[arg(long, value_name = "TEXT")]
    pub(crate) hex: Option<String>,
    /// The bytes are frames
    #[arg(long, conflicts_with_all = ["envelope", "body"])]
    pub(crate) frame: bool,
    /// The bytes are one envelope
    #[arg(long, conflicts_with = "body")]
    pub(crate) envelope: bool,
    /// The bytes are one body of this message type, such as CAP_INVOKE or 22
    #[arg(long, value_name = "TYPE")]
    pub(crate) body: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CddlCommand {
    /// Check that each file holds one CBOR item that matches a rule
    Check(CddlCheckArgs),
}

#[derive(Debug, ArgGroup)]
pub(crate) struct CddlCheckArgs {
    /// The CDDL text
    #[arg(long, value_name = "FILE")]
    pub(crate) cddl: PathBuf,
    /// The rule to match; without it, the first rule of the text
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,
    /// Files to check, or - for stdin; bytes as they are, or as hexadecimal text
    #[arg(value_name = "CBOR", required = true)]
    pub(crate) cbor: Vec<PathBuf>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct HashArgs {
    /// The capabilities.yaml
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Also hash schemas that no sidecar would serve, for inspection only
    #[arg(long)]
    pub(crate) no_validate: bool,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct SubtypeArgs {
    /// The schema whose values are examined: a file, or - for stdin
    #[arg(value_name = "SUB", required_unless_present = "pairs", conflicts_with = "pairs")]
    pub(crate) sub: Option<PathBuf>,
    /// The schema that should accept all of them: a file, or - for stdin
    #[arg(value_name = "SUP", required_unless_present = "pairs", conflicts_with = "pairs")]
    pub(crate) sup: Option<PathBuf>,
    /// Lines of {"sub": SCHEMA, "sup": SCHEMA} in a file, or - for stdin; a line of JSON is printed for each
    #[arg(long, value_name = "FILE")]
    pub(crate) pairs: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts
    Ls,
    /// Show the sidecar that capctl uses, and why
    Show,
    /// Make this context the current one
    Use {
        /// A context of contexts.toml
        name: String,
    },
    /// Write a context: --socket PATH, or --address IP:PORT --token-file PATH
    Set {
        /// The context's name
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        super::parse(std::iter::once("capctl").chain(line.iter().copied()).map(OsString::from))
    }

    #[test]
    fn the_definition_has_no_contradictions() {
        command().debug_assert();
    }

    #[test]
    fn a_subcommands_version_is_a_range() {
        let args = parse(&["call", "org.example.review", "--version", ">=1.0.0 <2.0.0"]).unwrap();
        let Command::Call(call) = args.command else { panic!("{args:?}") };
        assert_eq!(call.version.unwrap().to_string(), ">=1.0.0 <2.0.0");
        assert_eq!(call.params, "null");
        let error = parse(&["--version"]).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayVersion);
    }

    #[test]
    fn a_caret_range_is_refused_before_anything_is_sent() {
        for range in ["^1.0", "~1.2", "1.x", "*", ">=1.0 || <3"] {
            let error = parse(&["query", "org.example.review", "--version", range]).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{range}");
        }
    }

    #[test]
    fn global_flags_stand_before_or_after_the_subcommand() {
        for line in [&["--json", "--socket", "/s", "id"][..], &["id", "--socket", "/s", "--json"][..]] {
            let args = parse(line).unwrap();
            assert!(args.json);
            assert_eq!(args.sidecar.socket.as_deref(), Some(std::path::Path::new("/s")));
        }
    }

    #[test]
    fn two_sidecars_at_once_are_refused() {
        for line in [
            &["id", "--socket", "/s", "--address", "127.0.0.1:1"][..],
            &["id", "--socket", "/s", "--context", "x"],
            &["id", "--context", "x", "--address", "127.0.0.1:1"],
            &["id", "--socket", "/s", "--token-file", "/t"],
            &["--socket", "/s", "id", "--address", "127.0.0.1:1"],
            &["--socket", "/s", "id", "--socket", "/t"],
        ] {
            assert_eq!(parse(line).unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict, "{line:?}");
        }
    }

    #[test]
    fn the_served_command_keeps_its_own_flags() {
        let args =
            parse(&["serve", "org.example.upper:1.0", "--idempotent", "--", "tr", "--json", "a-z"]).unwrap();
        assert!(!args.json);
        let Command::Serve(serve) = args.command else { panic!("not serve") };
        assert_eq!(serve.command, ["tr", "--json", "a-z"]);
        assert_eq!(serve.id.to_string(), "org.example.upper:1.0.0");
        assert!(parse(&["serve", "org.example.upper:1.0.0"]).is_err());
    }

    #[test]
    fn negative_params_are_a_value_and_a_bad_timeout_is_not() {
        let args = parse(&["call", "a.b.c", "--params", "-1", "--timeout", "2m"]).unwrap();
        let Command::Call(call) = args.command else { panic!("{args:?}") };
        assert_eq!((call.params.as_str(), call.timeout), ("-1", Some(Duration::from_secs(120))));
        let error = parse(&["call", "a.b.c", "--timeout", "30"]).unwrap_err();
        assert!(error.to_string().contains("500ms, 30s, 2m"), "{error}");
    }
}
