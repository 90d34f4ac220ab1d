//! The journal's outcomes in, each to the room that it is for.

use super::Written;
use crate::daemon::node::Node;
use crate::store::Done;

impl Node {
    /// Acts on what the journal has done, until shutdown.
    pub(in crate::daemon) async fn keep_journal(&self) {
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
            Written::Caller(tag) => self.on_given(tag, outcome.err()),
            Written::Forgotten => {
                if let Err(error) = outcome {
                    // They leave at the next start.
                    tracing::debug!(%error, "rows stay in the journal");
                }
            }
        }
    }
}
