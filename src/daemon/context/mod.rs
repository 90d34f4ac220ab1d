//! Provides what every room shares: identity, clock, randomness, tasks, shutdown; sealing, answering and refusing.
//!
//! [`Inbound`] is a message that passed the envelope's checks, [`Refusal`] the reason to refuse one. [`seal`] writes
//! envelopes, [`reply`] answers on the stream of a message, [`requests`] keeps requests that wait for an answer,
//! [`wire`] has the `details` of refusals. The running configuration is one snapshot that all rooms read.

pub(in crate::daemon) mod inbound;
pub(in crate::daemon) mod judge;
pub(in crate::daemon) mod refusal;
mod reply;
pub(in crate::daemon) mod requests;
pub(in crate::daemon) mod seal;
pub(in crate::daemon) mod times;
pub(in crate::daemon) mod vetted;
pub(in crate::daemon) mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use capd_proto::envelope::MessageId;
use capd_proto::identity::{Did, Identity};
pub(in crate::daemon) use inbound::{Inbound, Taken};
pub(in crate::daemon) use refusal::Refusal;
use requests::Slots;
pub(in crate::daemon) use seal::{ANSWER_TTL_MS, Outbound};
use tokio_util::future::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::net::{Clock, Random, System, Tasks};

/// What every room has, whatever it owns besides.
pub(in crate::daemon) struct Ctx {
    pub(in crate::daemon) identity: Identity,
    pub(in crate::daemon) clock: Clock,
    pub(in crate::daemon) random: Random,
    pub(in crate::daemon) tasks: Tasks,
    /// Set when no new work is taken.
    pub(in crate::daemon) draining: CancellationToken,
    /// Set when tasks are to end.
    pub(in crate::daemon) shutdown: CancellationToken,
    /// Bounds the requests that wait for an answer.
    pub(in crate::daemon) slots: Arc<Slots>,
    /// The running configuration. A reload replaces it as a whole, so nobody ever sees half of a file.
    config: ArcSwap<Config>,
}

impl Ctx {
    /// That of a sidecar with this identity, on this system.
    pub(in crate::daemon) fn new(identity: Identity, system: System, config: Arc<Config>) -> Arc<Self> {
        Arc::new(Self {
            identity,
            clock: system.clock,
            random: system.random,
            tasks: system.tasks.group(),
            draining: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            slots: Slots::new(config.limits.requests_waiting_max),
            config: ArcSwap::new(config),
        })
    }

    pub(in crate::daemon) fn did(&self) -> &Did {
        self.identity.did()
    }

    /// The running configuration, for this moment: what is to see one and the same for longer keeps it.
    pub(in crate::daemon) fn config(&self) -> Guard<Arc<Config>> {
        self.config.load()
    }

    /// Replaces the running configuration for everything that reads it from here on.
    pub(in crate::daemon) fn replace_config(&self, config: Arc<Config>) {
        self.slots.set_max(config.limits.requests_waiting_max);
        self.config.store(config);
    }

    /// Time of a call that names none. **Units:** milliseconds.
    pub(in crate::daemon) fn call_timeout_ms(&self) -> u64 {
        self.config().timeouts.call_ms
    }

    /// Runs a task that ends at the latest when the daemon shuts down.
    pub(in crate::daemon) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Awaited inside another async block it would be kept there several times over.
        self.tasks.spawn(work.with_cancellation_token_owned(self.shutdown.clone()));
    }

    /// A fresh id for a message made at `now_ms`.
    pub(in crate::daemon) fn fresh_id(&self, now_ms: u64) -> MessageId {
        // Without randomness ids could repeat, and a repeated id is another call's: better no daemon than that.
        MessageId::new(now_ms, self.random.bytes().expect("the system has randomness"))
    }
}

pub(in crate::daemon) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
