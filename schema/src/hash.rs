//! Hashes a capability's promise: a declaration in; hashes that change only with the promise, out.
//!
//! The hash covers the contract as one JSON object in the canonical form of RFC 8785 (JCS). Key order and white space
//! do not count; everything else does.

use std::fmt;

use capd_proto::cbor::json::push_token;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{document, violation};

#[cfg(test)]
mod tests;

/// A SHA-256, written as lower-case hexadecimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a document has no hash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HashError {
    /// The text is not JSON, or has a key twice.
    #[error("not JSON, line {line}: {problem}; accepted: JSON with each key once")]
    NotJson {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// JCS writes integers as 64-bit floats, which cannot distinguish this one from its neighbours.
    #[error(
        "at {pointer}: {found} has no hash of its own; accepted: integers within ±9007199254740992 (2^53)"
    )]
    Integer {
        /// JSON pointer into the document, `/` for the document itself or an unknown place.
        pointer: String,
        /// The integer, as it was written.
        found: String,
    },
}

/// The canonical form of a JSON text, RFC 8785.
///
/// **Shape:** UTF-8, keys in the order of their UTF-16 code units, no white space.
/// **Errors:** [`HashError`].
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, HashError> {
    tree(text).map(|value| written(&value))
}

/// One side's schema in a form that can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// A JSON Schema's text.
    Document(&'a [u8]),
    /// A validator without a JSON Schema: only its vendor is known.
    Vendor {
        /// The validator's vendor.
        vendor: &'a str,
        /// The version of its interface.
        version: u64,
    },
}

impl Form<'_> {
    fn value(self) -> Result<Value, HashError> {
        match self {
            Self::Document(text) => tree(text),
            Self::Vendor { vendor, version } => Ok(json!({ "vendor": vendor, "version": whole(version)? })),
        }
    }
}

/// The parts of a capability's promise that are hashed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contract<'a> {
    /// The capability's name, without its version.
    pub name: &'a str,
    /// What it does.
    pub description: Option<&'a str>,
    /// The schema of params.
    pub input: Option<Form<'a>>,
    /// The schema of results.
    pub output: Option<Form<'a>>,
    /// How to use it; the order does not count.
    pub instructions: &'a [String],
    /// The permissions that a caller needs; the order does not count.
    pub policies: &'a [String],
}

impl Contract<'_> {
    /// The contract's hash.
    ///
    /// **Shape:** SHA-256 over the JCS of `{"kind": "tool", "name", "description" or null, "schema", "instructions":
    /// [sorted], "policies": [sorted]}`. `schema` is null when neither side has one, the input schema itself when only
    /// that side has one, and else `{"input": schema or null, "output": schema}`; no schema document has these keys.
    /// **Errors:** [`HashError`], for a schema.
    pub fn static_hash(&self) -> Result<Fingerprint, HashError> {
        let side = |form: Option<Form<'_>>| form.map_or(Ok(Value::Null), Form::value);
        let input = side(self.input)?;
        let schema = match self.output {
            None => input,
            Some(output) => json!({ "input": input, "output": output.value()? }),
        };
        let sorted = |texts: &[String]| {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            texts
        };
        let payload = json!({
            "kind": "tool",
            "name": self.name,
            "description": self.description,
            "schema": schema,
            "instructions": sorted(self.instructions),
            "policies": sorted(self.policies),
        });
        Ok(sha_256(&[&written(&payload)]))
    }
}

/// The hash of a set of capabilities, whatever their order.
///
/// **Shape:** SHA-256 over the JCS of `{"kind": "toolkit", "tools": [{"name", "hash"}]}`, sorted by name and then by
/// hash; each hash is the hexadecimal text of a [`Contract::static_hash`].
pub fn toolkit<'a>(tools: impl IntoIterator<Item = (&'a str, Fingerprint)>) -> Fingerprint {
    let mut tools: Vec<_> = tools.into_iter().collect();
    tools.sort_unstable();
    let tools: Vec<_> =
        tools.iter().map(|(name, hash)| json!({ "name": name, "hash": hash.to_string() })).collect();
    sha_256(&[&written(&json!({ "kind": "toolkit", "tools": tools }))])
}

/// The hash of a line of contracts: the versions of one name, oldest first, continued by `next`.
///
/// **Shape:** SHA-256 over the 32 bytes of the lineage before, none for the first version, and the 32 bytes of `next`.
pub fn lineage(previous: Option<Fingerprint>, next: Fingerprint) -> Fingerprint {
    let previous = previous.as_ref().map_or(&[][..], |previous| &previous.0);
    sha_256(&[previous, &next.0])
}

/// A tree that JCS can tell from every other one.
fn tree(text: &[u8]) -> Result<Value, HashError> {
    let value = document::read(text)
        .map_err(|error| HashError::NotJson { line: error.line(), problem: error.to_string() })?;
    integers(&value, &mut String::new())?;
    long_integers(text)?;
    Ok(value)
}

fn whole(number: u64) -> Result<u64, HashError> {
    if number <= INTEGER_MAX {
        return Ok(number);
    }
    Err(HashError::Integer { pointer: "/".to_owned(), found: number.to_string() })
}

/// Integers of up to 64 bits, which the tree holds exactly.
fn integers(value: &Value, pointer: &mut String) -> Result<(), HashError> {
    let length = pointer.len();
    match value {
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > INTEGER_MAX) {
                return Err(HashError::Integer { pointer: shown(pointer), found: number.to_string() });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                push_token(pointer, &index.to_string());
                integers(item, pointer)?;
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                push_token(pointer, key);
                integers(member, pointer)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Integers of more digits, which the tree holds as floats already; `text` is JSON.
fn long_integers(text: &[u8]) -> Result<(), HashError> {
    let mut in_string = false;
    let mut at = 0;
    while at < text.len() {
        match (in_string, text[at]) {
            (true, b'\\') => at += 1,
            (_, b'"') => in_string = !in_string,
            (false, b'-' | b'0'..=b'9') => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let length = text[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &text[at..at + length];
                let digits = number.strip_prefix(b"-").unwrap_or(number);
                if digits.len() > 16 && digits.iter().all(u8::is_ascii_digit) {
                    let found = String::from_utf8_lossy(number);
                    return Err(HashError::Integer { pointer: "/".to_owned(), found: shown(&found) });
                }
                at += length - 1;
            }
            (true | false, _) => {}
        }
        at += 1;
    }
    Ok(())
}

fn shown(text: &str) -> String {
    let mut text = if text.is_empty() { "/".to_owned() } else { text.to_owned() };
    violation::cut(&mut text, violation::PATH_BYTES_MAX);
    text
}

fn written(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("a tree of finite numbers and text keys is always written")
}

fn sha_256(parts: &[&[u8]]) -> Fingerprint {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    Fingerprint(hash.finalize().into())
}

/// 2^53: from here on 64-bit floats skip integers.
const INTEGER_MAX: u64 = 1 << 53;
