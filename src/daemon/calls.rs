//! The agent's calls in; to a provider here or to a peer, and one answer each back: the caller's side of a call.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::caller::{Caller, Delivery, Generation, Input, Output};
use capd_proto::call::{Jitter, RetryPolicy};
use capd_proto::code::Code;
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::message::{self, CallError, CapResult, ErrorBody, Invoke, Request, SchemaSide, Type};
use capd_proto::negotiate::Want;

use super::executor::{Incoming, refused_artifact};
use super::node::{ANSWER_TTL_MS, Inbound, Node, Outbound, Refusal, lock};
use super::relay::{Waiter, Waiting};
use super::wire::{mismatch, raw_violation_details, refused_body, violation_details};
use crate::net::{Link, LinkId, Route};
use crate::registry::snapshot::Origin;
use crate::router::{self, Scope};
use crate::schema::{Artifact, Side};

/// A call of the agent's that goes to a peer.
pub(super) struct RelayedCall {
    /// The agent's id for it, which is also the id it first goes out under.
    id: MessageId,
    body: Bytes,
    params: Bytes,
    name: String,
    want: Want,
    to: Option<Did>,
    ext: Option<Bytes>,
    expires_at_ms: u64,
    /// When waiting for a provider ends. **Units:** monotonic milliseconds.
    deadline_ms: u64,
    progress: Mutex<Progress>,
}

struct Progress {
    waiters: Vec<(Arc<Link>, Route)>,
    /// Set once a peer is chosen.
    chosen: Option<Chosen>,
}

struct Chosen {
    machine: Caller,
    peer: Did,
    output: Option<Arc<Artifact>>,
    /// The id of each generation.
    ids: Vec<MessageId>,
    /// The link that the last try went out on.
    sent_on: Option<LinkId>,
}

/// What a machine's output may speak of.
#[derive(Clone, Copy)]
enum Handed<'a> {
    Nothing,
    Message(&'a Inbound<'a>, Type),
    Refusal(&'a Refusal),
}

/// What a call needs before it can go out.
enum Missing {
    /// Somebody who serves it, or a link to them; for which reason nobody does.
    Provider(Refusal),
    /// A schema that the peer has.
    Schema(Did, message::ContentHash),
}

impl Node {
    /// CAP_INVOKE: from a peer it runs here; from the agent it runs wherever it is served. **Source:** PROTOCOL 7.3.
    pub(super) fn on_invoke(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let invoke = Invoke::decode(inbound.body).map_err(refused_body)?;
        let identity = invoke.identity().map_err(refused_body)?;
        if invoke.delegation.is_some() {
            // PROTOCOL 7.3: until delegations are supported, none holds.
            return Err(Refusal::new(Code::DELEGATION_INVALID, "delegation is not supported"));
        }
        if !inbound.link.kind().is_local() {
            let want =
                self.wanted(&identity.name, identity.want.clone(), &invoke, inbound.link.principal())?;
            return self.execute_inbound(inbound, &invoke, &identity.name, want);
        }
        let to = if inbound.is_for(self.did()) { None } else { Some(self.peer_named(inbound)?) };
        let pinned = invoke.session.and_then(|session| self.pinned_by(session.session_id, &identity.name));
        let (want, to) = match pinned {
            Some((peer, version)) if to.as_ref().is_none_or(|to| *to == peer) => {
                (Want::Pinned(version), Some(peer))
            }
            _ => (self.wanted(&identity.name, identity.want.clone(), &invoke, self.did())?, to),
        };
        if to.is_none() || to.as_ref() == Some(self.did()) {
            let is_known = self.executes(inbound.envelope.id);
            if is_known
                || router::route(&self.registry.snapshot(), &identity.name, &want, Scope::Local).is_ok()
            {
                return self.execute_inbound(inbound, &invoke, &identity.name, want);
            }
        }
        self.relay_call(inbound, &invoke, &identity.name, want, to)
    }

    fn execute_inbound(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        name: &str,
        want: Want,
    ) -> Result<(), Refusal> {
        self.execute(&Incoming {
            link: inbound.link,
            route: inbound.route,
            from: inbound.link.principal(),
            id: inbound.envelope.id,
            envelope: self.for_agent(inbound),
            body: inbound.body,
            invoke,
            name,
            want,
            expires_at_ms: inbound.expires_at_ms(),
        })
    }

