//! Answers REQUEST `policy-why`: the policy's decision about a caller.

use capd_proto::capability::CapabilityName;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{PolicyDecision, PolicyWhy, PolicyWhyRequest, Response, Type};

use super::Desk;
use crate::daemon::context::Refusal;
use crate::daemon::context::inbound::{Inbound, is_for_the_agent};
use crate::policy::{Action, Caller, Subject};
use crate::registry::snapshot::Origin;

impl Desk {
    /// Answers with what a caller may do with a capability: for all that its name says, and with each version that the
    /// provider serves, which is the sidecar's own agent unless a peer is named.
    ///
    /// **Errors:** 4001 for anybody but the agent, and for texts that are no DID or name.
    pub(in crate::daemon) fn on_policy_why(
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
        let provider = provider.as_ref().unwrap_or(self.ctx.did());
        let (rules, snapshot) = (self.door.policy.rules(), self.directory.snapshot());
        let caller = Caller { did: &did, alias: None };
        let is_its = |origin: &Origin| match origin {
            Origin::Local(_) => provider == self.ctx.did(),
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
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }
}

/// Versions of one name that are decided for one question.
const DECIDED_MAX: usize = 1_000;
