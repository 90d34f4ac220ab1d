//! Converts the client's typed values to message bodies, and back.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::CapabilityName;
use capd_proto::cbor::{self, Checker, Reader, TagPolicy, Writer};
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, Envelope, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits::{EXT_CAPABILITY_ID, EXT_REPLAYED};
use capd_proto::message::{
    AuditPage, AuditPruneRequest, AuditPruned, AuditRequest, BackedUp, CallError, CallsRequest, CancelState,
    CapResult, Declare, Descriptor, DocRequest, DoctorReport, Draining, ErrorBody, FleetReport, FleetRequest,
    InputRequired, Invoke, ListedCall, ListedPeer, MetricFamily, NegotiateRequest, Outcome, PolicyReloaded,
    PolicyWhy, PolicyWhyRequest, Preferences, Processing, Progress, Query as QueryBody, ReloadRequest,
    Reloaded, Request, Response, SessionRef,
};
use capd_proto::negotiate::Negotiate;

use super::call::Named;
use super::outgoing::Body;
use super::{Answer, CallList, CallRequest, ClientError, Offer, Page, Query, Session, WireError, ms};

/// Containers around params and results: the envelope's map and the body's.
pub(super) const PAYLOAD_DEPTH: usize = 2;
/// Containers around the details of an error result: the error's map too.
pub(super) const DETAILS_DEPTH: usize = 3;

/// PING: a body without any field.
pub(super) fn ping() -> Body {
    written(|out| {
        Writer::new(out).map(0);
    })
}

/// CAP_INVOKE.
pub(super) fn invoke(request: &CallRequest) -> Body {
    written_around(&request.params, |params, out| {
        let mut invoke = Invoke::new(params);
        match &request.target {
            Named::Id(id) => invoke.id = Some(Cow::Borrowed(id)),
            Named::Name { name, version, negotiate } => {
                invoke.capability = Some(name.as_str().into());
                invoke.version = version.as_deref().map(Cow::Borrowed);
                invoke.negotiate = negotiate.as_ref().map(Preferences::from);
            }
            Named::Call(_) => {}
        }
        invoke.timeout_ms = request.timeout.map(ms);
        invoke.session = request.session.map(|session_id| SessionRef { session_id, session_scope: false });
        invoke.encode_around(out)
    })
}

/// REQUEST to cancel a call.
pub(super) fn cancel(target: MessageId) -> Body {
    written(|out| Request::Cancel { target }.encode(out))
}

/// REQUEST for a list of calls.
pub(super) fn calls(request: &CallsRequest<'_>) -> Body {
    written(|out| Request::Calls(request.clone()).encode(out))
}

/// REQUEST for a page of the audit log.
pub(super) fn audit(request: &AuditRequest<'_>) -> Body {
    written(|out| Request::Audit(request.clone()).encode(out))
}

/// REQUEST to remove old records from the audit log.
pub(super) fn audit_prune(request: AuditPruneRequest) -> Body {
    written(|out| Request::AuditPrune(request).encode(out))
}

/// REQUEST for what a caller may do.
pub(super) fn policy_why(request: PolicyWhyRequest<'_>) -> Body {
    written(|out| Request::PolicyWhy(request).encode(out))
}

/// REQUEST for all metrics.
pub(super) fn metrics() -> Body {
    written(|out| Request::Metrics.encode(out))
}

/// REQUEST for what is wrong with the sidecar.
pub(super) fn doctor() -> Body {
    written(|out| Request::Doctor.encode(out))
}

/// REQUEST for all peers.
pub(super) fn peers() -> Body {
    written(|out| Request::Peers.encode(out))
}

/// REQUEST for the fleet.
pub(super) fn fleet(request: &FleetRequest<'_>) -> Body {
    written(|out| Request::Fleet(request.clone()).encode(out))
}

/// REQUEST to read the policy anew.
pub(super) fn policy_reload() -> Body {
    written(|out| Request::PolicyReload.encode(out))
}

/// RESPONSE to a REQUEST to cancel.
pub(super) fn cancel_response(target: MessageId, state: CancelState) -> Body {
    written(|out| Response::Cancel { target, state }.encode(out))
}

/// REQUEST for a session.
pub(super) fn negotiate(name: &CapabilityName, wanted: &Negotiate) -> Body {
    let texts = Preferences::from(wanted);
    let request = NegotiateRequest {
        capability: name.as_str().into(),
        preferred_version: texts.preferred,
        acceptable_versions: texts.acceptable,
        range: texts.range,
    };
    written(|out| Request::Negotiate(request).encode(out))
}

