//! Proves that a provider still keeps the contract that a caller was built against.
//!
//! Requests go from caller to provider, so every value of the caller's input schema must fit the provider's. Results
//! return, so every value of the provider's output schema must fit the caller's. A provider that accepts more, or
//! returns less, has not drifted. [`gate`] asks by capability, and remembers answers by the hashes of the schemas.

pub mod gate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
use serde_json::{Value, json};

use super::artifact::Artifact;
use super::subtype::{Compiled, Verdict, is_subtype};
use super::validator::Side;
use super::violation::Violation;

pub use gate::{Gate, Requirement};

/// The schemas that a caller was built against; a side without one promises nothing.
#[derive(Clone, Debug, Default)]
pub struct Needed {
    /// The schema of its params.
    pub input: Option<Arc<Artifact>>,
    /// The schema of the results that it accepts.
    pub output: Option<Arc<Artifact>>,
}

impl Needed {
    /// Whether it has no schema at all.
    pub const fn is_nothing(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }
}

/// The schemas of a provider, as far as it tells.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The schema of the params that it accepts.
    pub input: Told,
    /// The schema of its results.
    pub output: Told,
}

/// One side's schema, as the provider tells it.
#[derive(Clone, Debug)]
pub enum Told {
    /// This schema.
    Schema(Arc<Artifact>),
    /// No schema is declared: anything is possible.
    Anything,
    /// A schema is declared, but cannot be fetched.
    Unknown,
}

impl Told {
    /// The schema, if known.
    pub const fn schema(&self) -> Option<&Arc<Artifact>> {
        match self {
            Self::Schema(schema) => Some(schema),
            Self::Anything | Self::Unknown => None,
        }
    }
}

/// Whether a provider keeps the contract that a caller was built against.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Every call and every result fits the other side.
    Proven,
    /// The provider tells too little to prove or refute anything.
    Untold,
    /// Some do not fit, or no proof was found; one finding for each such side.
    Broken(Vec<Finding>),
}

/// Why one side of a contract does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The payloads concerned.
    pub side: Side,
    /// The fault.
    pub fault: Fault,
}

/// The fault of a side that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// One side may send a value that the other refuses.
    Refuted {
        /// The value; `None` when it is too large to show.
        witness: Option<Value>,
        /// JSON pointer to the fault inside the value.
        path: String,
        /// The keyword that rejects it.
        rule: String,
        /// All its violations for the side that refuses it.
        violations: Vec<Violation>,
    },
    /// The caller was not built against this version.
    Version {
        /// The provider's version.
        served: String,
        /// The caller's range.
        range: String,
    },
    /// Neither a proof nor such a value was found.
    Unknown {
        /// JSON pointer into the schema.
        path: String,
        /// The undecided construct there.
        construct: String,
    },
}

/// Compares a provider's schemas with those that a caller was built against.
///
/// The work is bounded, but may take milliseconds: [`Gate`] keeps the result.
pub fn prove(needed: &Needed, offered: &Offered) -> Standing {
    if needed.is_nothing() {
        return Standing::Proven;
    }
    // A provider from before there were schemas tells neither.
    if matches!((&offered.input, &offered.output), (Told::Anything, Told::Anything)) {
        return Standing::Untold;
    }
    let mut findings = Vec::new();
    let mut is_untold = false;
    if let Some(needed) = &needed.input {
        match &offered.input {
            Told::Schema(offered) => {
                findings.extend(compare(Side::Request, Some(needed), offered));
            }
            Told::Anything => {}
            Told::Unknown => is_untold = true,
        }
    }
    if let Some(needed) = &needed.output {
        match &offered.output {
            Told::Schema(offered) => {
                findings.extend(compare(Side::Response, Some(offered), needed));
            }
            Told::Anything => findings.extend(compare(Side::Response, None, needed)),
            Told::Unknown => is_untold = true,
        }
    }
    match (findings.is_empty(), is_untold) {
        (false, _) => Standing::Broken(findings),
        (true, true) => Standing::Untold,
        (true, false) => Standing::Proven,
    }
}

