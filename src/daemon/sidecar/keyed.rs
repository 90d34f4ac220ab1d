//! The agent's CAP_INVOKE with a key or about a known call, and schemas that its code was built against, in; handed to the
//! front that keeps all of them.
//!
//! **Source:** PROTOCOL 7.3.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::limits::{EXT_BUILT_AGAINST, EXT_CALL, EXT_KEY};
use capd_proto::message::{ContentHash, DocSend, Invoke, Type};

use super::Sidecar;
use super::invoke::affinity;
use crate::api::{Api, KeyedCall};
use crate::client::Trace;
use crate::daemon::context::{ANSWER_TTL_MS, Inbound, Outbound, Refusal};

/// Whether a CAP_INVOKE is the agent's, and has a key, was built against schemas, or asks for a known call.
pub(super) fn is_keyed(inbound: &Inbound<'_>) -> bool {
    // Most have neither, and no `ext` at all.
    inbound.envelope.ext.is_some()
        && inbound.link.kind().is_local()
        && [EXT_KEY, EXT_CALL]
            .into_iter()
            .chain(EXT_BUILT_AGAINST)
            .any(|field| inbound.envelope.ext_has(field))
}

impl Sidecar {
    /// CAP_INVOKE with a key or about a known call: the front makes or finds it, and its answers go back under the invoke's
    /// id.
    pub(super) fn on_keyed(&self, inbound: &Inbound<'_>, is_ours: bool) -> Result<(), Refusal> {
        let api = Arc::clone(self.front()?);
        let asked = if inbound.envelope.ext_has(EXT_CALL) {
            Asked::Known(known_call(inbound, is_ours)?)
        } else {
            let to = if is_ours { None } else { Some(self.caller.peer_named(inbound)?.to_string()) };
            Asked::Keyed(Box::new(keyed_call(inbound, to)?))
        };
        let ctx = Arc::clone(&self.ctx);
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.ctx.spawn(async move {
            let answers = |typ: Type, body: &[u8], ext: Option<&[u8]>| {
                let message = Outbound {
                    id: ctx.fresh_id(ctx.clock.wall_ms()),
                    typ,
                    to: link.principal().as_str(),
                    reply_to: Some(id),
                    thread_id: None,
                    ttl_ms: ANSWER_TTL_MS,
                    body,
                    ext: ext.map_or(Ext::None, Ext::Raw),
                };
                ctx.send(&link, &route, ctx.seal(&message, &link));
            };
            let answering = async {
                match asked {
                    Asked::Keyed(call) => api.keyed(*call, answers).await,
                    Asked::Known(call) => api.known(call, answers).await,
                }
            };
            tokio::select! {
                () = answering => {}
                // The call goes on without it: whoever gives the key again learns how it ended.
                () = link.closed() => {}
            }
        });
        Ok(())
    }

    /// DOC_SEND of the agent's: a schema that its code was built against. The answer is ACK.
    pub(super) fn on_schema(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let document = DocSend::decode(inbound.body).map_err(Refusal::of)?;
        let hash = sha256(&document.hash)?;
        // PROTOCOL 7.2: a document that does not have its hash is none.
        document.verify(&hash).map_err(|error| Refusal::new(error.code(), error.to_string()))?;
        let data = Bytes::copy_from_slice(&document.data);
        self.front()?.keep(hash, data).map_err(|(code, message)| Refusal::new(code, message))?;
        self.ctx.reply(inbound, Type::Ack, &[EMPTY_MAP]);
        Ok(())
    }

    fn front(&self) -> Result<&Arc<Api>, Refusal> {
        self.fronts.api.get().ok_or_else(|| Refusal::new(Code::UNAVAILABLE, "the sidecar is starting"))
    }
}

/// What an invoke asks of the front.
enum Asked {
    /// The call that a key stands for.
    Keyed(Box<KeyedCall>),
    /// A call that was made before.
    Known(MessageId),
}

