//! Reads a `capabilities.yaml`: the declared capabilities, or every mistake with file, line and path, out.
//!
//! The file's shape is camelCase throughout:
//!
//! ```yaml
//! version: 1
//! agent: agent://pr-reviewer
//! namespace: com.example
//! transports:            # optional; `kind: amp` is ours, other kinds are read and reported as not served
//!   - kind: amp
//! capabilities:
//!   - name: review-pr    # no dot: the namespace goes in front
//!     version: "1.5.0"
//!     command: [./review, --json]
//!     timeoutMs: 60000
//!     inputSchema: { $file: schemas/review.json }
//! requires:              # what the agent calls elsewhere, with the schemas that it was built against
//!   - name: org.example.lint
//!     version: ">=2.0.0 <3.0.0"
//!     outputSchema: { $file: schemas/findings.json }
//! ```
//!
//! Without `namespace`, a name without a dot belongs to `agent.<id>`, where `<id>` is the path of `agent://<id>` with
//! its dots and dashes kept: the example would be `agent.pr-reviewer.review-pr`. Without `version`, a capability is
//! `1.0.0`. `schemaProfile: full`, of the file or of a capability, allows schemas more than the short list. A
//! capability without `command` and `http` has no provider of the sidecar's own; it is served once an agent on a local
//! link provides it.

use std::fmt;
use std::path::{Path, PathBuf};

use capd_proto::capability::{CapabilityId, CapabilityName, Range, Version};
use capd_proto::message::{self, DescriptorDraft};

mod fields;
mod permissions;
mod read;
mod requires;
#[cfg(test)]
mod tests;
mod yaml;

/// Largest declaration, in bytes; ours.
pub const DECLARATION_BYTES_MAX: u64 = 1024 * 1024;
/// Largest schema document, in bytes; ours.
pub const SCHEMA_BYTES_MAX: u64 = 256 * 1024;

/// Everything one `capabilities.yaml` declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// `agent`, as written.
    pub agent: Option<String>,
    /// The capabilities, in the file's order; each id occurs once.
    pub capabilities: Vec<Declared>,
    /// The agent's requirements, in the file's order.
    pub requires: Vec<Required>,
    /// Keys without effect, one sentence each, with file and line.
    pub warnings: Vec<String>,
}

/// One declared capability.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Full name and version.
    pub id: CapabilityId,
    /// `description`.
    pub description: Option<String>,
    /// `timeoutMs`, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// `idempotent`; false by default.
    pub idempotent: bool,
    /// `idempotency: by-id`: its providers remember ids in a store that they share.
    pub by_id: bool,
    /// `since`, as written.
    pub since: Option<String>,
    /// `inputSchema`.
    pub input_schema: Option<SchemaSource>,
    /// `outputSchema`.
    pub output_schema: Option<SchemaSource>,
    /// `schemaProfile`, its own or the file's.
    pub schema_profile: SchemaProfile,
    /// `command`: program and arguments; at least the program.
    pub command: Option<Vec<String>>,
    /// `http`: where its calls are posted.
    pub http: Option<HttpTarget>,
    /// `mode`: whether the command is run for each call, or stays.
    pub mode: CommandMode,
    /// `concurrency`: processes, requests, or calls of a process that stays, at once.
    pub concurrency: Option<usize>,
    /// `tellStderr`: whether callers get the last line of stderr of a failed process; false by default.
    pub tell_stderr: bool,
    /// `category`.
    pub category: Option<String>,
    /// `instructions`: how to use it.
    pub instructions: Vec<String>,
    /// `permissions`: what a caller must be granted.
    pub permissions: Vec<String>,
    /// `rateLimit`.
    pub rate_limit: Option<RateLimit>,
    /// `retryPolicy`.
    pub retry_policy: Option<RetryPolicy>,
    /// `deprecated`; false by default.
    pub deprecated: bool,
    /// `supportedRanges`: further versions it serves.
    pub supported_ranges: Vec<Range>,
    /// `minSchemaVersion`: the oldest version it serves.
    pub min_schema_version: Option<Version>,
    /// The line of its `name`.
    pub line: usize,
    /// The line of its `command`; that of the capability without one.
    pub command_line: usize,
}

impl Declared {
    /// Its descriptor, without schemas and hashes.
    pub fn draft(&self) -> DescriptorDraft {
        DescriptorDraft {
            description: self.description.clone(),
            category: self.category.clone(),
            since: self.since.clone(),
            idempotent: Some(self.idempotent),
            by_id: self.by_id,
            timeout_ms: self.timeout_ms,
            permissions: self.permissions.clone(),
            instructions: self.instructions.clone(),
            deprecated: self.deprecated,
            supported_ranges: self.supported_ranges.clone(),
            min_schema_version: self.min_schema_version.clone(),
            rate_limit: self.rate_limit.as_ref().map(|limit| message::RateLimit {
                requests: limit.requests,
                period: limit.period.clone(),
                burst: limit.burst,
            }),
            retry_policy: self.retry_policy.as_ref().map(|policy| message::RetryPolicy {
                max_attempts: policy.max_attempts.map(u64::from),
                backoff_multiplier: policy.backoff_multiplier,
                initial_delay_ms: policy.initial_delay_ms,
                max_delay_ms: policy.max_delay_ms,
                retry_on: policy.retry_on.clone(),
            }),
            ..DescriptorDraft::new(self.id.clone())
        }
    }
}

