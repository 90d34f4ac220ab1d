//! Exports spans over OTLP: calls that ended in; batches of protobuf, posted to a collector, out.
//!
//! [`Context`] is a call's place in its trace: a `traceparent` in, the one of the next hop out. [`Span`] is what a collector
//! gets of one call. [`Queue`] holds encoded spans up to a bound, and [`export`](Queue::export) posts them. A span that does
//! not fit is dropped and counted, so a collector that is slow or gone costs no call.
//!
//! **Source:** W3C Trace Context; OTLP 1.x over HTTP with binary protobuf; the OpenTelemetry conventions for RPC.

mod context;
mod endpoint;
mod export;
mod protobuf;
mod queue;
mod span;

pub use context::{Context, SpanId, TraceId, is_sampled};
pub use endpoint::{Endpoint, EndpointError};
pub use export::Resource;
pub use queue::{Counters, Queue};
pub use span::{Kind, Span, Value};
