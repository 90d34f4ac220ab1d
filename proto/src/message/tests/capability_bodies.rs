//! Tests rules of CAP_QUERY, CAP_DECLARE and CAP_INVOKE that their shape cannot express.

use super::*;
use crate::capability::{CapabilityId, Version};
use crate::limits::RETRY_ON_MAX;

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn a_query_is_filled_in_with_the_defaults() {
    let body = json(r#"{"filter": {"type": "a.b.c"}}"#);
    let question = Query::decode(&body).unwrap().question().unwrap();
    assert_eq!(question.pattern.to_string(), "a.b.c");
    assert_eq!((question.limit, question.order, question.range), (100, Order::NewestFirst, None));
}

#[test]
fn capability_wins_over_its_alias_and_the_limit_is_capped() {
    let body = json(
        r#"{"filter": {"capability": "a.b.*", "type": "x.y.z", "version": ">=1.0"}, "limit": 5000,
            "order": "oldest-first"}"#,
    );
    let question = Query::decode(&body).unwrap().question().unwrap();
    assert_eq!(question.pattern.to_string(), "a.b.*");
    assert_eq!((question.limit, question.order), (1000, Order::OldestFirst));
    assert_eq!(question.range.unwrap().to_string(), ">=1.0.0");
}

#[test]
fn queries_that_ask_for_nothing_are_4001() {
    for (filter, says) in [
        (r#"{"filter": {}}"#, "`capability` or `type`"),
        (r#"{"filter": {"version": ">=1.0"}}"#, "`capability` or `type`"),
        (r#"{"filter": {"capability": "a.b"}}"#, "`capability`: a capability name has at least 3 labels"),
        (r#"{"filter": {"type": "a_b.c.d"}}"#, "`type`: a label"),
        (r#"{"filter": {"capability": "a.b.c", "version": "^1.0"}}"#, "`^` is not accepted"),
        (r#"{"filter": {"capability": "a.b.c"}, "limit": 0}"#, "`limit` is at least 1"),
    ] {
        let body = json(filter);
        let error = Query::decode(&body).unwrap().question().unwrap_err();
        assert_eq!(error.code(), Code::BAD_REQUEST);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// The name and the wish that a call's fields stand for, or the text of the 4001.
fn identity(fields: &str) -> Result<(String, Option<Want>), String> {
    let body = json(&format!(r#"{{{fields}, "params": null}}"#));
    match Invoke::decode(&body).unwrap().identity() {
        Ok(identity) => Ok((identity.name.into_owned(), identity.want)),
        Err(error) => {
            assert_eq!(error.code(), Code::BAD_REQUEST);
            Err(error.to_string())
        }
    }
}

#[test]
fn a_call_is_identified_by_id_or_by_name() {
    let exact = Some(Want::Exact(version("2.1.0")));
    for fields in [
        r#""id": "a.b.c:2.1""#,
        r#""id": "a.b.c:2.1", "capability": "a.b.c""#,
        r#""id": "a.b.c:2.1", "type": "a.b.c", "version": "2.1.0""#,
        r#""id": "a.b.c:2.1", "capability": "a.b.c", "type": "x""#,
        r#""capability": "a.b.c", "version": "2.1""#,
        r#""type": "a.b.c", "version": "2.1""#,
        r#""capability": "a.b.c", "type": "x", "version": "2.1""#,
    ] {
        assert_eq!(identity(fields), Ok(("a.b.c".into(), exact.clone())), "{fields}");
    }
    let Ok((_, Some(Want::Negotiate(negotiate)))) = identity(
        r#""capability": "a.b.c", "negotiate": {"preferred": "2.0", "acceptable": ["1.5"], "range": "<2.0"}"#,
    ) else {
        panic!("a negotiation")
    };
    assert_eq!((negotiate.preferred, negotiate.acceptable), (Some(version("2.0")), vec![version("1.5")]));
    assert_eq!(negotiate.range.unwrap().to_string(), "<2.0.0");
}

#[test]
fn a_session_may_stand_for_the_version() {
    let mut invoke = Invoke::new(&[0xf6]);
    invoke.capability = Some("a.b.c".into());
    invoke.session = Some(SessionRef { session_id: SessionId([1; 16]), session_scope: false });
    let mut body = Vec::new();
    invoke.encode(&mut body);
    let invoke = Invoke::decode(&body).unwrap();
    assert_eq!(invoke.identity().unwrap(), Identity { name: "a.b.c".into(), want: None });
}

#[test]
fn calls_without_one_clear_identity_are_4001() {
    let negotiate = r#""negotiate": {"range": ">=1.0"}"#;
    for (fields, says) in [
        (r#""x": 1"#.to_owned(), "needs `id`"),
        (r#""capability": "a.b.c""#.to_owned(), "needs `id`"),
        (r#""version": "1.0""#.to_owned(), "needs `id`"),
        (negotiate.to_owned(), "needs `id`"),
        (format!(r#""id": "a.b.c:1.0", {negotiate}"#), "`id` names a version"),
        (format!(r#""capability": "a.b.c", "version": "1.0", {negotiate}"#), "`version` names a version"),
        (r#""id": "a.b.c:1.0", "capability": "a.b.d""#.to_owned(), "`capability` disagrees"),
        (r#""id": "a.b.c:1.0", "type": "a.b.d""#.to_owned(), "`type` disagrees"),
        (r#""id": "a.b.c:1.0", "version": "1.0.1""#.to_owned(), "`version` disagrees"),
        (r#""id": "a.b.c""#.to_owned(), "`id`: a capability id is"),
        (r#""id": "a.b.c:1.0", "version": "x""#.to_owned(), "`version`: "),
        (r#""capability": "a", "version": "1.0""#.to_owned(), "`capability`: "),
        (r#""type": "a", "version": "1.0""#.to_owned(), "`type`: "),
        (r#""capability": "a.b.c", "version": ">=1.0""#.to_owned(), "`version`: "),
        (r#""capability": "a.b.c", "negotiate": {"preferred": "1"}"#.to_owned(), "`preferred`: "),
        (r#""capability": "a.b.c", "negotiate": {"acceptable": ["1"]}"#.to_owned(), "`acceptable`: "),
        (r#""capability": "a.b.c", "negotiate": {"range": "1.x"}"#.to_owned(), "`range`: "),
    ] {
        let said = identity(&fields).expect_err(&fields);
        assert!(said.contains(says), "{fields}: {said}");
    }
}

#[test]
fn acceptable_versions_are_bounded() {
    let versions = |count| vec!["\"1.0\""; count].join(", ");
    let fields =
        |count| format!(r#""capability": "a.b.c", "negotiate": {{"acceptable": [{}]}}"#, versions(count));
    assert!(identity(&fields(limits::ACCEPTABLE_MAX)).is_ok());
    assert!(identity(&fields(limits::ACCEPTABLE_MAX + 1)).unwrap_err().contains("more than 64"));
}

#[test]
fn a_descriptor_keeps_what_we_do_not_know_and_is_passed_on_sorted() {
    // {"x": {"b": 1, "a": 2}, "id": "a.b.c:1.0"}, keys out of order and a long head.
    let body = hex("a2 6178 a2 6162 1801 6161 02 626964 69612e622e633a312e30");
    let descriptor = Descriptor::decode(&body).unwrap();
    assert_eq!(descriptor.id, "a.b.c:1.0.0".parse::<CapabilityId>().unwrap());
    assert_eq!(descriptor.as_bytes(), json(r#"{"x": {"a": 2, "b": 1}, "id": "a.b.c:1.0"}"#));
    assert_eq!(descriptor.field("x"), Some(&json(r#"{"a": 2, "b": 1}"#)[..]));
    assert_eq!(descriptor.field("y"), None);
    assert_eq!(Descriptor::decode(descriptor.as_bytes()).unwrap(), descriptor);
}

#[test]
fn a_descriptor_that_contradicts_itself_is_4001() {
    let many = vec!["\"1.0\""; limits::DESCRIPTOR_RANGES_MAX + 1].join(", ");
    for (fields, says) in [
        (r#""id": "a.b.c""#.to_owned(), "`id`: "),
        (r#""id": "a.b.c:1.0", "name": "a.b.d""#.to_owned(), "`name` disagrees"),
        (r#""id": "a.b.c:1.0", "version": "1.1""#.to_owned(), "`version` disagrees"),
        (r#""id": "a.b.c:1.0", "version": "one""#.to_owned(), "`version`: "),
        (r#""id": "a.b.c:1.0", "supported_ranges": ["1.x"]"#.to_owned(), "`supported_ranges`: "),
        (r#""id": "a.b.c:1.0", "deprecated_ranges": [""]"#.to_owned(), "`deprecated_ranges`: "),
        (r#""id": "a.b.c:1.0", "deprecated_versions": ["<1.0"]"#.to_owned(), "`deprecated_versions`: "),
        (r#""id": "a.b.c:1.0", "min_schema_version": "v1"#.to_owned() + "\"", "`min_schema_version`: "),
        (r#""id": "a.b.c:1.0", "min_schema_version": "1.1""#.to_owned(), "above the descriptor's own"),
        (format!(r#""id": "a.b.c:1.0", "supported_ranges": [{many}]"#), "more than 64"),
    ] {
        let body = json(&format!("{{{fields}}}"));
        let error = Descriptor::decode(&body).unwrap_err();
        assert_eq!(error.code(), Code::BAD_REQUEST, "{fields}");
        assert!(error.to_string().contains(says), "{fields}: {error}");
        let declared = json(&format!(r#"{{"capabilities": [{{{fields}}}]}}"#));
        let declare = Declare::decode(&declared).unwrap();
        assert_eq!(declare.descriptors().unwrap_err(), error, "{fields}");
    }
    let id = r#"{"id": "a.b.c:2.1", "name": "a.b.c", "version": "2.1.0"}"#;
    assert!(Descriptor::decode(&json(id)).is_ok());
    assert_eq!(Descriptor::decode(&json("{}")).unwrap_err().code(), Code::INVALID_MESSAGE);
    assert_eq!(Descriptor::decode(&[0xa1]).unwrap_err().code(), Code::INVALID_MESSAGE);
}

#[test]
fn since_counts_where_it_is_a_version_of_the_capabilitys_own_line() {
    let since = |text: &str| {
        let body = json(&format!(r#"{{"id": "a.b.c:2.1", "since": "{text}"}}"#));
        Descriptor::decode(&body).unwrap().served.since
    };
    assert_eq!(since("1.5"), Some(version("1.5.0")));
    assert_eq!(since("2.1.0"), Some(version("2.1.0")));
    for other in ["2.2.0", "last spring", ""] {
        assert_eq!(since(other), None, "{other:?}");
    }
}

#[test]
fn a_draft_becomes_a_deterministic_descriptor_with_all_its_parts() {
    let id: CapabilityId = "a.b.c:2.1".parse().unwrap();
    let document = br#"{"type":"object"}"#;
    let draft = DescriptorDraft {
        input_schema: Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document)))),
        output_schema: Some(SchemaSource::Url("https://s.example/out.json".into())),
        supported_ranges: vec![">=2.0 <3.0".parse().unwrap()],
        deprecated_ranges: vec!["<2.1".parse().unwrap()],
        min_schema_version: Some(version("2.0")),
        notes: Some(json("\"n\"")),
        description: Some("Does it.".into()),
        category: Some("test".into()),
        since: Some("1.0".into()),
        idempotent: Some(true),
        timeout_ms: Some(500),
        permissions: vec!["p".into()],
        rate_limit: Some(RateLimit { requests: 10, period: "1m".into(), burst: Some(2) }),
        retry_policy: Some(RetryPolicy {
            max_attempts: Some(3),
            backoff_multiplier: Some(2.0),
            initial_delay_ms: Some(100),
            max_delay_ms: Some(1000),
            retry_on: vec!["TIMEOUT".into()],
        }),
        static_hash: Some([1; 32]),
        lineage: Some([2; 32]),
        ..DescriptorDraft::new(id.clone())
    };
    let descriptor = draft.finish().unwrap();
    assert!(cbor::is_deterministic(descriptor.as_bytes()));
    assert_eq!(descriptor.id, id);
    assert_eq!(descriptor.served.supported_ranges, draft.supported_ranges);
    assert_eq!(descriptor.served.deprecated_ranges, draft.deprecated_ranges);
    assert_eq!(descriptor.served.min_schema_version, draft.min_schema_version);
    assert_eq!(
        (descriptor.input_schema.clone(), &descriptor.output_schema),
        (draft.input_schema, &draft.output_schema)
    );
    assert_eq!((descriptor.idempotent, descriptor.timeout_ms), (true, Some(500)));
    assert_eq!((&descriptor.permissions, &descriptor.rate_limit), (&draft.permissions, &draft.rate_limit));
    assert_eq!(descriptor.retry_policy, draft.retry_policy);
    assert_eq!((&descriptor.description, &descriptor.category), (&draft.description, &draft.category));
    assert_eq!(descriptor.served.since, Some(version("1.0")));
    assert_eq!((&descriptor.since, descriptor.static_hash), (&draft.since, draft.static_hash));
    assert_eq!((descriptor.lineage, descriptor.field("notes")), (draft.lineage, draft.notes.as_deref()));
    assert!(!descriptor.served.deprecated);
    let Some(SchemaSource::Ref(schema)) = &descriptor.input_schema else { panic!("a reference") };
    assert_eq!(schema.inline_document().as_deref(), Some(&document[..]));
    assert!(schema.hash.fits(document));
}

#[test]
fn a_deprecated_draft_warns_for_every_version_it_serves() {
    let draft = DescriptorDraft {
        deprecated: true,
        supported_ranges: vec![">=1.0".parse().unwrap()],
        ..DescriptorDraft::new("a.b.c:2.1".parse().unwrap())
    };
    let served = draft.finish().unwrap().served;
    assert!(served.deprecated && served.deprecates(&version("1.5")));
}

#[test]
fn a_retry_policy_of_another_making_is_read_as_far_as_it_goes() {
    let body = json(
        r#"{"id": "a.b.c:1.0", "retry_policy": {"max_attempts": "many", "backoff_multiplier": 2, "retry_on": [true],
            "initial_delay_ms": 5}}"#,
    );
    let policy = Descriptor::decode(&body).unwrap().retry_policy.unwrap();
    let expected =
        RetryPolicy { backoff_multiplier: Some(2.0), initial_delay_ms: Some(5), ..RetryPolicy::default() };
    assert_eq!(policy, expected);
}

#[test]
fn retry_on_names_errors_by_code_or_by_name_and_not_without_end() {
    let retry_on = |list: &str| {
        let body = json(&format!(r#"{{"id": "a.b.c:1.0", "retry_policy": {{"retry_on": {list}}}}}"#));
        Descriptor::decode(&body).unwrap().retry_policy.unwrap().retry_on
    };
    assert_eq!(retry_on(r#"[5003, "rate_limit", "5002"]"#), ["5003", "rate_limit", "5002"]);
    assert_eq!(retry_on(&format!("[{}5003]", "5002, ".repeat(1_000))), vec!["5002"; RETRY_ON_MAX]);
}

#[test]
fn a_descriptor_says_whether_its_providers_remember_ids() {
    let id = || "org.example.pay:1.0.0".parse().unwrap();
    let draft = |idempotent, by_id| DescriptorDraft { idempotent, by_id, ..DescriptorDraft::new(id()) };
    let remembered = draft(None, true).finish().unwrap();
    assert!(remembered.by_id && !remembered.idempotent);
    assert_eq!(Descriptor::decode(remembered.as_bytes()).unwrap(), remembered);
    // What does no harm twice needs no memory.
    let descriptor = draft(Some(true), true).finish().unwrap();
    assert!(descriptor.idempotent && !descriptor.by_id);
    assert!(!draft(Some(false), false).finish().unwrap().by_id);
    // A later word promises nothing to this version, and is passed on.
    let text = remembered.as_bytes().windows(5).position(|bytes| bytes == b"by-id").unwrap();
    let mut later = remembered.as_bytes().to_vec();
    later[text..text + 5].copy_from_slice(b"other");
    let later = Descriptor::decode(&later).unwrap();
    assert!(!later.by_id && later.field("idempotency").is_some());
}

#[test]
fn a_newer_format_of_descriptors_is_4905() {
    let check = |version: &str| {
        let body = json(&format!(
            r#"{{"capabilities": [{{"id": "a.b.c:1.0"}}], "capabilities_version": "{version}"}}"#
        ));
        Declare::decode(&body).unwrap().check_format().map_err(NewerMajor::code)
    };
    assert_eq!((check("1.0"), check("1.7"), check("1")), (Ok(()), Ok(()), Ok(())));
    assert_eq!((check("2.0"), check("x"), check("")), (Err(Code::CONTRACT_ERROR), check("y"), check("-1")));
    let silent = json(r#"{"capabilities": [{"id": "a.b.c:1.0"}]}"#);
    assert_eq!(Declare::decode(&silent).unwrap().check_format(), Ok(()));
}

#[test]
fn fields_that_nobody_here_reads_have_their_shape_all_the_same() {
    for (fields, is_taken) in [
        (r#""instructions": ["a", "b"]"#, true),
        (r#""instructions": {"max_attempts": 3}"#, false),
        (r#""validators": {"input": {"vendor": "v", "version": 1, "more": null}, "other": 1}"#, true),
        (r#""validators": {"input": {"vendor": "v", "version": "1"}}"#, false),
        (r#""validators": {"output": {"version": 1}}"#, false),
        (r#""validators": []"#, false),
    ] {
        let body = json(&format!(r#"{{"capabilities": [{{"id": "a.b.c:1.0.0", {fields}}}]}}"#));
        let read = Message::read(Type::CapDeclare, &body);
        assert_eq!(read.is_ok(), is_taken, "{fields}: {read:?}");
        assert_eq!(Message::decode(Type::CapDeclare, &body).is_ok(), is_taken, "{fields}");
    }
}

#[test]
fn descriptors_are_declared_by_their_own_bytes() {
    let descriptor = DescriptorDraft::new("a.b.c:1.0".parse().unwrap()).finish().unwrap();
    let mut body = Vec::new();
    Declare::new(vec![descriptor.as_bytes()], Some("next".into())).encode(&mut body);
    let declare = Declare::decode(&body).unwrap();
    assert_eq!(declare.descriptors().unwrap(), [descriptor]);
    assert_eq!(declare.next_cursor.as_deref(), Some("next"));
    assert_eq!(declare.capabilities_version.as_deref(), Some(limits::CAPABILITIES_VERSION));
}

#[test]
fn requests_for_a_session_name_what_they_want() {
    let body =
        json(r#"{"op": "negotiate", "capability": "a.b.c", "preferred_version": "2.0", "range": ">=1.0"}"#);
    let Request::Negotiate(request) = Request::decode(&body).unwrap() else { panic!("a negotiation") };
    let (name, Want::Negotiate(negotiate)) = request.want().unwrap() else { panic!("preferences") };
    assert_eq!((name.as_str(), negotiate.preferred), ("a.b.c", Some(version("2.0"))));
    for (fields, says) in [
        (r#""capability": "a.b""#, "`capability`: "),
        (r#""capability": "a.b.c", "preferred_version": "v2""#, "`preferred_version`: "),
        (r#""capability": "a.b.c", "acceptable_versions": ["2"]"#, "`acceptable_versions`: "),
        (r#""capability": "a.b.c", "range": "*""#, "`range`: "),
    ] {
        let body = json(&format!(r#"{{"op": "negotiate", {fields}}}"#));
        let error = Message::decode(Type::Request, &body).unwrap().check_meaning().unwrap_err();
        assert_eq!(error.code(), Code::BAD_REQUEST);
        assert!(error.to_string().contains(says), "{error}");
    }
}