/// `mode`: how a command serves calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandMode {
    /// `per-call`: it is run once for each.
    #[default]
    PerCall,
    /// `persistent`: one process serves all of them.
    Persistent,
}

/// `http`: a program that listens, to which calls are posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// `url`, as written: `http://HOST:PORT/PATH`, or `unix:/SOCKET:/PATH`.
    pub url: String,
    /// `headersFile`: a file of header fields for each request, relative to the declaration's folder.
    pub headers_file: Option<PathBuf>,
    /// `allowRemote`: whether it may be on another machine; false by default.
    pub allow_remote: bool,
    /// The line of its `url`.
    pub line: usize,
}

/// One capability that the agent calls, and the schemas it was built against.
#[derive(Clone, Debug, PartialEq)]
pub struct Required {
    /// Its full name.
    pub name: CapabilityName,
    /// `version`: the versions that it covers; by default all.
    pub version: Option<Range>,
    /// `inputSchema`: the schema of the agent's params.
    pub input_schema: Option<SchemaSource>,
    /// `outputSchema`: the schema of the results that the agent accepts.
    pub output_schema: Option<SchemaSource>,
    /// `schemaProfile`: which keywords its schemas may use.
    pub schema_profile: SchemaProfile,
    /// The line of its `name`.
    pub line: usize,
}

/// A schema document's bytes and their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaSource {
    /// JSON text: a `$file`'s bytes as they are, an inline schema as compact JSON in the file's key order.
    pub bytes: Vec<u8>,
    /// Their file.
    pub file: PathBuf,
    /// The line they begin at.
    pub line: usize,
}

/// `schemaProfile`: which keywords the schemas may use. Reading a declaration does not enforce it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaProfile {
    /// `strict`: the short list for capability payloads.
    #[default]
    Strict,
    /// `full`: every enforced keyword.
    Full,
}

/// `rateLimit`: the calls in each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Calls a period.
    pub requests: u64,
    /// The period as written: an integer and `ms`, `s`, `m`, `h` or `d`.
    pub period: String,
    /// The period, in milliseconds.
    pub period_ms: u64,
    /// Calls that may come at once.
    pub burst: Option<u64>,
}

/// `retryPolicy`: how a caller's sidecar retries. Absent fields default to PROTOCOL 8.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// `maxAttempts`: tries in all.
    pub max_attempts: Option<u32>,
    /// `backoffMultiplier`: the factor from each pause to the next.
    pub backoff_multiplier: Option<f64>,
    /// `initialDelayMs`: the first pause, in milliseconds.
    pub initial_delay_ms: Option<u64>,
    /// `maxDelayMs`: the longest pause, in milliseconds.
    pub max_delay_ms: Option<u64>,
    /// `retryOn`: errors that are retried, by name or by code in digits.
    pub retry_on: Vec<String>,
}

impl Declaration {
    /// Reads `path` and the schema files it names.
    ///
    /// **Errors:** every mistake found, each with file, line, path in the document, and what is accepted.
    pub fn load(path: &Path) -> Result<Self, Mistakes> {
        let bytes = read::bounded(path, DECLARATION_BYTES_MAX).map_err(|problem| {
            let accepted = format!("a readable YAML file of at most {DECLARATION_BYTES_MAX} bytes");
            Mistakes(vec![Mistake { file: path.to_owned(), line: 0, at: String::new(), problem, accepted }])
        })?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, path),
            Err(error) => Err(Mistakes(vec![Mistake {
                file: path.to_owned(),
                line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
                at: String::new(),
                problem: "not UTF-8".into(),
                accepted: "a YAML file in UTF-8".into(),
            }])),
        }
    }

    /// Reads a declaration's text; `path` names it in messages, and `$file` is relative to the folder it is in.
    ///
    /// **Errors:** as [`Declaration::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Mistakes> {
        read::declaration(text, path)
    }
}

/// One mistake: file and line, the path in the document, what is wrong, and what is accepted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; 0 is the file as a whole.
    pub line: usize,
    /// The path in the document, `capabilities[0].timeoutMs`; empty for the document itself.
    pub at: String,
    /// What is wrong.
    pub problem: String,
    /// What is accepted instead.
    pub accepted: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.at.is_empty() {
            write!(f, " {}:", self.at)?;
        }
        write!(f, " {}; accepted: {}", self.problem, self.accepted)
    }
}

/// Every mistake of one declaration, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
