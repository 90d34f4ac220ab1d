//! Tells how the providers of what the agent requires stand.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Caller;
use super::drift::Barrier;
use crate::registry::snapshot::Origin;
use crate::schema::drift::gate::Passage;
use crate::schema::drift::{Finding, Requirement, Standing};

impl Caller {
    /// Each requirement, and for each provider that serves one of its versions whether it is proven. Decides nothing.
    ///
    /// **Shape:** `{"requirement", "providers": [{"id", "provider", "state", "findings"}]}`; a state is `proven`, `unproven`,
    /// `undecided` or `refused`.
    pub(in crate::daemon) fn standings(&self) -> Vec<Value> {
        let snapshot = self.directory.snapshot();
        let own = self.ctx.did();
        let of = |requirement: &Arc<Requirement>| {
            let entries = snapshot.entries(requirement.name.as_str()).iter();
            let meant = entries.filter(|entry| requirement.is_about(&entry.descriptor.served));
            let providers = meant.take(PROVIDERS_MAX).map(|entry| {
                let passage = self.offered(&entry.descriptor).map(|offered| {
                    let descriptor = &entry.descriptor;
                    self.drift.gate.passage(descriptor.id.name.as_str(), &descriptor.served, &offered)
                });
                let (state, findings) = said(passage.as_ref());
                let provider = match &entry.origin {
                    Origin::Local(_) => own,
                    Origin::Peer(peer) => peer,
                };
                json!({
                    "id": entry.descriptor.id.to_string(),
                    "provider": provider.as_str(),
                    "state": state,
                    "findings": findings,
                })
            });
            json!({"requirement": requirement.to_string(), "providers": providers.collect::<Vec<_>>()})
        };
        self.drift.gate.requirements().iter().map(of).collect()
    }

    /// What the agent requires.
    pub(in crate::daemon) fn requirements(&self) -> Vec<Arc<Requirement>> {
        self.drift.gate.requirements()
    }
}

fn said(passage: Result<&Passage, &Barrier>) -> (&'static str, Vec<Value>) {
    match passage {
        Ok(Passage::Free | Passage::Open(_)) => ("proven", Vec::new()),
        Ok(Passage::Unproven(_)) => ("unproven", Vec::new()),
        // Its first call fetches the schemas and has them proven.
        Ok(Passage::Undecided(_)) | Err(_) => ("undecided", Vec::new()),
        Ok(Passage::Shut(_, standing)) => {
            let findings = match &**standing {
                Standing::Broken(findings) => findings.iter().map(Finding::json).collect(),
                Standing::Proven | Standing::Untold => Vec::new(),
            };
            ("refused", findings)
        }
    }
}

/// Most providers of one requirement that are told.
const PROVIDERS_MAX: usize = 256;
