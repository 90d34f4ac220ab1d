//! Verifies an envelope's signature: signed fields and a key in, acceptance or a refusal out.

use std::borrow::Cow;

use super::error::{EnvelopeError, EnvelopeErrorKind};
use super::id::MessageId;
use super::recipients::Recipients;
use super::{Envelope, Payload, SignedForm, keys};
use crate::cbor::{self, Writer};
use crate::identity::{Claim, InvalidSignature, Keyring, PublicKey};

/// Names the protocol and its version inside every signature. **Source:** AMP 001 §8.1.
const CONTEXT: &str = "AMP-v1";
/// RFC 8949 3: the head of a byte string of any length.
const BSTR_HEAD_BYTES_MAX: usize = 9;

/// The fields that a signature covers, besides the body.
pub(super) struct SignedFields<'a> {
    pub(super) id: &'a MessageId,
    pub(super) typ: u64,
    pub(super) ts: u64,
    pub(super) ttl: u64,
    pub(super) from: &'a str,
    pub(super) to: &'a Recipients<'a>,
    pub(super) reply_to: Option<&'a [u8]>,
    pub(super) thread_id: Option<&'a [u8]>,
}

impl SignedFields<'_> {
    /// Appends the bytes that are signed; `body` is in the form that the signature covers.
    ///
    /// **Shape:** `["AMP-v1", h'', {id, typ, ts, ttl, from, to, ? reply_to, ? thread_id}, bstr(body)]`.
    pub(super) fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        self.write_head(out);
        // Exactly: a large body is in memory once already.
        out.reserve_exact(BSTR_HEAD_BYTES_MAX + body.len());
        Writer::new(out).bytes(body);
    }

    /// The same, with `body` in deterministic form. It is written where it is signed, so that there is one copy of it.
    fn write_deterministic(&self, body: &[u8], out: &mut Vec<u8>) -> Result<(), cbor::Error> {
        if cbor::is_deterministic(body) {
            self.write(body, out);
            return Ok(());
        }
        self.write_head(out);
        // A definite length may take a byte more than an indefinite one, where there are at least 256 items.
        out.reserve_exact(BSTR_HEAD_BYTES_MAX + body.len() + body.len() / 256);
        let start = out.len();
        cbor::deterministic(body, out)?;
        let bytes = out.len() - start;
        Writer::new(out).bytes_head(bytes as u64);
        let head_bytes = out.len() - start - bytes;
        out[start..].rotate_right(head_bytes);
        Ok(())
    }

    /// Everything before the body.
    fn write_head(&self, out: &mut Vec<u8>) {
        let optional = [self.reply_to.is_some(), self.thread_id.is_some()].map(u64::from);
        let mut writer = Writer::new(out);
        writer.array(4).text(CONTEXT).bytes(b"").map(6 + optional.iter().sum::<u64>());
        writer.text("id").bytes(self.id.as_bytes()).text("to");
        self.to.write(&mut writer);
        writer.text("ts").uint(self.ts).text("ttl").uint(self.ttl).text("typ").uint(self.typ);
        writer.text("from").text(self.from);
        write_thread(&mut writer, self.reply_to, self.thread_id);
    }
}

/// Appends the two optional fields that stand last in deterministic order.
pub(super) fn write_thread(writer: &mut Writer<'_>, reply_to: Option<&[u8]>, thread_id: Option<&[u8]>) {
    if let Some(reply_to) = reply_to {
        writer.raw(keys::REPLY_TO).bytes(reply_to);
    }
    if let Some(thread_id) = thread_id {
        writer.raw(keys::THREAD_ID).bytes(thread_id);
    }
}

/// `body` in deterministic encoding; copied only when it is not.
pub(super) fn deterministic(body: &[u8]) -> Result<Cow<'_, [u8]>, cbor::Error> {
    if cbor::is_deterministic(body) {
        return Ok(Cow::Borrowed(body));
    }
    let mut rewritten = Vec::new();
    cbor::deterministic(body, &mut rewritten)?;
    Ok(Cow::Owned(rewritten))
}

