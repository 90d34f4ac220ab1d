//! What every machine says in, broken promises out: those of FLEET 7 that concern the directory.

use std::collections::{BTreeMap, BTreeSet};

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::engine::Ask;
use capd_proto::fleet::machine::{LetGoWhy, Output, Standing};
use capd_proto::fleet::{Address, Agent, Fence};
use capd_proto::ledger::JournalId;

use super::plan::END_MS;
use super::world::{IDLE_MS, MAX_STALE_MS, TTL_MS, World};

impl World {
    /// Reads what a machine says before it is done.
    pub(super) fn observe(&mut self, pid: usize, output: &Output) {
        match output {
            Output::Ask { ask, .. } => self.observe_ask(pid, ask),
            Output::Registered { .. } => self.observe_registered(pid),
            Output::Changed(name) => self.observe_changed(pid, name),
            Output::Dial { agent, .. } => self.observe_dial(pid, agent),
            Output::LetGo { agent, why } => self.observe_let_go(pid, agent, *why),
            Output::Revoked(agent) => self.processes[pid].noted.revoked.push(*agent),
            Output::Watch { .. }
            | Output::Unwatch(_)
            | Output::Probe
            | Output::Keep { .. }
            | Output::Claimed(_)
            | Output::Lapsed
            | Output::Fenced { .. }
            | Output::Unregistrable { .. }
            | Output::Refused { .. }
            | Output::Split { .. }
            | Output::Frozen
            | Output::GiveUp { .. }
            | Output::Thawed => {}
        }
    }

    /// I8: no machine makes the load that breaks a registry down.
    fn observe_ask(&mut self, pid: usize, ask: &Ask) {
        let now_ms = self.now_ms;
        let noted = &mut self.processes[pid].noted;
        noted.registers |= matches!(ask, Ask::Register { .. });
        let asked = &mut noted.asked_ms;
        asked.retain(|at_ms| at_ms + 60_000 > now_ms);
        asked.push(now_ms);
        if asked.len() > ASKS_A_MINUTE_MAX {
            self.violate(
                "I8",
                format!("process {pid} asked the registry {ASKS_A_MINUTE_MAX} times in a minute"),
            );
        }
    }

    /// I8: at most one registration in the life of a lease. That a lease was found to live on is none.
    fn observe_registered(&mut self, pid: usize) {
        let noted = &mut self.processes[pid].noted;
        if !std::mem::take(&mut noted.registers) {
            return;
        }
        let last_ms = noted.registered_ms.replace(self.now_ms);
        if last_ms.is_some_and(|last_ms| self.now_ms < last_ms + TTL_MS / 3) {
            self.violate("I8", format!("process {pid} registered twice within a third of a lease's life"));
        }
    }

    fn observe_changed(&mut self, pid: usize, name: &CapabilityName) {
        let process = &self.processes[pid];
        let candidates = process.machine.candidates(name).into_iter();
        let now: BTreeMap<Agent, (Fence, u64)> = candidates
            .map(|candidate| {
                let of = &candidate.registration;
                (of.agent, (of.fence, of.generation))
            })
            .collect();
        let before = process.noted.candidates.get(name).cloned().unwrap_or_default();
        for (agent, (fence, generation)) in &now {
            // I10: what is known of an agent never goes back.
            let older = before.get(agent).filter(|(last, last_generation)| {
                (fence.incarnation, *generation) < (last.incarnation, *last_generation)
            });
            if let Some((last, last_generation)) = older.copied() {
                self.violate(
                    "I10",
                    format!(
                        "process {pid} went back from {}/{last_generation} to {}/{generation} of {agent}",
                        last.incarnation, fence.incarnation
                    ),
                );
            }
        }
        let process = &self.processes[pid];
        let is_wanted = process.machine.wanted().any(|wanted| wanted == name);
        for agent in before.keys().filter(|agent| is_wanted && !now.contains_key(agent)) {
            // I7: nobody is dropped with whom a link stands.
            let is_linked = process.links.contains_key(agent);
            if is_linked && !process.noted.revoked.contains(agent) {
                let what = format!("process {pid} dropped {agent}, with whom a link stands");
                return self.violate("I7", what);
            }
        }
        self.processes[pid].noted.candidates.insert(name.clone(), now);
    }

