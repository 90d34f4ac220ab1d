//! Holds compiled schemas of declarations and peers, each verified against its hash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{
    ContentHash, Descriptor, DocRequest, DocSend, HashAlg, SchemaRef, SchemaSource, Type,
};
use tokio_util::sync::CancellationToken;

use super::refresh::{ASK_MS, HASHED_MAX};
use super::{Directory, hashes};
use crate::daemon::context::refusal::refused_artifact;
use crate::daemon::context::wire::with_fields;
use crate::daemon::context::{Refusal, lock};
use crate::registry::snapshot::{Event, Origin};
use crate::schema::{Artifact, ArtifactError, Keep};

impl Directory {
    /// Takes a declared schema in; the reference that names it, which is how peers get it.
    pub(in crate::daemon) fn declared_schema(&self, document: &[u8]) -> Result<SchemaSource, ArtifactError> {
        let kept = self.artifacts.declare(document.to_vec())?;
        kept.validator()?;
        Ok(reference(ContentHash::of(HashAlg::Sha256, document)))
    }

    /// Takes a descriptor's inline schemas in and leaves references by hash, which is how peers get them.
    pub(in crate::daemon) fn own_schemas(&self, descriptor: Descriptor) -> Result<Descriptor, Refusal> {
        let mut fields = Vec::new();
        for (key, source) in
            [("input_schema", &descriptor.input_schema), ("output_schema", &descriptor.output_schema)]
        {
            let Some(SchemaSource::Ref(schema)) = source else { continue };
            let artifact = self.own_schema(schema).map_err(|refusal| Refusal {
                message: format!("{key} of {}: {}", descriptor.id, refusal.message),
                ..refusal
            })?;
            artifact.validator().map_err(|error| {
                Refusal::new(Code::BAD_REQUEST, format!("{key} of {}: {error}", descriptor.id))
            })?;
            if schema.inline.is_some() {
                let mut value = Vec::new();
                reference(schema.hash).encode(&mut value);
                fields.push((key, value));
            }
        }
        if fields.is_empty() {
            return Ok(descriptor);
        }
        let fields: Vec<_> = fields.iter().map(|(key, value)| (*key, value.as_slice())).collect();
        Descriptor::decode(&with_fields(descriptor.as_bytes(), &fields)).map_err(Refusal::of)
    }

    fn own_schema(&self, schema: &SchemaRef) -> Result<Arc<Artifact>, Refusal> {
        let hash = schema.hash;
        if schema.inline.is_none() {
            return self.artifacts.need(&hash).map_err(refused_artifact);
        }
        let document = schema.inline_document().ok_or_else(|| {
            Refusal::new(Code::BAD_REQUEST, "an inline schema is its document as text or as bytes")
        })?;
        self.artifacts.insert(hash, document.into_owned(), Keep::Own).map_err(refused_artifact)
    }

    /// The compiled schema of one side of a capability; `None` when that side is unchecked.
    pub(in crate::daemon) fn schema(
        &self,
        source: Option<&SchemaSource>,
    ) -> Result<Option<Arc<Artifact>>, Refusal> {
        match source {
            None => Ok(None),
            // PROTOCOL 7.2: looked up among what was imported; when it is not there, that side is unchecked.
            Some(SchemaSource::Url(url)) => Ok(self.artifacts.find_uri(url)),
            Some(SchemaSource::Ref(schema)) => {
                self.artifacts.need(&schema.hash).map(Some).map_err(refused_artifact)
            }
        }
    }

    /// A peer's schema document, verified; asked for once however many calls need it.
    pub(in crate::daemon) async fn fetch_schema(
        &self,
        peer: &Did,
        hash: ContentHash,
    ) -> Result<Arc<Artifact>, Refusal> {
        loop {
            if let Some(artifact) = self.artifacts.find(&hash) {
                return Ok(artifact);
            }
            let under_way = {
                let mut fetches = lock(&self.fetches);
                match fetches.get(&hash) {
                    Some(ended) => Some(ended.clone()),
                    None => {
                        fetches.insert(hash, CancellationToken::new());
                        None
                    }
                }
            };
            let Some(ended) = under_way else {
                // Whoever fetches may stop waiting, and then the next one fetches.
                let _fetch = Fetch { fetches: &self.fetches, hash };
                return self.fetch(peer, hash).await;
            };
            ended.cancelled().await;
        }
    }

