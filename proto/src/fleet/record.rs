//! A body and a key in, a signed record out; record bytes in, the body and its signature out.

use std::borrow::Cow;

use thiserror::Error;

use crate::cbor::{self, Reader, Writer};
use crate::identity::{Identity, PublicKey};
use crate::limits::SIGNATURE_BYTES;

/// What a signature is for, so that none can pass as one for something else.
///
/// **Shape:** its text, a zero byte, and then the body are what is signed. **Source:** FLEET 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain(pub(super) &'static str);

impl Domain {
    fn message(self, body: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), &[0], body].concat()
    }

    pub(super) fn sign(self, identity: &Identity, body: &[u8]) -> [u8; SIGNATURE_BYTES] {
        identity.sign(&self.message(body))
    }

    pub(super) fn verify(self, key: &PublicKey, signed: &Signed<'_>) -> bool {
        key.verify(&self.message(&signed.body), &signed.signature).is_ok()
    }
}

/// A body with its signature, as they stand at the beginning of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signed<'a> {
    pub(super) body: Cow<'a, [u8]>,
    pub(super) signature: [u8; SIGNATURE_BYTES],
}

impl<'a> Signed<'a> {
    /// Reads a record of two parts.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        cbor::check(bytes)?;
        let mut reader = Reader::new(bytes);
        Self::read(&mut reader, 2)
    }

    /// Reads the head of a record of so many parts, and its first two.
    pub(super) fn read(reader: &mut Reader<'a>, parts: u64) -> Result<Self, RecordError> {
        if reader.array()? != Some(parts) {
            return Err(RecordError::Field("record"));
        }
        let body = reader.bytes()?;
        let signature = reader.bytes()?;
        let signature = signature.as_ref().try_into().map_err(|_| RecordError::Field("signature"))?;
        Ok(Self { body, signature })
    }

    /// The record of two parts.
    pub(super) fn encode(body: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> Vec<u8> {
        let mut record = Vec::with_capacity(body.len() + SIGNATURE_BYTES + RECORD_HEADS_BYTES);
        Writer::new(&mut record).array(2).bytes(body).bytes(signature);
        record
    }
}

/// Reads the fields of a body in order: a map with ascending integer keys, and nothing beside them.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    reader: Reader<'a>,
    left: u64,
}

impl<'a> Fields<'a> {
    pub(super) fn of(body: &'a [u8]) -> Result<Self, RecordError> {
        cbor::check(body)?;
        let mut reader = Reader::new(body);
        let left = reader.map()?.ok_or(RecordError::NotCanonical)?;
        Ok(Self { reader, left })
    }

    /// The reader at the value of the key that must be next.
    pub(super) fn field(&mut self, key: u64, name: &'static str) -> Result<&mut Reader<'a>, RecordError> {
        if self.optional(key)? { Ok(&mut self.reader) } else { Err(RecordError::Field(name)) }
    }

    /// Whether this key is next; the reader then stands at its value.
    pub(super) fn optional(&mut self, key: u64) -> Result<bool, RecordError> {
        let mut ahead = self.reader;
        if self.left == 0 || ahead.uint()? != key {
            return Ok(false);
        }
        self.left -= 1;
        self.reader = ahead;
        Ok(true)
    }

    pub(super) fn reader(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }

    /// A byte string of exactly `N` bytes.
    pub(super) fn array<const N: usize>(
        &mut self,
        key: u64,
        name: &'static str,
    ) -> Result<[u8; N], RecordError> {
        let bytes = self.field(key, name)?.bytes()?;
        bytes.as_ref().try_into().map_err(|_| RecordError::Field(name))
    }

    pub(super) fn uint(&mut self, key: u64, name: &'static str) -> Result<u64, RecordError> {
        Ok(self.field(key, name)?.uint()?)
    }

    /// The format, which is always the first field.
    pub(super) fn format(&mut self) -> Result<(), RecordError> {
        match self.uint(0, "format")? {
            FORMAT => Ok(()),
            other => Err(RecordError::Format(other)),
        }
    }

    /// Ends the body: nothing may follow the last field.
    pub(super) fn end(self) -> Result<(), RecordError> {
        if self.left == 0 { Ok(()) } else { Err(RecordError::Field("a further field")) }
    }
}

/// Bytes that are no record of the kind asked for. What a peer or registry gives ends here, never in a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// More bytes than a record of its kind may have.
    #[error("{0} bytes are more than the {1} of this record's kind")]
    TooLong(usize, usize),
    /// Not CBOR, or not of the type that stands there.
    #[error(transparent)]
    Cbor(#[from] cbor::Error),
    /// A format that this version does not know.
    #[error("format {0} is not known; this version knows format {FORMAT}")]
    Format(u64),
    /// A field that is missing, unknown, or not in its bounds.
    #[error("{0} is missing, unknown or out of its bounds")]
    Field(&'static str),
    /// A second spelling of what has one only.
    #[error("not in canonical encoding")]
    NotCanonical,
}

/// The format of every body. **Source:** FLEET 5.
pub(super) const FORMAT: u64 = 1;
/// Most bytes of the heads of an array, a body and a signature.
pub(super) const RECORD_HEADS_BYTES: usize = 8;
