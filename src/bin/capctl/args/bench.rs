//! The command line of `bench`.

use std::time::Duration;

use capd_proto::capability::Range;
use clap::Args as ArgGroup;

use crate::duration;

#[derive(Debug, ArgGroup)]
pub(crate) struct BenchArgs {
    /// A capability's name (org.example.review), or its id with a version (org.example.review:1.5.0)
    #[arg(value_name = "NAME|ID")]
    pub(crate) capability: String,
    /// Which versions will do, such as '>=1.0.0 <2.0.0'; without it, the highest release
    #[arg(long, value_name = "RANGE")]
    pub(crate) version: Option<Range>,
    /// Every call's params: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "null", allow_hyphen_values = true)]
    pub(crate) params: String,
    /// The agent to call; without it, the sidecar chooses
    #[arg(long, value_name = "DID")]
    pub(crate) to: Option<String>,
    /// How many calls may wait for their answers at once. Without --rate, always so many do (a closed loop)
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) in_flight: u32,
    /// Calls a second, begun when they are due whatever became of those before (an open loop)
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(crate) duration: Duration,
    /// How long to call before that, unmeasured
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub(crate) warm_up: Duration,
    /// How long each call may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// How long each call is remembered by whoever runs it; more than --timeout
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
}