    fn relay_call(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        name: &str,
        want: Want,
        to: Option<Did>,
    ) -> Result<(), Refusal> {
        let waiter = (Arc::clone(inbound.link), inbound.route.clone());
        if let Some(running) = self.relay.call(&inbound.envelope.id) {
            if running.body != *inbound.body {
                return Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"));
            }
            lock(&running.progress).waiters.push(waiter);
            return Ok(());
        }
        let time_ms = invoke.timeout_ms.unwrap_or(self.rules.call_timeout_ms);
        let call = Arc::new(RelayedCall {
            id: inbound.envelope.id,
            body: inbound.body.clone(),
            params: inbound.body.slice_ref(invoke.params),
            name: name.to_owned(),
            want,
            to,
            ext: inbound.envelope.ext.map(Bytes::copy_from_slice),
            expires_at_ms: inbound.expires_at_ms(),
            deadline_ms: self.deadline_ms(inbound.expires_at_ms(), time_ms),
            progress: Mutex::new(Progress { waiters: vec![waiter], chosen: None }),
        });
        if !self.relay.add_call(&call) {
            return Err(Refusal::new(Code::OVERLOADED, "too many calls are in flight"));
        }
        match self.choose_peer(&call) {
            Ok(()) => self.drive_call(&call, None, Handed::Nothing),
            Err(missing) => self.choose_peer_later(call, missing),
        }
        Ok(())
    }

    /// Chooses the peer and readies what the call needs; only then is there anything to send.
    fn choose_peer(&self, call: &Arc<RelayedCall>) -> Result<(), Missing> {
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
        let time_ms = call.deadline_ms.saturating_add(ANSWER_GRACE_MS);
        let machine = Caller::new(
            Arc::new(retry_policy(descriptor.retry_policy.as_ref())),
            descriptor.idempotent,
            time_ms,
        );
        let chosen = Chosen { machine, peer: peer.clone(), output, ids: vec![call.id], sent_on: None };
        lock(&call.progress).chosen = Some(chosen);
        Ok(())
    }

    /// Waits, within the call's own time, for what it misses.
    fn choose_peer_later(&self, call: Arc<RelayedCall>, missing: Missing) {
        let Some(node) = self.shared() else { return };
        self.spawn(async move {
            match node.await_peer(&call, missing).await {
                Ok(()) => node.drive_call(&call, None, Handed::Nothing),
                Err(refusal) => node.end_call(&call, |node, link, route| {
                    node.refuse(link, route, Some(call.id), &refusal);
                }),
            }
        });
    }

    async fn await_peer(&self, call: &Arc<RelayedCall>, mut missing: Missing) -> Result<(), Refusal> {
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
                    Missing::Provider(refusal) if self.awaited(call).is_empty() => Err(refusal.clone()),
                    Missing::Provider(_) => {
                        let _closing = changes.changed().await;
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
    fn awaited(&self, call: &RelayedCall) -> Vec<Did> {
        let mut unknown = self.peers.unknown();
        if let Some(to) = &call.to {
            unknown.retain(|did| did == to);
        }
        unknown
    }

    fn out_of_time(&self, call: &RelayedCall) -> Refusal {
        let awaited: Vec<_> = self.awaited(call).iter().map(Did::to_string).collect();
        if awaited.is_empty() {
            return Refusal::new(Code::TIMEOUT, "the call's time ran out before it could be sent");
        }
        Refusal::new(Code::ENDPOINT_UNREACHABLE, format!("no link in time to {}", awaited.join(", ")))
    }

    async fn refresh_all(&self, only: Option<&Did>) {
        for peer in self.peers.connected() {
            if only.is_none_or(|only| *only == peer) {
                self.refresh(&peer).await;
            }
        }
    }

    /// Tells a call's machine what happened, and does what it says.
    fn drive_call(&self, call: &Arc<RelayedCall>, input: Option<Input>, handed: Handed<'_>) {
        let outputs = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return };
            if let Some(input) = input {
                chosen.machine.handle(input, self.clock.monotonic_ms(), self.jitter());
            }
            let mut outputs = Vec::new();
            while let Some(output) = chosen.machine.poll_output() {
                outputs.push(output);
            }
            outputs
        };
        for output in outputs {
            self.act_on(call, output, handed);
        }
    }

