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
    /// Who offers it, and its descriptor.
    pub offer: Offer,
    /// What params must fit.
    pub input: SchemaSide,
    /// What results must fit.
    pub output: SchemaSide,
}

/// What is known of one side's schema. **Source:** PROTOCOL 7.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaSide {
    /// Payloads are checked against this document.
    Checked {
        /// Over the document's exact bytes; verified.
        hash: ContentHash,
        /// The schema.
        document: Bytes,
    },
    /// None is declared: the side takes anything.
    Undeclared,
    /// It is declared by a plain URL that the sidecar has no document for: the side takes anything.
    Unknown {
        /// The URL.
        uri: String,
    },
    /// It is declared, but its document did not come or does not have the hash: calls are refused with 5002.
    Unavailable {
        /// What the document's bytes should hash to.
        hash: ContentHash,
        /// What went wrong.
        reason: String,
    },
}

impl Client {
    /// Describes a capability as each agent declares it that our sidecar knows, our own agent first.
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

    /// The document with this hash, from our sidecar or the agent `to`; its bytes are verified.
    ///
    /// **Errors:** [`ClientError::Answer`] when the bytes do not have the hash; a refusal when nobody has the document.
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
