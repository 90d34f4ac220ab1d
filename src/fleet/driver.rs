//! Drives the machine: inputs from the engine, the daemon and the clock in; questions, watches, and events for the owner
//! out.

use std::collections::BTreeSet;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::engine::{Ask, EngineError, Told};
use capd_proto::fleet::machine::{AskId, Config, Input, LetGoWhy, Machine, Output, Time};
use capd_proto::fleet::{Address, Agent, Fence, RecordError, Refused, Verifier};
use capd_proto::ledger::JournalId;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::disk::{Cache, Disk, DiskError};
use super::engine::{Engine, Report};
use super::facts::{Facts, Inbox};
use super::handle::Fleet;
use super::view::{Inspection, Split, Status, View};
use crate::net::{Clock, Random, Tasks};

/// What the owner of a fleet is to do, or to know.
#[derive(Debug)]
pub enum Event {
    /// Open a link to an agent, whose TLS key must be this one; then report [`Fleet::link_opened`] or
    /// [`Fleet::dial_failed`].
    Dial {
        /// To whom.
        agent: Agent,
        /// Where, most wanted first.
        addresses: Vec<Address>,
    },
    /// End the dial of an agent: others have answered. Then report [`Fleet::dial_failed`], unless its link has opened.
    GiveUp {
        /// Whose.
        agent: Agent,
    },
    /// Close the link to an agent as soon as no call needs it.
    LetGo {
        /// Whose.
        agent: Agent,
        /// Why.
        why: LetGoWhy,
    },
    /// Memberships of an agent below this serial count no more: links to it end unless it showed a later one.
    Revoked {
        /// Whose.
        agent: Agent,
        /// The least serial that counts.
        serial_min: u64,
    },
    /// Two processes of one agent live at once: for a while no journaled call goes to either. Comes once for each finding.
    Split {
        /// The agent.
        agent: Agent,
        /// The journals of the two.
        journals: [JournalId; 2],
    },
    /// Our fence stands: HELLO names it from here on.
    Claimed(Fence),
    /// What our agent offers stands in the registry.
    Registered {
        /// As which generation.
        generation: u64,
    },
    /// What stood there may have ended; it is registered again.
    Lapsed,
    /// Another process has our identity: we register no more, and begin no journaled call.
    Fenced {
        /// The other one.
        by: Fence,
    },
    /// A name of ours cannot be registered.
    Unregistrable {
        /// Which one.
        name: CapabilityName,
        /// Why.
        error: RecordError,
    },
    /// A value of the registry is not believed.
    Refused {
        /// Its key.
        path: String,
        /// The agent that the key names.
        agent: Option<Agent>,
        /// Why.
        why: Refused,
    },
    /// So much of the registry vanished at once that none of it is believed.
    Frozen,
    /// The registry is believed again.
    Thawed,
    /// A file could not be written; it is tried again.
    Disk(DiskError),
}

/// What stands above a fleet and acts on its events.
pub trait Owner: Send + Sync + 'static {
    /// Called from the driver's task, in order. Must not block.
    fn on_event(&self, event: Event);
}

