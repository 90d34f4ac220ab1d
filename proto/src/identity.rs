//! Seeds, DIDs and DID documents in; signatures, keys and sealed payloads out (PROTOCOL 2, 5).

mod authcrypt;
mod did;
mod document;
mod key;
mod keyring;

pub use authcrypt::{AgreementKey, AgreementSecret, Authcrypt, DecryptionFailed, TAG_BYTES};
pub use did::{Did, DidError};
pub use document::{DidDocument, DocumentError};
pub use key::{Identity, InvalidSignature, KeyError, PublicKey, Verifier};
pub use keyring::Keyring;

#[cfg(test)]
mod tests;
