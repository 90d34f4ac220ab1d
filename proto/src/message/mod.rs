//! Decodes a checked body into a typed view by its message type, and encodes it deterministically.
//!
//! One file is one message, or a pair that belongs together. Each body is a struct that borrows from the received
//! bytes: texts are [`Cow`](std::borrow::Cow)s, and values without a fixed shape (`params`, `result`, `details`,
//! `delegation`) stay raw CBOR. `decode` runs the body's CDDL rule first and then reads the fields; `encode` appends
//! the deterministic form. Both require bytes that passed [`cbor::check`](crate::cbor::check), as every body of a
//! decoded envelope has.
//!
//! The meaning of a body is a second step, so that 1001 (its shape) comes before 4001 (its meaning):
//! [`Query::question`], [`Invoke::identity`], [`NegotiateRequest::want`], [`Declare::descriptors`]. **Source:**
//! PROTOCOL 7, 9.

mod audit;
mod body;
mod calls;
mod cursor;
mod declare;
mod descriptor;
mod doctor;
mod document;
mod error;
mod fleet;
mod hello;
mod invoke;
mod metrics;
mod peers;
mod policy;
mod progress;
mod query;
mod reload;
mod request;
mod result;
mod schema_ref;
mod timeline;

use crate::cbor::Checked;

pub use audit::{AuditPage, AuditPruneRequest, AuditPruned, AuditRequest, AuditRow};
pub use body::{BodyError, Contradiction, ShapeError};
pub use calls::{
    CallSide, CallState, CallsPage, CallsRequest, JournalCounters, ListedCall, ResultStatus, Role,
    WantedState,
};
pub use cursor::{Cursor, CursorContext, CursorError};
pub use declare::{Declare, NewerMajor};
pub use descriptor::{Descriptor, DescriptorDraft, RateLimit, RetryPolicy};
pub use doctor::{CheckState, DoctorCheck, DoctorPeer, DoctorReport, DoctorRequired};
pub use document::{DocRequest, DocSend, DocumentError};
pub use error::{
    ErrorBody, SchemaSide, Violation, available_details, rate_limit_details, violation_details, violations,
};
pub use fleet::{FleetCandidate, FleetName, FleetReport, FleetRequest};
pub use hello::{AgentInfo, Hello, HelloAck, HelloReject, Member};
pub use invoke::{Identity, Invoke, Preferences, SessionRef};
pub use metrics::{MetricFamily, MetricKind, MetricPart, MetricSample, MetricValue, Metrics};
pub use peers::{ListedPeer, PeerList, PeerState};
pub use policy::{PolicyDecision, PolicyReloaded, PolicyWhy, PolicyWhyRequest};
pub use progress::{InputRequired, Processing, Progress};
pub use query::{Order, Query, Question};
pub use reload::{BackedUp, ConfigChange, Draining, ReloadRequest, Reloaded, Takes};
pub use request::{Accept, CancelState, NegotiateRequest, ReleaseState, Request, Response};
pub use result::{CallError, CapResult, Outcome};
pub use schema_ref::{ContentHash, HashAlg, SchemaRef, SchemaSource};
pub use timeline::{CallPhase, CallTimeline, CallTry, TryOutcome};

#[cfg(test)]
mod tests;

