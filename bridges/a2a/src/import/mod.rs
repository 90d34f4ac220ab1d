//! Import: the skills of an A2A agent in; capabilities of the sidecar's agent out.
//!
//! Read in this order: `agent` reads a card, `remote` speaks with the agent over either binding, `call` makes one call, with the
//! help of `outcome`, and `run` keeps all of it going. What is served of the skills is decided by `capd_bridge::import`.

mod agent;
mod call;
mod outcome;
mod remote;
mod run;

use capd_bridge::import::kind::Kind;

pub use run::{ImportOptions, import};

/// What an agent's skills are called.
pub static KIND: Kind = Kind {
    program: "capd-a2a",
    item: "skill",
    peer: "agent",
    category: "a2a",
    result_schema: agent::LOOSE_RESULT,
    lock_of: "an A2A agent's skills",
};
