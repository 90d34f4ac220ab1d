//! Prints CBOR in diagnostic notation (RFC 8949 8), with line breaks in long items.

use std::fmt::Write as _;

use capd_proto::cbor::{Error, Kind, Reader, check};

/// Diagnostic notation of one item, whose first line stands at `indent` columns.
///
/// **Errors:** the bytes are not one item that PROTOCOL 5 accepts.
pub(crate) fn notation(item: &[u8], indent: usize) -> Result<String, Error> {
    check(item)?;
    let mut out = String::new();
    block(&mut Reader::new(item), indent, &mut out)?;
    Ok(out)
}

/// One item on one line if that is short enough, else a container's members on lines of their own.
fn block(reader: &mut Reader<'_>, indent: usize, out: &mut String) -> Result<(), Error> {
    let start = reader.position();
    let mut text = String::new();
    if line(reader, &mut text, COLUMNS_MAX.saturating_sub(indent))? {
        out.push_str(&text);
        return Ok(());
    }
    reader.set_position(start);
    match reader.kind()? {
        Kind::Array => members(reader, indent, out, false),
        Kind::Map => members(reader, indent, out, true),
        Kind::Tag => {
            let _ = write!(out, "{}(", reader.tag()?);
            block(reader, indent, out)?;
            out.push(')');
            Ok(())
        }
        Kind::Unsigned
        | Kind::Negative
        | Kind::Bytes
        | Kind::Text
        | Kind::Bool
        | Kind::Null
        | Kind::Undefined
        | Kind::Float
        | Kind::Simple
        | Kind::Break => line(reader, out, usize::MAX).map(|_| ()),
    }
}

fn members(reader: &mut Reader<'_>, indent: usize, out: &mut String, is_map: bool) -> Result<(), Error> {
    let mut left = if is_map { reader.map()? } else { reader.array()? };
    out.push(if is_map { '{' } else { '[' });
    out.push_str(if left.is_none() { "_" } else { "" });
    let mut first = true;
    while reader.has_next(&mut left) {
        let _ = write!(out, "{}\n{:width$}", if first { "" } else { "," }, "", width = indent + INDENT);
        first = false;
        if is_map {
            line(reader, out, usize::MAX)?;
            out.push_str(": ");
        }
        block(reader, indent + INDENT, out)?;
    }
    let _ = write!(out, "\n{:indent$}{}", "", if is_map { '}' } else { ']' });
    Ok(())
}

/// One item on one line; false, with the reader anywhere, once `out` is longer than `bytes_max`.
fn line(reader: &mut Reader<'_>, out: &mut String, bytes_max: usize) -> Result<bool, Error> {
    match reader.kind()? {
        Kind::Unsigned | Kind::Negative => push(out, reader.int()?),
        Kind::Bytes => strings(reader, out, bytes_string)?,
        Kind::Text => strings(reader, out, text_string)?,
        Kind::Array => return list(reader, out, bytes_max, false),
        Kind::Map => return list(reader, out, bytes_max, true),
        Kind::Tag => {
            let _ = write!(out, "{}(", reader.tag()?);
            if !line(reader, out, bytes_max)? {
                return Ok(false);
            }
            out.push(')');
        }
        Kind::Bool => push(out, reader.bool()?),
        Kind::Null => {
            reader.null()?;
            out.push_str("null");
        }
        Kind::Undefined => {
            reader.simple()?;
            out.push_str("undefined");
        }
        Kind::Float => float(out, reader.float()?),
        Kind::Simple | Kind::Break => {
            let _ = write!(out, "simple({})", reader.simple()?);
        }
    }
    Ok(out.len() <= bytes_max)
}

fn list(reader: &mut Reader<'_>, out: &mut String, bytes_max: usize, is_map: bool) -> Result<bool, Error> {
    let mut left = if is_map { reader.map()? } else { reader.array()? };
    out.push(if is_map { '{' } else { '[' });
    out.push_str(if left.is_none() { "_ " } else { "" });
    let mut first = true;
    while reader.has_next(&mut left) {
        out.push_str(if first { "" } else { ", " });
        first = false;
        if is_map {
            if !line(reader, out, bytes_max)? {
                return Ok(false);
            }
            out.push_str(": ");
        }
        if !line(reader, out, bytes_max)? {
            return Ok(false);
        }
    }
    out.push(if is_map { '}' } else { ']' });
    Ok(out.len() <= bytes_max)
}

