//! REQUEST `policy-reload` and `policy-why` in; the policy read anew, whole or not at all, or what it decides, out.

use std::collections::BTreeMap;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{PolicyDecision, PolicyReloaded, PolicyWhy, PolicyWhyRequest, Response, Type};

use super::StartError;
use super::audit::is_for_the_agent;
use super::inbound::Inbound;
use super::node::{Node, Refusal};
use super::policy::{rules_of, warnings};
use super::start::check_files;
use crate::config::{Config, Mistakes, Sources};
use crate::policy::{Action, Caller, Rules, Subject};
use crate::registry::snapshot::Origin;

/// Where the policy is read from, and what else was read there.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    sources: Sources,
    /// Keys that take effect at a start only, with their values.
    others: BTreeMap<&'static str, String>,
}

/// Why the policy could not be read anew; the one that stood still stands.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The sidecar was started without a configuration that can be read again.
    #[error("this sidecar was started without a configuration that can be read again")]
    Unread,
    /// The configuration has mistakes.
    #[error("{0}")]
    Config(Mistakes),
    /// The policy has mistakes.
    #[error(transparent)]
    Policy(#[from] StartError),
}

impl Reading {
    /// `None` for a configuration that was not read from anywhere.
    pub(super) fn of(config: &Config) -> Option<Self> {
        Some(Self { sources: config.sources()?.clone(), others: others(config) })
    }

    /// Reads it anew; blocks.
    fn read(&self, own: Did) -> Result<Rules, ReloadError> {
        let config = Config::load(&self.sources).map_err(ReloadError::Config)?;
        check_files(&config)?;
        let rules = rules_of(&config, Some(own))?;
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

impl Node {
    /// Reads the policy anew and puts it in place of the one that stands, which a mistake leaves as it is.
    pub(super) async fn reload_policy(&self) -> Result<usize, ReloadError> {
        let read = match self.reading.clone() {
            None => Err(ReloadError::Unread),
            Some(reading) => {
                let own = self.did().clone();
                // Files may be slow, and links are not to wait for them.
                self.tasks.compute(move || reading.read(own)).await.unwrap_or(Err(ReloadError::Unread))
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

    /// Answers once the policy was read anew.
    ///
    /// **Errors:** 4001 for anybody but the agent, and for a policy with a mistake, which the log names.
    pub(super) fn on_policy_reload(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "policy-reload")?;
        let Some(node) = self.shared() else { return Ok(()) };
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.spawn(async move {
            match node.reload_policy().await {
                Ok(rules) => {
                    let mut body = Vec::new();
                    Response::PolicyReloaded(PolicyReloaded { rules: rules as u64 }).encode(&mut body);
                    let answer = node.answer(&link, link.principal(), Some(id), Type::Response, &body);
                    node.send(&link, &route, answer);
                }
                Err(error) => {
                    // What it says names files, which messages never do (PROTOCOL 9).
                    let told = match error {
                        ReloadError::Unread => error.to_string(),
                        ReloadError::Config(_) | ReloadError::Policy(_) => {
                            "the configuration or a policy has a mistake; the sidecar's log names it"
                                .to_owned()
                        }
                    };
                    node.refuse(&link, &route, Some(id), &Refusal::new(Code::BAD_REQUEST, told));
                }
            }
        });
        Ok(())
    }

    /// Answers with what a caller may do with a capability: for all that its name says, and with each version that the
    /// provider serves, which is the sidecar's own agent unless a peer is named.
    ///
    /// **Errors:** 4001 for anybody but the agent, and for texts that are no DID or name.
    pub(super) fn on_policy_why(
        &self,
        inbound: &Inbound<'_>,
        request: &PolicyWhyRequest<'_>,
    ) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "policy-why")?;
        let wrong = |what: &str, error: &dyn std::fmt::Display| {
            Refusal::new(Code::BAD_REQUEST, format!("{what}: {error}"))
        };
        let did = Did::parse(&request.caller).map_err(|error| wrong("caller", &error))?;
        let name: CapabilityName = request.capability.parse().map_err(|error| wrong("capability", &error))?;
        let provider = request.provider.as_deref().map(Did::parse).transpose();
        let provider = provider.map_err(|error| wrong("provider", &error))?;
        let provider = provider.as_ref().unwrap_or(self.did());
        let (rules, snapshot) = (self.policy.rules(), self.registry.snapshot());
        let caller = Caller { did: &did, alias: None };
        let is_its = |origin: &Origin| match origin {
            Origin::Local(_) => provider == self.did(),
            Origin::Peer(peer) => provider == peer,
        };
        let served = snapshot.entries(name.as_str()).iter().filter(|entry| is_its(&entry.origin));
        let served = served.map(|entry| (entry.descriptor.id.to_string(), Subject::of(&entry.descriptor)));
        let subjects = std::iter::once((name.to_string(), Subject::named(name.as_str()))).chain(served);
        let mut decisions = Vec::new();
        for (about, subject) in subjects.take(DECIDED_MAX) {
            let subject = Subject { provider: provider.as_str(), ..subject };
            for action in [Action::Query, Action::Invoke] {
                let verdict = rules.decide(caller, action, &subject);
                decisions.push(PolicyDecision {
                    capability: about.clone().into(),
                    action: action.as_str().into(),
                    allowed: verdict.is_permitted(),
                    reason: verdict.to_string().into(),
                    rules: verdict.rules().iter().cloned().map(Into::into).collect(),
                    missing: verdict.missing().iter().cloned().map(Into::into).collect(),
                });
            }
        }
        let mut body = Vec::new();
        Response::PolicyWhy(PolicyWhy { decisions }).encode(&mut body);
        self.reply(inbound, Type::Response, &body);
        Ok(())
    }
}

/// Versions of one name that are decided for one question.
const DECIDED_MAX: usize = 1_000;
