//! Normalizes CDDL text: rewrites it in the spelling that the parser accepts.
//!
//! The parser reads byte strings only as upper-case `h'…'` or as raw text, and knows no `b64'…'`. It cuts an unknown
//! control operator at the longest known name (`.cborseq` becomes `.cbor seq`). This module therefore rewrites byte
//! strings, and looks up each control operator by its whole name, before the parser sees the text. It also cuts the text into
//! its rules.

use super::CompileError;

/// Control operators that the compiler carries out. **Source:** RFC 8610 3.8, RFC 9165.
const CONTROLS: &[&str] = &[
    "and", "bits", "cat", "cbor", "default", "det", "eq", "feature", "ge", "gt", "le", "lt", "ne", "plus",
    "regexp", "size", "within",
];

/// Respells `text` for the parser.
///
/// **Errors:** a control operator or byte-string prefix that is not supported, by name; a byte string that is no text
/// of its base.
pub(super) fn respell(text: &str) -> Result<String, CompileError> {
    let mut source = Source { text, at: 0, out: String::with_capacity(text.len()) };
    while let Some(next) = source.peek(0) {
        match next {
            // The parser would pass over a comment at each place where it tries something.
            b';' => source.skip_line(),
            b'"' => source.text_string()?,
            b'\'' => source.byte_string("")?,
            b'.' => source.dots()?,
            b'0'..=b'9' => source.number(),
            _ if is_letter(next) => source.word()?,
            _ => source.copy_char(),
        }
    }
    Ok(source.out)
}

/// One rule of a respelled text, before anything but its beginning is looked at.
pub(super) struct Rule<'t> {
    pub(super) name: &'t str,
    pub(super) params: Vec<&'t str>,
    /// Whether it adds a choice to what is defined elsewhere.
    pub(super) extends: bool,
    pub(super) text: &'t str,
}

/// Cuts respelled text into its rules: one begins with the name before an assignment that no bracket holds. Text that
/// is no CDDL is cut into pieces that are none.
pub(super) fn rules(text: &str) -> Vec<Rule<'_>> {
    let bytes = text.as_bytes();
    let end = |from: usize, holds: &dyn Fn(u8) -> bool| {
        bytes[from..].iter().position(|b| !holds(*b)).map_or(bytes.len(), |length| from + length)
    };
    let mut rules: Vec<(usize, Rule<'_>)> = Vec::new();
    // The last name, with the names in angle brackets after it: one that is assigned to has only these.
    let mut head: Option<(usize, &str)> = None;
    let mut params = Vec::new();
    let (mut at, mut depth, mut is_in_angles) = (0, 0_usize, false);
    while let Some(byte) = bytes.get(at) {
        let from = at;
        at += 1;
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_text(bytes, at),
            b'\'' => at = end(at, &|b| b != b'\'') + 1,
            b'0'..=b'9' => at = end(at, &|b| b.is_ascii_alphanumeric()),
            _ if is_letter(*byte) => {
                at = end_of_word(bytes, from);
                match (depth, is_in_angles) {
                    (0, true) => params.push(&text[from..at]),
                    (0, false) => {
                        head = Some((from, &text[from..at]));
                        params.clear();
                    }
                    _ => {}
                }
            }
            b'=' if bytes.get(at) == Some(&b'>') => at += 1,
            b'<' if depth == 0 => is_in_angles = true,
            b'>' if depth == 0 => is_in_angles = false,
            b'=' if depth == 0 => {
                let Some((begin, name)) = head.take() else { continue };
                let extends = from > 0 && bytes[from - 1] == b'/';
                rules.push((begin, Rule { name, params: std::mem::take(&mut params), extends, text: "" }));
            }
            _ => {}
        }
    }
    // Whatever stands before the first is part of it, so that nothing is passed over.
    let mut to = text.len();
    for at in (0..rules.len()).rev() {
        let from = if at == 0 { 0 } else { rules[at].0 };
        rules[at].1.text = &text[from..to];
        to = from;
    }
    rules.into_iter().map(|(_, rule)| rule).collect()
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'@' | b'_' | b'$')
}

/// Where the name that begins at `at` ends.
fn end_of_word(bytes: &[u8], mut at: usize) -> usize {
    let letter = |b: &u8| is_letter(*b) || b.is_ascii_digit();
    while let Some(next) = bytes.get(at) {
        let joined = matches!(next, b'-' | b'.') && bytes.get(at + 1).is_some_and(letter);
        if !letter(next) && !joined {
            break;
        }
        at += 1;
    }
    at
}

/// Where the text string ends whose content begins at `at`.
fn end_of_text(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte == b'"' {
            break;
        }
    }
    at.min(bytes.len())
}

