use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const TIME: Time = Time { ends_ms: 20_000, grace_ms: 250 };

fn policy() -> RetryPolicy {
    RetryPolicy::default().with_retry_on(vec![Code::INTERNAL_ERROR])
}

/// An input by a short name, its time, and the generation that "old" means.
fn input(name: &str, current: Generation) -> (Input, u64) {
    let old = Generation(current.0.wrapping_sub(1));
    let refused = |code, retry, retry_after_ms, another| Refused {
        code,
        retry,
        retry_after_ms,
        another,
        released: false,
    };
    let error = |generation, code, retry, retry_after_ms| Input::Error {
        generation,
        error: refused(code, retry, retry_after_ms, false),
    };
    let elsewhere = |code| Input::Error { generation: current, error: refused(code, None, None, true) };
    let released = |another| Input::Error {
        generation: current,
        error: Refused { released: true, ..refused(Code::UNAVAILABLE, None, None, another) },
    };
    let result = |generation, error| Input::Result { generation, error, retry_after_ms: None };
    let input = match name {
        "Sent" => Input::Sent,
        "Notice" => Input::Notice { generation: current },
        "Notice old" => Input::Notice { generation: old },
        "Result success" => result(current, None),
        "Result 5001" => result(current, Some(Code::INTERNAL_ERROR)),
        "Result 5003" => result(current, Some(Code::TIMEOUT)),
        "Result old" => result(old, None),
        "Error 5004" => error(current, Code::OVERLOADED, None, None),
        "Error 5004 after 3s" => error(current, Code::OVERLOADED, Some(true), Some(3_000)),
        "Error 5004 after 30s" => error(current, Code::OVERLOADED, Some(true), Some(30_000)),
        "Error 5004 final" => error(current, Code::OVERLOADED, Some(false), None),
        "Error 3001" => error(current, Code::UNAUTHORIZED, None, None),
        "Error 5902" => error(current, Code::INTERRUPTED, None, None),
        "Error 5002 elsewhere" => elsewhere(Code::UNAVAILABLE),
        "Error 4002 elsewhere" => elsewhere(Code::CAPABILITY_NOT_FOUND),
        "Error 3001 elsewhere" => elsewhere(Code::UNAUTHORIZED),
        "Error 3005 elsewhere" => elsewhere(Code::RATE_LIMITED),
        "Error 5002 released" => released(false),
        "Error 5002 released, elsewhere" => released(true),
        "Released" => Input::Released,
        "Unreleased" => Input::Unreleased,
        "Error old" => error(old, Code::OVERLOADED, None, None),
        "LinkLost" => Input::LinkLost,
        "Cancel" => Input::Cancel,
        "CancelUnknown" => Input::CancelUnknown,
        "Timeout 0.999s" => return (Input::Timeout, 999),
        "Timeout 1s" => return (Input::Timeout, 1_000),
        "Timeout 20s" => return (Input::Timeout, TIME.ends_ms),
        "Timeout 20.25s" => return (Input::Timeout, TIME.answered_by_ms()),
        other => panic!("no such input: {other}"),
    };
    (input, 0)
}

const INPUTS: &[&str] = &[
    "Sent",
    "Notice",
    "Notice old",
    "Result success",
    "Result 5001",
    "Result 5003",
    "Result old",
    "Error 5004",
    "Error 5004 after 3s",
    "Error 5004 after 30s",
    "Error 5004 final",
    "Error 3001",
    "Error 5902",
    "Error 5002 elsewhere",
    "Error 4002 elsewhere",
    "Error 3001 elsewhere",
    "Error 3005 elsewhere",
    "Error 5002 released",
    "Error 5002 released, elsewhere",
    "Error old",
    "Released",
    "Unreleased",
    "LinkLost",
    "Cancel",
    "CancelUnknown",
    "Timeout 0.999s",
    "Timeout 1s",
    "Timeout 20s",
    "Timeout 20.25s",
];

fn drain(caller: &mut Caller) -> Vec<Output> {
    std::iter::from_fn(|| caller.poll_output()).collect()
}

fn feed(caller: &mut Caller, name: &str) -> Vec<Output> {
    let (input, now_ms) = input(name, caller.generation().unwrap_or(Generation(0)));
    caller.handle(input, now_ms, Jitter::NONE);
    drain(caller)
}

