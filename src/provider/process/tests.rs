use std::io::Read;
use std::sync::Arc;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1024 * 1024;

fn spec(script: &str) -> ProcessSpec {
    ProcessSpec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        dir: std::env::temp_dir(),
        concurrency: 4,
        queue_max: 4,
        output_bytes_max: 16 * MIB,
        tell_stderr: false,
        confined: None,
    }
}

fn call(input: impl Into<Vec<u8>>) -> ProcessCall<'static> {
    ProcessCall {
        id: "00112233445566778899aabbccddeeff",
        capability: "org.example.echo:1.0.0",
        caller: "did:key:z6Mkcaller",
        input: input.into(),
        deadline: Instant::now() + HOUR,
    }
}

async fn run(script: &str, input: impl Into<Vec<u8>>) -> Result<Vec<u8>, ProcessError> {
    let process = Process::new(spec(script));
    timeout(Duration::from_secs(60), process.run(call(input), &CancellationToken::new()))
        .await
        .expect("every script here ends")
}

async fn json(script: &str) -> serde_json::Value {
    serde_json::from_slice(&run(script, "{}").await.unwrap()).unwrap()
}

/// A directory with a pipe `alive`: a script opens it for writing, and the reader's end of file comes when every
/// process that holds it has died.
struct Watch {
    dir: tempfile::TempDir,
}

impl Watch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("alive")).status().unwrap();
        assert!(made.success());
        Self { dir }
    }

    /// A script whose shell, child and grandchild all write their pids into `alive` and then hang.
    const FAMILY: &str = "exec 9>alive; echo $$ >&9
        sh -c 'sleep 1000 & echo $! >&9; echo $$ >&9; echo up >&9; wait' &
        wait";

    fn spec(&self, script: &str) -> ProcessSpec {
        ProcessSpec { dir: self.dir.path().to_path_buf(), ..spec(script) }
    }

    /// Opens the pipe and reads until the line `up`: from here on everybody is running.
    async fn up(&self) -> Survivors {
        let path = self.dir.path().join("alive");
        tokio::task::spawn_blocking(move || {
            let mut pipe = std::fs::File::open(path).unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"up\n") {
                let mut byte = [0];
                pipe.read_exact(&mut byte).unwrap();
                seen.push(byte[0]);
            }
            let lines = String::from_utf8(seen).unwrap();
            let pids = lines.lines().filter_map(|line| line.parse().ok()).collect();
            Survivors { pipe, pids }
        })
        .await
        .unwrap()
    }
}

struct Survivors {
    pipe: std::fs::File,
    pids: Vec<u32>,
}

