//! What a record is about in, its key in the registry out; and back.

use std::fmt;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::agent::{Agent, AgentError};
use super::cell::Cell;
use crate::capability::{self, CapabilityName};
use crate::limits::SHARDS;

/// One of the 16 parts that the registrations of a name are spread over, so that a caller need not watch all of them.
///
/// **Shape:** one hexadecimal digit, the high nibble of SHA-256 of the agent's key. **Source:** FLEET 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

impl Shard {
    /// The shard that an agent's registrations are in.
    pub fn of(agent: &Agent) -> Self {
        Self(Sha256::digest(agent.as_bytes())[0] >> 4)
    }

    /// All shards, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    /// Its number, below [`SHARDS`].
    pub const fn number(self) -> u8 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        // Upper-case digits would be a second spelling.
        match text.as_bytes() {
            [digit @ b'0'..=b'9'] => Some(Self(digit - b'0')),
            [digit @ b'a'..=b'f'] => Some(Self(digit - b'a' + 10)),
            _ => None,
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// What a key of the registry names, within one cell.
///
/// **Shape:** `/capd/1/<cell>/` and then `i/<agent>`, `n/<name>/<shard>/<agent>` or `d/<agent>`. **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The fence of an agent; it has no lease.
    Fence(Agent),
    /// What an agent registers of one name; under its lease.
    Registration {
        /// The capability's name.
        name: CapabilityName,
        /// The shard that the key names, which for an honest key is the agent's.
        shard: Shard,
        /// Who registers.
        agent: Agent,
    },
    /// The revocation of an agent; it has no lease.
    Revocation(Agent),
}

impl Key {
    /// The key of an agent's registration of a name.
    pub fn registration(name: CapabilityName, agent: Agent) -> Self {
        Self::Registration { name, shard: Shard::of(&agent), agent }
    }

    /// The key's text in the registry of a cell.
    pub fn path(&self, cell: &Cell) -> String {
        match self {
            Self::Fence(agent) => format!("{}i/{agent}", root(cell)),
            Self::Registration { name, shard, agent } => {
                format!("{}n/{}/{shard}/{agent}", root(cell), name.as_str())
            }
            Self::Revocation(agent) => format!("{}d/{agent}", root(cell)),
        }
    }

    /// Reads a key of a cell's registry.
    ///
    /// **Errors:** a key of another cell or kind, or a part of it that is malformed. Whether a registration's shard is
    /// the agent's is for the [`Verifier`](super::Verifier) to check.
    pub fn parse(cell: &Cell, path: &str) -> Result<Self, PathError> {
        let rest = path.strip_prefix(&root(cell)).ok_or(PathError::OtherCell)?;
        match rest.split_once('/') {
            Some(("i", agent)) => Ok(Self::Fence(agent.parse()?)),
            Some(("d", agent)) => Ok(Self::Revocation(agent.parse()?)),
            Some(("n", rest)) => {
                let mut parts = rest.split('/');
                let (Some(name), Some(shard), Some(agent), None) =
                    (parts.next(), parts.next(), parts.next(), parts.next())
                else {
                    return Err(PathError::Parts);
                };
                let shard = Shard::parse(shard).ok_or(PathError::Shard)?;
                Ok(Self::Registration { name: name.parse()?, shard, agent: agent.parse()? })
            }
            Some(_) | None => Err(PathError::Kind),
        }
    }
}

/// A part of a cell's registry that is listed and watched as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// Every registration of a name, or those of one shard.
    Name(CapabilityName, Option<Shard>),
    /// Every registration, of whatever name.
    Names,
    /// Every revocation.
    Revocations,
    /// One key.
    One(Key),
}

impl Prefix {
    /// The text that every key of this part begins with, and no other key.
    pub fn path(&self, cell: &Cell) -> String {
        match self {
            Self::Name(name, None) => format!("{}n/{}/", root(cell), name.as_str()),
            Self::Name(name, Some(shard)) => format!("{}n/{}/{shard}/", root(cell), name.as_str()),
            Self::Names => format!("{}n/", root(cell)),
            Self::Revocations => format!("{}d/", root(cell)),
            Self::One(key) => key.path(cell),
        }
    }

    /// Whether a key is of this part.
    pub fn contains(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Name(wanted, part), Key::Registration { name, shard, .. }) => {
                wanted == name && part.is_none_or(|part| part == *shard)
            }
            (Self::Names, Key::Registration { .. }) | (Self::Revocations, Key::Revocation(_)) => true,
            (Self::One(wanted), key) => wanted == key,
            (Self::Name(..) | Self::Names, Key::Fence(_) | Key::Revocation(_))
            | (Self::Revocations, Key::Fence(_) | Key::Registration { .. }) => false,
        }
    }
}

fn root(cell: &Cell) -> String {
    format!("/capd/1/{cell}/")
}

/// Text that is no key of a cell's registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// It does not begin as the keys of this cell do.
    #[error("a key of another cell, or of another program")]
    OtherCell,
    /// Neither a fence, a registration nor a revocation.
    #[error("a key of an unknown kind")]
    Kind,
    /// A registration's key without its three parts.
    #[error("a registration's key has a name, a shard and an agent")]
    Parts,
    /// A shard that is no hexadecimal digit.
    #[error("a shard is one of 0-9 and a-f")]
    Shard,
    /// A name that is no capability's.
    #[error(transparent)]
    Name(#[from] capability::Error),
    /// Text that names no agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
}