fn caller_after(policy: RetryPolicy, idempotent: bool, steps: &[&str]) -> Caller {
    let (unanswered, steps) = match steps {
        [FORMER, steps @ ..] => (true, steps),
        steps => (false, steps),
    };
    let mut caller = Caller::new(Arc::new(policy), idempotent, unanswered, TIME);
    drain(&mut caller);
    for step in steps {
        feed(&mut caller, step);
    }
    caller
}

/// In the place of a first step: a copy was sent before this machine was there.
const FORMER: &str = "sent before";

fn shown(output: &Output) -> String {
    match output {
        Output::Send { generation, attempt, proven_unaccepted } => {
            let anywhere = if *proven_unaccepted { ", to any executor" } else { "" };
            format!("send id {} try {attempt}{anywhere}", generation.0)
        }
        Output::Move { generation } => format!("send id {} to another executor", generation.0),
        Output::AskRelease { generation } => format!("ask to release id {}", generation.0),
        Output::Pause { until_ms, generation } => format!("pause until {until_ms} for id {}", generation.0),
        Output::Relay => "relay".to_owned(),
        Output::SendCancel { generation } => format!("send cancel of id {}", generation.0),
        Output::Deliver(Delivery::Result) => "deliver the result".to_owned(),
        Output::Deliver(Delivery::Error) => "deliver the ERROR".to_owned(),
        Output::Deliver(Delivery::Unknown) => "deliver own 5902 with the ERROR".to_owned(),
        Output::Deliver(Delivery::Refusal(code)) => format!("deliver own ERROR {code}"),
        Output::Deliver(Delivery::Own(code)) => format!("deliver own {code}"),
        Output::Drop => "drop".to_owned(),
        Output::RefuseResult => "drop, answer ERROR 4001".to_owned(),
    }
}

#[test]
fn an_error_result_that_asks_for_a_pause_gets_it_if_the_deadline_allows() {
    let answered = |retry_after_ms| {
        let mut caller = caller_after(policy(), true, &["Sent"]);
        let error = Some(Code::INTERNAL_ERROR);
        let input = Input::Result { generation: Generation(0), error, retry_after_ms };
        caller.handle(input, 0, Jitter::NONE);
        drain(&mut caller)
    };
    let pause = |until_ms| [Output::Pause { until_ms, generation: Generation(1) }];
    assert_eq!(answered(Some(3_000)), pause(3_000));
    // Never sooner than the policy would.
    assert_eq!(answered(Some(1)), pause(1_000));
    assert_eq!(answered(Some(TIME.ends_ms)), [Output::Deliver(Delivery::Result)]);
    assert_eq!(answered(Some(u64::MAX)), [Output::Deliver(Delivery::Result)]);
}

