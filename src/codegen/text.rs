//! Turns foreign texts into literals and comments that they cannot leave.

use std::fmt::Write as _;

use crate::text::is_hidden;

/// How a language writes a character in a string between double quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// `\u202e`, beyond U+FFFF as two: JSON, JavaScript.
    Utf16,
    /// `\u202e`, `\U0001f600`: Python, Go.
    Fixed,
    /// `\u{202e}`: Rust.
    Braced,
}

/// A string literal between double quotes, on one line and without a character that is not seen.
pub(super) fn literal(text: &str, escapes: Escapes) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(char),
            char if char.is_alphanumeric() && !is_hidden(char) => out.push(char),
            char => escape(char, escapes, &mut out),
        }
    }
    out.push('"');
    out
}

fn escape(char: char, escapes: Escapes, out: &mut String) {
    let code = u32::from(char);
    let _ = match escapes {
        Escapes::Utf16 => {
            char.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
        }
        Escapes::Fixed if code > 0xffff => write!(out, "\\U{code:08x}"),
        Escapes::Fixed => write!(out, "\\u{code:04x}"),
        Escapes::Braced => write!(out, "\\u{{{code:x}}}"),
    };
}

/// The lines of a comment: none ends early, steers a terminal, or hides; empty ones at either end are left out.
pub(super) fn comment_lines(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<String> =
        text.trim().lines().map(|line| crate::text::line(line).trim_end().to_owned()).collect();
    if lines.len() > COMMENT_LINES_MAX {
        lines.truncate(COMMENT_LINES_MAX);
        lines.push("[…]".to_owned());
    }
    lines
}

/// One line of a comment.
pub(super) fn comment_line(text: &str) -> String {
    crate::text::line(text).trim().to_owned()
}

/// Longest comment that a description makes.
const COMMENT_LINES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_stays_between_its_quotes() {
        let text = "a\"b\\c\n\r\t`${x}\u{202e}\u{2028}é日😀\u{0}";
        assert_eq!(literal(text, Escapes::Utf16), r#""a\"b\\c\n\r\t`${x}\u202e\u2028é日\ud83d\ude00\u0000""#);
        assert_eq!(literal("😀\u{7f}", Escapes::Fixed), r#""\U0001f600\u007f""#);
        assert_eq!(literal("😀\u{7f}", Escapes::Braced), r#""\u{1f600}\u{7f}""#);
        let json = literal(text, Escapes::Utf16);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_comment_has_no_line_end_but_its_own() {
        assert_eq!(
            comment_lines("\n a\r\nb\rc\u{2028}d\u{85}\u{b}e \n\n"),
            ["a", "b", "c\\u{2028}d\\u{85}\\u{b}e"]
        );
        assert_eq!(comment_lines(" \n "), Vec::<String>::new());
        assert_eq!(comment_lines(&"x\n".repeat(1_000)).len(), COMMENT_LINES_MAX + 1);
    }
}
