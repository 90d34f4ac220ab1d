//! A plan in; what its fleet did, and which promises it broke, out.

use std::cmp::{Ordering, Reverse};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::capability::CapabilityName;
use capd_proto::fleet::engine::{Ask, Change, EngineError, Revision, Told};
use capd_proto::fleet::machine::{AskId, Breaks, Config, Input, Machine, Offer, Output, Time, WatchId};
use capd_proto::fleet::{Address, Agent, Cell, Fence, Known, Membership, Served, State, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;

use super::plan::{Blow, Break, CALM_MS, END_MS, Plan};
use super::process::{Disk, Noted, Process, Watch};
use super::rng::Rng;
use super::store::{self, Backup, Store};

/// An agent, whichever process of it runs.
pub(super) struct AgentFacts {
    pub(super) agent: Agent,
    pub(super) identity: Arc<Identity>,
    pub(super) membership: Bytes,
    pub(super) is_revoked: bool,
    /// It reaches no registry until then.
    pub(super) cut_until_ms: u64,
    /// Its next renewal is told that its lease is gone.
    pub(super) meets_wrong_leader: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive { pid: usize, id: AskId, ask: Ask },
    Input { pid: usize, input: Input },
    WatchArrives { pid: usize, watch: WatchId, prefix: String, after: u64 },
    Change { pid: usize, watch: WatchId, change: Change },
    Probe { pid: usize },
    Wake { pid: usize },
    DialEnds { pid: usize, agent: Agent, addresses: Vec<Address>, dial: Dial },
    KeepLinks { pid: usize },
    Want { pid: usize },
    Expire,
    Backup,
    Start { agent: usize, disk: usize, host: String },
    Blow(usize),
    EndWatches { pid: usize },
}

/// One dial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    /// Dials of its process before it.
    pub(super) number: u64,
    /// Whether nobody has answered for long.
    pub(super) is_late: bool,
}

/// An event, the earliest first; of one moment, those that were thought of first.
struct Queued {
    order: Reverse<(u64, u64)>,
    event: Box<Event>,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

/// What became of a world.
pub struct Outcome {
    pub violations: Vec<String>,
    pub trace: u64,
    pub events: u64,
}

pub(super) struct World {
    pub(super) now_ms: u64,
    pub(super) rng: Rng,
    pub(super) agents: Vec<AgentFacts>,
    pub(super) members: BTreeMap<Agent, usize>,
    pub(super) processes: Vec<Process>,
    pub(super) disks: Vec<Disk>,
    pub(super) store: Store,
    pub(super) names: Vec<CapabilityName>,
    pub(super) authority: Identity,
    pub(super) backups: Vec<Backup>,
    pub(super) plan: Plan,
    pub(super) away_until_ms: u64,
    pub(super) full_until_ms: u64,
    pub(super) stale: (u64, u64),
    pub(super) slow_until_ms: u64,
    pub(super) cut_peers: Vec<(usize, usize, u64)>,
    queue: BinaryHeap<Queued>,
    queued: u64,
    known: Known,
    trace: DefaultHasher,
    violations: Vec<String>,
    /// Whether everything that machines say is printed.
    is_told: bool,
}

/// Plays a world to its end.
pub fn run(plan: &Plan, seed: u64) -> Outcome {
    play(plan, seed, false)
}

/// The same, and prints everything that machines say.
pub fn tell(plan: &Plan, seed: u64) -> Outcome {
    play(plan, seed, true)
}

fn play(plan: &Plan, seed: u64, is_told: bool) -> Outcome {
    let mut world = World { is_told, ..World::new(plan.clone(), seed) };
    world.begin();
    let mut events = 0;
    while let Some(Queued { order: Reverse((at_ms, _)), event }) = world.queue.pop() {
        if at_ms > END_MS || world.violations.len() >= VIOLATIONS_MAX {
            break;
        }
        world.now_ms = at_ms;
        events += 1;
        if is_told && let Event::Blow(number) = &*event {
            println!("{at_ms:>7} {:?}", plan.blows[*number].1);
        }
        world.happen(*event);
    }
    if world.violations.is_empty() {
        world.now_ms = END_MS;
        world.judge();
    }
    Outcome { violations: world.violations, trace: world.trace.finish(), events }
}

impl World {
    fn new(plan: Plan, seed: u64) -> Self {
        let authority = Identity::from_seed([1; 32]);
        let agents: Vec<_> = (0..plan.agents).map(|number| AgentFacts::new(number, &authority)).collect();
        let members = agents.iter().enumerate().map(|(number, facts)| (facts.agent, number)).collect();
        let names = (0..plan.names).map(name).collect();
        let is_unfenced = plan.breaks == Some(Break::NoFence);
        Self {
            now_ms: 0,
            rng: Rng::new(seed.wrapping_mul(31).wrapping_add(7)),
            agents,
            members,
            processes: Vec::new(),
            disks: Vec::new(),
            store: Store::new(cell(), is_unfenced),
            names,
            authority,
            backups: Vec::new(),
            plan,
            away_until_ms: 0,
            full_until_ms: 0,
            stale: (0, 0),
            slow_until_ms: 0,
            cut_peers: Vec::new(),
            queue: BinaryHeap::new(),
            queued: 0,
            known: Known::default(),
            trace: DefaultHasher::new(),
            violations: Vec::new(),
            is_told: false,
        }
    }

