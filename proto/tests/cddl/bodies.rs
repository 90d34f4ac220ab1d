//! The rules of `cddl/*.cddl`: bodies that PROTOCOL takes, and bodies that it does not, with what the error names.

use capd_proto::cbor;
use capd_proto::cddl::Mismatch;
use capd_proto::cddl::bodies::{Bodies, BodyError, Shape, bodies};

use super::edn;

const ID: &str = "h'000102030405060708090a0b0c0d0e0f'";

fn bytes(instance: &str) -> Vec<u8> {
    let bytes = edn(&instance
        .replace("$id", ID)
        .replace("$h32", &format!("h'{}'", "ab".repeat(32)))
        .replace("$h64", &format!("h'{}'", "ab".repeat(64))));
    cbor::check(&bytes).expect("test bodies are well-formed");
    bytes
}

fn verdict(rule: &str, bytes: &[u8]) -> Result<(), Mismatch> {
    let program = bodies().program();
    program.run(program.rule(rule).unwrap_or_else(|| panic!("no rule {rule}")), bytes)
}

fn takes(rule: &str, instances: &[&str]) {
    for instance in instances {
        assert_eq!(verdict(rule, &bytes(instance)), Ok(()), "{rule}: {instance}");
    }
}

/// Each instance with the path of its error and a part of what the error says was expected there.
fn refuses(rule: &str, instances: &[(&str, &str, &str)]) {
    for (instance, path, expected) in instances {
        let bytes = bytes(instance);
        let mismatch = verdict(rule, &bytes).expect_err(instance);
        assert_eq!(mismatch.path, *path, "{rule}: {instance}: {mismatch}");
        assert!(mismatch.expected.contains(expected), "{rule}: {instance}: {mismatch}");
        assert!(mismatch.offset < bytes.len(), "{rule}: {instance}: {mismatch}");
    }
}

#[test]
fn handshake() {
    takes(
        "handshake-request",
        &[
            "{\"version\": 1, \"max_msg_size\": 1048576}",
            "{\"extensions\": [\"channel-auth\"], \"token\": h'01', \"did\": \"did:key:z\", \"max_msg_size\": 1, \"version\": 1, \"new\": null}",
        ],
    );
    refuses(
        "handshake-request",
        &[
            ("{\"max_msg_size\": 1}", "", "\"version\""),
            ("{\"version\": 1}", "", "\"max_msg_size\""),
            ("{\"version\": 2, \"max_msg_size\": 1}", "/version", "1"),
            ("{\"version\": 1, \"max_msg_size\": -1}", "/max_msg_size", "uint"),
            ("{\"version\": 1, \"max_msg_size\": 1, \"token\": \"t\"}", "/token", "bstr"),
            ("{\"version\": 1, \"max_msg_size\": 1, \"extensions\": [\"a\", 1]}", "/extensions/1", "tstr"),
            ("{\"version\": 1, \"max_msg_size\": 1, 5: 1}", "/5", "nothing more"),
            ("[]", "", "a map"),
        ],
    );
    takes(
        "handshake-response",
        &[
            "{\"version\": 1, \"accepted\": true, \"max_msg_size\": 5}",
            "{\"version\": 1, \"accepted\": false, \"max_msg_size\": 5, \"error\": \"no\", \"extensions\": []}",
        ],
    );
    refuses(
        "handshake-response",
        &[
            ("{\"version\": 1, \"max_msg_size\": 5}", "", "\"accepted\""),
            ("{\"version\": 1, \"accepted\": 1, \"max_msg_size\": 5}", "/accepted", "bool"),
            ("{\"version\": 1, \"accepted\": true, \"max_msg_size\": 5, \"error\": null}", "/error", "tstr"),
        ],
    );
}

#[test]
fn goaway_and_error_frames() {
    takes(
        "goaway",
        &["{\"reason\": 0}", "{\"reason\": 0, \"message\": \"bye\", \"last_id\": $id, \"x\": 1(2)}"],
    );
    refuses(
        "goaway",
        &[
            ("{}", "", "\"reason\""),
            ("{\"reason\": 0, \"last_id\": h'00'}", "/last_id", ".size 16"),
            ("{\"reason\": \"0\"}", "/reason", "uint"),
        ],
    );
    takes(
        "error-frame",
        &["{\"code\": 1001, \"message\": \"m\"}", "{\"code\": 1001, \"message\": \"m\", \"msg_id\": $id}"],
    );
    refuses(
        "error-frame",
        &[
            ("{\"code\": 1001}", "", "\"message\""),
            ("{\"code\": 1001, \"message\": \"m\", \"msg_id\": \"0123456789abcdef\"}", "/msg_id", "bstr"),
        ],
    );
}

