//! A length in; params and results of that length out, and the schemas that capd holds them against.
//!
//! Every subject carries the same bytes. To capd they are a value that is checked, to the others they are opaque.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use capd_proto::cbor::json::from_json;
use serde_json::{Value, json};

/// Bytes of a call's params, unless a round is about their length.
pub(crate) const REQUEST_BYTES: usize = 400;
/// Bytes of its result: what [`response_bytes`] makes of [`REQUEST_BYTES`].
pub(crate) const RESPONSE_BYTES: usize = 300;
/// Params and results of calls in the part about HTTP, both ways.
pub(crate) const HTTP_BYTES: usize = 300;
/// Params and results of calls that carry much, both ways.
pub(crate) const LARGE_BYTES: usize = 1024 * 1024;

/// What the params must be.
pub(crate) const INPUT_SCHEMA: &str = r#"{"type":"object","properties":{"city":{"type":"string","minLength":1,"maxLength":80},"units":{"enum":["metric","imperial","standard"]},"days":{"type":"integer","minimum":1,"maximum":14},"stations":{"type":"array","maxItems":16,"items":{"type":"object","properties":{"id":{"type":"string","maxLength":16},"weight":{"type":"integer","minimum":0}},"required":["id"],"additionalProperties":false}},"note":{"type":"string","maxLength":2000000}},"required":["city","units"],"additionalProperties":false}"#;
/// What the result must be.
pub(crate) const OUTPUT_SCHEMA: &str = r#"{"type":"object","properties":{"days":{"type":"array","maxItems":14,"items":{"type":"object","properties":{"low":{"type":"integer"},"high":{"type":"integer"},"sky":{"enum":["clear","cloud","rain","snow"]}},"required":["low","high","sky"],"additionalProperties":false}},"note":{"type":"string","maxLength":2000000}},"required":["days"],"additionalProperties":false}"#;

/// The length of the result of params of this length.
pub(crate) const fn response_bytes(request_bytes: usize) -> usize {
    match request_bytes {
        HTTP_BYTES | LARGE_BYTES => request_bytes,
        other => other / 4 * 3,
    }
}

/// Params of so many bytes: one CBOR item.
pub(crate) fn request(bytes: usize) -> Bytes {
    padded(bytes, params(), cbor)
}

/// The same as one JSON document of so many bytes.
pub(crate) fn request_json(bytes: usize) -> Bytes {
    padded(bytes, params(), json)
}

fn params() -> Value {
    let stations: Vec<_> = [("NL-0001-A", 1), ("NL-0002-B", 25), ("NL-0003-C", 300)]
        .into_iter()
        .map(|(id, weight)| json!({"id": id, "weight": weight}))
        .collect();
    let city = "Amsterdam Noord, Buikslotermeerplein 12";
    json!({"city": city, "units": "metric", "days": 5, "stations": stations, "note": ""})
}

/// The result of params of so many bytes: one CBOR item.
pub(crate) fn response(request_bytes: usize) -> Bytes {
    padded(response_bytes(request_bytes), result(), cbor)
}

/// The same as one JSON document of the result's length.
pub(crate) fn response_json(request_bytes: usize) -> Bytes {
    padded(response_bytes(request_bytes), result(), json)
}

fn result() -> Value {
    let days: Vec<_> = [(4, 11, "rain"), (5, 12, "cloud"), (3, 9, "clear"), (-2, 4, "snow"), (1, 7, "rain")]
        .into_iter()
        .map(|(low, high, sky)| json!({"low": low, "high": high, "sky": sky}))
        .collect();
    json!({"days": days, "note": ""})
}

fn cbor(value: &Value) -> Vec<u8> {
    let mut item = Vec::new();
    from_json(value, &mut item);
    item
}

fn json(value: &Value) -> Vec<u8> {
    value.to_string().into()
}

/// `value` with a `note` that is as long as it takes.
fn padded(bytes: usize, mut value: Value, encoded: fn(&Value) -> Vec<u8>) -> Bytes {
    let bare = encoded(&value).len();
    // The note's own length takes up to four more bytes.
    let item = (0..=4).find_map(|head| {
        value["note"] = "n".repeat(bytes.checked_sub(bare + head)?).into();
        Some(encoded(&value)).filter(|item| item.len() == bytes)
    });
    item.unwrap_or_else(|| panic!("no value of {bytes} bytes")).into()
}

/// The results that a provider gives, each length made once.
#[derive(Debug, Default)]
pub(crate) struct Results(Mutex<HashMap<usize, Bytes>>);

impl Results {
    /// The result of params of so many bytes.
    pub(crate) fn of(&self, request_bytes: usize) -> Bytes {
        let mut made = self.0.lock().unwrap();
        made.entry(request_bytes).or_insert_with(|| response(request_bytes)).clone()
    }
}
