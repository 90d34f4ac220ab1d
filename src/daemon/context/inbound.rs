//! Represents a message whose envelope passed its checks, for all rooms.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::cbor::Checked;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, Held};
use capd_proto::identity::Did;

use super::judge::Judged;
use super::vetted::Vetted;
use super::{Ctx, Refusal};
use crate::net::{Link, Now, Route};
use crate::schema::{Artifact, Side};

/// A message that has passed the envelope's checks.
#[derive(Clone, Copy)]
pub(in crate::daemon) struct Inbound<'a> {
    /// When the turn began in which it is handled.
    pub(in crate::daemon) now: Now,
    pub(in crate::daemon) link: &'a Arc<Link>,
    pub(in crate::daemon) route: &'a Route,
    /// The envelope as it came.
    pub(in crate::daemon) payload: &'a Bytes,
    /// Who sent it: the link's principal, under the DID that it calls itself by.
    pub(in crate::daemon) sender: &'a Did,
    pub(in crate::daemon) envelope: &'a Envelope<'a>,
    /// The plaintext body.
    pub(in crate::daemon) body: &'a Bytes,
    /// Whether `payload` has it encrypted.
    pub(in crate::daemon) is_encrypted: bool,
    /// What the compute pool says of its payload, when it is met again for that: of each schema that was asked about.
    pub(in crate::daemon) judged: &'a [Judged],
    /// The same message as it is kept for that, if it has been.
    pub(in crate::daemon) vetted: Option<&'a Arc<Vetted>>,
}

impl<'a> Inbound<'a> {
    /// The body as decoders of messages take it.
    pub(in crate::daemon) fn checked_body(&self) -> Checked<'a> {
        self.envelope.checked_body().unwrap_or_else(|| Checked::from(&self.body[..]))
    }

    /// Whether the message is for this sidecar's own agent, and not to be passed on to a peer.
    pub(in crate::daemon) fn is_for(&self, did: &Did) -> bool {
        self.envelope.to.names(did.as_str())
    }

    /// Has it met again once the compute pool has checked its payload.
    pub(in crate::daemon) fn again_judged(
        &self,
        ctx: &Arc<Ctx>,
        artifact: &Arc<Artifact>,
        payload: &[u8],
        side: Side,
    ) -> Again {
        let judged = ctx.judge(artifact, self.body.slice_ref(payload), side);
        let mut all = self.judged.to_vec();
        Box::pin(async move {
            all.push(judged.await);
            all
        })
    }

    /// The message as it is kept to be met again: nothing of it is decoded or checked anew then.
    pub(in crate::daemon) fn vetted(&self) -> Option<Arc<Vetted>> {
        let kept = self.vetted.cloned();
        kept.or_else(|| {
            Some(Arc::new(Vetted { held: Held::new(self.envelope, self.payload)?, opened: Ok(None) }))
        })
    }

    /// When the message expires, in milliseconds since the Unix epoch.
    pub(in crate::daemon) fn expires_at_ms(&self) -> u64 {
        self.envelope.ts.saturating_add(self.envelope.ttl)
    }
}

/// What became of a message.
pub(in crate::daemon) enum Taken {
    /// It is dealt with.
    Done,
    /// It is to be met again once this has ended, as if it had just come.
    Again(Again),
}

/// What a message waits for before it is met again, with the verdicts over its payload that it waited for.
pub(in crate::daemon) type Again = Pin<Box<dyn Future<Output = Vec<Judged>> + Send>>;

/// A peer learns nothing of what others did here, and no more than of an operation that we do not have.
pub(in crate::daemon) fn is_for_the_agent(inbound: &Inbound<'_>, op: &str) -> Result<(), Refusal> {
    if inbound.link.kind().is_local() {
        return Ok(());
    }
    Err(Refusal::new(Code::BAD_REQUEST, format!("the operation {op:?} is not known here")))
}
