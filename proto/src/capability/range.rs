//! Parses a version range: text in, a set of versions out.

use std::{fmt, str::FromStr};

use super::{
    error::{Error, ErrorKind},
    version::Version,
};
use crate::limits::{RANGE_BYTES_MAX, RANGE_COMPARATORS_MAX};

/// A set of versions: those that every comparator admits.
///
/// Two ranges are equal when they have the same comparators in the same order. **Shape:** comparators joined by one
/// or more spaces; written with one space each, and a bare version with its `=`. **Source:** PROTOCOL 6.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    // From 1 to RANGE_COMPARATORS_MAX of them.
    comparators: Vec<Comparator>,
}

/// One condition of a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comparator {
    /// How a version must compare with [`version`](Self::version).
    pub operator: Operator,
    /// The bound.
    pub version: Version,
}

/// How a version must compare with a comparator's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `=`, or nothing.
    Equal,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
}

impl Range {
    /// The range of exactly `version`.
    pub fn exact(version: Version) -> Self {
        Self { comparators: vec![Comparator { operator: Operator::Equal, version }] }
    }

    /// The comparators, in the order they were written.
    pub fn comparators(&self) -> &[Comparator] {
        &self.comparators
    }

    /// The only version of the range, if the range is a single `=`.
    pub fn as_exact(&self) -> Option<&Version> {
        match self.comparators.as_slice() {
            [Comparator { operator: Operator::Equal, version }] => Some(version),
            _ => None,
        }
    }

    /// Whether `version` is in the range.
    pub fn matches(&self, version: &Version) -> bool {
        if !self.comparators.iter().all(|comparator| comparator.admits(version)) {
            return false;
        }
        // PROTOCOL 6: a pre-release is in a range only if a comparator of that range names a pre-release of the
        // same major.minor.patch.
        !version.is_prerelease()
            || self.comparators.iter().any(|comparator| {
                comparator.version.is_prerelease() && comparator.version.is_same_triple(version)
            })
    }
}

impl Comparator {
    fn admits(&self, version: &Version) -> bool {
        match self.operator {
            Operator::Equal => *version == self.version,
            Operator::Greater => *version > self.version,
            Operator::GreaterOrEqual => *version >= self.version,
            Operator::Less => *version < self.version,
            Operator::LessOrEqual => *version <= self.version,
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let (operator, bound) = Operator::split(text);
        let start = text.len() - bound.len();
        let kind = match bound.as_bytes() {
            [] => Some(ErrorKind::SpaceAfterOperator),
            [b'|', ..] => Some(ErrorKind::Or),
            [b'~', ..] => Some(ErrorKind::Tilde),
            [b'^', ..] => Some(ErrorKind::Caret),
            _ => None,
        };
        if let Some(kind) = kind {
            return Err(Error::new(start, kind));
        }
        // Glued separators would otherwise be blamed on the version.
        let glued = bound.bytes().position(|byte| matches!(byte, b',' | b'|'));
        if let Some(at) = glued {
            let kind = if bound.as_bytes()[at] == b',' { ErrorKind::Comma } else { ErrorKind::Or };
            return Err(Error::new(start + at, kind));
        }
        let version = bound.parse().map_err(|error: Error| error.moved_by(start))?;
        Ok(Self { operator, version })
    }
}

impl Operator {
    /// The operator's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
        }
    }

    fn split(text: &str) -> (Self, &str) {
        // The longer operators first, since each begins with a shorter one.
        for operator in [Self::GreaterOrEqual, Self::LessOrEqual, Self::Greater, Self::Less, Self::Equal] {
            if let Some(bound) = text.strip_prefix(operator.as_str()) {
                return (operator, bound);
            }
        }
        (Self::Equal, text)
    }
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > RANGE_BYTES_MAX {
            return Err(Error::new(RANGE_BYTES_MAX, ErrorKind::RangeTooLong));
        }
        if text.bytes().all(|byte| byte == b' ') {
            return Err(Error::new(0, ErrorKind::EmptyRange));
        }
        if text.starts_with(' ') {
            return Err(Error::new(0, ErrorKind::OuterSpace));
        }
        let mut comparators = Vec::new();
        let mut start = 0;
        for word in text.split(' ') {
            if !word.is_empty() {
                if comparators.len() == RANGE_COMPARATORS_MAX {
                    return Err(Error::new(start, ErrorKind::TooManyComparators));
                }
                comparators.push(Comparator::parse(word).map_err(|error| error.moved_by(start))?);
            }
            start += word.len() + 1;
        }
        if text.ends_with(' ') {
            return Err(Error::new(text.len() - 1, ErrorKind::OuterSpace));
        }
        Ok(Self { comparators })
    }
}

impl From<Version> for Range {
    fn from(version: Version) -> Self {
        Self::exact(version)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, comparator) in self.comparators.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            fmt::Display::fmt(comparator, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.operator.as_str(), self.version)
    }
}
