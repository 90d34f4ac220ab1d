use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const DEADLINE_MS: u64 = 60_000;

const INPUTS: &[(&str, Input, u64)] = &[
    ("Accept", Input::Accept, 0),
    ("Refuse 4004", Input::Refuse(Code::SCHEMA_VIOLATION), 0),
    ("Start", Input::Start, 0),
    ("Notice", Input::Notice, 0),
    ("ProviderResult", Input::ProviderResult { fits: true }, 0),
    ("ProviderResult unfit", Input::ProviderResult { fits: false }, 0),
    ("ProviderError 4001", Input::ProviderError(Code::BAD_REQUEST), 0),
    ("ProviderLost, another", Input::ProviderLost { another: true }, 0),
    ("ProviderLost, no other", Input::ProviderLost { another: false }, 0),
    ("Cancel", Input::Cancel { own: true }, 0),
    ("Cancel by a stranger", Input::Cancel { own: false }, 0),
    ("TicketDropped", Input::TicketDropped, 0),
    ("Shutdown", Input::Shutdown, 0),
    ("Timeout early", Input::Timeout, DEADLINE_MS - 1),
    ("Timeout", Input::Timeout, DEADLINE_MS),
];

fn drain(executor: &mut Executor) -> Vec<Output> {
    std::iter::from_fn(|| executor.poll_output()).collect()
}

fn executor_after(idempotent: bool, inputs: &[Input]) -> Executor {
    let mut executor = Executor::new(idempotent, DEADLINE_MS);
    for &input in inputs {
        executor.handle(input, 0);
    }
    drain(&mut executor);
    executor
}

fn shown(output: &Output) -> String {
    match output {
        Output::Execute => "execute".to_owned(),
        Output::TryAnother => "try another".to_owned(),
        Output::Relay => "relay".to_owned(),
        Output::CancelProvider => "cancel provider".to_owned(),
        Output::Refuse(code) => format!("ERROR {code}"),
        Output::Finish(Outcome::Provider) => "finish with the provider's".to_owned(),
        Output::Finish(Outcome::Error(code)) => format!("finish with {code}"),
        Output::AnswerCancel(CancelState::Cancelling) => "answer cancelling".to_owned(),
        Output::AnswerCancel(CancelState::Finished) => "answer finished".to_owned(),
        Output::AnswerCancel(CancelState::Unknown) => "answer unknown".to_owned(),
        Output::Drop => "drop".to_owned(),
        Output::RefuseAnswer(surplus) => format!("drop and audit ({surplus:?}), ERROR 4001 to the provider"),
    }
}

#[test]
fn every_state_meets_every_input() {
    use Input::{Accept, ProviderResult, Refuse, Start};
    let states: &[(&str, bool, &[Input])] = &[
        ("Received", true, &[]),
        ("Accepted idempotent", true, &[Accept]),
        ("Accepted not idempotent", false, &[Accept]),
        ("Executing idempotent", true, &[Accept, Start]),
        ("Executing not idempotent", false, &[Accept, Start]),
        ("Finished by the provider", true, &[Accept, Start, ProviderResult { fits: true }]),
        ("Finished by us", true, &[Accept, Start, Input::TicketDropped]),
        ("Refused", true, &[Refuse(Code::UNAUTHORIZED)]),
    ];
    let mut table = String::new();
    for (state, idempotent, inputs) in states {
        writeln!(table, "{state}").unwrap();
        for &(name, input, at_ms) in INPUTS {
            let mut executor = executor_after(*idempotent, inputs);
            assert_eq!(executor.state_name(), state.split(' ').next().unwrap(), "leads to its heading");
            executor.handle(input, at_ms);
            let outputs: Vec<_> = drain(&mut executor).iter().map(shown).collect();
            let line = format!("    {name:<23}→ {:<10} {}", executor.state_name(), outputs.join("; "));
            writeln!(table, "{}", line.trim_end()).unwrap();
        }
        writeln!(table).unwrap();
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("executor", table));
}

#[test]
fn second_result_is_dropped_and_audited() {
    let mut executor = executor_after(true, &[Input::Accept, Input::Start]);
    executor.handle(Input::ProviderResult { fits: true }, 1);
    executor.handle(Input::ProviderResult { fits: true }, 2);
    assert_eq!(
        drain(&mut executor),
        [Output::Finish(Outcome::Provider), Output::RefuseAnswer(Surplus::Second)]
    );
}

#[test]
fn answer_after_the_timeout_is_late() {
    let mut executor = executor_after(true, &[Input::Accept, Input::Start]);
    executor.handle(Input::Timeout, DEADLINE_MS);
    executor.handle(Input::ProviderResult { fits: true }, DEADLINE_MS + 1);
    assert_eq!(
        drain(&mut executor),
        [
            Output::CancelProvider,
            Output::Finish(Outcome::Error(Code::TIMEOUT)),
            Output::RefuseAnswer(Surplus::Late)
        ]
    );
}

#[test]
fn idempotent_call_goes_from_provider_to_provider_and_ends_when_none_is_left() {
    let mut executor = executor_after(true, &[Input::Accept, Input::Start]);
    for _ in 0..3 {
        executor.handle(Input::ProviderLost { another: true }, 1);
        assert_eq!(drain(&mut executor), [Output::TryAnother]);
        executor.handle(Input::Start, 1);
    }
    executor.handle(Input::ProviderLost { another: false }, 1);
    assert_eq!(drain(&mut executor), [Output::Finish(Outcome::Error(Code::UNAVAILABLE))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn accepted_call_has_exactly_one_result_by_its_deadline(
        idempotent in any::<bool>(),
        // How much of a good start comes first, so that random inputs meet every state.
        start in 0_usize..3,
        steps in proptest::collection::vec((0..INPUTS.len(), 0_u64..10_000), 0..30),
    ) {
        let mut executor = Executor::new(idempotent, DEADLINE_MS);
        let (mut now_ms, mut results, mut refusals, mut accepted, mut handed) = (0, 0, 0, false, 0);
        let good = [Input::Accept, Input::Start][..start].iter().map(|&input| (input, 0));
        let random = steps.into_iter().map(|(index, pause_ms)| (INPUTS[index].1, pause_ms));
        let last = [(Input::Timeout, DEADLINE_MS)];
        for (input, pause_ms) in good.chain(random).chain(last) {
            now_ms += pause_ms;
            let was_over = executor.is_over();
            executor.handle(input, now_ms);
            accepted |= executor.state_name() == "Accepted";
            for output in drain(&mut executor) {
                results += u32::from(matches!(output, Output::Finish(_)));
                refusals += u32::from(matches!(output, Output::Refuse(_)));
                let hands_out = matches!(output, Output::Execute | Output::TryAnother);
                handed += u32::from(hands_out);
                prop_assert!(!(was_over && (hands_out || output == Output::Relay)));
            }
            prop_assert!(results + refusals <= 1, "one result or one refusal, never both");
            prop_assert_eq!(results + refusals == 1, executor.is_over());
            prop_assert!(!was_over || executor.is_over());
            prop_assert_eq!(executor.poll_timeout().is_none(), executor.is_over());
        }
        prop_assert!(executor.is_over());
        prop_assert_eq!(results == 1, accepted, "a result if and only if it was accepted");
        prop_assert_eq!(handed > 0, accepted);
    }
}
