//! Reads a DID document's JSON text: the keys of its active methods out (PROTOCOL 2, AMP 001 §8.9).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use thiserror::Error;

use super::authcrypt::AgreementKey;
use super::did::{Did, DidError};
use super::key::{KeyError, PublicKey};

/// Longest document taken, in bytes; ours.
pub(super) const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Most verification methods in one document; ours.
pub(super) const METHODS_MAX: usize = 256;

/// The keys of a DID document that capd uses.
#[derive(Clone, Debug)]
pub struct DidDocument {
    did: Did,
    methods: BTreeMap<String, Key>,
    assertion: BTreeSet<String>,
    authentication: BTreeSet<String>,
    agreement: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Signing(PublicKey),
    Agreement(AgreementKey),
}

impl DidDocument {
    /// Reads a document. Methods that are revoked, have other kinds of keys, or belong to another DID are ignored; a
    /// deactivated document has no keys.
    ///
    /// **Shape:** DID Core JSON; keys as `publicKeyMultibase`, or as `publicKeyJwk` of type OKP. **Errors:** text that
    /// is not such a document, with the member at fault.
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLong);
        }
        let root: Value =
            serde_json::from_str(text).map_err(|error| DocumentError::Json(error.to_string()))?;
        let root = root.as_object().ok_or(DocumentError::Member("/", "an object"))?;
        let did = root.get("id").and_then(Value::as_str).ok_or(DocumentError::Member("/id", "a DID"))?;
        let did = Did::parse(did)?;
        if did.fragment().is_some() {
            return Err(DocumentError::Member("/id", "a DID without a fragment"));
        }
        let mut document = Self {
            did,
            methods: BTreeMap::new(),
            assertion: BTreeSet::new(),
            authentication: BTreeSet::new(),
            agreement: BTreeSet::new(),
        };
        if is_set(root, "deactivated") {
            return Ok(document);
        }
        for method in list(root, "verificationMethod", "/verificationMethod")? {
            document.method(method, "/verificationMethod")?;
        }
        document.assertion = document.relationship(root, "assertionMethod", "/assertionMethod")?;
        document.authentication = document.relationship(root, "authentication", "/authentication")?;
        document.agreement = document.relationship(root, "keyAgreement", "/keyAgreement")?;
        Ok(document)
    }

    /// The DID of this document.
    pub const fn did(&self) -> &Did {
        &self.did
    }

    /// The key that verifies signatures of `from`: the one its fragment names, else the smallest active method id under
    /// `assertionMethod`, else under `authentication`.
    ///
    /// **Errors:** `None` means 3001 UNAUTHORIZED. **Source:** AMP 001 §8.9.
    pub fn signing_key(&self, from: &str) -> Option<PublicKey> {
        if Did::bare_of(from) != self.did.as_str() {
            return None;
        }
        if from.len() > self.did.len() {
            return self.signing(from);
        }
        let first = |ids: &BTreeSet<String>| ids.iter().find_map(|id| self.signing(id));
        first(&self.assertion).or_else(|| first(&self.authentication))
    }

    /// The X25519 key to encrypt for this DID: the smallest active method id under `keyAgreement`.
    ///
    /// **Source:** AMP 001 §8.9.
    pub fn agreement_key(&self) -> Option<AgreementKey> {
        self.agreement.iter().find_map(|id| match self.methods.get(id) {
            Some(Key::Agreement(key)) => Some(*key),
            Some(Key::Signing(_)) | None => None,
        })
    }

    fn signing(&self, id: &str) -> Option<PublicKey> {
        match self.methods.get(id) {
            Some(Key::Signing(key)) => Some(*key),
            Some(Key::Agreement(_)) | None => None,
        }
    }

    /// The method ids under a relationship; methods that stand in it directly are taken up.
    fn relationship(
        &mut self,
        root: &Map<String, Value>,
        name: &str,
        path: &'static str,
    ) -> Result<BTreeSet<String>, DocumentError> {
        let mut ids = BTreeSet::new();
        for entry in list(root, name, path)? {
            ids.insert(match entry.as_str() {
                Some(id) => self.absolute(id),
                None => self.method(entry, path)?,
            });
        }
        Ok(ids)
    }

    /// Takes up one verification method and returns its id.
    fn method(&mut self, method: &Value, path: &'static str) -> Result<String, DocumentError> {
        let method = method.as_object().ok_or(DocumentError::Member(path, "a list of methods"))?;
        let id = method.get("id").and_then(Value::as_str);
        let id = self.absolute(id.ok_or(DocumentError::Member(path, "methods with an id"))?);
        Did::check(&id)?;
        if is_set(method, "expires") {
            // Without a clock an end date cannot be kept, and a key must not outlive it silently.
            return Err(DocumentError::Expires(id));
        }
        let ours = Did::bare_of(&id) == self.did.as_str() && id.len() > self.did.len();
        if !ours || is_set(method, "revoked") || is_set(method, "deactivated") {
            return Ok(id);
        }
        let key = match (method.get("publicKeyMultibase"), method.get("publicKeyJwk")) {
            (Some(text), None) => multibase(text),
            (None, Some(jwk)) => jwk_key(jwk),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(KeyError::Codec),
        };
        match key.map_err(|error| DocumentError::Key(id.clone(), error))? {
            Some(_) if self.methods.contains_key(&id) => return Err(DocumentError::Twice(id)),
            Some(_) if self.methods.len() >= METHODS_MAX => return Err(DocumentError::TooManyMethods),
            Some(key) => {
                self.methods.insert(id.clone(), key);
            }
            None => {}
        }
        Ok(id)
    }

    /// Method ids may be relative to the document: `#key-1`.
    fn absolute(&self, id: &str) -> String {
        if id.starts_with('#') { format!("{}{id}", self.did) } else { id.to_owned() }
    }
}

