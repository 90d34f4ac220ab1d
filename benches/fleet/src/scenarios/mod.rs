//! A world in; what happens to it, one thing after the other, and what came of each, out.
//!
//! [`calm`] measures what a fleet costs while nothing happens, [`registry`] is what happens to etcd, [`sidecars`] to real
//! sidecars, and [`strangers`] is who should not be there.

mod calm;
mod registry;
mod sidecars;
mod strangers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Sizes;
use crate::calls::Call;
use crate::figures::{About, Fact, Figures, Scenario};
use crate::oracle::{Oracle, executions};
use crate::proc::{Machine, cpu_s, percentile, sorted};
use crate::sidecar::MAX_STALE_MS;
use crate::world::World;

/// Facts of a scenario by their keys.
#[derive(Default)]
struct Facts(BTreeMap<String, Fact>);

impl Facts {
    fn add(&mut self, key: &str, value: f64, unit: &str, what: &str) {
        println!("  {what}: {value:.2} {unit}");
        self.0.insert(key.to_owned(), Fact { what: what.to_owned(), value, unit: unit.to_owned() });
    }
}

/// Brings everything up, plays scenarios, and judges what came of every call.
pub(crate) async fn run(sizes: Sizes, which: &[String], minutes: f64) -> Figures {
    let chosen: Vec<_> =
        if which == ["all"] { ALL.to_vec() } else { which.iter().map(|name| known(name)).collect() };
    let begin = Instant::now();
    let mut world = World::start(sizes.clone()).await;
    let machine = Machine::watch(world.processes().into_iter());
    let mut scenarios = vec![start(&world)];
    world.traffic.begin().await;
    println!("every caller has called {:.1} s after it all began", begin.elapsed().as_secs_f64());
    // Callers find their providers, and begin to watch names.
    sleep(WARM_UP).await;
    let died = world.ghosts_die().await;
    let span = Duration::from_secs_f64(minutes * 60.0 / chosen.len() as f64).max(SPAN_MIN);
    let mut is_whole = true;
    for (name, what) in chosen {
        println!("{name}: {what}");
        tokio::select! {
            played = play(&mut world, name, what, span) => scenarios.push(played),
            told = tokio::signal::ctrl_c() => {
                told.unwrap();
                println!("{name} is ended by hand, and the run with it; its calls count as those between scenarios do");
                is_whole = false;
                break;
            }
        }
    }
    if is_whole {
        scenarios.extend(ghosts(&mut world, died).await);
    }
    let others = machine.others(world.processes().into_iter());
    let file = world.executions();
    let etcd = version(&sizes.etcd);
    let capd = version(&sizes.capd());
    let dids: Vec<_> = world.real.iter().map(|sidecar| sidecar.did.clone()).collect();
    let (calls, held_back, touches, _files) = world.stop().await;
    let ran = executions(&file);
    let oracle = Oracle::new(&ran, &touches, &dids);
    let (all, broken) = oracle.judge(calls.iter());
    scenarios.iter_mut().for_each(|scenario| count(scenario, &calls, &oracle));
    let about = About {
        real: sizes.real,
        virtual_: sizes.virtual_,
        names: sizes.names,
        replicas: sizes.replicas,
        ttl_s: sizes.ttl,
        seed: sizes.seed,
        calls_per_s: sizes.rate,
        minutes,
        etcd,
        capd,
        commit: said(&["git", "describe", "--always", "--dirty", "--abbrev=12"]),
        rustc: said(&["rustc", "--version"]),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        cpu: cpu_model(),
        took_s: begin.elapsed().as_secs(),
        others,
        held_back,
    };
    let broken = broken.into_iter().take(BROKEN_TOLD).collect();
    let (errors, per_second) = (oracle.errors(calls.iter()), per_second(&calls));
    let mut figures = Figures { about, scenarios, all, errors, broken, per_second, bars: Vec::new() };
    figures.judge();
    figures
}

/// How everything came up.
fn start(world: &World) -> Scenario {
    let mut facts = Facts::default();
    let [virtuals, listening, registered] =
        [world.start.virtuals, world.start.listening, world.start.registered].map(|time| time.as_secs_f64());
    facts.add("registered", virtuals + registered, "s", "all members are registered after");
    facts.add("virtuals", virtuals, "s", "virtual members are registered after");
    facts.add("listening", listening, "s", "real sidecars listen after");
    facts.add("real", registered, "s", "real sidecars are registered, from when their agents serve");
    let what = "Everything comes up, etcd first, and nobody calls.".to_owned();
    Scenario { name: "start".to_owned(), what, facts: facts.0, ..Scenario::default() }
}

/// Who still knows members that died at the beginning; none while that may be.
async fn ghosts(world: &mut World, died: Instant) -> Option<Scenario> {
    let ttl = Duration::from_millis(world.sizes.ttl_ms());
    // An old backup may know them, and gives their leases another life.
    if died.elapsed() < Duration::from_millis(MAX_STALE_MS) + 2 * ttl {
        return None;
    }
    let mut facts = Facts::default();
    let (asked, known) = world.ghosts_known().await;
    facts.add("asked", asked as f64, "", "directories of a called name that were looked at");
    facts.add("known", known as f64, "", "members in them that died at the beginning of the run");
    let what = "Members die at the beginning; who still knows them at the end.".to_owned();
    Some(Scenario { name: "ghosts".to_owned(), what, facts: facts.0, ..Scenario::default() })
}