    fn begin(&mut self) {
        for agent in 0..self.agents.len() {
            self.disks.push(Disk { incarnation: 0, journal: JournalId([agent as u8 + 1; 16]) });
            let at_ms = self.rng.between(0, 2_000);
            self.at(at_ms, Event::Start { agent, disk: agent, host: host(agent) });
        }
        for number in 0..self.plan.blows.len() {
            let at_ms = self.plan.blows[number].0;
            self.at(at_ms, Event::Blow(number));
        }
        self.at(1_000, Event::Expire);
        self.at(20_000, Event::Backup);
    }

    pub(super) fn at(&mut self, at_ms: u64, event: Event) {
        self.queued += 1;
        let order = Reverse((at_ms.max(self.now_ms), self.queued));
        self.queue.push(Queued { order, event: Box::new(event) });
    }

    pub(super) fn soon(&mut self, least_ms: u64, most_ms: u64, event: Event) {
        let at_ms = self.now_ms + self.rng.between(least_ms, most_ms);
        self.at(at_ms, event);
    }

    pub(super) fn violate(&mut self, promise: &str, what: String) {
        self.violations.push(format!("{promise} at {} ms: {what}", self.now_ms));
    }

    pub(super) fn time(&self, pid: usize) -> Time {
        let wall_ms = (WALL_MS + self.now_ms).saturating_add_signed(self.processes[pid].skew_ms);
        Time { now_ms: self.now_ms, wall_ms }
    }

    pub(super) fn are_cut(&self, one: usize, other: usize) -> bool {
        self.cut_peers.iter().any(|(first, second, until_ms)| {
            self.now_ms < *until_ms
                && ((*first, *second) == (one, other) || (*second, *first) == (one, other))
        })
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start { agent, disk, host } => drop(self.start(agent, disk, &host)),
            Event::Blow(number) => {
                let blow = self.plan.blows[number].1.clone();
                self.strike(blow);
            }
            Event::Expire => {
                let before = self.store.history.len();
                if self.now_ms >= self.away_until_ms {
                    self.store.expire(self.now_ms);
                }
                self.publish(before);
                self.at(self.now_ms + 1_000, Event::Expire);
            }
            Event::Backup => {
                self.backups.push(self.store.backup());
                self.at(self.now_ms + 20_000, Event::Backup);
            }
            Event::Arrive { pid, id, ask } => self.arrive(pid, id, ask),
            Event::WatchArrives { pid, watch, prefix, after } => {
                self.watch_arrives(pid, watch, prefix, after);
            }
            Event::Probe { pid } => self.probe(pid),
            Event::EndWatches { pid } => self.end_watches(pid),
            // What happens to a process that does nothing happens when it goes on.
            event @ (Event::Input { pid, .. }
            | Event::Change { pid, .. }
            | Event::Wake { pid }
            | Event::DialEnds { pid, .. }
            | Event::KeepLinks { pid }
            | Event::Want { pid }) => {
                let process = &self.processes[pid];
                if !process.is_alive {
                    return;
                }
                if !process.runs(self.now_ms) {
                    let until_ms = process.paused_until_ms;
                    return self.at(until_ms, event);
                }
                self.happen_to(pid, event);
            }
        }
    }