/// Everything that a driver works with.
pub struct Setup {
    /// The machine's settings; [`start`] takes the incarnation from `disk`.
    pub config: Config,
    /// The registry.
    pub engine: Arc<dyn Engine>,
    /// Whom to tell.
    pub owner: Arc<dyn Owner>,
    /// What a later process begins with.
    pub disk: Disk,
    /// The time.
    pub clock: Clock,
    /// Jitter.
    pub random: Random,
    /// Where work goes that would hold up links.
    pub tasks: Tasks,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Reads what a former process left, and makes a fleet of it. Nothing happens until the driver runs.
///
/// **Errors:** a file of the former process cannot be read.
pub fn start(setup: Setup) -> Result<(Fleet, Driver), DiskError> {
    let Setup { mut config, engine, owner, disk, clock, random, tasks } = setup;
    config.incarnation = disk.incarnation()?.max(config.incarnation);
    let cache = disk.cache(&config.cell)?;
    let verifier = Verifier::new(config.cell.clone(), config.authority);
    let view = Arc::new(View::new(verifier, config.deny_max_age_ms));
    let fleet = Fleet {
        inbox: Arc::default(),
        view: Arc::clone(&view),
        clock: clock.clone(),
        engine: Arc::clone(&engine),
        cell: config.cell.clone(),
        ended: CancellationToken::new(),
    };
    let now = time(&clock);
    let cached = cache.as_ref().map(|cache| cache.names(&config.cell)).unwrap_or_default();
    let mut machine = Machine::new(config, now, jitter(&random));
    if let Some(Cache { saved_ms, items }) = cache {
        machine.handle(Input::Cached { saved_ms, items }, now, jitter(&random));
    }
    let driver = Driver {
        machine: Some(machine),
        engine,
        owner,
        disk,
        clock,
        random,
        tasks,
        inbox: Arc::clone(&fleet.inbox),
        view,
        cached,
        work: FuturesUnordered::new(),
        changed: BTreeSet::new(),
        is_unsaved: false,
        saved_ms: now.now_ms,
        fenced_by: None,
        registered: None,
        leaving: Leaving::Not,
        ended: fleet.ended.clone().drop_guard(),
    };
    Ok((fleet, driver))
}

/// Work that is done beside the machine.
type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What became of it.
enum Done {
    Told(AskId, Result<Told, EngineError>),
    Kept(u64, Result<(), DiskError>),
    Saved(Result<(), DiskError>),
    /// Time to write an incarnation again.
    KeepAgain(u64),
}

/// Whether we are about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Not,
    /// Until the registry has answered, or the time has come. **Units:** milliseconds.
    Until {
        asked: Option<AskId>,
        until_ms: u64,
    },
    Left,
}

/// One task that owns a machine.
pub struct Driver {
    /// Away only while the pool works with it.
    machine: Option<Machine>,
    engine: Arc<dyn Engine>,
    owner: Arc<dyn Owner>,
    disk: Disk,
    clock: Clock,
    random: Random,
    tasks: Tasks,
    inbox: Arc<Inbox>,
    view: Arc<View>,
    /// Names whose registrations a former process left, and nobody has wanted yet.
    cached: BTreeSet<CapabilityName>,
    work: FuturesUnordered<Work>,
    /// Names whose candidates have changed since they were published.
    changed: BTreeSet<CapabilityName>,
    is_unsaved: bool,
    saved_ms: u64,
    fenced_by: Option<Fence>,
    registered: Option<u64>,
    leaving: Leaving,
    /// Says that the driver has ended, however it ends.
    ended: tokio_util::sync::DropGuard,
}

impl Driver {
    /// Runs until the owner leaves the fleet. Dropping it stops it at once, and nothing is withdrawn.
    pub async fn run(mut self) {
        let (to, mut reports) = mpsc::channel(REPORTS_MAX);
        let mut reporting = Arc::clone(&self.engine).report(to);
        let inbox = Arc::clone(&self.inbox);
        let mut batch = Vec::new();
        self.settle();
        while self.leaving != Leaving::Left {
            let due_ms = self.due_ms();
            let due = async {
                match due_ms {
                    Some(due_ms) => sleep_until(self.clock.moment(due_ms)).await,
                    None => std::future::pending().await,
                }
            };
            // In an order, so that a simulation sees the same one each time. Reports come last, for there may be many.
            tokio::select! {
                biased;
                () = &mut reporting => reporting = Box::pin(std::future::pending()),
                Some(done) = self.work.next(), if !self.work.is_empty() => self.done(done).await,
                () = inbox.filled() => self.take(inbox.take()).await,
                () = due => self.timeout().await,
                _ = reports.recv_many(&mut batch, BATCH_MAX) => self.report(&mut batch).await,
            }
            self.settle();
        }
        self.stop().await;
    }

