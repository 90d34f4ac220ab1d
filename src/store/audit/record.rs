//! Makes audit records: an event in, a record in the canonical form that is hashed, out.
//!
//! Every record has `kind`, `ts` and `tenantId`; `peerId`, `capabilityName`, `correlationId` and `sessionId` where they
//! are known; and the fields of its kind. `docs/operations.md` lists them.

use std::str::FromStr;

use capd_proto::envelope::MessageId;
use capd_proto::message::SchemaSide;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One audit record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    #[serde(skip)]
    ts_ms: u64,
    #[serde(flatten)]
    fields: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violations: Vec<Violation>,
}

/// One way in which a payload does not fit. A map of JSON values for each would take many times the room of its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Violation {
    path: String,
    message: String,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Params or a result that do not fit their schema.
    SchemaViolation,
    /// A provider's declaration is not the one its caller was built against.
    Drift,
    /// A message that its sender may not send: 3001.
    Denied,
    /// A second answer to a call, or an answer to an unknown call.
    DuplicateResult,
    /// An answer after its call had ended.
    LateResult,
    /// A sender that is not its link's principal.
    BindingMismatch,
    /// A call whose outcome nobody knows.
    Interrupted,
    /// A provider's result that was withheld because it does not fit its schema.
    RawResult,
    /// Something that a person did with a tool for operators.
    Operator,
    /// Records that could not be written.
    Lost,
    /// The state was restored from a backup: what happened after the backup is in no record.
    Restored,
    /// Records that were removed because of their age.
    Pruned,
    /// A new chain, because the earlier file could not be used.
    Replaced,
    /// The configuration was changed while the sidecar ran.
    Reloaded,
    /// Two processes of one identity.
    SplitIdentity,
    /// A registration that the fleet's registry has, and that does not count.
    FleetRefused,
}

/// One disagreement of two contracts.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The side of the capability.
    pub side: SchemaSide,
    /// Where, a JSON pointer into the payload.
    pub path: String,
    /// The schema rule that was broken.
    pub rule: String,
    /// A value that one side accepts and the other does not, if known.
    pub witness: Option<Value>,
}

impl Kind {
    /// Every kind, the protocol's first.
    pub const ALL: [Self; 16] = [
        Self::SchemaViolation,
        Self::Drift,
        Self::Denied,
        Self::DuplicateResult,
        Self::LateResult,
        Self::BindingMismatch,
        Self::Interrupted,
        Self::RawResult,
        Self::Operator,
        Self::Lost,
        Self::Restored,
        Self::Pruned,
        Self::Replaced,
        Self::Reloaded,
        Self::SplitIdentity,
        Self::FleetRefused,
    ];

    /// The kind as written in a record.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SchemaViolation => "capability_schema_violation",
            Self::Drift => "drift",
            Self::Denied => "denied",
            Self::DuplicateResult => "duplicate_result",
            Self::LateResult => "late_result",
            Self::BindingMismatch => "binding_mismatch",
            Self::Interrupted => "interrupted",
            Self::RawResult => "raw_result",
            Self::Operator => "operator",
            Self::Lost => "audit_lost",
            Self::Restored => "state_restored",
            Self::Pruned => "audit_pruned",
            Self::Replaced => "audit_replaced",
            Self::Reloaded => "configuration_reloaded",
            Self::SplitIdentity => "split_identity",
            Self::FleetRefused => "fleet_refused",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            match crate::text::nearest(text, known.iter().copied()) {
                Some(meant) => format!("no such kind; did you mean {meant:?}?"),
                None => format!("no such kind; there are {}", known.join(", ")),
            }
        })
    }
}

