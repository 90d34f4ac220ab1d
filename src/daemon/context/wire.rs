//! Writes the `details` of refusals, and reads those of others.

use std::borrow::Cow;

use capd_proto::cbor::{self, Reader, Writer};
use capd_proto::code::Code;
use capd_proto::message::{self, SchemaSide};

use crate::schema::Violation;

pub(in crate::daemon) fn violation_details(side: SchemaSide, violations: &[Violation]) -> Vec<u8> {
    message::violation_details(side, &as_messages(violations))
}

fn as_messages(violations: &[Violation]) -> Vec<message::Violation<'_>> {
    let mut messages = Vec::with_capacity(violations.len());
    for Violation { path, message, keyword } in violations {
        messages.push(message::Violation {
            path: path.as_str().into(),
            message: message.as_str().into(),
            keyword: keyword.as_str().into(),
        });
    }
    messages
}

/// A map with text keys with `fields` put in, over those of the same name; deterministic as the map was.
pub(in crate::daemon) fn with_fields(map: &[u8], fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut reader = Reader::new(map);
    let mut members: Vec<(Cow<'_, str>, &[u8])> =
        fields.iter().map(|(key, value)| ((*key).into(), *value)).collect();
    let mut left = reader.map().unwrap_or(Some(0));
    while reader.has_next(&mut left) {
        let (Ok(key), Ok(value)) = (reader.text(), reader.skip()) else { break };
        if !fields.iter().any(|(name, _)| *name == key) {
            members.push((key, value));
        }
    }
    members.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut out = Vec::with_capacity(map.len() + 64);
    let mut writer = Writer::new(&mut out);
    writer.map(members.len() as u64);
    for (key, value) in members {
        writer.text(&key).raw(value);
    }
    out
}

/// How a call ended whose CAP_RESULT body this is. It was checked before, and only what is asked for is read.
pub(in crate::daemon) fn result_end(body: &[u8]) -> Option<Result<(), Code>> {
    end_of(&mut Reader::new(body))
}

/// The same of the body that a reader stands at.
pub(in crate::daemon) fn end_of(reader: &mut Reader<'_>) -> Option<Result<(), Code>> {
    let (mut is_success, mut error) = (false, None);
    let mut left = reader.map().ok()?;
    while reader.has_next(&mut left) {
        match &*reader.text().ok()? {
            "status" => is_success = reader.text().ok()? == "success",
            "error" => error = Some(reader.skip().ok()?),
            _ => drop(reader.skip().ok()?),
        }
    }
    if is_success {
        return Some(Ok(()));
    }
    // An error of another making has no code; it counts as it is read everywhere else.
    Some(Err(error_code(error?).unwrap_or(Code::INTERNAL_ERROR)))
}

fn error_code(error: &[u8]) -> Option<Code> {
    let mut error = Reader::new(error);
    let mut left = error.map().ok()?;
    while error.has_next(&mut left) {
        if error.text().ok()? == "code" {
            return Some(Code(u32::try_from(error.uint().ok()?).unwrap_or(u32::MAX)));
        }
        error.skip().ok()?;
    }
    None
}

/// One CBOR unsigned integer.
pub(in crate::daemon) fn uint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).uint(value);
    out
}

/// One CBOR text.
pub(in crate::daemon) fn text(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).text(value);
    out
}

/// `details` of a result that the caller's sidecar found wanting, with the result itself unless it is longer than `bytes_max` less
/// what stands around it: an answer that is too long would not reach the agent at all. **Source:** PROTOCOL 7.4.
pub(in crate::daemon) fn raw_violation_details(
    side: SchemaSide,
    violations: &[Violation],
    raw: Option<&[u8]>,
    bytes_max: usize,
) -> Vec<u8> {
    let details = violation_details(side, violations);
    match raw.filter(|raw| details.len() + raw.len() <= bytes_max) {
        Some(raw) => with_fields(&details, &[("raw", raw)]),
        None => details,
    }
}

/// Whether an item is not nested too deeply to stand within the details of an error, its body and an envelope. Takes long
/// for a large one.
pub(in crate::daemon) fn fits_deeper(item: &[u8]) -> bool {
    cbor::check_within(item, 8).is_ok()
}

/// The pause that an ERROR's `details` ask for, in milliseconds.
pub(in crate::daemon) fn retry_after_ms(details: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(details);
    let mut left = reader.map().ok()?;
    while reader.has_next(&mut left) {
        if reader.text().ok()? == "retry_after_seconds" {
            // A pause without an end is still one.
            return Some(reader.uint().ok()?.saturating_mul(1_000));
        }
        reader.skip().ok()?;
    }
    None
}

/// The `details` of an ERROR for a call with a durable tombstone: `{"released": true}`. **Source:** PROTOCOL 8.
pub(in crate::daemon) fn released_details() -> Vec<u8> {
    let mut details = Vec::new();
    Writer::new(&mut details).map(1).text("released").bool(true);
    details
}

/// Whether an ERROR's `details` say that the call has a durable tombstone.
pub(in crate::daemon) fn is_released(details: &[u8]) -> bool {
    let find = || {
        let mut reader = Reader::new(details);
        let mut left = reader.map().ok()?;
        while reader.has_next(&mut left) {
            if reader.text().ok()? == "released" {
                return reader.bool().ok();
            }
            reader.skip().ok()?;
        }
        None
    };
    find() == Some(true)
}

/// The `details` of an answer that this sidecar gives because nobody else did: `{"final": false}`. Whoever asks again
/// under the same id may still learn what became of the call.
pub(in crate::daemon) fn not_final() -> Vec<u8> {
    let mut details = Vec::new();
    Writer::new(&mut details).map(1).text("final").bool(false);
    details
}

/// CBOR `{}`.
pub(in crate::daemon) const EMPTY_MAP: &[u8] = &[0xa0];