#[test]
fn envelope() {
    let fields = "\"v\": 1, \"id\": $id, \"typ\": 34, \"ts\": 1, \"ttl\": 0, \"from\": \"did:key:a\", \"to\": \"did:key:b\", \"sig\": h''";
    let with = |more: &str| format!("{{{fields}, {more}}}");
    let enc = "\"enc\": {\"alg\": \"X25519-XSalsa20-Poly1305\", \"mode\": \"authcrypt\", \"nonce\": h'000000000000000000000000000000000000000000000000', \"ciphertext\": h''}";
    takes(
        "envelope",
        &[
            &with("\"body\": null"),
            &with(enc),
            &with(
                "\"body\": {}, \"ext\": {\"traceparent\": 5}, \"reply_to\": h'', \"thread_id\": h'', \"later\": 1",
            ),
        ],
    );
    takes("envelope", &[&with("\"body\": 1").replace("\"did:key:b\"", "[\"did:key:b\", \"did:key:c\"]")]);
    let bad = |from: &str, to: &str| with("\"body\": 1").replace(from, to);
    refuses(
        "envelope",
        &[
            (&with("\"x\": 1"), "", "\"enc\""),
            (&with(&format!("\"body\": 1, {enc}")), "/enc", "nothing more"),
            (&with(&enc.replace("authcrypt", "anoncrypt")), "/enc/mode", "\"authcrypt\""),
            (&with(&enc.replace("h'0000", "h'00")), "/enc/nonce", ".size 24"),
            (&with(&enc.replace("XSalsa20", "AES")), "/enc/alg", "X25519"),
            (&with("\"body\": 1, \"ext\": {1: 2}"), "/ext/1", "nothing more"),
            (&with("\"body\": 1, \"reply_to\": \"x\""), "/reply_to", "bstr"),
            (&bad("\"v\": 1, ", ""), "", "\"v\""),
            (&bad("$id", "h'00'"), "/id", ".size 16"),
            (&bad("\"typ\": 34", "\"typ\": \"CAP_INVOKE\""), "/typ", "uint"),
            (&bad("\"ttl\": 0", "\"ttl\": -1"), "/ttl", "uint"),
            (&bad("\"did:key:b\"", "[]"), "/to", "one more element"),
            (&bad("\"did:key:b\"", "[\"did:key:b\", 1]"), "/to/1", "tstr"),
            (&bad("\"sig\": h''", "\"sig\": null"), "/sig", "bstr"),
        ],
    );
}

#[test]
fn bodies_that_carry_anything() {
    for rule in ["ping-body", "pong-body", "ack-body"] {
        takes(rule, &["null", "{}", "h'00'", "{1: [1(2)]}"]);
    }
}

#[test]
fn progress() {
    takes("processing-body", &["{}", "{\"status_text\": \"s\", \"eta_ms\": 5, \"cancellable\": true}"]);
    refuses(
        "processing-body",
        &[
            ("{\"eta_ms\": 1.5}", "/eta_ms", "uint"),
            ("{\"cancellable\": \"no\"}", "/cancellable", "bool"),
            ("null", "", "a map"),
        ],
    );
    takes("progress-body", &["{\"progress_pct\": 0}", "{\"progress_pct\": 100, \"note\": \"n\"}"]);
    refuses(
        "progress-body",
        &[
            ("{}", "", "\"progress_pct\""),
            ("{\"progress_pct\": 101}", "/progress_pct", "0..100"),
            ("{\"progress_pct\": 50.0}", "/progress_pct", "0..100"),
        ],
    );
    takes(
        "input-required-body",
        &["{\"prompt\": \"p\"}", "{\"prompt\": \"p\", \"options\": [\"a\"], \"timeout_ms\": 1}"],
    );
    refuses(
        "input-required-body",
        &[
            ("{}", "", "\"prompt\""),
            ("{\"prompt\": 1}", "/prompt", "tstr"),
            ("{\"prompt\": \"p\", \"timeout_ms\": -1}", "/timeout_ms", "uint"),
        ],
    );
}

#[test]
fn error() {
    takes(
        "error-body",
        &[
            "{\"code\": 1, \"category\": \"server\", \"message\": \"\"}",
            "{\"code\": 4004, \"category\": \"client\", \"message\": \"m\", \"details\": {\"violations\": []}, \"retry\": false}",
        ],
    );
    refuses(
        "error-body",
        &[
            ("{\"category\": \"server\", \"message\": \"\"}", "", "\"code\""),
            ("{\"code\": 1, \"category\": \"other\", \"message\": \"\"}", "/category", "\"server\""),
            ("{\"code\": 1, \"category\": \"server\", \"message\": \"\", \"retry\": 1}", "/retry", "bool"),
        ],
    );
}

