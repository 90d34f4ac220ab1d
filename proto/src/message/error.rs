//! Encodes ERROR: a refusal, and its details.

use std::borrow::Cow;

use super::{
    Type,
    body::{self, BodyError, MapWriter, read_array, read_map, required, wrong_value},
    result::read_code,
};
use crate::{
    capability::Version,
    cbor::{Reader, Writer},
    code::Code,
    limits::{AVAILABLE_MAX, VIOLATIONS_MAX},
};

/// The body of ERROR; its category follows from its code.
///
/// **Shape:** `{"code": uint, "category": tstr, "message": tstr, ? "details": any, ? "retry": bool}`.
/// **Source:** PROTOCOL 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    /// What is wrong.
    pub code: Code,
    /// What is wrong, for a human; no secrets, keys, file paths or stacks.
    pub message: Cow<'a, str>,
    /// More about it; one CBOR item.
    pub details: Option<&'a [u8]>,
    /// Whether the same request may be sent again.
    pub retry: Option<bool>,
}

impl<'a> ErrorBody<'a> {
    /// A refusal that is retryable as its code says.
    pub fn new(code: Code, message: impl Into<Cow<'a, str>>) -> Self {
        Self { code, message: message.into(), details: None, retry: Some(code.is_retryable()) }
    }

    /// The same with details, which are one CBOR item.
    pub const fn with_details(mut self, details: &'a [u8]) -> Self {
        self.details = Some(details);
        self
    }

    /// Whether the same request may be sent again: by the body's `retry`, otherwise by its code.
    pub fn is_retryable(&self) -> bool {
        self.retry.unwrap_or_else(|| self.code.is_retryable())
    }

    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::Error, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut code, mut category, mut message) = (None, None, None);
        let (mut details, mut retry) = (None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"code" => code = Some(read_code(reader)?),
                b"category" => match &*reader.text()? {
                    "protocol" | "routing" | "security" | "client" | "server" => category = Some(()),
                    _ => return Err(wrong_value(reader, "category", "one of the five categories")),
                },
                b"message" => message = Some(reader.text()?),
                b"details" => details = Some(reader.skip()?),
                b"retry" => retry = Some(reader.bool()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        required(category, "category")?;
        Ok(Self { code: required(code, "code")?, message: required(message, "message")?, details, retry })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint("code", self.code.0.into());
        map.bool_if("retry", self.retry);
        map.raw_if("details", self.details);
        map.text("message", &self.message);
        map.text("category", self.code.category().as_str());
    }
}

/// The schema that a payload was checked against. **Source:** PROTOCOL 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaSide {
    /// The input schema.
    Request,
    /// The output schema.
    Response,
}

impl SchemaSide {
    /// The side as written in `details.schema_side`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// One place where a payload does not fit its schema.
///
/// **Shape:** `{"path": tstr, "keyword": tstr, "message": tstr}`. **Source:** PROTOCOL 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation<'a> {
    /// A JSON pointer into the payload.
    pub path: Cow<'a, str>,
    /// What the schema requires there.
    pub message: Cow<'a, str>,
    /// The schema keyword that is violated.
    pub keyword: Cow<'a, str>,
}

/// The `details` of a schema violation: the first 64 of them, and which schema it was.
pub fn violation_details(side: SchemaSide, violations: &[Violation<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    // PROTOCOL 9: `details.violations` holds all of them, at most 64.
    let violations = &violations[..violations.len().min(VIOLATIONS_MAX)];
    let mut map = MapWriter::new(&mut out);
    let list = map.key_then("violations");
    Writer::new(list).array(violations.len() as u64);
    for violation in violations {
        let mut map = MapWriter::new(list);
        map.text("path", &violation.path);
        map.text("keyword", &violation.keyword);
        map.text("message", &violation.message);
    }
    map.text("schema_side", side.as_str());
    out
}

/// The violations in `details`, at most 64; none if there are none, or not in this shape.
pub fn violations(details: &[u8]) -> Vec<Violation<'_>> {
    read_violations(details).unwrap_or_default()
}

fn read_violations(details: &[u8]) -> Result<Vec<Violation<'_>>, BodyError> {
    let mut found = Vec::new();
    read_map(&mut Reader::new(details), |key, reader| {
        match key {
            b"violations" => found = read_array(reader, read_violation)?,
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    found.truncate(VIOLATIONS_MAX);
    Ok(found)
}

fn read_violation<'a>(reader: &mut Reader<'a>) -> Result<Violation<'a>, BodyError> {
    let (mut path, mut message, mut keyword) = (None, None, None);
    read_map(reader, |key, reader| {
        match key {
            b"path" => path = Some(reader.text()?),
            b"message" => message = Some(reader.text()?),
            b"keyword" => keyword = Some(reader.text()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    Ok(Violation {
        path: required(path, "path")?,
        message: required(message, "message")?,
        keyword: required(keyword, "keyword")?,
    })
}

/// The `details` of a 4003: the served versions, at most 64. **Source:** PROTOCOL 7.5.
pub fn available_details(available: &[Version]) -> Vec<u8> {
    let mut out = Vec::new();
    let available = &available[..available.len().min(AVAILABLE_MAX)];
    let mut map = MapWriter::new(&mut out);
    let mut list = map.key("available");
    list.array(available.len() as u64);
    for version in available {
        list.text(&version.to_string());
    }
    out
}

/// The `details` of a 3005: the calls allowed, none of which is left; when all are free again (`reset_at`, RFC 3339,
/// UTC); and the seconds until the next is accepted. **Source:** PROTOCOL 7.3, 9.
pub fn rate_limit_details(limit: u64, reset_at: &str, retry_after_s: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut map = MapWriter::new(&mut out);
    map.uint("limit", limit);
    map.text("reset_at", reset_at);
    map.uint("remaining", 0);
    map.uint("retry_after_seconds", retry_after_s);
    out
}
