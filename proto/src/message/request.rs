//! Encodes REQUEST and RESPONSE: operations beside calls, such as agreeing on a version, cancelling and listing calls.

use std::borrow::Cow;

use super::{
    Type,
    audit::{self, AuditPage, AuditPruneRequest, AuditPruned, AuditRequest},
    body::{
        self, BodyError, Contradiction, MapWriter, read_array, read_bytes, read_map, read_texts, required,
        wrong_value,
    },
    calls::{self, CallsPage, CallsRequest},
    doctor::{self, DoctorReport},
    fleet::{self, FleetReport, FleetRequest},
    invoke::parse_preferences,
    metrics::{self, Metrics},
    peers::{self, PeerList},
    policy::{self, PolicyReloaded, PolicyWhy, PolicyWhyRequest},
    reload::{self, BackedUp, Draining, ReloadRequest, Reloaded},
};
use crate::{
    capability::{CapabilityName, Version},
    cbor::{Reader, Writer},
    envelope::MessageId,
    limits::{MESSAGE_ID_BYTES, SESSION_ID_BYTES},
    negotiate::{SessionId, Want},
};

/// The body of REQUEST; `op` says which operation. **Source:** PROTOCOL 7.5, 7.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Agree on a version and pin it. **Shape:** `"op": "negotiate"`.
    Negotiate(NegotiateRequest<'a>),
    /// Cancel a call. **Shape:** `{"op": "cancel", "target": bstr .size 16}`.
    Cancel {
        /// The call's id.
        target: MessageId,
    },
    /// Refuse a call from here on if it was not accepted, so that another executor may have it. **Shape:** `{"op":
    /// "release", "target": bstr .size 16, "capability": name}`. **Source:** PROTOCOL 8.
    Release {
        /// The call's id.
        target: MessageId,
        /// The name of its capability.
        capability: Cow<'a, str>,
    },
    /// Which of these calls have ended with their result, so that it need not be kept? From the sidecar that executed them, which
    /// is to go for good. **Shape:** `{"op": "fetched", "targets": [* bstr .size 16]}`. **Source:** PROTOCOL 8.
    Fetched {
        /// The ids of calls.
        targets: Vec<MessageId>,
    },
    /// List calls; ours, on a local link. **Shape:** `"op": "calls"`.
    Calls(CallsRequest<'a>),
    /// Read the audit log; ours, on a local link. **Shape:** `"op": "audit"`.
    Audit(AuditRequest<'a>),
    /// Remove old records from it; ours, on a local link. **Shape:** `"op": "audit-prune"`.
    AuditPrune(AuditPruneRequest),
    /// Explain what a caller may do; ours, on a local link. **Shape:** `"op": "policy-why"`.
    PolicyWhy(PolicyWhyRequest<'a>),
    /// Reload the configuration, and report the rules in force; ours, on a local link. **Shape:** `{"op":
    /// "policy-reload"}`.
    PolicyReload,
    /// Reload the configuration, or compare it; ours, on a local link. **Shape:** `"op": "reload"`.
    Reload(ReloadRequest),
    /// Copy the sidecar's state; ours, on a local link. **Shape:** `{"op": "backup"}`.
    Backup,
    /// Take no new calls from here on, and report those in flight; ours, on a local link. **Shape:** `{"op": "drain", ? "retire":
    /// bool}`.
    Drain {
        /// Whether the sidecar is to go for good, so that it matters what it is still asked for.
        retire: bool,
    },
    /// Report all metrics; ours, on a local link. **Shape:** `{"op": "metrics"}`.
    Metrics,
    /// List the peers; ours, on a local link. **Shape:** `{"op": "peers"}`.
    Peers,
    /// Report what is wrong; ours, on a local link. **Shape:** `{"op": "doctor"}`.
    Doctor,
    /// Report the fleet; ours, on a local link. **Shape:** `"op": "fleet"`.
    Fleet(FleetRequest<'a>),
    /// An unknown operation; well-formed, and answered with 4001.
    Other {
        /// Its name.
        op: Cow<'a, str>,
    },
}

/// A request for a session.
///
/// **Shape:** `{"op": "negotiate", "capability": name, ? "preferred_version": version, ? "acceptable_versions":
/// [* version], ? "range": range}`. **Source:** PROTOCOL 7.5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NegotiateRequest<'a> {
    /// The capability's name.
    pub capability: Cow<'a, str>,
    /// The preferred version.
    pub preferred_version: Option<Cow<'a, str>>,
    /// Acceptable versions, preferred first.
    pub acceptable_versions: Vec<Cow<'a, str>>,
    /// Otherwise the highest of these.
    pub range: Option<Cow<'a, str>>,
}

impl NegotiateRequest<'_> {
    /// The capability and the requested versions.
    ///
    /// **Errors:** 4001 for text that is not a name, version or range, or too many versions.
    pub fn want(&self) -> Result<(CapabilityName, Want), BodyError> {
        let name = self.capability.parse().map_err(Contradiction::in_field("capability"))?;
        let negotiate = parse_preferences(
            ("preferred_version", self.preferred_version.as_deref()),
            ("acceptable_versions", &self.acceptable_versions),
            self.range.as_deref(),
        )?;
        Ok((name, Want::Negotiate(negotiate)))
    }
}

impl<'a> Request<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::Request, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        match read_op(body)? {
            op if op == "negotiate" => Self::read_negotiate(body),
            op if op == "cancel" => read_target(body).map(|(target, _)| Self::Cancel { target }),
            op if op == "release" => Self::read_release(body),
            op if op == "fetched" => read_targets(body).map(|targets| Self::Fetched { targets }),
            op if op == calls::OP => CallsRequest::read(body).map(Self::Calls),
            op if op == audit::OP => AuditRequest::read(body).map(Self::Audit),
            op if op == audit::OP_PRUNE => AuditPruneRequest::read(body).map(Self::AuditPrune),
            op if op == policy::OP_WHY => PolicyWhyRequest::read(body).map(Self::PolicyWhy),
            op if op == policy::OP_RELOAD => Ok(Self::PolicyReload),
            op if op == reload::OP_RELOAD => ReloadRequest::read(body).map(Self::Reload),
            op if op == reload::OP_BACKUP => Ok(Self::Backup),
            op if op == reload::OP_DRAIN => reload::read_retire(body).map(|retire| Self::Drain { retire }),
            op if op == metrics::OP => Ok(Self::Metrics),
            op if op == peers::OP => Ok(Self::Peers),
            op if op == doctor::OP => Ok(Self::Doctor),
            op if op == fleet::OP => FleetRequest::read(body).map(Self::Fleet),
            op if op == "accept" => Err(wrong_value(&Reader::new(body), "op", "one that asks")),
            op => Ok(Self::Other { op }),
        }
    }

    fn read_release(body: &'a [u8]) -> Result<Self, BodyError> {
        let (target, _) = read_target(body)?;
        let mut capability = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"capability" => capability = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self::Release { target, capability: required(capability, "capability")? })
    }

    fn read_negotiate(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut request = NegotiateRequest::default();
        let mut capability = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"capability" => capability = Some(reader.text()?),
                b"preferred_version" => request.preferred_version = Some(reader.text()?),
                b"acceptable_versions" => request.acceptable_versions = read_texts(reader)?,
                b"range" => request.range = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        request.capability = required(capability, "capability")?;
        Ok(Self::Negotiate(request))
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        match self {
            Self::Negotiate(request) => {
                map.text("op", "negotiate");
                map.text_if("range", request.range.as_deref());
                map.text("capability", &request.capability);
                map.text_if("preferred_version", request.preferred_version.as_deref());
                map.texts_if("acceptable_versions", &request.acceptable_versions);
            }
            Self::Cancel { target } => {
                map.text("op", "cancel");
                map.bytes("target", target.as_bytes());
            }
            Self::Release { target, capability } => {
                map.text("op", "release");
                map.bytes("target", target.as_bytes());
                map.text("capability", capability);
            }
            Self::Fetched { targets } => write_targets(&mut map, targets),
            Self::Calls(request) => request.write(&mut map),
            Self::Audit(request) => request.write(&mut map),
            Self::AuditPrune(request) => request.write(&mut map),
            Self::PolicyWhy(request) => request.write(&mut map),
            Self::PolicyReload => map.text("op", policy::OP_RELOAD),
            Self::Reload(request) => request.write(&mut map),
            Self::Backup => map.text("op", reload::OP_BACKUP),
            Self::Drain { retire } => {
                map.text("op", reload::OP_DRAIN);
                map.bool_if("retire", retire.then_some(true));
            }
            Self::Metrics => map.text("op", metrics::OP),
            Self::Peers => map.text("op", peers::OP),
            Self::Doctor => map.text("op", doctor::OP),
            Self::Fleet(request) => request.write(&mut map),
            Self::Other { op } => map.text("op", op),
        }
    }
}

