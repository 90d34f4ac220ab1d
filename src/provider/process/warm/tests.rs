use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Identity;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::line::{self, Junk};
use super::*;
use crate::provider::Outcome;
use crate::provider::ticket::{Answer, Answers};

/// A process of these tests, and the answers of its provider.
struct Served {
    provider: Option<WarmProvider>,
    answers: mpsc::Receiver<(MessageId, Outcome)>,
    to: Arc<Kept>,
    shutdown: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
    dir: TempDir,
}

struct Kept(mpsc::Sender<(MessageId, Outcome)>);

impl Answers for Kept {
    fn finish(self: Arc<Self>, answer: Answer) {
        let (key, outcome) = answer.into_parts();
        self.0.try_send((key.id, outcome)).expect("no test has more answers");
    }
}

impl Served {
    fn by(script: &str, idempotent: bool, concurrency: usize) -> Self {
        Self::within(script, idempotent, concurrency, PATIENCE)
    }

    fn within(script: &str, idempotent: bool, concurrency: usize, answer_within: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = WarmSpec {
            process: ProcessSpec {
                program: "/bin/sh".into(),
                args: vec!["-c".into(), format!("{FUNCTIONS}\n{script}")],
                dir: dir.path().to_owned(),
                concurrency,
                queue_max: 4,
                output_bytes_max: 4096,
                tell_stderr: true,
                confined: None,
            },
            capability: "org.example.echo:1.0.0".into(),
            idempotent,
            answer_within,
        };
        let (sender, answers) = mpsc::channel(64);
        let (shutdown, worker) = (CancellationToken::new(), Arc::new(std::sync::Mutex::new(None)));
        let kept = Arc::clone(&worker);
        let spawn: Spawn = Box::new(move |task| *kept.lock().unwrap() = Some(tokio::spawn(task)));
        let provider = WarmProvider::new(spec, spawn, shutdown.clone());
        assert!(worker.lock().unwrap().is_none(), "nothing runs before it begins");
        provider.begin();
        let worker = worker.lock().unwrap().take().unwrap();
        Self { provider: Some(provider), answers, to: Arc::new(Kept(sender)), shutdown, worker, dir }
    }

    /// Makes a call with these params; its number is its id.
    fn call(&self, number: u8, params: &Value) {
        let invocation = invocation(number, params);
        let ticket = Ticket::new(invocation.key.clone(), self.to.clone());
        self.provider.as_ref().unwrap().invoke(invocation, ticket);
    }

    fn cancel(&self, number: u8) {
        self.provider.as_ref().unwrap().cancel(&invocation(number, &Value::Null).key);
    }

    async fn answer(&mut self) -> (u8, Outcome) {
        let answer = timeout(PATIENCE, self.answers.recv()).await.expect("an answer comes").unwrap();
        (answer.0.0[0], answer.1)
    }

    async fn result(&mut self) -> (u8, Value) {
        let (number, outcome) = self.answer().await;
        let Outcome::Success(item) = outcome else { panic!("{number}: {outcome:?}") };
        (number, to_json(&item).unwrap())
    }

    async fn failure(&mut self) -> (u8, Code, String) {
        let (number, outcome) = self.answer().await;
        let Outcome::Failure { code, message } = outcome else { panic!("{number}: {outcome:?}") };
        (number, code, message)
    }

    /// Stops the provider and waits for its process.
    async fn stop(&mut self) {
        self.shutdown.cancel();
        timeout(PATIENCE, &mut self.worker).await.expect("the process ends").unwrap();
    }

    /// Waits until the process has made this file.
    async fn until(&self, file: &str) {
        let made = async {
            while !self.has(file) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, made).await.expect("the process makes it");
    }

    fn has(&self, file: &str) -> bool {
        self.dir.path().join(file).exists()
    }
}

