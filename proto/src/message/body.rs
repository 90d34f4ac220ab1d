//! Provides what all bodies need: the CDDL check, reading and writing a map, and the reasons for a refusal.

use std::borrow::Cow;

use super::{Type, cursor::CursorError};
use crate::{
    capability,
    cbor::{self, Checked, Kind, Reader, Writer},
    cddl,
    code::Code,
};

/// Why a body was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It does not have the shape of its type: 1001.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// It has the shape, but contradicts itself or is incomplete: 4001.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
}

impl BodyError {
    /// The wire code: 1001 or 4001. **Source:** PROTOCOL 7.
    pub const fn code(&self) -> Code {
        match self {
            Self::Shape(_) => Code::INVALID_MESSAGE,
            Self::Contradiction(_) => Code::BAD_REQUEST,
        }
    }
}

impl From<cbor::Error> for BodyError {
    fn from(error: cbor::Error) -> Self {
        Self::Shape(ShapeError::Cbor(error))
    }
}

/// A body without the shape of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Its CDDL rule refused it.
    #[error(transparent)]
    Rule(#[from] Box<cddl::Mismatch>),
    /// It is not the CBOR that was expected.
    #[error(transparent)]
    Cbor(cbor::Error),
    /// A field is missing.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field has the right type, but a value that the message type does not allow.
    #[error("`{field}` must be {expected} (before byte {offset})")]
    Value {
        /// The field.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
        /// Offset after the value, from the start of the body.
        offset: usize,
    },
}

/// A body of the right shape that contradicts itself or is incomplete. **Source:** PROTOCOL 7.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// A text that is not a name, id, version, range or pattern.
    #[error("`{field}`: {error}")]
    Text {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and at which byte of the text.
        error: capability::Error,
    },
    /// A call that does not identify its capability.
    #[error("a call needs `id`, or a name with `version`, `negotiate` or a session")]
    NoIdentity,
    /// A call with `id` and `negotiate`.
    #[error("`id` names a version, so `negotiate` cannot stand beside it")]
    IdWithNegotiate,
    /// A call with `version` and `negotiate`.
    #[error("`version` names a version, so `negotiate` cannot stand beside it")]
    VersionWithNegotiate,
    /// A field that contradicts the `id`.
    #[error("`{field}` disagrees with `id`")]
    IdDisagrees {
        /// The field.
        field: &'static str,
    },
    /// A list beyond its bound.
    #[error("`{field}` has more than {max} elements")]
    TooMany {
        /// The field.
        field: &'static str,
        /// The bound.
        max: usize,
    },
    /// A query without `capability` or `type`.
    #[error("the filter needs `capability` or `type`")]
    NoFilter,
    /// A query with a `limit` of 0.
    #[error("`limit` is at least 1")]
    ZeroLimit,
    /// A cursor that cannot be continued.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// A descriptor that does not even serve its own version.
    #[error("`min_schema_version` is above the descriptor's own version")]
    FloorAboveVersion,
    /// A document whose `size` is wrong.
    #[error("`size` is not the number of bytes in `data`")]
    SizeDisagrees,
}

impl Contradiction {
    /// For `map_err` beside a parse: names the field.
    pub(super) fn in_field(field: &'static str) -> impl FnOnce(capability::Error) -> BodyError {
        move |error| BodyError::Contradiction(Self::Text { field, error })
    }
}

/// Holds a body against the CDDL rule of its type.
pub(super) fn check<'a>(typ: Type, body: impl Into<Checked<'a>>) -> Result<(), BodyError> {
    use cddl::bodies::{BodyError as Refused, bodies};
    bodies().check_over(typ.code(), body.into()).map_err(|refused| match refused {
        Refused::Mismatch(mismatch) => ShapeError::Rule(Box::new(mismatch)).into(),
        // Unreachable by the test that every type has a rule; refusing is right in any case.
        Refused::UnknownType(_) => ShapeError::Missing("the rule of this type").into(),
    })
}

/// Reads a map whose keys are text: `field` is called behind each key and moves behind its value.
pub(super) fn read_map<'a>(
    reader: &mut Reader<'a>,
    mut field: impl FnMut(&[u8], &mut Reader<'a>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let mut left = reader.map()?;
    while reader.has_next(&mut left) {
        let key = reader.key()?;
        field(&key, reader)?;
    }
    Ok(())
}

/// Reads an array: `element` is called before each element and moves behind it.
pub(super) fn read_array<'a, T>(
    reader: &mut Reader<'a>,
    mut element: impl FnMut(&mut Reader<'a>) -> Result<T, BodyError>,
) -> Result<Vec<T>, BodyError> {
    let mut left = reader.array()?;
    // Grows with the bytes that are there, not with the length that the head promises.
    let mut elements = Vec::new();
    while reader.has_next(&mut left) {
        elements.push(element(reader)?);
    }
    Ok(elements)
}

