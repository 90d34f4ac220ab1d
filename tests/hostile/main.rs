//! Attacks on a real `capd` in; the refusal that the protocol names, honest peers served meanwhile, and memory and
//! descriptors back where they were, out.
//!
//! [`field`] is the sidecar under attack with an honest peer beside it, and the yardstick: each attack runs twice, the
//! first time to warm the sidecar up, and while the second one's connections are still held, an honest peer's calls are
//! answered and honest newcomers get in. Then the attack lets go, and what it took must come back. [`crowd`] makes
//! attackers, each at an address of its own in 127.0.0.0/8.
//!
//! | module | the attack |
//! | --- | --- |
//! | [`opening`] | TLS and QUIC handshakes that are begun and never ended |
//! | [`certificates`] | keys of other types, keys of others, none |
//! | [`slow`] | 2,000 links on which a byte comes each second |
//! | [`resets`] | 100,000 streams that are opened to be reset |
//! | [`frames`] | lengths of 4 GiB, and lengths that are in bounds and whose bytes never come |
//! | [`cbor`] | deep and wide containers, keys twice, wrong UTF-8, indefinite lengths without end |
//! | [`messages`] | wrong principals, bad signatures, expired and future envelopes, replays, answers to nothing |
//! | [`datagrams`] | datagrams that are no QUIC, or pretend to be |
//! | [`queries`] | floods of queries, cursors among them |
//! | [`providers`] | providers that answer twice, late, oversized, never |

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]
#![allow(unreachable_pub, missing_docs, reason = "it is no library")]

#[path = "../support/peer/mod.rs"]
#[allow(dead_code, reason = "other test binaries use more of it")]
mod peer;
#[path = "../support/mod.rs"]
mod support;

mod cbor;
mod certificates;
mod crowd;
mod datagrams;
mod field;
mod frames;
mod messages;
mod opening;
mod providers;
mod queries;
mod resets;
mod slow;
