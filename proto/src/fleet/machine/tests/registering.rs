//! Every state of the writing half against every input.

use std::fmt::Write as _;

use super::super::feed::AsOf;
use super::super::own::{self, Own};
use super::super::step::{Dice, Step};
use super::*;

/// Every input that makes a difference somewhere, by a short name.
const INPUTS: &[&str] = &[
    "Offered nothing",
    "Offered a",
    "Offered a, b",
    "Kept",
    "Stands nothing",
    "Stands garbage",
    "Stands 3",
    "Stands ours",
    "Stands ours, other journal",
    "Stands 9",
    "Done",
    "Held",
    "Fenced by nothing",
    "Fenced by 3",
    "Fenced by 9",
    "Gone",
    "Denied",
    "Full",
    "Lost",
    "Deleted a",
    "Deleted a before",
    "Deleted a, listed later",
    "Deleted c",
    "Put by us before",
    "Put by our twin",
    "Put by another",
    "Leave",
    "Timeout 0.999s",
    "Timeout 2s",
    "Timeout 12s",
    "Timeout 31s",
    "Timeout 14h",
];

/// Steps that lead to each state.
const STATES: &[(&str, &[&str])] = &[
    ("Reading", &[]),
    ("Keeping", &["Stands 3"]),
    ("Claiming", &["Stands 3", "Kept"]),
    ("Waiting unclaimed", &["Lost"]),
    ("Claimed", &["Stands 3", "Kept", "Done"]),
    ("Registering", &["Stands 3", "Kept", "Done", "Offered a"]),
    ("Waiting claimed", &["Stands 3", "Kept", "Done", "Offered a", "Lost"]),
    ("Reading again", &["Stands 3", "Kept", "Done", "Offered a", "Fenced by nothing"]),
    ("Held", &["Stands 3", "Kept", "Done", "Offered a", "Held"]),
    ("Held, changed", &["Stands 3", "Kept", "Done", "Offered a", "Held", "Offered a, b"]),
    ("Renewing", &["Stands 3", "Kept", "Done", "Offered a", "Held", "Timeout 12s"]),
    ("Held, unanswered", &["Stands 3", "Kept", "Done", "Offered a", "Held", "Timeout 12s", "Lost"]),
    (
        "Held, may be over",
        &["Stands 3", "Kept", "Done", "Offered a", "Held", "Timeout 31s", "Lost", "Timeout 0.999s", "Lost"],
    ),
    ("Replacing", &["Stands 3", "Kept", "Done", "Offered a", "Held", "Offered a, b", "Timeout 2s"]),
    ("Fenced", &["Stands 3", "Kept", "Done", "Offered a", "Fenced by 9"]),
    ("Left", &["Leave"]),
];

const OURS: Fence = Fence { incarnation: 5, journal: JournalId([2; 16]) };

fn fence(incarnation: u64, number: u8) -> Bytes {
    Fence { incarnation, journal: journal(number) }.encode().to_vec().into()
}

fn foreign() -> Bytes {
    let registration = Registration { fence: Fence { incarnation: 9, ..OURS }, ..registration(2, 9, 1) };
    value(&registration, 2)
}

