//! Operations on a world of callers, a bad channel and one executor in; the promise of PROTOCOL 8 that is broken, if any,
//! out.
//!
//! The world is naive and the machines in it are real. It claims: at most one result for an id, always the same bytes; no
//! call that is not idempotent executed twice; no ERROR after a result; no refusal of a call that is not idempotent and was
//! executed, or is executed later; every call ends, in one answer to its agent.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::call::caller::{Caller, Delivery, Generation, Input, Output, Refused, Time};
use capd_proto::call::{Jitter, RetryPolicy, executor};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;

use super::oracle::claim;
use super::sidecar::{Asked, Fault, Message, Now, Sidecar};

/// What happens next. `n` names one of what there is, counted round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// An agent makes a call.
    Call {
        idempotent: bool,
        time_s: u8,
    },
    /// A message arrives, in any order.
    Deliver {
        n: u8,
    },
    Lose {
        n: u8,
    },
    Duplicate {
        n: u8,
    },
    /// An invoke that was ever sent is sent again.
    Again {
        n: u8,
    },
    /// A provider answers a call that it was handed, for the first time or once more.
    Answer {
        n: u8,
        error: bool,
    },
    /// A provider is lost.
    Leave {
        n: u8,
        another: bool,
    },
    Notice {
        n: u8,
    },
    /// The executor's sidecar crashes and starts again. By then its wall clock is right again: what an earlier life
    /// forgot by a later time, nobody knows of.
    Crash,
    /// It will crash on its way: 0 before the provider has a call, 1 before a result is on disk, 2 after.
    Trap {
        at: u8,
    },
    /// Its running calls are ended.
    Shutdown,
    Link {
        up: bool,
    },
    Cancel {
        n: u8,
    },
    Disk {
        full: bool,
    },
    /// The executor refuses calls that it does not know.
    Gate {
        closed: bool,
    },
    Pass {
        ms: u16,
    },
    /// Its wall clock is set, though never back over a crash.
    ClockJump {
        s: u8,
        back: bool,
    },
}

/// **Errors:** the promise that was broken, and after which operation.
pub(crate) fn check(ops: &[Op], fault: Fault) -> Result<(), String> {
    let mut world = World::new(fault);
    for (index, &op) in ops.iter().enumerate() {
        world.apply(op).map_err(|broken| format!("operation {index}, {op:?}: {broken}"))?;
    }
    world.settle().map_err(|broken| format!("in the end: {broken}"))
}

struct World {
    policy: Arc<RetryPolicy>,
    fault: Fault,
    calls: Vec<Call>,
    sidecar: Sidecar,
    channel: Vec<Message>,
    /// Every invoke ever sent.
    invokes: Vec<Asked>,
    is_up: bool,
    now: Now,
    /// The latest that the wall clock ever showed.
    latest_wall_ms: u64,
    /// The same at the last crash: the wall clock is never set back to before it.
    wall_floor_ms: u64,
}

struct Call {
    machine: Caller,
    idempotent: bool,
    time_ms: u64,
    expires_at_ms: u64,
    /// Asked for while there was no link.
    unsent: Option<Generation>,
    answers: u32,
}

impl World {
    fn new(fault: Fault) -> Self {
        let policy = RetryPolicy::default().with_retry_on(vec![Code::UNAVAILABLE, Code::TIMEOUT]);
        Self {
            policy: Arc::new(policy),
            fault,
            calls: Vec::new(),
            sidecar: Sidecar::new(fault),
            channel: Vec::new(),
            invokes: Vec::new(),
            is_up: true,
            now: Now { monotonic_ms: 0, wall_ms: START_MS },
            latest_wall_ms: START_MS,
            wall_floor_ms: START_MS,
        }
    }