    fn happen_to(&mut self, pid: usize, event: Event) {
        match event {
            Event::Input { input, .. } => self.handle(pid, input),
            Event::Change { watch, change, .. } => self.handle(pid, Input::Change { watch, change }),
            Event::Wake { .. } => {
                let process = &mut self.processes[pid];
                process.wake_ms = None;
                if process.machine.poll_timeout().is_some_and(|due_ms| due_ms <= self.now_ms) {
                    return self.handle(pid, Input::Timeout);
                }
                self.schedule(pid);
            }
            Event::DialEnds { agent, addresses, dial, .. } => self.dial_ends(pid, agent, addresses, dial),
            Event::KeepLinks { .. } => self.keep_links(pid),
            Event::Want { .. } => self.want(pid),
            Event::Arrive { .. }
            | Event::WatchArrives { .. }
            | Event::Probe { .. }
            | Event::Expire
            | Event::Backup
            | Event::Start { .. }
            | Event::Blow(_)
            | Event::EndWatches { .. } => unreachable!("these are no process's"),
        }
    }

    /// Starts a process of an agent on a disk.
    pub(super) fn start(&mut self, agent: usize, disk: usize, host: &str) -> usize {
        let facts = &self.agents[agent];
        let kept = &self.disks[disk];
        let fence = Fence { incarnation: kept.incarnation, journal: kept.journal };
        let mut config = Config::new(
            cell(),
            self.authority.public_key(),
            facts.identity.clone(),
            facts.membership.clone(),
            fence,
        );
        (config.ttl_ms, config.max_stale_ms, config.idle_ms) = (TTL_MS, MAX_STALE_MS, IDLE_MS);
        config.breaks = Breaks {
            resumes_by_revision: self.plan.breaks == Some(Break::ResumeByRevision),
            ignores_order: self.plan.breaks == Some(Break::IncarnationUnchecked),
        };
        let time = Time { now_ms: self.now_ms, wall_ms: WALL_MS + self.now_ms };
        let machine = Machine::new(config, time, self.rng.next());
        let pid = self.processes.len();
        let addresses = vec![address(host)];
        let served = Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: 0 };
        let names =
            self.names.iter().enumerate().filter(|(number, _)| {
                *number == agent % self.names.len() || (agent + number).is_multiple_of(3)
            });
        let names = names.map(|(_, name)| (name.clone(), vec![served.clone()])).collect();
        let offer = Offer { addresses, names, state: State::Serving };
        self.processes.push(Process {
            agent,
            machine,
            disk,
            offer: offer.clone(),
            is_alive: true,
            paused_until_ms: 0,
            skew_ms: 0,
            watches: BTreeMap::new(),
            is_stream_dead: false,
            links: BTreeMap::new(),
            dials: BTreeMap::new(),
            dialled: 0,
            wanted_ms: BTreeMap::new(),
            wake_ms: None,
            noted: Noted::default(),
        });
        self.act(pid);
        self.handle(pid, Input::Offered(offer));
        self.soon(0, 3_000, Event::Want { pid });
        self.soon(0, 5_000, Event::KeepLinks { pid });
        pid
    }

    fn want(&mut self, pid: usize) {
        for name in self.names.clone() {
            let process = &mut self.processes[pid];
            process.wanted_ms.insert(name.clone(), self.now_ms);
            let candidates = process.machine.candidates(&name);
            let is_linked =
                candidates.iter().any(|candidate| process.links.contains_key(&candidate.registration.agent));
            self.handle(pid, if is_linked { Input::Want(name) } else { Input::Missed(name) });
        }
        self.soon(15_000, 30_000, Event::Want { pid });
    }

    /// Gives a process an input, or keeps it until the process goes on.
    pub(super) fn handle(&mut self, pid: usize, input: Input) {
        let process = &self.processes[pid];
        if !process.is_alive {
            return;
        }
        if !process.runs(self.now_ms) {
            let until_ms = process.paused_until_ms;
            return self.at(until_ms, Event::Input { pid, input });
        }
        let (time, jitter) = (self.time(pid), self.rng.next());
        let lives = match &input {
            Input::LinkOpened { agent, fence: Some(fence) } => Some((*agent, fence.journal)),
            Input::LinkHeard { agent, journal: Some(journal) } => Some((*agent, *journal)),
            _ => None,
        };
        let process = &mut self.processes[pid];
        process.machine.swap_known(&mut self.known);
        process.machine.handle(input, time, jitter);
        process.machine.swap_known(&mut self.known);
        if let Some((agent, journal)) = lives {
            self.observe_alive(pid, agent, journal);
        }
        self.act(pid);
    }

    fn act(&mut self, pid: usize) {
        while let Some(output) = self.processes[pid].machine.poll_output() {
            self.observe(pid, &output);
            (self.now_ms, pid).hash(&mut self.trace);
            std::mem::discriminant(&output).hash(&mut self.trace);
            if self.is_told {
                println!("{:>7} {pid}({}) {}", self.now_ms, self.processes[pid].agent, told(&output));
            }
            match output {
                Output::Ask { id, ask } => self.soon(1, 5, Event::Arrive { pid, id, ask }),
                Output::Watch { watch, prefix, after: Revision(after) } => {
                    let prefix = prefix.path(&cell());
                    self.soon(1, 5, Event::WatchArrives { pid, watch, prefix, after });
                }
                Output::Unwatch(watch) => {
                    let process = &mut self.processes[pid];
                    process.watches.remove(&watch);
                    process.is_stream_dead &= !process.watches.is_empty();
                }
                Output::Probe => self.soon(1, 5, Event::Probe { pid }),
                Output::Keep { incarnation } => {
                    let disk = self.processes[pid].disk;
                    self.disks[disk].incarnation = self.disks[disk].incarnation.max(incarnation);
                    self.soon(1, 10, Event::Input { pid, input: Input::Kept });
                }
                Output::Dial { agent, addresses } => {
                    let process = &mut self.processes[pid];
                    let dial = Dial { number: process.dialled, is_late: false };
                    process.dialled += 1;
                    process.dials.insert(agent, dial.number);
                    self.soon(5, 300, Event::DialEnds { pid, agent, addresses, dial });
                }
                // One that has just ended was reported.
                Output::GiveUp { agent } => {
                    if self.processes[pid].dials.remove(&agent).is_some() {
                        self.soon(1, 5, Event::Input { pid, input: Input::DialFailed(agent) });
                    }
                }
                Output::LetGo { agent, .. } => self.unlink(pid, agent),
                Output::Revoked(agent) if self.processes[pid].links.contains_key(&agent) => {
                    self.unlink(pid, agent);
                }
                Output::Revoked(_)
                | Output::Claimed(_)
                | Output::Registered { .. }
                | Output::Lapsed
                | Output::Fenced { .. }
                | Output::Unregistrable { .. }
                | Output::Changed(_)
                | Output::Refused { .. }
                | Output::Split { .. }
                | Output::Frozen
                | Output::Thawed => {}
            }
        }
        self.schedule(pid);
    }

    fn schedule(&mut self, pid: usize) {
        let process = &mut self.processes[pid];
        let Some(due_ms) = process.machine.poll_timeout() else { return };
        if process.wake_ms.is_none_or(|wake_ms| due_ms < wake_ms) {
            process.wake_ms = Some(due_ms);
            // A machine that asks for what is over would never come to rest; a millisecond shows it.
            let at_ms = due_ms.max(self.now_ms + 1);
            self.at(at_ms, Event::Wake { pid });
        }
    }

    /// Whether a process reaches the registry.
    pub(super) fn reaches(&self, pid: usize) -> bool {
        let facts = &self.agents[self.processes[pid].agent];
        self.now_ms >= self.away_until_ms && self.now_ms >= facts.cut_until_ms
    }

    fn arrive(&mut self, pid: usize, id: AskId, ask: Ask) {
        let lost = |world: &mut Self| {
            let input = Input::Told { id, told: Err(EngineError::Lost) };
            world.soon(500, 5_000, Event::Input { pid, input });
        };
        if !self.reaches(pid) {
            return lost(self);
        }
        let told = self.answer(pid, &ask);
        // The answer may be lost although it was done.
        if self.now_ms < CALM_MS && self.rng.percent(2) {
            return lost(self);
        }
        self.soon(1, 5, Event::Input { pid, input: Input::Told { id, told } });
    }

    fn answer(&mut self, pid: usize, ask: &Ask) -> Result<Told, EngineError> {
        let (agent, now_ms) = (self.processes[pid].agent, self.now_ms);
        let writes = matches!(ask, Ask::Claim { .. } | Ask::Register { .. } | Ask::Replace { .. });
        if writes && now_ms < self.full_until_ms {
            return Err(EngineError::Full);
        }
        if matches!(ask, Ask::Renew(_)) && std::mem::take(&mut self.agents[agent].meets_wrong_leader) {
            return Err(EngineError::Gone);
        }
        if now_ms < self.stale.0
            && let Some(told) = self.store.list_stale(ask, self.stale.1)
        {
            return told;
        }
        let before = self.store.history.len();
        let told = self.store.ask(self.agents[agent].agent, ask, now_ms);
        self.publish(before);
        told
    }

    fn watch_arrives(&mut self, pid: usize, watch: WatchId, prefix: String, after: u64) {
        if !self.processes[pid].is_alive {
            return;
        }
        let entry = Watch { prefix: prefix.clone(), after, next_ms: self.now_ms };
        self.processes[pid].watches.insert(watch, entry);
        if self.processes[pid].is_stream_dead {
            return;
        }
        let missed = self.store.since(after, &prefix).filter(|_| self.reaches(pid));
        let Some(missed) = missed else {
            self.processes[pid].watches.remove(&watch);
            return self.soon(500, 5_000, Event::Change { pid, watch, change: Change::Ended });
        };
        // etcd says at once which revision it is at, and our engine ends a watch from one that has not come.
        if after > self.store.revision() {
            self.processes[pid].watches.remove(&watch);
            return self.soon(1, 5, Event::Change { pid, watch, change: Change::Ended });
        }
        let started = Change::Started { store: self.store.id(), revision: Revision(after) };
        self.report(pid, watch, started);
        for event in missed {
            self.report_event(pid, watch, &event);
        }
    }

    fn probe(&mut self, pid: usize) {
        let is_heard = self.reaches(pid) && !self.processes[pid].is_stream_dead;
        let revision = Revision(self.store.revision());
        for watch in self.processes[pid].watches.keys().copied().collect::<Vec<_>>() {
            if is_heard {
                self.report(pid, watch, Change::Progress { revision });
            }
        }
    }

    /// Reports what has happened since the history was so long.
    pub(super) fn publish(&mut self, from: usize) {
        let events: Vec<_> = self.store.history.get(from..).unwrap_or_default().to_vec();
        for event in events {
            for pid in 0..self.processes.len() {
                if !self.processes[pid].is_alive || !self.reaches(pid) {
                    continue;
                }
                let of = self.processes[pid].watches.iter();
                let of = of.filter(|(_, watch)| {
                    event.revision > watch.after && event.path.starts_with(&watch.prefix)
                });
                for watch in of.map(|(watch, _)| *watch).collect::<Vec<_>>() {
                    self.report_event(pid, watch, &event);
                }
            }
        }
    }

    pub(super) fn report_event(&mut self, pid: usize, watch: WatchId, event: &store::Event) {
        let revision = Revision(event.revision);
        let change = match &event.item {
            Some(item) => Change::Put { revision, item: item.clone() },
            None => Change::Delete { revision, path: event.path.clone() },
        };
        self.report(pid, watch, change);
    }

    fn report(&mut self, pid: usize, watch: WatchId, change: Change) {
        let slow_ms = if self.now_ms < self.slow_until_ms { self.rng.between(0, 8_000) } else { 0 };
        let late_ms = self.rng.between(1, 5) + slow_ms;
        let process = &mut self.processes[pid];
        if process.is_stream_dead {
            return;
        }
        let Some(entry) = process.watches.get_mut(&watch) else { return };
        entry.next_ms = entry.next_ms.max(self.now_ms + late_ms);
        let at_ms = entry.next_ms;
        self.at(at_ms, Event::Change { pid, watch, change });
    }

    pub(super) fn end_watches(&mut self, pid: usize) {
        for watch in std::mem::take(&mut self.processes[pid].watches).into_keys() {
            self.soon(1, 5, Event::Change { pid, watch, change: Change::Ended });
        }
        self.processes[pid].is_stream_dead = false;
    }

    /// It does nothing until then. What befell it in the meantime waits for the end of its pause, so no later one is shorter.
    pub(super) fn pause(&mut self, pid: usize, until_ms: u64) {
        let process = &mut self.processes[pid];
        process.paused_until_ms = process.paused_until_ms.max(until_ms);
    }

    /// The last process of an agent that was started and lives.
    pub(super) fn process_of(&self, agent: usize) -> Option<usize> {
        let of = |pid: &usize| self.processes[*pid].agent == agent && self.processes[*pid].is_alive;
        (0..self.processes.len()).rev().find(of)
    }

    pub(super) fn strike(&mut self, blow: Blow) {
        super::blows::strike(self, blow);
    }
}