/// An input, and how much later than the last one it comes.
fn input(name: &str) -> (own::Input, u64) {
    let told = |told| own::Input::Told(Ok(told));
    let failed = |error| own::Input::Told(Err(error));
    let stands = |value: Bytes| told(Told::Stands(Some((value, Revision(40)))));
    let input = match name {
        "Offered nothing" => own::Input::Offered(offer(&[])),
        "Offered a" => own::Input::Offered(offer(&["org.example.a"])),
        "Offered a, b" => own::Input::Offered(offer(&["org.example.a", "org.example.b"])),
        "Kept" => own::Input::Kept,
        "Stands nothing" => told(Told::Stands(None)),
        "Stands garbage" => stands(Bytes::from_static(b"garbage")),
        "Stands 3" => stands(fence(3, 2)),
        "Stands ours" => stands(fence(5, 2)),
        "Stands ours, other journal" => stands(fence(5, 3)),
        "Stands 9" => stands(fence(9, 2)),
        "Done" => told(Told::Done),
        "Held" => told(Told::Held { lease: LeaseId(70), revision: Revision(50) }),
        "Fenced by nothing" => failed(EngineError::Fenced(None)),
        "Fenced by 3" => failed(EngineError::Fenced(Some(fence(3, 2)))),
        "Fenced by 9" => failed(EngineError::Fenced(Some(fence(9, 2)))),
        "Gone" => failed(EngineError::Gone),
        "Denied" => failed(EngineError::Denied),
        "Full" => failed(EngineError::Full),
        "Lost" => failed(EngineError::Lost),
        "Deleted a" => own::Input::Deleted { name: name_of("a"), as_of: as_of(51) },
        "Deleted a before" => own::Input::Deleted { name: name_of("a"), as_of: as_of(50) },
        "Deleted a, listed later" => own::Input::Deleted {
            name: name_of("a"),
            as_of: AsOf { revision: Revision(3), began_ms: 1_000_000 },
        },
        "Deleted c" => own::Input::Deleted { name: name_of("c"), as_of: as_of(51) },
        "Put by our twin" => {
            let twin = Registration { fence: OURS, ..registration(2, 5, 9) };
            own::Input::Put { as_of: as_of(51), value: value(&twin, 2) }
        }
        "Put by us before" => {
            let ours = Registration { fence: OURS, ..registration(2, 5, 0) };
            own::Input::Put { as_of: as_of(51), value: value(&ours, 2) }
        }
        "Put by another" => own::Input::Put { as_of: as_of(51), value: foreign() },
        "Leave" => own::Input::Leave,
        "Timeout 0.999s" => return (own::Input::Timeout, 999),
        "Timeout 2s" => return (own::Input::Timeout, 2_000),
        "Timeout 12s" => return (own::Input::Timeout, 12_000),
        "Timeout 31s" => return (own::Input::Timeout, 31_000),
        "Timeout 14h" => return (own::Input::Timeout, 14 * 60 * 60 * 1_000),
        other => panic!("no such input: {other}"),
    };
    (input, 0)
}

fn as_of(revision: u64) -> AsOf {
    AsOf { revision: Revision(revision), began_ms: 0 }
}

fn name_of(last: &str) -> CapabilityName {
    format!("org.example.{last}").parse().unwrap()
}

/// A writing half with its clock; dice always fall alike.
struct Half {
    config: Config,
    own: Own,
    now_ms: u64,
    said: VecDeque<Output>,
}

impl Half {
    fn after(steps: &[&str]) -> Self {
        let config = config();
        let mut said = VecDeque::new();
        let mut step = Step { config: &config, now: time(0), dice: Dice(0), out: &mut said };
        let own = Own::begin(&mut step);
        let mut half = Self { config, own, now_ms: 0, said };
        for name in steps {
            half.handle(name);
        }
        half
    }

    fn handle(&mut self, name: &str) {
        let (input, later_ms) = input(name);
        self.now_ms += later_ms;
        self.said.clear();
        let now = time(self.now_ms);
        let mut step = Step { config: &self.config, now, dice: Dice(0), out: &mut self.said };
        self.own.handle(input, &mut step);
    }

    fn shown(&self) -> String {
        let due = self.own.deadline_ms(self.now_ms).map_or("never".to_owned(), |due_ms| due_ms.to_string());
        let said: Vec<_> = self.said.iter().map(|output| shown(output, self.now_ms)).collect();
        format!("→ {:<12} due {due:<10} {}", self.own.state_name(), said.join("; "))
    }
}

