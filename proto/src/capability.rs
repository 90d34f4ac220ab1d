//! Parses what capabilities are called: text in; names, versions, ids and ranges out.
//!
//! Every type here is read with [`FromStr`] and written with [`fmt::Display`], and survives the round trip. An
//! [`Error`] says what does not parse, and at which byte; on the wire it is a 4001. **Source:** PROTOCOL 6.

use std::{fmt, str::FromStr};

mod error;
mod name;
mod overlap;
mod pattern;
mod range;
mod version;

pub use error::{Error, ErrorKind};
pub use name::CapabilityName;
pub use overlap::common_versions;
pub use pattern::{CapabilityPattern, Namespace};
pub use range::{Comparator, Operator, Range};
pub use version::Version;

#[cfg(test)]
mod tests;

/// A capability's name and one concrete version of it.
///
/// Ordered by name, then by version. **Shape:** `name ":" version`. **Source:** PROTOCOL 6.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId {
    /// The name, without the version.
    pub name: CapabilityName,
    /// The version; a two-part version is held with three parts.
    pub version: Version,
}

impl CapabilityId {
    /// The id of `version` of `name`.
    pub const fn new(name: CapabilityName, version: Version) -> Self {
        Self { name, version }
    }

    /// Splits an id's text into its checked name and its version, without copying the name.
    ///
    /// **Errors:** 4001 when there is no `:`, or either side does not parse; offsets count from the id's start.
    pub fn split(text: &str) -> Result<(&str, Version), Error> {
        // Neither a name nor a version can hold a colon, so the first one is the only one.
        let Some(colon) = text.bytes().position(|byte| byte == b':') else {
            return Err(Error::new(text.len(), ErrorKind::IdWithoutVersion));
        };
        let (name, version) = (&text[..colon], &text[colon + 1..]);
        CapabilityName::check(name)?;
        let version = version.parse().map_err(|error: Error| error.moved_by(name.len() + 1))?;
        Ok((name, version))
    }
}

impl FromStr for CapabilityId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, version) = Self::split(text)?;
        Ok(Self { name: CapabilityName::from_checked(name), version })
    }
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.version)
    }
}
