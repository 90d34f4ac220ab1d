//! Reads and compares one CBOR number as JSON Schema defines it.

use std::borrow::Cow;

use jsonschema::json::JsonNumber;

/// A number as CBOR has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Unsigned(u64),
    /// Below zero.
    Negative(i64),
    /// Finite.
    Float(f64),
}

impl Number {
    /// A number of a schema.
    pub(super) fn of(number: &serde_json::Number) -> Option<Self> {
        let integer = number.as_u64().map(Self::Unsigned).or_else(|| number.as_i64().map(Self::Negative));
        integer.or_else(|| number.as_f64().map(Self::Float))
    }

    /// Bits between it and one, which a division walks over.
    pub(super) fn bits(self) -> u64 {
        const ONE: u64 = 1_023;
        match self {
            Self::Unsigned(number) => u64::from(number.checked_ilog2().unwrap_or(0)),
            Self::Negative(number) => u64::from(number.unsigned_abs().checked_ilog2().unwrap_or(0)),
            Self::Float(number) => ((number.to_bits() >> 52) & 0x7ff).abs_diff(ONE),
        }
    }

    /// Equality by value; an integer equals a float only when the float is exactly that integer.
    pub(super) fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Unsigned(a), Self::Unsigned(b)) => a == b,
            (Self::Negative(a), Self::Negative(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Unsigned(_), Self::Negative(_)) | (Self::Negative(_), Self::Unsigned(_)) => false,
            (Self::Unsigned(integer), Self::Float(float)) | (Self::Float(float), Self::Unsigned(integer)) => {
                is_exactly(float, i128::from(integer))
            }
            (Self::Negative(integer), Self::Float(float)) | (Self::Float(float), Self::Negative(integer)) => {
                is_exactly(float, i128::from(integer))
            }
        }
    }
}

/// Whether `float` is `integer`; the cast saturates far outside any 64-bit integer.
fn is_exactly(float: f64, integer: i128) -> bool {
    float.fract() == 0.0 && float as i128 == integer
}

impl JsonNumber for Number {
    fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(*number),
            Self::Negative(_) | Self::Float(_) => None,
        }
    }

    fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Unsigned(number) => i64::try_from(*number).ok(),
            Self::Negative(number) => Some(*number),
            Self::Float(_) => None,
        }
    }

    fn as_f64(&self) -> Option<f64> {
        Some(match self {
            Self::Unsigned(number) => *number as f64,
            Self::Negative(number) => *number as f64,
            Self::Float(number) => *number,
        })
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_number().to_string())
    }

    fn to_number(&self) -> Cow<'_, serde_json::Number> {
        Cow::Owned(match self {
            Self::Unsigned(number) => (*number).into(),
            Self::Negative(number) => (*number).into(),
            // Floats that are not finite were refused before.
            Self::Float(number) => serde_json::Number::from_f64(*number).unwrap_or_else(|| 0.into()),
        })
    }

    fn is_integer(&self) -> bool {
        match self {
            Self::Unsigned(_) | Self::Negative(_) => true,
            Self::Float(number) => number.fract() == 0.0,
        }
    }

    fn is_written_as_integer(&self) -> bool {
        matches!(self, Self::Unsigned(_) | Self::Negative(_))
    }
}
