//! Checked CBOR in, the same value in deterministic encoding out (RFC 8949 4.2.1).

use std::cmp::Ordering;

use super::error::{Error, ErrorKind};
use super::reader::{Kind, Reader, skip_at};
use super::writer::Writer;
use crate::limits::CBOR_DEPTH_MAX;

/// Appends the deterministic encoding of the one item in `bytes`, which [`check`](super::check) has accepted.
///
/// **Errors:** bytes that are not well-formed. **Source:** PROTOCOL 5, RFC 8949 4.2.1.
pub fn deterministic(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let end = deterministic_at(bytes, 0, out)?;
    if end < bytes.len() {
        return Err(Error::new(end, ErrorKind::TrailingBytes));
    }
    Ok(())
}

/// Appends the deterministic encoding of the item at `start` and returns the offset behind it.
pub(crate) fn deterministic_at(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, Error> {
    let mut reader = Reader::new(bytes);
    reader.set_position(start);
    rewrite(&mut reader, 0, out)?;
    Ok(reader.position())
}

/// Whether the one item in `bytes` is in deterministic encoding; bytes that are no item are not.
///
/// Cost is linear in the bytes and nothing is allocated. **Source:** RFC 8949 4.2.1.
pub fn is_deterministic(bytes: &[u8]) -> bool {
    matches!(deterministic_end(bytes, 0, 0), Ok(Some(end)) if end == bytes.len())
}

fn rewrite(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    if depth > CBOR_DEPTH_MAX {
        return Err(Error::new(reader.position(), ErrorKind::TooDeep));
    }
    match reader.kind()? {
        Kind::Unsigned | Kind::Negative => {
            Writer::new(out).int(reader.int()?);
        }
        Kind::Bytes => rewrite_string(reader, 2, out)?,
        Kind::Text => rewrite_string(reader, 3, out)?,
        Kind::Array => rewrite_array(reader, depth, out)?,
        Kind::Map => rewrite_map(reader, depth, out)?,
        Kind::Tag => {
            Writer::new(out).tag(reader.tag()?);
            rewrite(reader, depth + 1, out)?;
        }
        Kind::Float => {
            Writer::new(out).float(reader.float()?);
        }
        Kind::Bool | Kind::Null | Kind::Undefined | Kind::Simple => {
            Writer::new(out).simple(reader.simple()?);
        }
        Kind::Break => return Err(Error::new(reader.position(), ErrorKind::UnexpectedBreak)),
    }
    Ok(())
}

/// A string, whose chunks are put behind each other where they belong: it may be most of a message.
fn rewrite_string(reader: &mut Reader<'_>, major: u8, out: &mut Vec<u8>) -> Result<(), Error> {
    if !reader.head()?.is_indefinite() {
        let mut writer = Writer::new(out);
        if major == 2 {
            writer.bytes(&reader.bytes()?)
        } else {
            writer.text(&reader.text()?)
        };
        return Ok(());
    }
    let (offset, start) = (reader.position(), out.len());
    reader.join_chunks(major, out)?;
    if major == 3 && std::str::from_utf8(&out[start..]).is_err() {
        return Err(Error::new(offset, ErrorKind::InvalidUtf8));
    }
    let bytes = out.len() - start;
    let mut writer = Writer::new(out);
    if major == 2 {
        writer.bytes_head(bytes as u64)
    } else {
        writer.text_head(bytes as u64)
    };
    let head_bytes = out.len() - start - bytes;
    out[start..].rotate_right(head_bytes);
    Ok(())
}

fn rewrite_array(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut left = reader.array()?;
    let count = match left {
        Some(count) => count,
        None => {
            let mut ahead = *reader;
            let mut count = 0;
            while !ahead.take_break() {
                ahead.skip()?;
                count += 1;
            }
            count
        }
    };
    Writer::new(out).array(count);
    while reader.has_next(&mut left) {
        rewrite(reader, depth + 1, out)?;
    }
    Ok(())
}

fn rewrite_map(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut left = reader.map()?;
    let mut pairs = Vec::new();
    let mut encoded = Vec::new();
    while reader.has_next(&mut left) {
        let from = encoded.len();
        rewrite(reader, depth + 1, &mut encoded)?;
        let key_end = encoded.len();
        rewrite(reader, depth + 1, &mut encoded)?;
        pairs.push((from, key_end, encoded.len()));
    }
    pairs.sort_by(|a, b| encoded[a.0..a.1].cmp(&encoded[b.0..b.1]));
    let mut writer = Writer::new(out);
    writer.map(pairs.len() as u64);
    for (from, _, end) in pairs {
        writer.raw(&encoded[from..end]);
    }
    Ok(())
}

/// End of the item at `start`, or `None` when it is well-formed so far and not deterministic.
fn deterministic_end(bytes: &[u8], start: usize, depth: usize) -> Result<Option<usize>, Error> {
    let mut reader = Reader::new(bytes);
    reader.set_position(start);
    let head = reader.head()?;
    let after = start + head.head_bytes;
    if head.kind() == Kind::Float {
        let value = reader.float()?;
        return Ok(is_shortest_float(value, head.info, head.argument).then_some(after));
    }
    if head.is_indefinite() || !head.is_shortest() || depth > CBOR_DEPTH_MAX {
        return Ok(None);
    }
    match head.major {
        4 => {
            let mut at = after;
            for _ in 0..head.argument {
                match deterministic_end(bytes, at, depth + 1)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                }
            }
            Ok(Some(at))
        }
        5 => deterministic_map_end(bytes, after, head.argument, depth),
        6 => deterministic_end(bytes, after, depth + 1),
        _ => skip_at(bytes, start, depth).map(Some),
    }
}

fn deterministic_map_end(
    bytes: &[u8],
    first: usize,
    pairs: u64,
    depth: usize,
) -> Result<Option<usize>, Error> {
    let mut at = first;
    let mut last_key: Option<&[u8]> = None;
    for _ in 0..pairs {
        let Some(key_end) = deterministic_end(bytes, at, depth + 1)? else { return Ok(None) };
        let key = &bytes[at..key_end];
        if last_key.is_some_and(|last| last.cmp(key) != Ordering::Less) {
            return Ok(None);
        }
        last_key = Some(key);
        let Some(end) = deterministic_end(bytes, key_end, depth + 1)? else { return Ok(None) };
        at = end;
    }
    Ok(Some(at))
}

fn is_shortest_float(value: f64, info: u8, bits: u64) -> bool {
    if value.is_nan() {
        return info == 25 && bits == 0x7e00;
    }
    let fits_half = half::f16::from_f64(value).to_f64() == value;
    let fits_single = f64::from(value as f32) == value;
    match info {
        25 => true,
        26 => !fits_half,
        _ => !fits_half && !fits_single,
    }
}
