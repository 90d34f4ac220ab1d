//! Checks messages of all links in the order of PROTOCOL 7.3, and passes on those that are accepted.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, EnvelopeError, Payload};
use capd_proto::identity::{Authcrypt, Claim, Did, InvalidSignature, PublicKey};
use capd_proto::message::Type;

use super::Door;
use crate::daemon::context::seal::needs_signature;
use crate::daemon::context::{Inbound, Refusal, lock};
use crate::net::{Link, Now, Route};

/// A message whose envelope has been looked at, but for the equation of its signature.
struct Arrival<'a> {
    now: Now,
    envelope: Envelope<'a>,
    /// The sender, or why the message is not taken.
    admitted: Result<Did, Refusal>,
    /// Whether there is a claim to be checked.
    is_claimed: bool,
}

/// What becomes of a message that has passed.
pub(super) type Meet<'a> = &'a dyn Fn(&Inbound<'_>) -> Result<(), Refusal>;

/// A message that waits until a signature before it is checked, or its own.
type Waiting<'a> = (&'a Route, &'a Bytes, Result<Arrival<'a>, EnvelopeError>);

/// Messages whose signatures are checked together at most: more gain little, and all of them wait for the last one's.
const CLAIMS_TOGETHER_MAX: usize = 64;

impl Door {
    /// Takes a message of the agent's again, as if it had come at `now`.
    pub(in crate::daemon) fn take_again(
        &self,
        now: Now,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        meet: Meet<'_>,
    ) {
        let mut claims = Vec::new();
        let arrival = self.arrive(now, link, payload, &mut claims);
        self.settle(link, route, payload, &arrival, meet);
    }

    /// Takes messages in order, those whose signatures are checked together one behind the other.
    pub(in crate::daemon) fn take_all<'a>(
        &self,
        link: &Arc<Link>,
        messages: impl Iterator<Item = (&'a Route, &'a Bytes)>,
        meet: Meet<'_>,
    ) {
        let mut now = self.ctx.clock.now();
        let mut claims = Vec::new();
        // Whatever came behind a signature that is not checked yet; mostly there is none.
        let mut waiting = Vec::new();
        for (route, payload) in messages {
            let arrival = self.arrive(now, link, payload, &mut claims);
            if claims.is_empty() {
                self.settle(link, route, payload, &arrival, meet);
                continue;
            }
            waiting.push((route, payload, arrival));
            if waiting.len() == CLAIMS_TOGETHER_MAX {
                self.settle_claimed(link, &mut claims, &mut waiting, meet);
                now = self.ctx.clock.now();
            }
        }
        self.settle_claimed(link, &mut claims, &mut waiting, meet);
    }

    /// Checks the signatures that `claims` are left of, and takes the messages that waited for it.
    fn settle_claimed(
        &self,
        link: &Arc<Link>,
        claims: &mut Vec<Claim>,
        waiting: &mut Vec<Waiting<'_>>,
        meet: Meet<'_>,
    ) {
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
            self.settle(link, route, payload, &arrival, meet);
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
        if !link.kind().is_local() && !self.admission.admits(link.principal()) {
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        }
        // PROTOCOL 2: on a peer link the sender is the TLS key's DID, on a local link the sidecar's own agent.
        let Some(sender) = self.sender(link, &envelope.from) else {
            return Err(Refusal::new(Code::UNAUTHORIZED, "not authorized"));
        };
        if !link.kind().is_local() {
            envelope.check_recipient(self.ctx.did()).map_err(Refusal::of)?;
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
        let is_same =
            self.directory.peers.key(link.principal()).is_some_and(|own| own.as_bytes() == key.as_bytes());
        if is_same { Did::parse(from).ok() } else { None }
    }

    /// What a signature claims under the key of the link's principal.
    fn claim(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Claim, Refusal> {
        envelope.claim(&principal_key(link)?, &mut Vec::new()).map_err(Refusal::of)
    }

    /// The plaintext of an encrypted body. **Errors:** 3001 without detail (PROTOCOL 5).
    fn open(&self, link: &Link, envelope: &Envelope<'_>) -> Result<Vec<u8>, Refusal> {
        let key = principal_key(link)?;
        let shared = Authcrypt::new(&self.ctx.identity.agreement_secret(), &key.agreement_key());
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
        meet: Meet<'_>,
    ) {
        let (id, received) = match arrival {
            Ok(arrival) => (Some(arrival.envelope.id), self.receive(link, route, payload, arrival, meet)),
            Err(error) => (error.id, Err(Refusal::of(*error))),
        };
        if let Err(refusal) = received {
            self.ctx.refuse(link, route, id, &refusal);
        }
    }

    fn receive(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        arrival: &Arrival<'_>,
        meet: Meet<'_>,
    ) -> Result<(), Refusal> {
        let Arrival { now, envelope, admitted, is_claimed: _ } = arrival;
        let is_error = envelope.typ == Type::Error.code();
        let is_invoke = envelope.typ == Type::CapInvoke.code();
        let taken = match admitted {
            Ok(sender) => self.take(*now, link, route, payload, (sender, envelope), meet),
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
            self.account.log_refused(link, payload, refusal, is_told);
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
        (sender, envelope): (&Did, &Envelope<'_>),
        meet: Meet<'_>,
    ) -> Result<(), Refusal> {
        match envelope.body() {
            Some(body) => {
                let body = &payload.slice_ref(body);
                meet(&Inbound {
                    now,
                    link,
                    route,
                    payload,
                    sender,
                    envelope,
                    body,
                    is_encrypted: false,
                    judged: &[],
                })
            }
            None => self.receive_encrypted(now, link, route, payload, (sender, envelope), meet),
        }
    }

    fn receive_encrypted(
        &self,
        now: Now,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        (sender, envelope): (&Did, &Envelope<'_>),
        meet: Meet<'_>,
    ) -> Result<(), Refusal> {
        let plaintext = Bytes::from(self.open(link, envelope)?);
        let envelope = envelope.clone().with_body(&plaintext).map_err(Refusal::of)?;
        if envelope.sig.is_some() {
            let checked = self.claim(link, &envelope)?.check();
            checked.map_err(|misfit| Refusal::of(envelope.misfit(misfit)))?;
        }
        meet(&Inbound {
            now,
            link,
            route,
            payload,
            sender,
            envelope: &envelope,
            body: &plaintext,
            is_encrypted: true,
            judged: &[],
        })
    }
}

/// The key of the link's principal, which a peer link has at hand.
fn principal_key(link: &Link) -> Result<PublicKey, Refusal> {
    let key = link.key().copied().or_else(|| PublicKey::from_did(link.principal().as_str()).ok());
    key.ok_or_else(|| Refusal::new(Code::UNAUTHORIZED, "not authorized"))
}
