//! Candidates, links and time in, whom to dial and whom to let go out (FLEET D2, D3, L1, L4).

use super::Candidate;
use super::contacts::{DialFor, SLOW_MS};
use super::directory::Directory;
use super::names::{Standing, Wanted};
use super::step::Step;
use super::{LetGoWhy, Output};
use crate::capability::CapabilityName;
use crate::fleet::{Agent, Fence};

impl Directory {
    /// Dials who is missing among the few that calls of this name may go to.
    pub(super) fn plan(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        let (now_ms, config) = (step.now.now_ms, step.config);
        let may_link = self.may_link(config.deny_max_age_ms, now_ms);
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        wanted.retry_ms = None;
        let links = wanted.places(config.links_per_name);
        let contacts = &self.contacts;
        let mut ranked = wanted.ranked(contacts, config.zone.as_deref());
        ranked.retain(|candidate| candidate.takes_calls());
        let has_listed = ranked.iter().any(|candidate| candidate.is_listed());
        let has_open = ranked.iter().any(|candidate| contacts.is_open(&candidate.registration.agent));
        // Nor does a slow dial while nobody answers: the dead cost a call a second each time, not a handshake's patience.
        let are_slow_counted = has_open || contacts.are_many_slow(now_ms);
        // Those that are not listed while others are fill no place, or not for long: FLEET D2, a link beats the registry's word.
        // A registry that was wiped names first whoever registers first, and all callers would dial those at once.
        let fills = |candidate: &Candidate| match candidate.standing {
            Standing::Listed => true,
            Standing::Suspect { since_ms } => {
                let is_recent = now_ms < since_ms.saturating_add(2 * config.ttl_ms);
                !has_listed || is_recent && contacts.is_open(&candidate.registration.agent)
            }
        };
        let counts = ranked.iter().filter(|candidate| {
            let agent = &candidate.registration.agent;
            fills(candidate)
                && contacts.is_engaged(agent)
                && (are_slow_counted || !contacts.is_slow(agent, now_ms))
        });
        let mut missing = links.saturating_sub(counts.count());
        let mut retry_ms: Option<u64> = None;
        let mut dialled = Vec::new();
        // FLEET D5: revocations that are too old let nobody begin anything with a member of the fleet.
        for candidate in ranked.iter().filter(|_| may_link) {
            let agent = candidate.registration.agent;
            if missing == 0 {
                break;
            }
            if contacts.may_dial(&agent, now_ms) {
                missing -= 1;
                let word = (candidate.registration.fence, candidate.registration.generation);
                dialled.push((agent, word, candidate.registration.addresses.clone()));
            } else if let Some(at_ms) = contacts.retry_ms(&agent) {
                retry_ms = Some(retry_ms.map_or(at_ms, |least_ms| least_ms.min(at_ms)));
            }
        }
        let is_dialled = |candidate: &&Candidate| {
            let aim = contacts.dialled_for(&candidate.registration.agent);
            aim.is_some_and(|aim| aim != DialFor::Nothing)
        };
        let looks_again = !has_open && (!dialled.is_empty() || ranked.iter().any(is_dialled));
        wanted.retry_ms = retry_ms
            .filter(|_| missing > 0)
            .into_iter()
            .chain(looks_again.then_some(now_ms.saturating_add(SLOW_MS)))
            .min();
        for (agent, word, addresses) in dialled {
            self.contacts.dialling(agent, word, DialFor::Place, now_ms);
            step.send(Output::Dial { agent, addresses });
        }
    }

    /// A call wants this candidate, which may be none of the few that calls of the name usually go to.
    pub(super) fn reach(&mut self, name: &CapabilityName, agent: Agent, step: &mut Step<'_>) {
        let (now_ms, config) = (step.now.now_ms, step.config);
        let candidate = self.wanted.get(name).and_then(|wanted| wanted.candidates.get(&agent));
        // FLEET X2: one that drains is asked about calls that it has, wherever it is by now.
        let Some(candidate) = candidate else { return };
        if self.contacts.dialled_for(&agent) == Some(DialFor::Place) {
            self.contacts.aim(agent, DialFor::Call);
        }
        if self.may_link(config.deny_max_age_ms, now_ms) && self.contacts.may_dial_for_call(&agent, now_ms) {
            let registration = &candidate.registration;
            let addresses = registration.addresses.clone();
            let word = (registration.fence, registration.generation);
            self.contacts.dialling(agent, word, DialFor::Call, now_ms);
            step.send(Output::Dial { agent, addresses });
        }
    }

