//! Serves calls by an agent on a local link: CAP_INVOKE envelopes out, its CAP_RESULT bodies back in, outcomes out.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use ahash::HashMap;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;

use super::ticket::Ticket;
use super::{AgentResult, CallKey, Invocation, Outcome, Provider};

/// The connection to the agent, as a provider needs it.
pub trait Wire: Send + Sync {
    /// Queues a call's CAP_INVOKE; `false` when the link is closed or its queue is full.
    fn invoke(&self, invocation: &Invocation) -> bool;

    /// How many calls it may have in flight.
    fn calls_max(&self) -> usize;

    /// A call was refused because the agent has too many in flight.
    fn overloaded(&self) {}

    /// Queues a cancel request for a call that was sent before.
    fn cancel(&self, id: MessageId);
}

/// Whether a message that claims to answer or accompany a call does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It belongs to a call that is in flight here.
    Taken,
    /// No such call was sent on this link, or it was answered before. **Errors:** ERROR 4001 to the provider.
    Unknown,
}

/// An agent on a local link that serves capabilities.
pub struct LinkProvider<W> {
    wire: W,
    calls: Mutex<Calls>,
}

struct Calls {
    in_flight: HashMap<MessageId, Ticket>,
    /// Calls that ended without the agent's answer, which may still come, oldest first. Until then their ids are no other
    /// caller's: an agent may answer by the id alone, and another's call would end with this one's result.
    owed: VecDeque<CallKey>,
    is_open: bool,
}

impl<W: Wire> LinkProvider<W> {
    /// A provider behind `wire`.
    pub fn new(wire: W) -> Self {
        let calls = Calls { in_flight: HashMap::default(), owed: VecDeque::new(), is_open: true };
        Self { wire, calls: Mutex::new(calls) }
    }

    /// Handles the agent's CAP_RESULT for the call `id` of a caller that `is_to` accepts, the recipient of the answer.
    pub fn on_result(&self, id: &MessageId, is_to: impl Fn(&Did) -> bool, result: AgentResult) -> Answered {
        match self.take(id, is_to) {
            Some(ticket) => {
                ticket.finish(Outcome::Body(result));
                Answered::Taken
            }
            None => Answered::Unknown,
        }
    }

    /// Handles the agent's ERROR for the call `id` of such a caller.
    pub fn on_error(
        &self,
        id: &MessageId,
        is_to: impl Fn(&Did) -> bool,
        code: Code,
        message: String,
    ) -> Answered {
        match self.take(id, is_to) {
            Some(ticket) => {
                ticket.finish(Outcome::Failure { code, message });
                Answered::Taken
            }
            None => Answered::Unknown,
        }
    }

    /// The call of such a caller to which a PROCESSING, PROGRESS or INPUT_REQUIRED of the agent belongs.
    pub fn call_of(&self, id: &MessageId, is_to: impl Fn(&Did) -> bool) -> Option<CallKey> {
        let calls = self.calls();
        calls.in_flight.get(id).map(Ticket::key).filter(|key| is_to(&key.from)).cloned()
    }

    /// Handles a broken link: every call in flight is lost, and no further call is accepted.
    pub fn on_close(&self) {
        let lost = {
            let mut calls = self.calls();
            calls.is_open = false;
            std::mem::take(&mut calls.in_flight)
        };
        let mut lost: Vec<_> = lost.into_iter().collect();
        // In an order that is the same each time: what follows from it can reach the wire.
        lost.sort_unstable_by_key(|(id, _)| *id);
        for (_, ticket) in lost {
            ticket.finish(Outcome::Lost);
        }
    }

    /// The ticket that an answer of the agent's belongs to.
    fn take(&self, id: &MessageId, is_to: impl Fn(&Did) -> bool) -> Option<Ticket> {
        let mut calls = self.calls();
        let ticket = calls.take(id, is_to);
        if ticket.is_none() {
            calls.owed.retain(|key| key.id != *id);
        }
        ticket
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the ticket until the answer, or gives it back with why the call cannot be taken.
    fn register(&self, id: MessageId, ticket: Ticket) -> Result<(), (Ticket, Outcome)> {
        let mut calls = self.calls();
        if !calls.is_open {
            return Err((ticket, Outcome::Lost));
        }
        let is_full = calls.in_flight.len() >= self.wire.calls_max();
        let key = ticket.key();
        if calls.owed.iter().any(|owed| owed.id == id && owed.from != key.from) {
            return Err((ticket, overloaded(ANOTHER_CALLERS)));
        }
        match calls.in_flight.entry(id) {
            Entry::Vacant(place) if !is_full => {
                place.insert(ticket);
                Ok(())
            }
            Entry::Vacant(_) => {
                self.wire.overloaded();
                Err((ticket, overloaded("the provider has too many calls in flight")))
            }
            // A cancel names the id alone, so the agent could not tell two callers' calls under one id apart.
            Entry::Occupied(_) => Err((ticket, overloaded(ANOTHER_CALLERS))),
        }
    }
}

impl<W: Wire> Provider for LinkProvider<W> {
    fn invoke(&self, invocation: Invocation, ticket: Ticket) {
        let id = invocation.key.id;
        if let Err((ticket, outcome)) = self.register(id, ticket) {
            return ticket.finish(outcome);
        }
        if !self.wire.invoke(&invocation) {
            let ticket = self.calls().take(&id, |from| *from == invocation.key.from);
            if let Some(ticket) = ticket {
                ticket.finish(overloaded("the provider's queue is full"));
            }
        }
    }

    fn cancel(&self, key: &CallKey) {
        let ticket = {
            let mut calls = self.calls();
            let ticket = calls.take(&key.id, |from| *from == key.from);
            if ticket.is_some() {
                if calls.owed.len() >= OWED_MAX {
                    calls.owed.pop_front();
                }
                calls.owed.push_back(key.clone());
            }
            ticket
        };
        if let Some(ticket) = ticket {
            self.wire.cancel(key.id);
            ticket.finish(Outcome::Lost);
        }
    }

    fn in_flight(&self) -> usize {
        self.calls().in_flight.len()
    }
}

impl Calls {
    /// The ticket of a call, by its whole key: an id alone may be another caller's, which chose it.
    fn take(&mut self, id: &MessageId, is_callers: impl Fn(&Did) -> bool) -> Option<Ticket> {
        match self.in_flight.entry(*id) {
            Entry::Occupied(found) if is_callers(&found.get().key().from) => Some(found.remove()),
            Entry::Occupied(_) | Entry::Vacant(_) => None,
        }
    }
}

/// Why a call waits whose id is in use by somebody else.
const ANOTHER_CALLERS: &str = "the provider runs another caller's call under this id";
/// Unanswered calls remembered of one agent.
const OWED_MAX: usize = 1_024;

fn overloaded(message: &str) -> Outcome {
    Outcome::Failure { code: Code::OVERLOADED, message: message.to_owned() }
}
