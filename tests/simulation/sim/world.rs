//! A plan in; everything that came of it, and the oracle's verdict, out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capd::store::audit::chain::Verifier;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::caller::Caller;
use super::dice::Dice;
use super::keys;
use super::machine::{Machine, World};
use super::network::{Net, Traffic};
use super::oracle::{Oracle, Verdict};
use super::plan::{BlowKind, Call, Plan, Victim};
use super::provider::Provider;
use super::rude::Rude;
use super::trace::Trace;

/// What came of a world.
pub struct Outcome {
    pub verdict: Verdict,
    /// The same for two runs of one plan and seed.
    pub trace: u64,
    pub traffic: Traffic,
    pub crashes: u64,
    pub commits: u64,
    pub refused_commits: u64,
    pub lost_commits: u64,
    pub unacknowledged_commits: u64,
    /// Calls that executors have released.
    pub tombstones: u64,
    /// Records in the audit logs of all machines.
    pub audited: u64,
    pub virtual_ms: u64,
    pub polls: Polls,
}

/// How often the tasks of each process were polled from the first call to the end.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    /// By machine.
    pub sidecars: Vec<u64>,
    /// In the order of the plan's executors.
    pub providers: Vec<u64>,
}

/// Runs the world of `plan`; `seed` feeds everything that the plan leaves to chance.
pub fn run(plan: &Plan, seed: u64) -> Outcome {
    keys::seed(seed ^ KEYS_SALT);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs nothing of the system");
    runtime.block_on(live(plan, seed))
}

async fn live(plan: &Plan, seed: u64) -> Outcome {
    let fleet = Fleet::new(plan, seed);
    let mut scenery = JoinSet::new();
    scenery.spawn(fleet.world.net.clone().deliver());
    for machine in &fleet.machines {
        scenery.spawn(Arc::clone(machine).run());
    }
    for provider in &fleet.providers {
        scenery.spawn(Arc::clone(provider).run());
    }
    for rude in &fleet.rude {
        scenery.spawn(rude.clone().run());
    }
    scenery.spawn(Arc::clone(&fleet).strike());
    let mut calls = JoinSet::new();
    for call in plan.calls.clone() {
        let fleet = Arc::clone(&fleet);
        calls.spawn(async move {
            sleep_until(fleet.world.trace.moment(call.at_ms)).await;
            fleet.callers[call.caller].call(&call, || fleet.on_made(&call)).await;
        });
    }
    let all = async { while calls.join_next().await.is_some() {} };
    // What has not ended by then is for the oracle to tell.
    let _too_long = timeout(Duration::from_millis(plan.calm_from_ms) + PATIENCE, all).await;
    let outcome = fleet.outcome();
    scenery.shutdown().await;
    calls.shutdown().await;
    fleet.end();
    outcome
}

/// Everything that lives in a world.
struct Fleet {
    plan: Plan,
    world: World,
    machines: Vec<Arc<Machine>>,
    providers: Vec<Arc<Provider>>,
    rude: Vec<Rude>,
    callers: Vec<Arc<Caller>>,
    /// The polls of each process when the first call was made.
    began: Mutex<Option<Polls>>,
}

impl Fleet {
    fn new(plan: &Plan, seed: u64) -> Arc<Self> {
        let dice = Dice::new(seed ^ DICE_SALT);
        let trace = Trace::start();
        let world = World {
            net: Net::new(dice.fork(), plan.weather.clone(), trace.clone()),
            oracle: Oracle::new(trace.clone()),
            panics: Arc::new(AtomicU64::new(0)),
            breaks: plan.breaks,
            wiped: Arc::new(AtomicU64::new(0)),
            store: Arc::default(),
            trace,
            dice,
        };
        let machines: Vec<_> = (0..plan.machines).map(|index| Machine::new(index, plan, &world)).collect();
        let executors = || plan.executors.iter().map(|index| &machines[*index]);
        let rude = executors().filter(|_| plan.manners.rude);
        Arc::new(Self {
            providers: executors().map(|machine| Provider::new(machine, plan, &world)).collect(),
            rude: rude.map(|machine| Rude::new(machine, plan, &world)).collect(),
            callers: machines.iter().map(|machine| Caller::new(machine, plan, &world)).collect(),
            plan: plan.clone(),
            began: Mutex::default(),
            world,
            machines,
        })
    }