    fn observe_dial(&mut self, pid: usize, agent: &Agent) {
        // I4: nobody is dialled who is no member, or is known to be one no more.
        let is_revoked = self.processes[pid].noted.revoked.contains(agent);
        if !self.members.contains_key(agent) || is_revoked {
            self.violate("I4", format!("process {pid} dials {agent}, which is no member"));
        }
        // I8: a dial that failed is not repeated at once.
        let failed = self.processes[pid].noted.failed.get(agent).copied();
        let is_at_once = failed.is_some_and(|(failed_ms, word)| {
            self.now_ms < failed_ms + 500 && word == self.word_of(pid, agent)
        });
        if is_at_once {
            self.violate("I8", format!("process {pid} dials {agent} again at once"));
        }
    }

    /// What an agent last said of itself, as far as a process knows.
    pub(super) fn word_of(&self, pid: usize, agent: &Agent) -> Option<(Fence, u64)> {
        let machine = &self.processes[pid].machine;
        let of = machine.wanted().flat_map(|name| machine.candidates(name));
        let of = of.filter(|candidate| candidate.registration.agent == *agent);
        of.map(|candidate| (candidate.registration.fence, candidate.registration.generation)).max()
    }

    /// I5: only a name that nobody calls, or a process that is over, lets a link go.
    fn observe_let_go(&mut self, pid: usize, agent: &Agent, why: LetGoWhy) {
        let process = &self.processes[pid];
        match why {
            LetGoWhy::Idle => {
                let is_used = process.wanted_ms.iter().any(|(name, at_ms)| {
                    self.now_ms < at_ms + IDLE_MS
                        && process.noted.candidates.get(name).is_some_and(|of| of.contains_key(agent))
                });
                if is_used {
                    self.violate("I5", format!("process {pid} lets {agent} go, though it is wanted"));
                }
            }
            LetGoWhy::OldProcess { before: _ } => {
                let linked = process.links.get(agent).and_then(|peer| self.processes[*peer].machine.fence());
                let newest = self.newest_claimed(agent);
                if linked.is_some_and(|linked| linked.incarnation >= newest) {
                    self.violate("I5", format!("process {pid} lets the newest process of {agent} go"));
                }
            }
        }
    }

    /// X12: of two journals of one agent that lived within two lives of a lease, neither gets a journaled call; one alone does.
    pub(super) fn observe_alive(&mut self, pid: usize, agent: Agent, journal: JournalId) {
        let now_ms = self.now_ms;
        let process = &mut self.processes[pid];
        let journals = process.noted.alive.entry(agent).or_default();
        journals.insert(journal, now_ms);
        let living = journals.values().filter(|last_ms| now_ms < **last_ms + 2 * TTL_MS).count();
        let is_split = process.machine.is_split(&agent);
        if is_split != (living > 1) {
            self.violate("X12", format!("process {pid} sees {living} journals of {agent}: split {is_split}"));
        }
    }

    /// The largest incarnation that any process of an agent ever claimed.
    fn newest_claimed(&self, agent: &Agent) -> u64 {
        let of = self.processes.iter().filter(|process| self.agents[process.agent].agent == *agent);
        of.filter_map(|process| process.machine.fence()).map(|fence| fence.incarnation).max().unwrap_or(0)
    }

    /// I7: nobody stays suspect for longer than it may.
    pub(super) fn look_for_stale(&mut self, pid: usize) {
        let process = &self.processes[pid];
        let has_woken = self.now_ms > process.paused_until_ms + STALE_SLACK_MS;
        if !process.runs(self.now_ms) || !has_woken || process.machine.is_frozen() {
            return;
        }
        let names: Vec<_> = process.machine.wanted().cloned().collect();
        for name in names {
            for candidate in self.processes[pid].machine.candidates(&name) {
                let Standing::Suspect { since_ms } = candidate.standing else { continue };
                let agent = candidate.registration.agent;
                let unlinked_ms = self.processes[pid].noted.unlinked_ms.get(&agent).copied().unwrap_or(0);
                let over_ms = unlinked_ms.max(since_ms + MAX_STALE_MS);
                let is_over = self.now_ms > over_ms + STALE_SLACK_MS;
                if is_over && !self.processes[pid].links.contains_key(&agent) {
                    let what = format!("process {pid} keeps {agent}, gone since {since_ms} ms");
                    return self.violate("I7", what);
                }
            }
        }
    }

