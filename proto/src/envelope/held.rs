//! A decoded envelope and its bytes in; the same envelope, wherever and as often as it is wanted, out.
//!
//! An [`Envelope`] borrows from its bytes, and to decode a large one again takes as long as the first time did.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::{Encrypted, Envelope, Payload, Recipients};
use crate::limits::NONCE_BYTES;

/// An envelope with the bytes that it was decoded from.
#[derive(Clone, Debug)]
pub struct Held {
    bytes: Bytes,
    /// Everything but what may be large, which it has none of.
    head: Envelope<'static>,
    payload: HeldPayload,
    ext: Option<Range<usize>>,
}

#[derive(Clone, Debug)]
enum HeldPayload {
    Body(Range<usize>),
    Enc { nonce: [u8; NONCE_BYTES], ciphertext: Bytes },
}

impl Held {
    /// `envelope` with `bytes`, which it was decoded from; `None` if it borrows from others.
    pub fn new(envelope: &Envelope<'_>, bytes: &Bytes) -> Option<Self> {
        let payload = match &envelope.payload {
            Payload::Body(body) => HeldPayload::Body(place(bytes, body)?),
            Payload::Enc(Encrypted { nonce, ciphertext }) => HeldPayload::Enc {
                nonce: *nonce,
                ciphertext: match ciphertext {
                    Cow::Borrowed(borrowed) => bytes.slice(place(bytes, borrowed)?),
                    Cow::Owned(owned) => Bytes::copy_from_slice(owned),
                },
            },
        };
        let ext = envelope.ext.map(|ext| place(bytes, ext).ok_or(())).transpose().ok()?;
        let head = Envelope {
            from: Cow::Owned(envelope.from.clone().into_owned()),
            to: owned(&envelope.to),
            reply_to: envelope.reply_to.as_deref().map(|id| Cow::Owned(id.to_vec())),
            thread_id: envelope.thread_id.as_deref().map(|id| Cow::Owned(id.to_vec())),
            payload: Payload::Body(&[]),
            ext: None,
            ..*envelope
        };
        Some(Self { bytes: bytes.clone(), head, payload, ext })
    }

    /// What it was decoded from.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The envelope, as it was decoded.
    pub fn envelope(&self) -> Envelope<'_> {
        let payload = match &self.payload {
            HeldPayload::Body(body) => Payload::Body(&self.bytes[body.clone()]),
            HeldPayload::Enc { nonce, ciphertext } => {
                Payload::Enc(Encrypted { nonce: *nonce, ciphertext: Cow::Borrowed(ciphertext) })
            }
        };
        Envelope {
            from: Cow::Borrowed(&self.head.from),
            to: self.head.to.borrowed(),
            reply_to: self.head.reply_to.as_deref().map(Cow::Borrowed),
            thread_id: self.head.thread_id.as_deref().map(Cow::Borrowed),
            payload,
            ext: self.ext.clone().map(|ext| &self.bytes[ext]),
            ..self.head
        }
    }
}

fn owned(to: &Recipients<'_>) -> Recipients<'static> {
    let owned = |did: &Cow<'_, str>| Cow::Owned(did.clone().into_owned());
    match to {
        Recipients::One(did) => Recipients::One(owned(did)),
        Recipients::Many(dids) => Recipients::Many(dids.iter().map(owned).collect()),
    }
}

/// Where `part` stands in `whole`, if it does.
fn place(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Draft, Ext, MessageId};
    use crate::identity::{Authcrypt, Identity};

    fn draft<'a>(identity: &'a Identity, body: &'a [u8], ext: Ext<'a>) -> Draft<'a> {
        Draft {
            id: MessageId([7; 16]),
            typ: 0x22,
            ts: 1,
            ttl: 2,
            from: identity.did().as_str(),
            to: Recipients::Many(vec!["did:web:a".into(), "did:web:b".into()]),
            reply_to: Some(&[3; 16]),
            thread_id: Some(b"thread"),
            body,
            ext,
        }
    }

    #[test]
    fn a_held_envelope_is_the_one_that_was_decoded() {
        let (one, other) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        let body = [&[0xa1, 0x66][..], b"params", &[0x82, 1, 2]].concat();
        let (mut signed, mut encrypted) = (Vec::new(), Vec::new());
        draft(&one, &body, Ext::Raw(&[0xa1, 0x61, b'x', 1])).seal(&one, true, &mut signed);
        let key = crate::identity::PublicKey::from_did(other.did().as_str()).unwrap();
        let shared = Authcrypt::new(&one.agreement_secret(), &key.agreement_key());
        draft(&one, &body, Ext::None).seal_encrypted(&one, &shared, &[9; 24], &mut encrypted);
        for bytes in [Bytes::from(signed), encrypted.into()] {
            let envelope = Envelope::decode(&bytes).unwrap();
            let held = Held::new(&envelope, &bytes).unwrap();
            assert_eq!(held.envelope(), envelope);
            assert_eq!(held.envelope().body().map(<[u8]>::as_ptr), envelope.body().map(<[u8]>::as_ptr));
            // Not of these bytes, though they are the same.
            assert!(Held::new(&envelope, &Bytes::copy_from_slice(&bytes)).is_none());
        }
    }
}
