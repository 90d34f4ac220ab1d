//! Commands that fail, hang, flood and crowd in; error results, and no process left behind, out.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;

use ciborium::Value;

use crate::agents::{Caller, by_id, failure, of_error, success, within};
use crate::support::{PATIENCE, Setup};

/// A declaration with one capability a script; `concurrency` is written where it is given.
fn declaring(capabilities: &[(&str, &str, Option<u32>)]) -> Setup {
    let mut yaml = "version: 1\nnamespace: org.example\ncapabilities:\n".to_owned();
    for (name, script, concurrency) in capabilities {
        yaml += &format!("  - name: {name}\n    command: [sh, -c, {script:?}]\n");
        // What the scripts do is told by what they write.
        yaml += "    permissions: [\"filesystem:write\"]\n";
        if let Some(concurrency) = concurrency {
            yaml += &format!("    concurrency: {concurrency}\n");
        }
    }
    // Nothing new can be made in a folder that leads to the sidecar's own.
    Setup::new().capabilities(&yaml).file("work/kept", "")
}

fn message(answer: &crate::support::Message) -> &str {
    of_error(answer, "message").and_then(Value::as_text).unwrap()
}

/// A pipe that is at its end once every process that holds it has gone.
struct Alive {
    opened: mpsc::Receiver<()>,
    lines: mpsc::Receiver<String>,
}

impl Alive {
    /// Makes the pipe `alive` in `dir`; a script holds it with `exec 3>alive`.
    fn in_dir(dir: &Path) -> Self {
        let path = dir.join("alive");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (is_open, opened) = mpsc::sync_channel(1);
        let (sender, lines) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            // Opening waits for the first process, reading for the last. Not every test waits for both.
            let Ok(mut pipe) = File::open(path) else { return };
            let _nobody_waits = is_open.send(());
            let mut written = String::new();
            if pipe.read_to_string(&mut written).is_ok() {
                let _nobody_waits = sender.send(written);
            }
        });
        Self { opened, lines }
    }

    /// Waits until a process holds it.
    fn begun(&self) {
        self.opened.recv_timeout(PATIENCE).expect("a process of the call begins");
    }

    /// Waits until no process holds it, and returns the process ids that were written to it.
    fn ended(self) -> Vec<u32> {
        let written = self.lines.recv_timeout(PATIENCE).expect("every process of the call ends");
        written.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }
}

/// Asserts that none of these processes runs; one that is dead and not yet collected does not.
#[track_caller]
fn assert_gone(pids: &[u32]) {
    let runs = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which stands in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let deadline = Instant::now() + PATIENCE;
    // A process lets go of its files a moment before it is dead.
    while pids.iter().any(runs) {
        assert!(Instant::now() < deadline, "{pids:?}");
        std::thread::yield_now();
    }
}

const HANG: &str = "exec 3>alive; echo $$ >&3; sleep 600 & echo $! >&3; wait";

#[test]
fn output_that_is_no_json_and_failing_exits_are_5001_with_a_reason() {
    let b = declaring(&[
        ("text", "echo hello", None),
        ("empty", "true", None),
        ("two", "echo 1 2", None),
        ("fails", "echo first >&2; echo 'last words' >&2; echo null; exit 3", None),
        ("silent", "exit 4", None),
        ("killed", "kill -9 $$", None),
    ])
    .start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    for (name, said) in [
        ("text", "JSON"),
        ("empty", "JSON"),
        ("two", "JSON"),
        ("fails", "exited with code 3"),
        ("silent", "4"),
        ("killed", "signal"),
    ] {
        let id = caller.invoke(by_id(&format!("org.example.{name}:1.0.0"), Value::Null));
        let result = caller.result(&id);
        assert_eq!(failure(&result), 5001, "{name}");
        assert!(message(&result).contains(said), "{name}: {}", message(&result));
    }
    caller.heard_nothing_more();
}

#[test]
fn a_command_that_cannot_be_started_is_5002() {
    let yaml =
        "version: 1\nnamespace: org.example\ncapabilities:\n  - name: none\n    command: [./not-there]\n";
    // It is there at the start, and gone when it is called.
    let b = Setup::new().capabilities(yaml).link("not-there", "/bin/cat").start();
    std::fs::remove_file(b.dir.join("not-there")).unwrap();
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.none:1.0.0", Value::Null));
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5002);
    let dir = b.dir.to_str().unwrap().as_bytes();
    assert!(!result.bytes.windows(dir.len()).any(|window| window == dir), "no path is told");
}