    fn act_on(&self, call: &Arc<RelayedCall>, output: Output, handed: Handed<'_>) {
        match output {
            Output::Send { generation, .. } => self.send_call(call, generation),
            Output::Pause { until_ms, .. } => self.wake_call(call, until_ms),
            Output::Relay => {
                if let Handed::Message(inbound, typ) = handed {
                    let envelope = self.towards_agent(call, inbound, typ);
                    let waiters = lock(&call.progress).waiters.clone();
                    for (link, route) in waiters {
                        self.send(&link, &route, envelope.clone());
                    }
                }
            }
            Output::SendCancel { generation } => self.send_cancel(call, generation),
            Output::Deliver(delivery) => self.deliver_call(call, delivery, handed),
            Output::Drop => {}
            Output::RefuseResult => {
                if let Handed::Message(inbound, _) = handed {
                    self.refuse(inbound.link, inbound.route, Some(inbound.envelope.id), &nothing_waits());
                }
            }
        }
    }

    /// Sends the invoke, or sees to it that it is sent once there is a link.
    fn send_call(&self, call: &Arc<RelayedCall>, generation: Generation) {
        let (peer, id, until_ms) = {
            let mut progress = lock(&call.progress);
            let Some(chosen) = &mut progress.chosen else { return };
            while chosen.ids.len() <= generation.0 as usize {
                chosen.ids.push(self.fresh_id(self.clock.wall_ms()));
            }
            let until_ms = chosen.machine.poll_timeout().unwrap_or(call.deadline_ms);
            (chosen.peer.clone(), chosen.ids[generation.0 as usize], until_ms)
        };
        let Some(link) = self.peers.link(&peer) else {
            return self.send_call_later(call, generation, until_ms);
        };
        let message = Outbound {
            id,
            typ: Type::CapInvoke,
            to: peer.as_str(),
            reply_to: None,
            ttl_ms: call.expires_at_ms.saturating_sub(id.ts_ms()),
            body: &call.body,
            ext: call.ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        let envelope = self.seal(&message, &link);
        let sent = self.request(&link, id, envelope, until_ms, Waiter::Call(Arc::clone(call), generation));
        match sent {
            Ok(()) => {
                if let Some(chosen) = &mut lock(&call.progress).chosen {
                    chosen.sent_on = Some(link.id());
                }
                self.drive_call(call, Some(Input::Sent), Handed::Nothing);
            }
            Err(refusal) => {
                let input =
                    Input::Error { generation, code: refusal.code, retry: None, retry_after_ms: None };
                self.drive_call(call, Some(input), Handed::Refusal(&refusal));
            }
        }
    }

    fn send_call_later(&self, call: &Arc<RelayedCall>, generation: Generation, until_ms: u64) {
        let Some(node) = self.shared() else { return };
        let call = Arc::clone(call);
        let mut changes = self.peers.watch();
        self.spawn(async move {
            let until = node.clock.moment(until_ms);
            loop {
                let peer = match &lock(&call.progress).chosen {
                    Some(chosen) if !chosen.machine.is_done() => chosen.peer.clone(),
                    _ => return,
                };
                if node.peers.link(&peer).is_some() {
                    return node.send_call(&call, generation);
                }
                if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                    return node.drive_call(&call, Some(Input::Timeout), Handed::Nothing);
                }
            }
        });
    }

    fn wake_call(&self, call: &Arc<RelayedCall>, until_ms: u64) {
        let Some(node) = self.shared() else { return };
        let call = Arc::clone(call);
        self.spawn(async move {
            tokio::time::sleep_until(node.clock.moment(until_ms)).await;
            node.drive_call(&call, Some(Input::Timeout), Handed::Nothing);
        });
    }