/// Every state: its name, the call's policy and kind, and the inputs that lead there.
fn states() -> [(&'static str, RetryPolicy, bool, &'static [&'static str]); 23] {
    let once = || policy().with_attempts_max(1);
    [
        ("Idle", policy(), true, &[]),
        ("Idle not idempotent", policy(), false, &[]),
        ("Idle not idempotent, sent before", policy(), false, &[FORMER]),
        ("AwaitResult idempotent", policy(), true, &["Sent"]),
        ("AwaitResult not idempotent", policy(), false, &["Sent"]),
        ("AwaitResult idempotent, last try", once(), true, &["Sent"]),
        ("AwaitResult not idempotent, last try", once(), false, &["Sent"]),
        ("AwaitResult not idempotent, sent before", policy(), false, &[FORMER, "Sent"]),
        ("AwaitResult cancelled", policy(), true, &["Sent", "Cancel"]),
        ("AwaitResult cancelled, not idempotent, sent before", policy(), false, &[FORMER, "Sent", "Cancel"]),
        ("Pausing after a retryable ERROR", policy(), true, &["Sent", "Error 5004"]),
        ("Pausing after a lost link", policy(), true, &["Sent", "LinkLost"]),
        ("Pausing after a lost link, not idempotent", policy(), false, &["Sent", "LinkLost"]),
        ("Pausing before a new id", policy(), true, &["Sent", "Result 5001"]),
        ("Resending after a retryable ERROR", policy(), true, &["Sent", "Error 5004", "Timeout 1s"]),
        ("Resending after a lost link", policy(), true, &["Sent", "LinkLost", "Timeout 1s"]),
        (
            "Resending after a retryable ERROR, not idempotent",
            policy(),
            false,
            &["Sent", "Error 5004", "Timeout 1s"],
        ),
        ("Resending after a lost link, not idempotent", policy(), false, &["Sent", "LinkLost", "Timeout 1s"]),
        ("Resending after a move, not idempotent", policy(), false, &["Sent", "Error 5002 elsewhere"]),
        ("Releasing", policy(), false, &["Sent", "LinkLost", "Timeout 1s", "Sent", "Error 5002 elsewhere"]),
        (
            "Releasing, last try",
            policy().with_attempts_max(2),
            false,
            &["Sent", "LinkLost", "Timeout 1s", "Sent", "Error 5002 elsewhere"],
        ),
        // Another executor has released it: this one is not asked to.
        (
            "AwaitResult not idempotent, released elsewhere, sent twice",
            policy(),
            false,
            &["Sent", "Error 5002 released, elsewhere", "Sent", "LinkLost", "Timeout 1s", "Sent"],
        ),
        ("Done", policy(), true, &["Sent", "Result success"]),
    ]
}

#[test]
fn every_state_meets_every_input() {
    let mut table = String::new();
    for (state, policy, idempotent, steps) in states() {
        writeln!(table, "{state}").unwrap();
        for name in INPUTS {
            let mut caller = caller_after(policy.clone(), idempotent, steps);
            assert_eq!(
                caller.state_name(),
                state.split([' ', ',']).next().unwrap(),
                "{steps:?} leads to its heading"
            );
            let outputs: Vec<_> = feed(&mut caller, name).iter().map(shown).collect();
            let line = format!("    {name:<31}→ {:<12} {}", caller.state_name(), outputs.join("; "));
            writeln!(table, "{}", line.trim_end()).unwrap();
        }
        writeln!(table).unwrap();
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("caller", table));
}

#[test]
fn only_what_may_pause_goes_by_the_jitter() {
    for (state, policy, idempotent, steps) in states() {
        for name in INPUTS {
            let pauses = [Jitter(0), Jitter::NONE].map(|jitter| {
                let mut caller = caller_after(policy.clone(), idempotent, steps);
                let (input, now_ms) = input(name, caller.generation().unwrap_or(Generation(0)));
                caller.handle(input, now_ms, jitter);
                (input.may_pause(), drain(&mut caller), caller.poll_timeout())
            });
            let is_jittered = pauses[0] != pauses[1];
            assert!(!is_jittered || pauses[0].0, "{state}, {name}: {pauses:?}");
            let is_paused = pauses[0].1.iter().any(|output| matches!(output, Output::Pause { .. }));
            assert!(!is_paused || pauses[0].0, "{state}, {name}: {pauses:?}");
        }
    }
}

#[test]
fn tries_under_the_same_id_until_the_attempts_are_spent() {
    let mut caller = caller_after(policy(), true, &["Sent"]);
    let mut now_ms = 0;
    for (attempt, pause_ms) in [(2, 1_000), (3, 2_000), (4, 4_000), (5, 8_000)] {
        caller.handle(Input::LinkLost, now_ms, Jitter::NONE);
        now_ms += pause_ms;
        assert_eq!(caller.poll_timeout(), Some(now_ms));
        drain(&mut caller);
        caller.handle(Input::Timeout, now_ms, Jitter::NONE);
        let send = Output::Send { generation: Generation(0), attempt, proven_unaccepted: false };
        assert_eq!(drain(&mut caller), [send]);
        caller.handle(Input::Sent, now_ms, Jitter::NONE);
    }
    caller.handle(Input::LinkLost, now_ms, Jitter::NONE);
    assert_eq!(drain(&mut caller), [Output::Deliver(Delivery::Own(Code::ENDPOINT_UNREACHABLE))]);
}

#[test]
fn no_try_begins_at_or_after_the_deadline() {
    let mut caller = Caller::new(Arc::new(policy()), true, false, Time { ends_ms: 1_000, ..TIME });
    drain(&mut caller);
    caller.handle(Input::Sent, 0, Jitter::NONE);
    let (overloaded, _) = input("Error 5004", Generation(0));
    caller.handle(overloaded, 0, Jitter::NONE);
    assert_eq!(drain(&mut caller), [Output::Deliver(Delivery::Error)]);
}

#[test]
fn an_error_after_an_unanswered_copy_is_no_refusal_of_a_call_that_may_run_once() {
    for (idempotent, delivery) in [(true, Delivery::Error), (false, Delivery::Unknown)] {
        for error in ["Error 3001", "Error 5004 final", "Error 5004 after 30s"] {
            for step in ["Sent", "Timeout 1s"] {
                let mut caller =
                    caller_after(policy(), idempotent, &["Sent", "LinkLost", "Timeout 1s", step]);
                assert_eq!(feed(&mut caller, error), [Output::Deliver(delivery)], "{error} after {step}");
            }
        }
    }
}

#[test]
fn attempts_spent_and_a_deadline_between_two_copies_are_unknown_too() {
    let mut caller =
        caller_after(policy().with_attempts_max(2), false, &["Sent", "LinkLost", "Timeout 1s", "Sent"]);
    assert_eq!(feed(&mut caller, "Error 5004"), [Output::Deliver(Delivery::Unknown)]);
    for steps in [&["Sent", "LinkLost"][..], &["Sent", "LinkLost", "Timeout 1s"], &[FORMER]] {
        let mut caller = caller_after(policy(), false, steps);
        assert_eq!(feed(&mut caller, "Timeout 20s"), [Output::Deliver(Delivery::Own(Code::INTERRUPTED))]);
    }
    let mut caller = caller_after(policy(), false, &["Sent", "Error 5004", "Timeout 1s"]);
    assert_eq!(
        feed(&mut caller, "Timeout 20s"),
        [Output::Deliver(Delivery::Refusal(Code::ENDPOINT_UNREACHABLE))]
    );
}

#[test]
fn result_of_the_old_id_is_refused_once_a_new_id_is_tried() {
    let mut caller = caller_after(policy(), true, &["Sent", "Result 5001", "Timeout 1s", "Sent"]);
    assert_eq!(caller.generation(), Some(Generation(1)));
    assert_eq!(feed(&mut caller, "Result old"), [Output::RefuseResult]);
    assert_eq!(feed(&mut caller, "Result success"), [Output::Deliver(Delivery::Result)]);
    assert_eq!(feed(&mut caller, "Result success"), [Output::RefuseResult]);
}

#[test]
fn pause_cut_short_by_an_error_result_does_not_count_as_a_try() {
    let mut caller = caller_after(policy().with_attempts_max(2), true, &["Sent", "LinkLost", "Result 5001"]);
    caller.handle(Input::Timeout, 2_000, Jitter::NONE);
    let send = Output::Send { generation: Generation(1), attempt: 2, proven_unaccepted: true };
    assert_eq!(drain(&mut caller), [send]);
}

#[test]
fn error_result_is_tried_again_only_if_idempotent() {
    for (idempotent, state) in [(true, "Pausing"), (false, "Done")] {
        assert_eq!(caller_after(policy(), idempotent, &["Sent", "Result 5001"]).state_name(), state);
    }
}

#[test]
fn a_call_that_was_refused_by_its_executor_goes_to_another_at_once() {
    for idempotent in [true, false] {
        for error in ["Error 5002 elsewhere", "Error 4002 elsewhere"] {
            let mut caller = caller_after(policy(), idempotent, &["Sent"]);
            assert_eq!(feed(&mut caller, error), [Output::Move { generation: Generation(0) }]);
            assert!(caller.may_move() && !caller.may_have_run());
            // The second one is asked under the same id, and may refuse it as well.
            feed(&mut caller, "Sent");
            assert_eq!(feed(&mut caller, error), [Output::Move { generation: Generation(0) }]);
        }
    }
}

#[test]
fn moves_end_though_every_executor_refuses() {
    let mut caller = caller_after(policy(), false, &[]);
    for _ in 0..MOVES_MAX {
        feed(&mut caller, "Sent");
        assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [Output::Move { generation: Generation(0) }]);
    }
    feed(&mut caller, "Sent");
    let pause = Output::Pause { until_ms: 1_000, generation: Generation(0) };
    assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [pause]);
}

