//! `GET /v1/capabilities` and `/v1/self`.

use serde_json::json;

use crate::call::with_commands;
use crate::http::Http;
use crate::support::Sidecar;

#[test]
fn capabilities_are_listed_in_pages_and_looked_for() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let all = http.get("/v1/capabilities").json();
    let ids = |document: &serde_json::Value| -> Vec<String> {
        let listed = document["capabilities"].as_array().unwrap();
        listed.iter().map(|offer| offer["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&all).len(), 5);
    assert!(all.get("next_cursor").is_none());
    let mut path = "/v1/capabilities?limit=2".to_owned();
    let mut paged = Vec::new();
    loop {
        let page = http.get(&path).json();
        assert!(ids(&page).len() <= 2);
        paged.extend(ids(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/capabilities?limit=2&cursor={cursor}");
    }
    assert_eq!(paged, ids(&all));
    assert_eq!(ids(&http.get("/v1/capabilities?q=WORD").json()), ["org.example.typed:1.0.0"]);
    assert_eq!(
        ids(&http.get("/v1/capabilities?namespace=org.example&q=lies").json()),
        ["org.example.lies:1.0.0"]
    );
    assert_eq!(http.get("/v1/capabilities?namespace=com.other").json(), json!({"capabilities": []}));
    http.get("/v1/capabilities?limit=0").problem(400, "refused");
    http.get("/v1/capabilities?cursor=x").problem(400, "refused");
    http.get("/v1/capabilities?other=x").problem(400, "refused");
}

#[test]
fn one_capability_is_described_with_its_schemas_providers_and_hashes() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let typed = http.get("/v1/capabilities/org.example.typed").json();
    assert_eq!((&typed["id"], &typed["version"]), (&json!("org.example.typed:1.0.0"), &json!("1.0.0")));
    assert_eq!(typed["description"], "Adds an s to a word.");
    assert_eq!(typed["input"]["schema"]["properties"]["word"]["type"], "string");
    assert_eq!(typed["output"]["schema"], json!({"type": "string"}));
    assert!(typed["input"]["hash"].as_str().unwrap().starts_with("sha-256:"));
    assert!(typed["static_hash"].is_string() && typed["lineage"].is_string(), "{typed}");
    let provider = &typed["providers"][0];
    assert_eq!((&provider["did"], &provider["local"]), (&json!(sidecar.did), &json!(true)));
    assert_eq!(http.get("/v1/capabilities/org.example.echo").json()["version"], "1.2.0");
    assert_eq!(http.get("/v1/capabilities/org.example.echo:2.0.0-rc.1").json()["version"], "2.0.0-rc.1");
    assert_eq!(http.get("/v1/capabilities/org.example.nothing").problem(404, "refused")["code"], 4002);
    assert_eq!(http.get("/v1/capabilities/org.example.echo:3.0.0").problem(409, "refused")["code"], 4003);
}

#[test]
fn a_sidecar_tells_whose_it_is() {
    let sidecar = Sidecar::start();
    let document = Http::unix(&sidecar.socket).get("/v1/self").json();
    assert_eq!(document["did"], sidecar.did);
    assert_eq!((&document["capabilities"], &document["peers"]), (&json!([]), &json!([])));
    assert_eq!((document["name"].is_string(), document["version"].is_string()), (true, true));
}
