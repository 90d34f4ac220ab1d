//! Names, descriptions, results and errors of a hostile agent in; what a terminal and a log get of them out.

use std::process::Stdio;

use ciborium::Value;

use crate::agents::{Provider, by_id, inline};
use crate::support::{BytePeer, Setup, Sidecar, capctl, map, run_with};

/// Every kind of character that steers a terminal, hides, turns text around, or ends a line where a program does not
/// expect it; and a line as a log would have it.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{7}\u{85}\u{202e}live\u{2066}\u{200b}\u{200d}\u{200f}\u{61c}\u{feff}\
                       \u{2028}\u{2029}\u{ad}\u{2060}\u{3164}\u{e0041}\u{fff9}\r\n2026-01-01T00:00:00Z  INFO forged: \
                       forged=true\nforged";

/// Whether a character may not stand in what people are shown; line ends and tabs apart, which our own text has.
fn is_foul(char: char) -> bool {
    let is_kept = matches!(char, '\n' | '\t');
    let ranges = [
        0x00..=0x1f,
        0x7f..=0x9f,
        0xad..=0xad,
        0x61c..=0x61c,
        0x200b..=0x200f,
        0x2028..=0x202e,
        0x2060..=0x206f,
        0x3164..=0x3164,
        0xfeff..=0xfeff,
        0xfff9..=0xfffb,
        0xe0000..=0xe007f,
    ];
    !is_kept && ranges.iter().any(|range| range.contains(&u32::from(char)))
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap();
    if let Some(foul) = text.chars().find(|char| is_foul(*char)) {
        panic!("{what} shows {foul:?}: {text:?}");
    }
    if let Some(forged) =
        text.lines().find(|line| line.starts_with("2026-01-01") || line.starts_with("forged"))
    {
        panic!("{what} has a line of the attacker's: {forged:?} in {text}");
    }
}

fn text(value: &str) -> Value {
    value.into()
}

/// A descriptor whose every text is hostile.
fn descriptor(name: &str) -> Value {
    let schema = format!(
        "{{\"type\": \"object\", \"description\": {}, \"properties\": {{{}: {{\"type\": \"string\"}}}}}}",
        serde_json::json!(HOSTILE),
        serde_json::json!(HOSTILE)
    );
    map([
        ("id", format!("org.evil.{name}:1.0.0").into()),
        ("description", text(HOSTILE)),
        ("category", text(HOSTILE)),
        ("since", text(HOSTILE)),
        ("notes", text(HOSTILE)),
        ("instructions", Value::Array(vec![text(HOSTILE)])),
        ("supported_ranges", Value::Array(vec![">=1.0.0 <2.0.0".into()])),
        ("input_schema", inline(&schema)),
        ("output_schema", inline("{\"type\": \"object\"}")),
    ])
}

/// An agent that answers every call with something hostile, until its sidecar ends.
fn serve(b: &Sidecar) {
    let names = ["result", "error", "violation", "progress"];
    let mut provider = Provider::of(b, names.map(descriptor).to_vec());
    std::thread::spawn(move || {
        while let Some(frame) = provider.link.try_frame() {
            if frame.frame_type != crate::support::AMP_MESSAGE {
                continue;
            }
            let call = crate::support::Message {
                value: crate::support::decode(&frame.payload),
                bytes: frame.payload,
            };
            if call.typ() != crate::agents::CAP_INVOKE {
                continue;
            }
            let id = crate::support::field(call.body(), "id")
                .and_then(Value::as_text)
                .unwrap_or_default()
                .to_owned();
            let hostile = map([("a", text(HOSTILE)), ("b", Value::Array(vec![text(HOSTILE)]))]);
            if id.contains("violation") {
                provider.succeed(&call, text(HOSTILE));
            } else if id.contains("error") {
                let error = map([("code", 5001.into()), ("message", text(HOSTILE)), ("details", hostile)]);
                let body = map([("status", "error".into()), ("error", error)]);
                provider.link.answer(&call, crate::agents::CAP_RESULT, body);
            } else {
                let progress =
                    map([("state", "running".into()), ("message", text(HOSTILE)), ("pct", 50.into())]);
                provider.link.answer(&call, crate::agents::PROGRESS, progress);
                provider.succeed(&call, hostile);
            }
        }
    });
}

/// Every verb that speaks to a sidecar or shows what others wrote, with the words that make it show it.
fn verbs(hostile_file: &str) -> Vec<Vec<String>> {
    let lines = [
        "ls",
        "query org.evil.result",
        "query org.evil.*",
        "describe org.evil.result:1.0.0",
        "call org.evil.result --params {} --progress",
        "call org.evil.progress --params {} --progress",
        "call org.evil.error --params {}",
        "call org.evil.violation --params {}",
        "call org.evil.missing --params {}",
        "bench org.evil.error --params {} --duration 100ms --warm-up 10ms --in-flight 1",
        "calls",
        "metrics",
        "doctor",
        "audit query",
        "audit verify",
        "ping",
        "id",
        "policy why did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH org.evil.result",
        "diff org.evil.result:1.0.0 org.evil.error:1.0.0",
        "matrix org.evil.result:1.0.0 org.evil.error:1.0.0",
    ];
    let mut verbs: Vec<Vec<String>> =
        lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    verbs.push(vec![
        "call".into(),
        "org.evil.result".into(),
        "--params".into(),
        serde_json::json!({HOSTILE: 1}).to_string(),
    ]);
    verbs.push(vec!["decode".into(), hostile_file.into()]);
    // Lines that somebody pastes are their own.
    let pasted = HOSTILE.split('\r').next().unwrap();
    for verb in ["query", "describe", "ping", "call"] {
        verbs.push(vec![verb.into(), pasted.into()]);
    }
    verbs
}