    /// I6 and X12: when all has been well for long enough, every directory is right, and one process speaks for an agent.
    pub(super) fn judge(&mut self) {
        assert!(self.now_ms >= END_MS, "the end has not come");
        let living: Vec<_> = (0..self.agents.len()).map(|agent| self.living(agent)).collect();
        for pid in 0..self.processes.len() {
            let process = &self.processes[pid];
            if !process.is_alive {
                continue;
            }
            let newest = living[process.agent].and_then(|pid| self.processes[pid].machine.fence());
            if !process.machine.is_fenced() && process.machine.fence() != newest {
                let what = format!("process {pid} registers although a later one of its agent does");
                self.violate("X12", what);
                continue;
            }
            if living[process.agent] == Some(pid)
                && !matches!(process.machine.state_name(), "Held" | "Renewing" | "Replacing")
            {
                let what = format!("process {pid} is {} in the end", process.machine.state_name());
                self.violate("I6", what);
            }
            self.judge_directory(pid, &living);
        }
    }

    /// The process that speaks for an agent.
    fn living(&self, agent: usize) -> Option<usize> {
        let of = (0..self.processes.len()).filter(|pid| {
            let process = &self.processes[*pid];
            process.agent == agent && process.is_alive && !process.machine.is_fenced()
        });
        of.max_by_key(|pid| self.processes[*pid].machine.fence())
    }

    fn judge_directory(&mut self, pid: usize, living: &[Option<usize>]) {
        let process = &self.processes[pid];
        let names: Vec<_> = process.machine.wanted().cloned().collect();
        let mut wrong = Vec::new();
        for name in names {
            let serving = living.iter().flatten().filter(|other| {
                let other = &self.processes[**other];
                let is_revoked = self.agents[other.agent].is_revoked;
                other.agent != process.agent && !is_revoked && other.offer.names.contains_key(&name)
            });
            let expected: BTreeMap<_, _> = serving
                .map(|other| {
                    let other = &self.processes[*other];
                    let fence = other.machine.fence();
                    (self.agents[other.agent].agent, (fence, other.offer.addresses.clone()))
                })
                .collect();
            let listed =
                process.machine.candidates(&name).into_iter().filter(|candidate| candidate.is_listed());
            let found: BTreeMap<_, _> = listed
                .map(|candidate| {
                    let of = &candidate.registration;
                    (of.agent, (Some(of.fence), of.addresses.clone()))
                })
                .collect();
            let agents = found.keys().chain(expected.keys()).collect::<BTreeSet<_>>();
            for agent in agents.into_iter().filter(|agent| found.get(agent) != expected.get(agent)) {
                let shown = |of: Option<&(Option<Fence>, Vec<Address>)>| match of {
                    Some((fence, addresses)) => {
                        format!("{} at {}", fence.map_or(0, |fence| fence.incarnation), addresses[0].host)
                    }
                    None => "nothing".to_owned(),
                };
                let number = self.members.get(agent);
                let (found, expected) = (shown(found.get(agent)), shown(expected.get(agent)));
                let name = name.as_str();
                wrong.push(format!(
                    "process {pid} lists {found} of agent {number:?} for {name}, not {expected}"
                ));
            }
        }
        if process.machine.stale_since_ms().is_some() {
            wrong.push(format!("process {pid} is behind in the end"));
        }
        for what in wrong {
            self.violate("I6", what);
        }
    }
}

/// A handful of feeds, each of which may list in pages and fetch, and a registration that is tried again.
const ASKS_A_MINUTE_MAX: usize = 120;
const STALE_SLACK_MS: u64 = 10_000;
