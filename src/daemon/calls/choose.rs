//! A call in; the peer that serves it, its schemas and its machine out, or why there is none.

use std::sync::Arc;

use capd_proto::call::caller::Caller;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ContentHash, SchemaSide};

use super::retry::retry_policy;
use super::{Chosen, Handed, RelayedCall};
use crate::daemon::executor::refused_artifact;
use crate::daemon::node::{Node, Refusal, lock};
use crate::daemon::wire::{mismatch, violation_details};
use crate::registry::snapshot::Origin;
use crate::router::{self, Scope};
use crate::schema::{Artifact, Side};

/// What a call needs before it can go out.
pub(super) enum Missing {
    /// Somebody who serves it, or a link to them; for which reason nobody does.
    Provider(Refusal),
    /// A schema that the peer has.
    Schema(Did, ContentHash),
}

impl Node {
    /// Chooses the peer and readies what the call needs; only then is there anything to send.
    pub(super) fn choose_peer(&self, call: &Arc<RelayedCall>) -> Result<(), Missing> {
        let snapshot = self.registry.snapshot();
        let scope = call.to.as_ref().map_or(Scope::Anywhere, Scope::Peer);
        let choice = router::route(&snapshot, &call.name, &call.want, scope)
            .map_err(|refusal| Missing::Provider(mismatch(refusal)))?;
        let Origin::Peer(peer) = &choice.entry.origin else {
            return Err(Missing::Provider(mismatch(router::Refusal::NameUnknown)));
        };
        let descriptor = &choice.entry.descriptor;
        let [input, output] = [&descriptor.input_schema, &descriptor.output_schema].map(|source| {
            self.schema(source.as_ref()).map_err(|refusal| {
                match source.as_ref().and_then(|source| source.hash()) {
                    Some(hash) => Missing::Schema(peer.clone(), *hash),
                    None => Missing::Provider(refusal),
                }
            })
        });
        let (input, output) = (input?, output?);
        // What does not fit its schema never goes on the wire.
        if let Some(refusal) = refused_params(input.as_deref(), &call.params) {
            return Err(Missing::Provider(refusal));
        }
        // PROTOCOL 8: the invoke's time, else the descriptor's.
        let ends_ms = match (call.timeout_ms, descriptor.timeout_ms) {
            (None, Some(time_ms)) => self.deadline_ms(call.expires_at_ms, time_ms),
            (Some(_), _) | (None, None) => call.deadline_ms,
        };
        let machine = Caller::new(
            Arc::new(retry_policy(descriptor.retry_policy.as_ref())),
            descriptor.idempotent,
            ends_ms.saturating_add(ANSWER_GRACE_MS),
        );
        let chosen = Chosen { machine, peer: peer.clone(), output, ids: vec![call.id], sent_on: None };
        lock(&call.progress).chosen = Some(chosen);
        Ok(())
    }

    /// Waits, within the call's own time, for what it misses.
    pub(super) fn choose_peer_later(&self, call: Arc<RelayedCall>, missing: Missing) {
        let Some(node) = self.shared() else { return };
        self.spawn(async move {
            match call.ended.run_until_cancelled(node.await_peer(&call, missing)).await {
                Some(Ok(())) => node.drive_call(&call, None, Handed::Nothing),
                Some(Err(refusal)) => node.end_call(&call, |node, link, route| {
                    node.refuse(link, route, Some(call.id), &refusal);
                }),
                // It was cancelled, and its answer is out.
                None => {}
            }
        });
    }

    pub(super) async fn await_peer(
        &self,
        call: &Arc<RelayedCall>,
        mut missing: Missing,
    ) -> Result<(), Refusal> {
        let deadline = self.clock.moment(call.deadline_ms);
        let mut changes = self.peers.watch();
        let mut is_refreshed = false;
        loop {
            let work = async {
                match &missing {
                    Missing::Schema(peer, hash) => self.fetch_schema(peer, *hash).await.map(drop),
                    Missing::Provider(refusal) if !is_about_serving(refusal) => Err(refusal.clone()),
                    Missing::Provider(_) if !is_refreshed => {
                        self.refresh_all(call.to.as_ref()).await;
                        Ok(())
                    }
                    // Everybody who might serve it has said what they serve.
                    Missing::Provider(refusal) if self.awaited(call).is_empty() => {
                        Err(self.or_misunderstood(refusal.clone(), call.to.as_ref()))
                    }
                    Missing::Provider(_) => {
                        changes.changed().await;
                        Ok(())
                    }
                }
            };
            match tokio::time::timeout_at(deadline, work).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(self.out_of_time(call)),
            }
            is_refreshed = true;
            missing = match self.choose_peer(call) {
                Ok(()) => return Ok(()),
                Err(missing) => missing,
            };
        }
    }

    /// Peers that may serve the call and have not said.
    pub(super) fn awaited(&self, call: &RelayedCall) -> Vec<Did> {
        let mut unknown = self.peers.unknown();
        if let Some(to) = &call.to {
            unknown.retain(|did| did == to);
        }
        unknown
    }

    pub(super) fn out_of_time(&self, call: &RelayedCall) -> Refusal {
        let awaited: Vec<_> = self.awaited(call).iter().map(Did::to_string).collect();
        if awaited.is_empty() {
            return Refusal::new(Code::TIMEOUT, "the call's time ran out before it could be sent");
        }
        Refusal::new(Code::ENDPOINT_UNREACHABLE, format!("no link in time to {}", awaited.join(", ")))
    }
}

fn refused_params(input: Option<&Artifact>, params: &[u8]) -> Option<Refusal> {
    let violations = match input?.validator() {
        Ok(validator) => validator.validate(params, Side::Request).err()?,
        Err(error) => return Some(refused_artifact(error)),
    };
    let details = violation_details(SchemaSide::Request, &violations);
    Some(Refusal::new(Code::SCHEMA_VIOLATION, "the params do not fit the input schema").with_details(details))
}

/// Whether a refusal may pass once somebody else says what they serve.
fn is_about_serving(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::CAPABILITY_NOT_FOUND | Code::VERSION_MISMATCH)
}

/// How much longer than the executor the caller's sidecar waits, so that the executor's own timeout can arrive.
const ANSWER_GRACE_MS: u64 = 2_000;
