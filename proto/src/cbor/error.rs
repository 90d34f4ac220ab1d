//! Explains what is wrong with CBOR bytes, and at which byte.

use thiserror::Error;

use crate::limits::CBOR_MAP_KEYS_BYTES_MAX;

/// Bytes that are not CBOR we accept, or not of the requested type.
///
/// **Errors:** maps to 1001 INVALID_MESSAGE. **Source:** PROTOCOL 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind} at byte {offset}")]
pub struct Error {
    /// Offset of the offending head, in bytes from the start of the checked buffer.
    pub offset: usize,
    /// What is wrong there.
    pub kind: ErrorKind,
}

impl Error {
    pub(crate) const fn new(offset: usize, kind: ErrorKind) -> Self {
        Self { offset, kind }
    }
}

/// The ways in which CBOR bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ErrorKind {
    /// The bytes end inside an item.
    #[error("input ends inside an item")]
    Truncated,
    /// Additional information 28 to 30, or an indefinite length where none is allowed.
    #[error("reserved head")]
    ReservedHead,
    /// A simple value below 32 in its two-byte form.
    #[error("two-byte simple value below 32")]
    InvalidSimple,
    /// A length larger than the bytes that are left.
    #[error("length beyond the end of the input")]
    LengthBeyondInput,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    InvalidUtf8,
    /// A break outside an indefinite-length item, or in place of a map value.
    #[error("unexpected break")]
    UnexpectedBreak,
    /// A chunk of another type, or of indefinite length, inside an indefinite-length string.
    #[error("string chunk of another type")]
    InvalidChunk,
    /// A key that occurs twice in one map.
    #[error("duplicate map key")]
    DuplicateKey,
    /// Nesting beyond [`CBOR_DEPTH_MAX`](crate::limits::CBOR_DEPTH_MAX).
    #[error("nested too deeply")]
    TooDeep,
    /// More elements or pairs than [`CBOR_CONTAINER_ITEMS_MAX`](crate::limits::CBOR_CONTAINER_ITEMS_MAX).
    #[error("too many items in one container")]
    ContainerTooLarge,
    /// More items than [`CBOR_ITEMS_MAX`](crate::limits::CBOR_ITEMS_MAX).
    #[error("too many items in the message")]
    TooManyItems,
    /// More bytes of keys that hold maps than [`CBOR_MAP_KEYS_BYTES_MAX`].
    #[error("more than {CBOR_MAP_KEYS_BYTES_MAX} bytes of map keys that are or hold maps")]
    MapKeysTooLarge,
    /// Bytes after the item.
    #[error("trailing bytes after the item")]
    TrailingBytes,
    /// A tag outside `params`, `result`, `details` and `ext`.
    #[error("tag where none is allowed")]
    TagNotAllowed,
    /// An item of another type than requested.
    #[error("expected {0}")]
    Expected(&'static str),
}