    async fn done(&mut self, done: Done) {
        match done {
            Done::Told(id, told) => {
                if let Leaving::Until { asked: Some(asked), .. } = self.leaving
                    && asked == id
                {
                    self.leaving = Leaving::Left;
                }
                self.handle(vec![Input::Told { id, told }]).await;
            }
            Done::Kept(_, Ok(())) => self.handle(vec![Input::Kept]).await,
            Done::Kept(incarnation, Err(error)) => {
                self.owner.on_event(Event::Disk(error));
                let again = self.clock.moment(self.clock.monotonic_ms() + KEEP_AGAIN_MS);
                self.work.push(Box::pin(async move {
                    sleep_until(again).await;
                    Done::KeepAgain(incarnation)
                }));
            }
            Done::KeepAgain(incarnation) => self.keep(incarnation),
            Done::Saved(Ok(())) => {}
            Done::Saved(Err(error)) => {
                self.is_unsaved = true;
                self.owner.on_event(Event::Disk(error));
            }
        }
    }

    async fn take(&mut self, mut facts: Facts) {
        let inputs = facts.inputs();
        let named = inputs.iter().filter_map(|input| match input {
            Input::Want(name) | Input::Missed(name) | Input::Busy(name) => Some(name.clone()),
            _ => None,
        });
        // A name that nobody serves has an empty list of candidates from the first call on.
        let fresh: Vec<_> = named.filter(|name| self.view.candidates(name).is_none()).collect();
        self.changed.extend(fresh);
        if !inputs.is_empty() {
            self.handle(inputs).await;
        }
        for inspection in facts.inspections {
            let feeds = self.machine().feeds().map(|(prefix, state)| (prefix.clone(), state)).collect();
            // Whoever asked may be gone.
            drop(inspection.send(Inspection { status: self.status(), feeds }));
        }
        if facts.is_leaving && self.leaving == Leaving::Not {
            let until_ms = self.clock.monotonic_ms() + LEAVE_MS;
            self.leaving = Leaving::Until { asked: None, until_ms };
            self.handle(vec![Input::Leave]).await;
            self.registered = None;
            // Says whether there is anything to withdraw.
            self.settle();
            if matches!(self.leaving, Leaving::Until { asked: None, .. }) {
                self.leaving = Leaving::Left;
            }
        }
    }

