//! Makes the rooms of a sidecar, from the lowest up.

use std::sync::{Arc, OnceLock, Weak};

use capd_proto::ledger::Limits;

use super::contract::gate;
use super::reading::Reading;
use super::{StartError, keyring, peers};
use crate::config::{Admit, Config};
use crate::daemon::account::access::Access;
use crate::daemon::account::{Account, Told};
use crate::daemon::asks::Asks;
use crate::daemon::caller::{self, Caller, Gifts};
use crate::daemon::context::Ctx;
use crate::daemon::desk::{self, Desk};
use crate::daemon::directory::Directory;
use crate::daemon::directory::peers::Peers;
use crate::daemon::directory::serves::Serves;
use crate::daemon::door::Door;
use crate::daemon::door::admission::Admission;
use crate::daemon::door::policy::{is_closed, rules_of, warnings};
use crate::daemon::executor::{self, Executor, Recovered, Table, recover};
use crate::daemon::sidecar::{Sidecar, Written};
use crate::daemon::{context, directory, door};
use crate::declaration::Declaration;
use crate::net::{Seed, System};
use crate::policy::Decisions;
use crate::policy::rate::{PeerRates, Rates};
use crate::schema::Artifacts;
use crate::store::audit::Audit;
use crate::store::{LoadedKey, Medium, Writer};

/// A sidecar, and what writes its journal.
type Made<S> = (Arc<Sidecar>, Writer<Written, S>, Vec<LoadedKey>);

/// The rooms of a sidecar, from the lowest up, and what must run before its journal does anything.
pub(super) fn rooms<M: Medium>(
    config: &Config,
    seed: &Seed,
    declaration: Option<&Declaration>,
    system: System,
    medium: &M,
    audit: Audit,
) -> Result<Made<M::Storage>, StartError> {
    let configured = peers::parsed(config)?;
    let admission = Admission::new(match config.peer.admit {
        Admit::Listed => false,
        Admit::Any => true,
    });
    let limits = &config.limits;
    let bounds = Limits {
        calls_max: limits.ledger_entries_max,
        calls_per_peer_max: half(limits.ledger_entries_max),
        kept_bytes_max: limits.ledger_bytes_max,
        kept_bytes_per_peer_max: half(limits.ledger_bytes_max),
        idempotent_bytes_max: limits.ledger_idempotent_bytes_max,
        idempotent_bytes_per_peer_max: half(limits.ledger_idempotent_bytes_max),
    };
    let cursor_key = system.random.bytes().map_err(|error| StartError::System(error.to_string()))?;
    let (identity, artifacts) = (seed.identity(), Artifacts::default());
    let in_flight_max = limits.calls_in_flight_max;
    let queue_max = in_flight_max.saturating_mul(JOURNAL_WORK_PER_CALL);
    let Recovered { ledger, given, reserved, keys, expired_ms, journal_id, journal, writer } =
        recover(medium, bounds, queue_max, &identity, &system, &audit)?;
    let peer_rates = PeerRates {
        each: limits.call_rate_per_peer,
        all: limits.call_rate,
        denied: limits.denied_rate_per_peer,
    };
    let clock = system.clock.clone();
    let links = Peers::new(system.clock.clone());
    let ctx = Ctx::new(
        identity,
        system,
        context::Bounds {
            call_timeout_ms: config.timeouts.call_ms,
            requests_waiting_max: limits.requests_waiting_max,
        },
    );
    let told = Told {
        access: access(config),
        raw_bytes_max: config.audit.raw_bytes_max,
        repairs_max: limits.max_argument_repairs,
    };
    let account = Account::new(Arc::clone(&ctx), audit, told);
    let asks = Asks::new(Arc::clone(&ctx), Arc::clone(&account));
    let gate = gate(declaration, &artifacts)?;
    let directory = Directory::new(
        (Arc::clone(&ctx), Arc::clone(&account), Arc::clone(&asks)),
        links,
        Serves::new(config.peer.serves.clone()),
        artifacts,
        directory::Bounds {
            // A link that is given up for its silence needs no further reason.
            dead_ms: config.timeouts.dead_ms.min(config.timeouts.idle_ms),
            refresh_ms: config.peer.refresh_ms,
            peer_capabilities_max: limits.peer_capabilities_max,
            peer_capability_bytes_max: limits.peer_capability_bytes_max,
        },
    );
    let rates = Arc::new(Rates::new(clock, peer_rates));
    let base = || (Arc::clone(&ctx), Arc::clone(&account), Arc::clone(&directory));
    let door = Door::new(
        base(),
        door::Parts {
            admission,
            keyring: keyring(config)?,
            policy: Arc::new(decisions(config, seed)?),
            reading: Reading::of(config),
            rates: Arc::clone(&rates),
        },
    );
    let executor = Executor::new(
        base(),
        executor::Parts {
            own: door.own(),
            scribe: Arc::new(journal.clone()),
            table: Table::new(ledger),
            rates,
            bounds: executor::Bounds {
                calls_max: in_flight_max,
                calls_per_peer_max: limits.calls_in_flight_per_peer_max,
                calls_per_capability_max: limits.calls_in_flight_per_capability_max,
                calls_per_provider_max: limits.calls_in_flight_per_provider_max,
                message_bytes_max: limits.msg_size_bytes_max as usize - 1,
            },
        },
    );
    let gifts = Gifts::new((given, reserved), expired_ms, limits.ledger_entries_max);
    let of_caller = base();
    let sidecar = Arc::new_cyclic(|me: &Weak<Sidecar>| {
        let (own, scribe, here) = (door.own(), Arc::new(journal.clone()), me.clone());
        let caller = Caller::new(of_caller, caller::Parts { own, scribe, gifts, gate, here });
        let rooms = desk::Rooms {
            ctx: Arc::clone(&ctx),
            account: Arc::clone(&account),
            directory: Arc::clone(&directory),
            door: Arc::clone(&door),
            executor: Arc::clone(&executor),
            caller: Arc::clone(&caller),
        };
        let desk = Desk::new(rooms, cursor_key, limits.clone());
        Sidecar {
            ctx,
            account,
            asks,
            directory,
            door,
            executor,
            caller,
            desk,
            journal,
            journal_id,
            waiting: Arc::default(),
            api: OnceLock::new(),
        }
    });
    peers::take(&sidecar, &configured);
    Ok((sidecar, writer, keys))
}

/// The configuration's rules; what is odd about them is told to the log.
fn decisions(config: &Config, seed: &Seed) -> Result<Decisions, StartError> {
    let rules = rules_of(config, Some(seed.identity().did().clone())).map_err(StartError::Policy)?;
    for warning in warnings(config, &rules) {
        tracing::warn!("{warning}");
    }
    if is_closed(config) && (config.listen.quic.is_some() || config.listen.tcp.is_some()) {
        tracing::info!("peers may call nothing here: there is neither [[allow]] nor policy.files");
    }
    Ok(Decisions::new(rules))
}

/// What is logged of calls: nothing where no line of that level is.
fn access(config: &Config) -> Access {
    let is_read = config.log.targets.would_enable("access", &tracing::Level::INFO);
    Access { is_on: config.log.access && is_read, payloads_of: config.log.payloads_of.clone() }
}

/// What one peer may take of a bound of the ledger's, so that none takes everybody's room.
const fn half(max: usize) -> usize {
    max.div_ceil(2)
}

/// Work in the journal's queue for each call in flight: its row, its result, a question after it, its end.
const JOURNAL_WORK_PER_CALL: usize = 4;
