//! What agents did and saw in; what should never have happened out.
//!
//! It knows nothing of how the daemon works: only which calls were made, which executions began, and which answers
//! came. PROTOCOL 8 in its words: no two results for one call, no second execution of a call that is not idempotent,
//! no result of a call that was not made, no refusal of a call that was executed or is executed later unasked, and an
//! end for every call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;

use super::trace::{Happening, Trace, digest};

/// A call as its caller and its providers know it: its number, which its params carry.
pub type CallNumber = u64;

/// What one call may do.
#[derive(Clone, Debug)]
pub struct Made {
    pub number: CallNumber,
    /// Which machine's agent makes it.
    pub caller: usize,
    pub id: MessageId,
    pub is_idempotent: bool,
    /// Whether its providers remember its id, so that it takes effect once however often it is executed (FLEET X9).
    pub is_remembered: bool,
}

/// How an ask of a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The one result: success with these bytes, or an error with this code and text.
    Success(Vec<u8>),
    Failure {
        code: u32,
        text: String,
    },
    /// An answer that is not the last word.
    NotFinal {
        code: u32,
    },
    /// An ERROR: nothing was executed under this id.
    Refused {
        code: u32,
    },
    /// An ERROR for the id's time, which has passed: it tells nothing of earlier asks.
    Expired,
    /// The link was lost.
    Lost,
    /// Nothing came within the call's time and all grace.
    Silence,
}

/// Everything that was made, done and seen in one world. Clones are one oracle.
#[derive(Clone)]
pub struct Oracle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    trace: Trace,
}

#[derive(Default)]
struct State {
    calls: BTreeMap<CallNumber, Call>,
    history: Vec<(u64, Option<CallNumber>, String)>,
    violations: Vec<Violation>,
    executions: u64,
    /// Those of remembered calls that had been executed before.
    again: u64,
}

struct Call {
    made: Made,
    /// What each execution's success carries, so that a result names the execution that it is of.
    outcomes: Vec<Vec<u8>>,
    result: Option<Seen>,
    /// The refusal that its agent saw since it asked last.
    refused: Option<u32>,
    end: Option<End>,
}

/// How a call ended for its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Success,
    Failure(u32),
    /// Its time, as its id and ttl have it, passed before an answer came.
    Expired,
}

/// Something that should never have happened.
#[derive(Clone, Debug)]
pub struct Violation {
    pub call: Option<CallNumber>,
    pub id: Option<MessageId>,
    pub what: String,
}

