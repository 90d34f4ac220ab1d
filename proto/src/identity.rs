//! Handles identities: seeds, DIDs and DID documents in; signatures, keys and sealed payloads out (PROTOCOL 2, 5).

mod authcrypt;
mod did;
mod document;
mod key;
mod keyring;
mod verify;

pub use authcrypt::{AgreementKey, AgreementSecret, Authcrypt, DecryptionFailed, TAG_BYTES};
pub use did::{Did, DidError};
pub use document::{DidDocument, DocumentError};
pub(crate) use key::did_key;
pub use key::{Identity, KeyError, PublicKey};
pub use keyring::Keyring;
pub use verify::{Claim, InvalidSignature, Verifier};

#[cfg(test)]
mod tests;
