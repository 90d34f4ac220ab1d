//! A public key in, the name of an agent in a fleet out; and back.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::identity::{Did, KeyError, PublicKey, did_key};

/// An agent of a fleet: its Ed25519 key, which is its name as well.
///
/// **Shape:** 32 bytes in a record; in a key of the registry the multibase text of its `did:key`, `z6Mk…`, 48 bytes.
/// **Source:** FLEET 5.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent([u8; KEY_BYTES]);

impl Agent {
    /// The agent of a key in its 32-byte encoding.
    ///
    /// **Errors:** bytes that are no key.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Result<Self, AgentError> {
        Ok(PublicKey::from_bytes(bytes)?.into())
    }

    /// The agent that a `did:key` names.
    ///
    /// **Errors:** a DID of another method, one with a fragment, or text that is no key.
    pub fn from_did(did: &str) -> Result<Self, AgentError> {
        if did.contains('#') {
            return Err(AgentError::Fragment);
        }
        Ok(PublicKey::from_did(did)?.into())
    }

    /// The key in its 32-byte encoding.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The key, to verify with.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::from_bytes(&self.0).expect("an agent is made of a key only")
    }

    /// The agent's DID.
    pub fn did(&self) -> Did {
        // An agent is made of a key only.
        did_key(&self.0)
    }
}

impl From<PublicKey> for Agent {
    fn from(key: PublicKey) -> Self {
        Self(*key.as_bytes())
    }
}

impl FromStr for Agent {
    type Err = AgentError;

    /// Reads the multibase text.
    fn from_str(text: &str) -> Result<Self, AgentError> {
        Self::from_did(&format!("{DID_KEY_PREFIX}{text}"))
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = self.did();
        f.write_str(did.strip_prefix(DID_KEY_PREFIX).unwrap_or(&did))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({self})")
    }
}

/// Text or bytes that name no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AgentError {
    /// No Ed25519 key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A DID URL, which names one key of a party and not the party.
    #[error("DID has a fragment")]
    Fragment,
}

/// Bytes of an Ed25519 key.
pub(super) const KEY_BYTES: usize = 32;
const DID_KEY_PREFIX: &str = "did:key:";
