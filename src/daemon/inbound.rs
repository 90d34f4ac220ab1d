//! Messages of all links in, each checked as PROTOCOL 7.3 orders, to the part that deals with its type.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::cbor::Checked;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, EnvelopeError, Payload};
use capd_proto::identity::{Authcrypt, Claim, Did, InvalidSignature, PublicKey};
use capd_proto::ledger::JournalId;
use capd_proto::message::Type;

use super::node::{Node, Refusal, lock, needs_signature};
use crate::net::dial::{Address, ConnectError};
use crate::net::{CloseReason, Link, Newcomer, Now, Refused, Route, Service};

/// A message that has passed the envelope's checks.
pub(super) struct Inbound<'a> {
    /// When the turn began in which it is handled.
    pub(super) now: Now,
    pub(super) link: &'a Arc<Link>,
    pub(super) route: &'a Route,
    /// The envelope as it came.
    pub(super) payload: &'a Bytes,
    /// Who sent it: the link's principal, under the DID that it calls itself by.
    pub(super) sender: &'a Did,
    pub(super) envelope: &'a Envelope<'a>,
    /// The plaintext body.
    pub(super) body: &'a Bytes,
    /// Whether `payload` has it encrypted.
    pub(super) is_encrypted: bool,
}

impl<'a> Inbound<'a> {
    /// The body as decoders of messages take it.
    pub(super) fn checked_body(&self) -> Checked<'a> {
        self.envelope.checked_body().unwrap_or_else(|| Checked::from(&self.body[..]))
    }

    /// Whether the message is for this sidecar's own agent, and not to be passed on to a peer.
    pub(super) fn is_for(&self, did: &Did) -> bool {
        self.envelope.to.names(did.as_str())
    }

    /// When the message expires, in milliseconds since the Unix epoch.
    pub(super) fn expires_at_ms(&self) -> u64 {
        self.envelope.ts.saturating_add(self.envelope.ttl)
    }
}

impl Service for Node {
    fn admit(&self, newcomer: &Newcomer<'_>) -> bool {
        newcomer.kind.is_local() || self.peers.admits(newcomer.principal)
    }

    fn journal(&self) -> Option<JournalId> {
        Some(self.journal_id)
    }

    fn on_open(&self, link: &Arc<Link>) {
        if link.kind().is_local() {
            tracing::debug!(link = %link.id(), kind = %link.kind(), "an agent connected");
            return;
        }
        self.on_peer_open(link);
    }

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        self.on_messages(link, route, &[payload]);
    }

    fn on_messages(&self, link: &Arc<Link>, route: &Route, payloads: &[Bytes]) {
        self.take_all(link, payloads.iter().map(|payload| (route, payload)));
    }

    fn on_gathered(&self, link: &Arc<Link>, messages: &[(Route, Bytes)]) {
        self.take_all(link, messages.iter().map(|(route, payload)| (route, payload)));
    }

    fn on_reset(&self, _link: &Arc<Link>, route: &Route) {
        self.cancel_route(route);
    }

    fn on_refused(&self, refused: &Refused<'_>) {
        self.on_peer_refused(refused);
    }

    fn on_unreachable(&self, peer: &Did, failures: &[(&Address, ConnectError)]) {
        self.on_peer_unreachable(peer, failures);
    }

    fn on_pong(&self, _link: &Arc<Link>) {
        self.peers.answered();
    }

    fn on_close(&self, link: &Arc<Link>, reason: &CloseReason) {
        tracing::debug!(link = %link.id(), peer = %link.principal(), %reason, "link closed");
        if link.kind().is_local() {
            self.withdraw(link);
        } else {
            self.on_peer_close(link);
        }
    }
}

/// A message whose envelope has been looked at, but for the equation of its signature.
struct Arrival<'a> {
    now: Now,
    envelope: Envelope<'a>,
    /// The sender, or why the message is not taken.
    admitted: Result<Did, Refusal>,
    /// Whether there is a claim to be checked.
    is_claimed: bool,
}

/// A message that waits until a signature before it is checked, or its own.
type Waiting<'a> = (&'a Route, &'a Bytes, Result<Arrival<'a>, EnvelopeError>);

/// Messages whose signatures are checked together at most: more gain little, and all of them wait for the last one's.
const CLAIMS_TOGETHER_MAX: usize = 64;

impl Node {
    /// Takes a message of the agent's again, as if it had come at `now`.
    pub(super) fn take_again(&self, now: Now, link: &Arc<Link>, route: &Route, payload: &Bytes) {
        let mut claims = Vec::new();
        let arrival = self.arrive(now, link, payload, &mut claims);
        self.settle(link, route, payload, &arrival);
    }

