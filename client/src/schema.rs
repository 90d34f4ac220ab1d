//! Describes a capability: its id in; its providers' declarations, with schemas fetched by hash and verified, out.

use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::identity::Did;
use capd_proto::message::{ContentHash, DocSend, SchemaSource, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, Offer, Query, bodies};

/// A capability as one agent offers it, with both its schemas.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The provider, and its descriptor.
    pub offer: Offer,
    /// The schema of params.
    pub input: SchemaSide,
    /// The schema of results.
    pub output: SchemaSide,
}

/// One side's schema, as far as known. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaSide {
    /// Payloads are checked against this document.
    Checked {
        /// The verified hash of the document's exact bytes.
        hash: ContentHash,
        /// The schema.
        document: Bytes,
    },
    /// No schema is declared: the side accepts anything.
    Undeclared,
    /// A schema is declared by a plain URL, and the sidecar has no document for it: the side accepts anything.
    Unknown {
        /// The URL.
        uri: String,
    },
    /// A schema is declared, but its document did not arrive or does not match the hash: calls are refused with 5002.
    Unavailable {
        /// The expected hash of the document.
        hash: ContentHash,
        /// What went wrong.
        reason: String,
    },
}

impl Client {
    /// Describes a capability as each known agent declares it, the own agent first.
    ///
    /// **Errors:** [`ClientError`]; a capability that nobody offers is a refusal with 4002 or 4003.
    pub async fn describe(&self, id: &CapabilityId) -> Result<Vec<Description>, ClientError> {
        let mut query = Query::new(id.name.clone());
        let exactly = format!("={}", id.version);
        query.version =
            Some(exactly.parse().map_err(|error| ClientError::Invalid(format!("{exactly}: {error}")))?);
        let mut offers = self.query_all(&query).await?;
        offers.sort_by_key(|offer| !offer.is_local);
        let mut descriptions = Vec::with_capacity(offers.len());
        for offer in offers {
            let input = self.side(offer.descriptor.input_schema.as_ref()).await?;
            let output = self.side(offer.descriptor.output_schema.as_ref()).await?;
            descriptions.push(Description { offer, input, output });
        }
        Ok(descriptions)
    }

    /// Fetches the document with this hash from the own sidecar or the agent `to`, and verifies its bytes.
    ///
    /// **Errors:** [`ClientError::Answer`] if the bytes do not match the hash; a refusal if nobody has the document.
    pub async fn document(&self, hash: &ContentHash, to: Option<&Did>) -> Result<Bytes, ClientError> {
        let body = bodies::doc_request(hash.as_bytes());
        let did = self.did();
        let message = Outgoing { to: to.unwrap_or(did), ..Outgoing::new(Type::DocRequest, did, &body) };
        let reply = self.request(&message, Type::DocSend, self.core.request_timeout).await?;
        let document = DocSend::decode(&reply.body).map_err(bodies::unusable)?;
        // PROTOCOL 7.2: the hash is over the document's exact bytes and is checked before use.
        document.verify(hash).map_err(bodies::unusable)?;
        Ok(document.data.into_owned().into())
    }

    async fn side(&self, source: Option<&SchemaSource>) -> Result<SchemaSide, ClientError> {
        let hash = match source {
            None => return Ok(SchemaSide::Undeclared),
            Some(SchemaSource::Url(uri)) => return Ok(SchemaSide::Unknown { uri: uri.clone() }),
            Some(SchemaSource::Ref(schema)) => schema.hash,
        };
        match self.document(&hash, None).await {
            Ok(document) => Ok(SchemaSide::Checked { hash, document }),
            Err(error @ (ClientError::Refused(_) | ClientError::Answer(_))) => {
                Ok(SchemaSide::Unavailable { hash, reason: error.to_string() })
            }
            Err(error) => Err(error),
        }
    }
}
