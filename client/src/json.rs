//! Converts JSON text to the CBOR item that it means, with every digit of its integers.

use capd_proto::cbor::json::from_json;
use serde_json::Value;

/// Why a text is not a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// It is not one JSON document; the text says what is wrong, with line and column.
    #[error("not JSON: {0}")]
    Malformed(String),
    /// An integer would lose digits: CBOR payloads hold integers from -2^63 to 2^64-1. **Source:** PROTOCOL 10.
    #[error("the integer {number} at byte {at} is beyond 64 bits; write it as text, or with a fraction")]
    Integer {
        /// As written, cut if long.
        number: String,
        /// Where it begins.
        at: usize,
    },
}

/// The deterministic CBOR of a JSON document. Integers keep every digit; a number with a fraction or an exponent is the
/// nearest double, as everywhere in JSON.
///
/// **Errors:** [`JsonFault`].
pub fn cbor_of_json(text: &[u8]) -> Result<Vec<u8>, JsonFault> {
    let value = value_of_json(text)?;
    let mut out = Vec::with_capacity(text.len());
    from_json(&value, &mut out);
    Ok(out)
}

/// Parses a JSON document whose integers [`cbor_of_json`] accepts.
///
/// **Errors:** [`JsonFault`].
pub fn value_of_json(text: &[u8]) -> Result<Value, JsonFault> {
    let value = serde_json::from_slice(text).map_err(|error| JsonFault::Malformed(error.to_string()))?;
    // The parser reads an integer that is too large as a double.
    match large_integer(text) {
        None => Ok(value),
        Some((at, number)) => {
            let number = String::from_utf8_lossy(&number[..number.len().min(SHOWN_MAX)]).into_owned();
            Err(JsonFault::Integer { number, at })
        }
    }
}

/// The first integer beyond 64 bits in a text that is JSON, and where it begins.
fn large_integer(text: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_text(text, at),
            b'-' | b'0'..=b'9' => {
                let rest = &text[at..];
                let is_of_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let number = &rest[..rest.iter().take_while(|byte| is_of_number(byte)).count()];
                if !is_exact(number) {
                    return Some((at, number));
                }
                at += number.len();
            }
            _ => at += 1,
        }
    }
    None
}

/// Behind the closing quote of the text that begins at `start`.
fn end_of_text(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match text.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at + 1,
            Some(_) => at += 1,
        }
    }
}

fn is_exact(number: &[u8]) -> bool {
    if number.len() < DIGITS_SAFE || number.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return true;
    }
    let text = std::str::from_utf8(number).unwrap_or_default();
    text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok()
}

/// Fewer bytes than this are never beyond 64 bits.
const DIGITS_SAFE: usize = 19;
/// Bytes of a number that an error shows.
const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use capd_proto::cbor::json::to_json;

    use super::*;

    #[test]
    fn numbers_keep_every_digit() {
        for text in [
            "0",
            "-0.0",
            "1.0",
            "0.1",
            "18446744073709551615",
            "-9223372036854775808",
            "9007199254740993",
            "5e-324",
            "1.7976931348623157e308",
            "0.30000000000000004",
            "[123456789012345678,{\"12345678901234567890123\":\"\\\"123456789012345678901234\"}]",
        ] {
            let cbor = cbor_of_json(text.as_bytes()).unwrap();
            let back = to_json(&cbor).unwrap().to_string();
            assert_eq!(back.replace("e+", "e"), text, "{text}");
        }
    }

    #[test]
    fn an_integer_that_would_lose_digits_is_refused_with_its_place() {
        for text in ["18446744073709551616", "-9223372036854775809", "[1, {\"a\": 100000000000000000000}]"] {
            let fault = cbor_of_json(text.as_bytes()).unwrap_err();
            let JsonFault::Integer { number, at } = &fault else { panic!("{text}: {fault}") };
            assert!(text[*at..].starts_with(number.as_str()), "{fault}");
        }
        assert!(cbor_of_json(b"100000000000000000000.0").is_ok());
        assert!(matches!(cbor_of_json(b"{a: 1}"), Err(JsonFault::Malformed(_))));
        assert!(matches!(cbor_of_json(b"1e999"), Err(JsonFault::Malformed(_))));
    }
}
