//! `capctl reload` and `config diff` against real sidecars: what changes, what cannot, and what a mistake says.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

fn run(sidecar: &Sidecar, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

fn edit(sidecar: &Sidecar, change: impl FnOnce(String) -> String) {
    let path = sidecar.dir.join("capd.toml");
    let text = change(std::fs::read_to_string(&path).unwrap());
    std::fs::write(path, text).unwrap();
}

const YAML: &str = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: echo, command: [cat], idempotent: true }\n";

#[test]
fn a_file_is_compared_then_applied_as_a_whole() {
    let provider = Setup::new().capabilities(YAML).start();
    let sidecar = Setup::new().start();
    assert_eq!(
        run(&sidecar, &["config", "diff"]),
        (0, "the file and the running configuration are the same\n".to_owned(), String::new())
    );
    edit(&sidecar, |text| {
        let peer = format!(
            "[[peers]]\ndid = {:?}\naddresses = [\"quic://{}\"]\nserves = [\"org.example.*\"]\n",
            provider.did,
            provider.quic.unwrap()
        );
        text + &peer + "[limits]\nlinks_max = 512\ncalls_in_flight_max = 4000\n"
    });
    let peer = format!("+ peers: {{ did = \"{}\"", provider.did);
    for (line, last) in
        [(["config", "diff"].as_slice(), None), (&["reload"], Some("3 changes applied, 2 rules in force"))]
    {
        let (code, out, errors) = run(&sidecar, line);
        assert_eq!((code, errors.as_str()), (0, ""), "{out}");
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[0].starts_with(&peer), "{out}");
        assert_eq!(lines[1], "~ limits.calls_in_flight_max: 4096 -> 4000");
        assert_eq!(lines[2], "~ limits.links_max: 1024 -> 512  (for new links)");
        assert_eq!(lines.get(3).copied(), last, "{out}");
    }
    assert_eq!(run(&sidecar, &["config", "diff"]).1, "the file and the running configuration are the same\n");
    let (code, out, errors) =
        run(&sidecar, &["call", "org.example.echo", "--params", "7", "--timeout", "20s"]);
    assert_eq!((code, out.as_str()), (0, "7\n"), "{errors}");

    // The change is accounted for, entry by entry.
    let (_, records, _) = run(&sidecar, &["audit", "query", "--kind", "configuration_reloaded", "--json"]);
    let record: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    let record = record.get("record").unwrap_or(&record);
    assert_eq!(record["changeCount"], 3, "{record}");
    assert_eq!(
        record["changes"][1],
        json!({"key": "limits.calls_in_flight_max", "from": "4096", "to": "4000"})
    );

    // Taken off the list again, it serves what an unlisted peer may: nothing.
    edit(&sidecar, |text| text.split("[[peers]]").next().unwrap().replace("serves = [\"*\"]", "serves = []"));
    assert_eq!(run(&sidecar, &["reload"]).0, 0);
    let (code, _, errors) = run(&sidecar, &["call", "org.example.echo", "--params", "7", "--timeout", "20s"]);
    assert_eq!(code, 3, "{errors}");
}

#[test]
fn what_needs_a_restart_refuses_the_whole_file() {
    let sidecar = Setup::new().start();
    edit(&sidecar, |text| {
        text.replace("tcp = \"127.0.0.1:0\"\nlocal", "tcp = \"off\"\nlocal")
            + "[limits]\nlinks_max = 512\n[log]\nformat = \"json\"\n"
    });
    let (code, out, errors) = run(&sidecar, &["reload"]);
    assert_eq!(code, 1, "{out}{errors}");
    assert_eq!(
        out,
        "~ listen.tcp: \"127.0.0.1:0\" -> \"off\"  (needs a restart)\n~ log.format: \"human\" -> \"json\"  (needs a restart)\n\
         ~ limits.links_max: 1024 -> 512  (for new links)\n"
    );
    assert_eq!(
        errors,
        "capctl: nothing is changed: listen.tcp, log.format can change only with a restart\n  restart capd, or set these \
         keys back and reload again\n"
    );
    let (code, out, _) = run(&sidecar, &["reload", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &document["applied"], &document["changes"][0]["takes"]),
        (1, &json!(false), &json!("restart"))
    );
    let (_, metrics, _) = run(&sidecar, &["metrics"]);
    assert!(metrics.contains("capd_limit_max{limit=\"limits.links_max\"} 1024\n"), "{metrics}");
    let (code, _, errors) = run(&sidecar, &["policy", "reload"]);
    assert!(code == 1 && errors.contains("listen.tcp"), "{code} {errors}");
}