impl Envelope<'_> {
    /// Verifies the signature with `key`; `scratch` is overwritten, and can be reused.
    ///
    /// **Errors:** 1002 for one that is missing or does not fit, 3001 while the body is encrypted.
    /// **Source:** PROTOCOL 5, AMP 001 §8.2.
    pub fn verify(&self, key: &PublicKey, scratch: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        self.claim(key, scratch)?.check().map_err(|misfit| self.misfit(misfit))
    }

    /// As [`verify`](Self::verify), except the equation, which can then be checked together with others.
    ///
    /// **Errors:** as [`verify`](Self::verify), for what fits no key.
    pub fn claim(&self, key: &PublicKey, scratch: &mut Vec<u8>) -> Result<Claim, EnvelopeError> {
        let sig = self.sig.as_ref().ok_or(self.error(EnvelopeErrorKind::Unsigned))?;
        let Payload::Body(body) = &self.payload else {
            return Err(self.error(EnvelopeErrorKind::Decryption));
        };
        let mut verifier = key.verifier(sig).map_err(|misfit| self.misfit(misfit))?;
        // PROTOCOL 5: a body that is not in deterministic form is re-encoded for verification only.
        let is_rewritten = self.signed == SignedForm::Deterministic && !cbor::is_deterministic(body);
        let cbor_error = |error| EnvelopeError::cbor(error, Some(self.id));
        let body_bytes = if is_rewritten {
            cbor::deterministic_len(body, scratch).map_err(cbor_error)?
        } else {
            body.len()
        };
        scratch.clear();
        self.signed_fields().write_head(scratch);
        Writer::new(scratch).bytes_head(body_bytes as u64);
        verifier.update(scratch);
        // The body is not copied: it may be large, and is in memory once already.
        if is_rewritten {
            let mut put = |piece: &[u8]| verifier.update(piece);
            cbor::deterministic_pieces(body, scratch, &mut put).map_err(cbor_error)?;
        } else {
            verifier.update(body);
        }
        Ok(verifier.claim())
    }

    /// The error of [`verify`](Self::verify) for an invalid signature.
    ///
    /// **Errors:** 1002.
    pub const fn misfit(&self, _: InvalidSignature) -> EnvelopeError {
        self.error(EnvelopeErrorKind::Signature)
    }

    /// Verifies the signature with the key that `keyring` has for `from`.
    ///
    /// **Errors:** as [`verify`](Self::verify), and 3001 when there is no key. **Source:** PROTOCOL 5.
    pub fn verify_from(&self, keyring: &mut Keyring, scratch: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        let key = keyring.resolve(&self.from).ok_or(self.error(EnvelopeErrorKind::NoKey))?;
        self.verify(&key, scratch)
    }

    /// Overwrites `out` with the bytes that the signature covers.
    ///
    /// **Errors:** 3001 while the body is encrypted: only its plaintext is signed.
    pub fn signed_bytes(&self, out: &mut Vec<u8>) -> Result<(), EnvelopeError> {
        let body = match &self.payload {
            Payload::Body(body) => *body,
            Payload::Enc(_) => return Err(self.error(EnvelopeErrorKind::Decryption)),
        };
        out.clear();
        let fields = self.signed_fields();
        match self.signed {
            // PROTOCOL 5: a body that is not in deterministic form is re-encoded for verification only.
            SignedForm::Deterministic => fields
                .write_deterministic(body, out)
                .map_err(|error| EnvelopeError::cbor(error, Some(self.id))),
            SignedForm::AsSealed => {
                fields.write(body, out);
                Ok(())
            }
        }
    }

    fn signed_fields(&self) -> SignedFields<'_> {
        SignedFields {
            id: &self.id,
            typ: self.typ,
            ts: self.ts,
            ttl: self.ttl,
            from: &self.from,
            to: &self.to,
            reply_to: self.reply_to.as_deref(),
            thread_id: self.thread_id.as_deref(),
        }
    }
}
