//! Seals outgoing messages, signed if the link does not prove this sidecar.

use bytes::Bytes;
use capd_proto::envelope::{Draft, Encoded, Ext, MessageId, Recipients};
use capd_proto::identity::Did;
use capd_proto::message::Type;

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
    pub(in crate::daemon) fn pass_on(
        &self,
        draft: Draft<'_>,
        body: &Bytes,
        signed: bool,
    ) -> (Encoded, Bytes) {
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

/// PROTOCOL 2, 5: a local link's envelopes may be unsigned, and a channel-authenticated peer link's as well.
pub(in crate::daemon) fn needs_signature(link: &Link) -> bool {
    !link.kind().is_local() && !link.channel_auth()
}

/// How long an answer of ours stays valid, in milliseconds.
pub(in crate::daemon) const ANSWER_TTL_MS: u64 = 60_000;
/// Bytes of an envelope around its body, for one allocation that fits.
const ENVELOPE_BYTES_TYPICAL: usize = 320;