#[test]
fn hello() {
    takes(
        "hello-body",
        &[
            "{\"versions\": [\"1.0\"]}",
            "{\"versions\": [\"1.0\", \"0.9\"], \"extensions\": [], \"agent_info\": {\"name\": \"n\", \"implementation\": \"i\"}}",
        ],
    );
    refuses(
        "hello-body",
        &[
            ("{}", "", "\"versions\""),
            ("{\"versions\": []}", "/versions", "one more element"),
            ("{\"versions\": [1]}", "/versions/0", "tstr"),
            ("{\"versions\": [\"1.0\"], \"agent_info\": {}}", "/agent_info", "\"name\""),
            ("{\"versions\": [\"1.0\"], \"agent_info\": {\"name\": 1}}", "/agent_info/name", "tstr"),
        ],
    );
    takes("hello-ack-body", &["{\"selected\": \"1.0\"}"]);
    refuses("hello-ack-body", &[("{}", "", "\"selected\""), ("{\"selected\": 1}", "/selected", "tstr")]);
    takes("hello-reject-body", &["{}", "{\"reason\": \"r\"}"]);
    refuses("hello-reject-body", &[("{\"reason\": 1}", "/reason", "tstr")]);
}

#[test]
fn query_and_declare() {
    takes(
        "cap-query-body",
        &[
            "{\"filter\": {}}",
            "{\"filter\": {\"capability\": \"not a name\", \"type\": \"t\", \"version\": \"~1\", \"words\": \"\", \"x\": 1}, \"limit\": 0, \"cursor\": \"\", \"order\": \"oldest-first\"}",
        ],
    );
    refuses(
        "cap-query-body",
        &[
            ("{}", "", "\"filter\""),
            ("{\"filter\": {\"capability\": 1}}", "/filter/capability", "tstr"),
            ("{\"filter\": {\"version\": [1]}}", "/filter/version", "tstr"),
            ("{\"filter\": {\"words\": 1}}", "/filter/words", "tstr"),
            ("{\"filter\": {}, \"limit\": -1}", "/limit", "uint"),
            ("{\"filter\": {}, \"order\": \"random\"}", "/order", "\"newest-first\" / \"oldest-first\""),
            ("{\"filter\": {}, \"cursor\": h''}", "/cursor", "tstr"),
        ],
    );
    takes(
        "cap-declare-body",
        &[
            "{\"capabilities\": [{\"id\": \"a.b.c:1.0.0\"}]}",
            "{\"capabilities\": [{\"id\": \"x\"}, {\"id\": \"y\", \"later\": [1]}], \"next_cursor\": \"c\", \"capabilities_version\": \"1.0\"}",
        ],
    );
    refuses(
        "cap-declare-body",
        &[
            ("{\"capabilities\": []}", "/capabilities", "one more element"),
            ("{\"capabilities\": [{\"id\": \"x\"}, {\"id\": 1}]}", "/capabilities/1/id", "tstr"),
            ("{\"capabilities\": [{}]}", "/capabilities/0", "\"id\""),
            ("{\"capabilities\": [{\"id\": \"x\"}], \"next_cursor\": null}", "/next_cursor", "tstr"),
        ],
    );
}

#[test]
fn descriptor() {
    takes(
        "descriptor",
        &[
            "{\"id\": \"x\", \"name\": \"n\", \"version\": \"2.1\", \"input_schema\": \"https://example.org/s\", \"supported_ranges\": [], \"deprecated_ranges\": [\">1\"], \"deprecated_versions\": [\"1.0.0\"], \"descriptor_sig\": h'', \"notes\": {}, \"description\": \"d\", \"category\": \"c\", \"since\": \"1\", \"min_schema_version\": \"1.0.0\", \"idempotent\": true, \"timeout_ms\": 1, \"permissions\": [\"p\"], \"rate_limit\": {\"requests\": 1, \"period\": \"1m\", \"burst\": 2}, \"retry_policy\": {\"max_attempts\": 3}, \"static_hash\": $h32, \"lineage\": $h32}",
            "{\"id\": \"x\", \"output_schema\": {\"uri\": \"u\", \"hash_alg\": \"sha-256\", \"hash\": $h32}}",
        ],
    );
    refuses(
        "descriptor",
        &[
            ("{}", "", "\"id\""),
            ("{\"id\": \"x\", \"idempotent\": \"yes\"}", "/idempotent", "bool"),
            ("{\"id\": \"x\", \"permissions\": \"all\"}", "/permissions", "an array"),
            ("{\"id\": \"x\", \"rate_limit\": {\"requests\": 1}}", "/rate_limit", "\"period\""),
            (
                "{\"id\": \"x\", \"rate_limit\": {\"requests\": 1, \"period\": \"1m\", \"burst\": \"2\"}}",
                "/rate_limit/burst",
                "uint",
            ),
            ("{\"id\": \"x\", \"static_hash\": h'00'}", "/static_hash", ".size 32"),
            ("{\"id\": \"x\", \"retry_policy\": [1]}", "/retry_policy", "a map"),
            ("{\"id\": \"x\", \"input_schema\": 5}", "/input_schema", "schema-ref / tstr"),
            (
                "{\"id\": \"x\", \"input_schema\": {\"uri\": \"u\", \"hash_alg\": \"sha-256\", \"hash\": $h64}}",
                "/input_schema/hash",
                ".size 32",
            ),
        ],
    );
}

