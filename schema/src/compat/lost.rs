//! What a caller has to do without: its place in the payload, what it is, and the payload that shows it.

use std::fmt;

use serde_json::Value;

use super::Refutation;

/// Something that the caller's schema knows and this provider does not give.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// JSON pointer into the payload, `/` for all of it; `*` stands for every item, or for every undeclared property.
    pub path: String,
    /// What is lost there.
    pub feature: Feature,
    /// The payload that is refused because of it; `None` for what is taken and has no effect, or never comes.
    pub refutation: Option<Refutation>,
}

/// What can be lost without losing the call.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// An optional property of params that the provider refuses.
    Property,
    /// A property of params that the provider takes and does not know.
    Ignored,
    /// A value of an enum that the provider refuses.
    Value(Value),
    /// One of several types, which the provider refuses.
    Type(String),
    /// One of the branches of an `anyOf` or `oneOf`, by its pointer into the caller's schema.
    Alternative(String),
    /// Properties that the sender leaves open, which the receiver refuses or reads in a form of its own.
    Undeclared,
    /// A property of results that the provider does not declare.
    Absent,
}

impl Feature {
    /// One word for machines.
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
            Self::Ignored => f.write_str("the provider takes this property and does not know it"),
            Self::Value(value) => write!(f, "the provider refuses the value {value}"),
            Self::Type(kind) => write!(f, "the provider refuses the type {kind}"),
            Self::Alternative(pointer) => write!(f, "the provider refuses the alternative at {pointer}"),
            Self::Undeclared => f.write_str("properties that the sender does not declare are not free"),
            Self::Absent => f.write_str("the provider does not declare this property"),
        }
    }
}
