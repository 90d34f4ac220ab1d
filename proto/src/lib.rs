//! Implements the capd protocol without I/O: bytes in; bytes, events and deadlines out.
//!
//! The crate opens no socket, reads no file, asks no clock and draws no random number: time and randomness are inputs.
//! Read the modules in the order in which a message meets them:
//!
//! 1. [`frame`] — bytes ↔ frames (PROTOCOL 3)
//! 2. [`envelope`] — frame payload ↔ envelope, over [`cbor`] and [`identity`] (PROTOCOL 2, 5)
//! 3. [`cddl`] — the shape of a body, checked over the received bytes; then [`message`], its typed form (PROTOCOL 7)
//! 4. [`link`] and [`call`] — the machines: one link, one call (PROTOCOL 4, 7, 8)
//! 5. [`capability`] and [`negotiate`] — names, versions, and the deterministic choice (PROTOCOL 6, 7.5)
//! 6. [`rate`] — the terms of a rate limit (PROTOCOL 7.2)
//! 7. [`ledger`] — (from, id) → call, so that each accepted call has exactly one result (PROTOCOL 8)
//!
//! `PROTOCOL 7.2` in a comment is section 7.2 of `docs/protocol.md`.
//!
//! [`limits`] holds every wire bound, [`code`] the wire codes, [`error`] the only map from an error to its code.

pub mod call;
pub mod capability;
pub mod cbor;
pub mod cddl;
pub mod code;
pub mod envelope;
pub mod error;
pub mod frame;
pub mod identity;
pub mod ledger;
pub mod limits;
pub mod link;
pub mod message;
pub mod negotiate;
pub mod rate;
