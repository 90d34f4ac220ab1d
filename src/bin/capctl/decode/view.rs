//! Prints decoded items as text or JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::frame_name;
use super::item::{
    BodyView, Content, EnvelopeView, Fields, FrameView, Item, Refusal, Sealed, Signature, Verdict,
    message_name,
};
use crate::{diagnostic, hex, output};

/// The item for people: one fact a line.
pub(super) fn text(item: &Item) -> String {
    let mut out = String::new();
    match item {
        Item::Frame(frame) => frame_text(frame, &mut out),
        Item::Envelope(envelope) => envelope_text(envelope, &mut out),
        Item::Body(body) => body_text(body, &mut out),
        Item::Broken { offset, reason } => {
            let _ = writeln!(out, "byte {offset}: {reason}");
        }
    }
    out
}

/// The same facts as one JSON document.
pub(super) fn json(item: &Item) -> Value {
    let mut document = match item {
        Item::Frame(frame) => frame_json(frame),
        Item::Envelope(envelope) => json!({"envelope": envelope_json(envelope)}),
        Item::Body(body) => body_json(body),
        Item::Broken { offset, .. } => json!({"offset": offset}),
    };
    document["refusals"] = item.refusals().into();
    document
}

fn frame_text(frame: &FrameView, out: &mut String) {
    let FrameView { offset, frame_type, payload_bytes, content } = frame;
    let _ =
        writeln!(out, "frame {} at byte {offset}, {payload_bytes} bytes of payload", frame_name(*frame_type));
    match content {
        Content::Envelope(envelope) => envelope_text(envelope, out),
        Content::Item { payload, verdict } => {
            fact(out, "payload", &notation(payload));
            fact(out, "shape", verdict.as_ref().err().map_or("ok", String::as_str));
        }
        Content::Opaque(payload) => fact(out, "payload", &format!("h'{}'", hex::encode(payload))),
    }
}

fn frame_json(frame: &FrameView) -> Value {
    let FrameView { offset, frame_type, payload_bytes, content } = frame;
    let mut document =
        json!({"frame": frame_name(*frame_type), "offset": offset, "payload_bytes": payload_bytes});
    match content {
        Content::Envelope(envelope) => document["envelope"] = envelope_json(envelope),
        Content::Item { payload, .. } => document["payload"] = notation(payload).into(),
        Content::Opaque(payload) => document["payload"] = format!("h'{}'", hex::encode(payload)).into(),
    }
    document
}

fn envelope_text(envelope: &EnvelopeView, out: &mut String) {
    let fields = match &envelope.fields {
        Ok(fields) => fields,
        Err(Refusal { code, reason, id, bytes }) => {
            fact(out, "envelope", &format!("refused with {code}: {reason}"));
            if let Some(id) = id {
                fact(out, "id", id);
            }
            if let Ok(item) = diagnostic::notation(bytes, COLUMNS_BEFORE) {
                fact(out, "bytes", &item);
            }
            return;
        }
    };
    fact(out, "id", &fields.id);
    fact(out, "typ", &type_text(fields.typ));
    fact(out, "ts", &format!("{} ({})", fields.ts, utc(fields.ts)));
    fact(out, "ttl", &format!("{} ms", fields.ttl));
    fact(out, "from", &fields.from);
    for to in &fields.to {
        fact(out, "to", to);
    }
    if let Some(reply_to) = &fields.reply_to {
        fact(out, "reply_to", &hex::encode(reply_to));
    }
    if let Some(thread_id) = &fields.thread_id {
        fact(out, "thread_id", &hex::encode(thread_id));
    }
    fact(out, "sig", signature_words(&fields.signature));
    if let Some(ext) = &fields.ext {
        fact(out, "ext", &notation(ext));
    }
    match &fields.content {
        Sealed::Body(body) => body_facts(body, out),
        Sealed::Encrypted { nonce, ciphertext_bytes } => {
            fact(out, "enc", &format!("authcrypt, nonce {}, {ciphertext_bytes} bytes", hex::encode(nonce)));
        }
    }
}

