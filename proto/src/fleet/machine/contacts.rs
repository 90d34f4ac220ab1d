//! Links and failed dials in, which agents may be dialled and which answered out.

use std::collections::BTreeMap;

use super::Output;
use super::step::Step;
use crate::fleet::{Agent, Fence};
use crate::ledger::JournalId;

/// What we know of an agent at first hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contact {
    pub(super) state: ContactState,
    /// Dials in a row that found nobody, or nobody that stayed.
    pub(super) failures: u32,
    /// Not dialled before. **Units:** milliseconds.
    retry_ms: u64,
    /// Not dialled before for a call that waits for it, nor later than [`Contact::retry_ms`]. **Units:** milliseconds.
    retry_for_call_ms: u64,
    /// The journals that its links have named of late, and when each was last known to live; the last one first.
    alive: [Option<(JournalId, u64)>; 2],
    /// The last word of it: its process and generation, of whatever name.
    word: Option<(Fence, u64)>,
    /// Until when no journaled call may be given to it, because two processes of it were seen. **Units:** milliseconds.
    split_until_ms: u64,
}

impl Contact {
    fn is_slow(&self, now_ms: u64) -> bool {
        matches!(self.state, ContactState::Dialling { since_ms, .. } if now_ms >= since_ms.saturating_add(SLOW_MS))
    }
}

/// Whether a link to an agent stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ContactState {
    #[default]
    Closed,
    Dialling {
        since_ms: u64,
        aim: DialFor,
    },
    Open {
        /// Whether we dialled it.
        is_ours: bool,
        since_ms: u64,
    },
}

/// What a dial that is under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialFor {
    /// A place among the few that calls of a name go to.
    Place,
    /// A call that wants this very agent.
    Call,
    /// Nothing any more: it was given up, and has not ended yet.
    Nothing,
}

/// Everyone of whom something is known at first hand.
#[derive(Debug, Default)]
pub(super) struct Contacts(BTreeMap<Agent, Contact>);

impl Contacts {
    pub(super) fn get(&self, agent: &Agent) -> Contact {
        self.0.get(agent).copied().unwrap_or_default()
    }

    pub(super) fn is_open(&self, agent: &Agent) -> bool {
        matches!(self.get(agent).state, ContactState::Open { .. })
    }

    /// Whether a link stands that we dialled, or is being opened.
    pub(super) fn is_ours(&self, agent: &Agent) -> bool {
        match self.get(agent).state {
            ContactState::Closed => false,
            ContactState::Dialling { .. } => true,
            ContactState::Open { is_ours, .. } => is_ours,
        }
    }

    /// Whether a link stands or is being opened, and is meant to be.
    pub(super) fn is_engaged(&self, agent: &Agent) -> bool {
        match self.get(agent).state {
            ContactState::Closed => false,
            ContactState::Dialling { aim, .. } => aim != DialFor::Nothing,
            ContactState::Open { .. } => true,
        }
    }

    pub(super) fn is_split(&self, agent: &Agent, now_ms: u64) -> bool {
        now_ms < self.get(agent).split_until_ms
    }

    /// Whether it may be dialled now, for a place.
    pub(super) fn may_dial(&self, agent: &Agent, now_ms: u64) -> bool {
        let contact = self.get(agent);
        contact.state == ContactState::Closed && contact.retry_ms <= now_ms
    }

    /// Whether it may be dialled now, for a call that waits for it.
    pub(super) fn may_dial_for_call(&self, agent: &Agent, now_ms: u64) -> bool {
        let contact = self.get(agent);
        contact.state == ContactState::Closed && contact.retry_for_call_ms <= now_ms
    }

    /// What it is being dialled for; none where it is not.
    pub(super) fn dialled_for(&self, agent: &Agent) -> Option<DialFor> {
        match self.get(agent).state {
            ContactState::Dialling { aim, .. } => Some(aim),
            ContactState::Closed | ContactState::Open { .. } => None,
        }
    }

    /// Those who are dialled for a place.
    pub(super) fn dialled_for_places(&self) -> impl Iterator<Item = Agent> {
        self.0.keys().copied().filter(|agent| self.dialled_for(agent) == Some(DialFor::Place))
    }

    /// What the dial that is under way is for.
    pub(super) fn aim(&mut self, agent: Agent, meant: DialFor) {
        if let Some(Contact { state: ContactState::Dialling { aim, .. }, .. }) = self.0.get_mut(&agent) {
            *aim = meant;
        }
    }

    /// Whether it is being dialled, and has not answered for a while.
    pub(super) fn is_slow(&self, agent: &Agent, now_ms: u64) -> bool {
        self.get(agent).is_slow(now_ms)
    }

    /// Whether so many dials are slow that no more begin beside them.
    pub(super) fn are_many_slow(&self, now_ms: u64) -> bool {
        self.0.values().filter(|contact| contact.is_slow(now_ms)).count() > SLOW_MAX
    }

    /// It is dialled by its last word.
    pub(super) fn dialling(&mut self, agent: Agent, word: (Fence, u64), aim: DialFor, now_ms: u64) {
        let contact = self.0.entry(agent).or_default();
        contact.state = ContactState::Dialling { since_ms: now_ms, aim };
        contact.word = contact.word.max(Some(word));
    }