    fn send_cancel(&self, call: &Arc<RelayedCall>, generation: Generation) {
        let (peer, target) = {
            let progress = lock(&call.progress);
            let Some(chosen) = &progress.chosen else { return };
            (chosen.peer.clone(), chosen.ids[generation.0 as usize])
        };
        let Some(link) = self.peers.link(&peer) else { return };
        let mut body = Vec::new();
        Request::Cancel { target }.encode(&mut body);
        let id = self.fresh_id(self.clock.wall_ms());
        let message = Outbound {
            id,
            typ: Type::Request,
            to: peer.as_str(),
            reply_to: None,
            ttl_ms: ANSWER_TTL_MS,
            body: &body,
            ext: Ext::None,
        };
        let envelope = self.seal(&message, &link);
        let deadline_ms = self.clock.monotonic_ms().saturating_add(ANSWER_TTL_MS);
        if let Err(refusal) = self.request(&link, id, envelope, deadline_ms, Waiter::Cancel(Arc::clone(call)))
        {
            tracing::debug!(%peer, reason = refusal.message, "a cancel was not sent");
        }
    }

    /// What a peer said of a cancel that this sidecar sent.
    pub(super) fn on_cancel_answer(&self, call: &Arc<RelayedCall>, typ: Type, body: &[u8]) {
        let is_unknown = typ == Type::Response
            && matches!(
                message::Response::decode(body),
                Ok(message::Response::Cancel { state: message::CancelState::Unknown, .. })
            );
        if is_unknown {
            self.drive_call(call, Some(Input::CancelUnknown), Handed::Nothing);
        }
    }

    /// CAP_RESULT, from an agent that serves or from a peer.
    pub(super) fn on_result(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(id) = inbound.envelope.reply_id() else {
            return Err(Refusal::new(Code::BAD_REQUEST, "a CAP_RESULT needs reply_to"));
        };
        if inbound.link.kind().is_local() {
            return self.on_agent_result(inbound, &id);
        }
        let result = CapResult::decode(inbound.body).map_err(refused_body)?;
        let error = match &result.outcome {
            message::Outcome::Success(_) => None,
            message::Outcome::Error(error) => Some(error.code),
        };
        match self.relay.take(&id, inbound.link.principal()).map(|waiting| waiting.who) {
            Some(Waiter::Call(call, generation)) => {
                let input = Input::Result { generation, error };
                self.drive_call(&call, Some(input), Handed::Message(inbound, Type::CapResult));
                Ok(())
            }
            // PROTOCOL 8: it matches nothing pending.
            Some(Waiter::Agent { .. } | Waiter::Us(_) | Waiter::Cancel(_)) | None => Err(nothing_waits()),
        }
    }

    /// ERROR: the answer to a request of the agent's, of a call, or of our own.
    pub(super) fn on_error(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(id) = inbound.envelope.reply_id() else { return Ok(()) };
        // An ERROR is never answered by one, or two sides would go on for ever.
        let Ok(error) = ErrorBody::decode(inbound.body) else { return Ok(()) };
        if inbound.link.kind().is_local() {
            self.on_agent_error(inbound, &id, &error);
            return Ok(());
        }
        let Some(waiting) = self.relay.take(&id, inbound.link.principal()) else { return Ok(()) };
        let Waiter::Call(call, generation) = waiting.who else {
            self.deliver(waiting, inbound, Type::Error);
            return Ok(());
        };
        if matches!(error.code, Code::CAPABILITY_NOT_FOUND | Code::VERSION_MISMATCH) {
            self.refresh_later(inbound.link.principal().clone());
        }
        let retry_after_ms = error.details.and_then(super::wire::retry_after_ms);
        let input = Input::Error { generation, code: error.code, retry: error.retry, retry_after_ms };
        self.drive_call(&call, Some(input), Handed::Message(inbound, Type::Error));
        Ok(())
    }

    /// What the peer served has changed under us.
    fn refresh_later(&self, peer: Did) {
        let Some(node) = self.shared() else { return };
        self.spawn(async move { node.refresh(&peer).await });
    }