    fn apply(&mut self, op: Op) -> Result<(), String> {
        let now = self.now;
        let life = self.sidecar.life;
        match op {
            Op::Call { idempotent, time_s } => self.call(idempotent, u64::from(time_s) * 1_000)?,
            Op::Deliver { n } => self.deliver(n)?,
            Op::Lose { n } => drop(self.take(n)),
            Op::Duplicate { n } => {
                let copy = self.channel.get(usize::from(n) % self.channel.len().max(1)).cloned();
                match copy {
                    Some(Message::Invoke(asked)) => self.ask_again(asked),
                    // Streams double nothing, and an ERROR of an earlier copy would pass for one of a later copy.
                    Some(Message::Error { .. }) | None => {}
                    Some(copy) => self.channel.push(copy),
                }
            }
            Op::Again { n } => {
                let copy = self.invokes.get(usize::from(n) % self.invokes.len().max(1)).copied();
                if let Some(asked) = copy {
                    self.ask_again(asked);
                }
            }
            Op::Answer { n, error } => self.sidecar.provider_answers(n, error, now)?,
            Op::Leave { n, another } => {
                self.sidecar.provider_tells(n, executor::Input::ProviderLost { another }, now)?;
            }
            Op::Notice { n } => self.sidecar.provider_tells(n, executor::Input::Notice, now)?,
            Op::Crash => self.sidecar.crash()?,
            Op::Trap { at } => self.sidecar.trap = Some(at),
            Op::Shutdown => self.sidecar.shut_down(now)?,
            Op::Link { up } => self.link(up)?,
            Op::Cancel { n } => {
                let n = usize::from(n) % self.calls.len().max(1);
                self.tell(n, Input::Cancel, None)?;
            }
            Op::Disk { full } => self.sidecar.disk_full = full,
            Op::Gate { closed } => self.sidecar.is_closed = closed,
            Op::Pass { ms } => self.pass(u64::from(ms))?,
            Op::ClockJump { s, back } => {
                let by_ms = u64::from(s) * 1_000;
                let back_ms = now.wall_ms.saturating_sub(by_ms).max(self.wall_floor_ms);
                self.now.wall_ms = if back { back_ms.min(now.wall_ms) } else { now.wall_ms + by_ms };
                self.pass(0)?;
            }
        }
        self.after_step(life)
    }

    /// A further copy, which no machine knows of; whoever sends it alone hears of a refusal.
    fn ask_again(&mut self, asked: Asked) {
        self.sidecar.oracle.asks_again(asked.id);
        self.channel.push(Message::Invoke(Asked { is_stray: true, ..asked }));
    }

    /// What the sidecar sends goes on its way; when it crashed, its links broke.
    fn after_step(&mut self, life: u32) -> Result<(), String> {
        self.channel.append(&mut self.sidecar.out);
        if self.sidecar.life != life {
            self.wall_floor_ms = self.latest_wall_ms;
            self.now.wall_ms = self.latest_wall_ms;
            (0..self.calls.len()).try_for_each(|n| self.tell(n, Input::LinkLost, None))?;
        }
        Ok(())
    }

    fn call(&mut self, idempotent: bool, time_ms: u64) -> Result<(), String> {
        let time = Time { ends_ms: self.now.monotonic_ms + time_ms, grace_ms: GRACE_MS };
        let mut machine = Caller::new(Arc::clone(&self.policy), idempotent, false, time);
        machine.set_credulous(self.fault == Fault::CredulousCaller);
        self.calls.push(Call {
            machine,
            idempotent,
            time_ms,
            expires_at_ms: self.now.wall_ms + time_ms + GRACE_MS,
            unsent: None,
            answers: 0,
        });
        self.pump(self.calls.len() - 1, None)
    }

    fn take(&mut self, n: u8) -> Option<Message> {
        let n = usize::from(n) % self.channel.len().max(1);
        (n < self.channel.len()).then(|| self.channel.remove(n))
    }

    fn deliver(&mut self, n: u8) -> Result<(), String> {
        if !self.is_up {
            return Ok(());
        }
        let now = self.now;
        match self.take(n) {
            None => Ok(()),
            Some(Message::Invoke(asked)) => self.sidecar.invoke(asked, now),
            Some(Message::Cancel { id }) => self.sidecar.cancel(id, now),
            Some(Message::Notice { id }) => {
                let (call, generation) = whose(id);
                self.tell(call, Input::Notice { generation }, None)
            }
            Some(Message::Result { id, envelope }) => {
                let (call, generation) = whose(id);
                let code = u32::from_be_bytes([envelope[0], envelope[1], envelope[2], envelope[3]]);
                let error = (code != 0).then_some(Code(code));
                self.tell(
                    call,
                    Input::Result { generation, error, retry_after_ms: None },
                    Some((id, envelope)),
                )
            }
            Some(Message::Error { id, code }) => {
                let (call, generation) = whose(id);
                let error =
                    Refused { code, retry: None, retry_after_ms: None, another: false, released: false };
                self.tell(call, Input::Error { generation, error }, None)
            }
            Some(Message::CancelUnknown { id }) => self.tell(whose(id).0, Input::CancelUnknown, None),
        }
    }

    fn tell(&mut self, n: usize, input: Input, in_hand: Option<(MessageId, Bytes)>) -> Result<(), String> {
        let Some(call) = self.calls.get_mut(n) else { return Ok(()) };
        call.machine.handle(input, self.now.monotonic_ms, Jitter::NONE);
        self.pump(n, in_hand)
    }

