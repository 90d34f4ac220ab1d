//! `http:` in `capabilities.yaml`: programs that listen, what they are sent, and what becomes of each answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::http::Http;
use crate::support::{PATIENCE, Setup, Sidecar};

/// One request, as a program got it.
struct Asked {
    line: String,
    head: Vec<String>,
    body: Value,
}

/// A program that answers each connection's request with these bytes, and nothing where there are none.
fn program(answers: Vec<&'static str>) -> (SocketAddr, mpsc::Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, asked) = mpsc::sync_channel(64);
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim_end().to_owned();
                if line.is_empty() {
                    break;
                }
                lines.push(line);
            }
            let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.unwrap().parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            let line = lines.remove(0);
            sender.send(Asked { line, head: lines, body }).unwrap();
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, asked)
}

fn serving(address: SocketAddr, idempotent: bool) -> Sidecar {
    let yaml = format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n  - name: push\n    idempotent: {idempotent}\n    \
         http: {{url: \"http://{address}/translate?x=1\", headersFile: headers}}\n"
    );
    let dir =
        Setup::new().capabilities(&yaml).file("headers", "Authorization: Bearer secret-of-the-program\n");
    dir.private("headers").start()
}

#[test]
fn a_program_is_asked_and_its_answer_is_the_result() {
    let (address, asked) = program(vec![
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 58\r\n\r\n\
         {\"code\":4711,\"detail\":\"taken\",\"details\":{\"by\":\"somebody\"}}",
        "HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\noops",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\n1",
    ]);
    let sidecar = serving(address, false);
    let mut http = Http::unix(&sidecar.socket);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let answer = http.post_with("/v1/call/org.example.push", &[("traceparent", trace)], r#"{"text": "x"}"#);
    assert_eq!((answer.status, answer.json()), (200, json!({"a": 1})));
    let first = asked.recv_timeout(PATIENCE).unwrap();
    assert_eq!((first.line.as_str(), &first.body), ("POST /translate?x=1 HTTP/1.1", &json!({"text": "x"})));
    for field in [
        "content-type: application/json".to_owned(),
        format!("host: {address}"),
        "authorization: Bearer secret-of-the-program".to_owned(),
        format!("traceparent: {trace}"),
        format!("capd-caller: {}", sidecar.did),
        format!("capd-call: {}", answer.field("capd-call").unwrap()),
        "capd-capability: org.example.push:1.0.0".to_owned(),
    ] {
        assert!(first.head.contains(&field), "{field}: {:?}", first.head);
    }
    let mut post = || http.post("/v1/call/org.example.push", "1");
    assert_eq!(post().json(), json!(null));
    let problem = post().problem(500, "failed");
    assert_eq!(
        (&problem["code"], &problem["detail"], &problem["details"]["by"]),
        (&json!(4711), &json!("taken"), &json!("somebody"))
    );
    for part in ["500", "redirect", "application/json"] {
        let problem = post().problem(500, "failed");
        assert!(problem["code"] == 5001 && problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
    assert!(!sidecar.log().contains("secret-of-the-program"), "the log has the secret");
}

#[test]
fn a_connection_that_breaks_after_the_request_leaves_the_outcome_unknown() {
    let (address, asked) = program(vec!["", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"]);
    let sidecar = serving(address, false);
    let mut http = Http::unix(&sidecar.socket);
    for _ in 0..2 {
        let fields = [("Idempotency-Key", "k")];
        let key = [("Idempotency-Key", "l")];
        let fields = if asked.try_recv().is_ok() { key } else { fields };
        let problem = http.post_with("/v1/call/org.example.push", &fields, "1").problem(500, "unknown");
        assert_eq!(problem["code"], 5902);
    }
    // The same key says the same, and sends nothing: the program takes no third connection.
    let again = http.post_with("/v1/call/org.example.push", &[("Idempotency-Key", "l")], "1");
    assert_eq!(again.problem(500, "unknown")["code"], 5902);
    assert_eq!(again.field("capd-replayed"), Some("true"));
}

#[test]
fn a_program_that_is_not_there_is_unavailable_and_nothing_ran() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sidecar = serving(address, false);
    let mut http = Http::unix(&sidecar.socket);
    assert_eq!(http.post("/v1/call/org.example.push", "1").problem(503, "failed")["code"], 5002);
}

#[test]
fn a_program_elsewhere_is_refused_at_the_start() {
    let refused = |http: &str| {
        let yaml = format!("version: 1\ncapabilities:\n  - name: a.b.c\n    http: {http}\n");
        Setup::new().capabilities(&yaml).file("open", "A: b\n").refused_to_start()
    };
    for (http, part) in [
        ("{url: \"http://10.0.0.1/x\"}", "allowRemote"),
        ("{url: \"http://localhost.attacker.example/x\"}", "allowRemote"),
        ("{url: \"https://127.0.0.1/x\"}", "https"),
        ("{url: \"ftp://127.0.0.1/x\"}", "no place"),
        ("{headersFile: open}", "url"),
        ("{url: \"http://127.0.0.1:1/\", headersFile: nothing}", "nothing"),
        ("{url: \"http://127.0.0.1:1/\", other: 1}", "unknown key"),
    ] {
        let log = refused(http);
        assert!(log.contains(part), "{http}: {log}");
    }
    let yaml = "version: 1\ncapabilities:\n  - name: a.b.c\n    command: [cat]\n    http: {url: \"http://127.0.0.1:1/\"}\n";
    assert!(Setup::new().capabilities(yaml).refused_to_start().contains("beside command"));
    let yaml = "version: 1\ncapabilities:\n  - name: a.b.c\n    http: {url: \"http://127.0.0.1:1/\", headersFile: open}\n";
    let log = Setup::new().capabilities(yaml).file("open", "A: b\n").public("open").refused_to_start();
    assert!(log.contains("chmod 600"), "{log}");
}

/// Modes that a test means.
trait Modes: Sized {
    fn private(self, name: &str) -> Self;
    fn public(self, name: &str) -> Self;
}

impl Modes for Setup {
    fn private(self, name: &str) -> Self {
        self.mode(name, 0o600)
    }

    fn public(self, name: &str) -> Self {
        self.mode(name, 0o644)
    }
}

#[test]
fn a_program_behind_a_unix_socket_is_asked_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let socket = dir.path().join("app.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).unwrap();
        assert!(head[..read].starts_with(b"POST /there HTTP/1.1\r\n"));
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\"here\"",
            )
            .unwrap();
    });
    let yaml = format!(
        "version: 1\ncapabilities:\n  - name: a.b.c\n    idempotent: true\n    http: {{url: \"unix:{}:/there\"}}\n",
        socket.display()
    );
    let sidecar = Setup::new().capabilities(&yaml).start();
    assert_eq!(Http::unix(&sidecar.socket).post("/v1/call/a.b.c", "1").json(), json!("here"));
}
