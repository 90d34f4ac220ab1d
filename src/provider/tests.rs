use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::{Did, Identity};

use super::link::{Answered, LinkProvider, Wire};
use super::ticket::{Answer, Answers};
use super::*;

/// Keeps every outcome that tickets give.
#[derive(Default)]
struct Outcomes(Mutex<Vec<(MessageId, Outcome)>>);

impl Answers for Outcomes {
    fn finish(self: Arc<Self>, answer: Answer) {
        let (key, outcome) = answer.into_parts();
        self.0.lock().unwrap().push((key.id, outcome));
    }
}

impl Outcomes {
    fn take(&self) -> Vec<(MessageId, Outcome)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A way to an agent that notes what goes there.
#[derive(Clone)]
struct Line {
    is_full: Arc<AtomicBool>,
    calls_max: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<MessageId>>>,
    cancelled: Arc<Mutex<Vec<MessageId>>>,
}

impl Default for Line {
    fn default() -> Self {
        let calls_max = Arc::new(AtomicUsize::new(8));
        Self { is_full: Arc::default(), calls_max, sent: Arc::default(), cancelled: Arc::default() }
    }
}

impl Wire for Line {
    fn calls_max(&self) -> usize {
        self.calls_max.load(Ordering::Relaxed)
    }

    fn invoke(&self, invocation: &Invocation) -> bool {
        if self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        self.sent.lock().unwrap().push(invocation.key.id);
        true
    }

    fn cancel(&self, id: MessageId) {
        self.cancelled.lock().unwrap().push(id);
    }
}

fn invocation(seed: u8, id: u8) -> Invocation {
    Invocation {
        key: CallKey { from: Identity::from_seed([seed; 32]).did().clone(), id: MessageId([id; 16]) },
        capability: "org.example.echo:1.0.0".parse().unwrap(),
        names_id: true,
        envelope: Bytes::from_static(b"\xa0"),
        params: Bytes::from_static(b"\xf6"),
        deadline: tokio::time::Instant::now(),
    }
}

fn start(provider: &impl Provider, outcomes: &Arc<Outcomes>, invocation: Invocation) {
    let ticket = Ticket::new(invocation.key.clone(), outcomes.clone());
    provider.invoke(invocation, ticket);
}

fn code(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Failure { code, .. } => Some(*code),
        Outcome::Body(_) | Outcome::Success(_) | Outcome::Lost => None,
    }
}

#[test]
fn a_dropped_ticket_answers_with_an_error_and_a_finished_one_only_once() {
    let outcomes = Arc::new(Outcomes::default());
    drop(Ticket::new(invocation(1, 1).key, outcomes.clone()));
    let dropped = outcomes.take();
    assert_eq!(dropped.len(), 1);
    assert_eq!(code(&dropped[0].1), Some(Code::INTERNAL_ERROR));
    Ticket::new(invocation(1, 2).key, outcomes.clone()).finish(Outcome::Lost);
    assert_eq!(outcomes.take().len(), 1);
}

#[test]
fn a_panicking_provider_still_answers() {
    let outcomes = Arc::new(Outcomes::default());
    let ticket = Ticket::new(invocation(1, 1).key, outcomes.clone());
    let panicked = std::thread::spawn(move || {
        let _kept = ticket;
        panic!("a provider's fault");
    });
    assert!(panicked.join().is_err());
    assert_eq!(outcomes.take().len(), 1);
}

/// An answer that is addressed to whoever made the call.
fn anybody(_: &Did) -> bool {
    true
}

fn result(body: &'static str) -> AgentResult {
    let body = Bytes::from_static(body.as_bytes());
    AgentResult { ended: Ok(body.clone()), body, is_timed: true }
}

#[test]
fn an_agents_result_ends_its_call_and_a_second_one_is_unknown() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    let provider = LinkProvider::new(line.clone());
    start(&provider, &outcomes, invocation(1, 1));
    assert_eq!(*line.sent.lock().unwrap(), [MessageId([1; 16])]);
    assert_eq!(provider.in_flight(), 1);
    assert_eq!(provider.on_result(&MessageId([9; 16]), anybody, result("")), Answered::Unknown);
    assert_eq!(provider.on_result(&MessageId([1; 16]), anybody, result("body")), Answered::Taken);
    assert_eq!(provider.on_result(&MessageId([1; 16]), anybody, result("")), Answered::Unknown);
    let finished = outcomes.take();
    assert!(
        matches!(&finished[..], [(_, Outcome::Body(result))] if result.body == b"body"[..]),
        "{finished:?}"
    );
}