impl Survivors {
    /// Returns when nobody holds the pipe and no pid is alive; a zombie that nobody reaps counts as dead.
    async fn gone(mut self) {
        let wait = tokio::task::spawn_blocking(move || self.pipe.read_to_end(&mut Vec::new()));
        timeout(Duration::from_secs(20), wait).await.expect("somebody is alive").unwrap().unwrap();
        assert!(!self.pids.is_empty());
        for pid in self.pids {
            let dead = async {
                while is_alive(pid) {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(20), dead).await.expect("a process is left");
        }
    }
}

fn is_alive(pid: u32) -> bool {
    if !Path::new("/proc/self/stat").exists() {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        return rustix::process::test_kill_process(pid).is_ok();
    }
    // The state stands behind the name in parentheses; a name may hold parentheses too.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Lets the deadline of a call that waits in real time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn params_go_in_and_the_result_comes_out() {
    assert_eq!(run("cat", r#"{"a": [1, 2]}"#).await.unwrap(), br#"{"a": [1, 2]}"#);
}

#[tokio::test]
async fn large_input_is_echoed_without_a_deadlock() {
    let input = format!("\"{}\"", "x".repeat(4 * MIB));
    assert_eq!(run("cat", input.clone()).await.unwrap(), input.into_bytes());
}

#[tokio::test]
async fn input_that_nobody_reads_is_no_error() {
    let input = format!("\"{}\"", "x".repeat(MIB));
    assert_eq!(run("exec <&-; echo '{}'", input).await.unwrap(), b"{}\n");
}

#[tokio::test]
async fn exit_code_other_than_zero_is_an_error_that_quotes_nothing_unless_it_may() {
    let script = "echo '{}'; echo first >&2; echo 'disk /var/data/full' >&2; exit 3";
    let error = run(script, "{}").await.unwrap_err();
    assert_eq!(error, ProcessError::Failed("the provider exited with code 3".into()));
    assert_eq!(error.code(), Code::INTERNAL_ERROR);
    let process = Process::new(ProcessSpec { tell_stderr: true, ..spec(script) });
    let error = process.run(call("{}"), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error, ProcessError::Failed("the provider exited with code 3: disk full".into()));
}

#[tokio::test]
async fn stderr_of_a_call_that_ran_out_of_time_is_kept() {
    let process = Process::new(spec("echo so far >&2; sleep 60"));
    let soon = ProcessCall { deadline: Instant::now() + Duration::from_millis(500), ..call("{}") };
    let mut stderr = Vec::new();
    let result = process.run_with(soon, &CancellationToken::new(), &mut stderr).await;
    assert_eq!((result, &stderr[..]), (Err(ProcessError::Timeout), &b"so far\n"[..]));
}

#[tokio::test]
async fn silent_failure_names_code_or_signal() {
    assert_eq!(run("exit 7", "{}").await.unwrap_err().to_string(), "the provider exited with code 7");
    assert_eq!(run("kill -9 $$", "{}").await.unwrap_err().to_string(), "the provider was killed by signal 9");
}

#[tokio::test]
async fn stderr_flood_keeps_its_end_and_does_no_harm() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' 'e' >&2; echo >&2; echo the end >&2";
    assert_eq!(run(&format!("{script}; echo 1"), "{}").await.unwrap(), b"1\n");
    let process = Process::new(spec(&format!("{script}; exit 1")));
    let mut stderr = Vec::new();
    let error = process.run_with(call("{}"), &CancellationToken::new(), &mut stderr).await.unwrap_err();
    assert_eq!(error, ProcessError::Failed("the provider exited with code 1".into()));
    assert!(stderr.ends_with(b"e\nthe end\n") && stderr.len() < 200_000, "{}", stderr.len());
}

#[tokio::test]
async fn stdout_flood_is_killed_at_the_limit() {
    let process = Process::new(ProcessSpec { output_bytes_max: 1000, ..spec("yes") });
    let error = process.run(call("{}"), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error, ProcessError::OutputTooLarge(1000));
    assert_eq!(error.code(), Code::INTERNAL_ERROR);
}

#[tokio::test]
async fn output_of_exactly_the_limit_is_taken_and_one_more_is_not() {
    for (bytes, fits) in [(1000, true), (1001, false)] {
        let script = format!("printf '\"%{}s\"' ''", bytes - 2);
        let process = Process::new(ProcessSpec { output_bytes_max: 1000, ..spec(&script) });
        let result = process.run(call("{}"), &CancellationToken::new()).await;
        assert_eq!(result.is_ok(), fits, "{bytes}");
    }
}

#[tokio::test]
async fn output_that_is_no_document_is_an_error() {
    for script in ["true", "echo hello", "echo '{} {}'", "printf '{\"a\":'"] {
        let error = run(script, "{}").await.unwrap_err();
        assert!(matches!(error, ProcessError::NotJson { .. }), "{script}: {error:?}");
        assert_eq!(error.code(), Code::INTERNAL_ERROR);
    }
}

#[tokio::test]
async fn command_that_cannot_start_is_unavailable_and_names_no_path() {
    let process = Process::new(ProcessSpec { program: "/nonexistent/tool".into(), ..spec("") });
    let error = process.run(call("{}"), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), Code::UNAVAILABLE);
    assert!(!error.to_string().contains("nonexistent"), "{error}");
}

#[tokio::test]
async fn environment_is_the_promised_one_and_nothing_else() {
    let script =
        r#"echo "[\"$CAPD_CALL_ID\",\"$CAPD_CAPABILITY\",\"$CAPD_CALLER\",\"$CARGO_MANIFEST_DIR\"]""#;
    let call = call("");
    assert_eq!(json(script).await, serde_json::json!([call.id, call.capability, call.caller, ""]));
    let names = json("env | sed 's/=.*//' | sort | sed 's/.*/\"&\"/' | paste -sd, | sed 's/.*/[&]/'").await;
    let promised = ["CAPD_CALLER", "CAPD_CALL_ID", "CAPD_CAPABILITY", "HOME", "LANG", "PATH", "TMPDIR"];
    let by_the_shell = ["OLDPWD", "PWD", "SHLVL", "_"];
    for name in names.as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert!(promised.contains(&name) || by_the_shell.contains(&name), "{name}");
    }
}

#[tokio::test]
async fn own_directory_leads_the_path() {
    let exe = std::env::current_exe().unwrap();
    let path = json(r#"echo "\"$PATH\"""#).await;
    assert!(path.as_str().unwrap().starts_with(exe.parent().unwrap().to_str().unwrap()));
}

#[tokio::test]
async fn relative_program_stands_in_the_declaration_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("tool")).unwrap();
    let relative = ProcessSpec {
        program: "./tool".into(),
        args: vec!["42".into()],
        dir: dir.path().to_path_buf(),
        ..spec("")
    };
    assert_eq!(Process::new(relative).run(call(""), &CancellationToken::new()).await.unwrap(), b"42\n");
}

#[tokio::test]
async fn timeout_leaves_no_process_of_the_family() {
    let watch = Watch::new();
    let process = Process::new(watch.spec(Watch::FAMILY));
    let cancel = CancellationToken::new();
    let (result, family) = tokio::join!(process.run(call("{}"), &cancel), async {
        let family = watch.up().await;
        pass(2 * HOUR).await;
        family
    });
    assert_eq!(result, Err(ProcessError::Timeout));
    assert_eq!(result.unwrap_err().code(), Code::TIMEOUT);
    assert_eq!(family.pids.len(), 3);
    family.gone().await;
}

