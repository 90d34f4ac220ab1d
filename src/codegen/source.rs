//! Reads what code is generated from: a declaration, or a sidecar's description of a peer.

use capd_proto::capability::CapabilityId;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::client::{Description, SchemaSide};
use crate::declaration::{Declaration, Declared, SchemaSource};
use crate::schema::hash::{self, Fingerprint, HashError};

/// An agent, and what it can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// `agent://ID` or a DID, if known; foreign text.
    pub name: Option<String>,
    /// Its capabilities, in any order.
    pub capabilities: Vec<Capability>,
}

/// One capability, as its agent declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Capability {
    /// Name and version.
    pub id: CapabilityId,
    /// What it does.
    pub description: Option<String>,
    /// The schema of params.
    pub input: Option<Schema>,
    /// The schema of results.
    pub output: Option<Schema>,
}

/// A schema in its canonical form, and that form's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// **Shape:** RFC 8785, so that the order of keys does not count.
    pub json: String,
    /// SHA-256 of `json`.
    pub sha256: Fingerprint,
}

/// Why no code can be generated for a capability.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// A schema has no canonical form.
    #[error("{id}: the {side} schema has no hash: {error}")]
    Hash {
        /// The capability.
        id: Box<CapabilityId>,
        /// `input` or `output`.
        side: &'static str,
        /// What is wrong with it.
        error: HashError,
    },
    /// A peer declares a schema that did not arrive.
    #[error("{id}: the {side} schema is not available: {reason}")]
    Missing {
        /// The capability.
        id: Box<CapabilityId>,
        /// `input` or `output`.
        side: &'static str,
        /// Why it did not arrive.
        reason: String,
    },
}

impl Schema {
    /// Brings a document into its canonical form.
    ///
    /// **Errors:** [`HashError`].
    pub fn read(document: &[u8]) -> Result<Self, HashError> {
        let json = hash::canonical(document)?;
        let sha256 = Fingerprint(Sha256::digest(&json).into());
        // RFC 8785 writes UTF-8, and what was read was UTF-8.
        Ok(Self { json: String::from_utf8_lossy(&json).into_owned(), sha256 })
    }
}

impl Agent {
    /// Reads the agent of a declaration.
    ///
    /// **Errors:** [`SourceError::Hash`].
    pub fn declared(declaration: &Declaration) -> Result<Self, SourceError> {
        let capabilities = declaration.capabilities.iter().map(Capability::declared);
        let capabilities = capabilities.collect::<Result<Vec<_>, _>>()?;
        let name = declaration.agent.clone().or_else(|| named_by(&capabilities));
        Ok(Self { name, capabilities })
    }

    /// Reads the agent `provider` from a sidecar's descriptions.
    ///
    /// **Errors:** [`SourceError`].
    pub fn described(provider: &str, descriptions: &[Description]) -> Result<Self, SourceError> {
        let capabilities = descriptions.iter().map(Capability::described);
        let capabilities = capabilities.collect::<Result<Vec<_>, _>>()?;
        let name = named_by(&capabilities).unwrap_or_else(|| provider.to_owned());
        Ok(Self { name: Some(name), capabilities })
    }
}

/// The agent whose id every capability has in its name: `agent://pr-reviewer` of `agent.pr-reviewer.review-pr`.
fn named_by(capabilities: &[Capability]) -> Option<String> {
    let mut ids = capabilities.iter().map(|capability| {
        let (before, _) = capability.id.name.as_str().strip_prefix("agent.")?.rsplit_once('.')?;
        Some(before)
    });
    let first = ids.next()??;
    ids.all(|id| id == Some(first)).then(|| format!("agent://{first}"))
}

impl Capability {
    fn declared(declared: &Declared) -> Result<Self, SourceError> {
        let schema = |side, source: &Option<SchemaSource>| {
            let document = source.as_ref().map(|source| source.bytes.as_slice());
            document.map(|document| read(&declared.id, side, document)).transpose()
        };
        Ok(Self {
            id: declared.id.clone(),
            description: declared.description.clone(),
            input: schema("input", &declared.input_schema)?,
            output: schema("output", &declared.output_schema)?,
        })
    }

    fn described(description: &Description) -> Result<Self, SourceError> {
        let Description { offer, input, output } = description;
        let schema = |side, schema: &SchemaSide| match schema {
            // A schema that the sidecar does not know is checked by nobody.
            SchemaSide::Undeclared | SchemaSide::Unknown { .. } => Ok(None),
            SchemaSide::Checked { document, .. } => read(offer.id(), side, document).map(Some),
            SchemaSide::Unavailable { reason, .. } => {
                Err(SourceError::Missing { id: Box::new(offer.id().clone()), side, reason: reason.clone() })
            }
        };
        Ok(Self {
            id: offer.id().clone(),
            description: offer.descriptor.description.as_deref().map(str::to_owned),
            input: schema("input", input)?,
            output: schema("output", output)?,
        })
    }
}

fn read(id: &CapabilityId, side: &'static str, document: &[u8]) -> Result<Schema, SourceError> {
    Schema::read(document).map_err(|error| SourceError::Hash { id: Box::new(id.clone()), side, error })
}
