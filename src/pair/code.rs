//! Makes and reads one-time codes.

use std::fmt;
use std::str::FromStr;

/// A one-time code: 40 random bits. Whoever guesses has one try for each run, and a listener ends after a few.
///
/// **Shape:** eight characters of Crockford's base 32, shown as `7Q2K-9XHD`. Upper and lower case are the same, and so are
/// `O` and `0`, and `I`, `L` and `1`; hyphens and spaces do not count.
#[derive(Clone, PartialEq, Eq)]
pub struct Code([u8; CHARS]);

/// Why a text is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a code has eight letters and digits, such as 7Q2K-9XHD")]
pub struct CodeError;

impl Code {
    /// A new one. **Errors:** the system gives no random numbers.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; CHARS];
        getrandom::fill(&mut bytes)?;
        // 256 is a multiple of 32, so each character is as likely as any other.
        Ok(Self(bytes.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()])))
    }

    /// What both sides put into SPAKE2.
    pub(super) const fn password(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let counts = |byte: &u8| !matches!(byte, b'-' | b' ');
        let mut code = [0; CHARS];
        let mut read = text.bytes().filter(counts).map(|byte| match byte.to_ascii_uppercase() {
            b'O' => b'0',
            b'I' | b'L' => b'1',
            other => other,
        });
        for place in &mut code {
            *place = read.next().filter(|byte| ALPHABET.contains(byte)).ok_or(CodeError)?;
        }
        if read.next().is_none() { Ok(Self(code)) } else { Err(CodeError) }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index == CHARS / 2 {
                f.write_str("-")?;
            }
            write!(f, "{}", char::from(*byte))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Code {
    /// Logs and errors have no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(…)")
    }
}

const CHARS: usize = 8;
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_reads_back_however_it_is_typed() {
        let code = Code::new().unwrap();
        let text = code.to_string();
        assert_eq!((text.len(), &text[4..5]), (9, "-"));
        for typed in [text.clone(), text.to_lowercase(), text.replace('-', ""), format!(" {text} ")] {
            assert_eq!(typed.parse::<Code>().as_ref(), Ok(&code), "{typed}");
        }
        assert_eq!("oil0-1234".parse::<Code>(), "0110-1234".parse());
        assert_ne!(Code::new().unwrap(), code);
        assert!(!format!("{code:?}").contains(&text));
    }

    #[test]
    fn other_texts_are_no_code() {
        for text in ["", "7Q2K", "7Q2K-9XH", "7Q2K-9XHDD", "7Q2K-9XHU", "7Q2K-9XH?", "７Q2K-9XHD"] {
            assert_eq!(text.parse::<Code>(), Err(CodeError), "{text}");
        }
    }
}
