//! Heads, bodies and connections that want too much, or lie; the status that each meets, and others served meanwhile.

use std::time::Instant;

use crate::call::with_commands;
use crate::http::{Http, request};
use crate::support::{PATIENCE, Setup, Sidecar};

fn hurried() -> Sidecar {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    idempotent: true\n    command: [cat]\n";
    Setup::new()
        .capabilities(yaml)
        .set("timeouts.frame_ms", "400")
        .set("limits.links_opening_max", "8")
        .start()
}

#[test]
fn a_head_beyond_16_kib_is_431() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let value = "x".repeat(17 * 1024);
    let _may_break_off = http.send(&request("GET", "/v1/self", &[("Capd-Thread", &value)], None));
    assert_eq!(http.answer().status, 431);
    let mut http = Http::unix(&sidecar.socket);
    let many: Vec<_> = (0..2_000).map(|number| (format!("x-{number}"), "1")).collect();
    let many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let _may_break_off = http.send(&request("GET", "/v1/self", &many, None));
    assert_eq!(http.answer().status, 431);
    let mut http = Http::unix(&sidecar.socket);
    http.ask("GET", "/v1/self", &[("Capd-Thread", &"x".repeat(8 * 1024))], None);
    assert_eq!(http.answer().status, 200);
}

#[test]
fn a_body_over_the_limit_is_413_whether_or_not_it_says_so() {
    let sidecar = Setup::new().set("limits.msg_size_bytes_max", "1048576").start();
    let mut http = Http::unix(&sidecar.socket);
    http.send(b"POST /v1/call/a.b.c HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n")
        .unwrap();
    http.answer().problem(413, "refused");
    let mut http = Http::unix(&sidecar.socket);
    http.send(b"POST /v1/call/a.b.c HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..20 {
        // It may have been told before the last.
        if http.send(&chunk).is_err() {
            break;
        }
    }
    http.answer().problem(413, "refused");
}

#[test]
fn a_body_that_is_shorter_than_it_says_or_slow_is_given_up() {
    let sidecar = hurried();
    let begin = Instant::now();
    let mut http = Http::unix(&sidecar.socket);
    http.send(b"POST /v1/call/a.b.c HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        .unwrap();
    http.answer().problem(408, "refused");
    assert!(http.is_closed());
    // Two lengths are none.
    let mut http = Http::unix(&sidecar.socket);
    http.send(b"POST /v1/call/a.b.c HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}")
        .unwrap();
    assert_eq!(http.answer().status, 400);
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn slow_heads_are_closed_and_hold_nobody_up() {
    let sidecar = hurried();
    // Three times as many as may be half open: the oldest make room.
    let mut slow: Vec<_> = (0..24)
        .map(|_| {
            let mut http = Http::unix(&sidecar.socket);
            http.send(b"GET /v1/self HTTP/1.1\r\nHost: x\r\nX-").unwrap();
            http
        })
        .collect();
    let mut http = Http::unix(&sidecar.socket);
    assert_eq!(http.post("/v1/call/org.example.echo", "1").status, 200);
    for http in &mut slow {
        // A 408 or nothing, and then the end.
        while !http.is_closed() {
            http.answer();
        }
    }
    assert_eq!(Http::unix(&sidecar.socket).get("/v1/self").status, 200);
}

#[test]
fn what_is_no_request_is_400_and_the_end() {
    let sidecar = hurried();
    for text in ["GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "Q\0Q / HTTP/1.1\r\n\r\n"] {
        let mut http = Http::unix(&sidecar.socket);
        http.send(text.as_bytes()).unwrap();
        assert_eq!(http.answer().status, 400, "{text:?}");
        assert!(http.is_closed(), "{text:?}");
    }
}

#[test]
fn slow_bodies_are_closed_and_hold_nobody_up() {
    let sidecar = hurried();
    let head = "POST /v1/call/org.example.echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n\"";
    let mut slow: Vec<_> = (0..48)
        .map(|_| {
            let mut http = Http::unix(&sidecar.socket);
            http.send(head.as_bytes()).unwrap();
            http
        })
        .collect();
    let mut http = Http::unix(&sidecar.socket);
    for number in 0..20 {
        let answer = http.post("/v1/call/org.example.echo", &number.to_string());
        assert_eq!((answer.status, answer.body), (200, number.to_string().into_bytes()));
        for http in &mut slow {
            // Whoever is closed by now is closed.
            let _closed = http.send(b"x");
        }
    }
    for http in &mut slow {
        http.answer().problem(408, "refused");
        assert!(http.is_closed());
    }
    assert_eq!(Http::unix(&sidecar.socket).get("/v1/self").status, 200);
}

#[test]
fn a_body_that_lies_about_its_length_smuggles_no_second_request() {
    let sidecar = hurried();
    let begin = "POST /v1/call/org.example.echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    // Longer than it says: what follows is no request, and the end.
    let mut http = Http::unix(&sidecar.socket);
    http.send(format!("{begin}Content-Length: 1\r\n\r\n1234\r\n\r\n").as_bytes()).unwrap();
    let answer = http.answer();
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"1".as_slice()));
    assert_eq!(http.answer().status, 400);
    assert!(http.is_closed());
    let statuses = |lie: &str| {
        let mut http = Http::unix(&sidecar.socket);
        http.send(format!("{begin}{lie}").as_bytes()).unwrap();
        let mut told = Vec::new();
        while !http.is_closed() {
            told.push(http.answer().status);
        }
        told
    };
    // Lengths that are none, and chunks that are none.
    for lie in [
        "Content-Length: -1\r\n\r\n1",
        "Content-Length: 1e1\r\n\r\n1",
        "Content-Length: 99999999999999999999\r\n\r\n1",
        "Content-Length: 1, 2\r\n\r\n1",
        "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nx\r\n1\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n1\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\n12\r\n0\r\n\r\n",
    ] {
        let told = statuses(lie);
        assert!(matches!(told[..], [status] if (400..500).contains(&status)), "{lie:?}: {told:?}");
    }
    // Two lengths that contradict each other: the chunks count, and nothing behind them (RFC 9112, 6.1).
    let second = "POST /v1/call/org.example.nothing HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1";
    let length = 5 + second.len();
    let both = format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}");
    assert_eq!(statuses(&both), [200]);
    assert_eq!(Http::unix(&sidecar.socket).get("/v1/self").status, 200);
}

#[test]
fn a_flood_of_headers_ends_before_it_has_all_been_read() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    http.send(b"GET /v1/self HTTP/1.1\r\nHost: x\r\n").unwrap();
    let fields = "X-Flood: 0123456789abcdef\r\n".repeat(64);
    let mut sent = 0;
    // 64 MiB, were it taken.
    while sent < 64 * 1024 * 1024 && http.send(fields.as_bytes()).is_ok() {
        sent += fields.len();
    }
    assert!(sent < 4 * 1024 * 1024, "{sent} bytes were taken");
    assert_eq!(Http::unix(&sidecar.socket).get("/v1/self").status, 200);
}
