//! Handles messages that nobody may send: the answer to their senders, and whether each gets a record of its own.

use bytes::Bytes;
use capd_proto::envelope::Envelope;
use capd_proto::message::{Invoke, Query, Request, Type};

use super::Door;
use crate::daemon::account::denials::About;
use crate::daemon::context::Refusal;
use crate::net::{Link, Now};
use crate::store::audit::Kind;

impl Door {
    /// 3001, whatever for: a sender that is not its link's principal, or one that may not send this. What its sender is
    /// told, and whether this denial is told by itself.
    pub(super) fn deny(&self, now: Now, link: &Link, payload: &Bytes, refusal: Refusal) -> (Refusal, bool) {
        let principal = link.principal();
        let Ok(envelope) = Envelope::decode(payload) else { return (refusal, true) };
        let is_bound = self.sender(link, &envelope.from).is_some();
        // PROTOCOL 7.3: the rate is of all that this caller is denied, so it tells nothing of what it asked for.
        if is_bound
            && !link.kind().is_local()
            && let Err(exceeded) = self.rates.deny(principal)
        {
            let is_told = self.account.denials.note(principal, About::limited(), now);
            return (self.account.rate_limited(&exceeded), is_told);
        }
        let kind = if is_bound { Kind::Denied } else { Kind::BindingMismatch };
        let capability = envelope.body().filter(|_| is_bound).and_then(|body| {
            let typ = Type::from_code(envelope.typ)?;
            asked_for(typ, body)
        });
        let about = About { kind, code: refusal.code, typ: Some(envelope.typ), capability };
        let is_told = self.account.denials.note(principal, about.clone(), now);
        if is_told {
            self.account.audit_denied(link, &envelope, &refusal, about);
        }
        (refusal, is_told)
    }
}

/// The capability that a message asks for, if it asks for one.
fn asked_for(typ: Type, body: &[u8]) -> Option<String> {
    match typ {
        Type::CapInvoke => {
            let invoke = Invoke::decode(body).ok()?;
            invoke.identity().ok().map(|asked| asked.name.to_string())
        }
        Type::CapQuery => Query::decode(body).ok()?.question().ok().map(|asked| asked.pattern.to_string()),
        Type::Request => match Request::decode(body).ok()? {
            Request::Negotiate(request) => Some(request.capability.into_owned()),
            _ => None,
        },
        _ => None,
    }
}
