//! Decodes one frame payload into a checked envelope that borrows from it.
//!
//! The strict check walks the bytes once and records where each field's value starts. Then the few fields are read by
//! type. Only a refusal reads the bytes again, to find the id for its ERROR.

use std::borrow::Cow;

use super::error::{EnvelopeError, EnvelopeErrorKind};
use super::id::MessageId;
use super::recipients::Recipients;
use super::{ENC_ALG, ENC_MODE, Encrypted, Envelope, Payload, SignedForm};
use crate::cbor::{self, Checker, Reader, Span, TagPolicy};
use crate::limits::{MESSAGE_ID_BYTES, NONCE_BYTES, PROTOCOL_VERSION, RECIPIENTS_MAX, SIGNATURE_BYTES};

pub(super) fn decode(bytes: &[u8]) -> Result<Envelope<'_>, EnvelopeError> {
    let mut fields =
        Fields { bytes, starts: [0; FIELDS], body_end: 0, ext_end: 0, walked: Span::NONE, id: None };
    fields.find().map_err(|error| EnvelopeError::cbor(error, scan_id(bytes)))?;
    // A version that we do not speak is told before any field that it may define otherwise.
    fields.id = fields.message_id().ok();
    let v = fields.uint(Field::V)?;
    if v != PROTOCOL_VERSION {
        return Err(fields.error(Field::V, EnvelopeErrorKind::Version(v)));
    }
    Ok(Envelope {
        id: fields.id.map_or_else(|| fields.message_id(), Ok)?,
        typ: fields.uint(Field::Typ)?,
        ts: fields.uint(Field::Ts)?,
        ttl: fields.uint(Field::Ttl)?,
        from: fields.did(&mut fields.required(Field::From)?, Field::From)?,
        to: fields.recipients()?,
        reply_to: fields.optional_bytes(Field::ReplyTo)?,
        thread_id: fields.optional_bytes(Field::ThreadId)?,
        sig: fields.signature()?,
        payload: fields.payload()?,
        ext: fields.ext()?,
        signed: SignedForm::Deterministic,
        walked: fields.walked.within(fields.starts[Field::Body as usize], fields.body_end),
    })
}

/// The fields of an envelope, as indices into [`Fields::starts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    V,
    Id,
    Typ,
    Ts,
    Ttl,
    From,
    To,
    ReplyTo,
    ThreadId,
    Sig,
    Body,
    Enc,
    Ext,
}

const FIELDS: usize = Field::Ext as usize + 1;

impl Field {
    #[inline]
    fn of_name(name: &[u8]) -> Option<Self> {
        // With the length known, each comparison is one of whole words.
        Some(match name.len() {
            1 if name == b"v" => Self::V,
            2 if name == b"id" => Self::Id,
            2 if name == b"ts" => Self::Ts,
            2 if name == b"to" => Self::To,
            3 if name == b"sig" => Self::Sig,
            3 if name == b"ttl" => Self::Ttl,
            3 if name == b"typ" => Self::Typ,
            3 if name == b"enc" => Self::Enc,
            3 if name == b"ext" => Self::Ext,
            4 if name == b"body" => Self::Body,
            4 if name == b"from" => Self::From,
            8 if name == b"reply_to" => Self::ReplyTo,
            9 if name == b"thread_id" => Self::ThreadId,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V => "v",
            Self::Id => "id",
            Self::Typ => "typ",
            Self::Ts => "ts",
            Self::Ttl => "ttl",
            Self::From => "from",
            Self::To => "to",
            Self::ReplyTo => "reply_to",
            Self::ThreadId => "thread_id",
            Self::Sig => "sig",
            Self::Body => "body",
            Self::Enc => "enc",
            Self::Ext => "ext",
        }
    }
}

/// The field of an encoded key that ends at `end`, `None` for one we do not know.
#[inline]
fn field_of_key(key: &[u8], end: usize) -> Result<Option<Field>, cbor::Error> {
    match key.split_first() {
        Some((0x60..0x78, name)) => Ok(Field::of_name(name)),
        Some((0x78..=0x7f, _)) => Ok(Field::of_name(Reader::new(key).text()?.as_bytes())),
        Some(_) | None => {
            let kind = cbor::ErrorKind::Expected("a text key");
            Err(cbor::Error { offset: end - key.len(), kind })
        }
    }
}

/// The checked bytes, where the fields are, and the id once it is read.
struct Fields<'a> {
    bytes: &'a [u8],
    /// Where each field's value starts; 0 for an absent field, as no value can start there.
    starts: [usize; FIELDS],
    body_end: usize,
    ext_end: usize,
    /// The longest payload.
    walked: Span,
    id: Option<MessageId>,
}

