//! Makes the rooms of a sidecar, from the lowest up.

use std::sync::{Arc, Weak};

use capd_proto::identity::Keyring;
use capd_proto::ledger::Limits;

use super::peers::Peered;
use super::{StartError, fleet};
use crate::config::{self, Config};
use crate::daemon::account::Account;
use crate::daemon::asks::Asks;
use crate::daemon::caller::{self, Caller, Gifts};
use crate::daemon::context::Ctx;
use crate::daemon::desk::{self, Desk};
use crate::daemon::directory::Directory;
use crate::daemon::directory::expected::Reason;
use crate::daemon::directory::peers::Peers;
use crate::daemon::directory::serves::Serves;
use crate::daemon::door;
use crate::daemon::door::Door;
use crate::daemon::door::admission::Admission;
use crate::daemon::door::policy::is_closed;
use crate::daemon::executor::{self, Executor, Recovered, Table, recover};
use crate::daemon::fleet::Fleet;
use crate::daemon::sidecar::{Fronts, Sidecar, Written};
use crate::net::{Seed, System};
use crate::policy::rate::{PeerRates, Rates};
use crate::policy::{Decisions, Rules};
use crate::schema::Artifacts;
use crate::schema::drift::Gate;
use crate::store::audit::Audit;
use crate::store::{LoadedKey, Medium, Writer};

/// What was read besides the configuration's own file.
pub(super) struct Read {
    pub(super) peers: Peered,
    pub(super) keyring: Keyring,
    pub(super) rules: Rules,
}

/// A sidecar, and what writes its journal.
type Made<S> = (Arc<Sidecar>, Writer<Written, S>, Vec<LoadedKey>);

/// The rooms of a sidecar, from the lowest up, and what must run before its journal does anything.
pub(super) fn rooms<M: Medium>(
    config: &Arc<Config>,
    seed: &Seed,
    read: Read,
    system: System,
    medium: &M,
    audit: Audit,
) -> Result<Made<M::Storage>, StartError> {
    let Read { peers, keyring, rules } = read;
    peers.name_in_log();
    let admission = Admission::new(peers.is_open, peers.listed());
    let limits = &config.limits;
    let bounds = ledger_limits(limits);
    let cursor_key = system.random.bytes().map_err(|error| StartError::System(error.to_string()))?;
    let identity = seed.identity();
    let in_flight_max = limits.calls_in_flight_max;
    let queue_max = in_flight_max.saturating_mul(JOURNAL_WORK_PER_CALL);
    let Recovered { ledger, given, reserved, keys, expired_ms, journal, writer } =
        recover(medium, bounds, queue_max, &identity, &system, &audit)?;
    let part = fleet::part(config, seed, journal.id(), system.clock.wall_ms())?;
    let peer_rates = peer_rates(limits);
    let clock = system.clock.clone();
    let links = Peers::new(system.clock.clone());
    let ctx = Ctx::new(identity, system, Arc::clone(config));
    let account = Account::new(Arc::clone(&ctx), audit);
    let asks = Asks::new(Arc::clone(&ctx), Arc::clone(&account));
    let directory = Directory::new(
        (Arc::clone(&ctx), Arc::clone(&account), Arc::clone(&asks)),
        links,
        Serves::new(peers.serves(), config.peer.serves.clone()),
        Artifacts::default(),
    );
    directory.peers.replace_expected(peers.dialled(), Reason::Configured);
    let rates = Arc::new(Rates::new(clock, peer_rates));
    let base = || (Arc::clone(&ctx), Arc::clone(&account), Arc::clone(&directory));
    let door = Door::new(
        base(),
        door::Parts {
            admission,
            keyring,
            policy: Arc::new(decisions(config, rules)),
            rates: Arc::clone(&rates),
        },
    );
    let fleet = Fleet::new(base(), part);
    let executor = Executor::new(
        base(),
        executor::Parts {
            fleet: Arc::clone(&fleet),
            own: door.own(),
            scribe: Arc::new(journal.clone()),
            table: Table::new(ledger),
            rates,
        },
    );
    let gifts = Gifts::new((given, reserved), expired_ms);
    let of_caller = base();
    let sidecar = Arc::new_cyclic(|me: &Weak<Sidecar>| {
        let (own, scribe, here) = (door.own(), Arc::new(journal.clone()), me.clone());
        let parts =
            caller::Parts { fleet: Arc::clone(&fleet), own, scribe, gifts, gate: Gate::default(), here };
        let caller = Caller::new(of_caller, parts);
        let rooms = desk::Rooms {
            ctx: Arc::clone(&ctx),
            account: Arc::clone(&account),
            directory: Arc::clone(&directory),
            fleet: Arc::clone(&fleet),
            door: Arc::clone(&door),
            executor: Arc::clone(&executor),
            caller: Arc::clone(&caller),
        };
        let desk = Desk::new(rooms, cursor_key);
        Sidecar {
            ctx,
            account,
            asks,
            directory,
            fleet,
            door,
            executor,
            caller,
            desk,
            journal,
            waiting: Arc::default(),
            fronts: Fronts::default(),
        }
    });
    Ok((sidecar, writer, keys))
}

/// Decisions by the configuration's rules.
fn decisions(config: &Config, rules: Rules) -> Decisions {
    if is_closed(config) && (config.listen.quic.is_some() || config.listen.tcp.is_some()) {
        tracing::info!("peers may call nothing here: there is neither [[allow]] nor policy.files");
    }
    Decisions::new(rules)
}

/// What the ledger may remember.
pub(super) const fn ledger_limits(limits: &config::Limits) -> Limits {
    Limits {
        calls_max: limits.ledger_entries_max,
        calls_per_peer_max: half(limits.ledger_entries_max),
        kept_bytes_max: limits.ledger_bytes_max,
        kept_bytes_per_peer_max: half(limits.ledger_bytes_max),
        idempotent_bytes_max: limits.ledger_idempotent_bytes_max,
        idempotent_bytes_per_peer_max: half(limits.ledger_idempotent_bytes_max),
    }
}

/// How often peers may call.
pub(super) const fn peer_rates(limits: &config::Limits) -> PeerRates {
    PeerRates { each: limits.call_rate_per_peer, all: limits.call_rate, denied: limits.denied_rate_per_peer }
}

/// What one peer may take of a bound of the ledger's, so that none takes everybody's room.
const fn half(max: usize) -> usize {
    max.div_ceil(2)
}

/// Work in the journal's queue for each call in flight: its row, its result, a question after it, its end.
const JOURNAL_WORK_PER_CALL: usize = 4;
