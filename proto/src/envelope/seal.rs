//! Seals a draft: the draft and an identity in, the bytes of the envelope out.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::encoded::Encoded;
use super::id::MessageId;
use super::recipients::Recipients;
use super::signature::{SignedFields, deterministic, write_thread};
use super::{ENC_ALG, ENC_MODE, Envelope, keys};
use crate::cbor::{self, Writer};
use crate::identity::{Authcrypt, Identity};
use crate::limits::{NONCE_BYTES, SIGNATURE_BYTES};

/// An envelope before it is sealed.
///
/// **Shape:** as [`Envelope`]; `body` is one CBOR item that the caller wrote or has checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft<'a> {
    /// The message's id; its time is `ts`.
    pub id: MessageId,
    /// The type's number.
    pub typ: u64,
    /// When it is made, in milliseconds since the Unix epoch.
    pub ts: u64,
    /// How long it is valid from then, in milliseconds.
    pub ttl: u64,
    /// The DID of the identity that seals it.
    pub from: &'a str,
    /// The recipients.
    pub to: Recipients<'a>,
    /// The id of the message that it answers.
    pub reply_to: Option<&'a [u8]>,
    /// The conversation.
    pub thread_id: Option<&'a [u8]>,
    /// The raw body, sent unchanged.
    pub body: &'a [u8],
    /// The extension fields, which are not signed.
    pub ext: Ext<'a>,
}

/// The `ext` that a draft writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ext<'a> {
    /// None.
    #[default]
    None,
    /// A received envelope's, unchanged.
    Raw(&'a [u8]),
    /// Ours.
    Fields {
        /// W3C trace context. **Source:** PROTOCOL 5.
        traceparent: Option<&'a str>,
        /// Whether the version that served is deprecated. **Source:** PROTOCOL 7.5.
        deprecated: bool,
    },
}

impl Ext<'_> {
    const fn is_none(self) -> bool {
        matches!(self, Self::None | Self::Fields { traceparent: None, deprecated: false })
    }

    fn write(self, writer: &mut Writer<'_>) {
        match self {
            Self::None => {}
            Self::Raw(raw) => {
                writer.text("ext").raw(raw);
            }
            Self::Fields { traceparent, deprecated } => {
                writer.text("ext").map(u64::from(traceparent.is_some()) + u64::from(deprecated));
                if deprecated {
                    writer.text("deprecated").bool(true);
                }
                if let Some(traceparent) = traceparent {
                    writer.text("traceparent").text(traceparent);
                }
            }
        }
    }
}

/// What stands in `sig`, `body` and `enc`.
pub(super) struct Sealed<'a> {
    pub(super) sig: Option<[u8; SIGNATURE_BYTES]>,
    pub(super) enc: Option<(&'a [u8; NONCE_BYTES], &'a [u8])>,
}

impl<'a> Draft<'a> {
    /// A draft of a received message with the same body, to be readdressed and sealed again. `None` if the body is
    /// encrypted, because the signature covers the plaintext.
    pub fn of(envelope: &'a Envelope<'_>) -> Option<Self> {
        Some(Self {
            id: envelope.id,
            typ: envelope.typ,
            ts: envelope.ts,
            ttl: envelope.ttl,
            from: &envelope.from,
            to: envelope.to.borrowed(),
            reply_to: envelope.reply_to.as_deref(),
            thread_id: envelope.thread_id.as_deref(),
            body: envelope.body()?,
            ext: envelope.ext.map_or(Ext::None, Ext::Raw),
        })
    }

    /// Appends the envelope in deterministic encoding, with a signature or with an empty `sig`. Only a received body or
    /// raw `ext` keeps its own encoding.
    pub fn seal(&self, identity: &Identity, signed: bool, out: &mut Vec<u8>) {
        let _body = self.seal_around(identity, signed, out);
    }

    /// As [`seal`](Self::seal); returns the position of the body in `out`.
    pub fn seal_around(&self, identity: &Identity, signed: bool, out: &mut Vec<u8>) -> Range<usize> {
        debug_assert_eq!(cbor::check(self.body), Ok(()));
        let sig = signed.then(|| self.sign(&self.deterministic_body(), identity, out));
        self.write(&Sealed { sig, enc: None }, out)
    }

    /// Appends the envelope with an empty `sig`, as an agent without a key writes it on its local link.
    ///
    /// **Source:** PROTOCOL 2.
    pub fn write_unsigned(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(cbor::check(self.body), Ok(()));
        let _body = self.write(&Sealed { sig: None, enc: None }, out);
    }

