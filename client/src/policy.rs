//! Asks the sidecar's policy for a decision about a caller and a capability, and makes it reload its rules.

use capd_proto::capability::CapabilityName;
use capd_proto::identity::Did;
use capd_proto::message::{PolicyReloaded, PolicyWhy, PolicyWhyRequest, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

impl Client {
    /// Asks what a caller may do with a capability, and which rules decide: for its name, and for each version that
    /// `provider`, by default the sidecar's own agent, serves.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn policy_why(
        &self,
        caller: &Did,
        capability: &CapabilityName,
        provider: Option<&Did>,
    ) -> Result<PolicyWhy<'static>, ClientError> {
        let request = PolicyWhyRequest {
            caller: caller.as_str().into(),
            capability: capability.as_str().into(),
            provider: provider.map(|provider| provider.as_str().into()),
        };
        let body = bodies::policy_why(request);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::policy_decisions(&reply.body)
    }

    /// Makes the sidecar reload its policy. A policy with a mistake changes nothing.
    ///
    /// **Errors:** [`ClientError`]; 4001 if the policy has a mistake, or the sidecar has no policy files.
    pub async fn policy_reload(&self) -> Result<PolicyReloaded, ClientError> {
        let body = bodies::policy_reload();
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::policy_reloaded(&reply.body)
    }
}
