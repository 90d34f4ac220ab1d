//! Serves calls by one process that stays: a line of JSON in and a line of JSON out for each call.
//!
//! [`line`](self::line) is the protocol, [`table`] knows which calls wait and which the process has, [`worker`] runs one
//! process after another, [`pipe`] tells what a dead process never read, [`log`](self::log) passes its stderr on.
//!
//! Exactly one result for each call, whatever the process does:
//!
//! - A call that the process never read goes to the next process.
//! - A call that it read and did not answer goes to the next process if it is idempotent, but to no third one. Otherwise
//!   its outcome is unknown (5902).

mod line;
mod log;
mod pipe;
mod table;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::table::Table;
use self::worker::Worker;
use super::denials::Denials;
use super::{Denial, ProcessSpec, Spawn};
use crate::provider::ticket::Ticket;
use crate::provider::{CallKey, Invocation, Provider};

/// How a capability's process is kept.
#[derive(Clone, Debug)]
pub struct WarmSpec {
    /// The command, and its bounds: `concurrency` is how many calls the process has at once.
    pub process: ProcessSpec,
    /// The capability id, given as `CAPD_CAPABILITY`.
    pub capability: String,
    /// Whether running a call again is harmless.
    pub idempotent: bool,
    /// Longest time that the process may take for a call, whatever time its caller sets.
    pub answer_within: Duration,
}

/// A capability that is served by one process, which is restarted when it ends.
pub struct WarmProvider {
    table: Arc<Table>,
    denials: Arc<Denials>,
    /// What keeps the process, until it begins.
    idle: Mutex<Option<(Worker, Spawn)>>,
}

impl WarmProvider {
    /// A provider for `spec`. Once it begins, `spawn` runs the task that keeps the process, until `shutdown` or until the
    /// provider is dropped.
    pub fn new(mut spec: WarmSpec, spawn: Spawn, shutdown: CancellationToken) -> Self {
        spec.process.bound();
        let table = Arc::new(Table::new(&spec));
        let denials = Arc::new(Denials::default());
        let worker = Worker::new(spec, Arc::clone(&table), Arc::clone(&denials), shutdown);
        Self { table, denials, idle: Mutex::new(Some((worker, spawn))) }
    }
}

impl Provider for WarmProvider {
    fn begin(&self) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((worker, spawn)) = idle {
            spawn(Box::pin(worker.run()));
        }
    }

    fn invoke(&self, invocation: Invocation, ticket: Ticket) {
        self.table.take(invocation, ticket);
    }

    fn cancel(&self, key: &CallKey) {
        self.table.cancel(key);
    }

    fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    fn denial(&self) -> Option<Denial> {
        self.denials.last()
    }
}

impl Drop for WarmProvider {
    fn drop(&mut self) {
        self.table.close();
    }
}
