//! Checks messages of all links in the order of PROTOCOL 7.3, and passes on those that are accepted.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, EnvelopeError, Held, Payload};
use capd_proto::identity::{Claim, Did, InvalidSignature, PublicKey};
use capd_proto::message::Type;

use super::Door;
use crate::daemon::context::seal::needs_signature;
use crate::daemon::context::vetted::{LARGE_BYTES, Message, Unvetted, Vetted, open};
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
    /// The message, if it is to be vetted before it is taken.
    put_off: Option<Box<Held>>,
    /// The message as it was kept, if it was.
    vetted: Option<&'a Arc<Vetted>>,
}

/// What becomes of messages.
pub(in crate::daemon) trait Meet {
    /// Meets one that has passed.
    fn meet(&self, inbound: &Inbound<'_>) -> Result<(), Refusal>;

    /// Whether an earlier message of this stream is still to be met.
    fn is_behind(&self, route: &Route) -> bool;

    /// Has a message vetted on the compute pool, and taken after that.
    ///
    /// **Errors:** there is no room for it to wait.
    fn put_off(&self, link: &Arc<Link>, route: &Route, unvetted: Unvetted) -> Result<(), Box<Unvetted>>;
}

/// The same of one that takes part in a turn.
pub(super) type Meeting<'a> = &'a dyn Meet;

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
        meet: Meeting<'_>,
    ) {
        let mut claims = Vec::new();
        let arrival = self.arrive(now, link, payload, &mut claims);
        self.settle(link, route, payload, &arrival, meet);
    }

    /// Takes messages in order, those whose signatures are checked together one behind the other. Large ones of peers are put
    /// off until they are vetted.
    pub(in crate::daemon) fn take_all<'a>(
        &self,
        link: &Arc<Link>,
        messages: impl Iterator<Item = (&'a Route, &'a Bytes)>,
        meet: Meeting<'_>,
    ) {
        let mut now = self.ctx.clock.now();
        let mut claims = Vec::new();
        // Whatever came behind a signature that is not checked yet; mostly there is none.
        let mut waiting = Vec::new();
        for (route, payload) in messages {
            if is_put_off_unread(link, route, payload, meet) {
                self.put_off(link, route, Message::Raw(payload.clone()), meet);
                continue;
            }
            let arrival = self.arrive(now, link, payload, &mut claims);
            if let Ok(Arrival { put_off: Some(held), .. }) = arrival {
                // What came before it is taken before it, should it find no room to wait.
                self.settle_claimed(link, &mut claims, &mut waiting, meet);
                self.put_off(link, route, Message::Held(held), meet);
                continue;
            }
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

    /// Has a message of a peer's vetted off this thread; one that finds no room to wait, here, which keeps its peer from
    /// sending more.
    fn put_off(&self, link: &Arc<Link>, route: &Route, message: Message, meet: Meeting<'_>) {
        let key = match principal_key(link) {
            Ok(key) => key,
            // A peer link has its key at hand.
            Err(refusal) => return self.ctx.refuse(link, route, None, &refusal),
        };
        if let Err(unvetted) = meet.put_off(link, route, Unvetted { key, message }) {
            let vetted = unvetted.vet(&self.ctx);
            self.take_vetted(link, route, &vetted, meet);
        }
    }

    /// Takes a message that was put off, or is met again, as if it had just come.
    pub(in crate::daemon) fn take_vetted(
        &self,
        link: &Arc<Link>,
        route: &Route,
        vetted: &Result<Arc<Vetted>, EnvelopeError>,
        meet: Meeting<'_>,
    ) {
        let vetted = match vetted {
            Ok(vetted) => vetted,
            Err(error) => return self.ctx.refuse(link, route, error.id, &Refusal::of(*error)),
        };
        let (now, envelope) = (self.ctx.clock.now(), vetted.held.envelope());
        let admitted = self.admit(now, link, &envelope);
        let admitted = admitted.and_then(|sender| match &vetted.opened {
            Ok(_) => Ok(sender),
            Err(refusal) => Err(refusal.clone()),
        });
        let arrival =
            Arrival { now, envelope, admitted, is_claimed: false, put_off: None, vetted: Some(vetted) };
        self.settle(link, route, vetted.held.bytes(), &Ok(arrival), meet);
    }

    /// Checks the signatures that `claims` are left of, and takes the messages that waited for it.
    fn settle_claimed(
        &self,
        link: &Arc<Link>,
        claims: &mut Vec<Claim>,
        waiting: &mut Vec<Waiting<'_>>,
        meet: Meeting<'_>,
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
        if admitted.is_ok() && is_put_off(link, payload, &envelope) {
            let put_off = Held::new(&envelope, payload).map(Box::new);
            return Ok(Arrival { now, envelope, admitted, is_claimed, put_off, vetted: None });
        }
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
        Ok(Arrival { now, envelope, admitted, is_claimed, put_off: None, vetted: None })
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
        // A peer that was taken off the list may still answer what it was asked. Its invokes are permitted by
        // `permit_call`, which knows those that run.
        let may_end = envelope.reply_to.is_some() || envelope.typ == Type::CapInvoke.code();
        if !link.kind().is_local() && !may_end && !self.admits(link.principal()) {
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

    /// Takes a message whose signature has been checked, or tells the sender why not.
    fn settle(
        &self,
        link: &Arc<Link>,
        route: &Route,
        payload: &Bytes,
        arrival: &Result<Arrival<'_>, EnvelopeError>,
        meet: Meeting<'_>,
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
        meet: Meeting<'_>,
    ) -> Result<(), Refusal> {
        let Arrival { now, envelope, admitted, vetted, .. } = arrival;
        let is_error = envelope.typ == Type::Error.code();
        let is_invoke = envelope.typ == Type::CapInvoke.code();
        let taken = match admitted {
            Ok(sender) => {
                let message = Taken { now: *now, link, route, payload, sender, vetted: *vetted };
                self.take(&message, envelope, meet)
            }
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
    fn take(&self, message: &Taken<'_>, envelope: &Envelope<'_>, meet: Meeting<'_>) -> Result<(), Refusal> {
        if let Some(body) = envelope.body() {
            return meet.meet(&message.inbound(envelope, &message.payload.slice_ref(body), false));
        }
        if let Some(Ok(Some(plaintext))) = message.vetted.map(|vetted| &vetted.opened) {
            let envelope = envelope.clone().with_body(plaintext).map_err(Refusal::of)?;
            return meet.meet(&message.inbound(&envelope, plaintext, true));
        }
        let key = principal_key(message.link)?;
        let plaintext = Bytes::from(open(&self.ctx, &key, envelope)?);
        let envelope = envelope.clone().with_body(&plaintext).map_err(Refusal::of)?;
        if envelope.sig.is_some() {
            let checked = self.claim(message.link, &envelope)?.check();
            checked.map_err(|misfit| Refusal::of(envelope.misfit(misfit)))?;
        }
        meet.meet(&message.inbound(&envelope, &plaintext, true))
    }
}

/// A message that has passed, but for its body.
struct Taken<'a> {
    now: Now,
    link: &'a Arc<Link>,
    route: &'a Route,
    payload: &'a Bytes,
    sender: &'a Did,
    vetted: Option<&'a Arc<Vetted>>,
}

impl<'a> Taken<'a> {
    fn inbound(&self, envelope: &'a Envelope<'a>, body: &'a Bytes, is_encrypted: bool) -> Inbound<'a> {
        let Self { now, link, route, payload, sender, vetted } = *self;
        Inbound { now, link, route, payload, sender, envelope, body, is_encrypted, judged: &[], vetted }
    }
}

/// Whether a message is put off before it is decoded. On a stream of its own nothing but its call waits behind it, and that
/// keeps its order.
fn is_put_off_unread(link: &Link, route: &Route, payload: &Bytes, meet: Meeting<'_>) -> bool {
    !link.kind().is_local() && route.is_single() && (LARGE_BYTES <= payload.len() || meet.is_behind(route))
}

/// Whether a message is put off until its signature is checked, or its body open. On a stream that calls share, what a call
/// says of its progress is taken at once: its result may come behind.
fn is_put_off(link: &Link, payload: &Bytes, envelope: &Envelope<'_>) -> bool {
    let is_open = matches!(envelope.payload, Payload::Body(_));
    payload.len() >= LARGE_BYTES
        && !link.kind().is_local()
        && (envelope.sig.is_some() || !is_open)
        && matches!(
            Type::from_code(envelope.typ),
            Some(Type::CapInvoke | Type::CapResult | Type::CapDeclare | Type::DocSend | Type::Response)
        )
}

/// The key of the link's principal, which a peer link has at hand.
fn principal_key(link: &Link) -> Result<PublicKey, Refusal> {
    let key = link.key().copied().or_else(|| PublicKey::from_did(link.principal().as_str()).ok());
    key.ok_or_else(|| Refusal::new(Code::UNAUTHORIZED, "not authorized"))
}
