//! Messages, providers' answers, crashes and the time in; messages out: the executor's side, on the real ledger and the
//! real machine, over a journal that survives a crash.

use std::collections::BTreeMap;

use bytes::Bytes;
use capd_proto::call::executor::{CancelState, Executor, Input, Outcome, Output};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{
    Admission, Answerer, BodyDigest, Finish, Invoke, Kept, Key, Ledger, Limits, Status,
};

use super::oracle::{Oracle, claim};

/// What is left out on purpose, to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The ledger's duplicate check.
    BlindLedger,
    /// The row that says `Executing`.
    NoExecutingRow,
    /// The caller's rule that an ERROR after an unanswered copy is no refusal.
    CredulousCaller,
}

/// What goes over the channel, either way.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Invoke(Asked),
    Cancel { id: MessageId },
    Notice { id: MessageId },
    Result { id: MessageId, envelope: Bytes },
    Error { id: MessageId, code: Code },
    CancelUnknown { id: MessageId },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) id: MessageId,
    pub(crate) idempotent: bool,
    pub(crate) expires_at_ms: u64,
    pub(crate) time_ms: u64,
    /// Whether it is a copy that the caller's machine did not send.
    pub(crate) is_stray: bool,
}

/// The two clocks. **Units:** milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic_ms: u64,
    pub(crate) wall_ms: u64,
}

pub(crate) struct Sidecar {
    pub(crate) oracle: Oracle,
    pub(crate) out: Vec<Message>,
    pub(crate) disk_full: bool,
    pub(crate) is_closed: bool,
    /// Where the next crash strikes by itself: before the provider has the call, before its result is on disk, after.
    pub(crate) trap: Option<u8>,
    /// Grows with each crash.
    pub(crate) life: u32,
    fault: Fault,
    from: Did,
    ledger: Ledger<()>,
    running: BTreeMap<Key, Running>,
    journal: BTreeMap<u64, Row>,
    next_row: u64,
    /// The calls that providers were handed, in this order, whether they answered or not.
    executions: Vec<Key>,
    envelopes: u32,
}

struct Running {
    machine: Executor,
    asked: Asked,
    row: Option<u64>,
}

struct Row {
    invoke: Invoke,
    result: Option<Bytes>,
}