#[test]
fn schema_reference() {
    let hash = "\"hash_alg\": \"sha-256\", \"hash\": $h32";
    let with = |more: &str| format!("{{{hash}, {more}}}");
    takes(
        "schema-ref",
        &[
            &with("\"uri\": \"u\""),
            &with("\"bundle_id\": \"b\", \"artifact_key\": \"k\""),
            &with("\"inline\": {\"type\": \"object\"}"),
            &with(
                "\"uri\": \"u\", \"artifact_key\": \"k\", \"bundle_id\": \"b\", \"inline\": null, \"media_type\": \"m\", \"updated_at\": 5, \"x\": 1",
            ),
            "{\"uri\": \"u\", \"hash_alg\": \"sha-512\", \"hash\": $h64}",
        ],
    );
    refuses(
        "schema-ref",
        &[
            (&format!("{{{hash}}}"), "", "\"inline\""),
            (&with("\"bundle_id\": \"b\""), "", "\"inline\""),
            (&with("\"uri\": \"u\", \"bundle_id\": \"b\""), "", "\"artifact_key\""),
            (&with("\"inline\": 1, \"artifact_key\": \"k\""), "", "\"bundle_id\""),
            (&with("\"uri\": 5"), "/uri", "tstr"),
            (&with("\"uri\": 5, \"inline\": 1"), "/uri", "tstr"),
            (&with("\"uri\": \"u\", \"media_type\": 1"), "/media_type", "tstr"),
            ("{\"uri\": \"u\", \"hash_alg\": \"sha-256\"}", "", "\"hash\""),
            ("{\"uri\": \"u\", \"hash\": $h32}", "", "\"hash_alg\""),
            ("{\"uri\": \"u\", \"hash_alg\": \"md5\", \"hash\": $h32}", "/hash_alg", "\"sha-512\""),
            ("{\"uri\": \"u\", \"hash_alg\": \"sha-512\", \"hash\": $h32}", "/hash", ".size 64"),
            ("{\"uri\": \"u\", \"hash_alg\": \"sha-256\", \"hash\": \"text\"}", "/hash", "bstr"),
        ],
    );
}

#[test]
fn invoke() {
    takes(
        "cap-invoke-body",
        &[
            "{\"params\": null}",
            "{\"id\": \"a.b.c:1.0.0\", \"params\": {\"x\": [1(2), NaN]}, \"timeout_ms\": 0}",
            "{\"type\": \"t\", \"capability\": \"c\", \"version\": \"bad range\", \"params\": 1, \"negotiate\": {\"preferred\": \"1\", \"acceptable\": [], \"range\": \"\"}, \"session\": {\"session_id\": $id, \"session_scope\": true}, \"delegation\": 7, \"later\": 0}",
        ],
    );
    refuses(
        "cap-invoke-body",
        &[
            ("{}", "", "\"params\""),
            ("{\"id\": 1, \"params\": 1}", "/id", "tstr"),
            ("{\"params\": 1, \"timeout_ms\": 1.0}", "/timeout_ms", "uint"),
            (
                "{\"params\": 1, \"negotiate\": {\"acceptable\": \"1.0.0\"}}",
                "/negotiate/acceptable",
                "an array",
            ),
            ("{\"params\": 1, \"session\": {}}", "/session", "\"session_id\""),
            ("{\"params\": 1, \"session\": {\"session_id\": h'00'}}", "/session/session_id", ".size 16"),
            (
                "{\"params\": 1, \"session\": {\"session_id\": $id, \"session_scope\": false}}",
                "/session/session_scope",
                "true",
            ),
            ("{\"params\": 1, \"session\": $id}", "/session", "a map"),
            ("{\"params\": 1, 1: 2}", "/1", "nothing more"),
        ],
    );
}