impl AgentFacts {
    fn new(number: usize, authority: &Identity) -> Self {
        let identity = Arc::new(Identity::from_seed([number as u8 + 10; 32]));
        let agent: Agent = identity.public_key().into();
        let membership = Membership {
            agent,
            cell: cell(),
            serves: vec!["org.example.*".parse().unwrap()],
            not_before_ms: WALL_MS - DAY_MS,
            not_after_ms: WALL_MS + 90 * DAY_MS,
            serial: 1,
        };
        let membership = membership.sign(authority).unwrap().into();
        Self { agent, identity, membership, is_revoked: false, cut_until_ms: 0, meets_wrong_leader: false }
    }
}

/// What a machine says, without the bytes.
fn told(output: &Output) -> String {
    match output {
        Output::Ask { ask: Ask::Register { fence, .. }, .. } => format!("Register {fence}"),
        Output::Ask { ask: Ask::Replace { fence, .. }, .. } => format!("Replace {fence}"),
        Output::Ask { ask: Ask::List { prefix, after, at, values }, .. } => {
            format!("List {} {after:?} {at:?} {values}", prefix.path(&cell()))
        }
        Output::Watch { prefix, after, watch } => {
            format!("Watch {} after {after:?}: {watch:?}", prefix.path(&cell()))
        }
        other => format!("{other:?}"),
    }
}

pub(super) fn cell() -> Cell {
    "world".parse().unwrap()
}

pub(super) fn name(number: usize) -> CapabilityName {
    format!("org.example.n{number}").parse().unwrap()
}

pub(super) fn host(agent: usize) -> String {
    format!("host-{agent}")
}

pub(super) fn address(host: &str) -> Address {
    Address { transport: Transport::Quic, host: host.to_owned(), port: 7001 }
}

/// When all worlds begin, on the wall.
pub(super) const WALL_MS: u64 = 1_800_000_000_000;
pub(super) const DAY_MS: u64 = 86_400_000;
pub(super) const TTL_MS: u64 = 30_000;
/// Shorter than in life, so that it is reached.
pub(super) const MAX_STALE_MS: u64 = 100_000;
pub(super) const IDLE_MS: u64 = 120_000;
const VIOLATIONS_MAX: usize = 20;
