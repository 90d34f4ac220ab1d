//! Describes one version of a capability: read once, kept whole, passed on unchanged.

use std::{borrow::Cow, sync::Arc};

use super::{
    body::{
        BodyError, Contradiction, MapWriter, ShapeError, read_array, read_bytes, read_map, read_texts,
        required,
    },
    schema_ref::SchemaSource,
};
use crate::{
    capability::{self, CapabilityId, Version},
    cbor::{self, Kind, Reader},
    cddl::bodies::{Shape, bodies},
    limits::{DESCRIPTOR_RANGES_MAX, RETRY_ON_MAX},
    negotiate::Served,
};

mod draft;

pub use draft::DescriptorDraft;

/// A descriptor: the fields that capd uses, typed, and all bytes.
///
/// **Shape:** a map; the fields are listed in PROTOCOL 7.2, unknown ones are kept. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    raw: Arc<[u8]>,
    /// Its name and own version.
    pub id: CapabilityId,
    /// Which versions it serves.
    pub served: Served,
    /// The schema of `params`; without one they may be any CBOR.
    pub input_schema: Option<SchemaSource>,
    /// The schema of a result; without one it may be any CBOR.
    pub output_schema: Option<SchemaSource>,
    /// Whether running a call twice does no harm.
    pub idempotent: bool,
    /// Whether its providers remember the ids of calls in a store that they share, so that a call takes effect once wherever
    /// its copies run (`"idempotency": "by-id"`). Only for what is not idempotent in itself. **Source:** FLEET X9.
    pub by_id: bool,
    /// How long a call may run. **Units:** milliseconds.
    pub timeout_ms: Option<u64>,
    /// The permissions that a caller needs.
    pub permissions: Vec<String>,
    /// How often it may be called.
    pub rate_limit: Option<RateLimit>,
    /// How a caller's sidecar retries.
    pub retry_policy: Option<RetryPolicy>,
    /// What it does, for a human.
    pub description: Option<String>,
    /// What kind of thing it is.
    pub category: Option<String>,
    /// The version that introduced it, as declared.
    pub since: Option<String>,
    /// The hash of its declared contract.
    pub static_hash: Option<[u8; 32]>,
    /// The hash of the line of contracts that it continues.
    pub lineage: Option<[u8; 32]>,
}

/// How often a capability may be called.
///
/// **Shape:** `{"requests": uint, "period": tstr, ? "burst": uint}`. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// Calls in each period.
    pub requests: u64,
    /// The period, as declared.
    pub period: String,
    /// Calls at once.
    pub burst: Option<u64>,
}

/// How a caller's sidecar retries; absent fields default to PROTOCOL 8.
///
/// **Shape:** a map with text keys; a field of an unexpected type counts as absent. **Source:** PROTOCOL 7.2, 8.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryPolicy {
    /// Tries in all.
    pub max_attempts: Option<u64>,
    /// The factor from each pause to the next.
    pub backoff_multiplier: Option<f64>,
    /// The first pause. **Units:** milliseconds.
    pub initial_delay_ms: Option<u64>,
    /// The longest pause. **Units:** milliseconds.
    pub max_delay_ms: Option<u64>,
    /// Error results that are retried: names, or codes as digits.
    pub retry_on: Vec<String>,
}

impl Descriptor {
    /// Checks and reads a single descriptor.
    ///
    /// **Errors:** 1001 for its bytes or shape, 4001 when it contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        cbor::check(bytes)?;
        bodies().check_shape(Shape::Descriptor, bytes).map_err(|error| ShapeError::Rule(Box::new(error)))?;
        Self::from_checked(bytes)
    }

    /// Reads a descriptor whose shape has been checked.
    pub(super) fn from_checked(bytes: &[u8]) -> Result<Self, BodyError> {
        let fields = Fields::read(&mut Reader::new(bytes))?;
        let raw = if cbor::is_deterministic(bytes) {
            Arc::from(bytes)
        } else {
            // PROTOCOL 5: what we write is deterministic, and this goes into messages of ours.
            let mut sorted = Vec::with_capacity(bytes.len());
            cbor::deterministic(bytes, &mut sorted)?;
            Arc::from(sorted)
        };
        fields.into_descriptor(raw)
    }

    /// The whole descriptor in deterministic CBOR, unknown fields included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// Whether it is declared with `"visibility": "private"`, so that no registry shows it.
    pub fn is_private(&self) -> bool {
        let mut is_private = false;
        let read = read_map(&mut Reader::new(&self.raw), |key, reader| {
            if key == b"visibility" && reader.kind()? == Kind::Text {
                is_private = reader.text()? == "private";
            } else {
                reader.skip()?;
            }
            Ok(())
        });
        read.is_ok() && is_private
    }

    /// The size that counts towards bounds: its bytes, and 64 for each entry of its lists, which need more memory when
    /// read. **Units:** bytes.
    pub fn counted_bytes(&self) -> usize {
        let Served { supported_ranges, deprecated_ranges, deprecated_versions, .. } = &self.served;
        let ranges = supported_ranges.iter().chain(deprecated_ranges);
        let comparators: usize = ranges.map(|range| 1 + range.comparators().len()).sum();
        let retried = self.retry_policy.as_ref().map_or(0, |policy| policy.retry_on.len());
        let entries = comparators + deprecated_versions.len() + self.permissions.len() + retried;
        self.raw.len() + entries * LIST_ENTRY_BYTES
    }

    /// The raw value of a field, known or not.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut found = None;
        let mut reader = Reader::new(&self.raw);
        read_map(&mut reader, |key, reader| {
            let value = reader.skip()?;
            if key == name.as_bytes() {
                found = Some(value);
            }
            Ok(())
        })
        .ok()?;
        found
    }
}

