//! Configurations with and without faults in; what `capctl doctor` finds, and how it ends, out.

use serde_json::Value;

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const COUNTED: &str =
    "{type: object, properties: {count: {type: integer}}, required: [count], additionalProperties: false}";
/// Asks for one thing more.
const NAMED: &str = "{type: object, properties: {count: {type: integer}, name: {type: string}}, required: [count, name], additionalProperties: false}";

/// A sidecar that serves `org.example.echo` with these schemas, by a command that answers what it is asked.
fn serving(input: &str, output: &str) -> Sidecar {
    let yaml = format!(
        "version: 1\ncapabilities:\n- name: org.example.echo\n  version: \"1.0.0\"\n  command: [cat]\n  \
         inputSchema: {input}\n  outputSchema: {output}\n"
    );
    Setup::new().capabilities(&yaml).start()
}

fn requiring(range: &str) -> Setup {
    Setup::new().capabilities(&format!(
        "version: 1\nrequires:\n- name: org.example.echo\n  version: {range:?}\n  inputSchema: {COUNTED}\n  \
         outputSchema: {COUNTED}\n"
    ))
}

/// Runs it on a sidecar's own configuration; its exit code, and its checks as lines of JSON.
fn doctor(sidecar: &Sidecar) -> (i32, Vec<Value>) {
    let config = sidecar.dir.join("capd.toml");
    let line = ["doctor", "--json", "--config", config.to_str().unwrap()];
    let output = run_with(capctl(None).args(line), b"");
    let checks = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (exit_code(&output), checks)
}

/// The checks as `check state`.
fn states(checks: &[Value]) -> Vec<String> {
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    checks.iter().map(|check| format!("{} {}", text(check, "check"), text(check, "state"))).collect()
}

/// What `look` gives while an agent on a local link serves a capability that declares a permission.
fn beside_agent<T>(sidecar: &Sidecar, id: &str, permission: &str, look: impl FnOnce() -> T) -> T {
    use capd::client::{Client, Endpoint, Invocation, Options};
    let socket = Endpoint::Unix(sidecar.socket.clone());
    let draft = capd_proto::message::DescriptorDraft {
        permissions: vec![permission.to_owned()],
        ..capd_proto::message::DescriptorDraft::new(id.parse().unwrap())
    };
    let (declared, is_declared) = std::sync::mpsc::sync_channel(1);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let agent = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(socket, Options::default()).await.unwrap();
            client.serve(1, |_: Invocation| std::future::pending()).unwrap();
            client.declare(&[draft.finish().unwrap()]).await.unwrap();
            declared.send(()).unwrap();
            let _ended = ended.await;
        });
    });
    is_declared.recv_timeout(PATIENCE).unwrap();
    let seen = look();
    drop(end);
    agent.join().unwrap();
    seen
}

#[test]
fn an_agent_whose_providers_keep_to_its_contract_is_well() {
    let b = serving(COUNTED, COUNTED);
    let a = requiring(">=1.0.0 <2.0.0").peer(&b).start();
    let (code, checks) = doctor(&a);
    assert_eq!(
        (code, states(&checks)),
        (
            0,
            ["config ok", "sidecar ok", "journal ok", "audit ok", "peer ok", "requires ok"]
                .map(String::from)
                .to_vec()
        )
    );
    assert_eq!(checks[1]["about"], a.did.as_str());
    assert_eq!(checks[5]["about"], format!("org.example.echo:1.0.0 of {}", b.did));
    // For people, without a file: its socket is named.
    let output = run_with(capctl(Some(&a.socket)).env("HOME", &a.dir).arg("doctor"), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("STATE  CHECK     ABOUT"), "{}", stdout(&output));
}

#[test]
fn drift_is_found_with_the_value_that_shows_it() {
    let b = serving(NAMED, COUNTED);
    let a = requiring(">=1.0.0 <2.0.0").peer(&b).start();
    let (code, checks) = doctor(&a);
    assert_eq!((code, states(&checks).pop().unwrap().as_str()), (4, "requires failed"));
    let drifted = &checks[5];
    assert_eq!((&drifted["code"], &drifted["findings"][0]["rule"]), (&4902.into(), &"required".into()));
    assert!(drifted["findings"][0]["witness"]["count"].is_number(), "{drifted}");
    // The call is refused just so.
    let line = ["call", "org.example.echo", "--params", "{\"count\":1}"];
    let output = run_with(capctl(Some(&a.socket)).args(line), b"");
    assert_eq!(exit_code(&output), 4);
    let said = stderr(&output);
    assert!(said.contains("4902 SCHEMA_DRIFT") && !said.contains("details:"), "{said}");
    assert!(said.contains("\n  at /name: ") && said.contains("\n  for example, as "), "{said}");
    assert!(said.trim_end().lines().last().unwrap().starts_with("  call 0"), "{said}");
}