#[test]
fn result() {
    takes(
        "cap-result-body",
        &[
            "{\"status\": \"success\", \"result\": null}",
            "{\"result\": {}, \"status\": \"success\", \"session\": {\"session_id\": $id}, \"execution_time_ms\": 5, \"cost_estimate\": {\"usd\": 0.5, \"tokens\": 5}, \"x\": 1}",
            "{\"status\": \"error\", \"error\": {\"code\": 5003, \"name\": \"TIMEOUT\", \"message\": \"m\", \"details\": 1}}",
            "{\"status\": \"error\", \"error\": \"older peers say what they like\"}",
            "{\"status\": \"error\", \"error\": null}",
        ],
    );
    refuses(
        "cap-result-body",
        &[
            ("{\"status\": \"success\"}", "", "\"result\""),
            ("{\"status\": \"error\"}", "", "\"error\""),
            ("{\"status\": \"error\", \"result\": 1}", "", "\"error\""),
            ("{\"status\": \"maybe\", \"result\": 1}", "/status", "\"error\""),
            ("{\"result\": 1}", "", "\"status\""),
            (
                "{\"status\": \"success\", \"result\": 1, \"execution_time_ms\": -1}",
                "/execution_time_ms",
                "uint",
            ),
            (
                "{\"status\": \"success\", \"result\": 1, \"cost_estimate\": {\"usd\": \"5\"}}",
                "/cost_estimate/usd",
                "int / float",
            ),
            ("{\"status\": \"error\", \"error\": 1, \"session\": 1}", "/session", "a map"),
        ],
    );
}

#[test]
fn documents() {
    takes("doc-request-body", &["{\"hash\": h'00'}"]);
    refuses("doc-request-body", &[("{}", "", "\"hash\""), ("{\"hash\": \"00\"}", "/hash", "bstr")]);
    let full =
        "{\"content_type\": \"c\", \"filename\": \"f\", \"size\": 1, \"hash\": h'00', \"data\": h'01'}";
    takes("doc-send-body", &[full]);
    for (field, wanted) in
        [("content_type", "tstr"), ("filename", "tstr"), ("size", "uint"), ("hash", "bstr"), ("data", "bstr")]
    {
        let gone = full.replace(&format!("\"{field}\""), "\"x\"");
        refuses("doc-send-body", &[(&gone, "", &format!("\"{field}\""))]);
        let (before, after) = full.split_once(&format!("\"{field}\": ")).unwrap();
        let end = after.find([',', '}']).unwrap();
        refuses(
            "doc-send-body",
            &[(&format!("{before}\"{field}\": null{}", &after[end..]), &format!("/{field}"), wanted)],
        );
    }
}

#[test]
fn sessions_and_cancelling() {
    takes(
        "request-body",
        &[
            "{\"op\": \"negotiate\", \"capability\": \"c\"}",
            "{\"op\": \"negotiate\", \"capability\": \"c\", \"preferred_version\": \"1\", \"acceptable_versions\": [\"1\"], \"range\": \"r\"}",
            "{\"op\": \"cancel\", \"target\": $id}",
            "{\"op\": \"calls\"}",
            "{\"op\": \"calls\", \"target\": $id, \"cursor\": h'01', \"limit\": 5, \"later\": 1}",
            "{\"op\": \"something else\", \"target\": 1}",
        ],
    );
    refuses(
        "request-body",
        &[
            ("{}", "", "\"op\""),
            ("{\"op\": 1}", "/op", "tstr"),
            ("{\"op\": \"accept\"}", "/op", "\"accept\""),
            ("{\"op\": \"negotiate\"}", "", "\"capability\""),
            (
                "{\"op\": \"negotiate\", \"capability\": \"c\", \"acceptable_versions\": [1]}",
                "/acceptable_versions/0",
                "tstr",
            ),
            ("{\"op\": \"cancel\"}", "", "\"target\""),
            ("{\"op\": \"cancel\", \"target\": h'00'}", "/target", ".size 16"),
            ("{\"op\": \"calls\", \"target\": h'00'}", "/target", ".size 16"),
            ("{\"op\": \"calls\", \"cursor\": \"x\"}", "/cursor", "bstr"),
            ("{\"op\": \"calls\", \"limit\": -1}", "/limit", "uint"),
        ],
    );
    takes(
        "response-body",
        &[
            "{\"op\": \"accept\", \"capability\": \"c\", \"agreed_version\": \"1\", \"session_id\": $id, \"expires_at\": 5}",
            "{\"op\": \"cancel\", \"target\": $id, \"state\": \"unknown\"}",
            "{\"op\": \"something else\"}",
        ],
    );
    refuses(
        "response-body",
        &[
            ("{\"op\": \"negotiate\"}", "/op", "\"negotiate\""),
            (
                "{\"op\": \"accept\", \"capability\": \"c\", \"agreed_version\": \"1\", \"session_id\": $id}",
                "",
                "\"expires_at\"",
            ),
            (
                "{\"op\": \"cancel\", \"target\": $id, \"state\": \"gone\"}",
                "/state",
                "\"cancelling\" / \"finished\" / \"unknown\"",
            ),
        ],
    );
}

