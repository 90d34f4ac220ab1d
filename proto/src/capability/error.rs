//! Explains why a name, version, id, range or pattern was refused, and at which byte.

use crate::{
    code::Code,
    limits::{NAME_BYTES_MAX, NAME_LABELS_MIN, RANGE_BYTES_MAX, RANGE_COMPARATORS_MAX, VERSION_BYTES_MAX},
};

/// Text that is not a capability name, version, id, range or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{kind} (at byte {offset})")]
pub struct Error {
    /// Offset of the first wrong byte, from the start of the text; the text's length if something is missing.
    pub offset: usize,
    /// What is wrong there.
    pub kind: ErrorKind,
}

impl Error {
    pub(super) const fn new(offset: usize, kind: ErrorKind) -> Self {
        Self { offset, kind }
    }

    pub(super) const fn moved_by(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, kind: self.kind }
    }

    /// The wire code, always 4001. **Source:** PROTOCOL 6, 7.
    pub const fn code(&self) -> Code {
        Code::BAD_REQUEST
    }
}

/// What is wrong with a name, version, id, range or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name beyond its bound.
    #[error("a capability name is at most {NAME_BYTES_MAX} bytes long")]
    NameTooLong,
    /// A name with too few labels.
    #[error("a capability name has at least {NAME_LABELS_MIN} labels joined by dots, as in com.example.echo")]
    TooFewLabels,
    /// Two dots in a row, or a dot at either end.
    #[error("a label of a capability name is empty")]
    EmptyLabel,
    /// A byte that no label may hold.
    #[error("a label of a capability name holds only letters, digits and hyphens")]
    LabelCharacter,
    /// A hyphen at either end of a label.
    #[error("a label of a capability name begins and ends with a letter or a digit")]
    LabelEdge,
    /// An id that is only a name.
    #[error("a capability id is a name, a colon and a version, as in com.example.echo:1.0.0")]
    IdWithoutVersion,
    /// A version beyond its bound.
    #[error("a version is at most {VERSION_BYTES_MAX} bytes long")]
    VersionTooLong,
    /// Not a number where a version needs one, or text after its end.
    #[error(
        "a version is MAJOR.MINOR.PATCH with an optional -pre-release and +build, or exactly MAJOR.MINOR"
    )]
    NotAVersion,
    /// A number with a leading zero, such as `01`.
    #[error("a number of a version has no leading zero")]
    LeadingZero,
    /// A number beyond 64 bits.
    #[error("a number of a version is below 2^64")]
    NumberTooLarge,
    /// An empty pre-release or build identifier, or a byte that none may hold.
    #[error(
        "pre-release and build are identifiers of letters, digits and hyphens joined by dots, none of them empty"
    )]
    Identifier,
    /// `1.0-rc.1`: the short form takes no suffix.
    #[error("a two-part version takes no pre-release or build; write all three parts")]
    TwoPartSuffix,
    /// A range beyond its bound.
    #[error("a range is at most {RANGE_BYTES_MAX} bytes long")]
    RangeTooLong,
    /// More comparators than a range may have.
    #[error("a range has at most {RANGE_COMPARATORS_MAX} comparators")]
    TooManyComparators,
    /// No comparator at all.
    #[error("an empty range; {ACCEPTED}")]
    EmptyRange,
    /// A space at either end of a range.
    #[error("a range neither begins nor ends with a space; {ACCEPTED}")]
    OuterSpace,
    /// `>= 1.0`.
    #[error("no space stands between an operator and its version; {ACCEPTED}")]
    SpaceAfterOperator,
    /// `||`.
    #[error("`||` is not accepted; {ACCEPTED}")]
    Or,
    /// `~1.2`.
    #[error("`~` is not accepted; {ACCEPTED}")]
    Tilde,
    /// `^1.2`.
    #[error("`^` is not accepted; {ACCEPTED}")]
    Caret,
    /// `*` or `1.x`.
    #[error("`*` and `x` for a number are not accepted; {ACCEPTED}")]
    Wildcard,
    /// `>=1.0,<2.0`.
    #[error("commas are not accepted; {ACCEPTED}")]
    Comma,
}

const ACCEPTED: &str = "accepted are =, >, >=, <, <= and bare versions (exactly that one), joined by spaces, as in `>=1.2.0 <2.0.0`";
