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
use super::timeline::Timeline;
use super::trace::Traced;
use crate::daemon::context::Refusal;
use crate::net::Link;

/// One line.
pub(in crate::daemon) struct Line<'a> {
    pub(in crate::daemon) role: Role,
    pub(in crate::daemon) id: &'a MessageId,
    pub(in crate::daemon) traced: Traced,
    pub(in crate::daemon) timeline: Timeline,
    pub(in crate::daemon) caller: &'a str,
    /// Whom it was given to.
    pub(in crate::daemon) peer: Option<&'a str>,
    pub(in crate::daemon) capability: Option<&'a str>,
    pub(in crate::daemon) version: Option<&'a Version>,
    pub(in crate::daemon) end: End<'a>,
    /// How long it took. **Units:** microseconds.
    pub(in crate::daemon) took_us: u64,
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

impl<'a> End<'a> {
    /// What it is called, and its code.
    pub(super) const fn told(self) -> (&'static str, Option<Code>) {
        match self {
            Self::Result(_, Ok(())) => ("success", None),
            Self::Result(_, Err(code)) => ("error", Some(code)),
            Self::Refused(code) => ("refused", Some(code)),
        }
    }

    /// The result's body.
    const fn body(self) -> Option<&'a [u8]> {
        match self {
            Self::Result(body, _) => Some(body),
            Self::Refused(_) => None,
        }
    }

    const fn counted(self) -> Ended {
        match self {
            Self::Result(_, ended) => Ended::of(ended),
            Self::Refused(code) => Ended::Refused(code),
        }
    }
}

impl Account {
    /// Counts a call that has ended, and how long it took; `true` when its [line](Self::log) is wanted as well. **Units:**
    /// microseconds.
    pub(in crate::daemon) fn ended(
        &self,
        role: Role,
        end: End<'_>,
        took_us: u64,
        (traced, capability): (&Traced, &str),
    ) -> bool {
        let config = self.ctx.config();
        let named = config.metrics.capabilities.then_some(capability);
        self.meter.ended(role, end.counted(), Some((took_us, named)));
        traced.is_recorded() || config.log.access
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
        self.meter.ended(role, end.counted(), None);
        let is_wanted = {
            let config = self.ctx.config();
            config.log.access || config.otlp.endpoint.is_some()
        };
        if !is_wanted || !is_told {
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
            traced: self.traced(&envelope),
            timeline: Timeline::default(),
            caller: link.principal().as_str(),
            peer: None,
            capability: identity.as_ref().map(|identity| &*identity.name),
            version: None,
            end,
            took_us: 0,
            params: invoke.as_ref().map(|invoke| invoke.params.into()),
        });
    }

    /// Writes a line of the access log, and records the span, as far as each is wanted.
    pub(in crate::daemon) fn log(&self, line: &Line<'_>) {
        self.record(line);
        let config = self.ctx.config();
        if !config.log.access {
            return;
        }
        let ((outcome, code), result) = (line.end.told(), line.end.body().map(Payload::from));
        let is_shown = config.log.payloads_of.as_deref().is_some_and(|name| line.capability == Some(name));
        let shown = |payload: Option<Payload<'_>>| payload.filter(|_| is_shown).map(payload_text);
        tracing::info!(
            target: "access",
            role = line.role.as_str(),
            id = %line.id,
            trace = %line.traced.trace(),
            caller = line.caller,
            peer = line.peer,
            capability = line.capability,
            version = line.version.map(display),
            outcome,
            code = code.map(|code| code.0),
            time_ms = line.took_us / 1_000,
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