fn shown(output: &Output, now_ms: u64) -> String {
    match output {
        Output::Ask { ask, .. } => match ask {
            Ask::ReadFence => "read the fence".to_owned(),
            Ask::Claim { fence, read } => format!("claim {} over {read:?}", fence.incarnation),
            Ask::Register { fence, puts, .. } => {
                format!("register {} of {}", names(puts, now_ms), fence.incarnation)
            }
            Ask::Replace { puts, gone, .. } => format!("put {}, delete {}", names(puts, now_ms), gone.len()),
            Ask::Renew(LeaseId(lease)) => format!("renew {lease}"),
            Ask::Withdraw(LeaseId(lease)) => format!("withdraw {lease}"),
            Ask::List { .. } => "list".to_owned(),
        },
        Output::Keep { incarnation } => format!("keep {incarnation}"),
        Output::Claimed(fence) => format!("claimed {}", fence.incarnation),
        Output::Registered { generation } => format!("registered {generation}"),
        Output::Lapsed => "lapsed".to_owned(),
        Output::Fenced { by } => format!("fenced by {}", by.incarnation),
        other => format!("{other:?}"),
    }
}

/// The names that are put, and in which generation.
fn names(puts: &[(Key, Bytes)], now_ms: u64) -> String {
    let mut verifier = Verifier::new(cell(), authority().public_key());
    let named = puts.iter().map(|(key, value)| match key {
        Key::Registration { name, shard, agent } => {
            let put = verifier
                .registration(name, *shard, agent, value, WALL_MS + now_ms)
                .map(|put| put.registration);
            let generation = put.unwrap().generation;
            format!("{}#{generation}", name.as_str().rsplit('.').next().unwrap())
        }
        Key::Fence(_) | Key::Revocation(_) => panic!("only registrations are put"),
    });
    format!("[{}]", named.collect::<Vec<_>>().join(" "))
}

#[test]
fn every_state_meets_every_input() {
    let mut table = String::new();
    for (state, steps) in STATES {
        writeln!(table, "{state}").unwrap();
        let start = Half::after(steps);
        assert!(state.starts_with(start.own.state_name()), "{state} is {}", start.own.state_name());
        for name in INPUTS {
            let mut half = Half::after(steps);
            half.handle(name);
            writeln!(table, "    {name:<26} {}", half.shown()).unwrap();
        }
        writeln!(table).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_lease_that_nobody_confirms_is_given_up_when_it_may_be_over() {
    let mut half = Half::after(&["Stands 3", "Kept", "Done", "Offered a", "Held"]);
    let mut renewals = 0;
    while half.own.is_registered() {
        let due_ms = half.own.deadline_ms(half.now_ms).unwrap();
        assert!(due_ms <= 45_000, "still held at {due_ms}");
        half.now_ms = due_ms;
        half.handle("Timeout 0.999s");
        if half.own.state_name() == "Renewing" {
            renewals += 1;
            half.handle("Lost");
        }
    }
    assert!(half.now_ms >= 30_000, "given up at {} ms", half.now_ms);
    assert!(renewals >= 4, "asked {renewals} times");
}

#[test]
fn a_lease_that_the_registry_kept_while_it_was_away_is_renewed_and_not_replaced() {
    let steps = ["Stands 3", "Kept", "Done", "Offered a", "Held", "Timeout 31s", "Lost", "Timeout 0.999s"];
    let mut half = Half::after(&steps);
    assert!(half.said.contains(&Output::Lapsed) && !half.own.is_registered(), "{:?}", half.said);
    for _ in 0..20 {
        half.handle("Lost");
        half.handle("Timeout 12s");
        let renews = |output: &Output| matches!(output, Output::Ask { ask: Ask::Renew(_), .. });
        assert!(half.said.len() == 1 && renews(&half.said[0]), "{:?}", half.said);
    }
    half.handle("Done");
    assert_eq!(half.said, [Output::Registered { generation: 1 }]);
    assert!(half.own.is_registered());
}

#[test]
fn a_lease_that_ended_while_the_registry_was_away_lapses_once() {
    let steps = ["Stands 3", "Kept", "Done", "Offered a", "Held", "Timeout 31s", "Lost", "Timeout 0.999s"];
    let mut half = Half::after(&steps);
    half.handle("Gone");
    assert_eq!((half.own.state_name(), half.said.len()), ("Waiting", 0));
    half.handle("Timeout 12s");
    assert_eq!(half.own.state_name(), "Registering");
}

#[test]
fn a_process_that_lost_its_disk_is_later_than_all_before_although_the_registry_forgot_too() {
    let mut machine = Machine::new(Config { incarnation: 0, ..config() }, time(0), 0);
    let asked = std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
        Output::Ask { id, ask: Ask::ReadFence } => Some(id),
        _ => None,
    });
    machine.handle(Input::Told { id: asked.unwrap(), told: Ok(Told::Stands(None)) }, time(0), 0);
    let mut said = std::iter::from_fn(|| machine.poll_output());
    assert!(said.any(|output| output == Output::Keep { incarnation: WALL_MS / 1_000 }));
}

