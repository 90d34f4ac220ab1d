//! Parses a capability name: text in, a checked name out.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use super::error::{Error, ErrorKind};
use crate::limits::{NAME_BYTES_MAX, NAME_LABELS_MIN};

/// A capability's name, such as `org.agentries.code-review`; cloning it copies no text.
///
/// Compared and ordered byte by byte, so a map keyed by names is looked up with a `&str`.
///
/// **Shape:** `label ("." label){2,}`, label = `[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?`, at most 255 bytes.
/// **Source:** PROTOCOL 6.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityName(Arc<str>);

impl CapabilityName {
    /// Checks that `text` is a capability name, without copying it.
    ///
    /// **Errors:** 4001, with the first byte that breaks the grammar.
    pub fn check(text: &str) -> Result<(), Error> {
        let labels = check_labels(text)?;
        if labels < NAME_LABELS_MIN {
            return Err(Error::new(text.len(), ErrorKind::TooFewLabels));
        }
        Ok(())
    }

    /// The name of text that [`check`](Self::check) has passed.
    pub(crate) fn from_checked(text: &str) -> Self {
        debug_assert!(Self::check(text).is_ok(), "only checked text becomes a name");
        Self(Arc::from(text))
    }

    /// The name's text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks the labels of a name or namespace and counts them.
pub(super) fn check_labels(text: &str) -> Result<usize, Error> {
    if text.len() > NAME_BYTES_MAX {
        return Err(Error::new(NAME_BYTES_MAX, ErrorKind::NameTooLong));
    }
    if let Some(labels) = labels(text) {
        return Ok(labels);
    }
    // A label is wrong; this finds where.
    let mut labels = 0;
    let mut start = 0;
    for label in text.as_bytes().split(|&byte| byte == b'.') {
        check_label(label).map_err(|error| error.moved_by(start))?;
        labels += 1;
        start += label.len() + 1;
    }
    Ok(labels)
}

/// How many labels there are, or `None` where one of them is wrong: in one pass, since every call's id is looked at.
fn labels(text: &str) -> Option<usize> {
    let (mut labels, mut last) = (1, Character::Dot);
    for byte in text.bytes() {
        let character = CHARACTERS[usize::from(byte)];
        match (last, character) {
            (_, Character::Other) | (Character::Dot, Character::Hyphen | Character::Dot) => return None,
            (Character::Hyphen, Character::Dot) => return None,
            _ => labels += usize::from(character == Character::Dot),
        }
        last = character;
    }
    (last == Character::Alphanumeric).then_some(labels)
}

/// What a byte may be in a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Character {
    Other,
    Alphanumeric,
    Hyphen,
    Dot,
}

const CHARACTERS: [Character; 256] = {
    let mut characters = [Character::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        characters[byte] = match byte as u8 {
            b'.' => Character::Dot,
            b'-' => Character::Hyphen,
            character if character.is_ascii_alphanumeric() => Character::Alphanumeric,
            _ => Character::Other,
        };
        byte += 1;
    }
    characters
};

fn check_label(label: &[u8]) -> Result<(), Error> {
    if let Some(at) = label.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-') {
        return Err(Error::new(at, ErrorKind::LabelCharacter));
    }
    match label {
        [] => Err(Error::new(0, ErrorKind::EmptyLabel)),
        [b'-', ..] => Err(Error::new(0, ErrorKind::LabelEdge)),
        [.., b'-'] => Err(Error::new(label.len() - 1, ErrorKind::LabelEdge)),
        _ => Ok(()),
    }
}

impl FromStr for CapabilityName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }
}

impl AsRef<str> for CapabilityName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for CapabilityName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CapabilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CapabilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
