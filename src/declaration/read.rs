//! Reads a declaration's tree into typed capabilities, and checks each rule of the file at its place.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use capd_proto::call::RetryPolicy as CallRetry;
use capd_proto::capability::{CapabilityId, CapabilityName, Range, Version};
use capd_proto::limits;
use capd_proto::rate::period_ms;

use super::fields::{Fields, Report, parsed};
use super::permissions;
use super::requires;
use super::yaml::{self, Node, Value, quoted};
use super::{
    CommandMode, Declaration, Declared, HttpTarget, Mistake, Mistakes, RateLimit, RetryPolicy,
    SCHEMA_BYTES_MAX, SchemaProfile, SchemaSource,
};

/// Most capabilities of one file; ours.
pub(super) const CAPABILITIES_MAX: usize = 10_000;
/// Most items of one list of words; ours.
pub(super) const WORDS_MAX: usize = 256;
/// Most processes of one capability at once; ours.
const CONCURRENCY_MAX: u64 = 1_024;

const FILE_KEYS: &[&str] =
    &["version", "agent", "namespace", "schemaProfile", "transports", "capabilities", "requires"];
const CAPABILITY_KEYS: &[&str] = &[
    "name",
    "version",
    "description",
    "command",
    "mode",
    "http",
    "timeoutMs",
    "idempotent",
    "idempotency",
    "since",
    "inputSchema",
    "outputSchema",
    "schemaProfile",
    "concurrency",
    "tellStderr",
    "category",
    "instructions",
    "permissions",
    "rateLimit",
    "retryPolicy",
    "deprecated",
    "supportedRanges",
    "minSchemaVersion",
];
pub(super) const RANGE_ACCEPTED: &str = "a range as a text: \">=1.0.0 <2.0.0\"";
const VERSION_ACCEPTED: &str = "a version as a text: \"1.5.0\", \"2.1\", \"2.0.0-rc.1\"";
const NAME_ACCEPTED: &str = "a word of A-Z a-z 0-9 and inner dashes, which the namespace precedes, or a whole name of \
                             three such words or more, joined by dots";
const URL_ACCEPTED: &str = "http://127.0.0.1:PORT/PATH, or unix:/SOCKET:/PATH";
const AGENT_ACCEPTED: &str = "agent://<id>, <id> of words of A-Z a-z 0-9 and inner dashes, joined by dots";

/// Reads a declaration's text.
pub(super) fn declaration(text: &str, path: &Path) -> Result<Declaration, Mistakes> {
    let root = yaml::parse(text).map_err(|wrong| {
        Mistakes(vec![Mistake {
            file: path.to_owned(),
            line: wrong.line,
            at: String::new(),
            problem: wrong.problem,
            accepted: "one YAML 1.2 document of texts, numbers, booleans, lists and mappings, each key once"
                .into(),
        }])
    })?;
    let mut report = Report { file: path, mistakes: Vec::new(), warnings: Vec::new() };
    let declaration = file(&root, &mut report);
    match declaration {
        Some(declaration) if report.mistakes.is_empty() => {
            Ok(Declaration { warnings: report.warnings, ..declaration })
        }
        _ => Err(Mistakes(report.mistakes)),
    }
}

