//! Computes the hashes of descriptors' promises.

use std::collections::BTreeMap;

use capd_proto::capability::CapabilityName;
use capd_proto::cbor::Writer;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, SchemaSource};
use serde_json::Value;

use crate::daemon::context::Refusal;
use crate::daemon::context::wire::with_fields;
use crate::schema::hash::{self, Form};
use crate::schema::{Artifacts, Contract, Fingerprint, HashError};

/// Where the line of each name's versions stands.
#[derive(Default)]
pub(in crate::daemon) struct Lines<'a>(BTreeMap<&'a CapabilityName, Fingerprint>);

impl<'a> Lines<'a> {
    /// Continues the line of `name`; `told` is what its owner says it comes to, who may know older versions.
    pub(in crate::daemon) fn next(
        &mut self,
        name: &'a CapabilityName,
        next: Fingerprint,
        told: Option<Fingerprint>,
    ) -> Fingerprint {
        let lineage = told.unwrap_or_else(|| hash::lineage(self.0.get(name).copied(), next));
        self.0.insert(name, lineage);
        lineage
    }
}

/// The same descriptors with the hashes that they did not say; those they did are held against what they promise.
///
/// A descriptor whose schema is a plain URL that nothing was imported under has no hash of ours, and keeps its own.
/// **Errors:** 4001 for a hash that is not that of the descriptor, or a schema that has none.
pub(in crate::daemon) fn completed(
    descriptors: Vec<Descriptor>,
    artifacts: &Artifacts,
) -> Result<Vec<Descriptor>, Refusal> {
    let mut order: Vec<usize> = (0..descriptors.len()).collect();
    order.sort_by(|a, b| descriptors[*a].id.version.total_cmp(&descriptors[*b].id.version));
    let mut lines = Lines::default();
    let mut said: BTreeMap<usize, (Fingerprint, Fingerprint)> = BTreeMap::new();
    for at in order {
        let descriptor = &descriptors[at];
        let Some(found) = of_descriptor(descriptor, artifacts) else { continue };
        let found =
            found.map_err(|error| Refusal::new(Code::BAD_REQUEST, format!("{}: {error}", descriptor.id)))?;
        agrees(descriptor, found).map_err(|problem| Refusal::new(Code::BAD_REQUEST, problem))?;
        let told = descriptor.lineage.map(Fingerprint);
        said.insert(at, (found, lines.next(&descriptor.id.name, found, told)));
    }
    let with_hashes = |(at, descriptor): (usize, &Descriptor)| match said.get(&at) {
        Some((static_hash, lineage)) => with_hashes(descriptor, *static_hash, *lineage),
        None => Ok(descriptor.clone()),
    };
    descriptors.iter().enumerate().map(with_hashes).collect()
}

fn with_hashes(
    descriptor: &Descriptor,
    static_hash: Fingerprint,
    lineage: Fingerprint,
) -> Result<Descriptor, Refusal> {
    let bytes = |Fingerprint(hash)| {
        let mut out = Vec::with_capacity(34);
        Writer::new(&mut out).bytes(&hash);
        out
    };
    let (static_hash, lineage) = (bytes(static_hash), bytes(lineage));
    let fields: [(&str, &[u8]); 2] = [("static_hash", &static_hash), ("lineage", &lineage)];
    Descriptor::decode(&with_fields(descriptor.as_bytes(), &fields)).map_err(Refusal::of)
}

/// Holds the hash that a descriptor says against what it promises, as far as everything is at hand.
///
/// **Errors:** what does not agree.
pub(in crate::daemon) fn check(descriptor: &Descriptor, artifacts: &Artifacts) -> Result<(), String> {
    match of_descriptor(descriptor, artifacts) {
        Some(Ok(found)) => agrees(descriptor, found),
        // A schema without a hash is enforced all the same; there is nothing to hold the said hash against.
        Some(Err(_)) | None => Ok(()),
    }
}

fn agrees(descriptor: &Descriptor, found: Fingerprint) -> Result<(), String> {
    match descriptor.static_hash.map(Fingerprint) {
        Some(said) if said != found => Err(format!(
            "static_hash of {} is {said}, but its declaration hashes to {found}; omit it and capd computes it",
            descriptor.id
        )),
        Some(_) | None => Ok(()),
    }
}

/// The hash of what a descriptor promises; `None` while a schema's bytes are not here.
fn of_descriptor(descriptor: &Descriptor, artifacts: &Artifacts) -> Option<Result<Fingerprint, HashError>> {
    let field = |name| descriptor.field(name).and_then(|bytes| to_json(bytes).ok()).unwrap_or_default();
    let instructions: Vec<String> = texts(&field("instructions"));
    let validators = field("validators");
    let document = |source: &Option<SchemaSource>| match source {
        None => Some(None),
        Some(SchemaSource::Url(uri)) => artifacts.find_uri(uri).map(Some),
        Some(SchemaSource::Ref(schema)) => artifacts.find(&schema.hash).map(Some),
    };
    let (input, output) = (document(&descriptor.input_schema)?, document(&descriptor.output_schema)?);
    let contract = Contract {
        name: descriptor.id.name.as_str(),
        description: descriptor.description.as_deref(),
        input: input
            .as_ref()
            .map(|artifact| Form::Document(artifact.document()))
            .or_else(|| vendor(&validators["input"])),
        output: output
            .as_ref()
            .map(|artifact| Form::Document(artifact.document()))
            .or_else(|| vendor(&validators["output"])),
        instructions: &instructions,
        policies: &descriptor.permissions,
    };
    Some(contract.static_hash())
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn vendor(validator: &Value) -> Option<Form<'_>> {
    let (vendor, version) = (validator["vendor"].as_str()?, validator["version"].as_u64()?);
    Some(Form::Vendor { vendor, version })
}