/// `idempotency` of a capability whose providers remember ids.
const BY_ID: &str = "by-id";
/// What one entry of a descriptor's lists counts for beside its text: about what a comparator of a range takes.
const LIST_ENTRY_BYTES: usize = 64;

/// A descriptor's fields as they came, checked for shape only.
#[derive(Default)]
pub(super) struct Fields<'a> {
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    version: Option<Cow<'a, str>>,
    input_schema: Option<SchemaSource>,
    output_schema: Option<SchemaSource>,
    supported_ranges: Vec<Cow<'a, str>>,
    deprecated_ranges: Vec<Cow<'a, str>>,
    deprecated_versions: Vec<Cow<'a, str>>,
    min_schema_version: Option<Cow<'a, str>>,
    description: Option<Cow<'a, str>>,
    category: Option<Cow<'a, str>>,
    since: Option<Cow<'a, str>>,
    idempotent: bool,
    by_id: bool,
    timeout_ms: Option<u64>,
    permissions: Vec<Cow<'a, str>>,
    rate_limit: Option<RateLimit>,
    retry_policy: Option<RetryPolicy>,
    static_hash: Option<[u8; 32]>,
    lineage: Option<[u8; 32]>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let mut fields = Self::default();
        read_map(reader, |key, reader| fields.read_field(key, reader))?;
        if fields.id.is_none() {
            return Err(ShapeError::Missing("id").into());
        }
        Ok(fields)
    }

    fn read_field(&mut self, key: &[u8], reader: &mut Reader<'a>) -> Result<(), BodyError> {
        match key {
            b"id" => self.id = Some(reader.text()?),
            b"name" => self.name = Some(reader.text()?),
            b"version" => self.version = Some(reader.text()?),
            b"input_schema" => self.input_schema = Some(SchemaSource::read(reader)?),
            b"output_schema" => self.output_schema = Some(SchemaSource::read(reader)?),
            b"supported_ranges" => self.supported_ranges = read_texts(reader)?,
            b"deprecated_ranges" => self.deprecated_ranges = read_texts(reader)?,
            b"deprecated_versions" => self.deprecated_versions = read_texts(reader)?,
            b"min_schema_version" => self.min_schema_version = Some(reader.text()?),
            // Kept in the raw bytes; nothing here looks at it.
            b"descriptor_sig" => drop(reader.bytes()?),
            b"instructions" => drop(read_texts(reader)?),
            b"validators" => read_validators(reader)?,
            b"description" => self.description = Some(reader.text()?),
            b"category" => self.category = Some(reader.text()?),
            b"since" => self.since = Some(reader.text()?),
            b"idempotent" => self.idempotent = reader.bool()?,
            // A word that this version does not know promises nothing.
            b"idempotency" => self.by_id = reader.text()? == BY_ID,
            b"timeout_ms" => self.timeout_ms = Some(reader.uint()?),
            b"permissions" => self.permissions = read_texts(reader)?,
            b"rate_limit" => self.rate_limit = Some(RateLimit::read(reader)?),
            b"retry_policy" => self.retry_policy = Some(RetryPolicy::read(reader)?),
            b"static_hash" => self.static_hash = Some(read_bytes(reader, "static_hash", "32 bytes")?),
            b"lineage" => self.lineage = Some(read_bytes(reader, "lineage", "32 bytes")?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    }

    fn into_descriptor(self, raw: Arc<[u8]>) -> Result<Descriptor, BodyError> {
        let id = self.agreed_id()?;
        let mut served = Served::only(id.version.clone());
        served.supported_ranges = parse_list("supported_ranges", &self.supported_ranges)?;
        served.deprecated_ranges = parse_list("deprecated_ranges", &self.deprecated_ranges)?;
        served.deprecated_versions = parse_list("deprecated_versions", &self.deprecated_versions)?;
        if let Some(text) = &self.min_schema_version {
            let floor: Version = text.parse().map_err(Contradiction::in_field("min_schema_version"))?;
            // PROTOCOL 7.5: nothing below min_schema_version is served, so this one would serve nothing of its own.
            if floor > id.version {
                return Err(Contradiction::FloorAboveVersion.into());
            }
            served.min_schema_version = Some(floor);
        }
        // `since` is any text. Where it is a version of this capability's own line it counts in negotiation; one above
        // the descriptor's version belongs to another line, such as the agent's releases.
        let since = self.since.as_deref().and_then(|text| text.parse::<Version>().ok());
        served.since = since.filter(|since| *since <= id.version);
        // A descriptor that calls its own version deprecated is so for every version it serves.
        served.deprecated = served.deprecates(&id.version);
        let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        Ok(Descriptor {
            raw,
            id,
            served,
            input_schema: self.input_schema,
            output_schema: self.output_schema,
            idempotent: self.idempotent,
            by_id: self.by_id && !self.idempotent,
            timeout_ms: self.timeout_ms,
            permissions: self.permissions.into_iter().map(Cow::into_owned).collect(),
            rate_limit: self.rate_limit,
            retry_policy: self.retry_policy,
            description: owned(self.description),
            category: owned(self.category),
            since: owned(self.since),
            static_hash: self.static_hash,
            lineage: self.lineage,
        })
    }

    /// PROTOCOL 7.2: `name` and `version` must agree with `id`, else 4001.
    fn agreed_id(&self) -> Result<CapabilityId, BodyError> {
        let text = required(self.id.as_deref(), "id")?;
        let id: CapabilityId = text.parse().map_err(Contradiction::in_field("id"))?;
        if self.name.as_deref().is_some_and(|name| name != id.name.as_str()) {
            return Err(Contradiction::IdDisagrees { field: "name" }.into());
        }
        if let Some(text) = &self.version {
            let version: Version = text.parse().map_err(Contradiction::in_field("version"))?;
            if version != id.version {
                return Err(Contradiction::IdDisagrees { field: "version" }.into());
            }
        }
        Ok(id)
    }
}

fn parse_list<T>(field: &'static str, texts: &[Cow<'_, str>]) -> Result<Vec<T>, BodyError>
where
    T: std::str::FromStr<Err = capability::Error>,
{
    if texts.len() > DESCRIPTOR_RANGES_MAX {
        return Err(Contradiction::TooMany { field, max: DESCRIPTOR_RANGES_MAX }.into());
    }
    texts.iter().map(|text| text.parse().map_err(Contradiction::in_field(field))).collect()
}

