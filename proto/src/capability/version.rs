//! Parses a version: text in, a version ordered by SemVer precedence out.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

use semver::{BuildMetadata, Prerelease};

use super::error::{Error, ErrorKind};
use crate::limits::VERSION_BYTES_MAX;

/// A version as SemVer 2.0.0 defines it.
///
/// Equality, order and hash are SemVer precedence: build metadata is kept and written, but ignored otherwise, so
/// `1.0.0+a` equals `1.0.0+b`. **Shape:** `MAJOR.MINOR.PATCH[-pre-release][+build]`; the two-part `2.1` is read as
/// `2.1.0`, and three parts are written. **Source:** PROTOCOL 6.
#[derive(Clone, Debug)]
pub struct Version(semver::Version);

impl Version {
    /// The version `major.minor.patch`.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// The first number; a breaking change increments it.
    pub const fn major(&self) -> u64 {
        self.0.major
    }

    /// The second number.
    pub const fn minor(&self) -> u64 {
        self.0.minor
    }

    /// The third number.
    pub const fn patch(&self) -> u64 {
        self.0.patch
    }

    /// Whether it comes before its own `MAJOR.MINOR.PATCH`.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// The pre-release identifiers, empty for none.
    pub fn prerelease(&self) -> &str {
        self.0.pre.as_str()
    }

    /// The build metadata, empty for none.
    pub fn build(&self) -> &str {
        self.0.build.as_str()
    }

    /// Precedence first, then build metadata: an order in which only equal texts are equal.
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }

    /// The version without its pre-release and build; never before `self`.
    pub(super) fn release(&self) -> Self {
        Self::new(self.major(), self.minor(), self.patch())
    }

    /// The first release after this version's own numbers.
    pub(super) fn next_release(&self) -> Option<Self> {
        let (major, minor) = (self.major(), self.minor());
        if let Some(patch) = self.patch().checked_add(1) {
            return Some(Self::new(major, minor, patch));
        }
        match minor.checked_add(1) {
            Some(minor) => Some(Self::new(major, minor, 0)),
            None => Some(Self::new(major.checked_add(1)?, 0, 0)),
        }
    }

    /// The last release before this version's own numbers.
    pub(super) fn previous_release(&self) -> Option<Self> {
        let (major, minor) = (self.major(), self.minor());
        if let Some(patch) = self.patch().checked_sub(1) {
            return Some(Self::new(major, minor, patch));
        }
        match minor.checked_sub(1) {
            Some(minor) => Some(Self::new(major, minor, u64::MAX)),
            None => Some(Self::new(major.checked_sub(1)?, u64::MAX, u64::MAX)),
        }
    }

    /// The first pre-release of this version's own numbers.
    pub(super) fn first_prerelease(&self) -> Option<Self> {
        self.with_prerelease("0")
    }

    /// The pre-release that comes directly after this one: nothing sorts between `a` and `a.0`.
    pub(super) fn next_prerelease(&self) -> Option<Self> {
        if self.is_prerelease() { self.with_prerelease(&format!("{}.0", self.prerelease())) } else { None }
    }

    fn with_prerelease(&self, identifiers: &str) -> Option<Self> {
        let mut version = self.release();
        version.0.pre = Prerelease::new(identifiers).ok()?;
        Some(version)
    }

    /// Whether both have the same three numbers.
    pub(super) fn is_same_triple(&self, other: &Self) -> bool {
        (self.major(), self.minor(), self.patch()) == (other.major(), other.minor(), other.patch())
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }
}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.major, self.0.minor, self.0.patch, self.0.pre.as_str()).hash(state);
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > VERSION_BYTES_MAX {
            return Err(Error::new(VERSION_BYTES_MAX, ErrorKind::VersionTooLong));
        }
        let mut at = 0;
        let major = number(text, &mut at)?;
        dot(text, &mut at)?;
        let minor = number(text, &mut at)?;
        // PROTOCOL 6: the seed revision's two-part `2.1` is read as `2.1.0`.
        if at == text.len() {
            return Ok(Self::new(major, minor, 0));
        }
        if matches!(text.as_bytes()[at], b'-' | b'+') {
            return Err(Error::new(at, ErrorKind::TwoPartSuffix));
        }
        dot(text, &mut at)?;
        let patch = number(text, &mut at)?;
        if at == text.len() {
            return Ok(Self::new(major, minor, patch));
        }
        let mut version = semver::Version::new(major, minor, patch);
        let (release, build) = match text[at..].split_once('+') {
            Some((release, build)) => (release, Some(build)),
            None => (&text[at..], None),
        };
        if let Some(pre) = release.strip_prefix('-') {
            check_identifiers(pre, true).map_err(|error| error.moved_by(at + 1))?;
            version.pre = Prerelease::new(pre).map_err(|_| Error::new(at + 1, ErrorKind::Identifier))?;
        } else if !release.is_empty() {
            return Err(Error::new(at, ErrorKind::NotAVersion));
        }
        if let Some(build) = build {
            let start = text.len() - build.len();
            check_identifiers(build, false).map_err(|error| error.moved_by(start))?;
            version.build =
                BuildMetadata::new(build).map_err(|_| Error::new(start, ErrorKind::Identifier))?;
        }
        Ok(Self(version))
    }
}

/// Reads the number at `at` and moves behind it.
fn number(text: &str, at: &mut usize) -> Result<u64, Error> {
    if let [digit @ b'0'..=b'9', rest @ ..] = &text.as_bytes()[*at..]
        && !rest.first().is_some_and(u8::is_ascii_digit)
    {
        *at += 1;
        return Ok(u64::from(digit - b'0'));
    }
    let digits = text[*at..].bytes().take_while(u8::is_ascii_digit).count();
    let number = &text[*at..*at + digits];
    let error = |kind| Err(Error::new(*at, kind));
    match number.as_bytes() {
        [] => match text.as_bytes().get(*at) {
            Some(b'x' | b'X' | b'*') => error(ErrorKind::Wildcard),
            _ => error(ErrorKind::NotAVersion),
        },
        [b'0', _, ..] => error(ErrorKind::LeadingZero),
        _ => match number.parse() {
            Ok(value) => {
                *at += digits;
                Ok(value)
            }
            Err(_) => error(ErrorKind::NumberTooLarge),
        },
    }
}

fn dot(text: &str, at: &mut usize) -> Result<(), Error> {
    if text.as_bytes().get(*at) != Some(&b'.') {
        return Err(Error::new(*at, ErrorKind::NotAVersion));
    }
    *at += 1;
    Ok(())
}

fn check_identifiers(text: &str, is_prerelease: bool) -> Result<(), Error> {
    let mut start = 0;
    for identifier in text.as_bytes().split(|&byte| byte == b'.') {
        let wrong = identifier.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
        if let Some(at) = wrong {
            return Err(Error::new(start + at, ErrorKind::Identifier));
        }
        if identifier.is_empty() {
            return Err(Error::new(start, ErrorKind::Identifier));
        }
        // SemVer 2.0.0 9: numeric identifiers of a pre-release have no leading zeroes; those of a build may.
        let is_numeric = identifier.iter().all(u8::is_ascii_digit);
        if is_prerelease && is_numeric && identifier.len() > 1 && identifier[0] == b'0' {
            return Err(Error::new(start, ErrorKind::LeadingZero));
        }
        start += identifier.len() + 1;
    }
    Ok(())
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
