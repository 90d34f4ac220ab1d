//! Bytes that the protocol refuses in; the code, the `reply_to`, and a link that works on, or is closed where the
//! protocol says so, out.
//!
//! Every refusal of PROTOCOL 3 to 7 stands here once, against a real `capd`, on each kind of link that it can come over:
//!
//! | module | section | what is refused |
//! | --- | --- | --- |
//! | [`frames`] | 3 | length 0, length above the maximum, unknown type, cut bytes, PING above 64 bytes, frames out of place |
//! | [`opening`] | 4 | HANDSHAKE of another version, size, token, DID or shape; messages before HELLO; HELLO without a common version; no HELLO in time |
//! | [`peers`] | 2, 4 | no certificate, other keys, several certificates, unlisted DIDs |
//! | [`limits`] | 3, 4 | links, handshakes and frames beyond their limits |
//! | [`envelope`] | 2, 5 | fields missing and ill-typed, versions, types, times, recipients, senders, signatures |
//! | [`encryption`] | 5 | encryption of another kind, bodies that do not open, and what is wrong inside |
//! | [`cbor`] | 5 | keys twice, text that is no UTF-8, depth, items, promised lengths, trailing bytes, tags out of place |
//! | [`names`] | 6 | texts that are no name, version or range |
//! | [`bodies`] | 7 | bodies that break their rule, in each message type; unknown fields, which are not refused |
//! | [`query`] | 7.1 | no name, unknown name, no version in range, bad limits and cursors |
//! | [`declare`] | 7.2 | declarations that contradict themselves, schemas that are not what they say |
//! | [`documents`] | 7.2 | documents that nobody serves |
//! | [`invoke`] | 7.3, 10 | identities, sessions, delegations, unknown names and versions, params; which refusal comes first |
//! | [`result`] | 7.4 | results that nobody waits for, and such as break their schema |
//! | [`negotiation`] | 7.5 | versions that do not fit, sessions that pin nothing |
//! | [`caller`] | 7.2–7.4 | what a peer that serves says wrongly, as the caller's sidecar finds it |
//! | [`permissions`] | 7.3 | what a caller may not have, alike whether it is there; lists of what it may have |
//! | [`revoked`] | 7.3, 8 | recorded results, for callers that are denied by then |
//! | [`running`] | 7.6 | cancels of nothing and of others' calls, operations that nobody knows |

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]
#![allow(unreachable_pub, missing_docs, reason = "it is no library")]

#[path = "../support/peer/mod.rs"]
mod peer;
#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod caller;
mod cbor;
mod declare;
mod documents;
mod encryption;
mod envelope;
mod fixture;
mod frames;
mod invoke;
mod limits;
mod names;
mod negotiation;
mod opening;
mod peers;
mod permissions;
mod query;
mod result;
mod revoked;
mod running;