#[test]
fn a_broken_link_loses_every_call_and_takes_no_more() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    let provider = LinkProvider::new(line);
    start(&provider, &outcomes, invocation(1, 1));
    start(&provider, &outcomes, invocation(1, 2));
    provider.on_close();
    start(&provider, &outcomes, invocation(1, 3));
    let ended = outcomes.take();
    assert_eq!(ended.len(), 3);
    assert!(ended.iter().all(|(_, outcome)| matches!(outcome, Outcome::Lost)));
}

#[test]
fn what_an_agent_cannot_take_is_overloaded() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    line.calls_max.store(2, Ordering::Relaxed);
    let provider = LinkProvider::new(line.clone());
    start(&provider, &outcomes, invocation(1, 1));
    // Answers carry the id alone: another caller's call under the same id cannot run beside it.
    start(&provider, &outcomes, invocation(2, 1));
    start(&provider, &outcomes, invocation(1, 2));
    start(&provider, &outcomes, invocation(1, 3));
    line.is_full.store(true, Ordering::Relaxed);
    assert_eq!(provider.on_result(&MessageId([2; 16]), anybody, result("")), Answered::Taken);
    start(&provider, &outcomes, invocation(1, 4));
    let refused: Vec<_> = outcomes.take().iter().filter_map(|(_, outcome)| code(outcome)).collect();
    assert_eq!(refused, [Code::OVERLOADED; 3]);
    assert_eq!(provider.in_flight(), 1);
}

#[test]
fn a_cancelled_call_is_told_to_the_agent_and_its_late_answer_is_unknown() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    let provider = LinkProvider::new(line.clone());
    let call = invocation(1, 1);
    start(&provider, &outcomes, call.clone());
    provider.cancel(&call.key);
    assert_eq!(*line.cancelled.lock().unwrap(), [call.key.id]);
    assert_eq!(provider.on_result(&call.key.id, anybody, result("")), Answered::Unknown);
    provider.cancel(&call.key);
    assert_eq!(line.cancelled.lock().unwrap().len(), 1);
}

#[test]
fn who_knows_anothers_id_cannot_end_its_call() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    let provider = LinkProvider::new(line.clone());
    let (call, thief) = (invocation(1, 1), invocation(2, 1));
    start(&provider, &outcomes, call.clone());
    provider.cancel(&thief.key);
    let to_thief = |did: &Did| *did == thief.key.from;
    assert_eq!(provider.on_result(&call.key.id, to_thief, result("theirs")), Answered::Unknown);
    let refused = provider.on_error(&call.key.id, to_thief, Code::UNAVAILABLE, String::new());
    assert_eq!(refused, Answered::Unknown);
    assert_eq!(provider.call_of(&call.key.id, to_thief), None);
    assert_eq!((provider.in_flight(), line.cancelled.lock().unwrap().len()), (1, 0));
    assert!(outcomes.take().is_empty());
    let to_caller = |did: &Did| *did == call.key.from;
    assert_eq!(provider.call_of(&call.key.id, to_caller).as_ref(), Some(&call.key));
    assert_eq!(provider.on_result(&call.key.id, to_caller, result("done")), Answered::Taken);
}

#[test]
fn a_late_answer_to_one_callers_call_is_not_anothers_result() {
    let (line, outcomes) = (Line::default(), Arc::new(Outcomes::default()));
    let provider = LinkProvider::new(line.clone());
    let (call, thief) = (invocation(1, 1), invocation(2, 1));
    start(&provider, &outcomes, call.clone());
    provider.cancel(&call.key);
    outcomes.take();
    // While the answer is owed, its id is nobody else's.
    start(&provider, &outcomes, thief.clone());
    assert_eq!(
        outcomes.take().iter().filter_map(|(_, outcome)| code(outcome)).collect::<Vec<_>>(),
        [Code::OVERLOADED]
    );
    assert_eq!(provider.on_result(&call.key.id, anybody, result("late")), Answered::Unknown);
    start(&provider, &outcomes, thief);
    assert_eq!(provider.on_result(&call.key.id, anybody, result("theirs")), Answered::Taken);
}