    /// Every provider of this name that we are linked to has much to do.
    pub(super) fn busy(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.is_busy = true;
        }
        self.want(name, step);
    }

    /// A link opened, and says which process is there.
    pub(super) fn opened(&mut self, agent: Agent, fence: Option<Fence>, step: &mut Step<'_>) {
        self.contacts.opened(agent, fence, step);
        let mut newest = 0;
        for wanted in self.wanted.values_mut() {
            if let Some(candidate) = wanted.candidates.get_mut(&agent) {
                candidate.failures = 0;
                newest = newest.max(candidate.registration.fence.incarnation);
            }
        }
        // A paused process woke up, or a copy of it runs: the registry knows of a later one.
        if fence.is_some_and(|fence| fence.incarnation < newest) && self.verifier.is_order_checked() {
            step.send(Output::LetGo { agent, why: LetGoWhy::OldProcess { before: newest } });
        }
        self.replan(&agent, step);
        self.give_up(step);
    }

    /// Ends dials for places that others have filled meanwhile: a link that nobody needs costs both ends.
    fn give_up(&mut self, step: &mut Step<'_>) {
        let is_filled = |wanted: &Wanted| {
            let open = wanted.candidates.values().filter(|candidate| {
                candidate.takes_calls() && self.contacts.is_open(&candidate.registration.agent)
            });
            open.count() >= wanted.places(step.config.links_per_name)
        };
        let is_spare = |agent: &Agent| {
            let mut wanting = self.wanted.values().filter(|wanted| wanted.candidates.contains_key(agent));
            wanting.all(is_filled)
        };
        let spare: Vec<_> = self.contacts.dialled_for_places().filter(is_spare).collect();
        for agent in spare {
            self.contacts.aim(agent, DialFor::Nothing);
            step.send(Output::GiveUp { agent });
        }
    }

    /// A dial found nobody; that says nothing where the agent has dialled us meanwhile.
    pub(super) fn dial_failed(&mut self, agent: Agent, step: &mut Step<'_>) {
        if !self.contacts.is_open(&agent) {
            self.closed(agent, step);
        }
    }

    /// A link closed, or a dial found nobody.
    pub(super) fn closed(&mut self, agent: Agent, step: &mut Step<'_>) {
        let has_failed = self.contacts.closed(agent, step);
        for wanted in self.wanted.values_mut().filter(|_| has_failed) {
            if let Some(candidate) = wanted.candidates.get_mut(&agent) {
                candidate.failures += 1;
            }
        }
        self.drop_failed(&agent);
        self.replan(&agent, step);
    }

    /// FLEET D2: who is gone from the registry and answers nobody is gone.
    fn drop_failed(&mut self, agent: &Agent) {
        let is_gone = |candidate: &super::Candidate| {
            !candidate.is_listed() && candidate.failures >= super::names::FAILURES_MAX
        };
        let names: Vec<_> = self
            .wanted
            .iter()
            .filter(|(_, wanted)| wanted.candidates.get(agent).is_some_and(is_gone))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.remove(&name, agent);
        }
    }

    fn replan(&mut self, agent: &Agent, step: &mut Step<'_>) {
        let names: Vec<_> = self
            .wanted
            .iter()
            .filter(|(_, wanted)| wanted.candidates.contains_key(agent))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.plan(&name, step);
        }
    }

    /// Whether links to members may begin: what is known of revocations is young enough.
    pub(super) fn may_link(&self, deny_max_age_ms: u64, now_ms: u64) -> bool {
        self.denied_age_ms(now_ms).is_some_and(|age_ms| age_ms <= deny_max_age_ms)
    }
}