    /// Lets the plan's blows fall.
    async fn strike(self: Arc<Self>) {
        for blow in &self.plan.blows {
            sleep_until(self.world.trace.moment(blow.at_ms)).await;
            match blow.kind {
                BlowKind::SidecarDies => self.machines[blow.machine].crash(),
                BlowKind::SidecarLeaves => self.machines[blow.machine].leave(),
                BlowKind::JournalWiped => self.machines[blow.machine].wipe(),
                BlowKind::ProviderDies => self.crash_in(Victim::Provider(blow.machine), 0),
                BlowKind::ClockJumps(by_ms) => {
                    let tell = || format!("the clock of machine {} jumps by {by_ms} ms", blow.machine);
                    self.world.oracle.tell(None, tell);
                    self.machines[blow.machine].jump(by_ms);
                }
            }
        }
    }

    /// A call is about to be sent.
    fn on_made(&self, call: &Call) {
        self.began.lock().expect("nobody panics with it").get_or_insert_with(|| self.polls());
        if let Some((victim, polls)) = call.crash {
            self.crash_in(victim, polls);
        }
    }

    fn crash_in(&self, victim: Victim, polls: u64) {
        match victim {
            Victim::Sidecar(machine) => self.machines[machine].crash_in(polls),
            Victim::Provider(machine) => {
                let beside = self.providers.iter().filter(|provider| provider.is_beside(machine));
                beside.for_each(|provider| provider.crash_in(polls));
            }
        }
    }

    fn polls(&self) -> Polls {
        let sidecars = self.machines.iter().map(|machine| machine.process());
        Polls {
            sidecars: sidecars.map(|process| process.map_or(0, |process| process.polls())).collect(),
            providers: self.providers.iter().map(|provider| provider.process().polls()).collect(),
        }
    }

    fn outcome(&self) -> Outcome {
        let panics = self.world.panics.load(Ordering::Relaxed);
        if panics > 0 {
            self.world.oracle.violates(format!("{panics} tasks panicked"));
        }
        let commits: Vec<_> = self.machines.iter().map(|machine| machine.disk.commits()).collect();
        if commits.iter().any(|commits| commits.conflicts > 0) {
            self.world.oracle.violates("a journal was told what contradicts it".to_owned());
        }
        let mut audited = 0;
        for machine in &self.machines {
            let (mut verifier, entries) = (Verifier::default(), machine.disk.audit());
            let broken = entries.iter().find_map(|entry| verifier.take(entry).err());
            if let Some(broken) = broken {
                self.world.oracle.violates(format!("the audit chain of sidecar {}: {broken}", machine.index));
            }
            audited += entries.len() as u64;
        }
        let began = self.began.lock().expect("nobody panics with it").take().unwrap_or_default();
        let since = |now: Vec<u64>, then: Vec<u64>| -> Vec<u64> {
            now.into_iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect()
        };
        let now = self.polls();
        Outcome {
            verdict: self.world.oracle.verdict(),
            trace: self.world.trace.hash(),
            traffic: self.world.net.traffic(),
            crashes: self.machines.iter().map(|machine| machine.crashes()).sum(),
            commits: commits.iter().map(|commits| commits.commits).sum(),
            refused_commits: commits.iter().map(|commits| commits.refused).sum(),
            lost_commits: commits.iter().map(|commits| commits.lost).sum(),
            unacknowledged_commits: commits.iter().map(|commits| commits.unacknowledged).sum(),
            tombstones: commits.iter().map(|commits| commits.tombstones).sum(),
            audited,
            virtual_ms: self.world.trace.now_ms(),
            polls: Polls {
                sidecars: since(now.sidecars, began.sidecars),
                providers: since(now.providers, began.providers),
            },
        }
    }

    /// Ends every process, and with them whatever they hold.
    fn end(&self) {
        self.machines.iter().for_each(|machine| machine.end());
        self.callers.iter().for_each(|caller| caller.end());
        self.providers.iter().for_each(|provider| provider.end());
        self.rude.iter().for_each(Rude::end);
    }
}

/// How long calls may take to end once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keeps the world's own choices apart from its plan's.
const DICE_SALT: u64 = 0x5eed;
/// Keeps TLS's draws apart from the world's.
const KEYS_SALT: u64 = 0x6b65_7973;