#[test]
fn a_twin_with_our_very_fence_makes_us_claim_a_larger_one() {
    let steps = ["Stands 3", "Kept", "Done", "Offered a", "Held", "Put by our twin", "Timeout 31s"];
    let mut half = Half::after(&steps);
    assert_eq!(half.own.state_name(), "Reading");
    half.handle("Stands ours");
    assert_eq!(half.said, [Output::Keep { incarnation: 6 }]);
}

#[test]
fn a_registry_that_was_wiped_is_registered_in_again_after_a_lease_at_the_earliest() {
    // It is found out by whatever is asked first: here by a change of what is offered.
    let steps =
        ["Stands 3", "Kept", "Done", "Offered a", "Held", "Offered a, b", "Timeout 2s", "Fenced by nothing"];
    let mut half = Half::after(&steps);
    half.handle("Stands nothing");
    half.handle("Done");
    assert_eq!((half.own.state_name(), half.own.deadline_ms(half.now_ms)), ("Waiting", Some(30_000)));
    half.handle("Timeout 31s");
    assert_eq!(half.own.state_name(), "Registering");
}

#[test]
fn a_name_that_is_taken_back_while_it_is_put_is_deleted() {
    let mut half =
        Half::after(&["Stands 3", "Kept", "Done", "Offered a", "Held", "Offered a, b", "Timeout 2s"]);
    assert_eq!(half.own.state_name(), "Replacing");
    half.handle("Offered a");
    half.handle("Held");
    half.handle("Timeout 2s");
    let said: Vec<_> = half.said.iter().map(|output| shown(output, half.now_ms)).collect();
    assert_eq!(said, ["put [a#3], delete 1"]);
}

#[test]
fn what_we_put_ourselves_disturbs_nobody() {
    let mut half = Half::after(&["Stands 3", "Kept", "Done", "Offered a"]);
    let Some(Output::Ask { ask: Ask::Register { puts, .. }, .. }) = half.said.pop_front() else {
        panic!("it registers")
    };
    half.handle("Held");
    let now = time(half.now_ms);
    let mut step = Step { config: &half.config, now, dice: Dice(0), out: &mut half.said };
    let put = own::Input::Put { as_of: as_of(51), value: puts[0].1.clone() };
    half.own.handle(put, &mut step);
    assert_eq!(half.own.state_name(), "Held");
}

#[test]
fn a_lost_claim_is_raised_over_and_never_taken_for_ours() {
    // It may have been done, or another copy of this agent may have done the same.
    let mut half = Half::after(&["Stands 3", "Kept", "Lost", "Timeout 12s", "Stands ours"]);
    assert_eq!(half.said, [Output::Keep { incarnation: 6 }]);
    half.handle("Kept");
    half.handle("Done");
    assert_eq!(half.own.fence(), Some(Fence { incarnation: 6, ..OURS }));
}

#[test]
fn at_most_one_generation_a_second_is_put() {
    let mut half = Half::after(&["Stands 3", "Kept", "Done", "Offered a", "Held", "Offered a, b"]);
    assert!(half.said.is_empty());
    assert_eq!(half.own.deadline_ms(half.now_ms), Some(1_000));
    half.handle("Timeout 0.999s");
    assert!(half.said.is_empty());
}
