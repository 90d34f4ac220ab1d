use std::path::Path;

use super::*;

const FILE: &str = "/etc/agent/capabilities.yaml";

/// The example of the typed-capabilities page, indented as YAML wants it.
const EXAMPLE: &str = r#"version: 1
agent: agent://pr-reviewer
transports:
  - kind: memory
    topics:
      requests: agents.pr-reviewer.requests
capabilities:
  - name: review-pr
    description: Review a GitHub pull request.
    timeoutMs: 60000
    idempotent: true
    since: "1.1.0"
    inputSchema:
      type: object
      properties:
        prUrl: { type: string, description: "GitHub PR URL." }
        severity: { enum: [low, med, high] }
      required: [prUrl, severity]
      additionalProperties: false
    outputSchema:
      type: object
      properties:
        verdict: { enum: [approve, request-changes, comment] }
        summary: { type: string }
      required: [verdict, summary]
"#;

fn parse(text: &str) -> Result<Declaration, Mistakes> {
    Declaration::parse(text, Path::new(FILE))
}

/// A declaration with one capability `com.example.x` and these further lines in it.
fn with(lines: &str) -> Result<Declaration, Mistakes> {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    parse(&format!("version: 1\ncapabilities:\n  - name: com.example.x\n{lines}"))
}

/// The one message of a refused declaration.
#[track_caller]
fn message(result: Result<Declaration, Mistakes>) -> String {
    let mistakes = result.expect_err("the declaration holds a mistake");
    assert_eq!(mistakes.0.len(), 1, "{mistakes}");
    assert!(mistakes.to_string().contains("; accepted: "), "{mistakes}");
    mistakes.to_string()
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn a_capability_may_say_that_its_providers_remember_ids() {
    let declared = |more: &str| {
        let text =
            format!("version: 1\ncapabilities:\n  - name: org.example.pay\n    command: [pay]\n{more}");
        parse(&text).unwrap().capabilities.remove(0)
    };
    let by_id = declared("    idempotency: by-id\n");
    assert!(by_id.by_id && !by_id.idempotent && by_id.draft().finish().unwrap().by_id);
    assert!(!declared("").by_id && !declared("").draft().finish().unwrap().by_id);
}

#[test]
fn the_published_example_loads_under_its_agent_s_name() {
    let declaration = parse(EXAMPLE).unwrap();
    assert_eq!(declaration.agent.as_deref(), Some("agent://pr-reviewer"));
    let [declared] = declaration.capabilities.as_slice() else { panic!("one capability") };
    assert_eq!(declared.id.to_string(), "agent.pr-reviewer.review-pr:1.0.0");
    assert_eq!(declared.timeout_ms, Some(60_000));
    assert!(declared.idempotent);
    assert_eq!(declared.since.as_deref(), Some("1.1.0"));
    let input = declared.input_schema.as_ref().unwrap();
    assert_eq!(
        std::str::from_utf8(&input.bytes).unwrap(),
        r#"{"type":"object","properties":{"prUrl":{"type":"string","description":"GitHub PR URL."},"severity":{"enum":["low","med","high"]}},"required":["prUrl","severity"],"additionalProperties":false}"#
    );
    assert_eq!((input.file.as_path(), input.line), (Path::new(FILE), 14));
    assert!(declared.output_schema.is_some());
    assert_eq!(declared.command, None);
    let [transport, provider] = declaration.warnings.as_slice() else { panic!("{:?}", declaration.warnings) };
    says(transport, &["capabilities.yaml:4:", "transports[0]", "\"memory\"", "not served"]);
    says(provider, &["capabilities.yaml:8:", "review-pr:1.0.0", "not served until a provider"]);
}

#[test]
fn every_field_is_read() {
    let text = r#"
version: 1
agent: agent://a.b
namespace: org.agentries
transports: [{ kind: amp }]
capabilities:
  - name: code-review
    version: "2.0"
    description: Reviews.
    command: [./review, "--json", "7"]
    timeoutMs: 1
    idempotent: false
    since: "1.1"
    concurrency: 3
    tellStderr: true
    category: data_processing
    permissions: ["compute:execute", "network:read"]
    rateLimit: { requests: 100, period: 1m, burst: 10 }
    retryPolicy: { maxAttempts: 3, backoffMultiplier: 2, initialDelayMs: 1000, maxDelayMs: 10000, retryOn: [timeout, 5002] }
    deprecated: true
    supportedRanges: [">=1.5.0 <2.0.0"]
    minSchemaVersion: 1.5.0
    inputSchema: true
  - name: org.other.thing
    command: [x]
"#;
    let declaration = parse(text).unwrap();
    assert_eq!(declaration.warnings, Vec::<String>::new());
    let [review, thing] = declaration.capabilities.as_slice() else { panic!("two capabilities") };
    assert_eq!(review.id.to_string(), "org.agentries.code-review:2.0.0");
    assert_eq!(review.command.as_deref().unwrap(), ["./review", "--json", "7"]);
    assert_eq!((review.concurrency, review.tell_stderr, thing.tell_stderr), (Some(3), true, false));
    assert_eq!(review.permissions, ["compute:execute", "network:read"]);
    let rate = review.rate_limit.as_ref().unwrap();
    assert_eq!(
        (rate.requests, rate.period.as_str(), rate.period_ms, rate.burst),
        (100, "1m", 60_000, Some(10))
    );
    let retry = review.retry_policy.as_ref().unwrap();
    assert_eq!((retry.max_attempts, retry.backoff_multiplier), (Some(3), Some(2.0)));
    assert_eq!((retry.initial_delay_ms, retry.max_delay_ms), (Some(1_000), Some(10_000)));
    assert_eq!(retry.retry_on, ["timeout", "5002"]);
    assert!(review.deprecated);
    assert_eq!(review.supported_ranges.len(), 1);
    assert_eq!(review.min_schema_version, "1.5.0".parse().ok());
    assert_eq!(review.input_schema.as_ref().unwrap().bytes, b"true");
    assert_eq!(thing.id.to_string(), "org.other.thing:1.0.0");
}

#[test]
fn one_name_may_have_many_versions_and_an_id_stands_once() {
    let two = "version: 1\nnamespace: com.example\ncapabilities:\n- { name: x, version: \"1.0\", command: [a] }\n\
               - { name: x, version: \"2.0\", command: [a] }\n";
    assert_eq!(parse(two).unwrap().capabilities.len(), 2);
    let same = format!("{two}- {{ name: com.example.x, version: 2.0.0, command: [a] }}\n");
    says(
        &message(parse(&same)),
        &[
            "/etc/agent/capabilities.yaml:6:",
            "capabilities[2].name",
            "com.example.x:2.0.0 is a duplicate",
            "line 5",
        ],
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_what_is_known() {
    says(
        &message(with("timeout_ms: 5")),
        &["capabilities.yaml:4: capabilities[0].timeout_ms: unknown key", "timeoutMs"],
    );
    says(
        &message(parse("version: 1\ncapabilities: []\nname: x\n")),
        &["yaml:3: name: unknown key", "namespace"],
    );
    says(&message(with("rateLimit: { requests: 1, period: 1s, per: 2 }")), &["rateLimit.per", "burst"]);
    says(&message(with("retryPolicy:\n  attempts: 2")), &["yaml:5:", "retryPolicy.attempts", "maxAttempts"]);
    let mistakes = with("inputSchema: { $file: a.json, type: object }").unwrap_err();
    says(&mistakes.0[0].to_string(), &["inputSchema.type: unknown key", "accepted: $file"]);
    says(
        &message(parse("version: 1\ncapabilities: []\ntransports: [{ kind: amp, topic: t }]\n")),
        &["transports[0].topic"],
    );
}

#[test]
fn a_mode_is_one_of_two() {
    let read = |text: &str| with(&format!("command: [a]\n{text}"));
    let mode = |text: &str| read(text).unwrap().capabilities[0].mode;
    assert_eq!(mode(""), CommandMode::PerCall);
    assert_eq!(mode("mode: per-call"), CommandMode::PerCall);
    assert_eq!(mode("mode: persistent"), CommandMode::Persistent);
    says(&message(read("mode: warm")), &["capabilities[0].mode", "\"warm\"", "per-call or persistent"]);
}

#[test]
fn a_wrong_type_is_refused_at_its_line() {
    for (line, parts) in [
        ("since: 1.1", ["capabilities[0].since", "1.1 is a float (put it in quotes)"]),
        ("version: 2.0", ["capabilities[0].version", "2.0 is a float (put it in quotes)"]),
        ("version: 2", ["capabilities[0].version", "2 is an integer (put it in quotes)"]),
        ("version: two", ["capabilities[0].version", "\"two\""]),
        ("timeoutMs: 0", ["capabilities[0].timeoutMs: 0 is below 1", "milliseconds, an integer from 1"]),
        ("timeoutMs: \"5\"", ["capabilities[0].timeoutMs", "is a text"]),
        ("timeoutMs: 1.5", ["capabilities[0].timeoutMs", "1.5 is a float"]),
        ("timeoutMs: 99999999999", ["capabilities[0].timeoutMs", "is above"]),
        ("idempotent: yes", ["capabilities[0].idempotent", "\"yes\" is a text"]),
        (
            "idempotency: by-key",
            ["capabilities[0].idempotency: \"by-key\" is no kind of idempotency", "by-id"],
        ),
        (
            "idempotency: by-id\nidempotent: true",
            ["capabilities[0].idempotency: it stands beside idempotent: true", "one of both"],
        ),
        ("description:", ["capabilities[0].description", "the value is empty"]),
        ("command: ./run", ["capabilities[0].command", "a list"]),
        ("mode: persistent", ["capabilities[0].mode", "mode beside command"]),
        ("command: []", ["capabilities[0].command", "an empty list"]),
        ("command: [./run, 7]", ["capabilities[0].command[1]", "7 is an integer (put it in quotes)"]),
        ("concurrency: 0", ["capabilities[0].concurrency", "0 is below 1"]),
        ("permissions: [[]]", ["capabilities[0].permissions[0]", "this is a list"]),
        ("rateLimit: { requests: 1, period: 1w }", ["capabilities[0].rateLimit.period", "no period"]),
        ("rateLimit: { period: 1m }", ["capabilities[0].rateLimit.requests", "missing"]),
        ("retryPolicy: { backoffMultiplier: 0.5 }", ["capabilities[0].retryPolicy.backoffMultiplier", "0.5"]),
        (
            "retryPolicy: { initialDelayMs: 9, maxDelayMs: 3 }",
            ["capabilities[0].retryPolicy.maxDelayMs", "3 is below"],
        ),
        ("supportedRanges: [\"^1.0\"]", ["capabilities[0].supportedRanges[0]", "\"^1.0\""]),
        ("inputSchema: string", ["capabilities[0].inputSchema", "a mapping, true or false"]),
        ("outputSchema: []", ["capabilities[0].outputSchema", "$file: PATH"]),
    ] {
        let message = message(with(line));
        says(&message, &["/etc/agent/capabilities.yaml:4: "]);
        says(&message, &parts);
    }
}

#[test]
fn a_name_needs_a_namespace_or_three_labels() {
    let named = |head: &str, name: &str| parse(&format!("version: 1\n{head}capabilities:\n- name: {name}\n"));
    says(&message(named("", "x")), &["yaml:3:", "capabilities[0].name", "neither namespace nor agent"]);
    says(&message(named("", "a.x")), &["capabilities[0].name", "\"a.x\"", "three such words"]);
    says(&message(named("namespace: com.example\n", "-x")), &["yaml:4:", "capabilities[0].name"]);
    says(&message(named("agent: pr-reviewer\n", "a.b.c")), &["yaml:2: agent:", "agent://<id>"]);
    says(&message(named("namespace: com\n", "a.b.c")), &["yaml:2: namespace:", "com.example"]);
    let derived = named("agent: agent://a.b\n", "x").unwrap();
    assert_eq!(derived.capabilities[0].id.to_string(), "agent.a.b.x:1.0.0");
}

#[test]
fn what_is_required_has_a_name_a_range_and_the_schemas_it_was_built_against() {
    let requires = |items: &str| parse(&format!("version: 1\nnamespace: com.example\nrequires:\n{items}"));
    let text = "- name: org.example.lint\n  version: \">=2.0.0 <3.0.0\"\n  inputSchema: { type: object }\n\
                - { name: org.example.lint, version: \"1.0\", outputSchema: true }\n- { name: here, outputSchema: true }\n";
    let declaration = requires(text).unwrap();
    assert!(declaration.capabilities.is_empty() && declaration.warnings.is_empty(), "{declaration:?}");
    let [lint, older, here] = &declaration.requires[..] else { panic!("{declaration:?}") };
    assert_eq!((lint.name.as_str(), lint.line), ("org.example.lint", 4));
    assert_eq!(lint.version.as_ref().unwrap().to_string(), ">=2.0.0 <3.0.0");
    assert_eq!(lint.input_schema.as_ref().unwrap().bytes, br#"{"type":"object"}"#);
    assert!(older.version.as_ref().unwrap().matches(&"1.0.0".parse().unwrap()));
    assert_eq!((here.name.as_str(), &here.version), ("com.example.here", &None));

    let bare = requires("- name: org.example.lint\n").unwrap();
    says(&bare.warnings[0], &["yaml:4: requires[0]:", "org.example.lint has no schema"]);
    for (items, parts) in [
        ("- {}\n", ["yaml:4: requires[0].name: missing", "three such words"]),
        ("- { name: a.b.c, version: ^1.0 }\n", ["yaml:4: requires[0].version:", "a range as a text"]),
        (
            "- { name: a.b.c, command: [x] }\n",
            ["requires[0].command: unknown key", "name, version, inputSchema"],
        ),
        ("- { name: a.b.c, inputSchema: 3 }\n", ["requires[0].inputSchema", "a JSON Schema"]),
        (
            "- { name: a.b.c, outputSchema: true }\n- { name: a.b.c }\n",
            ["yaml:5: requires[1].name:", "the first is in line 4"],
        ),
        ("  a.b.c: 1\n", ["yaml:4: requires: this is a mapping", "a list"]),
    ] {
        says(&message(requires(items)), &parts);
    }
}

#[test]
fn a_file_without_its_parts_or_of_another_version_is_refused() {
    says(&message(parse("version: 1\n")), &["capabilities", "missing"]);
    says(&message(parse("capabilities: []\n")), &["version", "missing", "the integer 1"]);
    says(&message(parse("version: 2\ncapabilities: []\n")), &["yaml:1: version: 2 is an integer"]);
    says(&message(parse("version: 1\ncapabilities:\n- {}\n")), &["yaml:3: capabilities[0].name: missing"]);
    says(
        &message(parse("version: 1\ncapabilities:\n  x: y\n")),
        &["yaml:3: capabilities: this is a mapping"],
    );
    says(&message(parse("- 1\n")), &["yaml:1: this is a list"]);
}

#[test]
fn text_that_is_no_tree_is_refused_with_its_line() {
    for (text, parts) in [
        ("", ["capabilities.yaml:", "an empty document"]),
        ("version: 1\nversion: 1\n", ["capabilities.yaml:2:", "is a duplicate; the first is in line 1"]),
        ("version: [1\n", ["capabilities.yaml:", "not YAML"]),
        ("a: 1\n--- \nb: 1\n", ["capabilities.yaml:", "a second document"]),
        ("a: !!binary x\n", ["capabilities.yaml:1:", "a tag"]),
        ("a: *b\n", ["capabilities.yaml:1:", "not YAML"]),
        ("a: &b [*b]\n", ["capabilities.yaml:1:", "alias"]),
        ("? [a]\n: 1\n", ["capabilities.yaml:1:", "a key that is no text"]),
        ("1: 1\n", ["capabilities.yaml:1:", "a key that is no text"]),
        ("a: .inf\n", ["capabilities.yaml:1:", "no such number"]),
        ("a: 99999999999999999999\n", ["capabilities.yaml:1:", "beyond 64 bits"]),
    ] {
        let mistakes = parse(text).expect_err(text).to_string();
        says(&mistakes, &parts);
    }
}

#[test]
fn aliases_and_nesting_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    says(&message(parse(&bomb)), &["more than 100000 values"]);
    let deep = format!("a: {}{}", "[".repeat(110), "]".repeat(110));
    says(&message(parse(&deep)), &["nested deeper than 100"]);
    let mut chain = format!("a0: &a0 {}{}\n", "[".repeat(60), "]".repeat(60));
    chain.push_str(&format!("a1: &a1 {}*a0{}\n", "[".repeat(60), "]".repeat(60)));
    says(&message(parse(&chain)), &["nested deeper than 100, aliases expanded"]);
    let anchors: String = (0..90).map(|n| format!("&a{n} [")).collect();
    let wide = format!("a: {anchors}{}{}", "1, ".repeat(5_000), "]".repeat(90));
    says(&message(parse(&wide)), &["more than 100000 values"]);
}

#[test]
fn an_alias_stands_for_what_it_names() {
    let text = "version: 1\nnamespace: com.example\ncapabilities:\n\
                - { name: x, command: [a], inputSchema: &s { type: object } }\n- { name: y, command: [a], inputSchema: *s }\n";
    let declaration = parse(text).unwrap();
    let schemas: Vec<_> =
        declaration.capabilities.iter().map(|d| d.input_schema.as_ref().unwrap().bytes.clone()).collect();
    assert_eq!(schemas[0], schemas[1]);
}

#[test]
fn an_inline_schema_s_numbers_and_texts_keep_their_kind() {
    let text =
        "inputSchema:\n  enum: [1, -1, 1.0, 1e3, 0x10, \"1\", yes, no, true, ~, 1.5.0, .5, 2026-01-01, '']\n";
    let declaration = with(&format!("command: [a]\n{text}")).unwrap();
    let bytes = &declaration.capabilities[0].input_schema.as_ref().unwrap().bytes;
    assert_eq!(
        std::str::from_utf8(bytes).unwrap(),
        r#"{"enum":[1,-1,1.0,1000.0,16,"1","yes","no",true,null,"1.5.0",0.5,"2026-01-01",""]}"#
    );
}

#[test]
fn a_schema_file_is_taken_byte_for_byte_and_its_mistakes_carry_its_own_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capabilities.yaml");
    let text = "version: 1\nnamespace: com.example\ncapabilities:\n  - name: x\n    command: [a]\n    inputSchema:\n      \
                $file: s/in.json\n";
    std::fs::write(&path, text).unwrap();
    says(
        &message(Declaration::load(&path)),
        &["capabilities.yaml:7: capabilities[0].inputSchema.$file:", "in.json: cannot be opened"],
    );
    std::fs::create_dir(dir.path().join("s")).unwrap();
    let file = dir.path().join("s/in.json");
    let schema = b"{ \"type\" :\n \"object\" }\n";
    std::fs::write(&file, schema).unwrap();
    let declared = Declaration::load(&path).unwrap().capabilities.remove(0);
    let source = declared.input_schema.unwrap();
    assert_eq!((source.bytes.as_slice(), source.file.as_path()), (schema.as_slice(), file.as_path()));
    std::fs::write(&file, "{\n\"type\": object }").unwrap();
    says(&message(Declaration::load(&path)), &["s/in.json:2:", "inputSchema.$file", "not JSON"]);
    std::fs::write(&file, "3").unwrap();
    says(&message(Declaration::load(&path)), &["s/in.json:1:", "no schema"]);
    std::fs::write(&file, " ".repeat(300_000)).unwrap();
    says(&message(Declaration::load(&path)), &["too large", "262144 bytes"]);
}

#[test]
fn a_declaration_that_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capabilities.yaml");
    says(&message(Declaration::load(&path)), &["capabilities.yaml: cannot be opened"]);
    std::fs::write(&path, "# x\n".repeat(300_000)).unwrap();
    says(&message(Declaration::load(&path)), &["too large", "1048576 bytes"]);
    std::fs::write(&path, b"version: 1\n\xff\n").unwrap();
    says(&message(Declaration::load(&path)), &["capabilities.yaml:2: not UTF-8"]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let mistakes = with("timeoutMs: 0\nsince: 1.1\nx: 1").unwrap_err();
    assert_eq!(mistakes.0.len(), 3, "{mistakes}");
    assert_eq!(mistakes.to_string().lines().count(), 3);
}

#[test]
fn a_schema_profile_is_the_capability_s_or_the_file_s_or_strict() {
    let profiles = |text: &str| -> Vec<SchemaProfile> {
        parse(text).unwrap().capabilities.iter().map(|declared| declared.schema_profile).collect()
    };
    let capabilities = "capabilities:\n  - name: com.example.x\n  - { name: com.example.y, schemaProfile: full }\n  - { name: com.example.z, schemaProfile: strict }\n";
    let (strict, full) = (SchemaProfile::Strict, SchemaProfile::Full);
    assert_eq!(profiles(&format!("version: 1\n{capabilities}")), [strict, full, strict]);
    assert_eq!(profiles(&format!("version: 1\nschemaProfile: full\n{capabilities}")), [full, full, strict]);
    says(
        &message(with("schemaProfile: loose")),
        &["capabilities[0].schemaProfile: \"loose\" is no profile; accepted: strict or full"],
    );
    says(&message(with("schemaProfile: true")), &["schemaProfile", "true is a boolean"]);
}

#[test]
fn reading_a_declaration_does_not_hold_its_schemas_to_their_profile() {
    let declared = with("inputSchema: { type: strng, unknown: 1 }").unwrap().capabilities.remove(0);
    assert_eq!(declared.input_schema.unwrap().bytes, br#"{"type":"strng","unknown":1}"#);
}
