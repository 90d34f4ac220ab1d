//! Reads pages of the sidecar's audit log, and prunes it.

use capd_proto::message::{AuditPage, AuditPruneRequest, AuditPruned, AuditRequest, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

impl Client {
    /// One page of the audit log. [`AuditPage::next`] is where the next one begins; an empty page is not always the
    /// last.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn audit(&self, request: &AuditRequest<'_>) -> Result<AuditPage<'static>, ClientError> {
        let body = bodies::audit(request);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::audit_page(&reply.body)
    }

    /// Removes a bounded number of old records; [`AuditPruned::next`] is where to continue.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn audit_prune(&self, request: AuditPruneRequest) -> Result<AuditPruned, ClientError> {
        let body = bodies::audit_prune(request);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::audit_pruned(&reply.body)
    }
}