fn file(root: &Node, report: &mut Report<'_>) -> Option<Declaration> {
    let fields = Fields::of(root, "", FILE_KEYS, report)?;
    match fields.get("version").map(|node| (node, &node.value)) {
        Some((_, Value::Integer(1))) => {}
        Some((node, _)) => report.mistake(node.line, "version", node.is_a(), "the integer 1"),
        None => report.mistake(fields.line, "version", "missing", "the integer 1"),
    }
    let agent = fields.text("agent", report);
    let defaults = Defaults {
        namespace: namespace(&fields, agent, report),
        schema_profile: schema_profile(&fields, report).unwrap_or_default(),
    };
    for (node, at) in fields.items("transports", WORDS_MAX, report) {
        transport(node, &at, report);
    }
    if fields.get("capabilities").is_none() && fields.get("requires").is_none() {
        report.mistake(fields.line, "capabilities", "missing", "a list of capabilities, or requires");
    }
    let mut capabilities: Vec<Declared> = Vec::new();
    let mut lines: BTreeMap<CapabilityId, usize> = BTreeMap::new();
    for (node, at) in fields.items("capabilities", CAPABILITIES_MAX, report) {
        let Some(declared) = capability(node, &at, &defaults, report) else { continue };
        if let Some(first) = lines.get(&declared.id) {
            let problem = format!("{} is a duplicate; the first is in line {first}", declared.id);
            report.mistake(declared.line, &format!("{at}.name"), problem, "each name and version once");
            continue;
        }
        lines.insert(declared.id.clone(), declared.line);
        capabilities.push(declared);
    }
    let requires = requires::of(&fields, &defaults, report);
    Some(Declaration { agent: agent.map(str::to_owned), capabilities, requires, warnings: Vec::new() })
}

/// What goes before a name without a dot: `namespace`, else `agent.<id>` of `agent://<id>`.
fn namespace(fields: &Fields<'_>, agent: Option<&str>, report: &mut Report<'_>) -> Option<String> {
    let label_path = |text: &str| format!("{text}.x.x").parse::<CapabilityName>().is_ok();
    if let Some(agent) = agent
        && !agent.strip_prefix("agent://").is_some_and(label_path)
    {
        report.mistake(
            fields.line_of("agent"),
            "agent",
            format!("{} is no agent", quoted(agent)),
            AGENT_ACCEPTED,
        );
        return None;
    }
    if fields.get("namespace").is_none() {
        return agent.and_then(|agent| agent.strip_prefix("agent://")).map(|id| format!("agent.{id}"));
    }
    let namespace = fields.text("namespace", report)?;
    if format!("{namespace}.x").parse::<CapabilityName>().is_err() {
        let problem = format!("{} is no namespace", quoted(namespace));
        let accepted = "two words or more of A-Z a-z 0-9 and inner dashes, joined by dots: com.example";
        report.mistake(fields.line_of("namespace"), "namespace", problem, accepted);
        return None;
    }
    Some(namespace.to_owned())
}

fn transport(node: &Node, at: &str, report: &mut Report<'_>) {
    let Value::Map(members) = &node.value else {
        report.mistake(node.line, at, node.is_a(), "a mapping with kind");
        return;
    };
    let kind = members.iter().find(|(key, _)| key.name == "kind").map(|(_, kind)| &kind.value);
    match kind {
        // The keys of other kinds are theirs to define; nothing here reads them.
        Some(Value::Text(kind)) if kind != "amp" => {
            let sentence = format!("transports of kind {} are read and not served", quoted(kind));
            report.warning(node.line, at, &sentence);
        }
        Some(Value::Text(_)) => {
            Fields::of(node, at, &["kind"], report);
        }
        _ => report.mistake(
            node.line,
            &format!("{at}.kind"),
            "no kind",
            "a text: amp, or another kind, not served",
        ),
    }
}

/// What the file says for all its capabilities.
pub(super) struct Defaults {
    pub(super) namespace: Option<String>,
    pub(super) schema_profile: SchemaProfile,
}