#[test]
fn no_verb_of_capctl_shows_what_steers_a_terminal_or_forges_a_line() {
    let b = Setup::new().start();
    serve(&b);
    let a = Setup::new().peer(&b).start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("frame.bin");
    std::fs::write(&file, frame(&by_id("org.evil.result:1.0.0", text(HOSTILE)))).unwrap();
    let mut shown = 0;
    for sidecar in [&b, &a] {
        for words in verbs(file.to_str().unwrap()) {
            for json in [false, true] {
                let mut command = capctl(Some(&sidecar.socket));
                if json {
                    command.arg("--json");
                }
                let output = run_with(command.args(&words).stdin(Stdio::null()), b"");
                let what = format!("{words:?} (JSON: {json})");
                assert_clean(&what, &output.stdout);
                assert_clean(&what, &output.stderr);
                for line in
                    std::str::from_utf8(&output.stderr).unwrap().lines().filter(|line| line.starts_with('{'))
                {
                    assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{what}: {line}");
                }
                if json && output.status.success() {
                    for line in std::str::from_utf8(&output.stdout).unwrap().lines() {
                        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
                        assert!(parsed.is_ok() || words[0] == "metrics", "{what}: {line}");
                        // What is escaped is still told, so that a program sees the text as it is.
                        shown += usize::from(parsed.is_ok_and(|value| holds(&value, HOSTILE)));
                    }
                }
            }
        }
    }
    assert!(shown > 4, "the hostile texts were shown {shown} times only: the test does not reach its aim");
}

fn holds(value: &serde_json::Value, text: &str) -> bool {
    match value {
        serde_json::Value::String(string) => string.contains(text),
        serde_json::Value::Array(items) => items.iter().any(|item| holds(item, text)),
        serde_json::Value::Object(members) => members.values().any(|member| holds(member, text)),
        _ => false,
    }
}

fn frame(body: &Value) -> Vec<u8> {
    let envelope =
        map([("v", 1.into()), ("typ", 0x22.into()), ("body", body.clone()), ("from", text(HOSTILE))]);
    let payload = crate::support::encode(&envelope);
    let mut bytes = u32::try_from(payload.len() + 1).unwrap().to_be_bytes().to_vec();
    bytes.push(crate::support::AMP_MESSAGE);
    bytes.extend(payload);
    bytes
}

#[test]
fn no_line_of_the_log_is_forged_by_what_others_send() {
    for format in ["human", "json"] {
        let b = Setup::new().set("log.format", format).set("log.payloads_of", "org.evil.result").start();
        serve(&b);
        let a = Setup::new().peer(&b).set("log.format", format).set("log.level", "trace").start();
        for name in ["result", "error", "violation", "progress", "missing"] {
            let name = format!("org.evil.{name}");
            run_with(capctl(Some(&a.socket)).args(["call", &name, "--params", "{}"]), b"");
        }
        // An ERROR frame, an ERROR message, a name in HELLO, and a message that is none.
        let mut peer = BytePeer::open(&b.socket);
        peer.send(0x0f, map([("code", 1001.into()), ("message", text(HOSTILE))]));
        peer.send(0x22, map([("id", text(HOSTILE)), ("params", text(HOSTILE))]));
        let mut envelope = peer.envelope(0x22, by_id("org.evil.result:1.0.0", Value::Null));
        crate::support::set(&mut envelope, "from", text(HOSTILE));
        peer.send_envelope(&envelope);
        peer.send_frame(
            0x7e,
            &crate::support::encode(&map([("code", 1001.into()), ("message", text(HOSTILE))])),
        );
        drop(peer);
        let mut peer = BytePeer::connect(&b.socket);
        peer.handshake();
        let agent = map([("name", text(HOSTILE)), ("implementation", text(HOSTILE))]);
        peer.send(0x70, map([("versions", Value::Array(vec![text(HOSTILE)])), ("agent_info", agent)]));
        let _answer = peer.closed();
        for sidecar in [&a, &b] {
            let log = sidecar.log();
            assert_clean(format, log.as_bytes());
            for line in log.lines() {
                let is_ours = match format {
                    "json" => serde_json::from_str::<serde_json::Value>(line).is_ok(),
                    _ => line.len() > 20 && line.as_bytes()[..4].iter().all(u8::is_ascii_digit),
                };
                assert!(is_ours, "not a line of the log: {line:?}");
            }
        }
    }
}