impl Record {
    /// A record of `kind` that happened at `ts_ms`. **Units:** milliseconds since the Unix epoch.
    pub fn new(kind: Kind, ts_ms: u64) -> Self {
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), kind.as_str().into());
        fields.insert("ts".to_owned(), ts_ms.into());
        Self { ts_ms, fields, violations: Vec::new() }
    }

    /// Params or a result that do not fit: one record per envelope, with all violations, each a pointer and a message.
    /// **Source:** seed 000, "Auditing".
    pub fn schema_violation<'a>(
        ts_ms: u64,
        side: SchemaSide,
        violations: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let violation =
            |(path, message): (&str, &str)| Violation { path: path.to_owned(), message: message.to_owned() };
        let record = Self::new(Kind::SchemaViolation, ts_ms).with("side", side.as_str());
        Self { violations: violations.map(violation).collect(), ..record }
    }

    /// Contracts that disagree, with all findings; `code` is the code of the refusal. The record keeps the first 64
    /// findings, and only the length of a witness whose JSON exceeds 4 KiB.
    pub fn drift(ts_ms: u64, code: u32, findings: &[Finding]) -> Self {
        let kept: Vec<_> = findings.iter().take(FINDINGS_MAX).map(Finding::to_json).collect();
        Self::new(Kind::Drift, ts_ms).with("code", code).with("findings", kept)
    }

    /// The capability's name, without its version.
    pub fn capability(self, name: &str) -> Self {
        self.with("capabilityName", short(name))
    }

    /// The other agent: the caller or the provider of a call, otherwise the sender of the message.
    pub fn peer(self, did: &str) -> Self {
        self.with("peerId", short(did))
    }

    /// The id of the invoke, or of the envelope if there is no call.
    pub fn correlation(self, id: &MessageId) -> Self {
        self.with("correlationId", id.to_string())
    }

    /// The session that the call is part of.
    pub fn session(self, id: Option<&[u8]>) -> Self {
        match id {
            Some(id) => self.with("sessionId", super::chain::hex(id)),
            None => self,
        }
    }

    /// A field specific to the kind. Foreign text must pass [`short`] first; numbers must be within ±2^53.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Whether it tells of a message that was denied: whoever sends such messages may send any number.
    pub(super) fn is_denial(&self) -> bool {
        let kind = self.fields.get("kind").and_then(Value::as_str);
        [Kind::Denied, Kind::BindingMismatch].into_iter().any(|denial| kind == Some(denial.as_str()))
    }

    /// When it happened. **Units:** milliseconds since the Unix epoch.
    pub fn ts_ms(&self) -> u64 {
        self.ts_ms
    }

    /// The record of a tenant, as its hash is over it. **Shape:** RFC 8785.
    pub(super) fn canonical(self, tenant: &str) -> String {
        let record = self.with("tenantId", tenant);
        serde_json_canonicalizer::to_string(&record)
            .expect("a map of JSON values has text keys and finite numbers")
    }
}

impl Finding {
    fn to_json(&self) -> Value {
        let mut finding =
            json!({"side": self.side.as_str(), "path": short(&self.path), "rule": short(&self.rule)});
        if let Some(witness) = &self.witness {
            // As text: a canonical record has no integers beyond ±2^53, and a witness may.
            let text = witness.to_string();
            if text.len() <= WITNESS_BYTES_MAX {
                finding["witness"] = text.into();
            } else {
                finding["witnessBytes"] = text.len().into();
            }
        }
        finding
    }
}

/// Foreign text, cut to 1 KiB at a character boundary, with a mark at the cut.
pub fn short(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX - '…'.len_utf8());
    format!("{}…", &text[..end])
}

/// Most findings that a record of drift has. Ours: as many as violations of one envelope (PROTOCOL 9).
const FINDINGS_MAX: usize = capd_proto::limits::VIOLATIONS_MAX;
/// Longest witness kept, as JSON text. **Units:** bytes.
const WITNESS_BYTES_MAX: usize = 4_096;
/// Longest text of others' making kept: a `did:key` of any kind of key has its place, and so has a path of a violation.
/// **Units:** bytes.
const TEXT_BYTES_MAX: usize = 1_024;
