//! Rewrites checked CBOR in deterministic encoding (RFC 8949 4.2.1).

use std::cmp::Ordering;

use super::ends::Ends;
use super::error::{Error, ErrorKind};
use super::item::{Kind, skip_at};
use super::keys::{self, Keys};
use super::order;
use super::reader::Reader;
use super::writer::Writer;
use crate::limits::CBOR_DEPTH_MAX;

/// Appends the deterministic encoding of the one item in `bytes`, which must have passed [`check`](super::check).
///
/// Besides `out` it needs a quarter of `bytes`, and 4 bytes for each pair of an unsorted map while that map is written.
/// The time depends on the bytes and the order of the keys, not on how deeply maps nest.
///
/// **Errors:** bytes that are not well-formed. **Source:** PROTOCOL 5, RFC 8949 4.2.1.
pub fn deterministic(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    whole(bytes, &mut Rewriter { out, put: None, is_ordered: true, ends: Ends::of(bytes, 0) })
}

/// Gives the deterministic encoding of the one item in `bytes` to `put`, piece by piece; `scratch` is overwritten.
///
/// **Errors:** as [`deterministic`].
pub fn deterministic_pieces(
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    put: &mut dyn FnMut(&[u8]),
) -> Result<(), Error> {
    pieces(bytes, scratch, put, true)
}

/// Length of the deterministic encoding of the one item in `bytes`; `scratch` is overwritten.
///
/// **Errors:** as [`deterministic`].
pub fn deterministic_len(bytes: &[u8], scratch: &mut Vec<u8>) -> Result<usize, Error> {
    let mut length = 0;
    // The length is the same in any order of the keys.
    pieces(bytes, scratch, &mut |piece| length += piece.len(), false)?;
    Ok(length)
}

fn pieces(
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    put: &mut dyn FnMut(&[u8]),
    is_ordered: bool,
) -> Result<(), Error> {
    scratch.clear();
    let mut rewriter = Rewriter { out: scratch, put: Some(put), is_ordered, ends: Ends::of(bytes, 0) };
    whole(bytes, &mut rewriter)?;
    rewriter.put_out();
    Ok(())
}

fn whole(bytes: &[u8], rewriter: &mut Rewriter<'_>) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    rewriter.item(&mut reader, 0)?;
    match reader.position() {
        end if end < bytes.len() => Err(Error::new(end, ErrorKind::TrailingBytes)),
        _ => Ok(()),
    }
}

/// Appends the deterministic encoding of the item at `start` and returns the offset behind it.
pub(crate) fn deterministic_at(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, Error> {
    let mut reader = Reader::new(bytes);
    reader.set_position(start);
    Rewriter { out, put: None, is_ordered: true, ends: Ends::none() }.item(&mut reader, 0)?;
    Ok(reader.position())
}

/// Whether the one item in `bytes` is in deterministic encoding; bytes that are no item are not.
///
/// Cost is linear in the bytes and nothing is allocated. **Source:** RFC 8949 4.2.1.
pub fn is_deterministic(bytes: &[u8]) -> bool {
    matches!(deterministic_end(bytes, 0, 0), Ok(Some(end)) if end == bytes.len())
}

/// Takes a piece of what is written.
type Put<'a> = &'a mut dyn FnMut(&[u8]);

/// Writes items anew.
struct Rewriter<'a> {
    out: &'a mut Vec<u8>,
    /// Receives the content of `out` whenever it has grown to a piece; without it everything stays there.
    put: Option<Put<'a>>,
    /// Whether keys are sorted.
    is_ordered: bool,
    /// Where containers of the input end, to skip them when looking for keys.
    ends: Ends,
}

