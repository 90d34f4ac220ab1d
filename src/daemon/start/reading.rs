//! Remembers how to read the policy again while the sidecar runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use capd_proto::identity::Did;

use super::files;
use crate::config::{Config, Sources};
use crate::daemon::door::policy::{rules_of, warnings};
use crate::daemon::door::reload::{ReloadError, Reread};
use crate::policy::Rules;

/// Where the policy is read from, and what else was read there.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    sources: Sources,
    /// Keys that take effect at a start only, with their values.
    others: BTreeMap<&'static str, String>,
}

impl Reading {
    /// `None` for a configuration that was not read from anywhere.
    pub(super) fn of(config: &Config) -> Option<Arc<Reread>> {
        let reading = Self { sources: config.sources()?.clone(), others: others(config) };
        Some(Arc::new(move |own| reading.read(own)))
    }

    /// Reads it anew; blocks.
    fn read(&self, own: Did) -> Result<Rules, ReloadError> {
        let config = Config::load(&self.sources).map_err(ReloadError::Config)?;
        files::check(&config).map_err(|error| ReloadError::Policy(error.into()))?;
        let rules = rules_of(&config, Some(own)).map_err(|error| ReloadError::Policy(error.into()))?;
        for warning in warnings(&config, &rules) {
            tracing::warn!("{warning}");
        }
        for (key, value) in others(&config) {
            if self.others.get(key).is_some_and(|stands| *stands != value) {
                tracing::warn!(key, "this key has changed as well; it takes effect at the next start");
            }
        }
        Ok(rules)
    }
}

fn others(config: &Config) -> BTreeMap<&'static str, String> {
    let is_other = |key: &str| !matches!(key, "allow" | "groups" | "policy.files");
    let others = config.effective().iter().filter(|effective| is_other(effective.key));
    others.map(|effective| (effective.key, effective.value.clone())).collect()
}