#[test]
fn a_refusal_of_the_call_itself_is_not_shopped_around() {
    for idempotent in [true, false] {
        let mut caller = caller_after(policy(), idempotent, &["Sent"]);
        assert_eq!(feed(&mut caller, "Error 3001 elsewhere"), [Output::Deliver(Delivery::Error)]);
        let mut caller = caller_after(policy(), idempotent, &["Sent", "Error 3005 elsewhere"]);
        let send = Output::Send { generation: Generation(0), attempt: 2, proven_unaccepted: false };
        assert_eq!(feed(&mut caller, "Timeout 1s"), [send]);
    }
}

#[test]
fn an_error_to_a_second_copy_moves_nothing_before_the_executor_has_released_the_call() {
    let asked = ["Sent", "LinkLost", "Timeout 1s", "Sent"];
    let mut caller = caller_after(policy(), false, &asked);
    let ask = Output::AskRelease { generation: Generation(0) };
    assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [ask]);
    assert!(!caller.may_move() && caller.may_have_run());
    assert_eq!(feed(&mut caller, "Released"), [Output::Move { generation: Generation(0) }]);
    assert!(caller.may_move() && !caller.may_have_run());
    // What its next executor says is said of the call.
    feed(&mut caller, "Sent");
    assert_eq!(feed(&mut caller, "Error 3001"), [Output::Deliver(Delivery::Error)]);
    // An idempotent call goes without asking.
    let mut caller = caller_after(policy(), true, &asked);
    assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [Output::Move { generation: Generation(0) }]);
}