#[test]
fn a_command_that_hangs_is_5003_and_nothing_of_it_stays() {
    let b = declaring(&[("hang", HANG, None)]).start();
    let a = Setup::new().peer(&b).start();
    let alive = Alive::in_dir(&b.dir);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(within("org.example.hang:1.0.0", Value::Null, 300));
    assert_eq!(failure(&caller.result(&id)), 5003);
    let pids = alive.ended();
    assert_eq!(pids.len(), 2);
    assert_gone(&pids);
    caller.heard_nothing_more();
}

#[test]
fn a_cancel_and_a_shutdown_end_the_command_with_all_that_it_started() {
    let b = declaring(&[("hang", HANG, None)]).start();
    let alive = Alive::in_dir(&b.dir);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.hang:1.0.0", Value::Null));
    assert_eq!(caller.cancel(&id), "cancelling");
    assert_eq!(failure(&caller.result(&id)), 4901);
    // It was cancelled before or after it was started; either way nothing runs. A second one is surely started.
    drop(alive);
    std::fs::remove_file(b.dir.join("alive")).unwrap();
    let mut b = declaring(&[("hang", HANG, None)]).set("timeouts.drain_ms", "100").start();
    let alive = Alive::in_dir(&b.dir);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.hang:1.0.0", Value::Null));
    alive.begun();
    assert!(b.terminate().success());
    let result = caller.result(&id);
    assert!([5002, 5902].contains(&failure(&result)), "{result:?}");
    let pids = alive.ended();
    assert_gone(&pids);
}

#[test]
fn the_kill_of_a_command_that_is_out_of_time_or_cancelled_is_no_late_answer() {
    let mut b = declaring(&[("hang", "read line <never", None)]).start();
    assert!(Command::new("mkfifo").arg(b.dir.join("never")).status().unwrap().success());
    let mut caller = Caller::of(&b);
    for _ in 0..4 {
        let id = caller.invoke(within("org.example.hang:1.0.0", Value::Null, 100));
        assert_eq!(failure(&caller.result(&id)), 5003);
        let id = caller.invoke(by_id("org.example.hang:1.0.0", Value::Null));
        assert_eq!(caller.cancel(&id), "cancelling");
        assert_eq!(failure(&caller.result(&id)), 4901);
    }
    // It ends once every command has, and what came of each was told.
    assert!(b.terminate().success());
    let kinds: Vec<_> = b.audit().into_iter().map(|record| record["kind"].clone()).collect();
    assert!(!kinds.contains(&"late_result".into()), "{kinds:?}");
    assert!(!b.log().contains(" WARN "), "{}", b.log());
}

#[test]
fn output_beyond_the_largest_message_is_5001_and_the_command_is_killed() {
    let flood = "exec 3>alive; echo $$ >&3; exec yes 1";
    let b = declaring(&[("flood", flood, None)]).set("limits.msg_size_bytes_max", "1048576").start();
    let a = Setup::new().peer(&b).start();
    let alive = Alive::in_dir(&b.dir);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id("org.example.flood:1.0.0", Value::Null));
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5001);
    assert!(message(&result).contains("more than"), "{}", message(&result));
    let pids = alive.ended();
    assert_gone(&pids);
}

#[test]
fn no_more_commands_run_at_once_than_declared() {
    // Each makes a directory that is there while it runs; a second one at the same time cannot.
    let alone = "mkdir work/busy || exit 1; cat >/dev/null; rmdir work/busy; echo null";
    // Two meet at a pipe, which takes both of them at once.
    let pair = "case $(cat) in 1) echo hi >meet;; *) read line <meet;; esac; echo null";
    let b = declaring(&[("alone", alone, Some(1)), ("pair", pair, Some(2))]).start();
    assert!(Command::new("mkfifo").arg(b.dir.join("meet")).status().unwrap().success());
    let mut caller = Caller::of(&b);
    let ids: Vec<_> = (0..8).map(|_| caller.invoke(by_id("org.example.alone:1.0.0", Value::Null))).collect();
    for id in ids {
        assert_eq!(success(&caller.result(&id)), &Value::Null);
    }
    let one = caller.invoke(by_id("org.example.pair:1.0.0", 1.into()));
    let two = caller.invoke(by_id("org.example.pair:1.0.0", 2.into()));
    assert_eq!(success(&caller.result(&one)), &Value::Null);
    assert_eq!(success(&caller.result(&two)), &Value::Null);
}

