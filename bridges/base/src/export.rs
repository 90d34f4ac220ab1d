//! Reads what the sidecar's agent may call: patterns and pins in; one version of each capability, with its schemas, out.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use capd_client::proto::capability::{CapabilityName, CapabilityPattern, Version};
use capd_client::proto::message::{ContentHash, SchemaSource};
use capd_client::{Client, ClientError, Offer, Query};
use serde_json::Value;

/// Which capabilities are exported.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Those of these names.
    pub patterns: Vec<CapabilityPattern>,
    /// Of these names exactly these versions.
    pub pins: BTreeMap<CapabilityName, Version>,
}

/// Reads capabilities and remembers schema documents.
#[derive(Debug)]
pub struct Reader {
    choice: Choice,
    documents: Mutex<HashMap<ContentHash, Option<Value>>>,
}

impl Reader {
    /// A reader of what is chosen.
    pub fn new(choice: Choice) -> Self {
        Self { choice, documents: Mutex::default() }
    }

    /// Of each chosen name one version, in the order of the names.
    ///
    /// **Errors:** those of the sidecar.
    pub async fn offers(&self, client: &Client) -> Result<Vec<Offer>, ClientError> {
        let mut offers = Vec::new();
        for pattern in &self.choice.patterns {
            match client.query_all(&Query::new(pattern.clone())).await {
                Ok(found) => offers.extend(found),
                // Nobody serves the name yet.
                Err(ClientError::Refused(error)) if error.code.0 == NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        Ok(chosen(offers, &self.choice.pins))
    }

    /// A schema's document; none where there is none, or it cannot be had.
    ///
    /// **Errors:** those of the sidecar.
    pub async fn document(
        &self,
        client: &Client,
        source: Option<&SchemaSource>,
    ) -> Result<Option<Value>, ClientError> {
        let Some(SchemaSource::Ref(schema)) = source else { return Ok(None) };
        let known = || self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = known().get(&schema.hash) {
            return Ok(document.clone());
        }
        let document = match client.document(&schema.hash, None).await {
            Ok(document) => serde_json::from_slice(&document).ok(),
            // Its calls are refused, and say why.
            Err(ClientError::Refused(_) | ClientError::Answer(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut known = known();
        if known.len() >= DOCUMENTS_MAX {
            known.clear();
        }
        known.insert(schema.hash, document.clone());
        Ok(document)
    }
}

/// Of each name the pinned version, else the newest release that is not deprecated, else the newest release.
fn chosen(offers: Vec<Offer>, pins: &BTreeMap<CapabilityName, Version>) -> Vec<Offer> {
    let mut best: BTreeMap<CapabilityName, Offer> = BTreeMap::new();
    let rank =
        |offer: &Offer| (!offer.descriptor.served.deprecated, offer.id().version.clone(), offer.is_local);
    for offer in offers {
        let id = offer.id();
        let is_wanted = match pins.get(&id.name) {
            Some(pinned) => *pinned == id.version,
            None => !id.version.is_prerelease(),
        };
        if is_wanted && best.get(&id.name).is_none_or(|known| rank(known) < rank(&offer)) {
            best.insert(id.name.clone(), offer);
        }
    }
    best.into_values().collect()
}

/// Schema documents that are remembered.
const DOCUMENTS_MAX: usize = 10_000;
/// CAPABILITY_NOT_FOUND.
const NOT_FOUND: u32 = 4002;