/// The body of RESPONSE; `op` says which operation it answers. **Source:** PROTOCOL 7.5, 7.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// A version is agreed on. **Shape:** `"op": "accept"`.
    Accept(Accept<'a>),
    /// The state of a cancelled call. **Shape:** `{"op": "cancel", "target": bstr .size 16, "state": tstr}`.
    Cancel {
        /// The call's id.
        target: MessageId,
        /// The state of the call.
        state: CancelState,
    },
    /// Whether a call was released. **Shape:** `{"op": "release", "target": bstr .size 16, "state": tstr}`.
    Release {
        /// The call's id.
        target: MessageId,
        /// What became of it.
        state: ReleaseState,
    },
    /// The calls, of those that were asked about, that have ended with their result. **Shape:** `{"op": "fetched", "targets":
    /// [* bstr .size 16]}`.
    Fetched {
        /// Their ids.
        targets: Vec<MessageId>,
    },
    /// A page of calls; ours, on a local link. **Shape:** `"op": "calls"`.
    Calls(CallsPage<'a>),
    /// A page of the audit log; ours, on a local link. **Shape:** `"op": "audit"`.
    Audit(AuditPage<'a>),
    /// What was removed from it; ours, on a local link. **Shape:** `"op": "audit-prune"`.
    AuditPruned(AuditPruned),
    /// What a caller may do; ours, on a local link. **Shape:** `"op": "policy-why"`.
    PolicyWhy(PolicyWhy<'a>),
    /// The policy was reloaded; ours, on a local link. **Shape:** `"op": "policy-reload"`.
    PolicyReloaded(PolicyReloaded),
    /// What the configuration's file changes; ours, on a local link. **Shape:** `"op": "reload"`.
    Reloaded(Reloaded<'a>),
    /// Where the copy of the state is; ours, on a local link. **Shape:** `"op": "backup"`.
    BackedUp(BackedUp<'a>),
    /// Which calls are still in flight; ours, on a local link. **Shape:** `"op": "drain"`.
    Draining(Draining),
    /// All metrics; ours, on a local link. **Shape:** `"op": "metrics"`.
    Metrics(Metrics<'a>),
    /// The peers; ours, on a local link. **Shape:** `"op": "peers"`.
    Peers(PeerList<'a>),
    /// What the sidecar finds wrong; ours, on a local link. **Shape:** `"op": "doctor"`.
    Doctor(DoctorReport<'a>),
    /// The fleet; ours, on a local link. **Shape:** `"op": "fleet"`.
    Fleet(Box<FleetReport<'a>>),
    /// An unknown operation.
    Other {
        /// Its name.
        op: Cow<'a, str>,
    },
}

/// A session that was agreed on.
///
/// **Shape:** `{"op": "accept", "capability": name, "agreed_version": version, "session_id": bstr .size 16,
/// "expires_at": uint}`. **Source:** PROTOCOL 7.5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept<'a> {
    /// The capability's name.
    pub capability: Cow<'a, str>,
    /// The version that calls of this session get.
    pub agreed_version: Cow<'a, str>,
    /// The id that those calls carry.
    pub session_id: SessionId,
    /// When the session ends. **Units:** milliseconds since the Unix epoch.
    pub expires_at: u64,
}

impl Accept<'_> {
    /// The capability and the version agreed on.
    ///
    /// **Errors:** 4001 for text that is not a name or version.
    pub fn agreement(&self) -> Result<(CapabilityName, Version), BodyError> {
        let name = self.capability.parse().map_err(Contradiction::in_field("capability"))?;
        let version = self.agreed_version.parse().map_err(Contradiction::in_field("agreed_version"))?;
        Ok((name, version))
    }
}

/// The state of a call that was to be cancelled. **Source:** PROTOCOL 7.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelState {
    /// It ends as soon as it can.
    Cancelling,
    /// It had ended before.
    Finished,
    /// This caller has no such call.
    Unknown,
}

impl CancelState {
    /// The state as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelling => "cancelling",
            Self::Finished => "finished",
            Self::Unknown => "unknown",
        }
    }

    fn read(raw: &[u8]) -> Option<Self> {
        match Reader::new(raw).text().as_deref() {
            Ok("cancelling") => Some(Self::Cancelling),
            Ok("finished") => Some(Self::Finished),
            Ok("unknown") => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// The state of a call that was to be released. **Source:** PROTOCOL 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseState {
    /// It was not accepted, and is refused until its `ts + ttl`.
    Released,
    /// It was accepted: it runs, or has its result.
    Accepted,
}

impl ReleaseState {
    /// The state as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Accepted => "accepted",
        }
    }

    fn read(raw: &[u8]) -> Option<Self> {
        match Reader::new(raw).text().as_deref() {
            Ok("released") => Some(Self::Released),
            Ok("accepted") => Some(Self::Accepted),
            _ => None,
        }
    }
}

impl<'a> Response<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::Response, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        match read_op(body)? {
            op if op == "accept" => Self::read_accept(body),
            op if op == "cancel" => {
                let (target, state) = read_target(body)?;
                Ok(Self::Cancel { target, state: required(state.and_then(CancelState::read), "state")? })
            }
            op if op == "release" => {
                let (target, state) = read_target(body)?;
                Ok(Self::Release { target, state: required(state.and_then(ReleaseState::read), "state")? })
            }
            op if op == "fetched" => read_targets(body).map(|targets| Self::Fetched { targets }),
            op if op == calls::OP => CallsPage::read(body).map(Self::Calls),
            op if op == audit::OP => AuditPage::read(body).map(Self::Audit),
            op if op == audit::OP_PRUNE => AuditPruned::read(body).map(Self::AuditPruned),
            op if op == policy::OP_WHY => PolicyWhy::read(body).map(Self::PolicyWhy),
            op if op == policy::OP_RELOAD => PolicyReloaded::read(body).map(Self::PolicyReloaded),
            op if op == reload::OP_RELOAD => Reloaded::read(body).map(Self::Reloaded),
            op if op == reload::OP_BACKUP => BackedUp::read(body).map(Self::BackedUp),
            op if op == reload::OP_DRAIN => Draining::read(body).map(Self::Draining),
            op if op == metrics::OP => Metrics::read(body).map(Self::Metrics),
            op if op == peers::OP => PeerList::read(body).map(Self::Peers),
            op if op == doctor::OP => DoctorReport::read(body).map(Self::Doctor),
            op if op == fleet::OP => FleetReport::read(body).map(Box::new).map(Self::Fleet),
            op if op == "negotiate" => Err(wrong_value(&Reader::new(body), "op", "one that answers")),
            op => Ok(Self::Other { op }),
        }
    }

    fn read_accept(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut capability, mut agreed_version, mut session_id, mut expires_at) = (None, None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"capability" => capability = Some(reader.text()?),
                b"agreed_version" => agreed_version = Some(reader.text()?),
                b"session_id" => {
                    session_id = Some(read_bytes::<SESSION_ID_BYTES>(reader, "session_id", "16 bytes")?);
                }
                b"expires_at" => expires_at = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self::Accept(Accept {
            capability: required(capability, "capability")?,
            agreed_version: required(agreed_version, "agreed_version")?,
            session_id: SessionId(required(session_id, "session_id")?),
            expires_at: required(expires_at, "expires_at")?,
        }))
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        match self {
            Self::Accept(accept) => {
                map.text("op", "accept");
                map.text("capability", &accept.capability);
                map.uint("expires_at", accept.expires_at);
                map.bytes("session_id", &accept.session_id.0);
                map.text("agreed_version", &accept.agreed_version);
            }
            Self::Cancel { target, state } => {
                map.text("op", "cancel");
                map.text("state", state.as_str());
                map.bytes("target", target.as_bytes());
            }
            Self::Release { target, state } => {
                map.text("op", "release");
                map.text("state", state.as_str());
                map.bytes("target", target.as_bytes());
            }
            Self::Fetched { targets } => write_targets(&mut map, targets),
            Self::Calls(page) => page.write(&mut map),
            Self::Audit(page) => page.write(&mut map),
            Self::AuditPruned(pruned) => pruned.write(&mut map),
            Self::PolicyWhy(why) => why.write(&mut map),
            Self::PolicyReloaded(reloaded) => reloaded.write(&mut map),
            Self::Reloaded(reloaded) => reloaded.write(&mut map),
            Self::BackedUp(backed_up) => backed_up.write(&mut map),
            Self::Draining(draining) => draining.write(&mut map),
            Self::Metrics(metrics) => metrics.write(&mut map),
            Self::Peers(list) => list.write(&mut map),
            Self::Doctor(report) => report.write(&mut map),
            Self::Fleet(report) => report.write(&mut map),
            Self::Other { op } => map.text("op", op),
        }
    }
}