    async fn timeout(&mut self) {
        let now_ms = self.clock.monotonic_ms();
        if let Leaving::Until { until_ms, .. } = self.leaving
            && now_ms >= until_ms
        {
            self.leaving = Leaving::Left;
        }
        if self.machine().poll_timeout().is_some_and(|due_ms| due_ms <= now_ms) {
            self.handle(vec![Input::Timeout]).await;
        }
        if self.save_due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            self.save();
        }
    }

    async fn report(&mut self, batch: &mut Vec<Report>) {
        let inputs = batch.drain(..).map(|(watch, change)| Input::Change { watch, change });
        self.handle(inputs.collect()).await;
    }

    /// Gives inputs to the machine: here, or on the pool where signatures take long.
    async fn handle(&mut self, inputs: Vec<Input>) {
        let now = time(&self.clock);
        let weight: usize = inputs.iter().map(|input| self.weight(input)).sum();
        let jitters: Vec<_> = inputs.iter().map(|_| jitter(&self.random)).collect();
        let Some(mut machine) = self.machine.take() else { return };
        let work = move || {
            for (input, jitter) in inputs.into_iter().zip(jitters) {
                machine.handle(input, now, jitter);
            }
            machine
        };
        self.machine = match weight > WEIGHT_MAX {
            true => self.tasks.compute(work).await,
            false => Some(work()),
        };
        if self.machine.is_none() {
            // A panic on the pool, which is reported and ends the process.
            std::future::pending::<()>().await;
        }
    }

    /// About how many signatures the machine has to verify for this.
    fn weight(&mut self, input: &Input) -> usize {
        match input {
            Input::Told { told: Ok(Told::Page(page)), .. } => {
                page.items.iter().filter(|item| item.value.is_some()).count()
            }
            Input::Change { .. } => 1,
            // It takes all that the cache has of this name.
            Input::Want(name) | Input::Missed(name) | Input::Busy(name) if self.cached.remove(name) => {
                WEIGHT_MAX + 1
            }
            // As many signatures are made as names are offered.
            Input::Offered(offer) => offer.names.len(),
            _ => 0,
        }
    }

    fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("the machine is away only while the driver waits for it")
    }

    /// Does all that the machine says, and publishes what is new.
    fn settle(&mut self) {
        while let Some(output) = self.machine.as_mut().and_then(Machine::poll_output) {
            self.act(output);
        }
        let now_ms = self.clock.monotonic_ms();
        let changed: Vec<_> = mem::take(&mut self.changed).into_iter().collect();
        self.is_unsaved |= !changed.is_empty();
        self.view.publish(self.machine(), changed, now_ms);
        self.view.set_status(self.status());
    }

    fn act(&mut self, output: Output) {
        let event = match output {
            Output::Ask { id, ask } => return self.ask(id, ask),
            Output::Watch { watch, prefix, after } => return self.engine.watch(watch, prefix, after),
            Output::Unwatch(watch) => return self.engine.unwatch(watch),
            Output::Probe => return self.engine.probe(),
            Output::Keep { incarnation } => return self.keep(incarnation),
            Output::Changed(name) => {
                self.changed.insert(name);
                return;
            }
            Output::Claimed(fence) => {
                self.fenced_by = None;
                Event::Claimed(fence)
            }
            Output::Registered { generation } => {
                self.registered = Some(generation);
                Event::Registered { generation }
            }
            Output::Lapsed => {
                self.registered = None;
                Event::Lapsed
            }
            Output::Fenced { by } => {
                (self.fenced_by, self.registered) = (Some(by), None);
                Event::Fenced { by }
            }
            Output::Revoked(agent) => {
                let Some(serial_min) = self.machine().revoked_below(&agent) else { return };
                self.is_unsaved = true;
                self.view.revoke(agent, serial_min);
                Event::Revoked { agent, serial_min }
            }
            Output::Split { agent, journals, until_ms, is_new } => {
                self.view.split(agent, Split { journals, until_ms }, self.clock.monotonic_ms());
                if !is_new {
                    return;
                }
                Event::Split { agent, journals }
            }
            Output::Unregistrable { name, error } => Event::Unregistrable { name, error },
            Output::Dial { agent, addresses } => Event::Dial { agent, addresses },
            Output::GiveUp { agent } => Event::GiveUp { agent },
            Output::LetGo { agent, why } => Event::LetGo { agent, why },
            Output::Refused { path, agent, why } => Event::Refused { path, agent, why },
            Output::Frozen => Event::Frozen,
            Output::Thawed => Event::Thawed,
        };
        self.owner.on_event(event);
    }

    fn ask(&mut self, id: AskId, ask: Ask) {
        if let (Ask::Withdraw(_), Leaving::Until { asked, .. }) = (&ask, &mut self.leaving) {
            *asked = Some(id);
        }
        let answer = self.engine.ask(ask);
        self.work.push(Box::pin(async move { Done::Told(id, answer.await) }));
    }

    fn keep(&self, incarnation: u64) {
        let (disk, tasks) = (self.disk.clone(), self.tasks.clone());
        self.work.push(Box::pin(async move {
            match tasks.compute(move || disk.keep(incarnation)).await {
                Some(kept) => Done::Kept(incarnation, kept),
                None => std::future::pending().await,
            }
        }));
    }

    fn save(&mut self) {
        (self.is_unsaved, self.saved_ms) = (false, self.clock.monotonic_ms());
        let (disk, tasks, cache) = (self.disk.clone(), self.tasks.clone(), self.cache());
        self.work.push(Box::pin(async move {
            match tasks.compute(move || disk.save(&cache)).await {
                Some(saved) => Done::Saved(saved),
                None => std::future::pending().await,
            }
        }));
    }

    /// FLEET D5: what a later process begins with. It dates from when the revocations were last complete, not from the
    /// moment of saving: otherwise each restart would make them young again.
    fn cache(&self) -> Cache {
        let now = time(&self.clock);
        let age_ms = self.machine().revocations_age_ms(now.now_ms);
        let saved_ms = age_ms.map_or(0, |age_ms| now.wall_ms.saturating_sub(age_ms));
        let items = self.machine().to_cache().map(|(path, value)| (path, value.clone())).collect();
        Cache { saved_ms, items }
    }

    fn save_due_ms(&self) -> Option<u64> {
        (self.is_unsaved && matches!(self.disk, Disk::Folder(_))).then_some(self.saved_ms + SAVE_MS)
    }

    fn due_ms(&self) -> Option<u64> {
        let leaving_ms = match self.leaving {
            Leaving::Until { until_ms, .. } => Some(until_ms),
            Leaving::Not | Leaving::Left => None,
        };
        self.machine().poll_timeout().into_iter().chain(self.save_due_ms()).chain(leaving_ms).min()
    }

    fn status(&self) -> Status {
        let machine = self.machine();
        let now_ms = self.clock.monotonic_ms();
        let mut status = Status {
            state: machine.state_name(),
            fence: machine.fence(),
            fenced_by: self.fenced_by,
            registered: self.registered,
            stale_since_ms: machine.stale_since_ms(),
            is_frozen: machine.is_frozen(),
            engine: self.engine.health(),
            ..Status::default()
        };
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let age_ms = machine.revocations_age_ms(now_ms);
        status.revocations_at_ms = age_ms.map(|age_ms| signed(now_ms).saturating_sub(signed(age_ms)));
        for (_, state) in machine.feeds() {
            status.feeds += 1;
            status.watching += usize::from(state == WATCHING);
        }
        for name in machine.wanted() {
            status.wanted += 1;
            status.candidates += self.view.candidates(name).map_or(0, |candidates| candidates.len());
        }
        status
    }

    async fn stop(mut self) {
        if self.is_unsaved && self.machine.is_some() {
            self.save();
            let saved = async {
                while let Some(done) = self.work.next().await {
                    if let Done::Saved(saved) = done {
                        return saved;
                    }
                }
                Ok(())
            };
            if let Err(error) = saved.await {
                self.owner.on_event(Event::Disk(error));
            }
        }
        drop(self.ended);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("leaving", &self.leaving).finish_non_exhaustive()
    }
}

fn time(clock: &Clock) -> Time {
    let now = clock.now();
    Time { now_ms: now.monotonic_ms, wall_ms: now.wall_ms }
}

/// Jitter needs no secrecy: without randomness all sidecars merely do things at the same time.
fn jitter(random: &Random) -> u64 {
    random.bytes().map_or(0, u64::from_be_bytes)
}

/// Reports that wait for the machine, of all watches; ours.
const REPORTS_MAX: usize = 256;
/// Reports that the machine takes in at once.
const BATCH_MAX: usize = 64;
/// Signatures, of some 50 µs each, that hold up no link.
const WEIGHT_MAX: usize = 2;
/// How long the registry has to take back what we registered. **Units:** milliseconds.
const LEAVE_MS: u64 = 2_000;
/// Between writes of the cache. **Units:** milliseconds.
const SAVE_MS: u64 = 60_000;
/// Before an incarnation is written again that could not be. **Units:** milliseconds.
const KEEP_AGAIN_MS: u64 = 1_000;
/// The state of a feed whose watch is alive.
const WATCHING: &str = "Watching";