    /// PROCESSING, PROGRESS, INPUT_REQUIRED: to whoever waits for the call. **Source:** PROTOCOL 7.6.
    pub(super) fn on_progress(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        message::Message::decode(typ, inbound.body).map_err(refused_body)?;
        let Some(id) = inbound.envelope.reply_id() else { return Ok(()) };
        if inbound.link.kind().is_local() {
            self.on_agent_progress(inbound, &id, typ);
            return Ok(());
        }
        if let Some((call, generation)) = self.relay.call_awaiting(&id, inbound.link.principal()) {
            self.drive_call(&call, Some(Input::Notice { generation }), Handed::Message(inbound, typ));
        }
        Ok(())
    }

    pub(super) fn on_call_deadline(&self, call: &Arc<RelayedCall>) {
        self.drive_call(call, Some(Input::Timeout), Handed::Nothing);
    }

    /// A link broke: calls that went out on it are tried again, other requests are told.
    pub(super) fn on_link_lost(&self, link: &Arc<Link>) {
        for (id, waiting) in self.relay.lost(link) {
            match waiting.who {
                Waiter::Call(call, _) => self.drive_call(&call, Some(Input::LinkLost), Handed::Nothing),
                Waiter::Cancel(call) => self.drive_call(&call, Some(Input::CancelUnknown), Handed::Nothing),
                Waiter::Agent { link, route } => {
                    let refusal = Refusal::new(Code::ENDPOINT_UNREACHABLE, "the link to the peer broke");
                    self.refuse(&link, &route, Some(id), &refusal);
                }
                // Dropping the sender says so.
                Waiter::Us(_) => {}
            }
        }
    }

    /// Cancels a relayed call of the agent's; `false` when there is none of this id.
    pub(super) fn cancel_relayed(&self, id: &MessageId) -> bool {
        let Some(call) = self.relay.call(id) else { return false };
        if lock(&call.progress).chosen.is_some() {
            self.drive_call(&call, Some(Input::Cancel), Handed::Nothing);
        } else {
            let body = own_error(Code::CANCELLED, "the call was cancelled before it was sent", None);
            self.end_call_with_result(&call, &body);
        }
        true
    }

    fn deliver_call(&self, call: &Arc<RelayedCall>, delivery: Delivery, handed: Handed<'_>) {
        match (delivery, handed) {
            (Delivery::Result, Handed::Message(inbound, _)) => match self.refused_result(call, inbound) {
                Some(body) => self.end_call_with_result(call, &body),
                None => {
                    let envelope = self.towards_agent(call, inbound, Type::CapResult);
                    self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
                }
            },
            (Delivery::Error, Handed::Message(inbound, _)) => {
                let envelope = self.towards_agent(call, inbound, Type::Error);
                self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
            }
            (Delivery::Error, Handed::Refusal(refusal)) => {
                self.end_call(call, |node, link, route| node.refuse(link, route, Some(call.id), refusal));
            }
            (Delivery::Own(code), _) => {
                self.end_call_with_result(call, &own_error(code, own_reason(code), None))
            }
            (Delivery::Result | Delivery::Error, _) => {
                let body = own_error(Code::INTERNAL_ERROR, "the answer was lost inside the sidecar", None);
                self.end_call_with_result(call, &body);
            }
        }
    }

    /// The error that takes the place of a result which breaks its schema, with the result in it. **Source:** PROTOCOL 7.4.
    fn refused_result(&self, call: &Arc<RelayedCall>, inbound: &Inbound<'_>) -> Option<Vec<u8>> {
        let output = lock(&call.progress).chosen.as_ref()?.output.clone()?;
        let result = CapResult::decode(inbound.body).ok()?;
        let message::Outcome::Success(result) = result.outcome else { return None };
        let violations = match output.validator() {
            Ok(validator) => validator.validate(result, Side::Response).err()?,
            Err(error) => return Some(own_error(error.code(), &error.to_string(), None)),
        };
        tracing::warn!(
            target: "audit",
            kind = "capability_schema_violation",
            side = "response",
            capability = call.name,
            peer = %inbound.link.principal(),
            id = %call.id,
            violations = violations.len(),
            "a peer's result does not fit its output schema"
        );
        let details = raw_violation_details(SchemaSide::Response, &violations, result);
        let message = "the result does not fit the output schema";
        Some(own_error(Code::RESULT_SCHEMA_VIOLATION, message, Some(&details)))
    }

