//! Defines the normal form of a schema: assertions on one type each, joined by `and`, `or`, `not`.
//!
//! An assertion on one type holds for all values of other types, as in JSON Schema.

use serde_json::Value;

use super::format::Format;
use super::number::{Num, Ratio};

/// A node of one schema.
pub(super) type Id = u32;

/// A set of the kinds of values that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Types(pub(super) u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    /// Numbers without a fraction, however they are written.
    pub(super) const INTEGER: Self = Self(4);
    /// Numbers with one.
    pub(super) const FRACTION: Self = Self(8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const ALL: Self = Self(127);

    /// Each kind by itself, the cheaper to decide first.
    pub(super) const EACH: [Self; 7] =
        [Self::NULL, Self::BOOLEAN, Self::INTEGER, Self::FRACTION, Self::STRING, Self::ARRAY, Self::OBJECT];

    /// The set that a name of `type` stands for.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => return None,
        })
    }

    /// The kind of a value.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if Num::of(number).is_none_or(Num::is_whole) => Self::INTEGER,
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One node of a schema.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) form: Form,
    /// Kinds it may hold of; of no others.
    pub(super) may: Types,
    /// Kinds it holds of altogether.
    pub(super) must: Types,
    /// Where it stands in the document.
    pub(super) origin: u32,
    /// Equal for nodes of equal form; 0 when it leads to a reference and cannot be compared.
    pub(super) hash: u64,
}

/// What a node says.
#[derive(Debug)]
pub(super) enum Form {
    /// The kind is one of these.
    Type(Types),
    All(Box<[Id]>),
    Any(Box<[Id]>),
    /// Exactly one of them.
    One(Box<[Id]>),
    Not(Id),
    /// What a `$ref` leads to.
    Same(Id),
    /// The value equals one of these, none of which is an array or an object.
    Scalars(Box<[Value]>),
    Number(NumberAtom),
    String(StringAtom),
    Array(ArrayAtom),
    Object(ObjectAtom),
    Opaque(Opaque),
}

/// A keyword whose meaning is not modelled.
#[derive(Debug)]
pub(super) struct Opaque {
    pub(super) keyword: &'static str,
    /// What it says, when the same words say the same everywhere.
    pub(super) words: Option<Box<str>>,
}

impl Opaque {
    /// A keyword whose meaning hangs on what stands around it.
    pub(super) const fn here(keyword: &'static str) -> Self {
        Self { keyword, words: None }
    }

    /// A keyword whose meaning hangs on its value alone.
    pub(super) fn saying(keyword: &'static str, words: impl Into<Box<str>>) -> Self {
        Self { keyword, words: Some(words.into()) }
    }

    /// Kinds of values that it speaks of; it holds of all others.
    pub(super) fn kinds(&self) -> Types {
        match self.keyword {
            "pattern" | "contentMediaType" | "contentEncoding" => Types::STRING,
            "multipleOf" => Types::NUMBER,
            "unevaluatedItems" => Types::ARRAY,
            "unevaluatedProperties" | "patternProperties" => Types::OBJECT,
            _ => Types::ALL,
        }
    }
}

/// An assertion on numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum NumberAtom {
    AtLeast(Num),
    Above(Num),
    AtMost(Num),
    Below(Num),
    MultipleOf(Ratio),
}

/// An assertion on strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StringAtom {
    /// Code points.
    MinLength(u64),
    /// Code points.
    MaxLength(u64),
    /// An index into the schema's patterns.
    Pattern(u32),
    Format(Format),
}

/// An assertion on arrays.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum ArrayAtom {
    /// The first items fit these, and each further one `rest`, if there is one.
    Items {
        prefix: Box<[Id]>,
        rest: Option<Id>,
    },
    MinItems(u64),
    MaxItems(u64),
    MinContains(Id, u64),
    MaxContains(Id, u64),
    Unique,
}

/// An assertion on objects.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum ObjectAtom {
    Members(Members),
    Has(Box<str>),
    /// Each name fits.
    Names(Id),
    MinProperties(u64),
    MaxProperties(u64),
}

/// What the values of members must fit, by their names.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Members {
    /// Sorted by name.
    pub(super) named: Box<[(Box<str>, Id)]>,
    /// A node that asserts a pattern, and what members whose names match it must fit.
    pub(super) patterns: Box<[(Id, Id)]>,
    /// What members that none of these speak of must fit.
    pub(super) rest: Option<Id>,
}

impl Members {
    /// What `properties` says of `name`.
    pub(super) fn named(&self, name: &str) -> Option<Id> {
        let at = self.named.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(self.named[at].1)
    }
}
