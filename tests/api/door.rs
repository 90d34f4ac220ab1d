//! Who may come in: the token, the name of the machine, the origin of a page, the kind of a body.

use crate::call::with_commands;
use crate::http::Http;
use crate::support::Sidecar;

fn routes() -> serde_json::Value {
    serde_json::from_str(include_str!("../../src/api/openapi.json")).unwrap()
}

fn token(sidecar: &Sidecar) -> String {
    let token = std::fs::read_to_string(sidecar.dir.join("state/token")).unwrap();
    format!("Bearer {}", token.trim())
}

#[test]
fn a_loopback_request_shows_the_token() {
    let sidecar = with_commands();
    let (address, token) = (sidecar.local_tcp.unwrap(), token(&sidecar));
    let ask = |fields: &[(&str, &str)]| {
        let mut http = Http::tcp(address);
        http.ask("GET", "/v1/self", fields, None);
        http.answer()
    };
    let answer = ask(&[("Host", &address.to_string()), ("Authorization", &token)]);
    assert_eq!((answer.status, answer.json()["did"].as_str()), (200, Some(sidecar.did.as_str())));
    let none = ask(&[]);
    assert_eq!(none.problem(401, "refused")["code"], 3001);
    assert_eq!(none.field("www-authenticate"), Some("Bearer realm=\"capd\""));
    assert_eq!(none.field("connection"), Some("close"));
    let longer = format!("{token}0");
    for wrong in ["Bearer ", "Bearer x", "Basic eDp4", longer.as_str(), &token[..token.len() - 1]] {
        ask(&[("Authorization", wrong)]).problem(401, "refused");
    }
    assert!(!sidecar.log().contains(token.trim_start_matches("Bearer ")), "the log has the token");
}

#[test]
fn a_rebound_name_and_a_foreign_page_are_turned_away_even_with_the_token() {
    let sidecar = with_commands();
    let (address, token) = (sidecar.local_tcp.unwrap(), token(&sidecar));
    let ask = |host: &str, origin: Option<&str>| {
        let mut fields = vec![("Host", host), ("Authorization", token.as_str())];
        fields.extend(origin.map(|origin| ("Origin", origin)));
        let mut http = Http::tcp(address);
        http.ask("POST", "/v1/call/org.example.echo", &fields, Some("1"));
        http.answer()
    };
    let own = address.to_string();
    assert_eq!(ask(&own, None).status, 200);
    assert_eq!(ask("localhost", Some("http://localhost")).status, 200);
    assert_eq!(ask(&own, Some(&format!("http://{own}"))).status, 200);
    ask(&format!("attacker.example:{}", address.port()), None).problem(421, "refused");
    ask("127.0.0.1.attacker.example", None).problem(421, "refused");
    ask(&own, Some("http://attacker.example")).problem(403, "refused");
    ask(&own, Some("https://localhost")).problem(403, "refused");
    ask(&own, Some("null")).problem(403, "refused");
    // A page that names itself in both is still no name of this machine.
    let port = address.port();
    ask(&format!("attacker.example:{port}"), Some(&format!("http://attacker.example:{port}")))
        .problem(421, "refused");
}

#[test]
fn a_page_reaches_no_unix_socket_either() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    http.ask("GET", "/v1/self", &[("Origin", "http://attacker.example")], None);
    http.answer().problem(403, "refused");
}

#[test]
fn what_a_form_can_send_is_not_taken() {
    let sidecar = with_commands();
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""] {
        let mut http = Http::unix(&sidecar.socket);
        let answer = http.post_with("/v1/call/org.example.echo", &[("Content-Type", kind)], "1");
        answer.problem(415, "refused");
    }
    // Every route that takes a body holds to it; the others say what they do take.
    for (path, methods) in routes()["paths"].as_object().unwrap() {
        let path = path.replace("{session}", "x").replace("{call}", "x").replace("{hash}", "x");
        for method in ["POST", "PUT"] {
            let takes = methods.get(method.to_lowercase()).is_some();
            let mut http = Http::unix(&sidecar.socket);
            http.ask(method, &path.replace(['{', '}'], ""), &[("Content-Type", "text/plain")], Some("1"));
            let answer = http.answer();
            answer.problem(if takes { 415 } else { 405 }, "refused");
            assert_eq!(answer.field("allow").is_some(), !takes, "{method} {path}");
        }
    }
    let mut http = Http::unix(&sidecar.socket);
    let charset = [("Content-Type", "application/json; charset=utf-8")];
    assert_eq!(http.post_with("/v1/call/org.example.echo", &charset, "1").status, 200);
}

#[test]
fn one_socket_speaks_frames_and_http() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    assert_eq!(http.get("/v1/self").status, 200);
    let mut command = crate::support::capctl(Some(&sidecar.socket));
    let output = crate::support::run_with(command.args(["call", "org.example.echo", "--params", "3"]), b"");
    assert_eq!(crate::support::stdout(&output).trim(), "3", "{}", crate::support::stderr(&output));
}
