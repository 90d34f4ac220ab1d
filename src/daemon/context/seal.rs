//! Seals outgoing messages, signed if the link does not prove this sidecar.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::envelope::{Draft, Encoded, Ext, MessageId, Recipients};
use capd_proto::identity::Did;
use capd_proto::message::Type;

use super::vetted::LARGE_BYTES;
use super::{Ctx, Inbound};
use crate::net::Link;

/// An envelope that we write.
pub(in crate::daemon) struct Outbound<'a> {
    pub(in crate::daemon) id: MessageId,
    pub(in crate::daemon) typ: Type,
    pub(in crate::daemon) to: &'a str,
    pub(in crate::daemon) reply_to: Option<MessageId>,
    /// The conversation that the agent says it belongs to.
    pub(in crate::daemon) thread_id: Option<&'a [u8]>,
    pub(in crate::daemon) ttl_ms: u64,
    pub(in crate::daemon) body: &'a [u8],
    pub(in crate::daemon) ext: Ext<'a>,
}

impl<'a> Outbound<'a> {
    /// The envelope that the agent `did` makes of it.
    pub(in crate::daemon) fn draft(&'a self, did: &'a Did) -> Draft<'a> {
        Draft {
            id: self.id,
            typ: self.typ.code(),
            ts: self.id.ts_ms(),
            ttl: self.ttl_ms,
            from: did.as_str(),
            to: Recipients::one(self.to),
            reply_to: self.reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: self.thread_id,
            body: self.body,
            ext: self.ext,
        }
    }
}

impl Ctx {
    /// The bytes of an envelope of ours, signed unless `link` proves us otherwise.
    pub(in crate::daemon) fn seal(&self, message: &Outbound<'_>, link: &Link) -> Bytes {
        self.seal_signed(message, needs_signature(link))
    }

    pub(in crate::daemon) fn seal_signed(&self, message: &Outbound<'_>, signed: bool) -> Bytes {
        self.seal_around(&message.draft(self.did()), signed).0
    }

    /// The bytes of an envelope of ours around a body that came, which is not copied if it is large. Gives the body where
    /// it is from here on, too.
    pub(in crate::daemon) fn pass_on(&self, draft: Draft<'_>, body: &Bytes, signed: bool) -> Sealed {
        // What is signed has to stand in one piece.
        if signed || body.len() < Encoded::APART_BYTES_MIN {
            let (envelope, body) = self.seal_around(&Draft { body, ..draft }, signed);
            return (envelope.into(), body);
        }
        (Draft { body: &[], ..draft }.write_apart(0, body.clone()), body.clone())
    }

    fn seal_around(&self, draft: &Draft<'_>, signed: bool) -> (Bytes, Bytes) {
        let mut out = Vec::with_capacity(draft.body.len() + ENVELOPE_BYTES_TYPICAL);
        let body = draft.seal_around(&self.identity, signed, &mut out);
        let out = Bytes::from(out);
        let body = out.slice(body);
        (out, body)
    }

    /// A peer's message as the agent gets it: the bytes that came, unless the agent could not read them.
    pub(in crate::daemon) fn for_agent(&self, inbound: &Inbound<'_>) -> Bytes {
        if !inbound.is_encrypted {
            return inbound.payload.clone();
        }
        // The agent has no key: it gets the plaintext, which this sidecar has verified.
        let mut out = Vec::with_capacity(inbound.payload.len());
        if let Some(draft) = Draft::of(inbound.envelope) {
            draft.seal(&self.identity, false, &mut out);
        }
        Bytes::from(out)
    }
}

impl Ctx {
    /// A message as the agent gets it, with `ext` in place of its own, and where its body is then. `None` if it cannot be
    /// written so.
    pub(in crate::daemon) fn for_agent_with(
        &self,
        inbound: &Inbound<'_>,
        ext: &[u8],
    ) -> Option<(Bytes, Bytes)> {
        let mut out = Vec::with_capacity(inbound.payload.len() + ext.len());
        // What was signed is the plaintext as it was sealed, which the agent cannot check.
        let body = inbound.envelope.write_with_ext(ext, !inbound.is_encrypted, &mut out)?;
        let out = Bytes::from(out);
        let body = out.slice(body);
        Some((out, body))
    }
}

/// An envelope of ours that is sealed, and where its body is from here on.
pub(in crate::daemon) type Sealed = (Encoded, Bytes);

/// An envelope of ours that takes long to sign, with all that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Unsealed {
    pub(in crate::daemon) id: MessageId,
    pub(in crate::daemon) typ: Type,
    pub(in crate::daemon) to: Did,
    pub(in crate::daemon) reply_to: Option<MessageId>,
    pub(in crate::daemon) thread_id: Option<Bytes>,
    pub(in crate::daemon) ttl_ms: u64,
    pub(in crate::daemon) body: Bytes,
    /// **Shape:** the raw map.
    pub(in crate::daemon) ext: Option<Vec<u8>>,
}

impl Unsealed {
    /// Whether both are one message around one body, in the same place of memory.
    pub(in crate::daemon) fn is_same(&self, other: &Self) -> bool {
        let rest = |unsealed: &Self| Self { body: Bytes::new(), ..unsealed.clone() };
        let place = |unsealed: &Self| (unsealed.body.as_ptr(), unsealed.body.len());
        place(self) == place(other) && rest(self) == rest(other)
    }

    fn seal(&self, ctx: &Ctx) -> Sealed {
        let message = Outbound {
            id: self.id,
            typ: self.typ,
            to: self.to.as_str(),
            reply_to: self.reply_to,
            thread_id: self.thread_id.as_deref(),
            ttl_ms: self.ttl_ms,
            body: &[],
            ext: self.ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        ctx.pass_on(message.draft(ctx.did()), &self.body, true)
    }
}

impl Ctx {
    /// Signs an envelope on the compute pool.
    pub(in crate::daemon) fn seal_later(
        self: &Arc<Self>,
        unsealed: Unsealed,
    ) -> impl Future<Output = Sealed> + Send + 'static {
        let ctx = Arc::clone(self);
        async move {
            let tasks = ctx.tasks.clone();
            match tasks.compute(move || unsealed.seal(&ctx)).await {
                Some(sealed) => sealed,
                // A panic ends the process.
                None => std::future::pending().await,
            }
        }
    }
}

/// Whether to sign a message around this body takes longer than links may wait.
pub(in crate::daemon) const fn seals_long(body: &Bytes, signed: bool) -> bool {
    signed && body.len() >= LARGE_BYTES
}

/// PROTOCOL 2, 5: a local link's envelopes may be unsigned, and a channel-authenticated peer link's as well.
pub(in crate::daemon) fn needs_signature(link: &Link) -> bool {
    !link.kind().is_local() && !link.channel_auth()
}

/// How long an answer of ours stays valid, in milliseconds.
pub(in crate::daemon) const ANSWER_TTL_MS: u64 = 60_000;
/// Bytes of an envelope around its body, for one allocation that fits.
const ENVELOPE_BYTES_TYPICAL: usize = 320;