impl Rewriter<'_> {
    fn item(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
        if depth > CBOR_DEPTH_MAX {
            return Err(Error::new(reader.position(), ErrorKind::TooDeep));
        }
        match reader.kind()? {
            Kind::Unsigned | Kind::Negative => {
                Writer::new(self.out).int(reader.int()?);
            }
            Kind::Bytes => self.string(reader, 2)?,
            Kind::Text => self.string(reader, 3)?,
            Kind::Array => self.array(reader, depth)?,
            Kind::Map => self.map(reader, depth)?,
            Kind::Tag => {
                Writer::new(self.out).tag(reader.tag()?);
                self.item(reader, depth + 1)?;
            }
            Kind::Float => {
                Writer::new(self.out).float(reader.float()?);
            }
            Kind::Bool | Kind::Null | Kind::Undefined | Kind::Simple => {
                Writer::new(self.out).simple(reader.simple()?);
            }
            Kind::Break => return Err(Error::new(reader.position(), ErrorKind::UnexpectedBreak)),
        }
        if self.out.len() >= PIECE_BYTES_MIN {
            self.put_out();
        }
        Ok(())
    }

    /// Gives away what has been written, if somebody takes it.
    fn put_out(&mut self) {
        if let Some(put) = &mut self.put {
            put(self.out);
            self.out.clear();
        }
    }

    /// A string or a key may be most of a message, so that its bytes go where they belong without a copy in between.
    fn raw(&mut self, bytes: &[u8]) {
        match &mut self.put {
            Some(put) if bytes.len() >= PIECE_BYTES_MIN => {
                put(self.out);
                self.out.clear();
                put(bytes);
            }
            _ => self.out.extend_from_slice(bytes),
        }
    }

    fn string(&mut self, reader: &mut Reader<'_>, major: u8) -> Result<(), Error> {
        let string = chunks(reader, major)?;
        let bytes = string.clone().map(<[u8]>::len).sum::<usize>() as u64;
        let mut writer = Writer::new(self.out);
        if major == 2 {
            writer.bytes_head(bytes)
        } else {
            writer.text_head(bytes)
        };
        for chunk in string {
            self.raw(chunk);
        }
        Ok(())
    }

    fn array(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
        let mut left = reader.array()?;
        let count = match left {
            Some(count) => count,
            None => {
                let mut ahead = *reader;
                let mut count = 0;
                while !ahead.take_break() {
                    self.ends.skip(&mut ahead)?;
                    count += 1;
                }
                count
            }
        };
        Writer::new(self.out).array(count);
        while reader.has_next(&mut left) {
            self.item(reader, depth + 1)?;
        }
        Ok(())
    }

    fn map(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
        let mut left = reader.map()?;
        let (count, is_in_order) = keys::survey(*reader, left, &self.ends)?;
        Writer::new(self.out).map(count as u64);
        if is_in_order || !self.is_ordered {
            while reader.has_next(&mut left) {
                self.item(reader, depth + 1)?;
                self.item(reader, depth + 1)?;
            }
            return Ok(());
        }
        let keys = Keys::in_order(reader, left, count, &self.ends, |_, _| Ok(()))?;
        for (start, rewritten) in keys.pairs() {
            let mut pair = *reader;
            pair.set_position(start);
            match rewritten {
                // Writing it twice would take twice as long for each map that is a key in a key.
                Some(key) => {
                    pair.skip()?;
                    self.raw(key);
                }
                None => self.item(&mut pair, depth + 1)?,
            }
            self.item(&mut pair, depth + 1)?;
        }
        reader.set_position(keys.end());
        Ok(())
    }
}

/// The content of the string that is next, in one piece or in its chunks; moves behind it.
fn chunks<'a>(
    reader: &mut Reader<'a>,
    major: u8,
) -> Result<impl Iterator<Item = &'a [u8]> + Clone + use<'a>, Error> {
    let start = reader.position();
    let string = reader.skip()?;
    let is_text = |chunk: &[u8]| major != 3 || chunk.is_ascii() || std::str::from_utf8(chunk).is_ok();
    // RFC 8949 3.2.3: each chunk is valid UTF-8 by itself.
    if order::chunks(string).all(is_text) {
        Ok(order::chunks(string))
    } else {
        Err(Error::new(start, ErrorKind::InvalidUtf8))
    }
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

/// What has been written is given away from here on; a hash takes it faster in larger pieces.
const PIECE_BYTES_MIN: usize = 4 * 1024;