    /// Does what a caller's machine says.
    fn pump(&mut self, n: usize, in_hand: Option<(MessageId, Bytes)>) -> Result<(), String> {
        while let Some(output) = self.calls[n].machine.poll_output() {
            match output {
                Output::Send { generation, .. } | Output::Move { generation } => {
                    self.calls[n].unsent = Some(generation);
                    self.send(n);
                }
                Output::SendCancel { generation } => {
                    self.channel.push(Message::Cancel { id: name(n, generation) });
                }
                Output::Deliver(delivery) => {
                    self.calls[n].answers += 1;
                    self.calls[n].unsent = None;
                    claim(self.calls[n].answers == 1, || format!("call {n} was answered twice"))?;
                    match delivery {
                        Delivery::Result => {
                            let (id, envelope) =
                                in_hand.as_ref().ok_or("delivered a result that never came")?;
                            self.sidecar.oracle.delivers(*id, envelope)?;
                        }
                        Delivery::Error | Delivery::Refusal(_) if !self.calls[n].idempotent => {
                            self.sidecar.oracle.tells_refused(name(n, Generation(0)))?;
                        }
                        Delivery::Error | Delivery::Refusal(_) | Delivery::Unknown | Delivery::Own(_) => {}
                    }
                }
                Output::Pause { .. } | Output::Relay | Output::Drop | Output::RefuseResult => {}
                Output::AskRelease { .. } => {
                    return Err("a release was asked for with one executor".to_owned());
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, n: usize) {
        let call = &mut self.calls[n];
        if self.is_up
            && let Some(generation) = call.unsent.take()
        {
            let Call { idempotent, time_ms, expires_at_ms, .. } = *call;
            let asked =
                Asked { id: name(n, generation), idempotent, expires_at_ms, time_ms, is_stray: false };
            self.invokes.push(asked);
            self.channel.push(Message::Invoke(asked));
            call.machine.handle(Input::Sent, self.now.monotonic_ms, Jitter::NONE);
        }
    }

    fn link(&mut self, is_up: bool) -> Result<(), String> {
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        if was_up && !is_up {
            (0..self.calls.len()).try_for_each(|n| self.tell(n, Input::LinkLost, None))?;
        }
        (0..self.calls.len()).for_each(|n| self.send(n));
        Ok(())
    }

    fn pass(&mut self, ms: u64) -> Result<(), String> {
        self.now.monotonic_ms += ms;
        self.now.wall_ms += ms;
        self.latest_wall_ms = self.latest_wall_ms.max(self.now.wall_ms);
        for n in 0..self.calls.len() {
            if self.calls[n].machine.poll_timeout().is_some_and(|due_ms| due_ms <= self.now.monotonic_ms) {
                self.tell(n, Input::Timeout, None)?;
            }
        }
        self.sidecar.tick(self.now)
    }

    /// The channel is well again, the providers say nothing more: every call ends, by its deadlines alone. Then every
    /// invoke is asked about once more.
    fn settle(&mut self) -> Result<(), String> {
        self.sidecar.disk_full = false;
        self.sidecar.is_closed = false;
        self.link(true)?;
        for _ in 0..ROUNDS_MAX {
            self.deliver_all()?;
            let deadlines = self.calls.iter().filter_map(|call| call.machine.poll_timeout());
            let Some(next_ms) = deadlines.chain(self.sidecar.next_deadline_ms()).min() else { break };
            let life = self.sidecar.life;
            self.pass(next_ms.saturating_sub(self.now.monotonic_ms))?;
            self.after_step(life)?;
        }
        for (n, call) in self.calls.iter().enumerate() {
            let is_over = call.machine.is_done() && call.answers == 1;
            claim(is_over, || format!("call {n} has not ended: {}", call.machine.state_name()))?;
        }
        claim(self.sidecar.next_deadline_ms().is_none(), || "an execution has not ended".to_owned())?;
        for asked in self.invokes.clone() {
            self.ask_again(asked);
        }
        self.deliver_all()
    }

    fn deliver_all(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            if self.channel.is_empty() {
                return Ok(());
            }
            let life = self.sidecar.life;
            self.deliver(0)?;
            self.after_step(life)?;
        }
        Err("messages never end".to_owned())
    }
}

/// A call's id under one of its generations.
fn name(call: usize, generation: Generation) -> MessageId {
    MessageId::new(call as u64, u64::from(generation.0).to_be_bytes())
}

fn whose(id: MessageId) -> (usize, Generation) {
    let [.., a, b, c, d] = *id.as_bytes();
    (id.ts_ms() as usize, Generation(u32::from_be_bytes([a, b, c, d])))
}

const START_MS: u64 = 1_000_000;
/// How much longer than its time to run a call is waited for, and good for.
const GRACE_MS: u64 = 2_000;
/// More steps than any world of that many operations needs to come to rest.
const ROUNDS_MAX: usize = 2_000;
