//! What was sent, heard and executed in; whatever breaks PROTOCOL 8's promise, with the call's own history, out.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ciborium::Value;

use crate::support::{Message, field};

/// A call's id.
pub type Id = [u8; 16];

/// What happened to one call.
#[derive(Clone, Debug)]
pub enum Event {
    /// The caller sent its invoke, for the first time or again.
    Sent,
    /// The link to the caller's sidecar broke before there was an answer.
    LinkLost,
    /// An ERROR: refused, and so not recorded.
    Refused(u64),
    /// The caller's own sidecar stopped waiting: not the last word.
    NotFinal(u64),
    /// A final result: its outcome and the result's envelope.
    Final(Outcome, Vec<u8>),
    /// The provider began to execute it.
    Executed,
}

/// What a final result says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Success,
    /// Under this code.
    Error(u64),
}

/// The answer that a message is.
pub fn answer(message: &Message) -> Event {
    if field(message.body(), "status").and_then(Value::as_text) == Some("success") {
        return Event::Final(Outcome::Success, message.bytes.clone());
    }
    let code = message.code().expect("a result or an ERROR has a code");
    let Some(error) = field(message.body(), "error") else { return Event::Refused(code) };
    let last = field(error, "details").and_then(|details| field(details, "final"));
    if last == Some(&Value::Bool(false)) {
        return Event::NotFinal(code);
    }
    Event::Final(Outcome::Error(code), message.bytes.clone())
}

/// Everything that happened in one world.
pub struct History {
    begin: Instant,
    calls: HashMap<Id, Vec<(Duration, Event)>>,
    /// Kills and starts, for whoever reads a failure.
    processes: Vec<(Duration, String)>,
}

impl History {
    pub fn new() -> Self {
        Self { begin: Instant::now(), calls: HashMap::new(), processes: Vec::new() }
    }

    pub fn note(&mut self, id: Id, event: Event) {
        let at = self.begin.elapsed();
        self.calls.entry(id).or_default().push((at, event));
    }

    /// What happened to a process.
    pub fn note_process(&mut self, what: String) {
        let at = self.begin.elapsed();
        self.processes.push((at, what));
    }

    /// The call's final result, once it has one.
    pub fn outcome(&self, id: &Id) -> Option<Outcome> {
        self.calls.get(id)?.iter().find_map(|(_, event)| match event {
            Event::Final(outcome, _) => Some(*outcome),
            Event::Sent | Event::LinkLost | Event::Refused(_) | Event::NotFinal(_) | Event::Executed => None,
        })
    }

    pub fn ids(&self) -> Vec<Id> {
        let mut ids: Vec<_> = self.calls.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Calls by the result that they ended with.
    pub fn outcomes(&self) -> BTreeMap<Outcome, u64> {
        let mut outcomes = BTreeMap::new();
        for outcome in self.calls.keys().filter_map(|id| self.outcome(id)) {
            *outcomes.entry(outcome).or_default() += 1;
        }
        outcomes
    }

    /// How many events are of a kind.
    pub fn count(&self, is: impl Fn(&Event) -> bool) -> u64 {
        self.calls.values().flatten().filter(|(_, event)| is(event)).count() as u64
    }

    /// Every way in which the history breaks the promise. `executions` are the lines of the provider's file.
    pub fn violations(&self, executions: &[Id]) -> Vec<Violation> {
        let mut lines: HashMap<Id, u64> = HashMap::new();
        for id in executions {
            *lines.entry(*id).or_default() += 1;
        }
        let mut found = Vec::new();
        for (id, times) in &lines {
            if *times > 1 {
                found.push(Violation { id: *id, kind: Kind::Duplicate });
            }
            let is_sent = |(_, event): &(Duration, Event)| matches!(event, Event::Sent);
            if !self.calls.get(id).is_some_and(|events| events.iter().any(is_sent)) {
                found.push(Violation { id: *id, kind: Kind::Unasked });
            }
        }
        for (id, events) in &self.calls {
            let mut finals = events.iter().filter_map(|(_, event)| match event {
                Event::Final(outcome, bytes) => Some((*outcome, bytes)),
                Event::Sent | Event::LinkLost | Event::Refused(_) | Event::NotFinal(_) | Event::Executed => {
                    None
                }
            });
            if breaks_a_refusal(events.iter().map(|(_, event)| event)) {
                found.push(Violation { id: *id, kind: Kind::Refused });
            }
            let Some((outcome, bytes)) = finals.next() else {
                found.push(Violation { id: *id, kind: Kind::Unended });
                continue;
            };
            if finals.any(|later| later != (outcome, bytes)) {
                found.push(Violation { id: *id, kind: Kind::Changed });
            }
            if outcome == Outcome::Success && !lines.contains_key(id) {
                found.push(Violation { id: *id, kind: Kind::Invented });
            }
        }
        found.sort_unstable_by_key(|violation| violation.id);
        found
    }

    /// The history of one call among what happened to processes around it, as lines.
    pub fn of(&self, id: &Id) -> String {
        let mut lines: Vec<(Duration, String)> = self.processes.clone();
        let events = self.calls.get(id).map(Vec::as_slice).unwrap_or_default();
        lines.extend(events.iter().map(|(at, event)| (*at, line(event))));
        lines.sort_by_key(|(at, _)| *at);
        // Of the processes only what happened while the call was about, and the ones just before.
        let first =
            events.first().map_or(Duration::ZERO, |(at, _)| at.saturating_sub(Duration::from_secs(2)));
        let last = events.last().map_or(Duration::MAX, |(at, _)| *at);
        let mut text = format!("call {}\n", hex(id));
        for (at, what) in lines.iter().filter(|(at, _)| (first..=last).contains(at)) {
            writeln!(text, "  {:>9.3} ms  {what}", at.as_secs_f64() * 1_000.0)
                .expect("text takes everything");
        }
        text
    }
}

/// PROTOCOL 8: an ERROR says that nothing was executed under this id, and nothing will be unless it is asked for again.
fn breaks_a_refusal<'a>(events: impl Iterator<Item = &'a Event>) -> bool {
    // Asks of the present link that nothing has answered yet.
    let (mut open, mut is_executed, mut is_refused) = (0_u64, false, false);
    for event in events {
        match event {
            Event::Sent => {
                open += 1;
                is_refused = false;
            }
            Event::LinkLost => open = 0,
            Event::Refused(_) => {
                open = open.saturating_sub(1);
                is_refused = open == 0;
                if is_executed {
                    return true;
                }
            }
            Event::NotFinal(_) | Event::Final(..) => open = open.saturating_sub(1),
            Event::Executed if is_refused => return true,
            Event::Executed => is_executed = true,
        }
    }
    false
}

