//! Large messages in; what of them takes long to check, checked on the compute pool, out.
//!
//! To hash a message of 1 MiB takes over a millisecond, and one that is not in deterministic form many: no link waits for
//! that.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::envelope::{Envelope, EnvelopeError, Held, Payload};
use capd_proto::identity::{Authcrypt, PublicKey};

use super::{Ctx, Refusal};

/// Messages and payloads from which on even plain work takes longer than links may wait.
pub(in crate::daemon) const LARGE_BYTES: usize = 64 * 1024;

/// A message whose signature is still to be checked.
pub(in crate::daemon) struct Unvetted {
    /// Of whoever must have signed it.
    pub(in crate::daemon) key: PublicKey,
    pub(in crate::daemon) message: Message,
}

/// A message as far as it is decoded.
pub(in crate::daemon) enum Message {
    Raw(Bytes),
    Held(Box<Held>),
}

/// A message that is decoded, and what its signature says.
#[derive(Debug)]
pub(in crate::daemon) struct Vetted {
    pub(in crate::daemon) held: Held,
    /// The plaintext of a body that came encrypted; or why the message is not taken.
    pub(in crate::daemon) opened: Result<Option<Bytes>, Refusal>,
}

impl Unvetted {
    pub(in crate::daemon) const fn bytes(&self) -> &Bytes {
        match &self.message {
            Message::Raw(bytes) => bytes,
            Message::Held(held) => held.bytes(),
        }
    }

    /// Checks it on this thread. **Errors:** it is no envelope.
    pub(in crate::daemon) fn vet(self, ctx: &Ctx) -> Result<Arc<Vetted>, EnvelopeError> {
        let held = match self.message {
            Message::Held(held) => *held,
            Message::Raw(bytes) => {
                Held::new(&Envelope::decode(&bytes)?, &bytes).expect("it was decoded from these bytes")
            }
        };
        let opened = opened(ctx, &self.key, &held.envelope());
        Ok(Arc::new(Vetted { held, opened }))
    }

    /// Checks it on the compute pool.
    pub(in crate::daemon) async fn vetted(self, ctx: Arc<Ctx>) -> Result<Arc<Vetted>, EnvelopeError> {
        let tasks = ctx.tasks.clone();
        match tasks.compute(move || self.vet(&ctx)).await {
            Some(vetted) => vetted,
            // A panic ends the process.
            None => std::future::pending().await,
        }
    }
}

/// The plaintext of an encrypted body, once the signature is found to fit. One without a signature has nothing to fit; whether
/// it needs one is asked elsewhere.
fn opened(ctx: &Ctx, key: &PublicKey, envelope: &Envelope<'_>) -> Result<Option<Bytes>, Refusal> {
    match envelope.payload {
        Payload::Body(_) => {
            check(key, envelope)?;
            Ok(None)
        }
        Payload::Enc(_) => {
            let plaintext = open(ctx, key, envelope)?;
            // PROTOCOL 5: the signature is over the plaintext.
            check(key, &envelope.clone().with_body(&plaintext).map_err(Refusal::of)?)?;
            Ok(Some(plaintext.into()))
        }
    }
}

fn check(key: &PublicKey, envelope: &Envelope<'_>) -> Result<(), Refusal> {
    match envelope.sig {
        Some(_) => envelope.verify(key, &mut Vec::new()).map_err(Refusal::of),
        None => Ok(()),
    }
}

/// The plaintext of an encrypted body. **Errors:** 3001 without detail (PROTOCOL 5).
pub(in crate::daemon) fn open(
    ctx: &Ctx,
    key: &PublicKey,
    envelope: &Envelope<'_>,
) -> Result<Vec<u8>, Refusal> {
    let shared = Authcrypt::new(&ctx.identity.agreement_secret(), &key.agreement_key());
    let mut plaintext = Vec::new();
    envelope.open(&shared, &mut plaintext).map_err(Refusal::of)?;
    Ok(plaintext)
}