/// Text that is not a usable DID document; a mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// A document that is too long.
    #[error("DID document is longer than {DOCUMENT_BYTES_MAX} bytes")]
    TooLong,
    /// Text that is not JSON.
    #[error("DID document is not JSON: {0}")]
    Json(String),
    /// A member of another type than it must have.
    #[error("{0} must be {1}")]
    Member(&'static str, &'static str),
    /// An id that is not a DID.
    #[error(transparent)]
    Did(#[from] DidError),
    /// A method whose key cannot be read.
    #[error("{0}: {1}")]
    Key(String, KeyError),
    /// Two methods with one id.
    #[error("{0} is a duplicate")]
    Twice(String),
    /// A method with an end date.
    #[error("{0} has \"expires\", which cannot be kept here: leave the method out, or the date")]
    Expires(String),
    /// Too many methods.
    #[error("more than {METHODS_MAX} verification methods")]
    TooManyMethods,
}

/// Whether a member is there and neither `false` nor `null`.
fn is_set(object: &Map<String, Value>, name: &str) -> bool {
    !matches!(object.get(name), None | Some(Value::Null | Value::Bool(false)))
}

fn list<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    path: &'static str,
) -> Result<&'a [Value], DocumentError> {
    match object.get(name) {
        None => Ok(&[]),
        Some(list) => {
            list.as_array().map(Vec::as_slice).ok_or(DocumentError::Member(path, "a list of methods"))
        }
    }
}

/// The key in a `publicKeyMultibase`, or `None` for a kind that we do not use.
fn multibase(text: &Value) -> Result<Option<Key>, KeyError> {
    let text = text.as_str().ok_or(KeyError::Multibase)?;
    match PublicKey::from_multibase(text) {
        Ok(key) => Ok(Some(Key::Signing(key))),
        Err(KeyError::Codec) => match AgreementKey::from_multibase(text) {
            Ok(key) => Ok(Some(Key::Agreement(key))),
            Err(KeyError::Codec) => Ok(None),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// The key in a `publicKeyJwk` (RFC 8037), or `None` for a kind that we do not use.
fn jwk_key(jwk: &Value) -> Result<Option<Key>, KeyError> {
    let member = |name| jwk.get(name).and_then(Value::as_str);
    if member("kty") != Some("OKP") {
        return Ok(None);
    }
    let bytes = || -> Result<[u8; 32], KeyError> {
        let x = URL_SAFE_NO_PAD.decode(member("x").unwrap_or_default()).map_err(|_| KeyError::NotAPoint)?;
        x.try_into().map_err(|_| KeyError::NotAPoint)
    };
    Ok(match member("crv") {
        Some("Ed25519") => Some(Key::Signing(PublicKey::from_bytes(&bytes()?)?)),
        Some("X25519") => Some(Key::Agreement(AgreementKey::from_bytes(bytes()?)?)),
        Some(_) | None => None,
    })
}