struct Source<'t> {
    text: &'t str,
    at: usize,
    out: String,
}

impl<'t> Source<'t> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn copy_char(&mut self) {
        if let Some(c) = self.text[self.at..].chars().next() {
            self.out.push(c);
            self.at += c.len_utf8();
        }
    }

    fn copy_while(&mut self, mut wanted: impl FnMut(u8) -> bool) {
        while self.peek(0).is_some_and(&mut wanted) {
            self.copy_char();
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    fn text_string(&mut self) -> Result<(), CompileError> {
        self.copy_char();
        loop {
            match self.peek(0) {
                None => return Err(CompileError::Syntax("a text string is not closed".into())),
                Some(b'"') => {
                    self.copy_char();
                    return Ok(());
                }
                Some(b'\\') => {
                    self.copy_char();
                    self.copy_char();
                }
                Some(_) => self.copy_char(),
            }
        }
    }

    fn number(&mut self) {
        self.copy_while(|b| b.is_ascii_alphanumeric());
        if self.peek(0) == Some(b'.') && self.peek(1).is_some_and(|b| b.is_ascii_digit()) {
            self.copy_char();
            self.copy_while(|b| b.is_ascii_alphanumeric());
        }
    }

    /// An identifier, or the prefix of a byte string.
    fn word(&mut self) -> Result<(), CompileError> {
        let start = self.at;
        self.at = end_of_word(self.text.as_bytes(), start);
        let word = &self.text[start..self.at];
        match self.peek(0) {
            Some(b'\'') => self.byte_string(word),
            Some(b'"') if word == "h" => Err(unsupported("h\"…\"")),
            Some(_) | None => {
                self.out.push_str(word);
                Ok(())
            }
        }
    }

    /// A range operator, or a control operator with its name.
    fn dots(&mut self) -> Result<(), CompileError> {
        if !self.peek(1).is_some_and(|b| b.is_ascii_alphabetic()) {
            self.copy_while(|b| b == b'.');
            return Ok(());
        }
        let rest = &self.text[self.at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        let name = &rest[..end];
        if !CONTROLS.contains(&name) {
            return Err(unsupported(&format!("the control operator `.{name}`")));
        }
        self.out.push('.');
        self.out.push_str(name);
        self.at += 1 + end;
        Ok(())
    }

    fn byte_string(&mut self, prefix: &str) -> Result<(), CompileError> {
        let open = self.at + 1;
        let mut content = Vec::new();
        let mut at = open;
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(at) {
                None => return Err(CompileError::Syntax("a byte string is not closed".into())),
                Some(b'\'') => break,
                Some(b'\\') if prefix.is_empty() => {
                    let c = self.text[at + 1..].chars().next().unwrap_or('\\');
                    content.extend_from_slice(unescaped(c)?.encode_utf8(&mut [0; 4]).as_bytes());
                    at += 1 + c.len_utf8();
                }
                Some(byte) => {
                    content.push(*byte);
                    at += 1;
                }
            }
        }
        let value = match prefix {
            "" => Some(content),
            "h" => base16(&content),
            "b64" => base64(&content),
            _ => return Err(unsupported(&format!("a byte string `{prefix}'…'`"))),
        };
        let value = value.ok_or_else(|| {
            CompileError::Syntax(format!("not a byte string: {prefix}'{}'", &self.text[open..at]))
        })?;
        self.out.push_str("h'");
        for byte in value {
            self.out.push_str(&format!("{byte:02X}"));
        }
        self.out.push('\'');
        self.at = at + 1;
        Ok(())
    }
}

fn unsupported(construct: &str) -> CompileError {
    CompileError::Unsupported { rule: String::new(), construct: construct.into() }
}

/// The escapes of RFC 8610's SESC that stand for one character each.
fn unescaped(c: char) -> Result<char, CompileError> {
    match c {
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        't' => Ok('\t'),
        'b' => Ok('\u{8}'),
        'f' => Ok('\u{c}'),
        '\'' | '"' | '\\' | '/' => Ok(c),
        _ => Err(unsupported(&format!("the escape `\\{c}` in a byte string"))),
    }
}

fn base16(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .iter()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| char::from(*b).to_digit(16).map(|d| d as u8))
        .collect();
    let digits = digits?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Both alphabets of RFC 4648, padding optional.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0u32);
    let mut symbols = text.iter().filter(|b| !b.is_ascii_whitespace()).peekable();
    while let Some(symbol) = symbols.next_if(|b| **b != b'=') {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (symbols.all(|b| *b == b'=') && bits == 0 && count < 6).then_some(out)
}