    /// When somebody may be dialled again. **Units:** milliseconds.
    pub(super) fn retry_ms(&self, agent: &Agent) -> Option<u64> {
        let contact = self.get(agent);
        (contact.state == ContactState::Closed && contact.failures > 0).then_some(contact.retry_ms)
    }

    /// A link opened.
    pub(super) fn opened(&mut self, agent: Agent, fence: Option<Fence>, step: &mut Step<'_>) {
        let now_ms = step.now.now_ms;
        let contact = self.0.entry(agent).or_default();
        let is_ours = matches!(contact.state, ContactState::Dialling { .. });
        contact.state = ContactState::Open { is_ours, since_ms: now_ms };
        self.lives(agent, fence.map(|fence| fence.journal), step);
    }

    /// A sign of life over a link, of the process with this journal if the link has named one.
    pub(super) fn heard(&mut self, agent: Agent, journal: Option<JournalId>, step: &mut Step<'_>) {
        self.lives(agent, journal, step);
        let now_ms = step.now.now_ms;
        let Some(contact) = self.0.get_mut(&agent) else { return };
        // A link that stands for a while shows that dialling it was no mistake.
        if matches!(contact.state, ContactState::Open { since_ms, .. } if now_ms >= since_ms + STAYED_MS) {
            contact.failures = 0;
        }
    }

    /// FLEET X12: of two journals of one agent that live at once, neither is to be relied on.
    fn lives(&mut self, agent: Agent, journal: Option<JournalId>, step: &mut Step<'_>) {
        let (Some(contact), Some(journal)) = (self.0.get_mut(&agent), journal) else { return };
        let now_ms = step.now.now_ms;
        let [last, before] = contact.alive;
        let other = if last.is_some_and(|(last, _)| last == journal) { before } else { last };
        contact.alive = [Some((journal, now_ms)), other];
        let Some((other, alive_ms)) = other else { return };
        let until_ms = alive_ms.saturating_add(2 * step.config.ttl_ms);
        if until_ms <= now_ms || until_ms <= contact.split_until_ms {
            return;
        }
        let is_new = contact.split_until_ms <= now_ms;
        contact.split_until_ms = until_ms;
        step.send(Output::Split { agent, journals: [other, journal], until_ms, is_new });
    }

    /// A dial failed, or a link closed. Returns whether that counts as a contact that failed.
    pub(super) fn closed(&mut self, agent: Agent, step: &mut Step<'_>) -> bool {
        let now_ms = step.now.now_ms;
        let contact = self.0.entry(agent).or_default();
        if matches!(contact.state, ContactState::Dialling { aim: DialFor::Nothing, .. }) {
            // We did not wait for its answer.
            contact.state = ContactState::Closed;
            return false;
        }
        let stayed =
            matches!(contact.state, ContactState::Open { since_ms, .. } if now_ms >= since_ms + STAYED_MS);
        contact.state = ContactState::Closed;
        contact.failures = if stayed { 0 } else { contact.failures + 1 };
        let failures = contact.failures;
        let pause_ms = if stayed { 0 } else { step.backoff_ms(failures, DIAL_MS_MAX) };
        if let Some(contact) = self.0.get_mut(&agent) {
            contact.retry_ms = now_ms + pause_ms;
            contact.retry_for_call_ms = now_ms + pause_ms.min(DIAL_FOR_CALL_MS_MAX);
        }
        !stayed
    }

    /// It says something of itself; what failed before may not now if that is new.
    pub(super) fn renewed(&mut self, agent: &Agent, word: (Fence, u64)) {
        if let Some(contact) = self.0.get_mut(agent).filter(|contact| contact.word < Some(word)) {
            (contact.word, contact.failures) = (Some(word), 0);
            (contact.retry_ms, contact.retry_for_call_ms) = (0, 0);
        }
    }

    /// Forgets who is neither linked nor wanted, and of whom nothing that still matters is known.
    pub(super) fn forget(&mut self, now_ms: u64, ttl_ms: u64, is_wanted: impl Fn(&Agent) -> bool) {
        self.0.retain(|agent, contact| {
            let lives = |(_, alive_ms): &(JournalId, u64)| now_ms <= alive_ms + 2 * ttl_ms;
            let is_recent = contact.alive.iter().flatten().any(lives);
            contact.state != ContactState::Closed
                || is_recent
                || now_ms < contact.split_until_ms
                || is_wanted(agent)
        });
    }
}

/// The longest pause between dials. **Units:** milliseconds.
const DIAL_MS_MAX: u64 = 60_000;
/// The same for a call that waits, which may have no more than a minute. **Units:** milliseconds.
const DIAL_FOR_CALL_MS_MAX: u64 = 8_000;
/// A dial that has no answer by then is slow. **Units:** milliseconds.
pub(super) const SLOW_MS: u64 = 1_000;
/// Slow dials, for whatever name, beside which others begin: a machine that is short of time gains nothing by more of them.
const SLOW_MAX: usize = 8;
/// A link that closes sooner was no success. **Units:** milliseconds.
const STAYED_MS: u64 = 5_000;
