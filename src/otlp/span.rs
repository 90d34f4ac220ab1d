//! Encodes one span: a call that ended in; the bytes of an OTLP `Span` out.

use super::context::Context;
use super::protobuf::Message;

/// A call as a collector gets it. **Source:** `opentelemetry.proto.trace.v1.Span`.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// Where it is in its trace.
    pub context: Context,
    /// The span that it is beneath: an internal one's is of this process, any other's of another.
    pub parent: Option<Context>,
    /// Which side of the call it is, or part of one.
    pub kind: Kind,
    /// What it is called.
    pub name: &'a str,
    /// **Units:** nanoseconds since 1970-01-01T00:00Z.
    pub start_ns: u64,
    /// **Units:** nanoseconds since 1970-01-01T00:00Z.
    pub end_ns: u64,
    /// What is known of it. A text is cut at 256 bytes.
    pub attributes: &'a [(&'static str, Value<'a>)],
    /// Why it failed, if it did.
    pub failure: Option<&'a str>,
}

/// Which side of a call a span is, or part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The provider's.
    Server,
    /// The caller's.
    Client,
    /// A part of either.
    Internal,
}

/// An attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Integer(u64),
}

impl Span<'_> {
    /// Appends the fields of the message.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut span = Message(out);
        span.bytes(1, &self.context.trace.bytes()).bytes(2, &self.context.span.bytes());
        if let Some(parent) = self.parent {
            span.bytes(4, &parent.span.bytes());
        }
        let kind = match self.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        };
        span.bytes(5, cut(self.name).as_bytes()).uint(6, kind);
        span.fixed64(7, self.start_ns).fixed64(8, self.end_ns);
        for (key, value) in self.attributes {
            span.message(9, |attribute| write(attribute, key, *value));
        }
        if let Some(failure) = self.failure {
            span.message(15, |status| {
                status.bytes(2, cut(failure).as_bytes()).uint(3, STATUS_ERROR);
            });
        }
        let is_remote = self.parent.is_some() && self.kind != Kind::Internal;
        let remote = if is_remote { PARENT_IS_REMOTE } else { 0 };
        span.fixed32(16, u32::from(self.context.flags()) | PARENT_IS_KNOWN | remote);
    }
}

/// Appends the fields of a `KeyValue`.
pub(super) fn write(attribute: &mut Message<'_>, key: &str, value: Value<'_>) {
    attribute.bytes(1, key.as_bytes()).message(2, |any| {
        match value {
            Value::Text(text) => any.bytes(1, cut(text).as_bytes()),
            Value::Integer(number) => any.uint(3, number),
        };
    });
}

/// A text, cut at its bound.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Most bytes of a text in a span.
const TEXT_BYTES_MAX: usize = 256;
/// `Status.StatusCode.STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`.
const PARENT_IS_KNOWN: u32 = 0x100;
/// `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const PARENT_IS_REMOTE: u32 = 0x200;
