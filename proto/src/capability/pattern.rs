//! Parses a query filter: text in, the set of names that it matches out.

use std::{fmt, str::FromStr, sync::Arc};

use super::{
    error::Error,
    name::{CapabilityName, check_labels},
};

/// Which capability names a query asks for.
///
/// **Shape:** a name, `labels.*` for every name below those labels, or `*` for every name. **Source:** PROTOCOL 7.1;
/// the last form is ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapabilityPattern {
    /// Every name.
    Any,
    /// Every name that begins with these labels, however many follow.
    Namespace(Namespace),
    /// Exactly this name.
    Name(CapabilityName),
}

/// The labels before `.*`; one or more of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The labels, without the `.*`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CapabilityPattern {
    /// Whether `name` is one of the names asked for.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Namespace(Namespace(labels)) => {
                name.strip_prefix(&**labels).is_some_and(|rest| rest.starts_with('.'))
            }
            Self::Name(only) => only.as_str() == name,
        }
    }
}

impl From<CapabilityName> for CapabilityPattern {
    fn from(name: CapabilityName) -> Self {
        Self::Name(name)
    }
}

impl FromStr for CapabilityPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_suffix(".*") {
            Some(labels) => {
                check_labels(labels)?;
                Ok(Self::Namespace(Namespace(Arc::from(labels))))
            }
            None => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for CapabilityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Namespace(Namespace(labels)) => write!(f, "{labels}.*"),
            Self::Name(name) => fmt::Display::fmt(name, f),
        }
    }
}
