//! Parses the arguments of `calls` and `top`.

use std::time::Duration;

use capd::client::{CallSide, WantedState};
use capd_proto::envelope::MessageId;
use clap::Args as ArgGroup;

use crate::duration;
use crate::moment::{self, Moment};

#[derive(Debug, ArgGroup)]
pub(crate) struct CallsArgs {
    /// Only the call with this id, 32 hexadecimal digits, with all details
    #[arg(conflicts_with_all = ["role", "state", "capability", "since", "peer", "limit", "watch"])]
    pub(crate) id: Option<MessageId>,
    /// Only calls that this agent made, or that it serves: made or served
    #[arg(long)]
    pub(crate) role: Option<CallSide>,
    /// Only calls in this state: running, waiting, sent, accepted, executing or finished
    #[arg(long)]
    pub(crate) state: Option<WantedState>,
    /// Only calls of this capability: NAME, NAME:VERSION or NAME@RANGE; the end of a name is enough if it is unique
    #[arg(long, value_name = "CAPABILITY")]
    pub(crate) capability: Option<String>,
    /// Only calls that were made since: so long ago (30s, 2m, 24h), or a time (2026-11-21T12:00:00Z)
    #[arg(long, value_parser = moment::parse)]
    pub(crate) since: Option<Moment>,
    /// Only calls with this peer, by its name or DID
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Go on until Ctrl-C: print each call again when its state changes, oldest first
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// At most so many calls; with --watch, so many of those that are known at the start [default with --watch: 10]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, ArgGroup)]
pub(crate) struct TopArgs {
    /// Time from one reading to the next, and what rates are of
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1s")]
    pub(crate) interval: Duration,
    /// End after so many readings, instead of at Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
