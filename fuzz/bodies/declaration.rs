//! Bytes in, read as a `capabilities.yaml`; the claims that each is read or refused with its places, the same twice, and that
//! what was read is read again from what it says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use capd::declaration::{Declaration, Declared, Mistakes, Required, SchemaProfile, SchemaSource};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Files are none of its business: without a dollar there is no `$file`.
    if ["$", "\\x24", "\\u0024", "\\U00000024"].iter().any(|dollar| text.contains(dollar)) {
        return;
    }
    let read = || Declaration::parse(text, Path::new("/nonexistent/capabilities.yaml"));
    match (read(), read()) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            taken(one);
        }
        (Err(one), Err(other)) => {
            assert_eq!(one, other);
            refused(&one, text);
        }
        (one, other) => panic!("{one:?} and {other:?} of one text"),
    }
}

fn refused(mistakes: &Mistakes, text: &str) {
    assert!(!mistakes.0.is_empty(), "refused without a reason");
    // YAML breaks lines at CR too.
    let lines = 1 + text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    for mistake in &mistakes.0 {
        assert!(mistake.line <= lines + 1, "{mistake} in a text of {lines} lines");
        assert!(!mistake.problem.is_empty() && !mistake.accepted.is_empty(), "{mistake}");
    }
}

fn taken(mut declaration: Declaration) {
    let ids: BTreeSet<_> = declaration.capabilities.iter().map(|declared| &declared.id).collect();
    assert_eq!(ids.len(), declaration.capabilities.len(), "each id once");
    declaration.capabilities.iter_mut().for_each(placeless);
    for required in &mut declaration.requires {
        required.line = 0;
        schemas([&mut required.input_schema, &mut required.output_schema]);
    }
    declaration.warnings.clear();
    let text = written(&declaration);
    let again = Declaration::parse(&text, Path::new("/nonexistent/capabilities.yaml"));
    let mut again = again.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
    again.capabilities.iter_mut().for_each(placeless);
    for required in &mut again.requires {
        required.line = 0;
        schemas([&mut required.input_schema, &mut required.output_schema]);
    }
    again.warnings.clear();
    assert_eq!(again, declaration, "{text}");
}

fn placeless(declared: &mut Declared) {
    (declared.line, declared.command_line) = (0, 0);
    if let Some(http) = &mut declared.http {
        http.line = 0;
    }
    schemas([&mut declared.input_schema, &mut declared.output_schema]);
}

/// Checks that schemas are JSON, and leaves those that can stand in a YAML text as they are.
fn schemas(sources: [&mut Option<SchemaSource>; 2]) {
    for source in sources {
        let Some(schema) = source else { continue };
        let is_schema = serde_json::from_slice::<serde_json::Value>(&schema.bytes)
            .is_ok_and(|json| json.is_object() || json.is_boolean());
        assert!(is_schema, "{:?}", String::from_utf8_lossy(&schema.bytes));
        schema.line = 0;
        // YAML bounds the keys on a line, and does not take every character.
        let is_plain = schema.bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
        if schema.bytes.len() > PLAIN_BYTES_MAX || !is_plain {
            *source = None;
        }
    }
}

/// The declaration as a YAML text, all of it in flow style.
fn written(declaration: &Declaration) -> String {
    let mut out = "version: 1\n".to_owned();
    if let Some(agent) = &declaration.agent {
        out += &format!("agent: {}\n", quoted(agent));
    }
    for (key, members) in [
        ("capabilities", declaration.capabilities.iter().map(capability).collect::<Vec<_>>()),
        ("requires", declaration.requires.iter().map(required).collect()),
    ] {
        out += &format!("{key}: [\n  {}\n]\n", members.join(",\n  "));
    }
    out
}

fn capability(declared: &Declared) -> String {
    let texts = |texts: &[String]| {
        format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let retry = declared.retry_policy.as_ref().map(|policy| {
        mapping(&[
            ("maxAttempts", number(policy.max_attempts.map(u64::from))),
            ("backoffMultiplier", policy.backoff_multiplier.map(|by| by.to_string())),
            ("initialDelayMs", number(policy.initial_delay_ms)),
            ("maxDelayMs", number(policy.max_delay_ms)),
            ("retryOn", Some(texts(&policy.retry_on))),
        ])
    });
    let rate = declared.rate_limit.as_ref().map(|rate| {
        mapping(&[
            ("requests", number(Some(rate.requests))),
            ("period", Some(quoted(&rate.period))),
            ("burst", number(rate.burst)),
        ])
    });
    let http = declared.http.as_ref().map(|http| {
        let file = http.headers_file.as_ref().and_then(|file| file.to_str());
        mapping(&[
            ("url", Some(quoted(&http.url))),
            ("headersFile", file.map(quoted)),
            ("allowRemote", Some(http.allow_remote.to_string())),
        ])
    });
    let ranges: Vec<_> = declared.supported_ranges.iter().map(ToString::to_string).collect();
    mapping(&[
        ("name", Some(quoted(declared.id.name.as_str()))),
        ("version", Some(quoted(&declared.id.version.to_string()))),
        ("description", declared.description.as_deref().map(quoted)),
        ("timeoutMs", number(declared.timeout_ms)),
        ("idempotent", Some(declared.idempotent.to_string())),
        ("since", declared.since.as_deref().map(quoted)),
        ("inputSchema", json(declared.input_schema.as_ref())),
        ("outputSchema", json(declared.output_schema.as_ref())),
        ("schemaProfile", Some(profile(declared.schema_profile).to_owned())),
        ("command", declared.command.as_deref().map(texts)),
        ("http", http),
        ("concurrency", declared.concurrency.map(|count| count.to_string())),
        ("tellStderr", declared.tell_stderr.then(|| "true".to_owned())),
        ("category", declared.category.as_deref().map(quoted)),
        ("instructions", Some(texts(&declared.instructions))),
        ("permissions", Some(texts(&declared.permissions))),
        ("rateLimit", rate),
        ("retryPolicy", retry),
        ("deprecated", Some(declared.deprecated.to_string())),
        ("supportedRanges", Some(texts(&ranges))),
        (
            "minSchemaVersion",
            declared.min_schema_version.as_ref().map(|version| quoted(&version.to_string())),
        ),
    ])
}

fn required(required: &Required) -> String {
    mapping(&[
        ("name", Some(quoted(required.name.as_str()))),
        ("version", required.version.as_ref().map(|range| quoted(&range.to_string()))),
        ("inputSchema", json(required.input_schema.as_ref())),
        ("outputSchema", json(required.output_schema.as_ref())),
        ("schemaProfile", Some(profile(required.schema_profile).to_owned())),
    ])
}

fn mapping(members: &[(&str, Option<String>)]) -> String {
    let members = members.iter().filter_map(|(key, value)| Some(format!("{key}: {}", value.as_ref()?)));
    format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
}

fn json(schema: Option<&SchemaSource>) -> Option<String> {
    schema.map(|schema| String::from_utf8_lossy(&schema.bytes).into_owned())
}

const fn profile(profile: SchemaProfile) -> &'static str {
    match profile {
        SchemaProfile::Strict => "strict",
        SchemaProfile::Full => "full",
    }
}

/// A text in double quotes, with whatever YAML may not take as it is escaped.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            other => write!(out, "\\U{:08X}", u32::from(other)).expect("writing to a String does not fail"),
        }
    }
    out + "\""
}

const PLAIN_BYTES_MAX: usize = 1_000;