async fn play(world: &mut World, name: &str, what: &str, span: Duration) -> Scenario {
    let mut facts = Facts::default();
    let from_s = world.traffic.now().as_secs_f64();
    match name {
        "steady" => calm::steady(world, span, &mut facts).await,
        "outage" => registry::outage(world, &mut facts).await,
        "join" => calm::join(world, &mut facts).await,
        "churn" => calm::churn(world, span, &mut facts).await,
        "kills" => sidecars::kills(world, span, &mut facts).await,
        "rolling" => sidecars::rolling(world, &mut facts).await,
        "stop" => sidecars::stop(world, &mut facts).await,
        "wipe" => registry::wipe(world, span, &mut facts).await,
        "restore" => registry::restore(world, span, &mut facts).await,
        "compaction" => registry::compaction(world, span, &mut facts).await,
        "expiry" => registry::expiry(world, &mut facts).await,
        "rogue" => strangers::rogue(world, span, &mut facts).await,
        "clone" => strangers::clone(world, span, &mut facts).await,
        "retire" => sidecars::retire(world, &mut facts).await,
        _ => unreachable!("only known ones are chosen"),
    }
    let away = world.calm().await;
    if away > 0 {
        facts.add(
            "still_away",
            away as f64,
            "",
            "virtual members that are not registered when the next begins",
        );
    }
    let until_s = world.traffic.now().as_secs_f64();
    Scenario {
        name: name.to_owned(),
        what: what.to_owned(),
        from_s,
        until_s,
        facts: facts.0,
        ..Scenario::default()
    }
}

/// Of the calls that began in its time: how they ended, and how long those took that were answered.
fn count(scenario: &mut Scenario, calls: &[Call], oracle: &Oracle<'_>) {
    let (from_s, until_s) = (scenario.from_s, scenario.until_s);
    let of = || calls.iter().filter(move |call| (from_s..until_s).contains(&call.begin.as_secs_f64()));
    scenario.counts = oracle.judge(of()).0;
    let answered = of().filter(|call| call.outcome == crate::calls::Outcome::Answered);
    let times = sorted(answered.map(|call| (call.end - call.begin).as_secs_f64() * 1e3).collect());
    if !times.is_empty() {
        [scenario.p50_ms, scenario.p99_ms, scenario.slowest_ms] =
            [50.0, 99.0, 100.0].map(|percent| percentile(&times, percent));
    }
}

fn per_second(calls: &[Call]) -> Vec<u32> {
    let mut seconds = Vec::new();
    for call in calls.iter().filter(|call| call.outcome == crate::calls::Outcome::Answered) {
        let at = call.end.as_secs() as usize;
        if seconds.len() <= at {
            seconds.resize(at + 1, 0);
        }
        seconds[at] += 1;
    }
    seconds
}

/// The part of a core that processes had over some time.
struct Share {
    begin: Instant,
    before: Vec<(u32, f64)>,
}

impl Share {
    fn of(pids: impl IntoIterator<Item = u32>) -> Self {
        let before = pids.into_iter().filter_map(|pid| Some((pid, cpu_s(pid)?)));
        Self { before: before.collect(), begin: Instant::now() }
    }

    /// **Units:** percent.
    fn percent(&self) -> f64 {
        let had = self.before.iter().filter_map(|(pid, before)| Some(cpu_s(*pid)? - before));
        had.sum::<f64>() / self.begin.elapsed().as_secs_f64() * 100.0
    }
}

fn known(name: &str) -> (&'static str, &'static str) {
    let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
    let found = ALL.iter().find(|(known, _)| *known == name);
    *found.unwrap_or_else(|| panic!("no scenario {name:?}; there are: all, {}", names.join(", ")))
}

/// The first line of what a command says.
fn said(words: &[&str]) -> String {
    let output = std::process::Command::new(words[0]).args(&words[1..]).current_dir(crate::ROOT).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn version(program: &std::path::Path) -> String {
    let text = said(&[&program.display().to_string(), "--version"]);
    text.rsplit(' ').next().unwrap_or_default().to_owned()
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name).to_owned()
}

/// Every scenario, and what happens in it. A caller that restarts forgets which results it has, so retirement comes before that:
/// otherwise it takes until the last call that one of them made is too old to be asked for.
const ALL: [(&str, &str); 14] = [
    ("steady", "Nothing happens."),
    ("outage", "etcd is killed, stays dead for 25 s, and comes back."),
    ("join", "New sidecars register names that a caller waits for."),
    ("churn", "Fifty virtual members leave in each second, and come back."),
    ("retire", "A sidecar is retired under load, and comes back without its memory."),
    ("kills", "A quarter of the real sidecars is killed at once, and started again."),
    ("rolling", "Every real sidecar is stopped and started again, one after the other."),
    ("stop", "A tenth of the real sidecars stands still for two TTLs, and goes on."),
    ("wipe", "etcd comes back with nothing, as another cluster."),
    ("restore", "etcd comes back as it was a while ago; nobody is told."),
    ("compaction", "etcd is compacted while sidecars that watch stand still."),
    ("expiry", "The virtual members' process stands still until all their leases have ended, and goes on."),
    ("rogue", "Somebody without a membership registers the called names, with good and with bad values."),
    ("clone", "A sidecar's agent.dir is copied, and a second process started from it."),
];
const WARM_UP: Duration = Duration::from_secs(10);
/// Least time of a scenario.
const SPAN_MIN: Duration = Duration::from_secs(5);
/// Broken calls that a run tells of.
const BROKEN_TOLD: usize = 20;
