//! The page of a sidecar, as other programs and other sites of this machine meet it: each gets nothing of it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::json;

use crate::call::with_commands;
use crate::http::{Answer, Http};
use crate::support::Sidecar;

/// `capd page` for a sidecar.
struct Page {
    process: Child,
    stdin: Option<ChildStdin>,
    /// It writes more than what is read here.
    _stdout: BufReader<ChildStdout>,
    address: SocketAddr,
    token: String,
}

impl Page {
    fn open(sidecar: &Sidecar) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
        command.args(["page", "--stop-with-stdin", "--socket"]).arg(&sidecar.socket);
        let mut process = command
            .env_clear()
            .env("HOME", &sidecar.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut url).unwrap();
        let (address, token) = url.trim().strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        let stdin = process.stdin.take();
        Self { process, stdin, _stdout: stdout, address: address.parse().unwrap(), token: token.to_owned() }
    }

    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: Option<&str>) -> Answer {
        let host = self.address.to_string();
        let mut head = fields.to_vec();
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head.push(("Host", &host));
        }
        let mut http = Http::tcp(self.address);
        http.ask(method, path, &head, body);
        http.answer()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The cookie and the key of a new session.
    fn session(&self) -> (String, String) {
        let answer = self.enter(&self.token);
        assert_eq!(answer.status, 200);
        let cookie = answer.field("set-cookie").unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let key = answer.json()["key"].as_str().unwrap().to_owned();
        (cookie.split(';').next().unwrap().to_owned(), key)
    }

    fn enter(&self, token: &str) -> Answer {
        let body = json!({"token": token}).to_string();
        self.ask("POST", "/session", &[("Origin", &self.origin())], Some(&body))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.process.wait().unwrap();
    }
}

const ACTIONS: [&str; 6] = ["/act/call", "/act/cancel", "/act/reload", "/act/drain", "/act/log", "/act/ping"];
const CALL: &str = r#"{"capability": "org.example.echo", "params": 7}"#;

#[test]
fn only_the_token_opens_a_session_and_only_a_session_reads() {
    let sidecar = with_commands();
    let page = Page::open(&sidecar);
    let longer = format!("{}A", page.token);
    for wrong in ["", "A", longer.as_str(), &page.token[1..]] {
        let refused = page.enter(wrong);
        assert_eq!((refused.status, refused.field("set-cookie")), (403, None), "{wrong}");
    }
    let (cookie, key) = page.session();
    let own = [("Cookie", cookie.as_str()), ("Capd-Page-Key", key.as_str())];
    for path in ["/data/self", "/data/calls", "/data/policy", "/data/configuration", "/data/overview"] {
        assert_eq!(page.ask("GET", path, &[], None).status, 401, "{path}");
        assert_eq!(page.ask("GET", path, &own[..1], None).status, 401, "the cookie alone: {path}");
        assert_eq!(page.ask("GET", path, &own[1..], None).status, 401, "the key alone: {path}");
        assert_eq!(page.ask("GET", path, &own, None).status, 200, "{path}");
    }
    assert_eq!(page.ask("GET", "/data/self", &own, None).json()["did"], sidecar.did.as_str());
    // Its files hold no data, and carry the policy that keeps other scripts out.
    let index = page.ask("GET", "/", &[], None);
    assert_eq!(index.status, 200);
    let policy = index.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert!(!String::from_utf8_lossy(&index.body).contains(&sidecar.did));
}

#[test]
fn another_site_and_a_rebound_name_can_neither_read_nor_act() {
    let sidecar = with_commands();
    let page = Page::open(&sidecar);
    let (cookie, key) = page.session();
    let own = [("Cookie", cookie.as_str()), ("Capd-Page-Key", key.as_str())];
    let origin = page.origin();
    let with = |more: &[(&'static str, &'static str)]| [&own[..], more].concat();
    for path in ACTIONS {
        let status = |fields: &[(&str, &str)]| page.ask("POST", path, fields, Some(CALL)).status;
        // What a form or a script of another site can send: the cookie at most.
        assert_eq!(status(&[own[0], ("Origin", &origin)]), 401, "{path}");
        assert_eq!(status(&with(&[])), 403, "without an origin: {path}");
        for foreign in ["null", "http://evil.example", "https://127.0.0.1"] {
            assert_eq!(status(&with(&[("Origin", foreign)])), 403, "{foreign}: {path}");
        }
        let sibling = [&own[..], &[("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-site")]].concat();
        assert_eq!(status(&sibling), 403, "{path}");
        assert_eq!(page.ask("GET", path, &own, None).status, 405, "{path}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "192.0.2.1"] {
        for path in ["/", "/app.js", "/data/self"] {
            let answer = page.ask("GET", path, &with(&[("Host", host)]), None);
            assert_eq!(answer.status, 421, "{host} {path}");
        }
    }
    // None of it was done: the sidecar has made no call, and has recorded no act.
    assert_eq!(page.ask("GET", "/data/calls", &own, None).json()["calls"], json!([]));
    let acts = page.ask("GET", "/data/audit?kind=operator", &own, None).json();
    assert_eq!(acts["records"], json!([]));
}

#[test]
fn what_the_page_does_is_in_the_audit_log() {
    let sidecar = with_commands();
    let page = Page::open(&sidecar);
    let (cookie, key) = page.session();
    let origin = page.origin();
    let own = [("Cookie", cookie.as_str()), ("Capd-Page-Key", key.as_str()), ("Origin", origin.as_str())];
    let answer = page.ask("POST", "/act/call", &own, Some(CALL));
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let acts = page.ask("GET", "/data/audit?kind=operator", &own[..2], None).json();
    let record = &acts["records"][0]["record"];
    assert_eq!((&record["action"], &record["tool"]), (&json!("call"), &json!("capd-page")), "{acts}");
}

#[test]
fn a_drain_takes_no_new_calls_and_is_audited_once() {
    let sidecar = with_commands();
    let page = Page::open(&sidecar);
    let (cookie, key) = page.session();
    let origin = page.origin();
    let own = [("Cookie", cookie.as_str()), ("Capd-Page-Key", key.as_str()), ("Origin", origin.as_str())];
    for _ in 0..2 {
        let drained = page.ask("POST", "/act/drain", &own, Some("{}"));
        assert_eq!((drained.status, drained.json()), (200, json!({"made": 0, "executing": 0})));
    }
    let refused = page.ask("POST", "/act/call", &own, Some(CALL));
    assert!(refused.status >= 400 || String::from_utf8_lossy(&refused.body).contains("5002"), "{refused:?}");
    let acts = page.ask("GET", "/data/audit?kind=operator", &own[..2], None).json();
    let drains = acts["records"].as_array().unwrap().iter();
    assert_eq!(drains.filter(|entry| entry.to_string().contains("\"drain\"")).count(), 1, "{acts}");
}