    async fn fetch(&self, peer: &Did, hash: ContentHash) -> Result<Arc<Artifact>, Refusal> {
        let link = self.peers.link(peer);
        let link = link.ok_or_else(|| {
            Refusal::new(Code::UNAVAILABLE, "the peer that has the schema is not connected")
        })?;
        let mut body = Vec::new();
        DocRequest { hash: hash.as_bytes().into() }.encode(&mut body);
        let answer = self.asks.ask(&link, Type::DocRequest, &body, ASK_MS)?.answer().await?;
        // PROTOCOL 7.2: bytes missing or hash wrong are 5002, in whichever way the peer got them wrong.
        let unusable = |error: &dyn std::fmt::Display| Refusal::new(Code::UNAVAILABLE, error.to_string());
        let document = DocSend::decode(&answer.body).map_err(|error| unusable(&error))?;
        document.verify(&hash).map_err(|error| unusable(&error))?;
        let artifact = self
            .artifacts
            .insert(hash, document.data.into_owned(), Keep::Cached)
            .map_err(refused_artifact)?;
        self.check_fetched(peer, &hash);
        Ok(artifact)
    }

    /// Looks at what a peer declared with this schema again, once its bytes are here, and lets go of what is not as its
    /// hash says.
    fn check_fetched(&self, peer: &Did, hash: &ContentHash) {
        let origin = Origin::Peer(peer.clone());
        let snapshot = self.registry.snapshot();
        let names_it = |descriptor: &Descriptor| {
            let mut schemas = [&descriptor.input_schema, &descriptor.output_schema].into_iter().flatten();
            schemas.any(|schema| schema.hash() == Some(hash))
        };
        let served: Vec<_> =
            snapshot.served_by(&origin).iter().map(|entry| Arc::clone(&entry.descriptor)).collect();
        let mut wrong = Vec::new();
        for descriptor in served.iter().filter(|descriptor| names_it(descriptor)).take(HASHED_MAX) {
            if let Err(problem) = hashes::check(descriptor, &self.artifacts) {
                tracing::warn!(%peer, capability = %descriptor.id, problem, "a peer's capability is not used");
                wrong.push((descriptor.id.clone(), problem));
            }
        }
        if wrong.is_empty() {
            return;
        }
        let mut descriptors = served;
        descriptors.retain(|descriptor| !wrong.iter().any(|(id, _)| *id == descriptor.id));
        self.registry.apply(Event::Declared { origin, descriptors });
        self.peers.contradicted(peer, wrong);
    }
}

/// A fetch that is under way until it is dropped.
struct Fetch<'a> {
    fetches: &'a Mutex<HashMap<ContentHash, CancellationToken>>,
    hash: ContentHash,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        if let Some(ended) = lock(self.fetches).remove(&self.hash) {
            ended.cancel();
        }
    }
}

/// A reference that names a document by its hash alone (RFC 6920): its bytes come by DOC_REQUEST.
fn reference(hash: ContentHash) -> SchemaSource {
    let digest = URL_SAFE_NO_PAD.encode(hash.as_bytes());
    SchemaSource::Ref(Box::new(SchemaRef {
        uri: Some(format!("ni:///{};{digest}", hash.alg().as_str())),
        bundle: None,
        hash,
        media_type: Some(SCHEMA_MEDIA_TYPE.to_owned()),
        inline: None,
    }))
}

/// The media type of schema documents.
pub(in crate::daemon) const SCHEMA_MEDIA_TYPE: &str = "application/schema+json";
