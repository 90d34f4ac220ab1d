//! CAP_QUERY and DOC_REQUEST in; pages of descriptors and schema documents out.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::capability::CapabilityPattern;
use capd_proto::code::Code;
use capd_proto::message::{
    ContentHash, Cursor, CursorContext, Declare, Descriptor, DocRequest, DocSend, Order, Query, Question,
    Type,
};

use super::executor::refused_artifact;
use super::inbound::Inbound;
use super::node::{Node, Refusal};
use super::providers::SCHEMA_MEDIA_TYPE;
use super::wire::{mismatch, text, with_fields};
use crate::registry::snapshot::{Entry, Origin, Snapshot};
use crate::router;
use crate::schema::Artifact;

impl Node {
    /// Answers a query. A peer is told what is served here, the agent everything that is known. **Source:** PROTOCOL 7.1.
    pub(super) fn on_query(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let query = Query::decode(inbound.body).map_err(Refusal::of)?;
        let question = query.question().map_err(Refusal::of)?;
        // A page's cursor belongs to a snapshot; only the first page begins with a fresh one.
        if query.cursor.is_none() && self.defer_until_fresh(inbound) {
            return Ok(());
        }
        let permit = self.permit_query(inbound, &question.pattern)?;
        let is_agent = inbound.link.kind().is_local();
        let context = CursorContext {
            holder: inbound.sender.as_str(),
            question: &question,
            snapshot: self.edition(&permit),
        };
        let start = match &query.cursor {
            Some(cursor) => Cursor::open(&self.cursor_key, &context, cursor)
                .map_err(|error| Refusal::new(Code::BAD_REQUEST, error.to_string()))?,
            None => 0,
        };
        let entries = matching(&permit.snapshot, &question, is_agent, |entry| self.may_see(&permit, entry))
            .map_err(
            |refusal| if is_agent { self.or_misunderstood(refusal, None, None) } else { refusal },
        )?;
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(entries.len());
        // A page ends early rather than outgrow what the link takes.
        let budget_bytes = inbound.link.message_bytes_max() / 2;
        let mut page: Vec<Vec<u8>> = Vec::new();
        let mut page_bytes = 0;
        for entry in entries[start..].iter().take(question.limit) {
            let descriptor = self.listed(entry, is_agent);
            page_bytes += descriptor.len();
            if !page.is_empty() && page_bytes > budget_bytes {
                break;
            }
            page.push(descriptor);
        }
        if page.is_empty() {
            return Err(Refusal::new(Code::BAD_REQUEST, "the cursor stands behind the last page"));
        }
        let next = start + page.len();
        let next_cursor =
            (next < entries.len()).then(|| Cursor::seal(&self.cursor_key, &context, next as u64).into());
        let mut body = Vec::with_capacity(page_bytes + 64);
        Declare::new(page.iter().map(Vec::as_slice).collect(), next_cursor).encode(&mut body);
        self.reply(inbound, Type::CapDeclare, &body);
        Ok(())
    }

    /// A descriptor as it is listed: for the agent with who serves it, in fields of our own.
    fn listed(&self, entry: &Entry, is_agent: bool) -> Vec<u8> {
        if !is_agent {
            return entry.descriptor.as_bytes().to_vec();
        }
        let (provider, is_local) = match &entry.origin {
            Origin::Local(_) => (self.did().as_str(), true),
            Origin::Peer(did) => (did.as_str(), false),
        };
        let is_local: &[u8] = if is_local { &[0xf5] } else { &[0xf4] };
        with_fields(entry.descriptor.as_bytes(), &[("provider", &text(provider)), ("local", is_local)])
    }

    /// Answers with a schema document by its hash. **Source:** PROTOCOL 7.2.
    pub(super) fn on_doc_request(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let request = DocRequest::decode(inbound.body).map_err(Refusal::of)?;
        let hash = ContentHash::from_slice(&request.hash).ok_or_else(|| {
            Refusal::new(Code::BAD_REQUEST, "a hash has 32 bytes (sha-256) or 64 (sha-512)")
        })?;
        let is_agent = inbound.link.kind().is_local();
        let permit = self.permit(inbound);
        // A peer gets what a capability names that it may call here, and nothing that we only keep.
        if let Some(mut callable) = permit.callable()
            && !callable.any(|descriptor| names(descriptor, &hash))
        {
            return Err(Refusal::new(Code::UNAVAILABLE, "no document of this hash is served here"));
        }
        match self.artifacts.find(&hash) {
            Some(artifact) => self.reply(inbound, Type::DocSend, &document(&artifact)),
            None if is_agent => self.fetch_for(inbound, hash, &named_by(&permit.snapshot, &hash))?,
            None => return Err(refused_artifact(crate::schema::ArtifactError::Missing(hash))),
        }
        Ok(())
    }

