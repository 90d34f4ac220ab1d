//! Calls through real sidecars over real links in; one answer each, whatever happens on the way, out.
//!
//! `agents` are callers and providers that speak raw frames on a local link, `peer` is a sidecar whose every word a test
//! chooses. Read the tests in this order: `routes`, `choice`, `schemas`, `repair`, `drift`, `once`, `journal`, `memory`,
//! `backup`, `cancel`, `retry`, `dead`, `refused`, `process`, `order`, `listing`, `load`, `metrics`, `health`, `traces`, `notify`, `trust`, `stop`, `steady`, `apart`,
//! `audit`, `hashes`.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

#[path = "../support/mod.rs"]
mod support;

mod agents;
#[path = "../api/http.rs"]
#[allow(dead_code, reason = "its other users need more of it")]
mod http;
mod peer;

mod access;
mod apart;
mod audit;
mod backup;
mod cancel;
mod choice;
mod confine;
mod dead;
mod declared;
mod drift;
mod faults;
mod hashes;
mod health;
mod identity;
mod journal;
mod leaks;
mod listing;
mod load;
mod logging;
mod memory;
mod metrics;
mod names;
mod notify;
mod once;
mod order;
mod process;
mod rates;
mod refused;
mod remembered;
mod repair;
mod retry;
mod routes;
mod schemas;
mod steady;
mod stop;
mod traces;
mod trust;
mod unknown;
