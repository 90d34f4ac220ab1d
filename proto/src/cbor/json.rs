//! Converts CBOR to JSON and back: the payload mapping of PROTOCOL 10.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Number, Value};
use thiserror::Error;

use super::error::Error;
use super::item::Kind;
use super::reader::Reader;
use super::writer::Writer;
use crate::limits::CBOR_DEPTH_MAX;

/// A payload outside JSON's data model.
///
/// **Errors:** 4004 SCHEMA_VIOLATION at `path`. **Source:** PROTOCOL 10.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message} at {path}")]
pub struct JsonError {
    /// RFC 6901 pointer to the offending value; the root is `/`.
    pub path: String,
    /// What JSON does not have.
    pub message: &'static str,
}

/// The JSON value of one CBOR item: byte strings become base64url text without padding.
///
/// **Errors:** an integer beyond 64 bits, a float that is not finite, a tag, `undefined` or another simple value, a
/// key that is not text, nesting beyond the wire's bound. **Source:** PROTOCOL 10.
pub fn to_json(bytes: &[u8]) -> Result<Value, JsonError> {
    let mut path = String::new();
    value(&mut Reader::new(bytes), &mut path, 0)
        .map_err(|message| JsonError { path: if path.is_empty() { "/".into() } else { path }, message })
}

/// Checks that one CBOR item is within JSON's data model, without building a JSON value.
///
/// Cost is linear in the bytes, and nothing but the path of an error is allocated.
///
/// **Errors:** those of [`to_json`], and malformed CBOR.
pub fn check_json(bytes: &[u8]) -> Result<(), JsonError> {
    walk(&mut Reader::new(bytes), 0).map_err(|(at, message)| JsonError { path: pointer(bytes, at), message })
}

/// Moves over the next item, or says where what is not JSON stands.
fn walk(reader: &mut Reader<'_>, depth: usize) -> Result<(), (usize, &'static str)> {
    let start = reader.position();
    let here = |message: &'static str| move |_: Error| (start, message);
    let malformed = here("malformed CBOR");
    let kind = reader.kind().map_err(malformed)?;
    if depth > CBOR_DEPTH_MAX {
        return Err((start, "nested too deeply"));
    }
    match kind {
        Kind::Unsigned | Kind::Negative => {
            let int = reader.int().map_err(malformed)?;
            let is_small = u64::try_from(int).is_ok() || i64::try_from(int).is_ok();
            if is_small { Ok(()) } else { Err((start, "integer beyond 64 bits")) }
        }
        Kind::Text => reader.text().map(drop).map_err(malformed),
        Kind::Bytes | Kind::Bool | Kind::Null => reader.skip().map(drop).map_err(malformed),
        Kind::Float => {
            let is_finite = reader.float().map_err(malformed)?.is_finite();
            if is_finite { Ok(()) } else { Err((start, "number that is not finite")) }
        }
        Kind::Array => {
            let mut left = reader.array().map_err(malformed)?;
            while reader.has_next(&mut left) {
                walk(reader, depth + 1)?;
            }
            Ok(())
        }
        Kind::Map => {
            let mut left = reader.map().map_err(malformed)?;
            while reader.has_next(&mut left) {
                reader.text().map_err(here("map key that is not text"))?;
                walk(reader, depth + 1)?;
            }
            Ok(())
        }
        Kind::Tag => Err((start, "tag has no place in JSON")),
        Kind::Undefined | Kind::Simple | Kind::Break => Err((start, "simple value has no place in JSON")),
    }
}

/// The pointer to the value at `target`, before which all is JSON.
fn pointer(bytes: &[u8], target: usize) -> String {
    let mut path = String::new();
    let mut reader = Reader::new(bytes);
    while reader.position() < target {
        let Some(token) = step(&mut reader, target) else { break };
        push_token(&mut path, &token);
    }
    if path.is_empty() { "/".into() } else { path }
}

