//! Encodes PROCESSING, PROGRESS and INPUT_REQUIRED: news for the caller while its call runs.

use std::borrow::Cow;

use super::{
    Type,
    body::{self, BodyError, MapWriter, read_map, required, wrong_value},
};
use crate::cbor::Reader;

/// The body of PROCESSING.
///
/// **Shape:** `{? "status_text": tstr, ? "eta_ms": uint, ? "cancellable": bool}`. **Source:** PROTOCOL 7.6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processing<'a> {
    /// What is being done, for a human.
    pub status_text: Option<Cow<'a, str>>,
    /// How long it may still take. **Units:** milliseconds.
    pub eta_ms: Option<u64>,
    /// Whether cancelling would have an effect.
    pub cancellable: Option<bool>,
}

impl<'a> Processing<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::Processing, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut processing = Self::default();
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"status_text" => processing.status_text = Some(reader.text()?),
                b"eta_ms" => processing.eta_ms = Some(reader.uint()?),
                b"cancellable" => processing.cancellable = Some(reader.bool()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(processing)
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint_if("eta_ms", self.eta_ms);
        map.bool_if("cancellable", self.cancellable);
        map.text_if("status_text", self.status_text.as_deref());
    }
}

/// The body of PROGRESS. **Shape:** `{"progress_pct": 0..100}`. **Source:** PROTOCOL 7.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How much is done. **Units:** percent, 0 to 100.
    pub progress_pct: u8,
}

impl Progress {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        body::check(Type::Progress, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let mut progress_pct = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"progress_pct" => {
                    let percent = u8::try_from(reader.uint()?).ok().filter(|percent| *percent <= 100);
                    progress_pct =
                        Some(percent.ok_or_else(|| wrong_value(reader, "progress_pct", "0 to 100"))?);
                }
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { progress_pct: required(progress_pct, "progress_pct")? })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        MapWriter::new(out).uint("progress_pct", self.progress_pct.into());
    }
}

/// The body of INPUT_REQUIRED.
///
/// **Shape:** `{"prompt": tstr, ? "options": any, ? "timeout_ms": uint}`. **Source:** PROTOCOL 7.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequired<'a> {
    /// The question, for a human.
    pub prompt: Cow<'a, str>,
    /// The possible answers; one CBOR item.
    pub options: Option<&'a [u8]>,
    /// How long the provider waits. **Units:** milliseconds.
    pub timeout_ms: Option<u64>,
}

impl<'a> InputRequired<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::InputRequired, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut prompt, mut options, mut timeout_ms) = (None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"prompt" => prompt = Some(reader.text()?),
                b"options" => options = Some(reader.skip()?),
                b"timeout_ms" => timeout_ms = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { prompt: required(prompt, "prompt")?, options, timeout_ms })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("prompt", &self.prompt);
        map.raw_if("options", self.options);
        map.uint_if("timeout_ms", self.timeout_ms);
    }
}