    /// A peer's message about a call, as the agent gets it: the bytes that came, unless they carry a retry's id.
    fn towards_agent(&self, call: &RelayedCall, inbound: &Inbound<'_>, typ: Type) -> Bytes {
        if inbound.envelope.reply_id() == Some(call.id) {
            return self.for_agent(inbound);
        }
        self.about_call(call, typ, inbound.body, inbound.envelope.ext.map_or(Ext::None, Ext::Raw))
    }

    fn about_call(&self, call: &RelayedCall, typ: Type, body: &[u8], ext: Ext<'_>) -> Bytes {
        let message = Outbound {
            id: self.fresh_id(self.clock.wall_ms()),
            typ,
            to: self.did().as_str(),
            reply_to: Some(call.id),
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext,
        };
        self.seal_signed(&message, false)
    }

    fn end_call_with_result(&self, call: &Arc<RelayedCall>, body: &[u8]) {
        let envelope = self.about_call(call, Type::CapResult, body, Ext::None);
        self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
    }

    /// The one answer to everybody who waits; whoever asks again from here on begins anew.
    fn end_call(&self, call: &Arc<RelayedCall>, answer: impl Fn(&Self, &Arc<Link>, &Route)) {
        self.relay.remove_call(&call.id);
        let waiters = std::mem::take(&mut lock(&call.progress).waiters);
        for (link, route) in waiters {
            answer(self, &link, &route);
        }
    }

    fn jitter(&self) -> Jitter {
        // Without randomness the pause is its longest, which is safe.
        getrandom::u32().map_or(Jitter::NONE, Jitter)
    }
}

impl RelayedCall {
    pub(super) const fn id(&self) -> &MessageId {
        &self.id
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

fn nothing_waits() -> Refusal {
    Refusal::new(Code::BAD_REQUEST, "no call with this id waits for a result")
}

fn own_error(code: Code, message: &str, details: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    CapResult::error(CallError::new(code, message, details)).encode(&mut body);
    body
}

fn own_reason(code: Code) -> &'static str {
    match code {
        Code::TIMEOUT => "no answer came in the call's time",
        Code::ENDPOINT_UNREACHABLE => "no link to the peer could be made in the call's time",
        Code::CANCELLED => "the caller cancelled the call",
        _ => "the link to the peer broke; whether the call took effect is unknown",
    }
}

fn retry_policy(declared: Option<&message::RetryPolicy>) -> RetryPolicy {
    let Some(declared) = declared else { return RetryPolicy::default() };
    let mut policy = RetryPolicy::default();
    if let Some(attempts) = declared.max_attempts {
        policy = policy.with_attempts_max(u32::try_from(attempts).unwrap_or(u32::MAX));
    }
    if let Some(delay_ms) = declared.initial_delay_ms {
        policy = policy.with_initial_delay_ms(delay_ms);
    }
    if let Some(multiplier) = declared.backoff_multiplier {
        policy = policy.with_multiplier(multiplier);
    }
    if let Some(delay_ms) = declared.max_delay_ms {
        policy = policy.with_delay_ms_max(delay_ms);
    }
    let codes = declared.retry_on.iter().flat_map(|name| codes_named(name));
    policy.with_retry_on(codes.collect())
}

/// The codes behind a `retry_on` entry: a number, or one of the names that declarations use.
fn codes_named(name: &str) -> Vec<Code> {
    match name {
        "timeout" => vec![Code::TIMEOUT],
        "network_error" => vec![Code::ENDPOINT_UNREACHABLE, Code::UNAVAILABLE],
        "rate_limit" => vec![Code::RATE_LIMITED, Code::OVERLOADED],
        number => number.parse().map(Code).into_iter().collect(),
    }
}

/// How much longer than the executor the caller's sidecar waits, so that the executor's own timeout can arrive.
const ANSWER_GRACE_MS: u64 = 2_000;

impl Waiting {
    /// Whether the request went out on this link.
    pub(super) fn is_on(&self, link: &Link) -> bool {
        self.link == link.id()
    }
}
