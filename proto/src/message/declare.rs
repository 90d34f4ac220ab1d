//! Encodes CAP_DECLARE: an agent declares its capabilities.

use std::borrow::Cow;

use super::{
    Type,
    body::{self, BodyError, MapWriter, ShapeError, read_array, read_map, required},
    descriptor::{Descriptor, Fields},
};
use crate::{
    cbor::{Reader, Writer},
    code::Code,
    limits::CAPABILITIES_VERSION,
};

/// The body of CAP_DECLARE.
///
/// **Shape:** `{"capabilities": [+ descriptor], ? "next_cursor": tstr, ? "capabilities_version": tstr}`.
/// **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declare<'a> {
    /// The descriptors as received, at least one; [`Descriptor::as_bytes`] for writing.
    pub capabilities: Vec<&'a [u8]>,
    /// Where the next page begins; none on the last.
    pub next_cursor: Option<Cow<'a, str>>,
    /// The version of the descriptor format.
    pub capabilities_version: Option<Cow<'a, str>>,
}

/// The descriptors have a format that this build does not support: a 4905.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`capabilities_version` is not of major version 1")]
pub struct NewerMajor;

impl NewerMajor {
    /// The wire code, always 4905. **Source:** PROTOCOL 7.2.
    pub const fn code(self) -> Code {
        Code::CONTRACT_ERROR
    }
}

impl<'a> Declare<'a> {
    /// A page of descriptors in the format of this build.
    pub fn new(capabilities: Vec<&'a [u8]>, next_cursor: Option<Cow<'a, str>>) -> Self {
        Self { capabilities, next_cursor, capabilities_version: Some(CAPABILITIES_VERSION.into()) }
    }

    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::CapDeclare, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut capabilities, mut next_cursor, mut capabilities_version) = (None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"capabilities" => capabilities = Some(read_array(reader, read_raw)?),
                b"next_cursor" => next_cursor = Some(reader.text()?),
                b"capabilities_version" => capabilities_version = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        let capabilities = required(capabilities, "capabilities")?;
        if capabilities.is_empty() {
            return Err(ShapeError::Missing("capabilities").into());
        }
        Ok(Self { capabilities, next_cursor, capabilities_version })
    }

    /// Checks that this build supports the format of the descriptors; without a version it does.
    ///
    /// **Errors:** 4905 for a newer major, or an invalid version. **Source:** PROTOCOL 7.2.
    pub fn check_format(&self) -> Result<(), NewerMajor> {
        let Some(version) = &self.capabilities_version else { return Ok(()) };
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        if major.is_some_and(|major| major <= FORMAT_MAJOR) { Ok(()) } else { Err(NewerMajor) }
    }

    /// The descriptors, each checked for rules beyond its shape.
    ///
    /// **Errors:** 4001 for the first one that contradicts itself.
    pub fn descriptors(&self) -> Result<Vec<Descriptor>, BodyError> {
        self.each_descriptor().collect()
    }

    /// The same one by one, for a reader that may stop early.
    pub fn each_descriptor(&self) -> impl Iterator<Item = Result<Descriptor, BodyError>> {
        self.capabilities.iter().map(|raw| Descriptor::from_checked(raw))
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text_if("next_cursor", self.next_cursor.as_deref());
        let list = map.key_then("capabilities");
        Writer::new(list).array(self.capabilities.len() as u64);
        for raw in &self.capabilities {
            list.extend_from_slice(raw);
        }
        map.text_if("capabilities_version", self.capabilities_version.as_deref());
    }
}

/// Moves over a descriptor, checking its shape, and returns it raw.
fn read_raw<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], BodyError> {
    let start = reader.position();
    Fields::read(reader)?;
    Ok(&reader.input()[start..reader.position()])
}

/// The major of [`CAPABILITIES_VERSION`].
const FORMAT_MAJOR: u64 = 1;
