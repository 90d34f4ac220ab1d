//! Replaces the policy by the current content of its files, whole or not at all.

use capd_proto::identity::Did;

use super::Door;
use crate::config::Mistakes;
use crate::policy::Rules;

/// Reads the rules of the agent of a DID anew, from where they were read before; blocks.
pub(in crate::daemon) type Reread = dyn Fn(Did) -> Result<Rules, ReloadError> + Send + Sync;

/// Why the policy could not be reloaded; the old one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The sidecar was started without a configuration that can be read again.
    #[error("this sidecar was started without a configuration that can be read again")]
    Unread,
    /// The configuration has mistakes.
    #[error("{0}")]
    Config(Mistakes),
    /// The policy has mistakes.
    #[error("{0}")]
    Policy(Box<dyn std::error::Error + Send + Sync>),
}

impl Door {
    /// Reads the policy anew and puts it in place of the one that stands, which a mistake leaves as it is.
    pub(in crate::daemon) async fn reload_policy(&self) -> Result<usize, ReloadError> {
        let read = match self.reading.clone() {
            None => Err(ReloadError::Unread),
            Some(reading) => {
                let own = self.ctx.did().clone();
                // Files may be slow, and links are not to wait for them.
                self.ctx.tasks.compute(move || reading(own)).await.unwrap_or(Err(ReloadError::Unread))
            }
        };
        let rules = read.inspect_err(|error| {
            tracing::error!(%error, "the policy is not reloaded: the old rules stay in force");
        })?;
        let count = rules.shown().len();
        self.policy.replace(rules);
        tracing::info!(rules = count, "the policy is reloaded");
        Ok(count)
    }
}
