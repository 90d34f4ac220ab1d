//! Tells the person who runs the sidecar how its parts are, which rules are in force, and what its agent requires.

use capd_proto::capability::CapabilityId;
use serde_json::{Value, json};

use super::Desk;
use super::paths::Path;
use crate::api::operator::{Act, Operator};
use crate::health::Source as _;
use crate::policy::cases::Declared;
use crate::registry::snapshot::Origin;
use crate::store::audit::{Kind, short};

impl Operator for Desk {
    fn status(&self) -> Value {
        let parts = self
            .parts()
            .into_iter()
            .map(|part| json!({"name": part.name, "state": part.state.as_str(), "detail": part.detail}));
        json!({
            "parts": parts.collect::<Vec<_>>(),
            "draining": self.ctx.draining.is_cancelled(),
            "paths": self.paths_of_peers().iter().filter_map(Path::json).collect::<Vec<_>>(),
        })
    }

    fn policy(&self) -> Value {
        let rules = self.door.policy.rules();
        let served = self.served();
        let shown = rules
            .shown()
            .iter()
            .map(|rule| json!({"id": rule.id, "origin": rule.origin, "policy": rule.text}));
        let warnings = rules.warnings().iter().map(ToString::to_string);
        let usage = rules.usage(&served);
        let overruled = usage.overruled.iter().map(|pair| {
            json!({
                "capability": pair.capability.to_string(),
                "caller": pair.caller.as_str(),
                "permits": pair.permits,
                "forbids": pair.forbids,
            })
        });
        json!({
            "rules": shown.collect::<Vec<_>>(),
            "warnings": warnings.chain(rules.ungranted(&served).iter().map(ToString::to_string)).collect::<Vec<_>>(),
            "unused": usage.unused,
            "overruled": overruled.collect::<Vec<_>>(),
        })
    }

    fn requires(&self) -> Value {
        json!({"requires": self.caller.standings()})
    }

    fn configuration(&self) -> Value {
        let config = self.ctx.config();
        let keys = config
            .effective()
            .iter()
            .map(|entry| json!({"key": entry.key, "value": entry.value, "origin": entry.origin.to_string()}));
        json!({"keys": keys.collect::<Vec<_>>()})
    }

    fn log(&self, levels: &str) -> Result<(), String> {
        let log = self.ctx.config().log.with_levels(levels).map_err(|mistake| mistake.to_string())?;
        let apply = self.apply_log.get().ok_or("this sidecar's log is not its own to change")?;
        apply(&log);
        tracing::info!(levels, "the log's levels are changed until the next reload");
        Ok(())
    }

    fn acted(&self, act: &Act<'_>) {
        let Act { with, action, capability, call } = act;
        tracing::info!(target: "audit", kind = Kind::Operator.as_str(), with, action, capability, "a person acted");
        let mut record =
            self.account.audited(Kind::Operator).with("action", *action).with("tool", short(with));
        if let Some(capability) = capability {
            record = record.capability(capability);
        }
        if let Some(id) = call {
            record = record.correlation(id);
        }
        self.account.audit.record(record);
    }
}

impl Desk {
    /// What is served here, as rules are decided about it.
    pub(super) fn served(&self) -> Vec<Declared> {
        let snapshot = self.directory.snapshot();
        let entries = snapshot.names().flat_map(|(_, entries)| entries);
        let ours = entries.filter(|entry| matches!(entry.origin, Origin::Local(_)));
        let mut declared: Vec<Declared> = Vec::new();
        for entry in ours {
            let id: &CapabilityId = &entry.descriptor.id;
            if declared.iter().rev().take_while(|known| known.id.name == id.name).all(|known| known.id != *id)
            {
                declared.push(Declared {
                    id: id.clone(),
                    category: entry.descriptor.category.clone().unwrap_or_default(),
                    permissions: entry.descriptor.permissions.clone(),
                });
            }
        }
        declared
    }
}
