//! What needs real `capd` processes: each test has its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use ciborium::Value;
use serde_json::json;

use crate::support::{BytePeer, Setup, Sidecar, capctl, exit_code, map, run_with, stderr, stdout};

/// Capabilities that need nothing but a shell.
const CAPABILITIES: &str = r#"
version: 1
agent: agent://test
namespace: org.example
capabilities:
  - name: upper
    version: "1.0.0"
    description: Upper case
    idempotent: true
    command: [tr, a-z, A-Z]
    inputSchema:
      type: object
      required: [N]
      properties:
        N: {type: integer}
  - name: upper
    version: "2.0.0"
    idempotent: true
    command: [tr, a-z, A-Z]
  - name: broken
    version: "1.0.0"
    command: [sh, -c, "echo first >&2; echo 'it is broken' >&2; exit 7"]
  - name: liar
    version: "1.0.0"
    command: [echo, '"text"']
    outputSchema:
      type: integer
  - name: slow
    version: "1.0.0"
    command: [sleep, "60"]
"#;

fn provider() -> Sidecar {
    Setup::new().capabilities(CAPABILITIES).start()
}

#[track_caller]
fn run(sidecar: &Sidecar, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

/// Runs to success, with JSON on stdout.
#[track_caller]
fn json_of(sidecar: &Sidecar, line: &[&str]) -> serde_json::Value {
    let (code, out, errors) = run(sidecar, line);
    assert_eq!(code, 0, "{line:?}\n{errors}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The next line, which begins with `start`; the rest of it.
#[track_caller]
fn line_after(reader: &mut impl std::io::BufRead, start: &str) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let rest = line.strip_prefix(start).unwrap_or_else(|| panic!("{line:?} does not begin with {start:?}"));
    rest.trim_end().to_owned()
}

fn interrupt(child: &Child) {
    signal(child.id(), rustix::process::Signal::INT);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_call_to_a_peer_prints_the_result_and_nothing_else() {
    let provider = provider();
    let caller = Setup::new().peer(&provider).start();
    let (code, out, errors) =
        run(&caller, &["call", "org.example.upper:1.0.0", "--params", r#"{"N": 1, "text": "hello"}"#]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(out, "{\n  \"N\": 1,\n  \"TEXT\": \"HELLO\"\n}\n");

    let document = json_of(&caller, &["call", "org.example.upper", "--params", r#"{"a": "b"}"#, "--json"]);
    assert_eq!((&document["status"], &document["result"]), (&json!("success"), &json!({"A": "B"})));
    assert_eq!(document["id"].as_str().unwrap().len(), 32);

    let line = ["call", "org.example.upper", "--version", "<2.0.0", "--params", "-"];
    let output = run_with(capctl(Some(&caller.socket)).args(line), br#"{"N": 2}"#);
    assert_eq!((exit_code(&output), stdout(&output)), (0, "{\n  \"N\": 2\n}\n"), "{}", stderr(&output));
    let (code, out, errors) = run(
        &caller,
        &["call", "org.example.upper", "--to", &provider.did, "--params", "null", "--timeout", "20s"],
    );
    // `tr` makes NULL of null.
    assert_eq!((code, out.as_str()), (6, ""), "{errors}");
    assert!(errors.contains("not one JSON document"), "{errors}");
}

#[test]
fn a_call_that_comes_too_soon_says_when_to_come_back() {
    let capabilities = r#"
version: 1
agent: agent://test
namespace: org.example
capabilities:
  - name: rare
    command: [echo, "1"]
    rateLimit: {requests: 1, period: 1h}
"#;
    let sidecar = Setup::new().capabilities(capabilities).start();
    assert_eq!(run(&sidecar, &["call", "org.example.rare"]).1, "1\n");
    let (code, out, errors) = run(&sidecar, &["call", "org.example.rare"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(errors.contains("3005 RATE_LIMITED"), "{errors}");
    assert!(
        errors.contains("the next call is accepted in ") && errors.contains("the limit of 1 "),
        "{errors}"
    );
    let (code, out, errors) = run(&sidecar, &["call", "org.example.rare", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&errors).unwrap();
    assert_eq!((code, out.as_str(), &document["error"]["details"]["limit"]), (3, "", &json!(1)));
}

#[test]
fn each_way_to_fail_has_its_exit_code_and_says_where() {
    let sidecar = provider();
    for (line, exit, said) in [
        (&["call", "org.example.upper:1.0.0", "--params", "{}"][..], 4, "at /N: "),
        (&["call", "org.example.liar"], 4, "5901"),
        (&["call", "org.example.nobody"], 3, "4002"),
        (&["call", "org.example.upper", "--version", ">=3.0.0"], 3, "2.0.0"),
        (&["call", "org.example.broken"], 6, "exited with code 7"),
        (&["call", "org.example.slow", "--timeout", "200ms"], 5, "5003"),
        (&["query", "org.example.nobody"], 3, "4002"),
        (&["query", "org.example.upper", "--cursor", "x"], 3, "4001"),
        (&["describe", "org.example.upper:9.0.0"], 3, "4003"),
        (&["cancel", "0000018d746b37000000000000000001"], 3, "no such call"),
        (&["calls", "0000018d746b37000000000000000001"], 3, "no such call"),
        (&["ping", "did:key:z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z"], 5, "2001"),
    ] {
        let (code, out, errors) = run(&sidecar, line);
        assert_eq!((code, out.as_str()), (exit, ""), "{line:?}\n{errors}");
        assert!(errors.contains(said), "{line:?}\n{errors}");
        let with_json: Vec<_> = line.iter().copied().chain(["--json"]).collect();
        let (code, out, errors) = run(&sidecar, &with_json);
        assert_eq!((code, out.as_str()), (exit, ""), "{line:?}\n{errors}");
        let document: serde_json::Value =
            serde_json::from_str(&errors).unwrap_or_else(|_| panic!("{errors}"));
        assert_eq!(document["exit"], exit);
    }
}

#[test]
fn capabilities_are_listed_paged_and_described() {
    let sidecar = provider();
    let (_, table, _) = run(&sidecar, &["ls", "upper"]);
    assert_eq!(
        table,
        "NAME               VERSION  PROVIDER  DESCRIPTION\n\
         org.example.upper  2.0.0    local\n\
         org.example.upper  1.0.0    local     Upper case\n"
    );
    let (code, out, errors) = run(&sidecar, &["ls", "com.nobody.*"]);
    assert_eq!((code, out.as_str(), errors.as_str()), (0, "", "no capabilities\n"));
    let (code, out, errors) = run(&sidecar, &["ls", "nothing-like-it"]);
    assert_eq!((code, out.as_str()), (3, ""), "{errors}");
    assert!(errors.contains("no capability has \"nothing-like-it\" in its name"), "{errors}");
    let (_, lines, _) = run(&sidecar, &["ls", "org.example.*", "--json"]);
    assert_eq!(lines.lines().count(), 5);

    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut line = vec!["query", "org.example.*", "--limit", "2", "--order", "oldest-first", "--json"];
        if let Some(cursor) = &cursor {
            line.extend(["--cursor", cursor.as_str()]);
        }
        let (_, page, _) = run(&sidecar, &line);
        let lines = page.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let (found, next): (Vec<_>, Vec<_>) = lines.partition(|line| line["next_cursor"].is_null());
        ids.extend(found.iter().map(|descriptor| descriptor["id"].as_str().unwrap().to_owned()));
        // The old name of `ls` is the same verb.
        line[0] = "ls";
        assert_eq!(run(&sidecar, &line).1, page);
        match next.first() {
            Some(next) => cursor = Some(next["next_cursor"].as_str().unwrap().to_owned()),
            None => break,
        }
    }
    let names = ["broken:1.0.0", "liar:1.0.0", "slow:1.0.0", "upper:1.0.0", "upper:2.0.0"];
    assert_eq!(ids, names.map(|name| format!("org.example.{name}")));

    let (code, text, _) = run(&sidecar, &["describe", "org.example.upper:1.0.0"]);
    assert_eq!(code, 0);
    assert!(text.contains(&format!("provider      local, {}", sidecar.did)), "{text}");
    assert!(text.contains("input is checked against sha-256:"), "{text}");
    assert!(text.contains("output is unchecked: no schema is declared"), "{text}");
    let document = json_of(&sidecar, &["describe", "org.example.upper:1.0.0", "--json"]);
    assert_eq!(document["providers"][0]["input"]["schema"]["required"], json!(["N"]));
    assert_eq!(document["providers"][0]["output"]["checked"], false);
    for (key, name) in [("static_hash", "static hash"), ("lineage", "lineage")] {
        let hash = document["providers"][0][key].as_str().unwrap();
        assert!(hash.len() == 64 && text.contains(&format!("  {name:<14}sha-256:{hash}\n")), "{text}");
    }
}

#[test]
fn the_shell_serves_until_it_is_interrupted() {
    let sidecar = Sidecar::start();
    let schema = sidecar.dir.join("input.json");
    std::fs::write(&schema, r#"{"type": "object", "maxProperties": 1}"#).unwrap();
    let mut serve = capctl(Some(&sidecar.socket));
    serve.args(["serve", "org.example.echo:1.0", "--idempotent", "--description", "Echo", "--input-schema"]);
    let mut serve =
        start(serve.arg(&schema).args(["--", "sh", "-c", "cat; echo \"for $CAPD_CAPABILITY\" >&2"]));
    let mut announced = BufReader::new(serve.stdout.take().unwrap());
    line_after(&mut announced, "serving org.example.echo:1.0.0 as ");

    let (code, out, errors) =
        run(&sidecar, &["call", "org.example.echo", "--params", r#"{"a": [1.5, null]}"#]);
    assert_eq!(
        (code, out.split_whitespace().collect::<String>().as_str()),
        (0, r#"{"a":[1.5,null]}"#),
        "{errors}"
    );
    let (code, _, errors) = run(&sidecar, &["call", "org.example.echo", "--params", r#"{"a": 1, "b": 2}"#]);
    assert_eq!((code, errors.contains("maxProperties")), (4, true), "{errors}");
    let document = json_of(&sidecar, &["describe", "org.example.echo:1.0.0", "--json"]);
    assert_eq!(document["providers"][0]["input"]["schema"]["maxProperties"], 1);
    assert_eq!(document["providers"][0]["descriptor"]["description"], "Echo");

    interrupt(&serve);
    assert_eq!(serve.wait().unwrap().code(), Some(0));
    let (code, _, errors) = run(&sidecar, &["call", "org.example.echo"]);
    assert_eq!((code, errors.contains("4002")), (3, true), "{errors}");
}

#[test]
fn a_schema_that_cannot_be_enforced_is_refused_when_it_is_registered() {
    let sidecar = Sidecar::start();
    let schema = sidecar.dir.join("input.json");
    std::fs::write(&schema, r#"{"$ref": "https://example.org/elsewhere.json"}"#).unwrap();
    let mut serve = capctl(Some(&sidecar.socket));
    serve.args(["serve", "org.example.echo:1.0.0", "--input-schema"]).arg(&schema).args(["--", "cat"]);
    let output = run_with(&mut serve, b"");
    assert_eq!((exit_code(&output), stdout(&output)), (3, ""), "{}", stderr(&output));
    let (_, out, _) = run(&sidecar, &["ls"]);
    assert_eq!(out, "");
}

#[test]
fn a_running_call_is_cancelled_by_its_id() {
    let sidecar = provider();
    let mut call = start(capctl(Some(&sidecar.socket)).args(["call", "org.example.slow", "--progress"]));
    let mut progress = BufReader::new(call.stderr.take().unwrap());
    let id = line_after(&mut progress, "call ");
    // The call is on its way: it is unknown until the sidecar has it.
    let cancelled = loop {
        let (code, out, errors) = run(&sidecar, &["cancel", &id]);
        if code == 0 {
            break out;
        }
        assert!(errors.contains("no such call"), "{errors}");
    };
    assert_eq!(cancelled, "cancelling\n");
    assert_eq!(call.wait().unwrap().code(), Some(6));
    line_after(&mut progress, "capctl: 4901 CANCELLED: ");
    let (_, out, _) = run(&sidecar, &["cancel", &id]);
    assert_eq!(out, "finished\n");
}

#[test]
fn ctrl_c_cancels_the_call_and_exits_with_130() {
    let sidecar = provider();
    let mut call =
        start(capctl(Some(&sidecar.socket)).args(["call", "org.example.slow", "--progress", "--json"]));
    let mut progress = BufReader::new(call.stderr.take().unwrap());
    line_after(&mut progress, r#"{"event":"sent""#);
    interrupt(&call);
    assert_eq!(call.wait().unwrap().code(), Some(130));
    line_after(&mut progress, r#"{"event":"note""#);
    let mut last = String::new();
    progress.read_line(&mut last).unwrap();
    let document: serde_json::Value = serde_json::from_str(&last).unwrap_or_else(|_| panic!("{last}"));
    assert_eq!((&document["error"]["code"], &document["exit"]), (&json!(4901), &json!(130)));
}

/// An agent that serves `org.example.loose:1.0.0`, whose every answer the test chooses.
pub(crate) fn loose(sidecar: &Sidecar) -> BytePeer {
    let mut agent = BytePeer::open(&sidecar.socket);
    let descriptor = map([("id", "org.example.loose:1.0.0".into())]);
    agent.send(0x21, map([("capabilities", Value::Array(vec![descriptor]))]));
    assert!(agent.ping().is_empty(), "the declaration is taken");
    agent
}

#[test]
fn a_call_whose_caller_died_is_asked_about_by_its_id() {
    let near = Sidecar::start();
    let far = Sidecar::start();
    let caller = Setup::new().peer(&far).start();
    // Its own agent serves it, or a peer's does; then the sidecar asked before, and a refusal does not say that nothing ran.
    for (serves, calls, other) in [(&near, &near, (3, "4001")), (&far, &caller, (6, "5902"))] {
        let mut agent = loose(serves);
        let mut call = start(capctl(Some(&calls.socket)).args(["call", "org.example.loose", "--progress"]));
        let id = line_after(&mut BufReader::new(call.stderr.take().unwrap()), "call ");
        let invoke = agent.message();
        call.kill().unwrap();
        call.wait().unwrap();
        let again = start(capctl(Some(&calls.socket)).args(["call", "org.example.loose", "--id", &id]));
        agent.answer(&invoke, 0x23, map([("status", "success".into()), ("result", "done".into())]));
        let again = again.wait_with_output().unwrap();
        assert_eq!((exit_code(&again), stdout(&again)), (0, "\"done\"\n"), "{}", stderr(&again));
        let document = json_of(calls, &["call", "org.example.loose", "--id", &id, "--json"]);
        assert_eq!((&document["id"], &document["result"]), (&json!(id), &json!("done")));
        let (code, _, errors) = run(calls, &["call", "org.example.loose", "--id", &id, "--params", "1"]);
        assert_eq!((code, errors.contains(other.1)), (other.0, true), "{errors}");
        assert!(agent.ping().is_empty(), "it ran once");
    }
}

#[test]
fn calls_are_listed_while_they_run_and_after_their_end() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let (code, out, errors) = run(&near, &["calls"]);
    assert_eq!(
        (code, out.as_str(), errors.as_str()),
        (0, "", "no calls\njournal: 0 changes in 0 commits, 0 failed\n")
    );
    let mut agent = loose(&far);
    let mut call = start(capctl(Some(&near.socket)).args(["call", "org.example.loose", "--progress"]));
    let id = line_after(&mut BufReader::new(call.stderr.take().unwrap()), "call ");
    let invoke = agent.message();

    let relayed = json_of(&near, &["calls", "--json"]);
    assert_eq!(
        (&relayed["id"], &relayed["role"], &relayed["state"]),
        (&json!(id), &json!("caller"), &json!("sent"))
    );
    let (_, table, _) = run(&far, &["calls"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("ID  "), "{table}");
    assert!(lines[1].starts_with(&format!("{id}  executing  ")), "{table}");
    assert!(lines[1].ends_with(&format!("org.example.loose:1.0.0  {}", near.did)), "{table}");

    agent.answer(&invoke, 0x23, map([("status", "success".into()), ("result", "done".into())]));
    assert_eq!(call.wait().unwrap().code(), Some(0));
    let (code, text, errors) = run(&far, &["calls", &id]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.starts_with(&format!("{id}\n  state           finished\n")), "{text}");
    assert!(text.contains("  result          success\n"), "{text}");
    assert_eq!(json_of(&far, &["calls", &id, "--json"])["status"], "success");
}

#[test]
fn an_id_past_its_time_is_refused_and_not_run() {
    let sidecar = Sidecar::start();
    let mut agent = loose(&sidecar);
    let line = ["call", "org.example.loose", "--id", "0000018d746b37000000000000000001"];
    let (code, out, errors) = run(&sidecar, &line);
    assert_eq!((code, out.as_str()), (3, ""), "{errors}");
    assert!(errors.contains("1003") && errors.contains("to 2024-02-04T15:00:00Z"), "{errors}");
    assert!(agent.ping().is_empty(), "it did not run");
}

#[test]
fn the_command_that_a_timeout_names_finds_out_what_became_of_the_call() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let mut agent = loose(&far);
    let line = ["call", "org.example.loose", "--params", r#"{"it's": 1}"#, "--timeout", "1s"];
    let call = start(capctl(Some(&near.socket)).args(line));
    let invoke = agent.message();
    // It goes on later, with the call running.
    signal(far.pid(), rustix::process::Signal::STOP);
    let call = call.wait_with_output().unwrap();
    assert_eq!(exit_code(&call), 5, "{}", stderr(&call));
    let told = stderr(&call);
    let (_, command) = told.split_once("to find out: ").unwrap_or_else(|| panic!("{told}"));
    assert!(command.contains("--id "), "{command}");

    signal(far.pid(), rustix::process::Signal::CONT);
    let mut shell = Command::new("sh");
    shell.env_clear().env("CAPD_SOCKET", &near.socket).args(["-c", command]);
    let asked = run_with(&mut shell, b"");
    assert_eq!(exit_code(&asked), 5, "{}", stderr(&asked));
    assert!(stderr(&asked).contains("5003 TIMEOUT"), "{}", stderr(&asked));
    assert!(!stderr(&asked).contains("to learn"), "it is the last word: {}", stderr(&asked));
    // The call ran once: all that follows is the word that its time is up.
    agent.answer(&invoke, 0x23, map([("status", "success".into()), ("result", "late".into())]));
    let heard: Vec<_> = agent.ping().iter().map(crate::support::Message::typ).collect();
    assert_eq!(heard, [0x11, 0x0f], "a cancel, and the refusal of the late answer");
}

#[test]
fn a_lost_link_names_the_call_and_the_command_to_ask_with() {
    let mut sidecar = provider();
    let mut call = start(capctl(Some(&sidecar.socket)).args(["call", "org.example.slow", "--progress"]));
    let mut progress = BufReader::new(call.stderr.take().unwrap());
    let id = line_after(&mut progress, "call ");
    sidecar.kill();
    assert_eq!(call.wait().unwrap().code(), Some(5));
    let mut errors = String::new();
    progress.read_to_string(&mut errors).unwrap();
    let command = format!("call org.example.slow --progress --id {id}");
    assert!(errors.contains("link to the sidecar closed") && errors.contains(&command), "{errors}");
}

#[test]
fn the_sidecar_is_reached_over_loopback_tcp_with_its_token() {
    let sidecar = Sidecar::start();
    let address = sidecar.local_tcp.unwrap().to_string();
    let token = sidecar.dir.join("state/token");
    let mut command = capctl(None);
    command.args(["id", "--address", &address, "--token-file"]).arg(&token);
    let output = run_with(&mut command, b"");
    assert_eq!(
        (exit_code(&output), stdout(&output).trim_end()),
        (0, sidecar.did.as_str()),
        "{}",
        stderr(&output)
    );

    let wrong = sidecar.dir.join("wrong");
    std::fs::write(&wrong, "not the token").unwrap();
    let mut command = capctl(None);
    command.args(["id", "--address", &address, "--token-file"]).arg(&wrong);
    let output = run_with(&mut command, b"");
    assert_eq!(exit_code(&output), 3, "{}", stderr(&output));
    assert!(!stderr(&output).contains("not the token"));

    let (code, out, _) = run(&sidecar, &["ping", "--count", "3"]);
    assert_eq!((code, out.lines().count()), (0, 3), "{out}");
}

#[test]
fn bench_tells_how_calls_went_in_a_closed_loop_and_in_an_open_one() {
    let sidecar = provider();
    let load = ["--warm-up", "50ms", "--duration", "1s", "--in-flight", "2", "--params", "\"x\""];
    let line = |capability, more: &[&'static str]| [&["bench", capability][..], &load, more].concat();
    let closed = json_of(&sidecar, &line("org.example.upper:2.0.0", &["--json"]));
    let (calls, rate) = (closed["calls"].as_u64().unwrap(), closed["calls_per_second"].as_f64().unwrap());
    assert!(calls > 0 && (calls as f64 - rate).abs() < 1e-6, "{closed}");
    assert_eq!(
        (&closed["loop"], &closed["rate"], &closed["errors"]),
        (&json!("closed"), &json!(null), &json!({}))
    );
    for times in ["latency_us", "service_time_us"] {
        let us = |key: &str| closed[times][key].as_f64().unwrap();
        assert!(0.0 < us("p50") && us("p50") <= us("p99") && us("p99") <= us("max"), "{closed}");
    }
    let open = json_of(&sidecar, &line("org.example.upper:2.0.0", &["--rate", "20", "--json"]));
    assert_eq!((&open["loop"], &open["rate"]), (&json!("open"), &json!(20)));
    // Due at 50, 100, … 1,000 ms, whenever they begin.
    assert_eq!(open["calls"], 20, "{open}");
    let service = open["service_time_us"]["p50"].as_f64().unwrap();
    assert!(open["latency_us"]["p50"].as_f64().unwrap() >= service, "{open}");

    let (code, out, errors) = run(&sidecar, &line("org.example.upper:2.0.0", &[]));
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("2 calls in flight, 1.0 s after 0.1 s of warm-up\n\n"), "{out}");
    assert!(out.contains("\nservice time  "), "{out}");
    let (code, _, errors) = run(&sidecar, &line("org.example.absent", &[]));
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("4002"), "what cannot be called is said at once: {errors}");
    let (code, _, errors) = run(&sidecar, &line("org.example.upper:2.0.0", &["--ttl", "1s"]));
    assert_eq!((code, errors.contains("--ttl must be more than --timeout")), (2, true), "{errors}");
}

#[test]
fn without_any_setting_capctl_finds_the_socket_where_capd_puts_it() {
    let sidecar = Setup::new().at_home().start();
    let output = run_with(capctl(None).env("HOME", &sidecar.dir).arg("id"), b"");
    assert_eq!(
        (exit_code(&output), stdout(&output).trim_end()),
        (0, sidecar.did.as_str()),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_result_that_does_not_fit_json_is_printed_in_diagnostic_notation() {
    let sidecar = Sidecar::start();
    let mut agent = loose(&sidecar);
    let socket = sidecar.socket.clone();
    let caller = std::thread::spawn(move || {
        let line = ["call", "org.example.loose", "--params", r#"{"a": 1}"#];
        run_with(capctl(Some(&socket)).args(line), b"")
    });
    let invoke = agent.message();
    assert_eq!(invoke.typ(), 0x22);
    let result = Value::Map(vec![(1.into(), Value::Tag(1, Box::new(2.into())))]);
    agent.answer(&invoke, 0x23, map([("status", "success".into()), ("result", result)]));
    let output = caller.join().unwrap();
    assert_eq!((exit_code(&output), stdout(&output)), (0, "{1: 1(2)}\n"), "{}", stderr(&output));
}
