//! Answers CAP_QUERY and DOC_REQUEST: pages of descriptors, and schema documents.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::code::Code;
use capd_proto::message::{
    ContentHash, Cursor, CursorContext, Declare, Descriptor, DocRequest, DocSend, Order, Query, Question,
    Type,
};

use super::Desk;
use crate::daemon::context::refusal::{mismatch, refused_artifact};
use crate::daemon::context::wire::{text, with_fields};
use crate::daemon::context::{Inbound, Refusal, Taken};
use crate::daemon::directory::schemas::SCHEMA_MEDIA_TYPE;
use crate::daemon::door::permit::Permit;
use crate::registry::snapshot::{Origin, Snapshot};
use crate::router;
use crate::schema::Artifact;

impl Desk {
    /// Answers a query. A peer is told what is served here, the agent everything that is known. **Source:** PROTOCOL 7.1.
    pub(in crate::daemon) fn on_query(&self, inbound: &Inbound<'_>) -> Result<Taken, Refusal> {
        let query = Query::decode(inbound.body).map_err(Refusal::of)?;
        let question = query.question().map_err(Refusal::of)?;
        // A page's cursor belongs to a snapshot; only the first page begins with a fresh one.
        if query.cursor.is_none()
            && inbound.link.kind().is_local()
            && let Some(again) = self.directory.until_fresh()
        {
            return Ok(Taken::Again(again));
        }
        let permit = self.door.permit_query(inbound, &question.pattern)?;
        let context = CursorContext {
            holder: inbound.sender.as_str(),
            question: &question,
            snapshot: permit.edition(),
        };
        let start = match &query.cursor {
            Some(cursor) => Cursor::open(&self.cursor_key, &context, cursor)
                .map_err(|error| Refusal::new(Code::BAD_REQUEST, error.to_string()))?,
            None => 0,
        };
        let entries = about(self.matching(&permit, &question)?, &question)?;
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(entries.len());
        // A page ends early rather than outgrow what the link takes.
        let budget_bytes = inbound.link.message_bytes_max() / 2;
        let mut page: Vec<Vec<u8>> = Vec::new();
        let mut page_bytes = 0;
        for entry in entries[start..].iter().take(question.limit) {
            let descriptor = self.listed(*entry);
            page_bytes += descriptor.len();
            if !page.is_empty() && page_bytes > budget_bytes {
                break;
            }
            page.push(descriptor);
        }
        if page.is_empty() {
            return Err(Refusal::new(Code::BAD_REQUEST, "the cursor is beyond the last page"));
        }
        let next = start + page.len();
        let next_cursor =
            (next < entries.len()).then(|| Cursor::seal(&self.cursor_key, &context, next as u64).into());
        let mut body = Vec::with_capacity(page_bytes + 64);
        Declare::new(page.iter().map(Vec::as_slice).collect(), next_cursor).encode(&mut body);
        self.ctx.reply(inbound, Type::CapDeclare, &body);
        Ok(Taken::Done)
    }

    /// A descriptor as it is listed: for the agent with who serves it, in fields of our own.
    fn listed(&self, found: Found<'_>) -> Vec<u8> {
        let bytes = found.descriptor.as_bytes();
        let (provider, is_local) = match found.origin {
            None => return bytes.to_vec(),
            Some(Origin::Local(_)) => (self.ctx.did().as_str(), true),
            Some(Origin::Peer(did)) => (did.as_str(), false),
        };
        let is_local: &[u8] = if is_local { &[0xf5] } else { &[0xf4] };
        with_fields(bytes, &[("provider", &text(provider)), ("local", is_local)])
    }

    /// What a question asks for of all that its sender may see, in its order; each id of one origin once.
    fn matching<'a>(&self, permit: &'a Permit, question: &'a Question) -> Result<Vec<Found<'a>>, Refusal> {
        let Some(view) = permit.view() else {
            let found = known(permit, question);
            return found.map_err(|refusal| self.directory.or_misunderstood(refusal, None, None));
        };
        // What a peer may not see must not cost it time, so what it may see is walked, and not what there is.
        let found = view.matching(&question.pattern).map(|(_, callable)| {
            let listed = callable.iter().filter(|callable| callable.is_listed);
            listed.map(|callable| Found { descriptor: &callable.descriptor, origin: None }).collect()
        });
        let is_served = |name: &CapabilityName| {
            let mut entries = permit.snapshot.entries(name.as_str()).iter();
            entries.any(|entry| matches!(entry.origin, Origin::Local(_)))
        };
        // Whoever asks for a name may learn that it is unknown; what a namespace hides is not there.
        let is_hidden = matches!(&question.pattern, CapabilityPattern::Name(name) if is_served(name));
        in_order(found, question, is_hidden)
    }