macro_rules! types {
    ($($variant:ident = $code:literal, $name:literal, $doc:literal;)*) => {
        /// The supported message types; any other is 1005. **Shape:** the envelope's `typ`. **Source:** PROTOCOL 7.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Type {
            $(#[doc = $doc] $variant,)*
        }

        impl Type {
            /// Every type, ascending by code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The type's code.
            pub const fn code(self) -> u64 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// The type of that code, or `None` for an unsupported one.
            pub const fn from_code(code: u64) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The type's name, as the specification spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

types! {
    Ping = 0x01, "PING", "A question for a sign of life.";
    Pong = 0x02, "PONG", "The answer to PING.";
    Ack = 0x03, "ACK", "A receipt; taken, never sent, never answered.";
    Processing = 0x09, "PROCESSING", "The call runs.";
    Progress = 0x0a, "PROGRESS", "How far the call is.";
    InputRequired = 0x0b, "INPUT_REQUIRED", "The call waits for its caller.";
    Error = 0x0f, "ERROR", "A refusal.";
    Request = 0x11, "REQUEST", "An operation beside calls: negotiate, cancel.";
    Response = 0x12, "RESPONSE", "The answer to REQUEST.";
    CapQuery = 0x20, "CAP_QUERY", "Which capabilities are there?";
    CapDeclare = 0x21, "CAP_DECLARE", "These capabilities are there.";
    CapInvoke = 0x22, "CAP_INVOKE", "A call.";
    CapResult = 0x23, "CAP_RESULT", "A call's one result.";
    DocSend = 0x30, "DOC_SEND", "A document's bytes.";
    DocRequest = 0x31, "DOC_REQUEST", "A question for a document by its hash.";
    Hello = 0x70, "HELLO", "The client's versions.";
    HelloAck = 0x71, "HELLO_ACK", "The version the server chose.";
    HelloReject = 0x72, "HELLO_REJECT", "The server speaks none of the versions.";
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A body of any type, decoded.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the body of the type of its name")]
pub enum Message<'a> {
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    Ack(&'a [u8]),
    Processing(Processing<'a>),
    Progress(Progress),
    InputRequired(InputRequired<'a>),
    Error(ErrorBody<'a>),
    Request(Request<'a>),
    Response(Response<'a>),
    CapQuery(Query<'a>),
    CapDeclare(Declare<'a>),
    CapInvoke(Invoke<'a>),
    CapResult(CapResult<'a>),
    DocSend(DocSend<'a>),
    DocRequest(DocRequest<'a>),
    Hello(Hello<'a>),
    HelloAck(HelloAck<'a>),
    HelloReject(HelloReject<'a>),
}

impl<'a> Message<'a> {
    /// Checks a body against its CDDL rule and reads it.
    ///
    /// **Errors:** 1001.
    pub fn decode(typ: Type, body: &'a [u8]) -> Result<Self, BodyError> {
        Self::decode_checked(typ, body.into())
    }

    /// As [`decode`](Self::decode), for a body whose payload was already walked by the check. **Errors:** 1001.
    pub fn decode_checked(typ: Type, body: Checked<'a>) -> Result<Self, BodyError> {
        body::check(typ, body)?;
        Self::read_checked(typ, body)
    }

    /// Reads a body without its CDDL rule; it accepts exactly the bodies that the rule accepts.
    ///
    /// For tests that compare the two, and for bodies that passed the rule. **Errors:** 1001.
    pub fn read(typ: Type, body: &'a [u8]) -> Result<Self, BodyError> {
        Self::read_checked(typ, body.into())
    }

    fn read_checked(typ: Type, checked: Checked<'a>) -> Result<Self, BodyError> {
        let body = checked.bytes();
        Ok(match typ {
            Type::Ping => Self::Ping(body),
            Type::Pong => Self::Pong(body),
            Type::Ack => Self::Ack(body),
            Type::Processing => Self::Processing(Processing::read(body)?),
            Type::Progress => Self::Progress(Progress::read(body)?),
            Type::InputRequired => Self::InputRequired(InputRequired::read(body)?),
            Type::Error => Self::Error(ErrorBody::read(body)?),
            Type::Request => Self::Request(Request::read(body)?),
            Type::Response => Self::Response(Response::read(body)?),
            Type::CapQuery => Self::CapQuery(Query::read(body)?),
            Type::CapDeclare => Self::CapDeclare(Declare::read(body)?),
            Type::CapInvoke => Self::CapInvoke(Invoke::read(checked)?),
            Type::CapResult => Self::CapResult(CapResult::read(checked)?),
            Type::DocSend => Self::DocSend(DocSend::read(body)?),
            Type::DocRequest => Self::DocRequest(DocRequest::read(body)?),
            Type::Hello => Self::Hello(Hello::read(body)?),
            Type::HelloAck => Self::HelloAck(HelloAck::read(body)?),
            Type::HelloReject => Self::HelloReject(HelloReject::read(body)?),
        })
    }

    /// The body's type.
    pub const fn typ(&self) -> Type {
        match self {
            Self::Ping(_) => Type::Ping,
            Self::Pong(_) => Type::Pong,
            Self::Ack(_) => Type::Ack,
            Self::Processing(_) => Type::Processing,
            Self::Progress(_) => Type::Progress,
            Self::InputRequired(_) => Type::InputRequired,
            Self::Error(_) => Type::Error,
            Self::Request(_) => Type::Request,
            Self::Response(_) => Type::Response,
            Self::CapQuery(_) => Type::CapQuery,
            Self::CapDeclare(_) => Type::CapDeclare,
            Self::CapInvoke(_) => Type::CapInvoke,
            Self::CapResult(_) => Type::CapResult,
            Self::DocSend(_) => Type::DocSend,
            Self::DocRequest(_) => Type::DocRequest,
            Self::Hello(_) => Type::Hello,
            Self::HelloAck(_) => Type::HelloAck,
            Self::HelloReject(_) => Type::HelloReject,
        }
    }

    /// Checks rules beyond the shape: that the body is complete and does not contradict itself.
    ///
    /// **Errors:** 4001. The hash of a DOC_SEND is left to its receiver, which knows the requested one.
    pub fn check_meaning(&self) -> Result<(), BodyError> {
        match self {
            Self::CapQuery(query) => query.question().map(drop),
            Self::CapDeclare(declare) => declare.descriptors().map(drop),
            Self::CapInvoke(invoke) => invoke.identity().map(drop),
            Self::Request(Request::Negotiate(request)) => request.want().map(drop),
            Self::Response(Response::Accept(accept)) => accept.agreement().map(drop),
            Self::Ping(_)
            | Self::Pong(_)
            | Self::Ack(_)
            | Self::Processing(_)
            | Self::Progress(_)
            | Self::InputRequired(_)
            | Self::Error(_)
            | Self::Request(_)
            | Self::Response(_)
            | Self::CapResult(_)
            | Self::DocSend(_)
            | Self::DocRequest(_)
            | Self::Hello(_)
            | Self::HelloAck(_)
            | Self::HelloReject(_) => Ok(()),
        }
    }

    /// Appends the body: known fields only, map keys in order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ping(body) | Self::Pong(body) | Self::Ack(body) => out.extend_from_slice(body),
            Self::Processing(body) => body.encode(out),
            Self::Progress(body) => body.encode(out),
            Self::InputRequired(body) => body.encode(out),
            Self::Error(body) => body.encode(out),
            Self::Request(body) => body.encode(out),
            Self::Response(body) => body.encode(out),
            Self::CapQuery(body) => body.encode(out),
            Self::CapDeclare(body) => body.encode(out),
            Self::CapInvoke(body) => body.encode(out),
            Self::CapResult(body) => body.encode(out),
            Self::DocSend(body) => body.encode(out),
            Self::DocRequest(body) => body.encode(out),
            Self::Hello(body) => body.encode(out),
            Self::HelloAck(body) => body.encode(out),
            Self::HelloReject(body) => body.encode(out),
        }
    }
}