#[tokio::test]
async fn cancel_leaves_no_process_of_the_family() {
    let watch = Watch::new();
    let process = Process::new(watch.spec(Watch::FAMILY));
    let cancel = CancellationToken::new();
    let (result, family) = tokio::join!(process.run(call("{}"), &cancel), async {
        let family = watch.up().await;
        cancel.cancel();
        family
    });
    assert_eq!(result.unwrap_err().code(), Code::CANCELLED);
    family.gone().await;
}

#[tokio::test]
async fn process_deaf_to_sigterm_is_killed() {
    let watch = Watch::new();
    let process =
        Process::new(watch.spec("trap '' TERM; exec 9>alive; echo $$ >&9; echo up >&9; sleep 1000"));
    let cancel = CancellationToken::new();
    let (result, family) = tokio::join!(process.run(call("{}"), &cancel), async {
        let family = watch.up().await;
        cancel.cancel();
        family
    });
    assert_eq!(result, Err(ProcessError::Cancelled));
    family.gone().await;
}

#[tokio::test]
async fn dropped_call_leaves_no_process_of_the_family() {
    let watch = Watch::new();
    let process = Process::new(watch.spec(Watch::FAMILY));
    let cancel = CancellationToken::new();
    let family = tokio::select! {
        result = process.run(call("{}"), &cancel) => panic!("it hangs by design: {result:?}"),
        family = watch.up() => family,
    };
    family.gone().await;
}

#[tokio::test]
async fn children_left_behind_are_killed_and_do_not_delay_the_result() {
    let watch = Watch::new();
    let script = "sh -c 'exec 9>alive; echo $$ >&9; echo up >&9; : > up; sleep 1000' & cat;
        until [ -e up ]; do :; done; kill -0 $! && exit 0";
    let process = Process::new(watch.spec(script));
    let cancel = CancellationToken::new();
    let (result, family) = tokio::join!(process.run(call("{}"), &cancel), watch.up());
    assert_eq!(result.unwrap(), b"{}");
    family.gone().await;
}

#[tokio::test]
async fn flood_leaves_no_process_of_the_family() {
    let watch = Watch::new();
    let script = "exec 9>alive; sleep 1000 & echo $! >&9; echo up >&9; yes";
    let process = Process::new(ProcessSpec { output_bytes_max: 10_000, ..watch.spec(script) });
    let cancel = CancellationToken::new();
    let (result, family) = tokio::join!(process.run(call("{}"), &cancel), watch.up());
    assert_eq!(result, Err(ProcessError::OutputTooLarge(10_000)));
    family.gone().await;
}

/// Fails when it meets another instance of itself: `mkdir` is atomic.
const ALONE: &str =
    "mkdir running || exit 9; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; rmdir running; echo 1";

#[tokio::test]
async fn concurrency_of_one_runs_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let alone = ProcessSpec { dir: dir.path().to_path_buf(), concurrency: 1, queue_max: 7, ..spec(ALONE) };
    let process = Arc::new(Process::new(alone));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let process = Arc::clone(&process);
            tokio::spawn(async move { process.run(call("{}"), &CancellationToken::new()).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), b"1\n");
    }
}

#[tokio::test]
async fn full_queue_refuses_and_a_waiting_call_keeps_its_deadline() {
    let watch = Watch::new();
    let busy = ProcessSpec { concurrency: 1, queue_max: 1, ..watch.spec(Watch::FAMILY) };
    let process = Process::new(busy);
    let (cancel_first, cancel_other) = (CancellationToken::new(), CancellationToken::new());
    let first = process.run(call("{}"), &cancel_first);
    let rest = async {
        let family = watch.up().await;
        let soon = ProcessCall { deadline: Instant::now() + Duration::from_millis(50), ..call("{}") };
        let second = process.run(soon, &cancel_other);
        tokio::pin!(second);
        // Polled once, the second call waits and fills the queue.
        assert!(timeout(Duration::ZERO, &mut second).await.is_err());
        let third = process.run(call("{}"), &cancel_other).await.unwrap_err();
        assert_eq!(third, ProcessError::Overloaded { running: 1, waiting: 1 });
        assert_eq!(third.code(), Code::OVERLOADED);
        assert_eq!(second.await, Err(ProcessError::Timeout));
        let waiting = process.run(call("{}"), &cancel_other);
        let (cancelled, ()) = tokio::join!(waiting, async { cancel_other.cancel() });
        assert_eq!(cancelled, Err(ProcessError::Cancelled));
        cancel_first.cancel();
        family
    };
    let (first, family) = tokio::join!(first, rest);
    assert_eq!(first, Err(ProcessError::Cancelled));
    family.gone().await;
}