/// The operation; the keys of a map stand in any order, so it is looked for before the rest is read.
fn read_op(body: &[u8]) -> Result<Cow<'_, str>, BodyError> {
    let mut op = None;
    read_map(&mut Reader::new(body), |key, reader| {
        match key {
            b"op" => op = Some(reader.text()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    required(op, "op")
}

fn read_targets(body: &[u8]) -> Result<Vec<MessageId>, BodyError> {
    let mut targets = None;
    read_map(&mut Reader::new(body), |key, reader| {
        match key {
            b"targets" => {
                let read = |reader: &mut Reader<'_>| {
                    read_bytes::<MESSAGE_ID_BYTES>(reader, "targets", "ids of 16 bytes").map(MessageId)
                };
                targets = Some(read_array(reader, read)?);
            }
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    required(targets, "targets")
}

fn write_targets(map: &mut MapWriter<'_>, targets: &[MessageId]) {
    map.text("op", "fetched");
    let out = map.key_then("targets");
    Writer::new(out).array(targets.len() as u64);
    for target in targets {
        Writer::new(out).bytes(target.as_bytes());
    }
}

/// The call that a body is about, and its `state`. In a REQUEST that is a field like any other that we do not know.
fn read_target(body: &[u8]) -> Result<(MessageId, Option<&[u8]>), BodyError> {
    let (mut target, mut state) = (None, None);
    read_map(&mut Reader::new(body), |key, reader| {
        match key {
            b"target" => target = Some(read_bytes::<MESSAGE_ID_BYTES>(reader, "target", "16 bytes")?),
            b"state" => state = Some(reader.skip()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    Ok((MessageId(required(target, "target")?), state))
}