#[test]
fn audit_pages_and_prunes() {
    takes(
        "request-body",
        &[
            "{\"op\": \"audit\"}",
            "{\"op\": \"audit\", \"after\": 1, \"limit\": 5, \"kind\": \"drift\", \"since_ms\": 1, \"capability\": \"a.*\", \"peer\": \"did:key:a\", \"later\": 1}",
            "{\"op\": \"audit-prune\", \"before_ms\": 1, \"after\": 0}",
        ],
    );
    refuses(
        "request-body",
        &[
            ("{\"op\": \"audit\", \"after\": -1}", "/after", "uint"),
            ("{\"op\": \"audit\", \"kind\": 1}", "/kind", "tstr"),
            ("{\"op\": \"audit-prune\"}", "", "\"before_ms\""),
        ],
    );
    let hash = format!("h'{}'", "ab".repeat(32));
    let page = |row: &str| {
        format!("{{\"op\": \"audit\", \"rows\": [{row}], \"head\": 2, \"written\": 1, \"lost\": 0}}")
    };
    takes(
        "response-body",
        &[
            &page(""),
            &page(&format!("{{\"seq\": 1, \"hash\": {hash}}}")),
            &page(&format!("{{\"seq\": 2, \"hash\": {hash}, \"prev_hash\": {hash}, \"record\": \"{{}}\"}}")),
            "{\"op\": \"audit-prune\", \"pruned\": 1, \"next\": 2}",
        ],
    );
    refuses(
        "response-body",
        &[
            ("{\"op\": \"audit\"}", "", "\"rows\""),
            (&page("{\"seq\": 1}"), "/rows/0", "\"hash\""),
            (&page("{\"seq\": 1, \"hash\": h'00'}"), "/rows/0/hash", ".size 32"),
            (&page(&format!("{{\"seq\": 1, \"hash\": {hash}, \"record\": 1}}")), "/rows/0/record", "tstr"),
            ("{\"op\": \"audit-prune\"}", "", "\"pruned\""),
        ],
    );
}

#[test]
fn policies_asked_and_reloaded() {
    takes(
        "request-body",
        &[
            "{\"op\": \"policy-why\", \"caller\": \"did:key:a\", \"capability\": \"a.b.c\", \"later\": 1}",
            "{\"op\": \"policy-reload\"}",
        ],
    );
    refuses("request-body", &[("{\"op\": \"policy-why\", \"caller\": \"did:key:a\"}", "", "\"capability\"")]);
    let decision = |more: &str| {
        format!(
            "{{\"op\": \"policy-why\", \"decisions\": [{{\"capability\": \"a.b.c\", \"action\": \"query\"{more}}}]}}"
        )
    };
    takes(
        "response-body",
        &[
            "{\"op\": \"policy-why\", \"decisions\": []}",
            &decision(", \"allowed\": true, \"reason\": \"r\""),
            &decision(", \"allowed\": false, \"reason\": \"r\", \"rules\": [\"x\"], \"missing\": [\"a:b\"]"),
            "{\"op\": \"policy-reload\", \"rules\": 2}",
        ],
    );
    refuses(
        "response-body",
        &[
            ("{\"op\": \"policy-why\"}", "", "\"decisions\""),
            (&decision(", \"allowed\": true"), "/decisions/0", "\"reason\""),
            (&decision(", \"allowed\": 1, \"reason\": \"r\""), "/decisions/0/allowed", "bool"),
            ("{\"op\": \"policy-reload\"}", "", "\"rules\""),
        ],
    );
}

