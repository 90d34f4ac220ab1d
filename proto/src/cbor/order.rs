//! Compares two encoded keys by the order of their deterministic encodings (RFC 8949 4.2.1).
//!
//! The comparison walks both keys head by head, in any encoding, and rewrites nothing. No encoding is a prefix of
//! another, so bytes behind a key are never read. For keys of definite lengths the walk ends at the first difference,
//! and takes no longer than a walk over the shorter key.

use std::cmp::Ordering;

use super::error::Error;
use super::item::{Head, head_at, string_end};
use super::reader::Reader;
use super::writer::shortest_float;

/// Compares the keys that `a` and `b` begin with, in the bytewise order of their deterministic encodings.
///
/// Both have been skipped before, and the pairs of maps in them stand in order.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    // What has been skipped has an end, so nothing fails here.
    items(&mut Reader::new(a), &mut Reader::new(b), Stop::Difference).unwrap_or(Ordering::Equal)
}

/// The content of an encoded string, in one piece or in its chunks; nothing of anything else.
pub(super) fn chunks(string: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let is_indefinite = head_at(string, 0).is_ok_and(|head| head.is_indefinite());
    let mut at = usize::from(is_indefinite);
    std::iter::from_fn(move || {
        let head = head_at(string, at).ok().filter(|head| matches!(head.major, 2 | 3))?;
        let content = at + head.head_bytes;
        at = string_end(string, at, head).ok()?;
        Some(&string[content..at])
    })
}

/// How far two walks go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// To the first difference, wherever that leaves them.
    Difference,
    /// To the ends of both items.
    End,
}

/// Compares the items that are next.
fn items(a: &mut Reader<'_>, b: &mut Reader<'_>, stop: Stop) -> Result<Ordering, Error> {
    // What is in containers of one length differs where their items do, so they need no level of their own.
    let mut left = 1;
    while left > 0 {
        left -= 1;
        let (order, inside) = heads(a, b, stop)?;
        if order != Ordering::Equal {
            if stop == Stop::End {
                skip(a, left)?;
                skip(b, left)?;
            }
            return Ok(order);
        }
        left += inside;
    }
    Ok(Ordering::Equal)
}

/// Compares the items that are next but for what is in them, of which it says how many items that is.
fn heads(a: &mut Reader<'_>, b: &mut Reader<'_>, stop: Stop) -> Result<(Ordering, u64), Error> {
    let (x, y) = (a.head()?, b.head()?);
    let order = match (x.major, y.major) {
        (2, 2) | (3, 3) => return Ok((strings(a, b, x, y)?, 0)),
        (4, 4) | (5, 5) if x.is_indefinite() || y.is_indefinite() => {
            return Ok((containers(a, b, x, y, stop)?, 0));
        }
        (7, 7) => simple(a, x).cmp(&simple(b, y)),
        _ => (x.major, x.argument).cmp(&(y.major, y.argument)),
    };
    if order == Ordering::Equal {
        a.set_position(a.position() + x.head_bytes);
        b.set_position(b.position() + y.head_bytes);
        return Ok((order, inside(x).unwrap_or(0)));
    }
    if stop == Stop::End {
        skip(a, 1)?;
        skip(b, 1)?;
    }
    Ok((order, 0))
}

/// How many items are next within what `head` opens; `None` up to a break.
fn inside(head: Head) -> Option<u64> {
    match head.major {
        4 | 5 if head.is_indefinite() => None,
        4 => Some(head.argument),
        5 => Some(head.argument.saturating_mul(2)),
        6 => Some(1),
        _ => Some(0),
    }
}

/// Additional information and argument of the shortest encoding of the float or simple value that is next.
fn simple(reader: &Reader<'_>, head: Head) -> (u8, u64) {
    let mut reader = *reader;
    reader.float().map_or((head.info, head.argument), shortest_float)
}

/// Compares the strings that are next by their lengths, then by their content, and moves over them.
fn strings(a: &mut Reader<'_>, b: &mut Reader<'_>, x: Head, y: Head) -> Result<Ordering, Error> {
    let (a, b) = (a.skip()?, b.skip()?);
    if !x.is_indefinite() && !y.is_indefinite() {
        let by_content = || a[x.head_bytes..].cmp(&b[y.head_bytes..]);
        return Ok(x.argument.cmp(&y.argument).then_with(by_content));
    }
    let bytes = |string| chunks(string).map(<[u8]>::len).sum::<usize>();
    let by_content = || chunks(a).flatten().cmp(chunks(b).flatten());
    Ok(bytes(a).cmp(&bytes(b)).then_with(by_content))
}

/// Compares the containers that are next, of which at least one says how many items are in it at its end alone: the longer
/// one is greater, whatever is in it.
fn containers(
    a: &mut Reader<'_>,
    b: &mut Reader<'_>,
    x: Head,
    y: Head,
    stop: Stop,
) -> Result<Ordering, Error> {
    a.set_position(a.position() + x.head_bytes);
    b.set_position(b.position() + y.head_bytes);
    let (mut left_a, mut left_b) = (inside(x), inside(y));
    let mut order = Ordering::Equal;
    loop {
        match (a.has_next(&mut left_a), b.has_next(&mut left_b)) {
            (true, true) if order == Ordering::Equal => order = items(a, b, Stop::End)?,
            (true, true) => {
                skip(a, 1)?;
                skip(b, 1)?;
            }
            (true, false) => return rest(a, left_a, stop).map(|()| Ordering::Greater),
            (false, true) => return rest(b, left_b, stop).map(|()| Ordering::Less),
            (false, false) => return Ok(order),
        }
    }
}

/// Moves to the end of a container, the next item of which has been counted, if the walk goes there.
fn rest(reader: &mut Reader<'_>, mut left: Option<u64>, stop: Stop) -> Result<(), Error> {
    if stop == Stop::End {
        skip(reader, 1)?;
        while reader.has_next(&mut left) {
            skip(reader, 1)?;
        }
    }
    Ok(())
}

fn skip(reader: &mut Reader<'_>, items: u64) -> Result<(), Error> {
    for _ in 0..items {
        reader.skip()?;
    }
    Ok(())
}
