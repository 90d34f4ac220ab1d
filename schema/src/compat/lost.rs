//! Describes a lost feature: its place in the payload, its kind, and the payload that shows it.

use std::fmt;

use serde_json::Value;

use super::Refutation;

/// A feature that the caller's schema knows and this provider lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// JSON pointer into the payload, `/` for all of it; `*` means every item, or every undeclared property.
    pub path: String,
    /// What is lost there.
    pub feature: Feature,
    /// The payload that is refused because of it; `None` if the feature is accepted without effect, or never occurs.
    pub refutation: Option<Refutation>,
}

/// A feature that a caller can lose and still call.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// An optional property of params that the provider refuses.
    Property,
    /// A property of params that the provider accepts but does not know.
    Ignored,
    /// A value of an enum that the provider refuses.
    Value(Value),
    /// One of several types that the provider refuses.
    Type(String),
    /// One of the branches of an `anyOf` or `oneOf`, by its pointer into the caller's schema.
    Alternative(String),
    /// Properties that the sender leaves open, and that the receiver refuses or reads in its own form.
    Undeclared,
    /// A property of results that the provider does not declare.
    Absent,
}

impl Feature {
    /// Its name for programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Property => "property",
            Self::Ignored => "ignored",
            Self::Value(_) => "value",
            Self::Type(_) => "type",
            Self::Alternative(_) => "alternative",
            Self::Undeclared => "undeclared",
            Self::Absent => "absent",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property => f.write_str("the provider refuses this property"),
            Self::Ignored => f.write_str("the provider accepts this property and ignores it"),
            Self::Value(value) => write!(f, "the provider refuses the value {value}"),
            Self::Type(kind) => write!(f, "the provider refuses the type {kind}"),
            Self::Alternative(pointer) => write!(f, "the provider refuses the alternative at {pointer}"),
            Self::Undeclared => f.write_str("undeclared properties are not free"),
            Self::Absent => f.write_str("the provider does not declare this property"),
        }
    }
}
