//! Converts bytes to hexadecimal text, and back.

use std::fmt::Write as _;

/// Lowercase hexadecimal digits, two a byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal text; white space and colons between digits are ignored.
///
/// **Errors:** another character, or an odd number of digits; the text says which and where.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for (offset, char) in text.char_indices() {
        if char.is_ascii_whitespace() || char == ':' {
            continue;
        }
        let digit =
            char.to_digit(16).ok_or_else(|| format!("{char:?} at {offset} is no hexadecimal digit"))?;
        let digit = digit as u8;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    if high.is_some() { Err("odd number of hexadecimal digits".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_separators_gives_its_bytes() {
        assert_eq!(decode("00:ff 0A\n1b"), Ok(vec![0, 255, 10, 27]));
        assert_eq!(encode(&[0, 255, 10, 27]), "00ff0a1b");
        assert_eq!(decode(""), Ok(vec![]));
    }

    #[test]
    fn anything_else_says_where_it_is_wrong() {
        assert_eq!(decode("00gg"), Err("'g' at 2 is no hexadecimal digit".to_owned()));
        assert_eq!(decode("000"), Err("odd number of hexadecimal digits".to_owned()));
    }
}