impl<'a> Fields<'a> {
    /// Checks all of the bytes and notes where the fields are.
    fn find(&mut self) -> Result<(), cbor::Error> {
        let mut checker = Checker::new(self.bytes, TagPolicy::UnderPayloadKeys);
        checker.whole_map(|checker, key, at, depth| {
            let Some(field) = field_of_key(key, at)? else {
                return checker.item(at, depth);
            };
            self.starts[field as usize] = at;
            // PROTOCOL 5: tags are allowed inside ext.
            let tags = if field == Field::Ext { TagPolicy::Anywhere } else { TagPolicy::UnderPayloadKeys };
            checker.set_tags(tags);
            let end = checker.item(at, depth)?;
            checker.set_tags(TagPolicy::UnderPayloadKeys);
            if field == Field::Body {
                self.body_end = end;
            } else if field == Field::Ext {
                self.ext_end = end;
            }
            Ok(end)
        })?;
        self.walked = checker.payload();
        Ok(())
    }

    fn error(&self, field: Field, kind: EnvelopeErrorKind) -> EnvelopeError {
        EnvelopeError { kind, offset: Some(self.starts[field as usize]), id: self.id }
    }

    fn ill_typed(&self, field: Field, expected: &'static str) -> EnvelopeError {
        self.error(field, EnvelopeErrorKind::Field { name: field.name(), expected })
    }