    /// The envelope with an empty `sig`, and with `item` kept apart; `body` lacks it at `at`.
    ///
    /// **Source:** PROTOCOL 2.
    pub fn write_apart(&self, at: usize, item: Bytes) -> Encoded {
        let mut fields = Vec::with_capacity(self.body.len() + FIELDS_BYTES_TYPICAL);
        let body = self.write(&Sealed { sig: None, enc: None }, &mut fields);
        let encoded = Encoded::apart(fields.into(), body.start + at, item);
        debug_assert_eq!(cbor::check(&encoded.clone().into_bytes()), Ok(()));
        encoded
    }

    /// Appends the envelope with its body signed, then encrypted; a nonce must never be used twice between the same two
    /// parties.
    ///
    /// **Source:** PROTOCOL 5, AMP 001 §8.6.
    pub fn seal_encrypted(
        &self,
        identity: &Identity,
        shared: &Authcrypt,
        nonce: &[u8; NONCE_BYTES],
        out: &mut Vec<u8>,
    ) {
        let body = self.deterministic_body();
        let sig = Some(self.sign(&body, identity, out));
        let mut ciphertext = Vec::new();
        shared.seal(nonce, &body, &mut ciphertext);
        let _none = self.write(&Sealed { sig, enc: Some((nonce, &ciphertext)) }, out);
    }

    fn deterministic_body(&self) -> Cow<'a, [u8]> {
        // Bytes that are no CBOR cannot be rewritten; signed as they are, no receiver takes them.
        deterministic(self.body).unwrap_or(Cow::Borrowed(self.body))
    }

    /// The signature; the end of `out` serves as scratch.
    fn sign(&self, body: &[u8], identity: &Identity, out: &mut Vec<u8>) -> [u8; SIGNATURE_BYTES] {
        let start = out.len();
        let fields = SignedFields {
            id: &self.id,
            typ: self.typ,
            ts: self.ts,
            ttl: self.ttl,
            from: self.from,
            to: &self.to,
            reply_to: self.reply_to,
            thread_id: self.thread_id,
        };
        fields.write(body, out);
        let sig = identity.sign(&out[start..]);
        out.truncate(start);
        sig
    }

    /// Appends the fields in the bytewise order of their encoded keys. Gives where the body stands, if it does.
    pub(super) fn write(&self, sealed: &Sealed<'_>, out: &mut Vec<u8>) -> Range<usize> {
        let optional =
            [!self.ext.is_none(), self.reply_to.is_some(), self.thread_id.is_some()].map(u64::from);
        let mut writer = Writer::new(out);
        writer.map(9 + optional.iter().sum::<u64>());
        writer.raw(keys::V_AND_ID).raw(self.id.as_bytes()).raw(keys::TO);
        self.to.write(&mut writer);
        writer.raw(keys::TS).uint(self.ts);
        if let Some((nonce, ciphertext)) = sealed.enc {
            writer.text("enc").map(4).text("alg").text(ENC_ALG).text("mode").text(ENC_MODE);
            writer.text("nonce").bytes(nonce).text("ciphertext").bytes(ciphertext);
        }
        if !self.ext.is_none() {
            self.ext.write(&mut writer);
        }
        match &sealed.sig {
            Some(sig) => writer.raw(keys::SIG).bytes(sig),
            None => writer.raw(keys::NO_SIG),
        };
        writer.raw(keys::TTL).uint(self.ttl).raw(keys::TYP).uint(self.typ);
        let mut body = 0..0;
        if sealed.enc.is_none() {
            body.start = writer.raw(keys::BODY).written();
            body.end = writer.raw(self.body).written();
        }
        writer.raw(keys::FROM).text(self.from);
        write_thread(&mut writer, self.reply_to, self.thread_id);
        body
    }
}

impl Envelope<'_> {
    /// Appends the envelope with `ext`, a raw map, in place of its own, which no signature covers. A signature stays as
    /// it is where `keeps_signature`, and `sig` is empty otherwise. Gives where the body stands; `None`, with nothing
    /// appended, if it is encrypted.
    pub fn write_with_ext(
        &self,
        ext: &[u8],
        keeps_signature: bool,
        out: &mut Vec<u8>,
    ) -> Option<Range<usize>> {
        let draft = Draft { ext: Ext::Raw(ext), ..Draft::of(self)? };
        Some(draft.write(&Sealed { sig: self.sig.filter(|_| keeps_signature), enc: None }, out))
    }
}

/// Bytes of an envelope around its body, for one allocation that fits.
const FIELDS_BYTES_TYPICAL: usize = 320;
