//! Parses text into a checked DID or DID URL.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::limits::DID_BYTES_MAX;

/// A DID, or a DID URL that names one key by its fragment; cheap to clone.
///
/// **Shape:** `did:method:id` with an optional `#fragment`, at most [`DID_BYTES_MAX`] bytes. **Source:** PROTOCOL 2, 5.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Did(Arc<str>);

impl Ord for Did {
    /// In the order of the text.
    fn cmp(&self, other: &Self) -> Ordering {
        // Most keys of one table are clones of few DIDs, and their texts differ only near the end.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Did {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Did {
    /// Checks and copies `text`.
    ///
    /// **Errors:** text that is not a DID; in an envelope that is 1001.
    pub fn parse(text: &str) -> Result<Self, DidError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks `text` without copying it.
    ///
    /// **Errors:** as [`parse`](Self::parse).
    pub fn check(text: &str) -> Result<(), DidError> {
        if text.len() > DID_BYTES_MAX {
            return Err(DidError::TooLong);
        }
        let rest = text.strip_prefix("did:").ok_or(DidError::Scheme)?;
        let (method, rest) = rest.split_once(':').ok_or(DidError::Method)?;
        if method.is_empty() || !method.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9')) {
            return Err(DidError::Method);
        }
        let (id, fragment) = match rest.split_once('#') {
            Some((id, fragment)) => (id, Some(fragment)),
            None => (rest, None),
        };
        if id.is_empty() || id.ends_with(':') || !id.bytes().all(is_id_byte) {
            return Err(DidError::Id);
        }
        if fragment.is_some_and(|text| text.is_empty() || !text.bytes().all(is_fragment_byte)) {
            return Err(DidError::Fragment);
        }
        Ok(())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text without its fragment.
    pub fn bare(&self) -> &str {
        Self::bare_of(self)
    }

    /// `text` without its fragment.
    pub fn bare_of(text: &str) -> &str {
        match text.split_once('#') {
            Some((bare, _)) => bare,
            None => text,
        }
    }

    /// The text after `#`, if any.
    pub fn fragment(&self) -> Option<&str> {
        self.0.split_once('#').map(|(_, fragment)| fragment)
    }

    /// Takes text that is a DID by construction.
    pub(super) fn trusted(text: String) -> Self {
        debug_assert_eq!(Self::check(&text), Ok(()));
        Self(text.into())
    }
}

/// Text that is not a DID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DidError {
    /// More than [`DID_BYTES_MAX`] bytes.
    #[error("DID is longer than {DID_BYTES_MAX} bytes")]
    TooLong,
    /// It does not start with `did:`.
    #[error("DID does not start with \"did:\"")]
    Scheme,
    /// No method name of lower-case letters and digits.
    #[error("DID has no valid method name")]
    Method,
    /// No method-specific id, or a character, a path or a query that is not allowed there.
    #[error("DID has no valid method-specific id")]
    Id,
    /// An empty fragment, or a character that is not allowed in one.
    #[error("DID has an invalid fragment")]
    Fragment,
}

impl FromStr for Did {
    type Err = DidError;

    fn from_str(text: &str) -> Result<Self, DidError> {
        Self::parse(text)
    }
}

impl std::ops::Deref for Did {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Did {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Did {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const fn is_id_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b':' | b'%')
}

/// RFC 3986 3.5: a fragment's characters.
const fn is_fragment_byte(byte: u8) -> bool {
    is_id_byte(byte)
        || matches!(
            byte,
            b'~' | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b'@'
                | b'/'
                | b'?'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dids_of_any_method_are_taken_with_and_without_fragment() {
        for text in
            ["did:web:example.com:agent:alice", "did:key:z6Mk", "did:web:localhost%3A8443", "did:a1:x"]
        {
            assert_eq!(Did::parse(text).unwrap().as_str(), text);
            let url = Did::parse(&format!("{text}#key-1")).unwrap();
            assert_eq!((url.bare(), url.fragment()), (text, Some("key-1")));
        }
        assert_eq!("did:web:a".parse::<Did>().unwrap().fragment(), None);
    }

    #[test]
    fn text_that_is_no_did_is_refused_for_its_reason() {
        for (text, error) in [
            ("", DidError::Scheme),
            ("DID:key:z", DidError::Scheme),
            ("did:", DidError::Method),
            ("did:key", DidError::Method),
            ("did::x", DidError::Method),
            ("did:Key:x", DidError::Method),
            ("did:key:", DidError::Id),
            ("did:key:#k", DidError::Id),
            ("did:web:a:", DidError::Id),
            ("did:web:a/path", DidError::Id),
            ("did:web:a?query", DidError::Id),
            ("did:web:a b", DidError::Id),
            ("did:web:é", DidError::Id),
            ("did:web:a#", DidError::Fragment),
            ("did:web:a#b#c", DidError::Fragment),
        ] {
            assert_eq!(Did::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn longest_did_is_taken_and_one_byte_more_is_not() {
        let text = format!("did:x:{}", "a".repeat(DID_BYTES_MAX - 6));
        assert_eq!(Did::check(&text), Ok(()));
        assert_eq!(Did::check(&(text + "a")), Err(DidError::TooLong));
    }
}
