//! Several sidecars that serve the same in; how often the caller's sidecar writes down whom calls go to, and how evenly they
//! are shared, out.

use crate::Args;
use crate::agents::JOURNALED;
use crate::measure::IN_FLIGHT;
use crate::support::{Setup, Sidecar};
use crate::world::{Agent, commits, sidecar};

/// A caller's sidecar with a link to each of several that serve.
struct Fleet {
    // Agents first: each ends before its sidecar does.
    caller: Agent,
    providers: Vec<Agent>,
    a: Sidecar,
    _serving: Vec<Sidecar>,
}

impl Fleet {
    fn start(count: usize) -> Self {
        let serving: Vec<_> = (0..count).map(|_| sidecar(Setup::new())).collect();
        let providers = serving.iter().map(|b| Agent::start("--provider", &b.socket)).collect();
        let a = sidecar(serving.iter().fold(Setup::new(), Setup::peer));
        let caller = Agent::start("--caller", &a.socket);
        Self { caller, providers, a, _serving: serving }
    }

    fn round(&mut self, in_flight: usize, milliseconds: u64) -> u64 {
        self.caller.round(&format!("{JOURNALED} {in_flight} {milliseconds} 600")).calls
    }

    /// How many calls each provider has executed.
    fn executions(&mut self) -> Vec<u64> {
        self.providers.iter_mut().map(|provider| provider.ask("executions").parse().unwrap()).collect()
    }
}

/// Prints a line for one call at a time, and one for many.
pub(crate) fn report(count: usize, args: &Args) {
    let mut fleet = Fleet::start(count);
    let milliseconds = if args.is_test { 3_000 } else { 20_000 };
    // Until all providers are known; what was reserved for the first alone has passed then.
    while fleet.executions().contains(&0) {
        fleet.round(1, 500);
    }
    std::thread::sleep(RESERVED_AHEAD);
    for in_flight in [1, IN_FLIGHT] {
        let (before, written) = (fleet.executions(), commits(&fleet.a));
        let calls = fleet.round(in_flight, milliseconds);
        let written = commits(&fleet.a) - written;
        let shares: Vec<_> =
            fleet.executions().iter().zip(&before).map(|(after, before)| after - before).collect();
        assert_eq!(shares.iter().sum::<u64>(), calls, "each call is executed once");
        println!(
            "{count} providers, {in_flight} in flight: {calls} calls, {written} commits of the caller's sidecar, {:.2} per \
             1,000 calls; executed {shares:?}",
            written as f64 * 1_000.0 / calls as f64
        );
    }
}

/// A little more than calls are promised ahead.
const RESERVED_AHEAD: std::time::Duration = std::time::Duration::from_secs(11);