/// A string; one of indefinite length as its chunks in `(_ …)`.
fn strings(
    reader: &mut Reader<'_>,
    out: &mut String,
    one: fn(&mut Reader<'_>, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    if !reader.head()?.is_indefinite() {
        return one(reader, out);
    }
    reader.set_position(reader.position() + 1);
    out.push_str("(_ ");
    let mut first = true;
    while !reader.take_break() {
        out.push_str(if first { "" } else { ", " });
        first = false;
        one(reader, out)?;
    }
    out.push(')');
    Ok(())
}

fn bytes_string(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Error> {
    let bytes = reader.bytes()?;
    let _ = write!(out, "h'{}'", crate::hex::encode(&bytes));
    Ok(())
}

fn text_string(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Error> {
    // serde_json's escapes are the ones the notation takes from JSON; what it leaves raw may still steer or hide.
    out.push_str(&crate::output::escaped(&serde_json::Value::from(reader.text()?).to_string()));
    Ok(())
}

fn float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        let _ = write!(out, "{value:?}");
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

/// Columns after which a container is broken over lines.
const COLUMNS_MAX: usize = 100;
/// Columns that a container's members stand further in.
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hex: &str) -> String {
        notation(&crate::hex::decode(hex).unwrap(), 0).unwrap()
    }

    #[test]
    fn examples_of_rfc_8949_appendix_a_read_as_it_prints_them() {
        for (hex, text) in [
            ("00", "0"),
            ("1bffffffffffffffff", "18446744073709551615"),
            ("3bffffffffffffffff", "-18446744073709551616"),
            ("f90000", "0.0"),
            ("f98000", "-0.0"),
            ("f93e00", "1.5"),
            ("fb7e37e43c8800759c", "1e300"),
            ("f97c00", "Infinity"),
            ("f97e00", "NaN"),
            ("f9fc00", "-Infinity"),
            ("f4", "false"),
            ("f6", "null"),
            ("f7", "undefined"),
            ("f0", "simple(16)"),
            ("f8ff", "simple(255)"),
            ("c11a514b67b0", "1(1363896240)"),
            ("4401020304", "h'01020304'"),
            ("62225c", r#""\"\\""#),
            ("62c3bc", "\"ü\""),
            ("8301820203820405", "[1, [2, 3], [4, 5]]"),
            ("a201020304", "{1: 2, 3: 4}"),
            ("5f42010243030405ff", "(_ h'0102', h'030405')"),
            ("7f657374726561646d696e67ff", r#"(_ "strea", "ming")"#),
            ("9fff", "[_ ]"),
            ("bf61610161629f0203ffff", r#"{_ "a": 1, "b": [_ 2, 3]}"#),
        ] {
            assert_eq!(of(hex), text, "{hex}");
        }
    }

    #[test]
    fn a_long_container_is_broken_over_lines() {
        let mut item = vec![0xa2, 0x61, b'a', 0x98, 60];
        item.extend([0x18, 0xc8].repeat(60));
        item.extend([0x61, b'b', 0xa1, 0x01, 0x02]);
        let text = notation(&item, 0).unwrap();
        assert!(text.starts_with("{\n  \"a\": [\n    200,\n    200,"), "{text}");
        assert!(text.ends_with("    200\n  ],\n  \"b\": {1: 2}\n}"), "{text}");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(of("641b5b324a"), r#""\u001b[2J""#);
        assert_eq!(of("62c29b"), r#""\u009b""#);
    }

    #[test]
    fn bytes_that_are_not_one_item_are_an_error() {
        for hex in ["", "61", "0000", "a10101a1", "ff"] {
            assert!(notation(&crate::hex::decode(hex).unwrap(), 0).is_err(), "{hex}");
        }
    }
}