/// Moves to the value that holds `target`, inside the container that is next.
fn step<'a>(reader: &mut Reader<'a>, target: usize) -> Option<Cow<'a, str>> {
    let is_map = reader.kind().ok()? == Kind::Map;
    let mut left = if is_map { reader.map() } else { reader.array() }.ok()?;
    let mut number = 0_usize;
    while reader.has_next(&mut left) {
        let key = if is_map { Some(reader.text().ok()?) } else { None };
        let start = reader.position();
        // What holds the target may have no end.
        if start == target || reader.skip().map_or(true, |_| reader.position() > target) {
            reader.set_position(start);
            return Some(key.unwrap_or_else(|| number.to_string().into()));
        }
        number += 1;
    }
    None
}

/// Appends the deterministic CBOR encoding of a JSON value; integers stay integers, other numbers become floats.
pub fn from_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => {
            Writer::new(out).null();
        }
        Value::Bool(value) => {
            Writer::new(out).bool(*value);
        }
        Value::Number(number) => from_number(number, out),
        Value::String(text) => {
            Writer::new(out).text(text);
        }
        Value::Array(items) => {
            Writer::new(out).array(items.len() as u64);
            for item in items {
                from_json(item, out);
            }
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            Writer::new(out).map(members.len() as u64);
            for (name, member) in members {
                Writer::new(out).text(name);
                from_json(member, out);
            }
        }
    }
}

/// Appends one reference token to an RFC 6901 pointer.
pub fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for char in token.chars() {
        match char {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            _ => path.push(char),
        }
    }
}

fn from_number(number: &Number, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    if let Some(value) = number.as_u64() {
        writer.uint(value);
    } else if let Some(value) = number.as_i64() {
        writer.int(i128::from(value));
    } else {
        writer.float(number.as_f64().unwrap_or(f64::NAN));
    }
}

/// On an error `path` names the offending value; otherwise it comes back as it was.
fn value(reader: &mut Reader<'_>, path: &mut String, depth: usize) -> Result<Value, &'static str> {
    if depth > CBOR_DEPTH_MAX {
        return Err("nested too deeply");
    }
    let malformed = |_: Error| "malformed CBOR";
    Ok(match reader.kind().map_err(malformed)? {
        Kind::Unsigned | Kind::Negative => {
            let int = reader.int().map_err(malformed)?;
            let number =
                u64::try_from(int).map(Number::from).or_else(|_| i64::try_from(int).map(Number::from));
            Value::Number(number.map_err(|_| "integer beyond 64 bits")?)
        }
        Kind::Bytes => Value::String(URL_SAFE_NO_PAD.encode(reader.bytes().map_err(malformed)?)),
        Kind::Text => Value::String(reader.text().map_err(malformed)?.into_owned()),
        Kind::Array => array(reader, path, depth)?,
        Kind::Map => object(reader, path, depth)?,
        Kind::Bool => Value::Bool(reader.bool().map_err(malformed)?),
        Kind::Null => {
            reader.null().map_err(malformed)?;
            Value::Null
        }
        Kind::Float => {
            let float = reader.float().map_err(malformed)?;
            Value::Number(Number::from_f64(float).ok_or("number that is not finite")?)
        }
        Kind::Tag => return Err("tag has no place in JSON"),
        Kind::Undefined | Kind::Simple | Kind::Break => return Err("simple value has no place in JSON"),
    })
}

fn array(reader: &mut Reader<'_>, path: &mut String, depth: usize) -> Result<Value, &'static str> {
    let mut left = reader.array().map_err(|_| "malformed CBOR")?;
    let mut items = Vec::new();
    let parent = path.len();
    while reader.has_next(&mut left) {
        let _ = write!(path, "/{}", items.len());
        items.push(value(reader, path, depth + 1)?);
        path.truncate(parent);
    }
    Ok(Value::Array(items))
}

fn object(reader: &mut Reader<'_>, path: &mut String, depth: usize) -> Result<Value, &'static str> {
    let mut left = reader.map().map_err(|_| "malformed CBOR")?;
    let mut members = Map::new();
    let parent = path.len();
    while reader.has_next(&mut left) {
        let name = reader.text().map_err(|_| "map key that is not text")?;
        push_token(path, &name);
        let member = value(reader, path, depth + 1)?;
        members.insert(name.into_owned(), member);
        path.truncate(parent);
    }
    Ok(Value::Object(members))
}