/// A call whose history breaks the promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub id: Id,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Executed more than once.
    Duplicate,
    /// Executed though nobody called.
    Unasked,
    /// Two final results that differ.
    Changed,
    /// No final result.
    Unended,
    /// A success without an execution.
    Invented,
    /// An ERROR for a call that was executed, or was executed after it unasked.
    Refused,
}

fn line(event: &Event) -> String {
    match event {
        Event::Sent => "sent".to_owned(),
        Event::LinkLost => "the caller's link broke".to_owned(),
        Event::Refused(code) => format!("refused with {code}"),
        Event::NotFinal(code) => format!("not final: {code}"),
        Event::Final(outcome, bytes) => format!("final: {outcome:?}, {}", hex(bytes)),
        Event::Executed => "executed".to_owned(),
    }
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = [7; 16];

    fn after(events: &[Event], executions: &[Id]) -> Vec<Kind> {
        let mut history = History::new();
        for event in events {
            history.note(ID, event.clone());
        }
        history.violations(executions).into_iter().map(|violation| violation.kind).collect()
    }

    fn success(bytes: &[u8]) -> Event {
        Event::Final(Outcome::Success, bytes.to_vec())
    }

    fn error(code: u64) -> Event {
        Event::Final(Outcome::Error(code), vec![1])
    }

    #[test]
    fn a_call_that_ends_once_is_in_order_however_often_it_is_asked_for() {
        assert_eq!(after(&[Event::Sent, success(b"a"), Event::Sent, success(b"a")], &[ID]), []);
        assert_eq!(after(&[Event::Sent, Event::LinkLost, Event::Sent, error(5902)], &[ID]), []);
        assert_eq!(after(&[Event::Sent, Event::Refused(4002), Event::NotFinal(5003), error(5902)], &[]), []);
    }

    #[test]
    fn each_broken_promise_is_found() {
        assert_eq!(after(&[Event::Sent, success(b"a")], &[ID, ID]), [Kind::Duplicate]);
        assert_eq!(after(&[Event::Sent, success(b"a"), success(b"b")], &[ID]), [Kind::Changed]);
        assert_eq!(after(&[Event::Sent, error(5902), success(b"a")], &[ID]), [Kind::Changed]);
        assert_eq!(after(&[Event::Sent, error(5902), error(5003)], &[]), [Kind::Changed]);
        assert_eq!(after(&[Event::Sent, success(b"a")], &[]), [Kind::Invented]);
        assert_eq!(after(&[Event::Sent, Event::NotFinal(5003), Event::Refused(1003)], &[]), [Kind::Unended]);
        assert_eq!(after(&[Event::Sent, success(b"a")], &[ID, [8; 16]]), [Kind::Unasked]);
    }

    #[test]
    fn a_refusal_of_what_was_executed_is_found_and_one_before_another_ask_is_not() {
        use Event::{Executed, LinkLost, Refused, Sent};
        let end = success(b"a");
        let bad: [&[Event]; 3] = [
            &[Sent, Executed, LinkLost, Sent, Refused(4002), Sent, end.clone()],
            &[Sent, LinkLost, Sent, Refused(5004), Executed, Sent, end.clone()],
            &[Sent, Refused(2002), Executed, Sent, end.clone()],
        ];
        for events in bad {
            assert_eq!(after(events, &[ID]), [Kind::Refused], "{events:?}");
        }
        let good: [&[Event]; 2] = [
            &[Sent, Refused(5004), Sent, Executed, end.clone()],
            // Of two asks on one link, each has its answer.
            &[Sent, Sent, Refused(5004), Executed, end.clone()],
        ];
        for events in good {
            assert_eq!(after(events, &[ID]), [], "{events:?}");
        }
    }
}
