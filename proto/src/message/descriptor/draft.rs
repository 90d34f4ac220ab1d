//! Builds a deterministic descriptor from a provider's declaration.

use super::{BY_ID, Descriptor, RateLimit, RetryPolicy};
use crate::{
    capability::{CapabilityId, Range, Version},
    message::{
        body::{BodyError, MapWriter},
        schema_ref::SchemaSource,
    },
};

/// The parts of a descriptor that a provider declares; empty parts and `None` are omitted.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of Descriptor")]
pub struct DescriptorDraft {
    pub id: CapabilityId,
    pub input_schema: Option<SchemaSource>,
    pub output_schema: Option<SchemaSource>,
    pub supported_ranges: Vec<Range>,
    pub deprecated_ranges: Vec<Range>,
    pub deprecated_versions: Vec<Version>,
    /// Writes the own version among the deprecated ones, which deprecates the whole descriptor.
    pub deprecated: bool,
    pub min_schema_version: Option<Version>,
    /// One CBOR item.
    pub notes: Option<Vec<u8>>,
    pub description: Option<String>,
    pub category: Option<String>,
    pub since: Option<String>,
    pub idempotent: Option<bool>,
    /// Writes `"idempotency": "by-id"`.
    pub by_id: bool,
    pub timeout_ms: Option<u64>,
    pub permissions: Vec<String>,
    pub instructions: Vec<String>,
    pub rate_limit: Option<RateLimit>,
    pub retry_policy: Option<RetryPolicy>,
    pub static_hash: Option<[u8; 32]>,
    pub lineage: Option<[u8; 32]>,
    /// One CBOR item: the vendors whose validators check the sides without a schema.
    pub validators: Option<Vec<u8>>,
}

impl DescriptorDraft {
    /// A descriptor with an id only.
    pub const fn new(id: CapabilityId) -> Self {
        Self {
            id,
            input_schema: None,
            output_schema: None,
            supported_ranges: Vec::new(),
            deprecated_ranges: Vec::new(),
            deprecated_versions: Vec::new(),
            deprecated: false,
            min_schema_version: None,
            notes: None,
            description: None,
            category: None,
            since: None,
            idempotent: None,
            by_id: false,
            timeout_ms: None,
            permissions: Vec::new(),
            instructions: Vec::new(),
            rate_limit: None,
            retry_policy: None,
            static_hash: None,
            lineage: None,
            validators: None,
        }
    }

    /// The descriptor.
    ///
    /// **Errors:** 4001 when the parts contradict each other, or a list is too long.
    pub fn finish(&self) -> Result<Descriptor, BodyError> {
        let mut raw = Vec::new();
        self.encode(&mut raw);
        Descriptor::decode(&raw)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut deprecated_versions = self.deprecated_versions.clone();
        if self.deprecated && !deprecated_versions.contains(&self.id.version) {
            deprecated_versions.push(self.id.version.clone());
        }
        let mut map = MapWriter::new(out);
        map.text("id", &self.id.to_string());
        map.text("name", self.id.name.as_str());
        map.raw_if("notes", self.notes.as_deref());
        map.text_if("since", self.since.as_deref());
        map.bytes_if("lineage", self.lineage.as_ref());
        map.text("version", &self.id.version.to_string());
        map.text_if("category", self.category.as_deref());
        map.bool_if("idempotent", self.idempotent);
        if let Some(limit) = &self.rate_limit {
            limit.encode(map.key_then("rate_limit"));
        }
        map.uint_if("timeout_ms", self.timeout_ms);
        map.raw_if("validators", self.validators.as_deref());
        map.text_if("description", self.description.as_deref());
        map.text_if("idempotency", self.by_id.then_some(BY_ID));
        map.texts_if("permissions", &self.permissions);
        map.bytes_if("static_hash", self.static_hash.as_ref());
        if let Some(schema) = &self.input_schema {
            schema.encode(map.key_then("input_schema"));
        }
        map.texts_if("instructions", &self.instructions);
        if let Some(policy) = &self.retry_policy {
            policy.encode(map.key_then("retry_policy"));
        }
        if let Some(schema) = &self.output_schema {
            schema.encode(map.key_then("output_schema"));
        }
        map.displays_if("supported_ranges", &self.supported_ranges);
        map.displays_if("deprecated_ranges", &self.deprecated_ranges);
        map.text_if(
            "min_schema_version",
            self.min_schema_version.as_ref().map(Version::to_string).as_deref(),
        );
        map.displays_if("deprecated_versions", &deprecated_versions);
    }
}
