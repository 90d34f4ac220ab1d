//! Starts the tasks that run as long as the sidecar does, and passes on the journal's outcomes.

use std::sync::Arc;

use super::{Sidecar, Written};
use crate::store::Done;

/// Starts everything that a sidecar does by itself. All of it ends at shutdown; a panic of any ends the sidecar.
pub(in crate::daemon) fn start(sidecar: &Arc<Sidecar>) {
    let works = [
        Work::Deadlines,
        Work::Requests,
        Work::Journal,
        Work::Probes,
        Work::Requirements,
        Work::Denials,
        Work::Gifts,
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
    /// Sees to it that links are alive.
    Probes,
    /// Looks for what the agent requires, and proves it ahead of calls.
    Requirements,
    /// Tells denials that were folded.
    Denials,
    /// Forgets whom calls were given to.
    Gifts,
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
            Work::Probes => self.directory.probe_links().await,
            Work::Requirements => {
                tokio::join!(self.caller.look_at_requirements(), self.caller.prove_ahead());
            }
            Work::Denials => self.account.keep_denials().await,
            Work::Gifts => self.caller.forget_gifts().await,
            Work::Traces => self.account.export_spans().await,
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