#[test]
fn a_call_that_waits_for_a_free_process_keeps_its_deadline() {
    let b = declaring(&[("hang", "read line <never", Some(1))]).start();
    assert!(Command::new("mkfifo").arg(b.dir.join("never")).status().unwrap().success());
    let mut caller = Caller::of(&b);
    let running = caller.invoke(within("org.example.hang:1.0.0", Value::Null, 2_000));
    let waiting = caller.invoke(within("org.example.hang:1.0.0", Value::Null, 100));
    assert_eq!(failure(&caller.result(&waiting)), 5003);
    assert_eq!(caller.cancel(&running), "cancelling");
    assert_eq!(failure(&caller.result(&running)), 4901);
}

#[test]
fn params_that_no_json_has_do_not_reach_a_command() {
    let b = declaring(&[("echo", "touch work/started; cat", None)]).start();
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.echo:1.0.0", Value::Tag(1, Box::new(1.into()))));
    let answer = caller.about(&id);
    assert!([Some(4001), Some(4004)].contains(&answer.code()), "{answer:?}");
    assert!(!b.dir.join("work/started").exists());
}

/// Reads a call's line into `id` and `params`, and answers it.
const PERSISTENT: &str = r#"
next() {
  IFS= read -r line || return 1
  id=${line#*:}; id=${id%%,*}
  params=${line#*'"params":'}; params=${params%?}
}
answer() { printf '{"id":%s,"result":%s}\n' "$id" "$1"; }
"#;

/// A capability `kept`, served by one process that runs this script.
fn persistent(script: &str, is_idempotent: bool) -> Setup {
    let script = format!("{PERSISTENT}{script}");
    let yaml = format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n  - name: kept\n    mode: persistent\n    \
         command: [sh, -c, {script:?}]\n    idempotent: {is_idempotent}\n"
    );
    Setup::new().capabilities(&yaml)
}

#[test]
fn one_persistent_process_serves_many_calls() {
    let b = persistent("while next; do answer $$; done", true).start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let pids: Vec<_> = (0..50)
        .map(|number| {
            let id = caller.invoke(by_id("org.example.kept:1.0.0", number.into()));
            success(&caller.result(&id)).as_integer().unwrap()
        })
        .collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    caller.heard_nothing_more();
}

#[test]
fn a_call_that_a_persistent_process_died_with_is_unknown_and_the_next_process_serves() {
    let script = "while next; do [ \"$params\" = 0 ] && kill -9 $$; answer \"$params\"; done";
    let b = persistent(script, false).start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let dies = caller.invoke(by_id("org.example.kept:1.0.0", 0.into()));
    let result = caller.result(&dies);
    assert_eq!(failure(&result), 5902, "{}", message(&result));
    assert!(message(&result).contains("signal 9"), "{}", message(&result));
    let mut number = 1;
    // The next process starts a moment later; until then nothing is executed.
    let answered = loop {
        let id = caller.invoke(by_id("org.example.kept:1.0.0", number.into()));
        let result = caller.result(&id);
        if of_error(&result, "code").is_none() {
            break success(&result).as_integer().unwrap();
        }
        assert_eq!(failure(&result), 5002, "{}", message(&result));
        number += 1;
        assert!(number < 1_000, "it never started again");
    };
    assert_eq!(answered, number.into());
    caller.heard_nothing_more();
}

#[test]
fn what_a_persistent_process_writes_that_is_no_answer_is_shown_to_its_owner_alone() {
    let b = persistent("echo 'Loading secret model'; while next; do answer 1; done", true).start();
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.kept:1.0.0", Value::Null));
    let result = caller.result(&id);
    assert!(matches!(failure(&result), 5001 | 5002), "{}", message(&result));
    assert!(!message(&result).contains("secret"), "{}", message(&result));
    let deadline = Instant::now() + PATIENCE;
    // The log is written behind the call.
    while !b.log().contains("Loading secret model") {
        assert!(Instant::now() < deadline, "{}", b.log());
        std::thread::yield_now();
    }
}