impl Oracle {
    pub fn new(trace: Trace) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), trace }))
    }

    /// A call is about to be made for the first time.
    pub fn made(&self, made: Made) {
        self.tell(Some(made.number), || {
            let kind = match (made.is_idempotent, made.is_remembered) {
                (true, _) => "idempotent",
                (false, true) => "remembered",
                (false, false) => "once",
            };
            format!("agent {} makes the call {} ({kind})", made.caller, made.id)
        });
        let call = Call { made: made.clone(), outcomes: Vec::new(), result: None, refused: None, end: None };
        self.state().calls.insert(made.number, call);
    }

    /// The agent is about to ask for a call, the first time or again.
    pub fn asks(&self, number: CallNumber) {
        if let Some(call) = self.state().calls.get_mut(&number) {
            call.refused = None;
        }
    }

    /// A provider begins to execute a call.
    pub fn executes(&self, number: CallNumber, id: MessageId, provider: &str, outcome: &[u8]) {
        self.0.trace.note(Happening::Execution, &[number, digest(outcome)]);
        self.tell(Some(number), || format!("{provider} executes {id}"));
        let mut state = self.state();
        state.executions += 1;
        let Some(call) = state.calls.get_mut(&number) else {
            let what = "an execution of a call that was not made".to_owned();
            return state.violations.push(Violation { call: Some(number), id: Some(id), what });
        };
        call.outcomes.push(outcome.to_vec());
        let (count, made, refused) = (call.outcomes.len(), call.made.clone(), call.refused);
        if made.is_remembered && count > 1 {
            state.again += 1;
            let first = state.calls.get(&number).and_then(|call| call.outcomes.first());
            if first.is_some_and(|first| first != outcome) {
                let what = format!("execution number {count} of a remembered call takes effect again");
                state.violations.push(Violation { call: Some(number), id: Some(id), what });
            }
        }
        if !made.is_idempotent {
            if count > 1 && !made.is_remembered {
                let what = format!("execution number {count} of a call that is not idempotent");
                state.violations.push(Violation { call: Some(number), id: Some(id), what });
            }
            if let Some(code) = refused {
                let what = format!("an execution after its agent was told {code}, which refuses it");
                state.violations.push(Violation { call: Some(number), id: Some(id), what });
            }
            if id != made.id {
                let what = "a call that is not idempotent was executed under another id".to_owned();
                state.violations.push(Violation { call: Some(number), id: Some(id), what });
            }
        }
    }

    /// The agent has an answer, or knows that none came.
    pub fn sees(&self, number: CallNumber, seen: Seen) {
        let (kind, bytes) = seen.key();
        self.0.trace.note(Happening::Answer, &[number, kind, bytes]);
        self.tell(Some(number), || format!("its agent sees {seen}"));
        let mut state = self.state();
        let Some(call) = state.calls.get_mut(&number) else { return };
        let mut faults = Vec::new();
        match &seen {
            Seen::Success(outcome) => {
                if !call.outcomes.contains(outcome) {
                    faults.push("a result that no execution of this call gave".to_owned());
                }
                faults.extend(call.differs(&seen));
            }
            Seen::Failure { .. } => faults.extend(call.differs(&seen)),
            Seen::Silence => faults.push("no answer came in the call's time".to_owned()),
            Seen::Refused { code } if !call.made.is_idempotent => {
                call.refused = Some(*code);
                if !call.outcomes.is_empty() {
                    faults.push(format!("the refusal {code} of a call that was executed"));
                }
            }
            Seen::Refused { .. } | Seen::Expired | Seen::NotFinal { .. } | Seen::Lost => {}
        }
        if matches!(seen, Seen::Success(_) | Seen::Failure { .. }) {
            // Of an idempotent call an answer may take the place of an error: its executor may have forgotten it.
            call.result = Some(seen);
        }
        let id = call.made.id;
        for what in faults {
            state.violations.push(Violation { call: Some(number), id: Some(id), what });
        }
    }

    /// The agent is done with a call.
    pub fn ends(&self, number: CallNumber, end: End) {
        if let Some(call) = self.state().calls.get_mut(&number) {
            call.end = Some(end);
        }
    }

    /// Something happened to a machine.
    pub fn tell(&self, call: Option<CallNumber>, what: impl FnOnce() -> String) {
        let now_ms = self.0.trace.now_ms();
        self.state().history.push((now_ms, call, what()));
    }

    /// Something that no call did.
    pub fn violates(&self, what: String) {
        self.state().violations.push(Violation { call: None, id: None, what });
    }

    /// The verdict at the end of a world.
    pub fn verdict(&self) -> Verdict {
        let mut state = self.state();
        let endless: Vec<_> = state.calls.values().filter(|call| call.end.is_none()).collect();
        let endless = endless.into_iter().map(|call| Violation {
            call: Some(call.made.number),
            id: Some(call.made.id),
            what: "the call did not end".to_owned(),
        });
        let endless: Vec<_> = endless.collect();
        state.violations.extend(endless);
        let mut ends = BTreeMap::new();
        for end in state.calls.values().filter_map(|call| call.end) {
            *ends.entry(end).or_default() += 1;
        }
        Verdict {
            calls: state.calls.len() as u64,
            executions: state.executions,
            again: state.again,
            ends,
            violations: std::mem::take(&mut state.violations),
            history: std::mem::take(&mut state.history),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// Why `seen` cannot be this call's result, given the one that was seen before.
    fn differs(&self, seen: &Seen) -> Option<String> {
        let before = self.result.as_ref()?;
        let both_succeed = matches!((before, seen), (Seen::Success(_), Seen::Success(_)));
        // An error that a sidecar made in a provider's place (5002, 5003) is in no store.
        let is_recorded = !self.made.is_idempotent && !self.made.is_remembered;
        let must_agree = is_recorded || both_succeed;
        (must_agree && before != seen).then(|| format!("two results: {before}, then {seen}"))
    }
}

impl Seen {
    fn key(&self) -> (u64, u64) {
        match self {
            Self::Success(outcome) => (1, digest(outcome)),
            Self::Failure { code, text } => (2, u64::from(*code) ^ digest(text.as_bytes())),
            Self::NotFinal { code } => (3, u64::from(*code)),
            Self::Refused { code } => (4, u64::from(*code)),
            Self::Lost => (5, 0),
            Self::Silence => (6, 0),
            Self::Expired => (4, u64::from(Code::INVALID_TIMESTAMP.0)),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success(outcome) => write!(f, "the result {:016x}", digest(outcome)),
            Self::Failure { code, text } => write!(f, "the error result {code} ({text})"),
            Self::NotFinal { code } => write!(f, "the error {code}, which is not the last word"),
            Self::Refused { code } => write!(f, "the refusal {code}"),
            Self::Expired => f.write_str("that its time has passed"),
            Self::Lost => f.write_str("its link lost"),
            Self::Silence => f.write_str("nothing in time"),
        }
    }
}

/// What the oracle says of a world.
pub struct Verdict {
    pub calls: u64,
    pub executions: u64,
    /// Executions of calls that their providers remembered.
    pub again: u64,
    pub ends: BTreeMap<End, u64>,
    pub violations: Vec<Violation>,
    history: Vec<(u64, Option<CallNumber>, String)>,
}

impl Verdict {
    /// What happened to a call, and to the machines meanwhile, one happening a line.
    pub fn history_of(&self, call: Option<CallNumber>) -> String {
        let lines = self.history.iter().filter(|(_, about, _)| about.is_none() || *about == call);
        lines.map(|(at_ms, _, what)| format!("    {at_ms:>7} ms  {what}\n")).collect()
    }
}