#[test]
fn what_nobody_serves_and_what_nobody_serves_in_range_is_missing() {
    let b = serving(COUNTED, COUNTED);
    for (range, peer, text) in
        [(">=2.0.0", true, "in none of these versions"), (">=1.0.0", false, "nobody serves it")]
    {
        let a = requiring(range);
        let a = if peer { a.peer(&b) } else { a }.start();
        let (code, checks) = doctor(&a);
        assert_eq!((code, states(&checks).pop().unwrap().as_str()), (5, "requires failed"));
        assert!(checks.last().unwrap()["text"].as_str().unwrap().contains(text), "{checks:?}");
    }
}

#[test]
fn a_grant_that_lacks_what_a_capability_declares_is_told_beside_its_provider() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n\
                - { name: vault, command: [cat], permissions: [\"secrets:read\"] }\n";
    let allow = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.*\"]\n";
    let b = Setup::new().capabilities(yaml).allow(allow).start();
    let (code, checks) = doctor(&b);
    assert_eq!(
        (code, states(&checks)),
        (0, ["config warning", "sidecar ok", "journal ok", "audit ok"].map(String::from).to_vec())
    );
    let text = checks[0]["text"].as_str().unwrap();
    for part in ["[[allow]] 1", "org.example.vault:1.0.0", "secrets:read"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // What an agent declares over its link is looked at too.
    let b = Setup::new().allow(allow).start();
    let (code, checks) = beside_agent(&b, "org.example.safe:1.0.0", "secrets:read", || doctor(&b));
    assert_eq!(code, 0, "{checks:?}");
    let told = checks
        .iter()
        .find(|check| check["text"].as_str().unwrap().contains("org.example.safe:1.0.0"))
        .unwrap();
    assert_eq!((&told["check"], &told["state"]), (&"policy".into(), &"warning".into()));
    assert!(told["text"].as_str().unwrap().contains("[[allow]] 1"), "{told}");
}

#[test]
fn a_provider_outside_of_a_range_without_a_schema_is_told() {
    let serving = |version: &str| {
        let yaml = format!(
            "version: 1\ncapabilities:\n- name: org.example.echo\n  version: {version:?}\n  command: [cat]\n"
        );
        Setup::new().capabilities(&yaml).start()
    };
    let (fits, newer) = (serving("1.5.0"), serving("2.0.0"));
    let yaml = "version: 1\nrequires:\n- name: org.example.echo\n  version: \">=1.0.0 <2.0.0\"\n";
    let a = Setup::new().capabilities(yaml).peer(&fits).peer(&newer).start();
    let (code, checks) = doctor(&a);
    assert_eq!(code, 0, "{checks:?}");
    let required: Vec<_> = checks.iter().filter(|check| check["check"] == "requires").collect();
    let [ok, outside] = required[..] else { panic!("{checks:?}") };
    assert_eq!((&ok["state"], &ok["text"]), (&"ok".into(), &"proven".into()));
    assert_eq!(outside["state"], "warning");
    assert_eq!(outside["about"], format!("org.example.echo:2.0.0 of {}", newer.did));
    let text = outside["text"].as_str().unwrap();
    assert!(text.contains("version 2.0.0 is not in >=1.0.0") && text.contains("4902"), "{text}");
}

#[test]
fn a_peer_that_is_not_there_and_a_sidecar_that_is_not_there_are_told() {
    let mut b = serving(COUNTED, COUNTED);
    let mut a = Setup::new().peer(&b).start();
    b.kill();
    let (code, checks) = doctor(&a);
    assert_eq!(
        (code, states(&checks)),
        (5, ["config ok", "sidecar ok", "journal ok", "audit ok", "peer failed"].map(String::from).to_vec())
    );
    assert_eq!(checks[4]["about"], b.did.as_str());
    a.kill();
    let (code, checks) = doctor(&a);
    assert_eq!((code, states(&checks)), (5, ["config ok", "sidecar failed"].map(String::from).to_vec()));
}

#[test]
fn mistakes_in_the_files_are_told_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("capd.toml");
    let run = |text: &str| {
        std::fs::write(&config, text).unwrap();
        let line = ["doctor", "--config", config.to_str().unwrap()];
        let output = run_with(capctl(None).args(line).env("HOME", dir.path()), b"");
        (exit_code(&output), stdout(&output).to_owned())
    };
    let (code, text) = run("[agent]\nnome = \"x\"\n");
    assert_eq!(code, 2);
    assert!(text.contains("failed  config") && text.contains("capd.toml:2"), "{text}");
    std::fs::write(dir.path().join("capabilities.yaml"), "version: 1\nrequires:\n- name: x\n").unwrap();
    let (code, text) = run("[agent]\ncapabilities = \"capabilities.yaml\"\n");
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("capabilities.yaml:3"), "{text}");
}