/// CAP_QUERY.
pub(super) fn query(query: &Query) -> Body {
    let body = QueryBody {
        capability: Some(query.filter.to_string().into()),
        alias: None,
        version: query.version.as_ref().map(|range| range.to_string().into()),
        words: query.words.as_deref().map(Into::into),
        limit: query.limit,
        cursor: query.cursor.as_deref().map(Into::into),
        order: Some(query.order),
    };
    written(|out| body.encode(out))
}

/// CAP_DECLARE.
pub(super) fn declare(descriptors: &[Descriptor]) -> Body {
    let raw = descriptors.iter().map(Descriptor::as_bytes).collect();
    written(|out| Declare::new(raw, None).encode(out))
}

/// DOC_REQUEST.
pub(super) fn doc_request(hash: &[u8]) -> Body {
    written(|out| DocRequest { hash: hash.into() }.encode(out))
}

/// ERROR.
pub(super) fn error(code: Code, why: &str) -> Body {
    written(|out| ErrorBody::new(code, why).encode(out))
}

/// PROCESSING.
pub(super) fn processing(status_text: Option<&str>, eta_ms: Option<u64>) -> Body {
    let body = Processing { status_text: status_text.map(Into::into), eta_ms, cancellable: Some(true) };
    written(|out| body.encode(out))
}

/// PROGRESS.
pub(super) fn progress(pct: u8) -> Body {
    written(|out| Progress { progress_pct: pct }.encode(out))
}

/// INPUT_REQUIRED.
pub(super) fn input_required(prompt: &str) -> Body {
    let body = InputRequired { prompt: prompt.into(), options: None, timeout_ms: None };
    written(|out| body.encode(out))
}

/// CAP_RESULT.
pub(super) fn result(outcome: &Result<Bytes, WireError>, took: Duration) -> Body {
    let timed = |mut body: CapResult<'_>, out: &mut Vec<u8>| {
        body.execution_time_ms = Some(ms(took));
        body.encode_around(out)
    };
    match outcome {
        Ok(result) => written_around(result, |result, out| timed(CapResult::success(result), out)),
        Err(error) => written(|out| {
            let error = CallError::new(error.code, &error.message, error.details.as_deref());
            timed(CapResult::error(error), out);
        }),
    }
}

/// What a CAP_RESULT, read from `body`, says. **Errors:** [`ClientError::Result`] when it is an error.
pub(super) fn answer(
    envelope: &Envelope<'_>,
    from: Did,
    read: CapResult<'_>,
    body: &Bytes,
) -> Result<Answer, ClientError> {
    match read.outcome {
        Outcome::Success(result) => Ok(Answer {
            result: body.slice_ref(result),
            from,
            execution_time_ms: read.execution_time_ms,
            cost_estimate: read.cost_estimate.map(|cost| body.slice_ref(cost)),
            is_deprecated: envelope.ext_bool("deprecated").unwrap_or(false),
            capability: envelope.ext_text(EXT_CAPABILITY_ID).map(Cow::into_owned),
            is_replayed: envelope.ext_bool(EXT_REPLAYED).unwrap_or(false),
        }),
        Outcome::Error(error) => Err(ClientError::Result(WireError {
            code: error.code,
            message: error.message.map_or_else(|| "the call failed".to_owned(), std::borrow::Cow::into_owned),
            details: error.details.map(|details| body.slice_ref(details)),
        })),
    }
}

/// What a RESPONSE says of a cancel of `id`.
pub(super) fn cancel_state(body: &[u8], id: MessageId) -> Result<CancelState, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Cancel { target, state } if target == id => Ok(state),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The page of calls that a RESPONSE holds.
pub(super) fn call_list(body: &[u8]) -> Result<CallList, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Calls(page) => Ok(CallList {
            calls: page.calls.into_iter().map(ListedCall::into_owned).collect(),
            next_cursor: page.cursor.map(|cursor| Bytes::copy_from_slice(&cursor)),
            journal: page.journal,
        }),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The page of the audit log that a RESPONSE holds.
