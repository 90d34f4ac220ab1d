//! Whatever goes wrong in; words that give away no path, key, stack or other caller out (PROTOCOL 9).

use ciborium::Value;

use crate::agents::{
    CAP_DECLARE, CAP_INVOKE, CAP_QUERY, CAP_RESULT, Caller, DOC_REQUEST, ERROR, Provider, REQUEST, by_id,
    loose, of_error, with_schema, within,
};
use crate::support::{Message, Setup, Sidecar, field, map, set};

const CAPABILITIES: &str = r#"
version: 1
agent: agent://test
namespace: org.example
capabilities:
  - name: missing
    command: [./secret-folder-tool]
  - name: stack
    command: [sh, -c, "echo 'Error: it broke' >&2; echo '    at run (/srv/secret-folder/app/main.js:10:7)' >&2; exit 1"]
  - name: flood
    command: [sh, -c, "echo no json"]
  - name: typed
    command: [cat]
    inputSchema: {type: integer}
  - name: liar
    command: [echo, '"secret-result"']
    outputSchema: {type: integer}
  - name: rare
    command: [echo, "1"]
    rateLimit: {requests: 1, period: 1h}
  - name: slow
    command: [sleep, "60"]
"#;

/// A sidecar that serves these; the program of one is gone once it runs.
fn start() -> Sidecar {
    let sidecar = Setup::new().capabilities(CAPABILITIES).link("secret-folder-tool", "/bin/cat").start();
    std::fs::remove_file(sidecar.dir.join("secret-folder-tool")).unwrap();
    sidecar
}

/// What no answer to `caller` may hold.
fn forbidden(sidecar: &Sidecar, others: &[&str]) -> Vec<String> {
    let mut forbidden: Vec<String> =
        ["/nonexistent", "/srv", "secret-folder", "secret-result", "/tmp", ".rs:", "panicked", "backtrace"]
            .map(str::to_owned)
            .to_vec();
    forbidden.push(sidecar.dir.to_str().unwrap().to_owned());
    forbidden.extend(["identity.key", "journal.db", "audit.db", "capd.sock"].map(str::to_owned));
    forbidden.extend(others.iter().map(|did| (*did).to_owned()));
    forbidden
}

/// Asserts that a refusal or failure says something, and nothing that is forbidden; its code.
#[track_caller]
fn discreet(answer: &Message, forbidden: &[String]) -> u64 {
    let message = of_error(answer, "message").and_then(Value::as_text).unwrap_or_default();
    assert!(!message.is_empty(), "{answer:?}");
    let told = format!("{:?}", of_error(answer, "details")) + message;
    for word in forbidden {
        assert!(!told.contains(word.as_str()), "{told:?} gives away {word}");
    }
    answer.code().unwrap()
}

/// The code of each way for a call to go wrong.
fn of_calls(caller: &mut Caller, forbidden: &[String]) -> Vec<u64> {
    let id = |name: &str| format!("org.example.{name}:1.0.0");
    let mut bodies = vec![
        by_id(&id("nobody"), Value::Null),
        by_id("org.example.typed:9.0.0", 1.into()),
        by_id("no id", Value::Null),
        by_id(&id("typed"), "text".into()),
        by_id(&id("missing"), Value::Null),
        by_id(&id("stack"), Value::Null),
        by_id(&id("flood"), Value::Null),
        by_id(&id("rare"), Value::Null),
        within(&id("slow"), Value::Null, 100),
    ];
    let mut delegated = by_id(&id("typed"), 1.into());
    set(&mut delegated, "delegation", "x".into());
    bodies.push(delegated);
    let mut codes = Vec::new();
    for body in bodies {
        let id = caller.invoke(body);
        let answer = caller.about(&id);
        if answer.code().is_some() {
            codes.push(discreet(&answer, forbidden));
        }
    }
    codes
}

#[test]
fn no_answer_about_a_call_gives_anything_away() {
    let b = start();
    let others = [(); 2].map(|()| Setup::new().peer(&b).start());
    let [near, far] = [&others[0], &others[1]];
    let spent = forbidden(&b, &[&near.did]);
    // The first caller uses up what it may; what the second hears says nothing of it.
    of_calls(&mut Caller::of(near), &forbidden(&b, &[&far.did]));
    let mut caller = Caller::of(far);
    let codes = of_calls(&mut caller, &spent);
    assert_eq!(codes, [4002, 4003, 4001, 4004, 5002, 5001, 5001, 5003, 3004]);
    assert_eq!(of_calls(&mut caller, &spent)[7], 3005);
    // What breaks its schema is shown to nobody by the provider's sidecar.
    let id = caller.invoke(by_id("org.example.liar:1.0.0", Value::Null));
    assert_eq!(discreet(&caller.about(&id), &spent), 5901);
}

#[test]
fn no_answer_to_another_message_gives_anything_away() {
    let b = start();
    let mut provider = Provider::of(&b, vec![loose("org.example.held:1.0.0")]);
    let a = Setup::new().peer(&b).start();
    // A call of somebody else's is under way all the time.
    let mut other = Caller::of(&a);
    let running = other.invoke(by_id("org.example.held:1.0.0", "secret-result".into()));
    let held = provider.taken();
    let mut caller = Caller::of(&b);
    let forbidden = forbidden(&b, &[&a.did]);
    let cancel = map([("op", "cancel".into()), ("target", Value::Bytes(running.clone()))]);
    let not_ours = caller.link.send(REQUEST, cancel);
    let answer = caller.about(&not_ours);
    assert_eq!(field(answer.body(), "state").and_then(Value::as_text), Some("unknown"), "{answer:?}");
    let filter = map([("capability", "org.example.typed".into())]);
    let sent = [
        (CAP_QUERY, map([("filter", filter), ("cursor", "x".into())]), 4001),
        (CAP_QUERY, map([("filter", map([("capability", "org.example.nobody".into())]))]), 4002),
        (DOC_REQUEST, map([("hash", Value::Bytes(vec![7; 32]))]), 5002),
        (CAP_RESULT, map([("status", "success".into()), ("result", 1.into())]), 4001),
        (CAP_DECLARE, map([("capabilities", Value::Array(vec![loose("no id")]))]), 4001),
        (
            CAP_DECLARE,
            map([(
                "capabilities",
                Value::Array(vec![with_schema("org.example.a:1.0.0", "input_schema", r#"{"type": 7}"#)]),
            )]),
            4001,
        ),
        (0x55, Value::Null, 1005),
    ];
    for (typ, body, code) in sent {
        let id = caller.link.send(typ, body);
        assert_eq!(discreet(&caller.error(&id), &forbidden), code, "type {typ:#x}");
    }
    let mut stolen = caller.link.envelope(CAP_INVOKE, by_id("org.example.typed:1.0.0", 1.into()));
    set(&mut stolen, "from", a.did.as_str().into());
    let id = caller.link.send_envelope(&stolen);
    assert_eq!(discreet(&caller.about(&id), &forbidden), 3001);
    provider.succeed(&held, Value::Null);
    assert_ne!(other.about(&running).typ(), ERROR);
}