fn capability(node: &Node, at: &str, defaults: &Defaults, report: &mut Report<'_>) -> Option<Declared> {
    let fields = Fields::of(node, at, CAPABILITY_KEYS, report)?;
    // Every field is read before a missing name ends the capability, so that all its mistakes are told.
    let name = name(&fields, defaults.namespace.as_deref(), report);
    let version = match fields.get("version") {
        None => "1.0.0".parse::<Version>().ok(),
        Some(_) => fields.parsed::<Version>("version", VERSION_ACCEPTED, report),
    };
    let command = fields.get("command").map(|command| {
        let parts = fields.texts("command", WORDS_MAX, report);
        if matches!(&command.value, Value::List(items) if items.is_empty()) {
            let accepted = "a list of texts: the program, then its arguments";
            report.mistake(command.line, &fields.path("command"), "an empty list", accepted);
        }
        parts
    });
    let http = fields.get("http").and_then(|node| http(node, &fields.path("http"), report));
    if let (Some(node), Some(_)) = (fields.get("http"), &command) {
        let accepted = "one of both: a command that is run, or a program that listens";
        report.mistake(node.line, &fields.path("http"), "it stands beside command", accepted);
    }
    let supported_ranges = fields
        .items("supportedRanges", WORDS_MAX, report)
        .iter()
        .filter_map(|(item, at)| parsed::<Range>(item, at, RANGE_ACCEPTED, report))
        .collect();
    let timeout_ms = fields.integer("timeoutMs", "milliseconds", 1, limits::TTL_MS_MAX, report);
    let concurrency = fields.integer("concurrency", "a count", 1, CONCURRENCY_MAX, report);
    let declared = Declared {
        description: fields.text("description", report).map(str::to_owned),
        timeout_ms,
        idempotent: fields.truth("idempotent", report).unwrap_or(false),
        by_id: by_id(&fields, report),
        since: fields.text("since", report).map(str::to_owned),
        input_schema: schema(&fields, "inputSchema", report),
        output_schema: schema(&fields, "outputSchema", report),
        schema_profile: schema_profile(&fields, report).unwrap_or(defaults.schema_profile),
        mode: mode(&fields, report).unwrap_or_default(),
        command,
        http,
        concurrency: concurrency.and_then(|count| usize::try_from(count).ok()),
        tell_stderr: fields.truth("tellStderr", report).unwrap_or(false),
        category: fields.text("category", report).map(str::to_owned),
        instructions: fields.texts("instructions", WORDS_MAX, report),
        permissions: permissions::of(&fields, report),
        rate_limit: rate_limit(&fields, report),
        retry_policy: retry_policy(&fields, report),
        deprecated: fields.truth("deprecated", report).unwrap_or(false),
        supported_ranges,
        min_schema_version: fields.parsed::<Version>("minSchemaVersion", VERSION_ACCEPTED, report),
        line: fields.line_of("name"),
        command_line: fields.line_of("command"),
        id: CapabilityId { name: name?, version: version? },
    };
    if declared.command.is_none() && declared.http.is_none() {
        let sentence = format!("{} has no command: not served until a provider for it connects", declared.id);
        report.warning(declared.line, at, &sentence);
    }
    Some(declared)
}

/// Whether its providers remember the ids of calls together.
fn by_id(fields: &Fields<'_>, report: &mut Report<'_>) -> bool {
    let Some(written) = fields.text("idempotency", report) else { return false };
    let (line, at) = (fields.line_of("idempotency"), fields.path("idempotency"));
    if written != "by-id" {
        report.mistake(line, &at, format!("{} is no kind of idempotency", quoted(written)), "by-id");
        return false;
    }
    // What may run again anyway needs no memory; a mistake in a side effect is worth a question.
    let is_idempotent = fields.get("idempotent").is_some_and(|node| matches!(node.value, Value::Bool(true)));
    if is_idempotent {
        let accepted = "one of both: idempotent: true if running a call again does no harm, idempotency: by-id if your program remembers ids";
        report.mistake(line, &at, "it stands beside idempotent: true", accepted);
    }
    true
}

