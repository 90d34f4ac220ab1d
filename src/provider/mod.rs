//! Runs accepted calls: one call in, exactly one outcome out.
//!
//! A [`Provider`] gets an [`Invocation`] and a [`Ticket`]; the ticket is the only way to answer. [`link`] serves by an
//! agent on a local link, [`process`] by a command that is run for each call or stays, [`http`] by a program that listens.

pub mod http;
pub mod link;
pub mod process;
pub mod ticket;

use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
pub use capd_proto::ledger::Key as CallKey;
use capd_proto::message::{CallError, CapResult};

use process::Denial;
use ticket::Ticket;

/// One accepted call, as its provider sees it. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Caller and id.
    pub key: CallKey,
    /// The concrete capability that was chosen.
    pub capability: CapabilityId,
    /// Whether the call's body names that id itself.
    pub names_id: bool,
    /// The received CAP_INVOKE envelope, byte for byte.
    pub envelope: Bytes,
    /// The `params` item within it, CBOR.
    pub params: Bytes,
    /// When the call's time runs out.
    pub deadline: tokio::time::Instant,
}

/// How a call ended, according to its provider.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A CAP_RESULT from an agent on a local link.
    Body(AgentResult),
    /// Success with this CBOR item as `result`.
    Success(Bytes),
    /// An error result.
    Failure {
        /// Its wire code.
        code: Code,
        /// One sentence for the caller; no paths, no secrets.
        message: String,
    },
    /// The provider went away before it answered.
    Lost,
}

/// A CAP_RESULT body from an agent on a local link, already checked for its shape, with its main fields.
#[derive(Clone, Debug)]
pub struct AgentResult {
    /// All of it, byte for byte.
    pub body: Bytes,
    /// The `result` of a success, or an error's code.
    pub ended: Result<Bytes, Code>,
    /// Whether it says how long the call took.
    pub is_timed: bool,
}

/// A program that serves capabilities.
///
/// Both calls return at once; the work goes on elsewhere and ends in [`Ticket::finish`].
pub trait Provider: Send + Sync {
    /// Tells the provider, once, that calls may come from now on.
    fn begin(&self) {}

    /// Takes a call. What cannot be taken is answered through the ticket as well.
    fn invoke(&self, invocation: Invocation, ticket: Ticket);

    /// Tells the provider that a call is cancelled or out of time. Its ticket, if it still comes, is answered by
    /// nobody.
    fn cancel(&self, key: &CallKey);

    /// Calls in flight, for choosing the least loaded of several.
    fn in_flight(&self) -> usize;

    /// What confinement kept it from when it failed last, unless it has succeeded since.
    fn denial(&self) -> Option<Denial> {
        None
    }
}

/// An error result of a provider that answers in JSON; `details` may be null.
fn error_result(code: Code, message: &str, details: &serde_json::Value) -> Outcome {
    let mut item = Vec::new();
    if !details.is_null() {
        from_json(details, &mut item);
    }
    let details = (!item.is_empty()).then_some(item.as_slice());
    let mut body = Vec::new();
    CapResult::error(CallError::new(code, message, details)).encode(&mut body);
    Outcome::Body(AgentResult { body: body.into(), ended: Err(code), is_timed: false })
}

#[cfg(test)]
mod tests;
