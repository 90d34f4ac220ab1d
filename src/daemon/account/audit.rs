//! Makes audit records of what the daemon met. None of them delays a call or makes it fail.
//!
//! Each record is also logged, under the target `audit`. To account for something, make a [`Record`] with
//! [`Account::audited`] and pass it to [`Audit::record`](crate::store::audit::Audit::record) of `account.audit`.

use capd_proto::call::executor::Surplus;
use capd_proto::cbor::json;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::Answerer;
use capd_proto::message::{SchemaSide, Type};
use capd_proto::negotiate::SessionId;
use sha2::{Digest, Sha256};

use super::Account;
use super::denials::About;
use crate::daemon::context::Refusal;
use crate::net::Link;
use crate::provider::{CallKey, Invocation};
use crate::schema::Violation;
use crate::store::Begun;
use crate::store::audit::chain::hex;
use crate::store::audit::{Kind, Record, short};

/// The call that a record is about.
#[derive(Clone, Copy)]
pub(in crate::daemon) struct Audited<'a> {
    /// The capability's name.
    pub(in crate::daemon) capability: &'a str,
    /// The other agent.
    pub(in crate::daemon) peer: &'a str,
    /// The invoke's id.
    pub(in crate::daemon) id: &'a MessageId,
    /// The session that the invoke names.
    pub(in crate::daemon) session: Option<SessionId>,
}

impl Audited<'_> {
    /// The record with what is known of the call.
    pub(in crate::daemon) fn of(&self, record: Record) -> Record {
        let session = self.session.as_ref().map(|session| session.0.as_slice());
        record.capability(self.capability).peer(self.peer).correlation(self.id).session(session)
    }
}

/// Whose call was answered, what it called, and who answered; nobody if it still runs.
pub(in crate::daemon) struct Answered {
    pub(in crate::daemon) from: Did,
    pub(in crate::daemon) capability: Option<String>,
    pub(in crate::daemon) by: Option<Answerer>,
}

impl Account {
    /// A record of this moment.
    pub(in crate::daemon) fn audited(&self, kind: Kind) -> Record {
        Record::new(kind, self.ctx.clock.wall_ms())
    }

    /// One envelope whose params or result do not fit: one record with everything that is wrong.
    pub(in crate::daemon) fn audit_violations(
        &self,
        side: SchemaSide,
        call: Audited<'_>,
        violations: &[Violation],
    ) {
        tracing::warn!(
            target: "audit",
            kind = Kind::SchemaViolation.as_str(),
            side = side.as_str(),
            capability = call.capability,
            peer = call.peer,
            id = %call.id,
            violations = violations.len(),
            "a payload does not fit its schema"
        );
        let pairs = violations.iter().map(|violation| (violation.path.as_str(), violation.message.as_str()));
        self.audit.record(call.of(Record::schema_violation(self.ctx.clock.wall_ms(), side, pairs)));
    }

    /// PROTOCOL 7.4: a result that does not fit goes to the audit log and not to the caller; its beginning, that is, with
    /// its length and hash.
    pub(in crate::daemon) fn audit_raw_result(&self, call: Audited<'_>, result: &[u8]) {
        let text = json::to_json(result).map(|value| value.to_string());
        let raw_bytes_max = self.ctx.config().audit.raw_bytes_max;
        let (encoding, text) = match text {
            Ok(text) => ("json", text),
            // CBOR that JSON has no word for.
            Err(_) => ("cbor-hex", hex(&result[..result.len().min(raw_bytes_max)])),
        };
        let end = text.floor_char_boundary(raw_bytes_max.min(text.len()));
        let is_whole = end == text.len() && (encoding == "json" || text.len() == result.len() * 2);
        let record = call
            .of(self.audited(Kind::RawResult))
            .with("bytes", result.len())
            .with("sha256", hex(&Sha256::digest(result)))
            .with("encoding", encoding)
            .with("raw", &text[..end])
            .with("truncated", !is_whole);
        self.audit.record(record);
    }