pub(super) fn audit_page(body: &[u8]) -> Result<AuditPage<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Audit(page) => Ok(page.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// What a RESPONSE says was removed from the audit log.
pub(super) fn audit_pruned(body: &[u8]) -> Result<AuditPruned, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::AuditPruned(pruned) => Ok(pruned),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The decisions that a RESPONSE holds.
pub(super) fn policy_decisions(body: &[u8]) -> Result<PolicyWhy<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::PolicyWhy(why) => Ok(why.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// REQUEST to apply the configuration's file, or only to compare it.
pub(super) fn reload(dry_run: bool) -> Body {
    written(|out| Request::Reload(ReloadRequest { dry_run }).encode(out))
}

/// REQUEST to copy the state.
pub(super) fn backup() -> Body {
    written(|out| Request::Backup.encode(out))
}

/// REQUEST to take no new calls.
pub(super) fn drain(retire: bool) -> Body {
    written(|out| Request::Drain { retire }.encode(out))
}

/// The calls that a RESPONSE says are still in flight.
pub(super) fn draining(body: &[u8]) -> Result<Draining, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Draining(draining) => Ok(draining),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// What a RESPONSE says that the configuration's file changes.
pub(super) fn reloaded(body: &[u8]) -> Result<Reloaded<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Reloaded(reloaded) => Ok(reloaded.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// Where a RESPONSE says that the copy of the state is.
pub(super) fn backed_up(body: &[u8]) -> Result<BackedUp<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::BackedUp(backed_up) => Ok(backed_up.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// How many rules a RESPONSE says stand.
pub(super) fn policy_reloaded(body: &[u8]) -> Result<PolicyReloaded, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::PolicyReloaded(reloaded) => Ok(reloaded),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The metrics that a RESPONSE holds.
pub(super) fn metric_families(body: &[u8]) -> Result<Vec<MetricFamily<'static>>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Metrics(metrics) => {
            Ok(metrics.families.into_iter().map(MetricFamily::into_owned).collect())
        }
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The peers that a RESPONSE lists.
pub(super) fn listed_peers(body: &[u8]) -> Result<Vec<ListedPeer<'static>>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Peers(list) => Ok(list.peers.into_iter().map(ListedPeer::into_owned).collect()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The fleet that a RESPONSE reports.
pub(super) fn fleet_report(body: &[u8]) -> Result<FleetReport<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Fleet(report) => Ok(report.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// What a RESPONSE says is wrong.
pub(super) fn doctored(body: &[u8]) -> Result<DoctorReport<'static>, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Doctor(report) => Ok(report.into_owned()),
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The session that a RESPONSE agrees to.
pub(super) fn accepted(body: &[u8], name: &CapabilityName) -> Result<Session, ClientError> {
    match Response::decode(body).map_err(unusable)? {
        Response::Accept(accept) if accept.capability == name.as_str() => {
            let (capability, agreed_version) = accept.agreement().map_err(unusable)?;
            Ok(Session {
                id: accept.session_id,
                capability,
                agreed_version,
                expires_at_ms: accept.expires_at,
            })
        }
        _ => Err(ClientError::Answer("a RESPONSE to something else".to_owned())),
    }
}

/// The page that a CAP_DECLARE holds.
pub(super) fn page(body: &[u8]) -> Result<Page, ClientError> {
    let declare = Declare::decode(body).map_err(unusable)?;
    declare.check_format().map_err(unusable)?;
    let descriptors = declare.descriptors().map_err(unusable)?;
    let next_cursor = declare.next_cursor.map(std::borrow::Cow::into_owned);
    Ok(Page { offers: descriptors.into_iter().map(offer).collect(), next_cursor })
}

/// A descriptor with what our sidecar says of who provides it.
fn offer(descriptor: Descriptor) -> Offer {
    let field = |name| descriptor.field(name).map(Reader::new);
    let provider =
        field("provider").and_then(|mut reader| reader.text().ok().map(std::borrow::Cow::into_owned));
    let is_local = field("local").and_then(|mut reader| reader.bool().ok()).unwrap_or(false);
    Offer { provider, is_local, descriptor }
}

/// Checks that `item` is one CBOR item, tags allowed, that can stand inside `depth` containers of a message.
///
/// **Source:** PROTOCOL 5.
pub(super) fn check_payload(item: &[u8], depth: usize) -> Result<(), cbor::Error> {
    let end = Checker::new(item, TagPolicy::Anywhere).item(0, depth)?;
    if end == item.len() {
        Ok(())
    } else {
        Err(cbor::Error { offset: end, kind: cbor::ErrorKind::TrailingBytes })
    }
}

pub(super) fn unusable(error: impl std::fmt::Display) -> ClientError {
    ClientError::Answer(error.to_string())
}

fn written(encode: impl FnOnce(&mut Vec<u8>)) -> Body {
    let mut bytes = Vec::with_capacity(FIELDS_BYTES);
    encode(&mut bytes);
    Body { bytes, apart: None }
}

/// A body around `item`: `encode` writes what it is given of it and says where that ends.
fn written_around(item: &Bytes, encode: impl FnOnce(&[u8], &mut Vec<u8>) -> usize) -> Body {
    let (written, apart): (&[u8], _) =
        if item.len() >= Encoded::APART_BYTES_MIN { (&[], Some(item.clone())) } else { (item, None) };
    let mut bytes = Vec::with_capacity(written.len() + FIELDS_BYTES);
    let at = encode(written, &mut bytes);
    Body { bytes, apart: apart.map(|item| (at, item)) }
}

/// Bytes to begin with for the other fields of a body.
const FIELDS_BYTES: usize = 128;