/// Whether what one side may send, anything without a schema, is what the other takes; `None` when it is.
fn compare(side: Side, sent: Option<&Artifact>, taken: &Artifact) -> Option<Finding> {
    // What no payload can be held against is no contract, whatever could be proven of it.
    if let Some(error) = sent.into_iter().chain([taken]).find_map(|schema| schema.validator().err()) {
        return Some(unusable(side, &error));
    }
    let sent = sent.map_or(ANYTHING, |sent| sent.document());
    if sent == taken.document() {
        return None;
    }
    let (sent, narrow) = match (Compiled::compile(sent), Compiled::compile(taken.document())) {
        (Ok(sent), Ok(narrow)) => (sent, narrow),
        (Err(error), _) | (_, Err(error)) => return Some(unusable(side, &error)),
    };
    let fault = match is_subtype(&sent, &narrow) {
        Verdict::Proven => return None,
        Verdict::Refuted { witness, path, rule } => {
            let violations = violations(taken, &witness);
            Fault::Refuted { witness: fitting(witness), path, rule, violations }
        }
        Verdict::Unknown { path, construct } => Fault::Unknown { path, construct },
    };
    Some(Finding { side, fault })
}

fn unusable(side: Side, error: &dyn std::fmt::Display) -> Finding {
    Finding { side, fault: Fault::Unknown { path: "/".to_owned(), construct: error.to_string() } }
}

fn violations(taken: &Artifact, witness: &Value) -> Vec<Violation> {
    let mut payload = Vec::new();
    from_json(witness, &mut payload);
    // As a response, so that a witness of null is one.
    let checked = taken.validator().map(|validator| validator.validate(&payload, Side::Response));
    checked.ok().and_then(Result::err).unwrap_or_default()
}

/// A witness that goes into an ERROR's `details` and through every reader's bounds.
fn fitting(witness: Value) -> Option<Value> {
    let is_fitting = depth(&witness) <= WITNESS_DEPTH_MAX
        && serde_json::to_vec(&witness).is_ok_and(|text| text.len() <= WITNESS_BYTES_MAX);
    is_fitting.then_some(witness)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The code of a call that is refused for these findings. **Source:** PROTOCOL 9.
pub fn code(findings: &[Finding]) -> Code {
    let is_refuted =
        findings.iter().any(|finding| matches!(finding.fault, Fault::Refuted { .. } | Fault::Version { .. }));
    if is_refuted { Code::SCHEMA_DRIFT } else { Code::UNSUPPORTED_SCHEMA }
}

impl Finding {
    /// The finding as written in `details.findings`.
    ///
    /// **Shape:** `{"side": "request" / "response", "verdict": "refuted" / "unknown", "path", ? "rule", ? "witness",
    /// ? "violations", ? "construct"}`.
    pub fn json(&self) -> Value {
        let side = side_name(self.side);
        match &self.fault {
            Fault::Refuted { witness, path, rule, violations } => {
                let violations: Vec<_> = violations.iter().map(violation_json).collect();
                let mut finding = json!({
                    "side": side, "verdict": "refuted", "path": path, "rule": rule, "violations": violations,
                });
                if let Some(witness) = witness {
                    finding["witness"] = witness.clone();
                }
                finding
            }
            Fault::Version { served, .. } => json!({
                "side": side, "verdict": "refuted", "path": "/", "rule": VERSION_RULE, "witness": served,
                "violations": [{"path": "/", "message": self.to_string(), "keyword": VERSION_RULE}],
            }),
            Fault::Unknown { path, construct } => {
                json!({"side": side, "verdict": "unknown", "path": path, "construct": construct})
            }
        }
    }
}

impl std::fmt::Display for Finding {
    /// The finding for people, in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let payload = match self.side {
            Side::Request => "params",
            Side::Response => "a result",
        };
        match &self.fault {
            Fault::Refuted { witness, path, rule, .. } => {
                write!(f, "{payload} may break {rule} at {path}")?;
                match witness.as_ref().map(Value::to_string) {
                    Some(witness) if witness.len() <= SHOWN_BYTES_MAX => write!(f, ": {witness}"),
                    Some(_) | None => Ok(()),
                }
            }
            Fault::Version { served, range } => write!(f, "version {served} is not in {range}"),
            Fault::Unknown { path, construct } => {
                write!(f, "{payload}: {construct} at {path} cannot be proven")
            }
        }
    }
}

fn violation_json(violation: &Violation) -> Value {
    json!({"path": violation.path, "message": violation.message, "keyword": violation.keyword})
}

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Request => "request",
        Side::Response => "response",
    }
}

/// The rule of a finding about versions.
pub const VERSION_RULE: &str = "version";
/// The schema of a side that declares none.
const ANYTHING: &[u8] = b"true";
/// Largest witness that is kept, in bytes of JSON.
const WITNESS_BYTES_MAX: usize = 16 * 1024;
/// Deepest witness that is kept: an envelope's 64 levels hold it with what stands around it.
const WITNESS_DEPTH_MAX: usize = 48;
/// Largest witness in a line for people, in bytes of JSON.
const SHOWN_BYTES_MAX: usize = 200;