fn envelope_json(envelope: &EnvelopeView) -> Value {
    let fields = match &envelope.fields {
        Ok(fields) => fields,
        Err(Refusal { code, reason, id, .. }) => return json!({"code": code, "refused": reason, "id": id}),
    };
    let Fields { id, typ, ts, ttl, from, to, .. } = fields;
    let mut document = json!({
        "id": id, "typ": typ, "type": message_name(*typ), "ts": ts, "ttl": ttl, "from": from, "to": to,
        "signature": signature_words(&fields.signature),
    });
    if let Some(reply_to) = &fields.reply_to {
        document["reply_to"] = hex::encode(reply_to).into();
    }
    if let Some(thread_id) = &fields.thread_id {
        document["thread_id"] = hex::encode(thread_id).into();
    }
    if let Some(ext) = &fields.ext {
        document["ext"] = notation(ext).into();
    }
    match &fields.content {
        Sealed::Body(body) => {
            document["body"] = notation(&body.bytes).into();
            document["cddl"] = verdict_json(&body.verdict);
        }
        Sealed::Encrypted { nonce, ciphertext_bytes } => {
            document["enc"] = json!({"nonce": hex::encode(nonce), "ciphertext_bytes": ciphertext_bytes});
        }
    }
    document
}

fn body_text(body: &BodyView, out: &mut String) {
    fact(out, "typ", &type_text(body.typ));
    body_facts(body, out);
}

fn body_facts(body: &BodyView, out: &mut String) {
    fact(out, "body", &notation(&body.bytes));
    let verdict = match &body.verdict {
        Verdict::Matches { rule } => format!("matches {rule}"),
        Verdict::Mismatch { rule, path, offset, expected } => {
            format!("does not match {rule} at {path:?}, byte {offset}: expected {expected}")
        }
        Verdict::UnknownType => "no rule: the type is unknown".to_owned(),
        Verdict::Malformed { offset, reason } => format!("not run: {reason} at byte {offset}"),
    };
    fact(out, "cddl", &verdict);
}

fn body_json(body: &BodyView) -> Value {
    json!({
        "typ": body.typ, "type": message_name(body.typ),
        "body": notation(&body.bytes), "cddl": verdict_json(&body.verdict),
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Matches { rule } => json!({"matches": true, "rule": rule}),
        Verdict::Mismatch { rule, path, offset, expected } => {
            json!({"matches": false, "rule": rule, "path": path, "offset": offset, "expected": expected})
        }
        Verdict::UnknownType => json!({"matches": false, "reason": "unknown type"}),
        Verdict::Malformed { offset, reason } => {
            json!({"matches": false, "offset": offset, "reason": reason})
        }
    }
}

const fn signature_words(signature: &Signature) -> &'static str {
    match signature {
        Signature::Valid => "valid",
        Signature::Invalid => "invalid (1002)",
        Signature::Empty => "empty",
        Signature::NoKey => "not checked: from is no did:key",
        Signature::Encrypted => "not checked: the body is encrypted",
    }
}

fn type_text(typ: u64) -> String {
    format!("{typ:02X} {}", message_name(typ).unwrap_or("(unknown)"))
}

fn fact(out: &mut String, name: &str, value: &str) {
    let value = output::printable(value);
    let _ = writeln!(out, "  {name:<width$}{value}", width = COLUMNS_BEFORE - 2);
}

fn notation(item: &[u8]) -> String {
    diagnostic::notation(item, COLUMNS_BEFORE)
        .unwrap_or_else(|error| format!("h'{}' / {error} /", hex::encode(item)))
}

/// Milliseconds since the Unix epoch as date and time of day (RFC 3339, UTC).
///
/// **Source:** the days are turned into a date by counting years that begin in March, so that leap days come last.
fn utc(ms: u64) -> String {
    let (days, ms_of_day) = (ms / MS_PER_DAY, ms % MS_PER_DAY);
    // Day 0 is the first of March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year_of_era + year;
    let (seconds, ms) = (ms_of_day / 1_000, ms_of_day % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

const MS_PER_DAY: u64 = 86_400_000;
/// Columns in front of a fact's value.
const COLUMNS_BEFORE: usize = 12;

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_told_as_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_707_055_200_000, "2024-02-04T14:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_798_761_599_001, "2026-12-31T23:59:59.001Z"),
        ] {
            assert_eq!(utc(ms), text, "{ms}");
        }
    }
}
