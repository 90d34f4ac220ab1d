//! Reads an envelope as [`Draft`](super::Draft) writes it, in one pass; `decode` reads any other.
//!
//! Nearly every message is of this form: keys in order, one recipient, no `ext`, not encrypted.

use std::borrow::Cow;

use super::id::MessageId;
use super::recipients::Recipients;
use super::{Envelope, Payload, SignedForm, keys};
use crate::cbor::{Checker, TagPolicy};
use crate::limits::{MESSAGE_ID_BYTES, SIGNATURE_BYTES};

/// The envelope in `bytes`, or `None` where it is another one, or none.
pub(super) fn read(bytes: &[u8]) -> Option<Envelope<'_>> {
    let (&head, rest) = bytes.split_first()?;
    let pairs = usize::from(head.checked_sub(MAP)?);
    if !(PAIRS..=PAIRS + 2).contains(&pairs) {
        return None;
    }
    let mut fields = Fields(rest);
    fields.literal(keys::V_AND_ID)?;
    let id = MessageId(*fields.chunk::<MESSAGE_ID_BYTES>()?);
    fields.literal(keys::TO)?;
    let to = Recipients::One(fields.text()?);
    fields.literal(keys::TS)?;
    let ts = fields.uint()?;
    fields.literal(keys::SIG)?;
    let sig = fields.signature()?;
    fields.literal(keys::TTL)?;
    let ttl = fields.uint()?;
    fields.literal(keys::TYP)?;
    let typ = fields.uint()?;
    fields.literal(keys::BODY)?;
    let body_start = bytes.len() - fields.0.len();
    let mut checker = Checker::new(bytes, TagPolicy::UnderPayloadKeys);
    checker.count(2 * pairs);
    let body_end = checker.item(body_start, 1).ok()?;
    fields.0 = &bytes[body_end..];
    fields.literal(keys::FROM)?;
    let from = fields.text()?;
    let reply_to = fields.bytes_of(keys::REPLY_TO)?;
    let thread_id = fields.bytes_of(keys::THREAD_ID)?;
    let found = PAIRS + usize::from(reply_to.is_some()) + usize::from(thread_id.is_some());
    if found != pairs || !fields.0.is_empty() {
        return None;
    }
    Some(Envelope {
        id,
        typ,
        ts,
        ttl,
        from,
        to,
        reply_to,
        thread_id,
        sig,
        payload: Payload::Body(&bytes[body_start..body_end]),
        ext: None,
        signed: SignedForm::Deterministic,
        walked: checker.payload().within(body_start, body_end),
    })
}

/// What is left of the envelope; each field is taken from its front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    #[inline]
    fn literal<const N: usize>(&mut self, expected: &[u8; N]) -> Option<()> {
        (self.chunk()? == expected).then_some(())
    }

    #[inline]
    fn uint(&mut self) -> Option<u64> {
        let [first] = *self.chunk()?;
        Some(match first {
            0..0x18 => u64::from(first),
            0x18 => u64::from(self.chunk::<1>()?[0]),
            0x19 => u64::from(u16::from_be_bytes(*self.chunk()?)),
            0x1a => u64::from(u32::from_be_bytes(*self.chunk()?)),
            0x1b => u64::from_be_bytes(*self.chunk()?),
            _ => return None,
        })
    }

    /// A string of that major type, of up to 255 bytes.
    #[inline]
    fn string(&mut self, major: u8) -> Option<&'a [u8]> {
        let [first] = *self.chunk()?;
        let length = match first ^ major << 5 {
            short @ 0..0x18 => short,
            0x18 => self.chunk::<1>()?[0],
            _ => return None,
        };
        let (string, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(string)
    }

    #[inline]
    fn text(&mut self) -> Option<Cow<'a, str>> {
        std::str::from_utf8(self.string(3)?).ok().map(Cow::Borrowed)
    }

    #[inline]
    fn signature(&mut self) -> Option<Option<[u8; SIGNATURE_BYTES]>> {
        match self.string(2)? {
            [] => Some(None),
            signature => signature.try_into().ok().map(Some),
        }
    }

    /// The byte string of a field that need not be there.
    #[inline]
    fn bytes_of<const N: usize>(&mut self, key: &[u8; N]) -> Option<Option<Cow<'a, [u8]>>> {
        if !self.0.starts_with(key) {
            return Some(None);
        }
        self.literal(key)?;
        Some(Some(Cow::Borrowed(self.string(2)?)))
    }
}

/// The first byte of a map of no pairs.
const MAP: u8 = 0xa0;
/// The fields that every such envelope has.
const PAIRS: usize = 9;