/// A call that its executors remember by its id, after these steps.
fn remembered_after(steps: &[&str]) -> Caller {
    let mut caller = Caller::new(Arc::new(policy()), false, false, TIME).by_id(true);
    drain(&mut caller);
    for step in steps {
        feed(&mut caller, step);
    }
    caller
}

#[test]
fn a_call_that_its_executors_remember_moves_without_proof_under_its_id() {
    let mut caller = remembered_after(&["Sent", "LinkLost", "Timeout 1s"]);
    assert!(caller.may_move() && caller.may_have_run());
    assert!(!caller_after(policy(), false, &["Sent", "LinkLost", "Timeout 1s"]).may_move());
    feed(&mut caller, "Sent");
    // Nobody is asked to release it.
    assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [Output::Move { generation: Generation(0) }]);
    feed(&mut caller, "Sent");
    assert_eq!(feed(&mut caller, "Result success"), [Output::Deliver(Delivery::Result)]);
    // Another id would be another effect.
    assert_eq!(feed(&mut remembered_after(&["Sent"]), "Result 5001"), [Output::Deliver(Delivery::Result)]);
}

#[test]
fn a_call_that_its_executors_remember_is_not_called_refused_while_a_copy_is_unanswered() {
    let lost = ["Sent", "LinkLost", "Timeout 1s", "Sent"];
    assert_eq!(feed(&mut remembered_after(&lost), "Error 3001"), [Output::Deliver(Delivery::Unknown)]);
    assert_eq!(feed(&mut remembered_after(&["Sent"]), "Error 3001"), [Output::Deliver(Delivery::Error)]);
    let unsent = &mut remembered_after(&["Sent", "LinkLost", "Timeout 1s"]);
    assert_eq!(feed(unsent, "Timeout 20s"), [Output::Deliver(Delivery::Own(Code::INTERRUPTED))]);
}

#[test]
fn a_call_that_its_executor_may_not_have_in_its_journal_is_released_by_nobody() {
    let mut caller = Caller::new(Arc::new(policy()), false, true, TIME).unreleased(true);
    drain(&mut caller);
    feed(&mut caller, "Sent");
    // It is tried again where it is.
    let pause = Output::Pause { until_ms: 1_000, generation: Generation(0) };
    assert_eq!(feed(&mut caller, "Error 5002 elsewhere"), [pause]);
    assert!(!caller.may_move());
    for step in ["Timeout 1s", "Sent"] {
        feed(&mut caller, step);
    }
    assert_eq!(feed(&mut caller, "Error 3001"), [Output::Deliver(Delivery::Unknown)]);
}