/// The call that an invoke names instead of a capability. **Errors:** 4001 for anything else that it names.
fn known_call(inbound: &Inbound<'_>, is_ours: bool) -> Result<MessageId, Refusal> {
    let bad = |why: &str| Refusal::new(Code::BAD_REQUEST, why);
    let invoke = Invoke::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
    if invoke.id.is_some() || invoke.capability.is_some() || inbound.envelope.ext_has(EXT_KEY) {
        return Err(bad("ext.capd-call names a known call; leave out id, capability and ext.capd-key"));
    }
    if !is_ours {
        return Err(bad("ext.capd-call: only the own sidecar knows the call; send it to the sidecar's DID"));
    }
    let id = inbound.envelope.ext_bytes(EXT_CALL).and_then(|id| MessageId::from_slice(&id));
    id.ok_or_else(|| bad("ext.capd-call: accepted: the call's id, 16 bytes"))
}

/// **Errors:** 4001 for what a call with a key cannot ask for.
fn keyed_call(inbound: &Inbound<'_>, to: Option<String>) -> Result<KeyedCall, Refusal> {
    let (envelope, bad) = (inbound.envelope, |why: &str| Refusal::new(Code::BAD_REQUEST, why));
    let invoke = Invoke::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
    invoke.identity().map_err(Refusal::of)?;
    if invoke.delegation.is_some() {
        // PROTOCOL 7.3: until delegations are supported, none holds.
        return Err(Refusal::new(Code::DELEGATION_INVALID, "delegation is not supported"));
    }
    if !envelope.ext_has(EXT_KEY) {
        return Err(bad("ext.capd-input-schema and ext.capd-output-schema need ext.capd-key beside them"));
    }
    let key =
        envelope.ext_text(EXT_KEY).ok_or_else(|| bad("ext.capd-key: accepted: text of 1 to 255 bytes"))?;
    let (capability, version) = target(&invoke)?;
    let thread = envelope.thread_id.as_deref().map(|thread| {
        let text = std::str::from_utf8(thread).map(str::to_owned);
        text.map_err(|_| bad("thread_id: a call with ext.capd-key has one that is UTF-8"))
    });
    Ok(KeyedCall {
        capability,
        version,
        timeout: invoke.timeout_ms.map(Duration::from_millis),
        to,
        thread: thread.transpose()?,
        ttl: Duration::from_millis(envelope.ttl),
        trace: Trace {
            parent: envelope.ext_text("traceparent").map(Into::into),
            state: envelope.ext_text("tracestate").map(Into::into),
        },
        affinity: affinity(inbound)?.map(String::from),
        key: key.into_owned(),
        built: built_against(inbound)?,
        params: inbound.body.slice_ref(invoke.params),
    })
}

/// The id, or the name and the range, that the invoke names.
fn target(invoke: &Invoke<'_>) -> Result<(String, Option<String>), Refusal> {
    let bad = || {
        let accepted = "id, capability with version, or capability with negotiate.range";
        Refusal::new(Code::BAD_REQUEST, format!("a call with ext.capd-key names one of: {accepted}"))
    };
    if invoke.session.is_some() {
        return Err(bad());
    }
    if let Some(id) = &invoke.id {
        return Ok((id.to_string(), None));
    }
    let name = invoke.capability.as_deref().ok_or_else(bad)?;
    match (&invoke.version, &invoke.negotiate) {
        (Some(version), None) => Ok((format!("{name}:{version}"), None)),
        (None, Some(wanted)) if wanted.preferred.is_none() && wanted.acceptable.is_empty() => {
            Ok((name.to_owned(), Some(wanted.range.as_deref().ok_or_else(bad)?.to_owned())))
        }
        (_, _) => Err(bad()),
    }
}

/// Both hashes, if there is any.
fn built_against(inbound: &Inbound<'_>) -> Result<Option<[Option<ContentHash>; 2]>, Refusal> {
    let mut sides = [None; 2];
    for (side, field) in sides.iter_mut().zip(EXT_BUILT_AGAINST) {
        if inbound.envelope.ext_has(field) {
            let hash = inbound.envelope.ext_bytes(field).unwrap_or_default();
            *side = Some(sha256(&hash).map_err(|refusal| Refusal {
                message: format!("ext.{field}: {}", refusal.message),
                ..refusal
            })?);
        }
    }
    Ok(sides.iter().any(Option::is_some).then_some(sides))
}

fn sha256(hash: &[u8]) -> Result<ContentHash, Refusal> {
    let hash = <[u8; 32]>::try_from(hash).map(ContentHash::Sha256);
    hash.map_err(|_| Refusal::new(Code::BAD_REQUEST, "accepted: a SHA-256, 32 bytes"))
}

/// The body of an ACK.
const EMPTY_MAP: u8 = 0xa0;
