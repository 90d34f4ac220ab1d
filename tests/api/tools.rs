//! `/v1/tools`, `/openapi.json`, `/v1/schemas` and `Capd-Built-Against`.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::call::with_commands;
use crate::http::{Answer, Http};
use crate::support::{Setup, Sidecar};

#[test]
fn capabilities_are_tools_in_three_formats() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let of = |document: &Value, name: &str, key: &str| -> Value {
        let tools = document["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| if key.is_empty() { tool.clone() } else { tool[key].clone() })
            .find(|tool| tool["name"] == name)
            .unwrap()
    };
    let openai = http.get("/v1/tools?format=openai").json();
    let typed = of(&openai, "org_example_typed", "function");
    assert_eq!(
        (&typed["description"], &typed["parameters"]["required"]),
        (&json!("Adds an s to a word."), &json!(["word"]))
    );
    assert_eq!(openai["names"]["org_example_typed"], "org.example.typed:1.0.0");
    // The newest release, and no pre-release.
    assert_eq!(openai["names"]["org_example_echo"], "org.example.echo:1.2.0");
    assert_eq!(openai["tools"].as_array().unwrap().len(), 4);
    let anthropic = http.get("/v1/tools?format=anthropic&namespace=org.example").json();
    let typed = of(&anthropic, "org_example_typed", "");
    assert_eq!(typed["input_schema"]["properties"]["word"]["type"], "string");
    assert_eq!(of(&anthropic, "org_example_echo", "")["input_schema"], json!({"type": "object"}));
    let mcp = http.get("/v1/tools?format=mcp").json();
    assert_eq!(of(&mcp, "org_example_echo", "")["annotations"]["idempotentHint"], true);
    assert_eq!(http.get("/v1/tools?namespace=com.other").json()["tools"], json!([]));
    http.get("/v1/tools?format=other").problem(400, "refused");
}

#[test]
fn the_api_describes_itself_and_every_capability() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let document = http.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let typed = &document["paths"]["/v1/call/org.example.typed"]["post"];
    let schema = &typed["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(schema["properties"]["word"]["type"], "string");
    assert!(schema["$id"].as_str().unwrap().starts_with("urn:capd:sha-256:"));
    assert_eq!(typed["responses"]["200"]["content"]["application/json"]["schema"]["type"], "string");
    // Every route of the document is one: whatever it answers, it is not that there is none.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace(['{', '}'], "x");
            let body = (method == "post" || method == "put").then_some("{}");
            http.ask(&method.to_uppercase(), &path, &[], body);
            let answer = http.answer();
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(
                !told.contains("the routes are listed") && answer.status != 405,
                "{method} {path}: {told}"
            );
            let declared = &methods[method]["responses"][answer.status.to_string()];
            assert!(declared.is_object(), "{method} {path}: {} is not declared", answer.status);
        }
    }
}

#[test]
fn the_page_names_every_route_header_and_event() {
    let page = include_str!("../../docs/http.md");
    let document: Value = serde_json::from_str(include_str!("../../src/api/openapi.json")).unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        let known = path
            .replace("{target}", "com.acme.upper")
            .replace("{session}/calls/{call}", "")
            .replace("{call}", "{id}")
            .replace("/v1/provide//", "/");
        assert!(page.contains(&known), "{path}: {known}");
    }
    let parameters = document["components"]["parameters"].as_object().unwrap().values();
    let names = parameters.map(|parameter| parameter["name"].as_str().unwrap());
    for name in names.filter(|name| !["call", "hash", "session", "target", "id"].contains(name)) {
        assert!(page.contains(name), "{name}");
    }
    for header in document["components"]["headers"].as_object().unwrap().keys() {
        let header = header.to_lowercase();
        assert!(page.to_lowercase().contains(&header), "{header}");
    }
}

fn hash(schema: &str) -> String {
    Sha256::digest(schema).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn call(sidecar: &Sidecar, built: &str, body: &str) -> Answer {
    let mut http = Http::unix(&sidecar.socket);
    http.post_with("/v1/call/org.example.typed", &[("Capd-Built-Against", built)], body)
}

#[test]
fn a_call_is_proven_against_what_its_code_was_built_on_before_it_is_sent() {
    let b = with_commands();
    let a = Setup::new().peer(&b).start();
    let described = Http::unix(&a.socket).get("/v1/capabilities/org.example.typed").json();
    let served =
        |side: &str| described[side]["hash"].as_str().unwrap().trim_start_matches("sha-256:").to_owned();
    let same = format!("{}, {}", served("input"), served("output"));
    assert_eq!(call(&a, &same, r#"{"word": "x"}"#).status, 200);
    assert_eq!(call(&a, "-, -", r#"{"word": "x"}"#).status, 200);
    // Built when nothing was required: the provider has drifted.
    let older = r#"{"type":"object","properties":{"word":{"type":"string"}}}"#;
    let narrow = r#"{"type":"object","required":["word"],"properties":{"word":{"type":"string","maxLength":3}},"additionalProperties":false}"#;
    for (schema, is_fine) in [(older, false), (narrow, true)] {
        let built = format!("{}, -", hash(schema));
        let unknown = call(&a, &built, r#"{"word": "x"}"#).problem(428, "refused");
        assert_eq!(unknown["details"]["unknown_schemas"], json!([hash(schema)]));
        let mut http = Http::unix(&a.socket);
        http.ask("PUT", &format!("/v1/schemas/{}", hash(schema)), &[], Some(schema));
        assert_eq!(http.answer().status, 204);
        let answer = call(&a, &built, r#"{"word": "x"}"#);
        if is_fine {
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        } else {
            let problem = answer.problem(424, "refused");
            assert_eq!(
                (&problem["code"], &problem["details"]["findings"][0]["side"]),
                (&json!(4902), &json!("request"))
            );
        }
    }
    // What was refused was not sent: three calls arrived.
    let arrived =
        b.log().lines().filter(|line| line.contains("access: call") && line.contains("typed")).count();
    assert_eq!(arrived, 3, "{}", b.log());
    let mut http = Http::unix(&a.socket);
    http.ask("PUT", &format!("/v1/schemas/{}", hash("{}")), &[], Some(r#"{"type":"string"}"#));
    http.answer().problem(400, "refused");
    http.ask("PUT", "/v1/schemas/xyz", &[], Some("{}"));
    http.answer().problem(400, "refused");
    // A key whose call has run is not refused, whoever has drifted since: that would say that nothing was executed.
    let keyed = |built: &str| {
        let fields = [("Idempotency-Key", "once"), ("Capd-Built-Against", built)];
        Http::unix(&a.socket).post_with("/v1/call/org.example.typed", &fields, r#"{"word": "x"}"#)
    };
    assert_eq!(keyed(&same).status, 200);
    let again = keyed(&format!("{}, -", hash(older)));
    assert_eq!((again.status, again.field("capd-replayed")), (200, Some("true")));
    for odd in ["x", "-", "-, -, -"] {
        call(&a, odd, "{}").problem(400, "refused");
    }
}
