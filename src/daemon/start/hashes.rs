//! Computes the hashes of declarations' promises.

use std::cmp::Ordering;

use capd_proto::capability::CapabilityId;

use super::{StartError, schema_error};
use crate::daemon::directory::hashes::Lines;
use crate::declaration::{self, Declaration, Declared};
use crate::schema::hash::{self, Form};
use crate::schema::{Contract, Fingerprint};

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
    /// Of its promise.
    pub static_hash: Fingerprint,
    /// Of the lineage of its name's versions up to this one.
    pub lineage: Fingerprint,
}

/// Hashes the promises of a declaration.
///
/// A schema is hashed as written, enforceable or not. **Errors:** [`StartError::Schema`] for the first schema that has
/// no hash.
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