    /// Answers with a schema document by its hash. **Source:** PROTOCOL 7.2.
    pub(in crate::daemon) fn on_doc_request(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let request = DocRequest::decode(inbound.body).map_err(Refusal::of)?;
        let hash = ContentHash::from_slice(&request.hash).ok_or_else(|| {
            Refusal::new(Code::BAD_REQUEST, "a hash has 32 bytes (sha-256) or 64 (sha-512)")
        })?;
        let is_agent = inbound.link.kind().is_local();
        let permit = self.door.permit(inbound);
        // A peer gets what a capability names that it may call here, and nothing that we only keep.
        if let Some(mut callable) = permit.callable()
            && !callable.any(|descriptor| names(descriptor, &hash))
        {
            return Err(Refusal::new(Code::UNAVAILABLE, "no document of this hash is served here"));
        }
        match self.directory.artifacts.find(&hash) {
            Some(artifact) => self.ctx.reply(inbound, Type::DocSend, &document(&artifact)),
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
        let Some(peer) = peer else {
            return Err(refused_artifact(crate::schema::ArtifactError::Missing(hash)));
        };
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        let (ctx, directory) = (Arc::clone(&self.ctx), Arc::clone(&self.directory));
        self.ctx.spawn(async move {
            match directory.fetch_schema(&peer, hash).await {
                Ok(artifact) => {
                    let envelope =
                        ctx.answer(&link, link.principal(), Some(id), Type::DocSend, &document(&artifact));
                    ctx.send(&link, &route, envelope);
                }
                Err(refusal) => ctx.refuse(&link, &route, Some(id), &refusal),
            }
        });
        Ok(())
    }
}

/// A capability that is listed, and for the agent who serves it.
#[derive(Clone, Copy)]
struct Found<'a> {
    descriptor: &'a Descriptor,
    origin: Option<&'a Origin>,
}

impl Found<'_> {
    fn is_ours(&self) -> bool {
        !matches!(self.origin, Some(Origin::Peer(_)))
    }
}

/// What the agent may see of all that is known.
fn known<'a>(permit: &'a Permit, question: &Question) -> Result<Vec<Found<'a>>, Refusal> {
    let snapshot = &permit.snapshot;
    let names = snapshot.names().filter(|(name, _)| question.pattern.matches(name.as_str()));
    let found = names.map(|(_, entries)| {
        let seen = entries.iter().filter(|entry| permit.may_see(entry));
        seen.map(|entry| Found { descriptor: &entry.descriptor, origin: Some(&entry.origin) }).collect()
    });
    let is_hidden = matches!(
        &question.pattern,
        CapabilityPattern::Name(name) if !snapshot.entries(name.as_str()).is_empty()
    );
    in_order(found, question, is_hidden)
}

/// What was found of each name, in a question's order and of its versions.
///
/// **Errors:** PROTOCOL 7.1: no such name is 4002, a name without a version in range 4003; never an empty answer.
/// 3001 for a name that is served and hidden.
fn in_order<'a>(
    found: impl Iterator<Item = Vec<Found<'a>>>,
    question: &Question,
    is_hidden: bool,
) -> Result<Vec<Found<'a>>, Refusal> {
    let mut named = Vec::new();
    for mut of_name in found {
        // Of one version they stand by origin, and stay so.
        of_name.sort_by(|a, b| {
            let versions = a.descriptor.id.version.total_cmp(&b.descriptor.id.version);
            if question.order == Order::NewestFirst { versions.reverse() } else { versions }
        });
        // Several providers here may serve one id; it is one capability to whoever asks.
        of_name.dedup_by(|a, b| a.descriptor.id == b.descriptor.id && a.is_ours() && b.is_ours());
        named.extend(of_name);
    }
    if named.is_empty() {
        return Err(mismatch(if is_hidden { router::Refusal::Denied } else { router::Refusal::NameUnknown }));
    }
    let Some(range) = &question.range else { return Ok(named) };
    let in_range: Vec<_> =
        named.iter().copied().filter(|found| range.matches(&found.descriptor.id.version)).collect();
    if in_range.is_empty() {
        let mut available: Vec<_> = named.iter().map(|found| found.descriptor.id.version.clone()).collect();
        available.sort_by_key(|version| Reverse(version.clone()));
        available.dedup();
        return Err(mismatch(router::Refusal::VersionMismatch(available)));
    }
    Ok(in_range)
}

/// What of it has the words that are looked for. **Errors:** 4002 if nothing has.
fn about<'a>(mut found: Vec<Found<'a>>, question: &Question) -> Result<Vec<Found<'a>>, Refusal> {
    found.retain(|found| question.is_about(found.descriptor));
    if found.is_empty() {
        return Err(mismatch(router::Refusal::NameUnknown));
    }
    Ok(found)
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
