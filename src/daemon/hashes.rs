//! Declarations and descriptors in; the hashes of what they promise out.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use capd_proto::capability::{CapabilityId, CapabilityName};
use capd_proto::cbor::Writer;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, SchemaSource};
use serde_json::Value;

use super::node::Refusal;
use super::start::{StartError, schema_error};
use super::wire::with_fields;
use crate::declaration::{self, Declaration, Declared};
use crate::schema::hash::{self, Form};
use crate::schema::{Artifacts, Contract, Fingerprint, HashError};

/// The hashes of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Of each capability, by name and then by version, oldest first.
    pub capabilities: Vec<Hashed>,
    /// Of all of them together.
    pub toolkit: Fingerprint,
}

impl Hashes {
    /// Those of one capability.
    pub fn of(&self, id: &CapabilityId) -> Option<&Hashed> {
        let order = |hashed: &Hashed| by_name_and_version(&hashed.id, id);
        self.capabilities.binary_search_by(order).ok().map(|at| &self.capabilities[at])
    }
}

/// One capability's hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Which capability.
    pub id: CapabilityId,
    /// Of what it promises.
    pub static_hash: Fingerprint,
    /// Of the line of its name's versions up to this one.
    pub lineage: Fingerprint,
}

/// Hashes what a declaration promises.
///
/// A schema is hashed as it is written, whether it could be enforced or not.
/// **Errors:** [`StartError::Schema`] for the first schema that has no hash.
pub fn hashes(declaration: &Declaration) -> Result<Hashes, StartError> {
    let mut declared: Vec<_> = declaration.capabilities.iter().collect();
    declared.sort_by(|a, b| by_name_and_version(&a.id, &b.id));
    let mut lines = Lines::default();
    let mut capabilities = Vec::with_capacity(declared.len());
    for declared in declared {
        let static_hash = static_hash(declared)?;
        let lineage = lines.next(&declared.id.name, static_hash, None);
        capabilities.push(Hashed { id: declared.id.clone(), static_hash, lineage });
    }
    let tools = capabilities.iter().map(|hashed| (hashed.id.name.as_str(), hashed.static_hash));
    let toolkit = hash::toolkit(tools);
    Ok(Hashes { capabilities, toolkit })
}

fn by_name_and_version(a: &CapabilityId, b: &CapabilityId) -> Ordering {
    a.name.cmp(&b.name).then_with(|| a.version.total_cmp(&b.version))
}

fn static_hash(declared: &Declared) -> Result<Fingerprint, StartError> {
    let sides = [&declared.input_schema, &declared.output_schema];
    // Each side by itself first, so that a refusal names the file and line of the one at fault.
    for schema in sides.into_iter().flatten() {
        hash::canonical(&schema.bytes).map_err(|error| schema_error(&declared.id, schema, &error))?;
    }
    let [input, output] = sides.map(|side: &Option<declaration::SchemaSource>| {
        side.as_ref().map(|schema| Form::Document(&schema.bytes))
    });
    let contract = Contract {
        name: declared.id.name.as_str(),
        description: declared.description.as_deref(),
        input,
        output,
        instructions: &declared.instructions,
        policies: &declared.permissions,
    };
    contract.static_hash().map_err(|error| StartError::System(error.to_string()))
}

/// Where the line of each name's versions stands.
#[derive(Default)]
struct Lines<'a>(BTreeMap<&'a CapabilityName, Fingerprint>);

impl<'a> Lines<'a> {
    /// Continues the line of `name`; `told` is what its owner says it comes to, who may know older versions.
    fn next(
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
pub(super) fn completed(
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
pub(super) fn check(descriptor: &Descriptor, artifacts: &Artifacts) -> Result<(), String> {
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
