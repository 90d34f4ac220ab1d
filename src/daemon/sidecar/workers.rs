//! Starts the tasks that run as long as the sidecar does, and passes on the journal's outcomes.

use std::sync::Arc;
use std::time::Duration;

use super::{Sidecar, Written};
use crate::daemon::directory::Probes;
use crate::store::Done;

/// Starts everything that a sidecar does by itself. All of it ends at shutdown; a panic of any ends the sidecar.
pub(in crate::daemon) fn start(sidecar: &Arc<Sidecar>) {
    let works = [
        Work::Deadlines,
        Work::Requests,
        Work::Journal,
        Work::Ticks,
        Work::Requirements,
        Work::Denials,
        Work::Traces,
    ];
    for work in works {
        let worker = Arc::clone(sidecar);
        sidecar.ctx.spawn(async move { worker.run(work).await });
    }
}

enum Work {
    /// Ends calls here whose time is up, and forgets what has expired.
    Deadlines,
    /// Ends requests that nobody answered in time.
    Requests,
    /// Hands on what the journal has done.
    Journal,
    /// Looks after what is due now and then.
    Ticks,
    /// Looks for what the agent requires, and proves it ahead of calls.
    Requirements,
    /// Tells denials that were folded.
    Denials,
    /// Exports spans.
    Traces,
}

impl Sidecar {
    async fn run(&self, work: Work) {
        match work {
            Work::Deadlines => self.executor.keep_deadlines().await,
            Work::Requests => {
                // Neither ends before shutdown.
                tokio::join!(self.asks.expire(), self.caller.expire_requests());
            }
            Work::Journal => self.keep_journal().await,
            Work::Ticks => self.tick().await,
            Work::Requirements => {
                tokio::join!(self.caller.look_at_requirements(), self.caller.prove_ahead());
            }
            Work::Denials => self.account.keep_denials().await,
            Work::Traces => self.account.export_spans().await,
        }
    }

    /// Looks after what is due now and then, until shutdown. One timer for all of it, a slow one while nothing waits for
    /// a peer, and a slower one while there are no calls at all, since each that fires wakes an idle sidecar.
    async fn tick(&self) {
        let mut probes = Probes::default();
        let mut sweep_us = 0;
        let mut ended = 0;
        loop {
            let now_us = self.ctx.clock.monotonic_us();
            if now_us >= sweep_us {
                self.caller.forget_gifts();
                sweep_us = now_us.saturating_add(SWEEP_US);
            }
            let is_quiet = self.directory.is_quiet(&probes);
            let ended_before = std::mem::replace(&mut ended, self.account.meter.ended_in_all());
            let has_calls = ended > ended_before || self.executor.table.is_running();
            let pause_us = match (is_quiet, has_calls) {
                (false, _) => TICK_US,
                (true, true) => QUIET_TICK_US,
                (true, false) => IDLE_TICK_US,
            };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_micros(pause_us)) => {
                    self.account.note_lag(now_us.saturating_add(pause_us));
                }
                () = self.directory.disturbed(), if is_quiet => {}
            }
            self.directory.probe_links(&mut probes);
        }
    }

    /// Acts on what the journal has done, until shutdown.
    async fn keep_journal(&self) {
        let mut done = Vec::new();
        loop {
            self.journal.completed(&mut done).await;
            for done in done.drain(..) {
                self.on_written(done);
            }
        }
    }

    fn on_written(&self, Done { tag, outcome }: Done<Written>) {
        match tag {
            Written::Executor(tag) => self.executor.on_execution_written(tag, outcome),
            Written::Caller(tag) => self.caller.on_given(tag, outcome.err()),
            Written::Forgotten => {
                if let Err(error) = outcome {
                    // They leave at the next start.
                    tracing::debug!(%error, "rows stay in the journal");
                }
            }
        }
    }
}

/// Between two ticks while something waits for a peer.
const TICK_US: u64 = 250_000;
/// Between two ticks while nothing does, but calls run here or have ended since the tick before.
const QUIET_TICK_US: u64 = 1_000_000;
/// Between two ticks while there are no calls.
const IDLE_TICK_US: u64 = 5_000_000;
/// What calls have left behind is looked for no more often than this.
const SWEEP_US: u64 = 1_000_000;