#[test]
fn configurations_reloaded_and_states_copied() {
    takes(
        "request-body",
        &[
            "{\"op\": \"reload\"}",
            "{\"op\": \"reload\", \"dry_run\": true}",
            "{\"op\": \"backup\", \"later\": 1}",
            "{\"op\": \"drain\"}",
        ],
    );
    refuses("request-body", &[("{\"op\": \"reload\", \"dry_run\": 1}", "/dry_run", "bool")]);
    let change = |change: &str| {
        format!("{{\"op\": \"reload\", \"rules\": 1, \"applied\": true, \"changes\": [{{{change}}}]}}")
    };
    takes(
        "response-body",
        &[
            &change("\"key\": \"peers\", \"to\": \"x\", \"takes\": \"now\""),
            "{\"op\": \"backup\", \"file\": \"/x\", \"bytes\": 9}",
            "{\"op\": \"drain\", \"made\": 0, \"executing\": 3}",
        ],
    );
    refuses(
        "response-body",
        &[
            (&change("\"key\": \"peers\""), "/changes/0", "\"takes\""),
            (&change("\"key\": \"peers\", \"takes\": \"later\""), "/changes/0/takes", "\"now\""),
            ("{\"op\": \"backup\", \"file\": \"/x\"}", "", "\"bytes\""),
            ("{\"op\": \"drain\", \"made\": 0}", "", "\"executing\""),
        ],
    );
}

#[test]
fn metric_families() {
    takes("request-body", &["{\"op\": \"metrics\"}", "{\"op\": \"metrics\", \"later\": 1}"]);
    let with = |samples: &str| {
        format!(
            "{{\"op\": \"metrics\", \"families\": [{{\"name\": \"a\", \"type\": \"gauge\", \"help\": \"b\", \"samples\": [{samples}]}}]}}"
        )
    };
    takes(
        "response-body",
        &[
            "{\"op\": \"metrics\", \"families\": []}",
            &with(""),
            &with("{\"value\": 1}"),
            &with("{\"value\": 1, \"labels\": {\"a\": \"b\", \"c\": \"d\"}, \"later\": null}"),
            &with("{\"value\": 0.5, \"part\": \"sum\"}"),
            &with("{\"value\": 3, \"part\": \"bucket\", \"labels\": {\"le\": \"+Inf\"}}"),
        ],
    );
    refuses(
        "response-body",
        &[
            ("{\"op\": \"metrics\"}", "", "\"families\""),
            (&with("{\"value\": -1}"), "/families/0/samples/0/value", "uint"),
            (&with("{}"), "/families/0/samples/0", "\"value\""),
            (&with("{\"value\": \"1\"}"), "/families/0/samples/0/value", "uint"),
            (&with("{\"value\": 1, \"part\": \"mean\"}"), "/families/0/samples/0/part", "\"bucket\""),
            (&with("{\"value\": 1, \"labels\": {\"a\": 1}}"), "/families/0/samples/0/labels/a", "tstr"),
            (
                "{\"op\": \"metrics\", \"families\": [{\"name\": \"a\", \"type\": \"timer\", \"help\": \"b\", \"samples\": []}]}",
                "/families/0/type",
                "\"counter\"",
            ),
        ],
    );
}

#[test]
fn listed_peers() {
    takes("request-body", &["{\"op\": \"peers\"}", "{\"op\": \"peers\", \"later\": 1}"]);
    let with =
        |fields: &str| format!("{{\"op\": \"peers\", \"peers\": [{{\"did\": \"did:key:a\", {fields}}}]}}");
    takes(
        "response-body",
        &[
            "{\"op\": \"peers\", \"peers\": []}",
            &with("\"state\": \"connected\", \"links\": 2"),
            &with("\"state\": \"refused\", \"links\": 0, \"reason\": \"not listed\", \"later\": null"),
            &with("\"name\": \"a\", \"state\": \"waiting\", \"links\": 0"),
        ],
    );
    refuses(
        "response-body",
        &[
            ("{\"op\": \"peers\"}", "", "\"peers\""),
            (&with("\"state\": \"lost\", \"links\": 0"), "/peers/0/state", "\"connected\""),
            (&with("\"state\": \"silent\", \"links\": -1"), "/peers/0/links", "uint"),
            (&with("\"state\": \"waiting\""), "/peers/0", "\"links\""),
            (&with("\"name\": 1, \"state\": \"waiting\", \"links\": 0"), "/peers/0/name", "tstr"),
        ],
    );
}

