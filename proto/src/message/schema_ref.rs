//! Refers to a schema: where its bytes are, and the hash that they must have.

use std::{borrow::Cow, fmt};

use sha2::{Digest, Sha256, Sha512};

use super::body::{BodyError, MapWriter, ShapeError, read_map, required, wrong_value};
use crate::cbor::{Kind, Reader, Writer};

/// A descriptor's schema.
///
/// **Shape:** a schema-ref map, or the seed revision's plain URL text. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaSource {
    /// A plain URL: looked up among the imported artifacts, never fetched.
    Url(String),
    /// A reference with a hash.
    Ref(Box<SchemaRef>),
}

/// A reference to a schema document.
///
/// **Shape:** `{? "uri": tstr, ? ("bundle_id": tstr, "artifact_key": tstr), "hash_alg": "sha-256" / "sha-512",
/// "hash": bstr, ? "media_type": tstr, ? "updated_at": any, ? "inline": any}` with at least one of `uri`, the bundle
/// fields and `inline`. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRef {
    /// Its name on the net; never fetched on our own initiative.
    pub uri: Option<String>,
    /// `bundle_id` and `artifact_key`: its place in an imported bundle.
    pub bundle: Option<(String, String)>,
    /// The hash of the document's exact bytes.
    pub hash: ContentHash,
    /// Its media type; `application/schema+json` without one.
    pub media_type: Option<String>,
    /// The document itself, from a provider on its local link; one CBOR item.
    pub inline: Option<Vec<u8>>,
}

/// The hash functions that name documents. **Source:** PROTOCOL 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashAlg {
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl HashAlg {
    /// The function as written in `hash_alg`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }
}

/// The hash of a document's exact bytes.
///
/// **Shape:** 32 bytes for sha-256, 64 for sha-512. **Source:** PROTOCOL 7.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentHash {
    /// By SHA-256.
    Sha256([u8; 32]),
    /// By SHA-512.
    Sha512([u8; 64]),
}

impl ContentHash {
    /// The hash of `document`.
    pub fn of(alg: HashAlg, document: &[u8]) -> Self {
        match alg {
            HashAlg::Sha256 => Self::Sha256(Sha256::digest(document).into()),
            HashAlg::Sha512 => Self::Sha512(Sha512::digest(document).into()),
        }
    }

    /// The hash with these bytes; their number determines the function, and `None` means neither.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            32 => bytes.try_into().ok().map(Self::Sha256),
            64 => bytes.try_into().ok().map(Self::Sha512),
            _ => None,
        }
    }

    /// The function that made it.
    pub const fn alg(&self) -> HashAlg {
        match self {
            Self::Sha256(_) => HashAlg::Sha256,
            Self::Sha512(_) => HashAlg::Sha512,
        }
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        }
    }

    /// Whether it is the hash of `document`.
    pub fn fits(&self, document: &[u8]) -> bool {
        Self::of(self.alg(), document) == *self
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.alg().as_str())?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SchemaSource {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        if reader.kind()? == Kind::Text {
            return Ok(Self::Url(reader.text()?.into_owned()));
        }
        SchemaRef::read(reader).map(|schema| Self::Ref(Box::new(schema)))
    }

    /// Appends the schema as written in a descriptor.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Url(url) => {
                Writer::new(out).text(url);
            }
            Self::Ref(schema) => schema.encode(out),
        }
    }

    /// The hash that the schema's bytes must have; a plain URL has none.
    pub fn hash(&self) -> Option<&ContentHash> {
        match self {
            Self::Url(_) => None,
            Self::Ref(schema) => Some(&schema.hash),
        }
    }
}

impl SchemaRef {
    /// A reference that contains `document`.
    pub fn inline(alg: HashAlg, document: &[u8]) -> Self {
        let mut inline = Vec::new();
        Writer::new(&mut inline).bytes(document);
        Self {
            uri: None,
            bundle: None,
            hash: ContentHash::of(alg, document),
            media_type: None,
            inline: Some(inline),
        }
    }

    /// The contained document as text or bytes; `None` without one, or if it is another CBOR item.
    pub fn inline_document(&self) -> Option<Cow<'_, [u8]>> {
        let mut reader = Reader::new(self.inline.as_deref()?);
        if let Ok(bytes) = reader.bytes() {
            return Some(bytes);
        }
        match reader.text().ok()? {
            Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
            Cow::Owned(text) => Some(Cow::Owned(text.into_bytes())),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let (mut uri, mut bundle_id, mut artifact_key) = (None, None, None);
        let (mut hash_alg, mut hash, mut media_type, mut inline) = (None, None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"uri" => uri = Some(reader.text()?.into_owned()),
                b"bundle_id" => bundle_id = Some(reader.text()?.into_owned()),
                b"artifact_key" => artifact_key = Some(reader.text()?.into_owned()),
                b"hash_alg" => {
                    hash_alg = Some(match &*reader.text()? {
                        "sha-256" => HashAlg::Sha256,
                        "sha-512" => HashAlg::Sha512,
                        _ => return Err(wrong_value(reader, "hash_alg", "sha-256 or sha-512")),
                    });
                }
                b"hash" => hash = Some(reader.bytes()?),
                b"media_type" => media_type = Some(reader.text()?.into_owned()),
                b"inline" => inline = Some(reader.skip()?.to_vec()),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        // PROTOCOL 7.2: 32 bytes for sha-256, 64 for sha-512.
        let alg = required(hash_alg, "hash_alg")?;
        let hash = ContentHash::from_slice(&required(hash, "hash")?).filter(|hash| hash.alg() == alg);
        let hash = hash.ok_or_else(|| wrong_value(reader, "hash", "32 bytes for sha-256, 64 for sha-512"))?;
        let bundle = match (bundle_id, artifact_key) {
            (Some(bundle_id), Some(artifact_key)) => Some((bundle_id, artifact_key)),
            (None, None) => None,
            (Some(_), None) => return Err(ShapeError::Missing("artifact_key").into()),
            (None, Some(_)) => return Err(ShapeError::Missing("bundle_id").into()),
        };
        if uri.is_none() && bundle.is_none() && inline.is_none() {
            return Err(ShapeError::Missing("uri").into());
        }
        Ok(Self { uri, bundle, hash, media_type, inline })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let bundle = self.bundle.as_ref();
        let mut map = MapWriter::new(out);
        map.text_if("uri", self.uri.as_deref());
        map.bytes("hash", self.hash.as_bytes());
        map.raw_if("inline", self.inline.as_deref());
        map.text("hash_alg", self.hash.alg().as_str());
        map.text_if("bundle_id", bundle.map(|(bundle_id, _)| bundle_id.as_str()));
        map.text_if("media_type", self.media_type.as_deref());
        map.text_if("artifact_key", bundle.map(|(_, artifact_key)| artifact_key.as_str()));
    }
}