impl RateLimit {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let (mut requests, mut period, mut burst) = (None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"requests" => requests = Some(reader.uint()?),
                b"period" => period = Some(reader.text()?.into_owned()),
                b"burst" => burst = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { requests: required(requests, "requests")?, period: required(period, "period")?, burst })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint_if("burst", self.burst);
        map.text("period", &self.period);
        map.uint("requests", self.requests);
    }
}

/// What checks a side that has no JSON Schema; nothing here looks at it.
fn read_validators(reader: &mut Reader<'_>) -> Result<(), BodyError> {
    read_map(reader, |side, reader| match side {
        b"input" | b"output" => read_validator(reader),
        _ => Ok(reader.skip().map(|_| ())?),
    })
}

fn read_validator(reader: &mut Reader<'_>) -> Result<(), BodyError> {
    let (mut vendor, mut version) = (None, None);
    read_map(reader, |key, reader| {
        match key {
            b"vendor" => vendor = Some(reader.text()?),
            b"version" => version = Some(reader.uint()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    required(vendor, "vendor")?;
    required(version, "version")?;
    Ok(())
}

/// A name, or a code as a number.
fn read_retry_on(reader: &mut Reader<'_>) -> Result<String, BodyError> {
    if matches!(reader.kind()?, Kind::Unsigned) {
        return Ok(reader.uint()?.to_string());
    }
    Ok(reader.text()?.into_owned())
}

impl RetryPolicy {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let mut policy = Self::default();
        read_map(reader, |key, reader| {
            let mut value = Reader::new(reader.skip()?);
            match key {
                b"max_attempts" => policy.max_attempts = value.uint().ok(),
                b"backoff_multiplier" => {
                    let whole = value.int().map(|whole| whole as f64);
                    policy.backoff_multiplier = whole.or_else(|_| value.float()).ok();
                }
                b"initial_delay_ms" => policy.initial_delay_ms = value.uint().ok(),
                b"max_delay_ms" => policy.max_delay_ms = value.uint().ok(),
                b"retry_on" => {
                    let mut names = read_array(&mut value, read_retry_on).unwrap_or_default();
                    names.truncate(RETRY_ON_MAX);
                    policy.retry_on = names;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(policy)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.texts_if("retry_on", &self.retry_on);
        map.uint_if("max_attempts", self.max_attempts);
        map.uint_if("max_delay_ms", self.max_delay_ms);
        map.uint_if("initial_delay_ms", self.initial_delay_ms);
        if let Some(multiplier) = self.backoff_multiplier {
            map.key("backoff_multiplier").float(multiplier);
        }
    }
}
