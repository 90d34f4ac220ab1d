//! Tells clients apart: bearer tokens and the names that their owner gave them in; the name of a request's caller out.

use std::path::Path;

use hyper::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest as _, Sha256};

/// Who may ask.
#[derive(Default)]
pub struct Callers {
    /// Each name, and the hash of its token.
    known: Vec<(String, [u8; 32])>,
}

impl Callers {
    /// The callers of a file, a name and a token on each line, and of `token`, whose caller is `default`. Without any,
    /// everybody on this machine is one caller.
    ///
    /// **Errors:** the place of a line that is no name and token.
    pub fn read(file: Option<&Path>, token: Option<&str>) -> Result<Self, String> {
        let mut callers = Self::default();
        if let Some(token) = token {
            callers.add("default", token)?;
        }
        let Some(file) = file else { return Ok(callers) };
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = |error: &str| format!("{}:{number}: {error}", file.display());
            let (name, token) =
                line.split_once(char::is_whitespace).ok_or_else(|| place("no token after the name"))?;
            callers.add(name, token.trim()).map_err(|error| place(&error))?;
        }
        if callers.known.is_empty() {
            return Err(format!(
                "{}: it has no caller; accepted: lines of a name and a token",
                file.display()
            ));
        }
        Ok(callers)
    }

    fn add(&mut self, name: &str, token: &str) -> Result<(), String> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name {
            return Err(format!(
                "{name:?} is no caller's name; accepted: 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
            ));
        }
        if token.len() < TOKEN_BYTES_MIN {
            return Err(format!(
                "the token of {name} has {} bytes; accepted: {TOKEN_BYTES_MIN} or more",
                token.len()
            ));
        }
        if self.known.iter().any(|(known, _)| known == name) {
            return Err(format!("{name} has a token already"));
        }
        self.known.push((name.to_owned(), hash(token)));
        Ok(())
    }

    /// Whether a token is asked for.
    pub fn are_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// The caller of a request; none for one without a token that is known.
    pub fn of(&self, head: &HeaderMap) -> Option<&str> {
        if !self.are_known() {
            return Some(EVERYBODY);
        }
        let value = head.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        // Of two hashes nothing is learnt from how long their comparison takes.
        let given = hash(token.trim());
        let found = self.known.iter().find(|(_, known)| *known == given).map(|(name, _)| name.as_str());
        found.filter(|_| scheme.eq_ignore_ascii_case("bearer"))
    }
}

impl std::fmt::Debug for Callers {
    /// Without the hashes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.known.iter().map(|(name, _)| name)).finish()
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The caller of every request where no tokens are known.
const EVERYBODY: &str = "local";
const NAME_BYTES_MAX: usize = 64;
const TOKEN_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_token_names_its_caller_and_without_tokens_everybody_is_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# who\nann  0123456789abcdef\n\nbob\tfedcba9876543210\n").unwrap();
        let callers = Callers::read(Some(file.path()), Some("a token of its own")).unwrap();
        assert_eq!(callers.of(&head("Bearer 0123456789abcdef")), Some("ann"));
        assert_eq!(callers.of(&head("bearer fedcba9876543210")), Some("bob"));
        assert_eq!(callers.of(&head("Bearer a token of its own")), Some("default"));
        for wrong in ["Bearer 0123456789abcdeF", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer "] {
            assert_eq!(callers.of(&head(wrong)), None, "{wrong}");
        }
        assert_eq!(callers.of(&HeaderMap::new()), None);
        assert_eq!(Callers::default().of(&HeaderMap::new()), Some("local"));
        assert!(!format!("{callers:?}").contains("0123"));
    }

    #[test]
    fn a_line_that_is_no_caller_is_told_by_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, place) in [
            ("ann\n", ":1: no token"),
            ("\na/b 0123456789abcdef", ":2: \"a/b\""),
            ("ann short", ":1: the token of ann has 5 bytes"),
            ("ann 0123456789abcdef\nann 0123456789abcdef", ":2: ann has a token"),
            ("# nobody", ": it has no caller"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let error = Callers::read(Some(file.path()), None).unwrap_err();
            assert!(error.contains(place), "{text:?}: {error}");
        }
    }
}
