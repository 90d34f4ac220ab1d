//! Defines the command line of `bench`.

use std::time::Duration;

use capd_proto::capability::Range;
use clap::Args as ArgGroup;

use crate::duration;

#[derive(Debug, ArgGroup)]
pub(crate) struct BenchArgs {
    /// A capability: NAME, NAME:VERSION or NAME@RANGE; the end of a name is enough if it is unique
    #[arg(value_name = "CAPABILITY")]
    pub(crate) capability: String,
    /// Accepted versions, such as '>=1.0.0 <2.0.0' [default: the highest release]
    #[arg(long, value_name = "RANGE")]
    pub(crate) version: Option<Range>,
    /// The params of every call: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "null", allow_hyphen_values = true)]
    pub(crate) params: String,
    /// The agent to call, by its name or DID [default: the sidecar chooses]
    #[arg(long, value_name = "PEER")]
    pub(crate) to: Option<String>,
    /// Calls in flight; without --rate, always that many (a closed loop)
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) in_flight: u32,
    /// Calls per second, each started when it is due, whatever happened to earlier ones (an open loop)
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// Time to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(crate) duration: Duration,
    /// Time to call before that, unmeasured
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub(crate) warm_up: Duration,
    /// Time limit of each call
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// How long the provider's sidecar remembers each call; more than --timeout
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
}
