//! Represents sets of the types that JSON Schema names.

use std::ops::{BitAnd, BitOr};

use serde_json::Value;

/// Some of the seven types. A set that has `number` has `integer` as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    const NULL: Self = Self(1);
    const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    pub(super) const NUMBER: Self = Self(8 | 4);
    const STRING: Self = Self(16);
    const ARRAY: Self = Self(32);
    const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    /// Each type with its name, in the order in which a union lists them; null is last.
    pub(super) const EACH: [(Self, &'static str); 7] = [
        (Self::STRING, "string"),
        (Self::INTEGER, "integer"),
        (Self::NUMBER, "number"),
        (Self::BOOLEAN, "boolean"),
        (Self::ARRAY, "array"),
        (Self::OBJECT, "object"),
        (Self::NULL, "null"),
    ];

    /// What `type` names: one type, or a list of them.
    pub(super) fn named(value: &Value) -> Self {
        let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let one = |name: &Value| Self::EACH.iter().find(|(_, known)| name.as_str() == Some(known));
        names.iter().filter_map(one).fold(Self::NONE, |types, (one, _)| types | *one)
    }

    /// The types of a value; a number without a fraction is an integer, however it is written.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
                Self::INTEGER
            }
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a value is of one of these types.
    pub(super) fn has(self, value: &Value) -> bool {
        self.contains(Self::of(value))
    }
}

impl BitAnd for Types {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Types {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