    /// A message that is denied, and told by itself.
    pub(in crate::daemon) fn audit_denied(
        &self,
        link: &Link,
        envelope: &Envelope<'_>,
        refusal: &Refusal,
        about: About,
    ) {
        let principal = link.principal();
        if about.kind == Kind::BindingMismatch {
            // PROTOCOL 2: the tuple (principal, from, id) is audited.
            tracing::warn!(
                target: "audit",
                kind = Kind::BindingMismatch.as_str(),
                %principal,
                from = %envelope.from,
                id = %envelope.id,
                "a sender is not its link's principal"
            );
            let record = self.audited(Kind::BindingMismatch).peer(principal.as_str());
            return self.audit.record(record.correlation(&envelope.id).with("from", short(&envelope.from)));
        }
        tracing::warn!(
            target: "audit",
            kind = Kind::Denied.as_str(),
            %principal,
            id = %envelope.id,
            reason = refusal.message,
            "a message was denied"
        );
        let mut record = self
            .audited(Kind::Denied)
            .peer(principal.as_str())
            .correlation(&envelope.id)
            .with("code", Code::UNAUTHORIZED.0)
            .with("reason", short(&refusal.message));
        if let Some(typ) = Type::from_code(envelope.typ) {
            record = record.with("messageType", typ.name());
        }
        if let Some(name) = about.capability {
            record = record.capability(&name);
        }
        self.audit.record(record);
    }

    /// PROTOCOL 8: an answer that is not a call's one result was dropped. `peer` is the call's other agent, or whoever
    /// answered where no call is known.
    pub(in crate::daemon) fn audit_surplus(
        &self,
        surplus: Surplus,
        id: &MessageId,
        peer: &str,
        capability: Option<&str>,
    ) {
        let (kind, reason) = match surplus {
            Surplus::Late => (Kind::LateResult, "the call had ended without it"),
            Surplus::Second => (Kind::DuplicateResult, "the call had its result"),
            Surplus::Unasked => (Kind::DuplicateResult, "no call waited for it"),
        };
        tracing::warn!(target: "audit", kind = kind.as_str(), %id, peer, reason, "an answer was dropped");
        let record = self.audited(kind).peer(peer).correlation(id).with("reason", reason);
        self.audit.record(match capability {
            Some(capability) => record.capability(name_of(capability)),
            None => record,
        });
    }

    /// The same of an agent's answer, of which only the id is known, and what is known of the call that had it.
    pub(in crate::daemon) fn audit_agents_surplus(
        &self,
        link: &Link,
        id: &MessageId,
        answered: Option<Answered>,
    ) {
        let Some(Answered { from, capability, by }) = answered else {
            return self.audit_surplus(Surplus::Unasked, id, link.principal().as_str(), None);
        };
        let surplus = match by {
            Some(Answerer::Sidecar) => Surplus::Late,
            Some(Answerer::Provider) => Surplus::Second,
            None => Surplus::Unasked,
        };
        self.audit_surplus(surplus, id, from.as_str(), capability.as_deref());
    }

    /// A call of the agent's that the policy forbids.
    pub(in crate::daemon) fn audit_forbidden(&self, call: Audited<'_>, refusal: &Refusal) {
        let (kind, reason) = (Kind::Denied, refusal.message.as_str());
        let capability = call.capability;
        tracing::warn!(target: "audit", kind = kind.as_str(), id = %call.id, capability, reason, "a call was denied");
        let record = call.of(self.audited(kind)).with("code", refusal.code.0).with("reason", short(reason));
        self.audit.record(record.with("messageType", Type::CapInvoke.name()));
    }

    /// A call of which nobody will know whether it took effect.
    pub(in crate::daemon) fn audit_interrupted(&self, key: &CallKey, invocation: &Invocation, reason: &str) {
        let capability = invocation.capability.name.as_str();
        tracing::warn!(
            target: "audit",
            kind = Kind::Interrupted.as_str(),
            id = %key.id,
            from = %key.from,
            capability,
            reason,
            "a call's outcome is unknown"
        );
        let record = self.audited(Kind::Interrupted).peer(key.from.as_str()).correlation(&key.id);
        self.audit.record(record.capability(capability).with("reason", reason));
    }
}

/// A call that a former process left in the middle: whether it took effect is unknown (PROTOCOL 8).
pub(in crate::daemon) fn interrupted(begun: &Begun, now_ms: u64) -> Record {
    let Begun { key, capability, started_at_ms, .. } = begun;
    tracing::warn!(
        target: "audit",
        kind = Kind::Interrupted.as_str(),
        id = %key.id,
        from = %key.from,
        capability = &**capability,
        "a call was interrupted; whether it took effect is unknown"
    );
    Record::new(Kind::Interrupted, now_ms)
        .peer(key.from.as_str())
        .correlation(&key.id)
        .capability(name_of(capability))
        .with("reason", "the sidecar stopped while it ran")
        .with("startedAt", *started_at_ms)
}

/// The name of a capability's id.
fn name_of(id: &str) -> &str {
    id.split_once(':').map_or(id, |(name, _)| name)
}