    /// Fetches a peer's document for the agent, then answers.
    fn fetch_for(&self, inbound: &Inbound<'_>, hash: ContentHash, named: &[Origin]) -> Result<(), Refusal> {
        let peer = named.iter().find_map(|origin| match origin {
            Origin::Peer(did) => Some(did.clone()),
            Origin::Local(_) => None,
        });
        let (Some(peer), Some(node)) = (peer, self.shared()) else {
            return Err(refused_artifact(crate::schema::ArtifactError::Missing(hash)));
        };
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.spawn(async move {
            match node.fetch_schema(&peer, hash).await {
                Ok(artifact) => {
                    let envelope =
                        node.answer(&link, link.principal(), Some(id), Type::DocSend, &document(&artifact));
                    node.send(&link, &route, envelope);
                }
                Err(refusal) => node.refuse(&link, &route, Some(id), &refusal),
            }
        });
        Ok(())
    }
}

/// The entries that a question asks for, in its order; each id of one origin once.
fn matching<'a>(
    snapshot: &'a Snapshot,
    question: &Question,
    everywhere: bool,
    may_see: impl Fn(&Entry) -> bool,
) -> Result<Vec<&'a Entry>, Refusal> {
    let in_scope = |entry: &&Entry| everywhere || matches!(entry.origin, Origin::Local(_));
    let (mut named, mut is_hidden) = (Vec::new(), false);
    for (name, entries) in snapshot.names().filter(|(name, _)| question.pattern.matches(name.as_str())) {
        let mut of_name: Vec<_> = entries.iter().filter(in_scope).collect();
        is_hidden |= !of_name.is_empty();
        of_name.retain(|entry| may_see(entry));
        of_name.sort_by(|a, b| {
            let versions = a.descriptor.id.version.total_cmp(&b.descriptor.id.version);
            let versions = if question.order == Order::NewestFirst { versions.reverse() } else { versions };
            versions.then_with(|| a.origin.cmp(&b.origin))
        });
        // Several providers here may serve one id; it is one capability to whoever asks.
        of_name.dedup_by(|a, b| {
            let is_local = |entry: &Entry| matches!(entry.origin, Origin::Local(_));
            a.descriptor.id == b.descriptor.id && is_local(a) && is_local(b)
        });
        debug_assert!(of_name.iter().all(|entry| entry.descriptor.id.name == *name));
        named.extend(of_name);
    }
    // PROTOCOL 7.1: no such name is 4002, a name without a version in range 4003; never an empty answer.
    if named.is_empty() {
        // Whoever asks for a name may learn that it is unknown; what a namespace hides is not there.
        let is_denied = is_hidden && matches!(question.pattern, CapabilityPattern::Name(_));
        return Err(mismatch(if is_denied { router::Refusal::Denied } else { router::Refusal::NameUnknown }));
    }
    let Some(range) = &question.range else { return Ok(named) };
    let in_range: Vec<_> =
        named.iter().copied().filter(|entry| range.matches(&entry.descriptor.id.version)).collect();
    if in_range.is_empty() {
        let mut available: Vec<_> = named.iter().map(|entry| entry.descriptor.id.version.clone()).collect();
        available.sort_by_key(|version| Reverse(version.clone()));
        available.dedup();
        return Err(mismatch(router::Refusal::VersionMismatch(available)));
    }
    Ok(in_range)
}

/// Who serves a capability with this schema document.
fn named_by(snapshot: &Snapshot, hash: &ContentHash) -> Vec<Origin> {
    let entries = snapshot.names().flat_map(|(_, entries)| entries);
    entries.filter(|entry| names(&entry.descriptor, hash)).map(|entry| entry.origin.clone()).collect()
}

/// Whether a capability has this schema document.
fn names(descriptor: &Descriptor, hash: &ContentHash) -> bool {
    let mut schemas = [&descriptor.input_schema, &descriptor.output_schema].into_iter().flatten();
    schemas.any(|schema| schema.hash() == Some(hash))
}

fn document(artifact: &Artifact) -> Vec<u8> {
    let data: &Bytes = artifact.document();
    let hash = artifact.hash();
    let mut body = Vec::with_capacity(data.len() + 128);
    DocSend {
        content_type: SCHEMA_MEDIA_TYPE.into(),
        filename: "schema.json".into(),
        size: data.len() as u64,
        hash: hash.as_bytes().into(),
        data: data.as_ref().into(),
    }
    .encode(&mut body);
    body
}
