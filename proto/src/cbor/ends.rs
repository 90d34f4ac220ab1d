//! Remembers where containers end, so that a second pass can skip them.
//!
//! To find the keys of an unsorted map, the writer skips its values. Without this memory, nested unsorted maps would
//! have their innermost items skipped once for each of up to 64 levels.

use super::error::{Error, ErrorKind};
use super::item::{head_at, skip_at, skip_with};
use super::reader::Reader;
use crate::limits::CBOR_DEPTH_MAX;

/// Where containers of one input end, by where they begin.
#[derive(Debug, Default)]
pub(super) struct Ends {
    known: Vec<(u32, u32)>,
}

impl Ends {
    /// Nothing is known.
    pub(super) const fn none() -> Self {
        Self { known: Vec::new() }
    }

    /// The ends of the containers in the item at `start` that pay for it: one for each [`CONTAINER_BYTES_MIN`] bytes at
    /// most. What is no item is walked through as before, and refused where that is noticed.
    pub(super) fn of(bytes: &[u8], start: usize) -> Self {
        let mut ends = Self::none();
        if bytes.len() - start < 2 * CONTAINER_BYTES_MIN || u32::try_from(bytes.len()).is_err() {
            return ends;
        }
        if ends.note(bytes, start, 0).is_err() {
            return Self::none();
        }
        // A container is noted at its end, behind those in it.
        ends.known.sort_unstable();
        ends
    }

    /// Notes the containers of the item at `start`; the offset behind it.
    fn note(&mut self, bytes: &[u8], start: usize, depth: usize) -> Result<usize, Error> {
        let head = head_at(bytes, start)?;
        let is_container = matches!(head.major, 4..=6);
        if !is_container {
            return skip_at(bytes, start, depth);
        }
        if depth > CBOR_DEPTH_MAX {
            return Err(Error::new(start, ErrorKind::TooDeep));
        }
        let before = self.known.len();
        let mut reader = Reader::new(bytes);
        reader.set_position(start + head.head_bytes);
        let mut left = match head.major {
            _ if head.is_indefinite() => None,
            4 => Some(head.argument),
            5 => Some(head.argument.saturating_mul(2)),
            _ => Some(1),
        };
        while reader.has_next(&mut left) {
            let end = self.note(bytes, reader.position(), depth + 1)?;
            reader.set_position(end);
        }
        let end = reader.position();
        let noted = self.known.len() - before;
        if (noted + 2) * CONTAINER_BYTES_MIN <= end - start {
            self.known.push((start as u32, end as u32));
        }
        Ok(end)
    }

    /// Knows where a container ends, and no more where those in it do. Whatever is known stands before its end.
    pub(super) fn enclose(&mut self, start: usize, end: usize) {
        let Ok(places) = u32::try_from(start).and_then(|start| Ok((start, u32::try_from(end)?))) else {
            return;
        };
        if end - start >= CONTAINER_BYTES_MIN {
            while self.known.pop_if(|(inner, _)| *inner > places.0).is_some() {}
            self.known.push(places);
        }
    }

    /// The item that is next, as its raw bytes; moves behind it.
    pub(super) fn skip<'a>(&self, reader: &mut Reader<'a>) -> Result<&'a [u8], Error> {
        let start = reader.position();
        let end = skip_with(reader.input(), start, 0, &|at| self.end(at))?;
        reader.set_position(end);
        Ok(&reader.input()[start..end])
    }

    fn end(&self, start: usize) -> Option<usize> {
        let found = self.known.binary_search_by_key(&start, |(known, _)| *known as usize).ok()?;
        Some(self.known[found].1 as usize)
    }
}

/// Bytes of a container for each end that is known in it, its own included, and as many once more.
const CONTAINER_BYTES_MIN: usize = 32;
