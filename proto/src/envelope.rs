//! Frame payloads in, checked envelopes out; drafts in, sealed envelopes out (PROTOCOL 5).

mod id;

pub use id::{InvalidMessageId, MessageId};