    /// Takes messages in order, those whose signatures are checked together one behind the other.
    fn take_all<'a>(&self, link: &Arc<Link>, messages: impl Iterator<Item = (&'a Route, &'a Bytes)>) {
        let mut now = self.clock.now();
        let mut claims = Vec::new();
        // Whatever came behind a signature that is not checked yet; mostly there is none.
        let mut waiting = Vec::new();
        for (route, payload) in messages {
            let arrival = self.arrive(now, link, payload, &mut claims);
            if claims.is_empty() {
                self.settle(link, route, payload, &arrival);
                continue;
            }
            waiting.push((route, payload, arrival));
            if waiting.len() == CLAIMS_TOGETHER_MAX {
                self.settle_claimed(link, &mut claims, &mut waiting);
                now = self.clock.now();
            }
        }
        self.settle_claimed(link, &mut claims, &mut waiting);
    }

    /// Checks the signatures that `claims` are left of, and takes the messages that waited for it.
    fn settle_claimed(&self, link: &Arc<Link>, claims: &mut Vec<Claim>, waiting: &mut Vec<Waiting<'_>>) {
        let mut checked = Claim::check_all(claims).into_iter();
        claims.clear();
        for (route, payload, mut arrival) in waiting.drain(..) {
            if let Ok(arrival) = &mut arrival
                && arrival.is_claimed
            {
                // There is one for each claim; were there none, the message would not be taken.
                let fits = checked.next().unwrap_or(Err(InvalidSignature));
                if let Err(misfit) = fits {
                    arrival.admitted = Err(Refusal::of(arrival.envelope.misfit(misfit)));
                }
            }
            self.settle(link, route, payload, &arrival);
        }
    }

    /// Looks at an envelope as PROTOCOL 7.3 orders; what is left of its signature goes to `claims`.
    fn arrive<'a>(
        &self,
        now: Now,
        link: &Link,
        payload: &'a Bytes,
        claims: &mut Vec<Claim>,
    ) -> Result<Arrival<'a>, EnvelopeError> {
        let envelope = Envelope::decode(payload)?;
        let mut admitted = self.admit(now, link, &envelope);
        let mut is_claimed = false;
        // The signature is over the plaintext: that of an encrypted body is checked once it is open.
        if admitted.is_ok() && envelope.sig.is_some() && matches!(envelope.payload, Payload::Body(_)) {
            match self.claim(link, &envelope) {
                Ok(claim) => {
                    claims.push(claim);
                    is_claimed = true;
                }
                Err(refusal) => admitted = Err(refusal),
            }
        }
        Ok(Arrival { now, envelope, admitted, is_claimed })
    }

    /// The envelope's own checks, in the order of PROTOCOL 7.3, after its shape and up to its signature.
    ///
    /// Returns the sender.
    fn admit(&self, now: Now, link: &Link, envelope: &Envelope<'_>) -> Result<Did, Refusal> {
        if Type::from_code(envelope.typ).is_none() {
            return Err(Refusal::new(
                Code::UNKNOWN_TYPE,
                format!("message type {} is not supported here", envelope.typ),
            ));
        }
        envelope.check_time(now.wall_ms).map_err(Refusal::of)?;
        if !link.kind().is_local() && !self.peers.admits(link.principal()) {
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        }
        // PROTOCOL 2: on a peer link the sender is the TLS key's DID, on a local link the sidecar's own agent.
        let Some(sender) = self.sender(link, &envelope.from) else {
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        };
        if !link.kind().is_local() {
            envelope.check_recipient(self.did()).map_err(Refusal::of)?;
        }
        if envelope.sig.is_none() && needs_signature(link) {
            return Err(Refusal::new(Code::INVALID_SIGNATURE, "not signed"));
        }
        Ok(sender)
    }

    /// The sender that `from` names, if it is the link's principal: its DID, or another DID whose configured document
    /// has the principal's key (PROTOCOL 2).
    pub(super) fn sender(&self, link: &Link, from: &str) -> Option<Did> {
        if from == link.principal().as_str() {
            return Some(link.principal().clone());
        }
        if link.kind().is_local() {
            return None;
        }
        let key = lock(&self.keyring).resolve(from)?;
        let is_same = self.peers.key(link.principal()).is_some_and(|own| own.as_bytes() == key.as_bytes());
        if is_same { Did::parse(from).ok() } else { None }
    }

    /// What a signature claims under the key of the link's principal.
    fn claim(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Claim, Refusal> {
        envelope.claim(&principal_key(link)?, &mut Vec::new()).map_err(Refusal::of)
    }

    /// The plaintext of an encrypted body. **Errors:** 3001 without detail (PROTOCOL 5).
    fn open(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Vec<u8>, Refusal> {
        let key = principal_key(link)?;
        let shared = Authcrypt::new(&self.identity.agreement_secret(), &key.agreement_key());
        let mut plaintext = Vec::new();
        envelope.open(&shared, &mut plaintext).map_err(Refusal::of)?;
        Ok(plaintext)
    }

    /// Takes a message whose signature has been checked, or tells the sender why not.
    fn settle(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        arrival: &Result<Arrival<'_>, EnvelopeError>,
    ) {
        let (id, received) = match arrival {
            Ok(arrival) => (Some(arrival.envelope.id), self.receive(link, route, payload, arrival)),
            Err(error) => (error.id, Err(Refusal::of(*error))),
        };
        if let Err(refusal) = received {
            self.refuse(link, route, id, &refusal);
        }
    }

    fn receive(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        arrival: &Arrival<'_>,
    ) -> Result<(), Refusal> {
        let Arrival { now, envelope, admitted, is_claimed: _ } = arrival;
        let is_error = envelope.typ == Type::Error.code();
        let is_invoke = envelope.typ == Type::CapInvoke.code();
        let taken = match admitted {
            Ok(sender) => self.take(*now, link, route, payload, sender, envelope),
            Err(refusal) => Err(refusal.clone()),
        };
        let (taken, is_told) = match taken {
            Err(refusal) if refusal.code == Code::UNAUTHORIZED => {
                let (refusal, is_told) = self.deny(*now, link, payload, refusal);
                (Err(refusal), is_told)
            }
            taken => (taken, true),
        };
        if let Err(refusal) = &taken
            && is_invoke
        {
            self.log_refused(link, payload, refusal, is_told);
        }
        match taken {
            // Two sides that refuse each other's refusals would go on for ever.
            Err(refusal) if is_error => {
                tracing::debug!(link = %link.id(), code = %refusal.code, reason = refusal.message, "an ERROR was not accepted");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// One message whose envelope has passed its checks.
    fn take(
        &self,
        now: Now,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        sender: &Did,
        envelope: &Envelope<'_>,
    ) -> Result<(), Refusal> {
        match envelope.body() {
            Some(body) => {
                let body = &payload.slice_ref(body);
                self.dispatch(&Inbound {
                    now,
                    link,
                    route,
                    payload,
                    sender,
                    envelope,
                    body,
                    is_encrypted: false,
                })
            }
            None => self.receive_encrypted(now, link, route, payload, sender, envelope),
        }
    }

    fn receive_encrypted(
        &self,
        now: Now,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        sender: &Did,
        envelope: &Envelope<'_>,
    ) -> Result<(), Refusal> {
        let plaintext = Bytes::from(self.open(link, envelope)?);
        let envelope = envelope.clone().with_body(&plaintext).map_err(Refusal::of)?;
        if envelope.sig.is_some() {
            let checked = self.claim(link, &envelope)?.check();
            checked.map_err(|misfit| Refusal::of(envelope.misfit(misfit)))?;
        }
        self.dispatch(&Inbound {
            now,
            link,
            route,
            payload,
            sender,
            envelope: &envelope,
            body: &plaintext,
            is_encrypted: true,
        })
    }

    /// One message to the part that deals with its type.
    fn dispatch(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(typ) = Type::from_code(inbound.envelope.typ) else {
            return Err(Refusal::new(Code::UNKNOWN_TYPE, "message type is not supported here"));
        };
        let is_ours = inbound.is_for(self.did());
        match typ {
            Type::CapInvoke => self.on_invoke(inbound),
            Type::CapResult => self.on_result(inbound),
            Type::Error => self.on_error(inbound),
            Type::Processing | Type::Progress | Type::InputRequired => self.on_progress(inbound, typ),
            Type::CapDeclare if inbound.envelope.reply_to.is_none() => self.on_declare(inbound),
            Type::CapDeclare | Type::DocSend | Type::Response | Type::Pong => self.on_answer(inbound, typ),
            Type::Ping if is_ours => self.on_ping(inbound),
            Type::CapQuery if is_ours => self.on_query(inbound),
            Type::DocRequest if is_ours => self.on_doc_request(inbound),
            Type::Request => self.on_request(inbound, is_ours),
            Type::Ping | Type::CapQuery | Type::DocRequest => self.forward(inbound, typ),
            // PROTOCOL 7: taken, and needs no answer.
            Type::Ack => Ok(()),
            Type::Hello | Type::HelloAck | Type::HelloReject => {
                Err(Refusal::new(Code::BAD_REQUEST, "the link is open already"))
            }
        }
    }

    fn on_ping(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        self.reply(inbound, Type::Pong, inbound.body);
        Ok(())
    }
}

/// The key of the link's principal, which a peer link has at hand.
fn principal_key(link: &Link) -> Result<PublicKey, Refusal> {
    let key = link.key().copied().or_else(|| PublicKey::from_did(link.principal().as_str()).ok());
    key.ok_or_else(|| Refusal::new(Code::UNAUTHORIZED, "not authorized"))
}