/// Reads an array of texts.
pub(super) fn read_texts<'a>(reader: &mut Reader<'a>) -> Result<Vec<Cow<'a, str>>, BodyError> {
    read_array(reader, |reader| Ok(reader.text()?))
}

/// Reads a byte string of exactly `N` bytes.
pub(super) fn read_bytes<const N: usize>(
    reader: &mut Reader<'_>,
    field: &'static str,
    expected: &'static str,
) -> Result<[u8; N], BodyError> {
    let bytes = reader.bytes()?;
    let fixed = <[u8; N]>::try_from(&*bytes);
    fixed.map_err(|_| wrong_value(reader, field, expected))
}

/// Reads an integer or float of any width, and says only that there is one.
pub(super) fn read_number(reader: &mut Reader<'_>) -> Result<(), BodyError> {
    if reader.kind()? == Kind::Float {
        reader.float()?;
    } else {
        reader.int()?;
    }
    Ok(())
}

pub(super) fn wrong_value(reader: &Reader<'_>, field: &'static str, expected: &'static str) -> BodyError {
    ShapeError::Value { field, expected, offset: reader.position() }.into()
}

/// The value of a field that must be there.
pub(super) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, BodyError> {
    value.ok_or_else(|| ShapeError::Missing(field).into())
}

/// Writes a map of at most 23 text keys, whose number need not be known before.
///
/// The keys are to be written in the bytewise order of their encodings: shorter ones first.
#[derive(Debug)]
pub(super) struct MapWriter<'a> {
    out: &'a mut Vec<u8>,
    head: usize,
    last_key: &'static str,
}

impl<'a> MapWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let head = out.len();
        // The head of an empty map; each key counts it up.
        out.push(0xa0);
        Self { out, head, last_key: "" }
    }

    /// Writes a key; its value is to be written next.
    pub(super) fn key(&mut self, key: &'static str) -> Writer<'_> {
        debug_assert!(
            (self.last_key.len(), self.last_key) < (key.len(), key),
            "{} before {key}",
            self.last_key
        );
        debug_assert!(self.out[self.head] < 0xb7, "the head has room for 23 keys");
        self.last_key = key;
        self.out[self.head] += 1;
        let mut writer = Writer::new(self.out);
        writer.text(key);
        writer
    }

    /// Writes a key before a value that is written into the buffer itself.
    pub(super) fn key_then(&mut self, key: &'static str) -> &mut Vec<u8> {
        self.key(key);
        self.out
    }

    pub(super) fn text(&mut self, key: &'static str, value: &str) {
        self.key(key).text(value);
    }

    pub(super) fn text_if(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn uint(&mut self, key: &'static str, value: u64) {
        self.key(key).uint(value);
    }

    pub(super) fn uint_if(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.uint(key, value);
        }
    }

    pub(super) fn bool_if(&mut self, key: &'static str, value: Option<bool>) {
        if let Some(value) = value {
            self.key(key).bool(value);
        }
    }

    pub(super) fn bytes(&mut self, key: &'static str, value: &[u8]) {
        self.key(key).bytes(value);
    }

    pub(super) fn bytes_if<const N: usize>(&mut self, key: &'static str, value: Option<&[u8; N]>) {
        if let Some(value) = value {
            self.bytes(key, value);
        }
    }

    /// Writes a value that is one encoded item already; gives where it ends in the buffer.
    pub(super) fn raw(&mut self, key: &'static str, value: &[u8]) -> usize {
        self.key(key).raw(value).written()
    }

    /// The same where there is a value.
    pub(super) fn raw_if(&mut self, key: &'static str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.key(key).raw(value);
        }
    }

    /// Writes an array of texts, unless there are none.
    pub(super) fn texts_if<T: AsRef<str>>(&mut self, key: &'static str, values: &[T]) {
        if !values.is_empty() {
            write_texts(&mut self.key(key), values);
        }
    }

    /// Writes an array of what is written as text, unless there are none.
    pub(super) fn displays_if<T: ToString>(&mut self, key: &'static str, values: &[T]) {
        let texts: Vec<_> = values.iter().map(T::to_string).collect();
        self.texts_if(key, &texts);
    }
}

pub(super) fn write_texts<T: AsRef<str>>(writer: &mut Writer<'_>, values: &[T]) {
    writer.array(values.len() as u64);
    for value in values {
        writer.text(value.as_ref());
    }
}