fn invocation(number: u8, params: &Value) -> Invocation {
    let mut item = Vec::new();
    from_json(params, &mut item);
    Invocation {
        key: CallKey { from: Identity::from_seed([1; 32]).did().clone(), id: MessageId([number; 16]) },
        capability: "org.example.echo:1.0.0".parse::<CapabilityId>().unwrap(),
        names_id: true,
        envelope: Bytes::from_static(b"\xa0"),
        params: item.into(),
        deadline: Instant::now() + PATIENCE,
    }
}

/// `next` reads a line into `id` and `params`; `answer` writes a result.
const FUNCTIONS: &str = r#"
next() {
  IFS= read -r line || return 1
  id=${line#*:}; id=${id%%,*}
  params=${line#*'"params":'}; params=${params%?}
}
answer() { printf '{"id":%s,"result":%s}\n' "$id" "$1"; }
first() { mkdir "$1" 2>/dev/null; }
"#;
/// Answers every call with its params.
const ECHO: &str = "while next; do answer \"$params\"; done";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn one_process_answers_many_calls_by_their_ids_in_any_order() {
    let mut served =
        Served::by("next; a=$id; next; answer 2; id=$a; answer 1; while next; do answer $$; done", false, 2);
    served.call(1, &json!({"a": "b\nc"}));
    served.call(2, &json!([1]));
    assert_eq!(served.result().await, (2, json!(2)));
    assert_eq!(served.result().await, (1, json!(1)));
    let mut pids = Vec::new();
    for number in 3..6 {
        served.call(number, &Value::Null);
        pids.push(served.result().await.1);
    }
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}

#[tokio::test]
async fn call_that_a_dead_process_had_read_is_unknown_and_what_it_never_read_runs() {
    // `read` takes one line and no byte more.
    let script = format!("first died && {{ next; kill -9 $$; }}; {ECHO}");
    let mut served = Served::by(&script, false, 8);
    for number in 1..5 {
        served.call(number, &json!(number));
    }
    let (number, code, message) = served.failure().await;
    assert_eq!((number, code), (1, Code::INTERRUPTED));
    assert!(message.contains("killed by signal 9"), "{message}");
    for number in 2..5 {
        assert_eq!(served.result().await, (number, json!(number)), "it was in the pipe, unread");
    }
}

#[tokio::test]
async fn idempotent_call_is_tried_once_more_and_takes_no_other_with_it() {
    let script = "while next; do
        [ \"$params\" = 0 ] && { echo died >>deaths; exit 3; }
        answer \"$params\"
    done";
    let mut served = Served::by(script, true, 4);
    for number in 0..4 {
        served.call(number, &json!(number));
    }
    let mut lost = 0;
    for _ in 0..4 {
        match served.answer().await {
            (0, Outcome::Lost) => lost += 1,
            (number, Outcome::Success(item)) => assert_eq!(to_json(&item).unwrap(), json!(number)),
            (number, outcome) => panic!("{number}: {outcome:?}"),
        }
    }
    assert_eq!(lost, 1);
    assert_eq!(std::fs::read_to_string(served.dir.path().join("deaths")).unwrap(), "died\ndied\n");
}

#[tokio::test]
async fn what_a_process_wrote_before_it_exited_is_its_answer() {
    let mut served = Served::by("next; answer 7", false, 1);
    for number in 1..4 {
        served.call(number, &Value::Null);
        assert_eq!(served.result().await, (number, json!(7)));
    }
}

#[tokio::test]
async fn junk_ends_the_process_and_the_next_one_serves() {
    let script = format!("first junk && {{ next; echo \"Loading model\"; cat; }}; {ECHO}");
    let mut served = Served::by(&script, false, 1);
    served.call(1, &json!(1));
    served.call(2, &json!(2));
    let (number, code, message) = served.failure().await;
    assert_eq!((number, code), (1, Code::INTERNAL_ERROR));
    assert!(message.contains("not one JSON object") && !message.contains("Loading"), "{message}");
    assert_eq!(served.result().await, (2, json!(2)));
}

#[tokio::test]
async fn line_without_end_is_junk() {
    let script = format!("first junk && {{ next; yes | tr -d '\\n'; }}; {ECHO}");
    let mut served = Served::by(&script, false, 1);
    served.call(1, &json!(1));
    let (_, code, message) = served.failure().await;
    assert_eq!(code, Code::INTERNAL_ERROR);
    assert!(message.contains("more than 4096 bytes"), "{message}");
    served.call(2, &json!(2));
    assert_eq!(served.result().await, (2, json!(2)));
}

#[tokio::test]
async fn hung_process_is_ended_and_the_other_calls_are_not_lost_with_it() {
    let script = format!("first hung && {{ next; mkdir taken; sleep 1000; }}; {ECHO}");
    let mut served = Served::within(&script, false, 1, Duration::from_millis(200));
    served.call(1, &json!(1));
    served.call(2, &json!(2));
    served.until("taken").await;
    // The executor ends the call before the process is hung.
    served.cancel(1);
    assert!(matches!(served.answer().await, (1, Outcome::Lost)));
    assert_eq!(served.result().await, (2, json!(2)));
}

#[tokio::test]
async fn cancelled_call_keeps_its_place_and_costs_nobody_the_process() {
    let script = "next; mkdir taken; a=$id; first=$$; IFS= read -r go <go; id=$a; answer 1; while next; do answer $first; done";
    let mut served = Served::by(script, false, 1);
    let go = served.dir.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    served.call(1, &Value::Null);
    served.call(2, &Value::Null);
    served.until("taken").await;
    served.cancel(1);
    assert!(matches!(served.answer().await, (1, Outcome::Lost)));
    assert_eq!(served.provider.as_ref().unwrap().in_flight(), 1, "the second waits for the place");
    tokio::task::spawn_blocking(move || std::fs::write(go, "go\n").unwrap()).await.unwrap();
    let (number, pid) = served.result().await;
    assert_eq!(number, 2);
    served.call(3, &Value::Null);
    assert_eq!(served.result().await, (3, pid));
}

#[tokio::test]
async fn process_that_does_not_start_refuses_calls_with_its_reason_until_it_does() {
    let script = format!("[ -e ready ] || {{ echo 'no model' >&2; exit 3; }}; {ECHO}");
    let mut served = Served::by(&script, false, 1);
    served.call(1, &json!(1));
    let (number, code, message) = served.failure().await;
    assert_eq!((number, code), (1, Code::UNAVAILABLE), "nothing was executed: {message}");
    assert!(message.contains("exited with code 3: no model"), "{message}");
    std::fs::write(served.dir.path().join("ready"), "").unwrap();
    for number in 2..=255 {
        served.call(number, &json!(number));
        match served.answer().await {
            (_, Outcome::Success(_)) => return,
            (_, Outcome::Failure { code, .. }) => assert_eq!(code, Code::UNAVAILABLE),
            (_, other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never started");
}

#[tokio::test]
async fn queue_is_bounded() {
    let mut served = Served::by("next; cat", false, 1);
    for number in 0..6 {
        served.call(number, &Value::Null);
    }
    let (number, code, _) = served.failure().await;
    assert_eq!((number, code), (5, Code::OVERLOADED), "one runs, four wait");
    served.stop().await;
    for _ in 0..5 {
        assert!(matches!(served.answer().await.1, Outcome::Lost));
    }
}

#[tokio::test]
async fn end_of_input_ends_the_process_and_one_that_ignores_it_is_killed() {
    let mut polite = Served::by(&format!("{ECHO}; mkdir ended"), false, 1);
    polite.call(1, &Value::Null);
    assert_eq!(polite.result().await, (1, Value::Null));
    polite.stop().await;
    assert!(polite.has("ended"), "it read the end of its input, and was not killed");

    let mut stubborn = Served::by("trap '' TERM; next; answer $$; while :; do sleep 0.1; done", false, 1);
    stubborn.call(1, &Value::Null);
    let (_, pid) = stubborn.result().await;
    stubborn.stop().await;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X'])), "{stat}");
}

#[tokio::test]
async fn provider_that_is_dropped_lets_its_calls_end_and_then_its_process() {
    let mut served = Served::by(&format!("{ECHO}; mkdir ended"), false, 1);
    served.call(1, &json!(1));
    served.call(2, &json!(2));
    served.provider = None;
    assert_eq!(served.result().await, (1, json!(1)));
    assert_eq!(served.result().await, (2, json!(2)));
    timeout(PATIENCE, &mut served.worker).await.unwrap().unwrap();
    assert!(served.has("ended"));
}

#[test]
fn call_is_one_line_with_the_id_first_and_the_params_last() {
    let now = Instant::now();
    let call =
        Invocation { deadline: now + Duration::from_millis(1500), ..invocation(7, &json!({"text": "a\nb"})) };
    let mut out = b"before\n".to_vec();
    line::write(9, &call, now, &mut out).unwrap();
    let caller = call.key.from.as_str();
    let expected = format!(
        "before\n{{\"id\":9,\"call\":\"{}\",\"capability\":\"org.example.echo:1.0.0\",\"caller\":\"{caller}\",\
         \"deadline_ms\":1500,\"params\":{{\"text\":\"a\\nb\"}}}}\n",
        "07".repeat(16)
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn answers_are_read_and_everything_else_is_junk() {
    let success = |line: &str| match line::read(line.as_bytes()) {
        Ok((id, Outcome::Success(item))) => (id, to_json(&item).unwrap()),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(success(r#"{"id":1,"result":null}"#), (1, Value::Null));
    assert_eq!(
        success("{\"more\":[],\"result\":{\"a\":1},\"id\":18446744073709551615}\r"),
        (u64::MAX, json!({"a": 1}))
    );
    for (line, code) in [
        (r#"{"id":1,"error":"it failed"}"#, Code::INTERNAL_ERROR),
        (r#"{"id":1,"error":{}}"#, Code::INTERNAL_ERROR),
        (r#"{"id":1,"error":{"code":5004,"message":"busy","details":{"a":1}}}"#, Code::OVERLOADED),
    ] {
        let Ok((1, Outcome::Body(result))) = line::read(line.as_bytes()) else { panic!("{line}") };
        assert_eq!(result.ended, Err(code), "{line}");
    }
    for (line, is_json) in [
        ("hello", false),
        ("{\"id\":1,\"result\":1} x", false),
        ("[1]", false),
        ("{}", true),
        (r#"{"id":"1","result":1}"#, true),
        (r#"{"id":1}"#, true),
        (r#"{"id":1,"result":1,"error":"x"}"#, true),
        (r#"{"id":1,"error":7}"#, true),
    ] {
        let junk = line::read(line.as_bytes()).unwrap_err();
        assert_eq!(matches!(junk, Junk::NotAnswer(_)), is_json, "{line}: {junk}");
    }
}

#[tokio::test]
async fn bytes_that_nobody_read_are_counted() {
    let (mut input, stdin) = pipe::Input::new().unwrap();
    let mut written = 0;
    while written < 10 {
        written += input.write(&b"0123456789"[written..]).await.unwrap();
    }
    let head = std::process::Command::new("head").args(["-c", "4"]).stdin(stdin).output();
    // `head` may read more than it writes, and nothing that was not written.
    assert_eq!(head.unwrap().stdout, b"0123");
    assert!((4..=10).contains(&input.read_by_process()));

    let (mut input, _stdin) = pipe::Input::new().unwrap();
    assert_eq!(input.write(b"abc").await.unwrap(), 3);
    assert_eq!(input.read_by_process(), 0);
}
