//! Checks message bodies: a message type and its body in, the verdict of its rule in `cddl/*.cddl` out (PROTOCOL 7).

use std::sync::OnceLock;

use super::{Mismatch, Program, RuleId};
use crate::cbor::Checked;

/// The body schemas, as one CDDL text.
const TEXT: &str = concat!(
    include_str!("../../../cddl/transport.cddl"),
    include_str!("../../../cddl/envelope.cddl"),
    include_str!("../../../cddl/control.cddl"),
    include_str!("../../../cddl/capability.cddl"),
    include_str!("../../../cddl/document.cddl"),
    include_str!("../../../cddl/session.cddl"),
);

/// Each message type that we speak and the rule of its body. **Source:** PROTOCOL 7.
const MESSAGES: [(u64, &str); 18] = [
    (0x01, "ping-body"),
    (0x02, "pong-body"),
    (0x03, "ack-body"),
    (0x09, "processing-body"),
    (0x0a, "progress-body"),
    (0x0b, "input-required-body"),
    (0x0f, "error-body"),
    (0x11, "request-body"),
    (0x12, "response-body"),
    (0x20, "cap-query-body"),
    (0x21, "cap-declare-body"),
    (0x22, "cap-invoke-body"),
    (0x23, "cap-result-body"),
    (0x30, "doc-send-body"),
    (0x31, "doc-request-body"),
    (0x70, "hello-body"),
    (0x71, "hello-ack-body"),
    (0x72, "hello-reject-body"),
];

/// Items with a rule that are not bodies of messages. **Source:** PROTOCOL 3, 4, 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The payload of a HANDSHAKE frame from the client.
    HandshakeRequest,
    /// The payload of a HANDSHAKE frame from the server.
    HandshakeResponse,
    /// The payload of a GOAWAY frame.
    Goaway,
    /// The payload of an ERROR frame.
    ErrorFrame,
    /// The payload of an AMP_MESSAGE frame.
    Envelope,
    /// One capability in a CAP_DECLARE.
    Descriptor,
}

impl Shape {
    /// Every shape, in the order of their declaration.
    pub const ALL: [Shape; 6] = [
        Shape::HandshakeRequest,
        Shape::HandshakeResponse,
        Shape::Goaway,
        Shape::ErrorFrame,
        Shape::Envelope,
        Shape::Descriptor,
    ];

    /// The name of its rule.
    pub const fn rule(self) -> &'static str {
        match self {
            Shape::HandshakeRequest => "handshake-request",
            Shape::HandshakeResponse => "handshake-response",
            Shape::Goaway => "goaway",
            Shape::ErrorFrame => "error-frame",
            Shape::Envelope => "envelope",
            Shape::Descriptor => "descriptor",
        }
    }
}

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// An unsupported message type: code 1005.
    #[error("message type {0:#04x} is not known")]
    UnknownType(u64),
    /// The body does not match its rule: code 1001.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

/// The compiled body schemas.
#[derive(Debug)]
pub struct Bodies {
    program: Program,
    messages: [(u64, RuleId); MESSAGES.len()],
    shapes: [RuleId; Shape::ALL.len()],
}

/// The body schemas, compiled on first use.
pub fn bodies() -> &'static Bodies {
    static BODIES: OnceLock<Bodies> = OnceLock::new();
    BODIES.get_or_init(|| {
        let program = Program::compile(TEXT).expect("cddl/*.cddl compile, as a test in this crate sees to");
        let rule = |name| program.rule(name).expect("each table names rules that stand in cddl/*.cddl");
        let messages = MESSAGES.map(|(typ, name)| (typ, rule(name)));
        let shapes = Shape::ALL.map(|shape| rule(shape.rule()));
        Bodies { program, messages, shapes }
    })
}

impl Bodies {
    /// Checks the body of a message by the rule of its type. The bytes must have passed [`crate::cbor::check`].
    ///
    /// **Errors:** [`BodyError`].
    pub fn check(&self, typ: u64, body: &[u8]) -> Result<(), BodyError> {
        self.check_over(typ, body.into())
    }

    /// The same, of a body whose payload the check has walked already.
    pub(crate) fn check_over(&self, typ: u64, body: Checked<'_>) -> Result<(), BodyError> {
        let rule = self.rule(typ).ok_or(BodyError::UnknownType(typ))?;
        Ok(self.program.run_over(rule, body)?)
    }

    /// Checks other bytes by their rule. The bytes must have passed [`crate::cbor::check`].
    ///
    /// **Errors:** [`Mismatch`].
    pub fn check_shape(&self, shape: Shape, bytes: &[u8]) -> Result<(), Mismatch> {
        self.program.run(self.shapes[shape as usize], bytes)
    }

    /// The name of a message type's rule in `cddl/*.cddl`; `None` for an unsupported type.
    pub fn rule_name(&self, typ: u64) -> Option<&'static str> {
        let at = MESSAGES.binary_search_by_key(&typ, |(typ, _)| *typ).ok()?;
        Some(MESSAGES[at].1)
    }

    /// The rule of a message type's body; `None` for an unsupported type.
    pub fn rule(&self, typ: u64) -> Option<RuleId> {
        let at = self.messages.binary_search_by_key(&typ, |(typ, _)| *typ).ok()?;
        Some(self.messages[at].1)
    }

    /// The program, for rules by name.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The types that have a rule, each with its name, in ascending order.
    pub fn messages() -> &'static [(u64, &'static str)] {
        &MESSAGES
    }

    /// The CDDL text of all rules.
    pub fn text() -> &'static str {
        TEXT
    }
}