    fn optional(&self, field: Field) -> Option<Reader<'a>> {
        let start = self.starts[field as usize];
        if start == 0 {
            return None;
        }
        let mut reader = Reader::new(self.bytes);
        reader.set_position(start);
        Some(reader)
    }

    fn required(&self, field: Field) -> Result<Reader<'a>, EnvelopeError> {
        self.optional(field).ok_or_else(|| self.error(field, EnvelopeErrorKind::Missing(field.name())))
    }

    fn uint(&self, field: Field) -> Result<u64, EnvelopeError> {
        self.required(field)?.uint().map_err(|_| self.ill_typed(field, "an unsigned integer"))
    }

    fn message_id(&self) -> Result<MessageId, EnvelopeError> {
        let bytes = self.required(Field::Id)?.bytes().ok();
        let id = bytes.and_then(|bytes| MessageId::from_slice(&bytes));
        id.ok_or_else(|| self.ill_typed(Field::Id, "a byte string of 16"))
    }

    fn optional_bytes(&self, field: Field) -> Result<Option<Cow<'a, [u8]>>, EnvelopeError> {
        match self.optional(field) {
            None => Ok(None),
            Some(mut reader) => reader.bytes().map(Some).map_err(|_| self.ill_typed(field, "a byte string")),
        }
    }

    /// Text of any kind: one that names nobody we know is told so by its own code, 3001 or 2001.
    fn did(&self, reader: &mut Reader<'a>, field: Field) -> Result<Cow<'a, str>, EnvelopeError> {
        let offset = Some(reader.position());
        reader.text().map_err(|_| EnvelopeError { offset, ..self.ill_typed(field, "a DID") })
    }

    fn recipients(&self) -> Result<Recipients<'a>, EnvelopeError> {
        let mut reader = self.required(Field::To)?;
        let Ok(mut left) = reader.array() else {
            return self.did(&mut reader, Field::To).map(Recipients::One);
        };
        let mut dids = Vec::new();
        while reader.has_next(&mut left) {
            if dids.len() == RECIPIENTS_MAX {
                return Err(self.ill_typed(Field::To, "at most 64 DIDs"));
            }
            dids.push(self.did(&mut reader, Field::To)?);
        }
        if dids.is_empty() {
            return Err(self.ill_typed(Field::To, "a DID, or an array of one or more"));
        }
        Ok(Recipients::Many(dids))
    }

    fn signature(&self) -> Result<Option<[u8; SIGNATURE_BYTES]>, EnvelopeError> {
        let sig = self.required(Field::Sig)?.bytes();
        let sig = sig.map_err(|_| self.ill_typed(Field::Sig, "a byte string"))?;
        if sig.is_empty() {
            return Ok(None);
        }
        // A byte string of another length is of the right type and cannot be a signature: 1002.
        let sig: Result<[u8; SIGNATURE_BYTES], _> = sig.as_ref().try_into();
        sig.map(Some).map_err(|_| self.error(Field::Sig, EnvelopeErrorKind::SignatureLength))
    }

    fn payload(&self) -> Result<Payload<'a>, EnvelopeError> {
        match (self.optional(Field::Body), self.optional(Field::Enc)) {
            (Some(body), None) => Ok(Payload::Body(&self.bytes[body.position()..self.body_end])),
            (None, Some(reader)) => self.encrypted(reader).map(Payload::Enc),
            (Some(_), Some(_)) => Err(self.error(Field::Enc, EnvelopeErrorKind::BodyAndEnc)),
            (None, None) => Err(self.error(Field::Body, EnvelopeErrorKind::Missing("body"))),
        }
    }

    fn encrypted(&self, mut reader: Reader<'a>) -> Result<Encrypted<'a>, EnvelopeError> {
        let ill_typed = |name, expected, offset| EnvelopeError {
            kind: EnvelopeErrorKind::Field { name, expected },
            offset: Some(offset),
            id: self.id,
        };
        let missing = |name| self.error(Field::Enc, EnvelopeErrorKind::Missing(name));
        let malformed = |_| self.ill_typed(Field::Enc, "a map with text keys");
        let (mut alg, mut mode, mut nonce, mut ciphertext) = (false, false, None, None);
        let mut left = reader.map().map_err(malformed)?;
        while reader.has_next(&mut left) {
            let key = reader.text().map_err(malformed)?;
            let (start, mut value) = (reader.position(), reader);
            reader.skip().map_err(malformed)?;
            match &*key {
                "alg" => {
                    alg = value.text().is_ok_and(|text| text == ENC_ALG);
                    if !alg {
                        return Err(ill_typed("enc.alg", ENC_ALG, start));
                    }
                }
                "mode" => {
                    mode = value.text().is_ok_and(|text| text == ENC_MODE);
                    if !mode {
                        return Err(ill_typed("enc.mode", ENC_MODE, start));
                    }
                }
                "nonce" => {
                    let bytes: Option<[u8; NONCE_BYTES]> =
                        value.bytes().ok().and_then(|bytes| bytes.as_ref().try_into().ok());
                    nonce = Some(bytes.ok_or(ill_typed("enc.nonce", "a byte string of 24", start))?);
                }
                "ciphertext" => {
                    let bytes =
                        value.bytes().map_err(|_| ill_typed("enc.ciphertext", "a byte string", start));
                    ciphertext = Some(bytes?);
                }
                _ => {}
            }
        }
        if !alg {
            return Err(missing("enc.alg"));
        }
        if !mode {
            return Err(missing("enc.mode"));
        }
        Ok(Encrypted {
            nonce: nonce.ok_or(missing("enc.nonce"))?,
            ciphertext: ciphertext.ok_or(missing("enc.ciphertext"))?,
        })
    }

    fn ext(&self) -> Result<Option<&'a [u8]>, EnvelopeError> {
        let Some(mut reader) = self.optional(Field::Ext) else {
            return Ok(None);
        };
        let ill_typed = |_| self.ill_typed(Field::Ext, "a map with text keys");
        let mut left = reader.map().map_err(ill_typed)?;
        while reader.has_next(&mut left) {
            reader.text().map_err(ill_typed)?;
            reader.skip().map_err(ill_typed)?;
        }
        Ok(Some(&self.bytes[self.starts[Field::Ext as usize]..self.ext_end]))
    }
}

/// The id of a message whose bytes are refused, if it can be made out: by walking the map as far as that goes, else by
/// looking for the bytes of an `id` field. A wrong guess only names another message to the peer that sent it.
#[cold]
fn scan_id(bytes: &[u8]) -> Option<MessageId> {
    let walked = || -> Result<Option<MessageId>, cbor::Error> {
        let mut reader = Reader::new(bytes);
        let mut left = reader.map()?;
        while reader.has_next(&mut left) {
            let key = reader.skip()?;
            if Reader::new(key).text().is_ok_and(|name| name == "id") {
                return Ok(MessageId::from_slice(&reader.bytes()?));
            }
            reader.skip()?;
        }
        Ok(None)
    };
    walked().unwrap_or_else(|_| {
        const ID_FIELD: [u8; 4] = [0x62, b'i', b'd', 0x40 | MESSAGE_ID_BYTES as u8];
        let head = &bytes[..bytes.len().min(ID_SCAN_BYTES_MAX)];
        let at = head.windows(ID_FIELD.len()).position(|window| window == ID_FIELD)?;
        bytes.get(at + ID_FIELD.len()..)?.first_chunk::<MESSAGE_ID_BYTES>().copied().map(MessageId)
    })
}

/// How far into refused bytes an `id` field is looked for, in bytes.
const ID_SCAN_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(RECIPIENTS_MAX == 64, "the refusal names the bound");