#[test]
fn listed_calls() {
    let fields = "\"id\": $id, \"from\": \"did:key:a\", \"role\": \"executor\", \"state\": \"executing\", \"expires_at_ms\": 5, \"waiters\": 1, \"journaled\": true";
    let with = |more: &str| format!("{{\"op\": \"calls\", \"calls\": [{{{fields}{more}}}]}}");
    let tries = "{\"begin_us\": 1, \"end_us\": 2, \"peer\": \"did:key:b\", \"link\": \"quic #2\", \"outcome\": \"refused\", \"code\": 5004}";
    let timeline = format!(
        "\"trace\": \"0a\", \"sampled\": true, \"came_at_ms\": 1, \"phases\": [{{\"name\": \"wire\", \"begin_us\": 1, \"end_us\": 2}}], \"tries\": [{tries}], \"joined\": 0, \"replays\": 0"
    );
    let timed = |more: &str| with(&format!(", \"timeline\": {{{timeline}{more}}}"));
    takes(
        "response-body",
        &[
            "{\"op\": \"calls\", \"calls\": []}",
            "{\"op\": \"calls\", \"calls\": [], \"cursor\": h'01', \"journal\": {\"changes\": 1, \"commits\": 1, \"failures\": 0}}",
            &with(""),
            &with(
                ", \"capability\": \"c\", \"peer\": \"did:key:b\", \"started_at_ms\": 1, \"deadline_at_ms\": 2, \"finished_at_ms\": 3, \"status\": \"error\", \"code\": 5003, \"bytes\": 9, \"later\": null",
            ),
            &timed(""),
            &timed(", \"took_us\": 9, \"link\": \"quic #1\", \"tries_omitted\": 1, \"later\": null"),
        ],
    );
    let bad = |from: &str, to: &str| with("").replace(from, to);
    let untimed = |from: &str, to: &str| timed("").replace(from, to);
    refuses(
        "response-body",
        &[
            ("{\"op\": \"calls\"}", "", "\"calls\""),
            ("{\"op\": \"calls\", \"calls\": [{}]}", "/calls/0", "\"id\""),
            ("{\"op\": \"calls\", \"calls\": [], \"cursor\": \"x\"}", "/cursor", "bstr"),
            ("{\"op\": \"calls\", \"calls\": [], \"journal\": {\"changes\": 1}}", "/journal", "\"commits\""),
            (&bad("$id", "h'00'"), "/calls/0/id", ".size 16"),
            (&bad("\"executor\"", "\"observer\""), "/calls/0/role", "\"caller\" / \"executor\""),
            (&bad("\"executing\"", "\"lost\""), "/calls/0/state", "\"finished\""),
            (&bad(", \"journaled\": true", ""), "/calls/0", "\"journaled\""),
            (&bad("\"waiters\": 1", "\"waiters\": null"), "/calls/0/waiters", "uint"),
            (&with(", \"status\": \"partial\""), "/calls/0/status", "\"success\" / \"error\""),
            (&with(", \"code\": -1"), "/calls/0/code", "uint"),
            (&with(", \"peer\": 1"), "/calls/0/peer", "tstr"),
            (&with(", \"timeline\": {}"), "/calls/0/timeline", "\"trace\""),
            (&untimed("\"name\": \"wire\", ", ""), "/calls/0/timeline/phases/0", "\"name\""),
            (&untimed("\"refused\"", "\"gone\""), "/calls/0/timeline/tries/0/outcome", "\"unanswered\""),
            (&untimed("5004", "-1"), "/calls/0/timeline/tries/0/code", "uint"),
            (&untimed("\"replays\": 0", "\"replays\": null"), "/calls/0/timeline/replays", "uint"),
        ],
    );
}

#[test]
fn every_truncation_of_a_body_is_refused() {
    let body = bytes(
        "{\"id\": \"a.b.c:1.0.0\", \"params\": {\"x\": [1, NaN]}, \"timeout_ms\": 500, \"session\": {\"session_id\": $id}}",
    );
    assert_eq!(bodies().check(0x22, &body), Ok(()));
    for length in 0..body.len() {
        assert!(bodies().check(0x22, &body[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_mismatch_names_rule_path_and_offset() {
    let body = bytes("{\"params\": 1, \"session\": {\"session_id\": h'00'}}");
    let Err(BodyError::Mismatch(mismatch)) = bodies().check(0x22, &body) else { panic!("a mismatch") };
    let at = body.len() - 2;
    assert_eq!(
        (mismatch.rule.as_str(), mismatch.path.as_str(), mismatch.offset),
        ("session-id", "/session/session_id", at)
    );
    assert_eq!(
        mismatch.to_string(),
        format!("session-id: at \"/session/session_id\" (byte {at}): expected bstr .size 16")
    );
    let mismatch =
        bodies().check_shape(Shape::Goaway, &bytes("{\"reason\": 1, \"a/b~c\": 1, 7: 1}")).unwrap_err();
    assert_eq!((mismatch.rule.as_str(), mismatch.path.as_str()), ("goaway", "/7"));
    assert_eq!(bodies().check(0x04, b"\xa0"), Err(BodyError::UnknownType(4)));
    for (typ, rule) in Bodies::messages() {
        assert!(bodies().check(*typ, b"\xff").is_err(), "{rule}");
    }
}
