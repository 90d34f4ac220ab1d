//! Answers REQUEST `audit` and `audit-prune`, for the agent only: a page of the audit log, or what was pruned.

use std::str::FromStr as _;
use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::limits::{QUERY_LIMIT_DEFAULT, QUERY_LIMIT_MAX};
use capd_proto::message::{
    AuditPage, AuditPruneRequest, AuditPruned, AuditRequest, AuditRow, Response, Type,
};

use super::Desk;
use crate::daemon::account::Account;
use crate::daemon::context::Refusal;
use crate::daemon::context::inbound::{Inbound, is_for_the_agent};
use crate::store::StoreError;
use crate::store::audit::chain::Entry;
use crate::store::audit::{Filter, Kind, Query};

impl Desk {
    /// Answers with a page of the audit log once its writer has read it.
    ///
    /// **Errors:** 4001 for anybody but the agent, for a page of nothing, and for a kind that there is not; 5002 when the
    /// log is off or cannot be read.
    pub(in crate::daemon) fn on_audit(
        &self,
        inbound: &Inbound<'_>,
        request: &AuditRequest<'_>,
    ) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "audit")?;
        if request.limit == Some(0) {
            return Err(Refusal::new(Code::BAD_REQUEST, "`limit` is at least 1"));
        }
        let kind = request.kind.as_deref().map(Kind::from_str).transpose();
        let kind = kind.map_err(|error| Refusal::new(Code::BAD_REQUEST, format!("kind: {error}")))?;
        let filter = Filter {
            kind,
            since_ms: request.since_ms,
            capability: request.capability.as_deref().map(str::to_owned),
            peer: request.peer.as_deref().map(str::to_owned),
        };
        let limit = request.limit.unwrap_or(QUERY_LIMIT_DEFAULT).min(QUERY_LIMIT_MAX);
        let query = Query {
            after: request.after.unwrap_or(0),
            rows_max: usize::try_from(limit).unwrap_or(usize::MAX),
            // A page ends early rather than outgrow what the link takes.
            bytes_max: inbound.link.message_bytes_max() / 2,
            filter: Some(filter).filter(|filter| *filter != Filter::default()),
        };
        self.answer_later(inbound, move |account| async move {
            let page = account.audit.page(query).await?;
            let counters = account.audit.counters();
            Ok(Response::Audit(AuditPage {
                rows: page.entries.into_iter().map(row).collect(),
                next: page.next,
                head: page.head.seq,
                head_hash: page.head.hash,
                written: counters.written,
                lost: counters.lost,
            }))
        });
        Ok(())
    }

    /// Answers with what one step of pruning removed.
    ///
    /// **Errors:** 4001 for anybody but the agent; 5002 when the log is off or cannot be written.
    pub(in crate::daemon) fn on_audit_prune(
        &self,
        inbound: &Inbound<'_>,
        request: AuditPruneRequest,
    ) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "audit-prune")?;
        let now_ms = self.ctx.clock.wall_ms();
        self.answer_later(inbound, move |account| async move {
            let after = request.after.unwrap_or(0);
            let pruned = account.audit.prune(after, request.before_ms, now_ms).await?;
            tracing::info!(target: "audit", records = pruned.records, "old audit records were removed");
            Ok(Response::AuditPruned(AuditPruned { pruned: pruned.records, next: pruned.next }))
        });
        Ok(())
    }

    fn answer_later<W>(&self, inbound: &Inbound<'_>, work: impl FnOnce(Arc<Account>) -> W + Send + 'static)
    where
        W: Future<Output = Result<Response<'static>, StoreError>> + Send,
    {
        let (ctx, account) = (Arc::clone(&self.ctx), Arc::clone(&self.account));
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.ctx.spawn(async move {
            match work(account).await {
                Ok(response) => {
                    let mut body = Vec::new();
                    response.encode(&mut body);
                    let answer = ctx.answer(&link, link.principal(), Some(id), Type::Response, &body);
                    ctx.send(&link, &route, answer);
                }
                Err(error) => {
                    // What it says names files, which messages never do (PROTOCOL 9).
                    tracing::warn!(%error, "the audit log cannot be used");
                    let told = "the audit log cannot be used; the sidecar's log says why";
                    ctx.refuse(&link, &route, Some(id), &Refusal::new(Code::UNAVAILABLE, told));
                }
            }
        });
    }
}

fn row(entry: Entry) -> AuditRow<'static> {
    AuditRow {
        seq: entry.seq,
        hash: entry.record_hash,
        record: entry.record.map(Into::into),
        prev_hash: entry.prev_hash,
    }
}
