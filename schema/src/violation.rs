//! Turns errors of the validating crate into wire violations: short, and without quoting the payload.

use std::fmt::Write;

use capd_proto::cbor::json::push_token;
use capd_proto::limits::VIOLATIONS_MAX;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

/// One violation of a schema. **Source:** PROTOCOL 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the payload, of at most 1024 bytes; the payload itself is `/`.
    pub path: String,
    /// What is wrong, of at most 512 bytes and without the payload's values.
    pub message: String,
    /// The violated keyword.
    pub keyword: String,
}

/// Longest message, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;
/// Longest path, in bytes; keys are the peer's and may be long.
pub(super) const PATH_BYTES_MAX: usize = 1024;
/// Longest part of a schema quoted in a message, in bytes.
const QUOTED_BYTES_MAX: usize = 160;

impl Violation {
    /// A violation of the payload as a whole or at a pointer; the message is cut to its bound.
    pub(super) fn new(path: &str, message: impl Into<String>, keyword: &str) -> Self {
        let mut message = message.into();
        cut(&mut message, MESSAGE_BYTES_MAX);
        let mut path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        cut(&mut path, PATH_BYTES_MAX);
        Self { path, message, keyword: keyword.to_owned() }
    }
}

/// Violations of one payload: at most [`VIOLATIONS_MAX`], nothing twice, and of a bounded length.
pub(super) struct List {
    violations: Vec<Violation>,
    bytes_left: usize,
}

impl List {
    /// A list of at most so many bytes of text, but of one violation at least.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { violations: Vec::new(), bytes_left: bytes_max }
    }

    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.violations.len() >= VIOLATIONS_MAX || self.bytes_left == 0
    }

    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.violations
    }

    /// Adds what `error` says.
    pub(super) fn push(&mut self, error: &ValidationError<'_>) {
        let at = error.instance_path().as_str();
        let keyword = error.kind().keyword();
        match error.kind() {
            // PROTOCOL 9: one entry each, at the property's own path, where whoever repairs it looks first.
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                self.add(Violation::new(&member(at, name), "is required and missing", keyword));
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for name in unexpected.iter().take(VIOLATIONS_MAX) {
                    self.add(Violation::new(&member(at, name), "is not a declared property", keyword));
                }
            }
            kind => self.add(Violation::new(at, message(kind), keyword)),
        }
    }

    fn add(&mut self, violation: Violation) {
        if self.is_full() || self.violations.contains(&violation) {
            return;
        }
        let bytes = violation.path.len() + violation.message.len() + violation.keyword.len();
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.unwrap_or(0);
        if left.is_some() || self.violations.is_empty() {
            self.violations.push(violation);
        }
    }
}

fn member(at: &str, name: &str) -> String {
    let mut path = at.to_owned();
    // A key may be most of a payload, and what is cut off later need not be copied before.
    push_token(&mut path, &name[..name.floor_char_boundary(PATH_BYTES_MAX)]);
    path
}

fn message(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind } => format!("must be {}", types(kind)),
        Kind::Enum { options } => format!("must be one of {}", quoted(options)),
        Kind::Constant { expected_value } => format!("must be {}", quoted(expected_value)),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be above {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be below {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("must have no items beyond the first {limit}"),
        Kind::MinProperties { limit } => format!("must have at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} properties"),
        Kind::UniqueItems => "must have no two equal items".into(),
        Kind::Contains => "must have an item that fits `contains`".into(),
        Kind::UnevaluatedItems { unexpected } => {
            // In place of the last item that may be listed stands `true`.
            let or_more = if unexpected.last().is_some_and(|last| last == "true") { " or more" } else { "" };
            format!("has {}{or_more} items that no schema describes", unexpected.len())
        }
        Kind::Pattern { pattern } => {
            format!("must match the pattern {}", quoted(&Value::from(pattern.as_str())))
        }
        Kind::Format { format } => format!("must be of the format {}", quoted(&Value::from(format.as_str()))),
        Kind::Not { .. } => "must not fit the schema of `not`".into(),
        Kind::FalseSchema => "no value is valid here".into(),
        Kind::AnyOf { context } => branches("fits none of the schemas of `anyOf`", context),
        Kind::OneOfNotValid { context } => branches("fits none of the schemas of `oneOf`", context),
        Kind::OneOfMultipleValid { .. } => "fits more than one of the schemas of `oneOf`".into(),
        Kind::PropertyNames { error } => format!("has a property whose name {}", message(error.kind())),
        Kind::Required { .. } => "lacks a required property".into(),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "has undeclared properties".into()
        }
        Kind::ContentEncoding { .. } | Kind::FromUtf8 { .. } => "does not have its content encoding".into(),
        Kind::ContentMediaType { .. } => "does not have its content media type".into(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "the pattern cannot be run on it".into()
        }
        Kind::Referencing(_) => "the schema has a reference that leads nowhere".into(),
        Kind::Custom { message, .. } => message.clone(),
    }
}

/// Says which branch came closest, and where it failed.
fn branches(what: &str, context: &[Vec<ValidationError<'static>>]) -> String {
    let closest =
        context.iter().enumerate().filter(|(_, errors)| !errors.is_empty()).min_by_key(|(_, e)| e.len());
    let mut text = what.to_owned();
    if let Some((index, [first, ..])) = closest.map(|(index, errors)| (index, errors.as_slice())) {
        let mut reasons = List::new(usize::MAX);
        reasons.push(first);
        if let Some(reason) = reasons.violations.first() {
            let mut path = reason.path.clone();
            cut(&mut path, QUOTED_BYTES_MAX);
            let _ = write!(text, "; closest is number {}: {path} {}", index + 1, reason.message);
        }
    }
    text
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one_type(*one).to_owned(),
        TypeKind::Multiple(many) => many.iter().map(one_type).collect::<Vec<_>>().join(" or "),
    }
}

fn one_type(json_type: JsonType) -> &'static str {
    match json_type {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

/// A part of the schema as JSON, cut to a bounded length.
fn quoted(value: &Value) -> String {
    let mut text = value.to_string();
    cut(&mut text, QUOTED_BYTES_MAX);
    text
}

/// Cuts `text` to `bytes_max` at a character's boundary, with a mark where it was cut.
pub(super) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - '…'.len_utf8()));
        text.push('…');
    }
}
