//! Encodes DOC_REQUEST and DOC_SEND: a document, requested by the hash of its bytes.

use std::borrow::Cow;

use super::{
    Type,
    body::{self, BodyError, Contradiction, MapWriter, read_map, required},
    schema_ref::ContentHash,
};
use crate::{cbor::Reader, code::Code};

/// The body of DOC_REQUEST. **Shape:** `{"hash": bstr}`. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocRequest<'a> {
    /// The hash of the document's bytes: 32 bytes of SHA-256 or 64 of SHA-512.
    pub hash: Cow<'a, [u8]>,
}

impl<'a> DocRequest<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::DocRequest, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut hash = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"hash" => hash = Some(reader.bytes()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { hash: required(hash, "hash")? })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        MapWriter::new(out).bytes("hash", &self.hash);
    }
}

/// The body of DOC_SEND.
///
/// **Shape:** `{"content_type": tstr, "filename": tstr, "size": uint, "hash": bstr, "data": bstr}`.
/// **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocSend<'a> {
    /// The document's media type.
    pub content_type: Cow<'a, str>,
    /// A name for it; never used as a path.
    pub filename: Cow<'a, str>,
    /// Its length. **Units:** bytes.
    pub size: u64,
    /// The hash of its bytes.
    pub hash: Cow<'a, [u8]>,
    /// Its bytes.
    pub data: Cow<'a, [u8]>,
}

/// A document that is not the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It contradicts itself: 4001.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// Its bytes, or the hash it names, do not match the requested hash: 5002.
    #[error("the document's bytes do not have the hash that was asked for")]
    OtherHash,
}

impl DocumentError {
    /// The wire code. **Source:** PROTOCOL 7.2.
    pub const fn code(&self) -> Code {
        match self {
            Self::Contradiction(_) => Code::BAD_REQUEST,
            Self::OtherHash => Code::UNAVAILABLE,
        }
    }
}

impl<'a> DocSend<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::DocSend, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut content_type, mut filename, mut size, mut hash, mut data) = (None, None, None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"content_type" => content_type = Some(reader.text()?),
                b"filename" => filename = Some(reader.text()?),
                b"size" => size = Some(reader.uint()?),
                b"hash" => hash = Some(reader.bytes()?),
                b"data" => data = Some(reader.bytes()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            content_type: required(content_type, "content_type")?,
            filename: required(filename, "filename")?,
            size: required(size, "size")?,
            hash: required(hash, "hash")?,
            data: required(data, "data")?,
        })
    }

    /// Checks by hash that this is the requested document.
    ///
    /// **Errors:** 4001 when `size` disagrees with `data`; 5002 for another document. **Source:** PROTOCOL 7.2.
    pub fn verify(&self, wanted: &ContentHash) -> Result<(), DocumentError> {
        if self.size != self.data.len() as u64 {
            return Err(Contradiction::SizeDisagrees.into());
        }
        if *self.hash != *wanted.as_bytes() || !wanted.fits(&self.data) {
            return Err(DocumentError::OtherHash);
        }
        Ok(())
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bytes("data", &self.data);
        map.bytes("hash", &self.hash);
        map.uint("size", self.size);
        map.text("filename", &self.filename);
        map.text("content_type", &self.content_type);
    }
}
