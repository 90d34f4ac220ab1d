//! Answers `PUT /v1/schemas/{hash}` and handles `Capd-Built-Against`: proves before a call is sent that its provider
//! keeps the contract that the agent's code was built against.
//!
//! This is the proof of `requires` in `capabilities.yaml`, per call, for code that has no such file.

use std::sync::{Arc, Mutex, PoisonError};

use ahash::HashMap;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::message::{ContentHash, SchemaSource};
use serde_json::json;

use super::Api;
use super::problem::Problem;
use super::terms::Terms;
use crate::client::{self, Client, ClientError, Offer};
use crate::schema::drift::{self, Finding, Needed, Offered, Standing, Told};
use crate::schema::{Artifact, ArtifactError, Artifacts, Keep};

/// Schemas that were put here or fetched, and what was proven of them.
#[derive(Default)]
pub(super) struct Schemas {
    artifacts: Artifacts,
    proven: Mutex<HashMap<Case, Arc<Standing>>>,
}

/// What a standing is about: the hashes of both sides that were built against, and of both that are offered.
type Case = [Option<ContentHash>; 4];

pub(super) async fn put(
    State(api): State<Arc<Api>>,
    Path(hash): Path<String>,
    head: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let hash = parsed(&hash)?;
    let document = api.read(&head, body).await?;
    api.keep_schema(hash, document)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Both hashes of the header; `-` stands for a side that code was not built against.
pub(super) fn built_against(text: &str) -> Result<[Option<ContentHash>; 2], Problem> {
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    let side = |part: &str| if part == "-" { Ok(None) } else { parsed(part).map(Some) };
    match parts.as_slice() {
        [input, output] => Ok([side(input)?, side(output)?]),
        _ => Err(Problem::bad(
            "Capd-Built-Against: accepted: IN-HASH, OUT-HASH, each a SHA-256 in hexadecimal, or -",
        )),
    }
}

impl Api {
    /// Keeps a schema that callers are built against.
    pub(super) fn keep_schema(&self, hash: ContentHash, document: Bytes) -> Result<(), Problem> {
        let kept = self.schemas.artifacts.insert(hash, document, Keep::Cached);
        let checked = kept.and_then(|artifact| artifact.validator().map(drop));
        checked.map_err(|error| match &error {
            ArtifactError::Unusable { .. } => Problem::refused(Code::UNSUPPORTED_SCHEMA, error.to_string()),
            ArtifactError::Full { .. } => Problem::refused(Code::OVERLOADED, error.to_string()),
            ArtifactError::Mismatch(_) | ArtifactError::TooLarge { .. } | ArtifactError::Missing(_) => {
                Problem::bad(error.to_string())
            }
        })
    }

    /// Narrows `terms` to what is proven to keep to what the agent was built against.
    ///
    /// **Errors:** 428 for a schema that is not known here; 424 where nothing that may be called keeps to it.
    pub(super) async fn prove(
        &self,
        client: &Client,
        built: [Option<ContentHash>; 2],
        terms: &mut Terms,
    ) -> Result<(), Problem> {
        let offers = candidates(client, terms).await?;
        let mut broken = None;
        let mut proven: Vec<&Offer> = Vec::new();
        for offer in &offers {
            match &*self.standing(client, built, offer).await? {
                Standing::Proven | Standing::Untold => proven.push(offer),
                Standing::Broken(findings) => {
                    broken.get_or_insert_with(|| refusal(offer, findings));
                }
            }
        }
        match (broken, proven.first()) {
            (None, _) => Ok(()),
            (Some(problem), None) => Err(problem),
            (Some(_), Some(offer)) => {
                // Some keep to it and others do not: the call goes to one that does.
                terms.capability = offer.id().to_string();
                terms.version = None;
                if let (false, Some(provider)) = (offer.is_local, &offer.provider) {
                    terms.to = Some(provider.clone());
                }
                Ok(())
            }
        }
    }

    async fn standing(
        &self,
        client: &Client,
        built: [Option<ContentHash>; 2],
        offer: &Offer,
    ) -> Result<Arc<Standing>, Problem> {
        let [input, output] = built;
        let descriptor = &offer.descriptor;
        let sides = [&descriptor.input_schema, &descriptor.output_schema];
        let [offered_input, offered_output] = sides.map(|side| hash_of(side.as_ref()));
        let case = [input, output, offered_input, offered_output];
        if let Some(known) = lock(&self.schemas.proven).get(&case) {
            return Ok(Arc::clone(known));
        }
        // What an agent was built against is mostly what is served.
        let is_same = |built: Option<ContentHash>, offered| built.is_none() || built == offered;
        if is_same(input, offered_input) && is_same(output, offered_output) {
            return Ok(Arc::new(Standing::Proven));
        }
        let needed =
            Needed { input: self.needed(client, input).await?, output: self.needed(client, output).await? };
        let offered = Offered {
            input: self.told(client, sides[0].as_ref()).await,
            output: self.told(client, sides[1].as_ref()).await,
        };
        let proven = self.system.tasks.compute(move || drift::prove(&needed, &offered)).await;
        let standing = Arc::new(proven.ok_or_else(|| {
            Problem::refused(Code::UNSUPPORTED_SCHEMA, "the schemas could not be compared")
        })?);
        let mut known = lock(&self.schemas.proven);
        if known.len() >= PROVEN_MAX {
            known.clear();
        }
        known.insert(case, Arc::clone(&standing));
        Ok(standing)
    }

    /// A schema that code was built against. **Errors:** 428 for one that nobody has put here.
    async fn needed(
        &self,
        client: &Client,
        hash: Option<ContentHash>,
    ) -> Result<Option<Arc<Artifact>>, Problem> {
        let Some(hash) = hash else { return Ok(None) };
        if let Some(artifact) = self.fetched(client, &hash).await {
            return Ok(Some(artifact));
        }
        let hex = hex(&hash);
        let detail = format!("the schema {hex} is not known here; PUT it to /v1/schemas/{hex} and ask again");
        let problem = Problem::bad(detail).status(StatusCode::PRECONDITION_REQUIRED);
        Err(problem.details(json!({"unknown_schemas": [hex]})))
    }

    async fn told(&self, client: &Client, source: Option<&SchemaSource>) -> Told {
        match source {
            None => Told::Anything,
            Some(SchemaSource::Url(_)) => Told::Unknown,
            Some(SchemaSource::Ref(schema)) => {
                self.fetched(client, &schema.hash).await.map_or(Told::Unknown, Told::Schema)
            }
        }
    }

    /// A document that was put here, or that the sidecar has.
    pub(super) async fn fetched(&self, client: &Client, hash: &ContentHash) -> Option<Arc<Artifact>> {
        if let Some(artifact) = self.schemas.artifacts.find(hash) {
            return Some(artifact);
        }
        let document = client.document(hash, None).await.ok()?;
        self.schemas.artifacts.insert(*hash, document, Keep::Cached).ok()
    }
}

/// What a call may go to: of the newest version that its terms leave, all providers.
async fn candidates(client: &Client, terms: &Terms) -> Result<Vec<Offer>, Problem> {
    let (name, version) = match terms.capability.parse::<CapabilityId>() {
        Ok(id) => (id.name, Some(format!("={}", id.version))),
        Err(_) => {
            let name = terms.capability.parse();
            (name.map_err(|error| Problem::bad(format!("{error}")))?, terms.version.clone())
        }
    };
    let mut query = client::Query::new(name);
    let range = version.unwrap_or_else(|| ANY_RELEASE.to_owned());
    query.version = Some(range.parse().map_err(|error| Problem::bad(format!("version={range:?}: {error}")))?);
    let offers = match client.query_all(&query).await {
        Ok(offers) => offers,
        // The call is refused for the same reason, with the code that says it.
        Err(ClientError::Refused(_)) => return Ok(Vec::new()),
        Err(error) => return Err(Problem::of_request(&error)),
    };
    let newest = offers.first().map(|offer| offer.id().version.clone());
    let is_meant = |offer: &Offer| {
        Some(&offer.id().version) == newest.as_ref()
            && terms.to.as_ref().is_none_or(|to| offer.provider.as_ref() == Some(to))
    };
    Ok(offers.into_iter().filter(is_meant).collect())
}

/// 4902 or 4903 with every finding, in the shape of a refused call.
fn refusal(offer: &Offer, findings: &[Finding]) -> Problem {
    let code = drift::code(findings);
    let words = findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("; ");
    let detail = format!("{} is not what this call was built against: {words}", offer.id());
    Problem::refused(code, detail).details(json!({
        "capability": offer.id().to_string(),
        "provider": offer.provider,
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    }))
}

fn hash_of(source: Option<&SchemaSource>) -> Option<ContentHash> {
    match source {
        Some(SchemaSource::Ref(schema)) => Some(schema.hash),
        Some(SchemaSource::Url(_)) | None => None,
    }
}

fn parsed(text: &str) -> Result<ContentHash, Problem> {
    let hex = text.strip_prefix("sha-256:").unwrap_or(text);
    // A number may have a sign, and a digit has none.
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = digits.collect();
    let hash = bytes.filter(|bytes| bytes.len() == 32).and_then(|bytes| ContentHash::from_slice(&bytes));
    hash.ok_or_else(|| Problem::bad(format!("{text:?} is no SHA-256; accepted: 64 hexadecimal digits")))
}

fn hex(hash: &ContentHash) -> String {
    hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The table changes in single steps, so a panic leaves none half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every version that is no pre-release.
const ANY_RELEASE: &str = ">=0.0.0";
/// Cases whose proof is remembered.
const PROVEN_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_64_digits_and_nothing_else() {
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        let hash = parsed(&digits).unwrap();
        assert_eq!(hex(&hash), digits.to_lowercase());
        assert_eq!(parsed(&format!("sha-256:{digits}")).unwrap(), hash);
        let signed = "+f".repeat(32);
        for wrong in [signed.as_str(), "", "sha-256:", &digits[1..], &"é".repeat(32), &format!("{digits}0")]
        {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
