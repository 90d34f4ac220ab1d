//! Lists every fuzz body by the name of its target. The fuzz crate and `tests/corpus.rs` both include this list.
//!
//! A body takes any bytes and panics when one of its claims does not hold. To add one: the module and its line here, a
//! thin file in `fuzz_targets/`, its `[[bin]]` in `Cargo.toml`, and a corpus folder. `tests/corpus.rs` fails while one
//! of them is missing.

mod body;
mod cbor;
mod cddl;
mod config;
mod cursor;
mod declaration;
mod envelope;
mod fleet;
mod frame;
mod ledger_model;
mod link;
mod local;
mod policy_tables;
mod range;
mod schema_load;
mod schema_pair;
mod subtype;

// The generator of the subtype test: the bytes of the `subtype` body are its choices.
#[allow(dead_code, reason = "the subtype tests use the rest")]
#[path = "../../tests/subtype/generate.rs"]
mod generate;
#[allow(dead_code, reason = "the subtype tests use the rest")]
#[path = "../../tests/subtype/support.rs"]
mod support;
#[path = "../../tests/subtype/tables.rs"]
mod tables;
#[path = "../../tests/subtype/values.rs"]
mod values;

/// One fuzz target.
pub(crate) struct Target {
    /// Name of the target, of its `[[bin]]` and of its corpus folder.
    pub(crate) name: &'static str,
    /// Checks the claims on one input.
    pub(crate) run: fn(&[u8]),
}

/// Every target, in the order of their names.
pub(crate) const TARGETS: [Target; 17] = [
    Target { name: "body", run: body::run },
    Target { name: "cbor", run: cbor::run },
    Target { name: "cddl-differential", run: cddl::run },
    Target { name: "config", run: config::run },
    Target { name: "cursor", run: cursor::run },
    Target { name: "declaration", run: declaration::run },
    Target { name: "envelope", run: envelope::run },
    Target { name: "fleet", run: fleet::run },
    Target { name: "frame", run: frame::run },
    Target { name: "ledger_model", run: ledger_model::run },
    Target { name: "link", run: link::run },
    Target { name: "local", run: local::run },
    Target { name: "policy_tables", run: policy_tables::run },
    Target { name: "range", run: range::run },
    Target { name: "schema_load", run: schema_load::run },
    Target { name: "schema_pair", run: schema_pair::run },
    Target { name: "subtype", run: subtype::run },
];
