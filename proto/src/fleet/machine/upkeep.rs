//! Time in; feeds that are due, silence, what has run out of time, and when to come back out.

use super::directory::{Directory, SHARDED_ABOVE};
use super::feed::Feed;
use super::names::{FAILURES_MAX, Standing, Wanted};
use super::step::Step;
use super::{Output, own};
use crate::capability::CapabilityName;
use crate::fleet::Agent;
use crate::fleet::key::Prefix;

impl Directory {
    /// Does what is due.
    pub(super) fn timeout(&mut self, own: &own::Own, step: &mut Step<'_>) {
        for feed in self.feeds.values_mut() {
            feed.timeout(step);
        }
        self.probe(step);
        let due = self.wanted.iter().filter(|(_, wanted)| wanted.is_due(step.now.now_ms));
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.plan(&name, step);
        }
        if step.now.now_ms >= self.swept_ms.saturating_add(SWEEP_MS) {
            self.swept_ms = step.now.now_ms;
            self.sweep(own, step);
        }
    }

    /// FLEET 5: a watch that is dead and does not say so lives for a minute at most.
    fn probe(&mut self, step: &mut Step<'_>) {
        let now_ms = step.now.now_ms;
        if !self.feeds.values().any(Feed::is_watching) {
            self.heard_ms = now_ms;
            self.probed_ms = None;
            return;
        }
        match self.probed_ms {
            Some(probed_ms) if now_ms >= probed_ms.saturating_add(PROBE_MS) => {
                self.probed_ms = None;
                for feed in self.feeds.values_mut().filter(|feed| feed.is_watching()) {
                    feed.break_off(step);
                }
            }
            None if now_ms >= self.heard_ms.saturating_add(SILENCE_MS) => {
                self.probed_ms = Some(now_ms);
                step.send(Output::Probe);
            }
            Some(_) | None => {}
        }
    }

    fn sweep(&mut self, own: &own::Own, step: &mut Step<'_>) {
        let (now, config) = (step.now, step.config);
        for (name, agent) in self.expired(now.wall_ms) {
            self.suspect(&name, &agent, step);
        }
        if self.calm.thaw(now.now_ms, config.ttl_ms, self.is_listed_since_frozen(own)) {
            step.send(Output::Thawed);
        }
        let is_frozen = self.calm.is_frozen();
        let contacts = &self.contacts;
        for (name, wanted) in &mut self.wanted {
            let before = wanted.candidates.len();
            wanted.candidates.retain(|agent, candidate| {
                let is_stale = match candidate.standing {
                    Standing::Listed => false,
                    Standing::Suspect { since_ms } => {
                        let is_over = now.now_ms >= since_ms.saturating_add(config.max_stale_ms);
                        // FLEET D2: nothing of the registry's beats a link that stands.
                        !contacts.is_open(agent)
                            && (candidate.failures >= FAILURES_MAX || is_over && !is_frozen)
                    }
                };
                !is_stale && now.wall_ms < candidate.member_until_ms
            });
            if wanted.candidates.len() != before {
                self.changed.insert(name.clone());
            }
        }
        let is_large =
            |wanted: &Wanted| wanted.shards.is_none() && wanted.candidates.len() as u64 > 2 * SHARDED_ABOVE;
        let large = self.wanted.iter().filter(|(_, wanted)| is_large(wanted));
        for name in large.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.shard(&name, step);
        }
        // FLEET D5: while the registry is away, nobody could say again what is forgotten.
        let is_told = self.feeds.values().all(Feed::is_watching);
        let is_idle =
            |wanted: &Wanted| is_told && now.now_ms >= wanted.used_ms.saturating_add(config.idle_ms);
        let idle = self.wanted.iter().filter(|(_, wanted)| is_idle(wanted));
        for name in idle.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.unwant(&name, step);
        }
        let is_wanted = |agent: &Agent| self.wanted.values().any(|of| of.candidates.contains_key(agent));
        self.contacts.forget(now.now_ms, config.ttl_ms, is_wanted);
        self.verifier.forget(now.wall_ms);
    }

    /// Listed candidates whose word has run out of time.
    fn expired(&self, wall_ms: u64) -> Vec<(CapabilityName, Agent)> {
        let is_over = |candidate: &super::Candidate| {
            candidate.is_listed() && wall_ms >= candidate.registration.not_after_ms
        };
        let of_name = |(name, wanted): (&CapabilityName, &Wanted)| -> Vec<_> {
            let expired = wanted.candidates.iter().filter(|(_, candidate)| is_over(candidate));
            expired.map(|(agent, _)| (name.clone(), *agent)).collect()
        };
        self.wanted.iter().flat_map(of_name).collect()
    }

    /// FLEET D4: the registry was listed whole since, and what our agent offers stands in it.
    fn is_listed_since_frozen(&self, own: &own::Own) -> bool {
        let Some(since_ms) = self.calm.frozen_since_ms() else { return false };
        own.is_registered()
            && self.feeds.values().all(|feed| feed.completed_ms().is_some_and(|at_ms| at_ms > since_ms))
    }

    /// Notes at the end of a step how current everything is, and says what has changed.
    pub(super) fn settle(&mut self, step: &mut Step<'_>) {
        let now_ms = step.now.now_ms;
        let is_silent = self.probed_ms.is_some();
        if !is_silent && self.feeds.values().all(Feed::is_watching) {
            self.fresh_ms = Some(self.heard_ms);
        }
        let denials = self.feeds.values().find(|feed| feed.prefix == Prefix::Revocations);
        if !is_silent && denials.is_some_and(Feed::is_watching) {
            let heard_ms = Some(i128::from(self.heard_ms));
            self.denied_ms = self.denied_ms.max(heard_ms);
        }
        debug_assert!(self.heard_ms <= now_ms, "nothing is heard before it is said");
        let changed = std::mem::take(&mut self.changed);
        for name in &changed {
            self.plan(name, step);
        }
        for name in changed.into_iter().chain(std::mem::take(&mut self.changed)) {
            step.send(Output::Changed(name));
        }
    }

    /// Since when what is known may be behind the registry; none where it is not. **Units:** milliseconds.
    pub(super) fn stale_since_ms(&self) -> Option<u64> {
        if self.feeds.values().all(Feed::is_watching) { None } else { Some(self.fresh_ms.unwrap_or(0)) }
    }

    /// How old the revocations are; none where none were ever read. **Units:** milliseconds.
    pub(super) fn denied_age_ms(&self, now_ms: u64) -> Option<u64> {
        let age_ms = i128::from(now_ms) - self.denied_ms?;
        Some(u64::try_from(age_ms).unwrap_or(0))
    }

    pub(super) fn deadline_ms(&self, ttl_ms: u64) -> Option<u64> {
        let silence_ms = match self.probed_ms {
            Some(probed_ms) => probed_ms.saturating_add(PROBE_MS),
            None => self.heard_ms.saturating_add(SILENCE_MS),
        };
        let is_watching = self.feeds.values().any(Feed::is_watching);
        let sweep_ms = self.swept_ms.saturating_add(SWEEP_MS);
        let has_work = !self.wanted.is_empty() || self.calm.is_frozen();
        let feeds = self.feeds.values().filter_map(Feed::deadline_ms);
        let plans = self.wanted.values().filter_map(|wanted| wanted.retry_ms);
        let rest = is_watching.then_some(silence_ms).into_iter().chain(has_work.then_some(sweep_ms));
        feeds.chain(plans).chain(rest).chain(self.calm.deadline_ms(ttl_ms)).min()
    }
}

/// Silence after which the registry is asked for a sign of life, and how long that may take. **Units:** milliseconds.
const SILENCE_MS: u64 = 60_000;
const PROBE_MS: u64 = 10_000;
/// Between looks at what has run out of time. **Units:** milliseconds.
const SWEEP_MS: u64 = 5_000;