#[test]
fn a_call_that_its_executor_has_stays_there() {
    let asked = ["Sent", "LinkLost", "Timeout 1s", "Sent", "Error 5002 elsewhere"];
    for answer in ["Unreleased", "LinkLost"] {
        let mut caller = caller_after(policy(), false, &asked);
        let pause = Output::Pause { until_ms: 2_000, generation: Generation(0) };
        assert_eq!(feed(&mut caller, answer), [pause]);
        caller.handle(Input::Timeout, 2_000, Jitter::NONE);
        let send = Output::Send { generation: Generation(0), attempt: 3, proven_unaccepted: false };
        assert_eq!(drain(&mut caller), [send]);
        assert!(!caller.may_move());
    }
    let mut caller = caller_after(policy().with_attempts_max(2), false, &asked);
    assert_eq!(feed(&mut caller, "Unreleased"), [Output::Deliver(Delivery::Own(Code::INTERRUPTED))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn agent_gets_one_answer_by_the_deadline(
        idempotent in any::<bool>(),
        unanswered in any::<bool>(),
        attempts_max in 0_u32..8,
        initial_delay_ms in 0_u64..3_000,
        steps in proptest::collection::vec((0..INPUTS.len(), 0_u64..4_000, any::<u32>(), 0_u8..3), 0..60),
    ) {
        let policy = policy().with_attempts_max(attempts_max).with_initial_delay_ms(initial_delay_ms);
        let mut caller = Caller::new(Arc::new(policy), idempotent, unanswered, TIME);
        let (mut now_ms, mut answers, mut attempts, mut generation) = (0, 0, 0, Generation(0));
        let mut observe = |caller: &mut Caller, is_released: bool, now_ms: u64| {
            for output in drain(caller) {
                match output {
                    Output::Deliver(_) => answers += 1,
                    Output::Send { generation: sent, attempt, proven_unaccepted } => {
                        assert!(!(unanswered && proven_unaccepted && sent.0 == 0 && !is_released));
                        attempts += 1;
                        assert_eq!(attempt, attempts, "tries are counted without gaps");
                        assert!(now_ms < TIME.ends_ms && answers == 0);
                        assert!(sent == generation || (idempotent && sent.0 == generation.0 + 1));
                        generation = sent;
                    }
                    Output::Pause { until_ms, .. } => assert!(until_ms > now_ms && until_ms < TIME.ends_ms),
                    Output::Relay | Output::SendCancel { .. } => assert_eq!(answers, 0),
                    Output::Move { generation: sent } => {
                        // PROTOCOL 8: a call that may run once moves only on proof.
                        assert!(idempotent || !unanswered || is_released);
                        assert!(now_ms < TIME.ends_ms && answers == 0 && sent == generation);
                    }
                    Output::AskRelease { generation: asked } => {
                        assert!(!idempotent && answers == 0 && asked == generation);
                    }
                    Output::Drop | Output::RefuseResult => {}
                }
            }
            assert!(answers <= 1 && attempts <= attempts_max.max(1));
            assert_eq!(answers == 1, caller.is_done());
        };
        observe(&mut caller, false, 0);
        let mut is_released = false;
        for (index, pause_ms, jitter, kind) in steps {
            let (input, _) = input(INPUTS[index], caller.generation().unwrap_or(Generation(0)));
            let input = match (kind, caller.poll_timeout()) {
                (0, Some(due_ms)) => {
                    now_ms = now_ms.max(due_ms);
                    Input::Timeout
                }
                (1, _) => Input::Sent,
                _ => {
                    now_ms += pause_ms;
                    input
                }
            };
            let state = caller.state_name();
            let has_tombstone =
                matches!(input, Input::Error { error: Refused { released: true, .. }, .. });
            is_released |= input == Input::Released && state == "Releasing";
            is_released |= has_tombstone && !matches!(state, "Pausing" | "Releasing");
            caller.handle(input, now_ms, Jitter(jitter));
            observe(&mut caller, is_released, now_ms);
            if input == Input::Timeout {
                prop_assert!(caller.poll_timeout().is_none_or(|due_ms| due_ms > now_ms));
            }
        }
        caller.handle(Input::Timeout, TIME.answered_by_ms().max(now_ms), Jitter(0));
        observe(&mut caller, is_released, TIME.answered_by_ms().max(now_ms));
        prop_assert!(caller.is_done());
        prop_assert_eq!(caller.poll_timeout(), None);
    }
}