#[test]
fn a_mistake_in_any_file_says_line_and_key_and_changes_nothing() {
    let sidecar = Setup::new().capabilities(YAML).start();
    let whole = std::fs::read_to_string(sidecar.dir.join("capd.toml")).unwrap();
    let lines = whole.lines().count();
    edit(&sidecar, |text| text + "[limits]\nlinks_max = \"many\"\nno_such = 1\n");
    let (code, out, errors) = run(&sidecar, &["reload"]);
    assert_eq!((code, out.as_str()), (2, ""), "{errors}");
    assert!(errors.contains(&format!("capd.toml:{}: limits.links_max: ", lines + 2)), "{errors}");
    assert!(errors.contains(&format!("capd.toml:{}: limits.no_such: ", lines + 3)), "{errors}");
    assert!(!errors.contains(sidecar.dir.to_str().unwrap()), "a message names no path: {errors}");
    let (code, out, _) = run(&sidecar, &["config", "diff", "--json"]);
    assert_eq!((code, out.as_str()), (2, ""));

    edit(&sidecar, |_| whole.clone());
    let yaml = sidecar.dir.join("capabilities.yaml");
    std::fs::write(&yaml, YAML.to_owned() + "  - { name: two, comand: [cat] }\n").unwrap();
    let (code, _, errors) = run(&sidecar, &["reload"]);
    assert!(code == 2 && errors.contains("capabilities.yaml:5: capabilities[1]"), "{errors}");
    std::fs::write(&yaml, YAML.to_owned() + "  - { name: two, command: [no-such-program] }\n").unwrap();
    let (code, _, errors) = run(&sidecar, &["reload"]);
    assert!(code == 2 && errors.contains("capabilities.yaml:5: capabilities[1].command[0]"), "{errors}");
    let (code, out, _) = run(&sidecar, &["call", "org.example.echo", "--params", "1"]);
    assert_eq!((code, out.as_str()), (0, "1\n"));

    // A capability is added, another changed, and both are there at once.
    let two = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: echo, command: [tr, a, b], idempotent: true }\n  - { name: two, command: [cat] }\n";
    std::fs::write(&yaml, two).unwrap();
    let (code, out, errors) = run(&sidecar, &["reload"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("~ agent.capabilities: org.example.echo:1.0.0 -> org.example.echo:1.0.0 (changed)\n"),
        "{out}"
    );
    assert!(out.contains("+ agent.capabilities: org.example.two:1.0.0\n"), "{out}");
    assert_eq!(run(&sidecar, &["call", "org.example.echo", "--params", "\"a\""]).1, "\"b\"\n");
    assert_eq!(run(&sidecar, &["call", "org.example.two", "--params", "\"a\""]).1, "\"a\"\n");
    std::fs::write(&yaml, YAML).unwrap();
    assert!(run(&sidecar, &["reload"]).1.contains("- agent.capabilities: org.example.two:1.0.0\n"));
    assert_eq!(run(&sidecar, &["call", "org.example.two"]).0, 3);
}

#[test]
fn the_log_changes_with_the_file_and_a_signal_reloads_all_of_it() {
    let sidecar = Setup::new().capabilities(YAML).logs_as_its_file_says().start();
    let log_of = |text: &str| sidecar.log().matches(text).count();
    let call = || assert_eq!(run(&sidecar, &["call", "org.example.echo", "--params", "1"]).0, 0);
    call();
    assert_eq!((log_of("role=\"executor\""), log_of("DEBUG")), (1, 0), "{}", sidecar.log());
    edit(&sidecar, |text| text + "[log]\nlevel = \"debug\"\naccess = \"off\"\n[timeouts]\ncall_ms = 50000\n");
    let pid = rustix::process::Pid::from_raw(sidecar.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !sidecar.log().contains("the configuration is reloaded") {
        assert!(Instant::now() < deadline, "{}", sidecar.log());
        std::thread::yield_now();
    }
    call();
    assert_eq!(log_of("role=\"executor\""), 1, "calls are not logged any more");
    assert!(log_of("DEBUG") > 0, "{}", sidecar.log());
    assert!(
        sidecar.log().contains("key=\"timeouts.call_ms\" from=\"60000\" to=\"50000\""),
        "{}",
        sidecar.log()
    );
}

#[test]
fn a_change_that_breaks_callers_under_the_same_version_is_told_before_it_is_applied() {
    let yaml = |required: &str| {
        let input = format!("{{ type: object, properties: {{ a: true }}, required: [{required}] }}");
        YAML.replace("idempotent: true", &format!("idempotent: true, inputSchema: {input}"))
    };
    let sidecar = Setup::new().capabilities(&yaml("")).start();
    std::fs::write(sidecar.dir.join("capabilities.yaml"), yaml("a")).unwrap();
    for line in [&["config", "diff"][..], &["reload"]] {
        let (code, out, errors) = run(&sidecar, line);
        assert_eq!(code, 0, "{errors}");
        let said = "org.example.echo:1.0.0 breaks its callers under the version that they know: requests are refused at /a";
        assert!(format!("{out}{errors}").contains(said), "{line:?}: {out}{errors}");
    }
    let (_, out, errors) = run(&sidecar, &["config", "diff"]);
    assert!(!format!("{out}{errors}").contains("breaks its callers"), "{out}{errors}");
}