/// How its command serves calls; without a command, the key would have no effect.
fn mode(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<CommandMode> {
    let written = fields.text("mode", report)?;
    let (line, at) = (fields.line_of("mode"), fields.path("mode"));
    if fields.get("command").is_none() {
        report.mistake(line, &at, "there is no command that it is about", "mode beside command");
    }
    match written {
        "per-call" => Some(CommandMode::PerCall),
        "persistent" => Some(CommandMode::Persistent),
        other => {
            report.mistake(line, &at, format!("{} is no mode", quoted(other)), "per-call or persistent");
            None
        }
    }
}

fn http(node: &Node, at: &str, report: &mut Report<'_>) -> Option<HttpTarget> {
    let fields = Fields::of(node, at, &["url", "headersFile", "allowRemote"], report)?;
    if fields.get("url").is_none() {
        report.mistake(node.line, &fields.path("url"), "missing", URL_ACCEPTED);
    }
    Some(HttpTarget {
        headers_file: fields.text("headersFile", report).map(Into::into),
        allow_remote: fields.truth("allowRemote", report).unwrap_or(false),
        line: fields.line_of("url"),
        url: fields.text("url", report)?.to_owned(),
    })
}

pub(super) fn name(
    fields: &Fields<'_>,
    namespace: Option<&str>,
    report: &mut Report<'_>,
) -> Option<CapabilityName> {
    let at = fields.path("name");
    if fields.get("name").is_none() {
        report.mistake(fields.line, &at, "missing", NAME_ACCEPTED);
        return None;
    }
    let written = fields.text("name", report)?;
    let full = match namespace {
        Some(namespace) if !written.contains('.') => format!("{namespace}.{written}"),
        None if !written.contains('.') => {
            let problem =
                format!("{} has no dot, and the file has neither namespace nor agent", quoted(written));
            report.mistake(fields.line_of("name"), &at, problem, NAME_ACCEPTED);
            return None;
        }
        Some(_) | None => written.to_owned(),
    };
    full.parse::<CapabilityName>()
        .map_err(|error| {
            report.mistake(fields.line_of("name"), &at, format!("{}: {error}", quoted(&full)), NAME_ACCEPTED);
        })
        .ok()
}

pub(super) fn schema_profile(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<SchemaProfile> {
    match fields.text("schemaProfile", report)? {
        "strict" => Some(SchemaProfile::Strict),
        "full" => Some(SchemaProfile::Full),
        other => {
            let problem = format!("{} is no profile", quoted(other));
            let line = fields.line_of("schemaProfile");
            report.mistake(line, &fields.path("schemaProfile"), problem, "strict or full");
            None
        }
    }
}

fn rate_limit(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<RateLimit> {
    const PERIOD_ACCEPTED: &str = "an integer and ms, s, m, h or d as a text, up to 30 days: \"1m\"";
    let fields = Fields::of(
        fields.get("rateLimit")?,
        &fields.path("rateLimit"),
        &["requests", "period", "burst"],
        report,
    )?;
    for required in ["requests", "period"] {
        if fields.get(required).is_none() {
            report.mistake(fields.line, &fields.path(required), "missing", "requests and period");
        }
    }
    let requests = fields.integer("requests", "a count", 1, limits::RATE_REQUESTS_MAX, report);
    let burst = fields.integer("burst", "a count", 1, limits::RATE_REQUESTS_MAX, report);
    let period = fields.text("period", report)?;
    let Some(period_ms) = period_ms(period) else {
        let problem = format!("{} is no period", quoted(period));
        report.mistake(fields.line_of("period"), &fields.path("period"), problem, PERIOD_ACCEPTED);
        return None;
    };
    Some(RateLimit { requests: requests?, period: period.to_owned(), period_ms, burst })
}

fn retry_policy(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<RetryPolicy> {
    let known = ["maxAttempts", "backoffMultiplier", "initialDelayMs", "maxDelayMs", "retryOn"];
    let fields = Fields::of(fields.get("retryPolicy")?, &fields.path("retryPolicy"), &known, report)?;
    let attempts = fields.integer("maxAttempts", "tries in all", 1, 100, report);
    let policy = RetryPolicy {
        max_attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        backoff_multiplier: fields.number("backoffMultiplier", 1.0, 100.0, report),
        initial_delay_ms: fields.integer("initialDelayMs", "milliseconds", 0, limits::TTL_MS_MAX, report),
        max_delay_ms: fields.integer("maxDelayMs", "milliseconds", 0, limits::TTL_MS_MAX, report),
        retry_on: retry_on(&fields, report),
    };
    if let (Some(first), Some(longest)) = (policy.initial_delay_ms, policy.max_delay_ms)
        && first > longest
    {
        let problem = format!("{longest} is below initialDelayMs = {first}");
        report.mistake(
            fields.line_of("maxDelayMs"),
            &fields.path("maxDelayMs"),
            problem,
            "at least initialDelayMs",
        );
    }
    Some(policy)
}

/// Errors by their code or name; one that nothing could ever match is a mistake.
fn retry_on(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<String> {
    const ACCEPTED: &str = "a code (5003) or its name (TIMEOUT), timeout, network_error or rate_limit";
    let mut names = Vec::new();
    for (item, at) in fields.items("retryOn", limits::RETRY_ON_MAX, report) {
        let name = match &item.value {
            Value::Text(text) => text.clone(),
            Value::Integer(code) => code.to_string(),
            _ => {
                report.mistake(item.line, &at, item.is_a(), ACCEPTED);
                continue;
            }
        };
        if CallRetry::codes_named(&name).is_empty() {
            report.mistake(item.line, &at, format!("{} is no error", quoted(&name)), ACCEPTED);
        }
        names.push(name);
    }
    names
}

/// A schema's bytes: an inline document as JSON, or a `$file`'s bytes as they are.
pub(super) fn schema(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Option<SchemaSource> {
    let node = fields.get(key)?;
    let at = fields.path(key);
    match &node.value {
        Value::Map(members) if members.iter().any(|(key, _)| key.name == "$file") => {
            let fields = Fields::of(node, &at, &["$file"], report)?;
            let name = fields.text("$file", report)?;
            schema_file(name, fields.line_of("$file"), &fields.path("$file"), report)
        }
        Value::Map(_) | Value::Bool(_) => {
            let mut text = String::new();
            node.write_json(&mut text);
            if text.len() as u64 > SCHEMA_BYTES_MAX {
                let problem = format!("{} bytes as JSON", text.len());
                report.mistake(
                    node.line,
                    &at,
                    problem,
                    &format!("a schema of at most {SCHEMA_BYTES_MAX} bytes"),
                );
                return None;
            }
            Some(SchemaSource { bytes: text.into_bytes(), file: report.file.to_owned(), line: node.line })
        }
        Value::Null | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
            report.mistake(
                node.line,
                &at,
                node.is_a(),
                "a JSON Schema: a mapping, true or false; or $file: PATH",
            );
            None
        }
    }
}

fn schema_file(name: &str, line: usize, at: &str, report: &mut Report<'_>) -> Option<SchemaSource> {
    let path = report.file.parent().unwrap_or(Path::new("")).join(name);
    let accepted = format!(
        "a readable JSON file of at most {SCHEMA_BYTES_MAX} bytes in this file's folder, relative to it"
    );
    let is_within = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(name).components().all(is_within) {
        report.mistake(line, at, format!("{} leads outside this file's folder", quoted(name)), &accepted);
        return None;
    }
    match bounded(&path, SCHEMA_BYTES_MAX) {
        Err(problem) => {
            report.mistake(line, at, format!("{}: {problem}", path.display()), &accepted);
            None
        }
        Ok(bytes) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
            Ok(serde_json::Value::Object(_) | serde_json::Value::Bool(_)) => {
                Some(SchemaSource { bytes, file: path, line: 1 })
            }
            Ok(_) => {
                report.mistake_in(path, 1, at, "no schema".into(), "a JSON Schema: an object, true or false");
                None
            }
            Err(error) => {
                report.mistake_in(path, error.line(), at, format!("not JSON: {error}"), "a JSON Schema");
                None
            }
        },
    }
}

/// A file's bytes, or why it cannot be had within `bytes_max`.
pub(super) fn bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > bytes_max { Err("too large".into()) } else { Ok(bytes) }
}
