//! Dials and lets links go, by what the simulated network allows.

use capd_proto::fleet::machine::Input;
use capd_proto::fleet::{Address, Agent};

use super::world::{Dial, Event, World};

impl World {
    /// A dial comes to its end: whoever is at one of the addresses answers, if it is who was called.
    /// Where nobody does, that may take long.
    pub(super) fn dial_ends(&mut self, pid: usize, agent: Agent, addresses: Vec<Address>, dial: Dial) {
        if self.processes[pid].dials.get(&agent) != Some(&dial.number) {
            return;
        }
        let at_address = (0..self.processes.len()).rev().find(|other| {
            let other = &self.processes[*other];
            other.is_alive && addresses.iter().any(|address| other.offer.addresses.contains(address))
        });
        let peer = at_address.filter(|peer| {
            let other = &self.processes[*peer];
            let is_there = other.runs(self.now_ms) && !self.are_cut(self.processes[pid].agent, other.agent);
            is_there && self.agents[other.agent].agent == agent
        });
        if peer.is_none() && self.plan.has_slow_dials && !dial.is_late && self.rng.percent(50) {
            let dial = Dial { is_late: true, ..dial };
            return self.soon(1_000, 10_000, Event::DialEnds { pid, agent, addresses, dial });
        }
        self.processes[pid].dials.remove(&agent);
        match peer.filter(|peer| self.admits(*peer, pid)) {
            Some(peer) => self.link(pid, peer),
            None => {
                let failed = (self.now_ms, self.word_of(pid, &agent));
                self.processes[pid].noted.failed.insert(agent, failed);
                self.handle(pid, Input::DialFailed(agent));
            }
        }
    }

    /// Whether a peer lets us in by our membership.
    fn admits(&mut self, peer: usize, pid: usize) -> bool {
        let newcomer = &self.agents[self.processes[pid].agent];
        let (membership, agent) = (newcomer.membership.clone(), newcomer.agent);
        let time = self.time(peer);
        let was_revoked = self.processes[peer].noted.revoked.contains(&agent);
        let admitted = self.processes[peer].machine.admit(&membership, &agent, time).is_ok();
        if admitted && was_revoked {
            self.violate("I4", format!("process {peer} lets {agent} in, which is revoked"));
        }
        admitted
    }

    fn link(&mut self, pid: usize, peer: usize) {
        for (one, other) in [(pid, peer), (peer, pid)] {
            let agent = self.agents[self.processes[other].agent].agent;
            let fence = self.processes[other].machine.fence();
            if let Some(old) = self.processes[one].links.insert(agent, other).filter(|old| *old != other) {
                let own = self.agents[self.processes[one].agent].agent;
                if self.processes[old].links.remove(&own).is_some() {
                    self.processes[old].noted.unlinked_ms.insert(own, self.now_ms);
                    self.handle(old, Input::LinkClosed(own));
                }
            }
            self.handle(one, Input::LinkOpened { agent, fence });
        }
    }

    /// Closes the link of a process to an agent, at both ends.
    pub(super) fn unlink(&mut self, pid: usize, agent: Agent) {
        let own = self.agents[self.processes[pid].agent].agent;
        let Some(peer) = self.processes[pid].links.remove(&agent) else {
            // It was still being opened.
            return self.handle(pid, Input::LinkClosed(agent));
        };
        let now_ms = self.now_ms;
        self.processes[pid].noted.unlinked_ms.insert(agent, now_ms);
        self.handle(pid, Input::LinkClosed(agent));
        if self.processes[peer].links.get(&own) == Some(&pid) {
            self.processes[peer].links.remove(&own);
            self.processes[peer].noted.unlinked_ms.insert(own, now_ms);
            if self.processes[peer].is_alive {
                self.handle(peer, Input::LinkClosed(own));
            }
        }
    }

    /// Every peer that lives is heard; a link to any other is found to be dead.
    pub(super) fn keep_links(&mut self, pid: usize) {
        for (agent, peer) in self.processes[pid].links.clone() {
            let other = &self.processes[peer];
            let is_dead = !other.is_alive || self.are_cut(self.processes[pid].agent, other.agent);
            if is_dead {
                self.unlink(pid, agent);
            } else if other.runs(self.now_ms) {
                let journal = other.machine.fence().map(|fence| fence.journal);
                self.handle(pid, Input::LinkHeard { agent, journal });
            }
        }
        self.look_for_stale(pid);
        self.at(self.now_ms + 10_000, Event::KeepLinks { pid });
    }
}