impl Sidecar {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            oracle: Oracle::default(),
            out: Vec::new(),
            disk_full: false,
            is_closed: false,
            trap: None,
            life: 0,
            fault,
            from: Did::parse("did:example:caller").expect("it is a DID"),
            ledger: empty(fault),
            running: BTreeMap::new(),
            journal: BTreeMap::new(),
            next_row: 0,
            executions: Vec::new(),
            envelopes: 0,
        }
    }

    pub(crate) fn invoke(&mut self, asked: Asked, now: Now) -> Result<(), String> {
        let key = self.key(asked.id);
        if now.wall_ms > asked.expires_at_ms {
            return self.refuse(&asked, Code::INVALID_TIMESTAMP);
        }
        if self.is_closed && self.ledger.status(&key) == Status::Unknown {
            return self.refuse(&asked, Code::UNAVAILABLE);
        }
        let invoke = Invoke {
            key: key.clone(),
            body: BodyDigest([0; 32]),
            expires_at_ms: asked.expires_at_ms,
            idempotent: asked.idempotent,
        };
        match self.ledger.admit(invoke.clone(), ()) {
            Admission::New => self.begin(key, asked, invoke, now),
            Admission::Attached { .. } => Ok(()),
            Admission::Replay { kept, waiter: () } => {
                let envelope = match kept {
                    Kept::Held(envelope) => envelope.into_bytes(),
                    Kept::Journaled { row, .. } => {
                        let row = self.journal.get(&row).and_then(|row| row.result.clone());
                        row.ok_or("a call's row is gone before the call")?
                    }
                };
                self.answer(&asked, envelope)
            }
            Admission::Forgotten(()) => self.refuse(&asked, Code::INVALID_TIMESTAMP),
            Admission::Conflict(()) | Admission::Full { .. } | Admission::Released(()) => {
                Err("nothing else has this id".to_owned())
            }
        }
    }

    fn begin(&mut self, key: Key, asked: Asked, invoke: Invoke, now: Now) -> Result<(), String> {
        let is_journaled = !asked.idempotent && self.fault != Fault::NoExecutingRow;
        let left_ms = asked.expires_at_ms.saturating_sub(now.wall_ms);
        let machine = Executor::new(asked.idempotent, now.monotonic_ms + left_ms.min(asked.time_ms));
        let row = is_journaled.then_some(self.next_row);
        self.running.insert(key.clone(), Running { machine, asked, row });
        if is_journaled && self.disk_full {
            return self.drive(&key, Input::Refuse(Code::UNAVAILABLE), None, now);
        }
        self.oracle.admits(asked.id);
        if let Some(row) = row {
            self.next_row += 1;
            self.journal.insert(row, Row { invoke, result: None });
        }
        if self.springs(0) {
            return self.crash();
        }
        self.drive(&key, Input::Accept, None, now)
    }

    /// Tells a running call's machine what happened, and does what it says.
    fn drive(&mut self, key: &Key, input: Input, answer: Option<Bytes>, now: Now) -> Result<(), String> {
        let Some(running) = self.running.get_mut(key) else { return Ok(()) };
        let asked = running.asked;
        running.machine.handle(input, now.monotonic_ms);
        while let Some(output) = self.running.get_mut(key).and_then(|running| running.machine.poll_output()) {
            match output {
                Output::Execute | Output::TryAnother => {
                    if let Some(running) = self.running.get_mut(key) {
                        running.machine.handle(Input::Start, now.monotonic_ms);
                    }
                    self.executions.push(key.clone());
                    self.oracle.executes(asked.id, asked.idempotent)?;
                }
                Output::Finish(outcome) => {
                    let (envelope, by) = match (outcome, answer.clone()) {
                        (Outcome::Provider, Some(envelope)) => (envelope, Answerer::Provider),
                        (Outcome::Provider, None) => return Err("no answer was given".to_owned()),
                        (Outcome::Error(code), answer) => {
                            let by = if answer.is_some() { Answerer::Provider } else { Answerer::Sidecar };
                            (self.envelope(code.0), by)
                        }
                    };
                    return self.finish(key, envelope, by);
                }
                Output::Refuse(code) => {
                    self.running.remove(key);
                    let waiters = self.ledger.withdraw(key).ok_or("a refused call was not running")?;
                    return waiters.iter().try_for_each(|()| self.refuse(&asked, code));
                }
                Output::Relay => self.out.push(Message::Notice { id: asked.id }),
                Output::AnswerCancel(CancelState::Unknown) => {
                    self.out.push(Message::CancelUnknown { id: asked.id });
                }
                Output::AnswerCancel(CancelState::Cancelling | CancelState::Finished)
                | Output::CancelProvider
                | Output::RefuseAnswer(_)
                | Output::Drop => {}
            }
        }
        Ok(())
    }

    /// PROTOCOL 8: `Finished` is on disk before the caller sees the result.
    fn finish(&mut self, key: &Key, envelope: Bytes, by: Answerer) -> Result<(), String> {
        if self.springs(1) {
            return self.crash();
        }
        let running = self.running.remove(key).ok_or("a call that does not run finished")?;
        let mut kept = Kept::Held(envelope.clone().into());
        if let Some((row, entry)) = running.row.and_then(|row| Some((row, self.journal.get_mut(&row)?))) {
            entry.result = Some(envelope.clone());
            kept = Kept::Journaled { row, bytes: envelope.len() };
        }
        if self.springs(2) {
            return self.crash();
        }
        let Finish::Recorded(waiters) = self.ledger.finish(key, kept, by) else {
            return Err(format!("the result of {} was one too many", key.id));
        };
        waiters.iter().try_for_each(|()| self.answer(&running.asked, envelope.clone()))
    }

    /// The memory is lost; the journal is read, and what it left open is closed.
    pub(crate) fn crash(&mut self) -> Result<(), String> {
        self.life += 1;
        self.running.clear();
        self.ledger = empty(self.fault);
        let mut rows = std::mem::take(&mut self.journal);
        for (row, entry) in &mut rows {
            let by = if entry.result.is_some() { Answerer::Provider } else { Answerer::Sidecar };
            let envelope = entry.result.get_or_insert_with(|| self.envelope(Code::INTERRUPTED.0)).clone();
            let kept = Kept::Journaled { row: *row, bytes: envelope.len() };
            let is_first = self.ledger.restore(entry.invoke.clone(), kept, by);
            claim(is_first || self.fault != Fault::None, || "two rows of one call".to_owned())?;
        }
        self.journal = rows;
        Ok(())
    }

    /// The provider answers an execution, the first time or once more.
    pub(crate) fn provider_answers(&mut self, n: u8, is_error: bool, now: Now) -> Result<(), String> {
        let Some(key) = self.execution(n) else { return Ok(()) };
        let (input, code) = if is_error {
            (Input::ProviderError(Code::UNAVAILABLE), Code::UNAVAILABLE.0)
        } else {
            (Input::ProviderResult { fits: true }, 0)
        };
        let envelope = self.envelope(code);
        self.drive(&key, input, Some(envelope), now)
    }

    pub(crate) fn provider_tells(&mut self, n: u8, input: Input, now: Now) -> Result<(), String> {
        self.execution(n).map_or(Ok(()), |key| self.drive(&key, input, None, now))
    }

    pub(crate) fn cancel(&mut self, id: MessageId, now: Now) -> Result<(), String> {
        let key = self.key(id);
        if self.running.contains_key(&key) {
            return self.drive(&key, Input::Cancel { own: true }, None, now);
        }
        if self.ledger.status(&key) == Status::Unknown {
            self.out.push(Message::CancelUnknown { id });
        }
        Ok(())
    }

    pub(crate) fn shut_down(&mut self, now: Now) -> Result<(), String> {
        let keys: Vec<_> = self.running.keys().cloned().collect();
        keys.iter().try_for_each(|key| self.drive(key, Input::Shutdown, None, now))
    }

    /// Ends what is due and forgets what has expired.
    pub(crate) fn tick(&mut self, now: Now) -> Result<(), String> {
        let is_due = |running: &Running| running.machine.poll_timeout() <= Some(now.monotonic_ms);
        let due: Vec<_> =
            self.running.iter().filter(|(_, running)| is_due(running)).map(|(key, _)| key.clone()).collect();
        due.iter().try_for_each(|key| self.drive(key, Input::Timeout, None, now))?;
        let mut rows = Vec::new();
        self.ledger.sweep(now.wall_ms, &mut rows);
        for row in rows {
            let forgotten =
                self.journal.remove(&row).ok_or_else(|| format!("row {row} was never written"))?;
            self.oracle.forgets(forgotten.invoke.key.id);
        }
        Ok(())
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.running.values().filter_map(|running| running.machine.poll_timeout()).min()
    }

    fn execution(&self, n: u8) -> Option<Key> {
        self.executions.get(usize::from(n) % self.executions.len().max(1)).cloned()
    }

    fn answer(&mut self, asked: &Asked, envelope: Bytes) -> Result<(), String> {
        self.oracle.answers(asked.id, asked.idempotent, &envelope)?;
        self.out.push(Message::Result { id: asked.id, envelope });
        Ok(())
    }

    fn refuse(&mut self, asked: &Asked, code: Code) -> Result<(), String> {
        self.oracle.refuses(asked.id, asked.idempotent, code)?;
        if !asked.is_stray {
            self.out.push(Message::Error { id: asked.id, code });
        }
        Ok(())
    }

    /// A result's bytes, unlike any other's: its error's code or 0, and a number.
    fn envelope(&mut self, code: u32) -> Bytes {
        self.envelopes += 1;
        [&code.to_be_bytes()[..], &self.envelopes.to_be_bytes()].concat().into()
    }

    fn springs(&mut self, at: u8) -> bool {
        let springs = self.trap == Some(at);
        if springs {
            self.trap = None;
        }
        springs
    }

    fn key(&self, id: MessageId) -> Key {
        Key { from: self.from.clone(), id }
    }
}

fn empty(fault: Fault) -> Ledger<()> {
    let mut ledger = Ledger::new(Limits::default());
    ledger.set_blind(fault == Fault::BlindLedger);
    ledger
}
