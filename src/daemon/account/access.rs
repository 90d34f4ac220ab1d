//! Writes the access log: one line for each call that ended or was refused, under the target `access`.
//!
//! A sidecar logs a call once: as `executor` where its agent provides, as `caller` where its agent calls a peer. A call
//! that is joined or replayed under its id is the same call. Only the lines of the one capability in `log.payloads_of`
//! contain params and results.

use capd_proto::capability::Version;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::message::{Invoke, Role, Type};

use super::Account;
use super::meter::Ended;
use crate::daemon::context::Refusal;
use crate::net::Link;

/// The trace that a call belongs to (W3C Trace Context). **Shape:** 16 bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct TraceId(u128);

impl TraceId {
    /// The one that a call's `traceparent` names; where it names none, the call's own id.
    pub(in crate::daemon) fn of(envelope: &Envelope<'_>) -> Self {
        let named = envelope.ext.and_then(|_| envelope.ext_text("traceparent"));
        named
            .and_then(|text| Self::parse(&text))
            .unwrap_or(Self(u128::from_be_bytes(*envelope.id.as_bytes())))
    }

    /// **Shape:** `version-trace-parent-flags`, lower case.
    fn parse(traceparent: &str) -> Option<Self> {
        let trace = traceparent.split('-').nth(1)?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if trace.len() != 32 || !trace.bytes().all(is_hex) {
            return None;
        }
        u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0).map(Self)
    }
}

/// One line.
pub(in crate::daemon) struct Line<'a> {
    pub(in crate::daemon) role: Role,
    pub(in crate::daemon) id: &'a MessageId,
    pub(in crate::daemon) trace: TraceId,
    pub(in crate::daemon) caller: &'a str,
    /// Whom it was given to.
    pub(in crate::daemon) peer: Option<&'a str>,
    pub(in crate::daemon) capability: Option<&'a str>,
    pub(in crate::daemon) version: Option<&'a Version>,
    pub(in crate::daemon) end: End<'a>,
    pub(in crate::daemon) time_ms: u64,
    pub(in crate::daemon) params: Option<Payload<'a>>,
}

/// Params or a result.
#[derive(Clone, Copy)]
pub(in crate::daemon) struct Payload<'a> {
    /// Its length.
    pub(in crate::daemon) bytes: usize,
    /// **Shape:** one CBOR item; one of more than [`PAYLOAD_BYTES_MAX`] may be gone by now.
    pub(in crate::daemon) shown: &'a [u8],
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(item: &'a [u8]) -> Self {
        Self { bytes: item.len(), shown: item }
    }
}

/// How a call ended, as whoever made it hears it.
#[derive(Clone, Copy)]
pub(in crate::daemon) enum End<'a> {
    /// This CAP_RESULT body, and whether it is an error.
    Result(&'a [u8], Result<(), Code>),
    /// An ERROR of this code.
    Refused(Code),
}

impl End<'_> {
    const fn counted(self) -> Ended {
        match self {
            Self::Result(_, ended) => Ended::of(ended),
            Self::Refused(code) => Ended::Refused(code),
        }
    }
}

impl Account {
    /// Counts a call that has ended, and how long it took unless it was not taken at all; `true` when a [line](Self::log)
    /// of it is wanted as well. **Units:** microseconds.
    pub(in crate::daemon) fn ended(&self, role: Role, end: End<'_>, took_us: Option<u64>) -> bool {
        self.meter.ended(role, end.counted(), took_us);
        self.ctx.config().log.access
    }

    /// A CAP_INVOKE was not taken. One that is told together with others is only counted.
    pub(in crate::daemon) fn log_refused(
        &self,
        link: &Link,
        payload: &[u8],
        refusal: &Refusal,
        is_told: bool,
    ) {
        let role = if link.kind().is_local() { Role::Caller } else { Role::Executor };
        let end = End::Refused(refusal.code);
        if !self.ended(role, end, None) || !is_told {
            return;
        }
        let Ok(envelope) = Envelope::decode(payload) else { return };
        if envelope.typ != Type::CapInvoke.code() {
            return;
        }
        // What the body says is told as far as it can be read; one that is encrypted says nothing here.
        let invoke = envelope.body().and_then(|body| Invoke::decode(body).ok());
        let identity = invoke.as_ref().and_then(|invoke| invoke.identity().ok());
        self.log(&Line {
            role,
            id: &envelope.id,
            trace: TraceId::of(&envelope),
            caller: link.principal().as_str(),
            peer: None,
            capability: identity.as_ref().map(|identity| &*identity.name),
            version: None,
            end,
            time_ms: 0,
            params: invoke.as_ref().map(|invoke| invoke.params.into()),
        });
    }

    /// Writes a line of the access log.
    pub(in crate::daemon) fn log(&self, line: &Line<'_>) {
        let (outcome, code, result) = match line.end {
            End::Refused(code) => ("refused", Some(code), None),
            End::Result(body, Err(code)) => ("error", Some(code), Some(Payload::from(body))),
            End::Result(body, Ok(())) => ("success", None, Some(Payload::from(body))),
        };
        let config = self.ctx.config();
        let is_shown = config.log.payloads_of.as_deref().is_some_and(|name| line.capability == Some(name));
        let shown = |payload: Option<Payload<'_>>| payload.filter(|_| is_shown).map(payload_text);
        tracing::info!(
            target: "access",
            role = line.role.as_str(),
            id = %line.id,
            trace = %format_args!("{:032x}", line.trace.0),
            caller = line.caller,
            peer = line.peer,
            capability = line.capability,
            version = line.version.map(display),
            outcome,
            code = code.map(|code| code.0),
            time_ms = line.time_ms,
            bytes_in = line.params.map(|params| params.bytes as u64),
            bytes_out = result.map(|body| body.bytes as u64),
            params = shown(line.params),
            result = shown(result),
            "call"
        );
    }
}

/// A payload as JSON text, cut at a bound; what is too large or no JSON is told by its size.
fn payload_text(payload: Payload<'_>) -> String {
    let json = if payload.bytes <= PAYLOAD_BYTES_MAX { to_json(payload.shown).ok() } else { None };
    let Some(json) = json else { return format!("({} bytes)", payload.bytes) };
    let mut text = json.to_string();
    if text.len() > PAYLOAD_TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(PAYLOAD_TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Largest payload that is shown at all.
pub(in crate::daemon) const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a payload's text in a line.
const PAYLOAD_TEXT_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_taken_only_in_its_own_form() {
        let of = |text: &str| TraceId::parse(text).map(|trace| format!("{:032x}", trace.0));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(of(&format!("00-{trace}-b7ad6b7169203331-01")).as_deref(), Some(trace));
        for text in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-\u{1b}[2J7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_payload_is_cut_at_its_bound() {
        let cbor = |text: &str| {
            let mut out = Vec::new();
            capd_proto::cbor::Writer::new(&mut out).text(text);
            out
        };
        assert_eq!(payload_text(cbor("a\u{1b}").as_slice().into()), "\"a\\u001b\"");
        let long = payload_text(cbor(&"ü".repeat(5_000)).as_slice().into());
        assert!(long.len() <= PAYLOAD_TEXT_BYTES_MAX + 3 && long.ends_with('…'));
        assert_eq!(payload_text(cbor(&"a".repeat(70_000)).as_slice().into()), "(70005 bytes)");
        assert_eq!(payload_text([0xf7].as_slice().into()), "(1 bytes)");
    }
}
