//! Encodes CAP_RESULT: a call's one result.

use std::borrow::Cow;

use super::{
    Type,
    body::{self, BodyError, MapWriter, read_map, read_number, required, wrong_value},
    invoke::SessionRef,
};
use crate::{
    cbor::{Checked, Kind, Reader},
    code::Code,
};

/// The body of CAP_RESULT.
///
/// **Shape:** `{"status": "success", "result": any}` or `{"status": "error", "error": …}`, with `? "session"`,
/// `? "execution_time_ms": uint`, `? "cost_estimate": {* tstr => number}`. **Source:** PROTOCOL 7.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapResult<'a> {
    /// How the call ended.
    pub outcome: Outcome<'a>,
    /// The session that the call belonged to.
    pub session: Option<SessionRef>,
    /// How long it ran. **Units:** milliseconds.
    pub execution_time_ms: Option<u64>,
    /// What it cost; one CBOR map.
    pub cost_estimate: Option<&'a [u8]>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// With a result; one CBOR item.
    Success(&'a [u8]),
    /// With an error.
    Error(CallError<'a>),
}

/// The error that a call ended with.
///
/// **Shape:** `{"code": uint, ? "name": tstr, ? "message": tstr, ? "details": any}`; from an older peer, anything.
/// **Source:** PROTOCOL 7.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError<'a> {
    /// Its code; 5001 if an older peer's error has none.
    pub code: Code,
    /// Its name, if present.
    pub name: Option<Cow<'a, str>>,
    /// What happened, for a human; an error that is only a text is here.
    pub message: Option<Cow<'a, str>>,
    /// More about it; one CBOR item. An older peer's error of another shape is here as a whole.
    pub details: Option<&'a [u8]>,
    /// The error as received, written unchanged. `None` for an error made here.
    pub raw: Option<&'a [u8]>,
}

impl<'a> CapResult<'a> {
    /// The result of a successful call.
    pub const fn success(result: &'a [u8]) -> Self {
        Self {
            outcome: Outcome::Success(result),
            session: None,
            execution_time_ms: None,
            cost_estimate: None,
        }
    }

    /// The result of a call that ended with an error.
    pub const fn error(error: CallError<'a>) -> Self {
        Self { outcome: Outcome::Error(error), session: None, execution_time_ms: None, cost_estimate: None }
    }

    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        Self::decode_checked(body.into())
    }

    /// As [`decode`](Self::decode), for a body whose payload was already walked by the check. **Errors:** 1001.
    pub fn decode_checked(body: Checked<'a>) -> Result<Self, BodyError> {
        body::check(Type::CapResult, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: Checked<'a>) -> Result<Self, BodyError> {
        let (mut is_success, mut result, mut error) = (None, None, None);
        let (mut session, mut execution_time_ms, mut cost_estimate) = (None, None, None);
        let mut reader = Reader::over(body);
        read_map(&mut reader, |key, reader| {
            match key {
                b"status" => {
                    is_success = Some(match &*reader.text()? {
                        "success" => true,
                        "error" => false,
                        _ => return Err(wrong_value(reader, "status", "success or error")),
                    });
                }
                b"result" => result = Some(reader.skip()?),
                b"error" => error = Some(reader.skip()?),
                b"session" => session = Some(SessionRef::read(reader)?),
                b"execution_time_ms" => execution_time_ms = Some(reader.uint()?),
                b"cost_estimate" => cost_estimate = Some(read_costs(reader)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        let outcome = if required(is_success, "status")? {
            Outcome::Success(required(result, "result")?)
        } else {
            Outcome::Error(CallError::read(required(error, "error")?))
        };
        Ok(Self { outcome, session, execution_time_ms, cost_estimate })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _item = self.encode_around(out);
    }

    /// As [`encode`](Self::encode); returns where in `out` the `result`, or the `error`, ends.
    pub fn encode_around(&self, out: &mut Vec<u8>) -> usize {
        let mut map = MapWriter::new(out);
        let (item_end, status) = match &self.outcome {
            Outcome::Success(result) => (map.raw("result", result), "success"),
            Outcome::Error(error) => {
                let out = map.key_then("error");
                error.encode(out);
                (out.len(), "error")
            }
        };
        map.text("status", status);
        if let Some(session) = &self.session {
            session.encode(map.key_then("session"));
        }
        map.raw_if("cost_estimate", self.cost_estimate);
        map.uint_if("execution_time_ms", self.execution_time_ms);
        item_end
    }
}

/// Moves over a map of numbers and returns it raw.
fn read_costs<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], BodyError> {
    let start = reader.position();
    read_map(reader, |_, reader| read_number(reader))?;
    Ok(&reader.input()[start..reader.position()])
}

impl<'a> CallError<'a> {
    /// An error made here.
    pub fn new(code: Code, message: impl Into<Cow<'a, str>>, details: Option<&'a [u8]>) -> Self {
        let name = code.name().map(Cow::Borrowed);
        Self { code, name, message: Some(message.into()), details, raw: None }
    }

    /// Reads an error of any shape; PROTOCOL 7.4 takes what an older peer sends.
    fn read(raw: &'a [u8]) -> Self {
        if let Ok(error) = Self::read_shaped(raw) {
            return error;
        }
        let message = Reader::new(raw).text().ok();
        let details = if message.is_some() { None } else { Some(raw) };
        Self { code: Code::INTERNAL_ERROR, name: None, message, details, raw: Some(raw) }
    }

    fn read_shaped(raw: &'a [u8]) -> Result<Self, BodyError> {
        let (mut code, mut name, mut message, mut details) = (None, None, None, None);
        let mut reader = Reader::new(raw);
        if reader.kind()? != Kind::Map {
            return Err(wrong_value(&reader, "error", "a map"));
        }
        read_map(&mut reader, |key, reader| {
            match key {
                b"code" => code = Some(read_code(reader)?),
                b"name" => name = Some(reader.text()?),
                b"message" => message = Some(reader.text()?),
                b"details" => details = Some(reader.skip()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { code: required(code, "code")?, name, message, details, raw: Some(raw) })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(raw) = self.raw {
            out.extend_from_slice(raw);
            return;
        }
        let mut map = MapWriter::new(out);
        map.uint("code", self.code.0.into());
        map.text_if("name", self.name.as_deref());
        map.raw_if("details", self.details);
        map.text_if("message", self.message.as_deref());
    }
}

/// Reads a code; one beyond 32 bits, which nobody has, becomes the largest.
pub(super) fn read_code(reader: &mut Reader<'_>) -> Result<Code, BodyError> {
    Ok(Code(u32::try_from(reader.uint()?).unwrap_or(u32::MAX)))
}
