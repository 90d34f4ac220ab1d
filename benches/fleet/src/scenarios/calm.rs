//! What a fleet costs while nothing happens to it, and how soon a newcomer is called.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capd::client::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Facts, Share};
use crate::calls::{Kind, name};
use crate::proc::{Memory, percentile, sorted};
use crate::sidecar::{Setup, Sidecar};
use crate::virtuals;
use crate::world::World;

pub(super) async fn steady(world: &mut World, span: Duration, facts: &mut Facts) {
    let span = span.max(Duration::from_millis(world.sizes.ttl_ms()));
    let (keys, lapsed) = (created(world), world.members.status().await.lapsed);
    let etcd = world.etcd.pid().expect("it runs");
    let real: Vec<_> = world.real.iter().filter_map(Sidecar::pid).collect();
    let shares = [vec![etcd], vec![world.members.pid()], real.clone()].map(Share::of);
    let (rate, updates) = tokio::join!(world.traffic.rate_during(span), updates(world, span));
    let [of_etcd, of_members, of_real] = shares.map(|share| share.percent());
    facts.add("rate", rate, "calls/s", "calls answered");
    facts.add("etcd", of_etcd, "%", "etcd's share of a core");
    facts.add("members", of_members, "%", "virtual members' share of a core");
    facts.add("real", of_real, "%", "real sidecars' share of a core, all together");
    facts.add("updates", updates.len() as f64, "", "changes of registrations that somebody watches");
    for (key, percent) in [("update_p50", 50.0), ("update_p99", 99.0)] {
        let what = format!("a change to its watcher's directory, p{percent:.0}");
        facts.add(key, percentile(&updates, percent), "ms", &what);
    }
    let now = created(world);
    let gone = keys.iter().filter(|(key, at)| now.get(*key) != Some(at)).count() as f64;
    let lapsed = world.members.status().await.lapsed - lapsed;
    facts.add("lapsed", gone.max(lapsed as f64), "", "registrations lost");
    let megabytes = |pid| Memory::of(pid).unwrap_or_default();
    facts.add("etcd_memory", megabytes(etcd).resident / 1e6, "MB", "etcd's resident memory");
    facts.add(
        "members_memory",
        megabytes(world.members.pid()).resident / 1e6,
        "MB",
        "virtual members' resident memory",
    );
    let shared: f64 = real.iter().map(|pid| megabytes(*pid).shared_out).sum();
    facts.add("real_memory", shared / 1e6 / real.len() as f64, "MB", "a real sidecar's memory (PSS)");
    added(world, facts).await;
}

/// Members that change what they offer, and one that watches all of them, for a while: the time from each change until the
/// watcher's directory has it. **Units:** milliseconds, sorted.
async fn updates(world: &World, span: Duration) -> Vec<f64> {
    let begin = Instant::now();
    let (endpoint, ttl_ms) = (world.endpoint(), world.sizes.ttl_ms());
    let mut drivers = JoinSet::new();
    let (watcher, driver) = virtuals::alone(WATCHER, endpoint, ttl_ms).await;
    drivers.spawn(driver.run());
    let mut changing = JoinSet::new();
    for number in 0..CHANGING {
        let (fleet, driver) = virtuals::alone(WATCHER - 1 - number, endpoint, ttl_ms).await;
        drivers.spawn(driver.run());
        let watcher = watcher.clone();
        changing.spawn(async move {
            let name = format!("org.example.changes-{number}");
            let names = [name.clone()];
            let name = name.parse().unwrap();
            let has = |port| {
                let known = watcher.want(&name).unwrap_or_default();
                known
                    .iter()
                    .any(|of| of.is_listed() && of.registration.addresses.iter().any(|at| at.port == port))
            };
            let mut times = Vec::new();
            for port in 1.. {
                let changed = Instant::now();
                fleet.offer(virtuals::offer(&names, port));
                while !has(port) {
                    assert!(changed.elapsed() < PATIENCE, "a change does not reach its watcher");
                    sleep(LOOK_EVERY).await;
                }
                // The first one is no change: the lease, the fence and the watch are new.
                if port > 1 {
                    times.push(changed.elapsed().as_secs_f64() * 1e3);
                }
                if begin.elapsed() > span {
                    break;
                }
                sleep(CHANGE_EVERY.saturating_sub(changed.elapsed())).await;
            }
            fleet.leave().await;
            times
        });
    }
    let mut times = Vec::new();
    while let Some(of_one) = changing.join_next().await {
        times.extend(of_one.unwrap());
    }
    watcher.leave().await;
    sorted(times)
}

/// When each registration came to be, as etcd counts its changes.
fn created(world: &World) -> BTreeMap<String, u64> {
    let said = world.keys(&["n/", "--keys-only", "-w", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap_or_default();
    let keys = said["kvs"].as_array().into_iter().flatten();
    keys.filter_map(|kv| Some((kv["key"].as_str()?.to_owned(), kv["create_revision"].as_u64()?))).collect()
}

/// What a fleet adds to a sidecar: five members beside five sidecars that know the same three providers by configuration. Both
/// have called the same names, so that they have the same links.
async fn added(world: &mut World, facts: &mut Facts) {
    world.traffic.pause(true);
    let plain: Vec<_> = (0..CALLERS).map(|_| Setup { endpoint: None, ..world.setup("plain") }).collect();
    let known: Vec<_> = plain.iter().map(|setup| (setup.identity().did().to_string(), None)).collect();
    let mut providers = Vec::new();
    for _ in 0..PROVIDERS {
        let setup = world.setup("provider");
        providers.push(world.run(Setup { serves: true, peers: known.clone(), ..setup }).await);
    }
    let names: Vec<_> = (0..NAMES).map(|number| format!("beside-{number}")).collect();
    let mut agents = Vec::new();
    for provider in &providers {
        agents.push(world.agents.serve_unwritten(&provider.socket, &names));
    }
    let peers = providers.iter().map(|of| (of.did.clone(), Some(format!("quic://{}", of.quic))));
    let peers: Vec<_> = peers.collect();
    let (mut by_fleet, mut by_list) = (Vec::new(), Vec::new());
    for setup in plain {
        by_list.push(world.run(Setup { peers: peers.clone(), ..setup }).await);
        let setup = world.setup("member");
        by_fleet.push(world.run(setup).await);
    }
    let mut clients = [Vec::new(), Vec::new()];
    for (of, sidecars) in [&by_list, &by_fleet].into_iter().enumerate() {
        for sidecar in sidecars {
            let client = sidecar.client().await;
            for of_name in &names {
                first_answer(world, &client, &name(Kind::Again, of_name)).await;
            }
            clients[of].push(client);
        }
    }
    // Links that were dialled beside those in use are settled by then.
    sleep(SETTLE).await;
    let middle = |sidecars: &[Sidecar], of: fn(Memory) -> f64| {
        let memory = sidecars.iter().filter_map(|sidecar| Memory::of(sidecar.pid()?)).map(of);
        percentile(&sorted(memory.collect()), 50.0) / 1e6
    };
    let more = |of: fn(Memory) -> f64| middle(&by_fleet, of) - middle(&by_list, of);
    facts.add(
        "memory",
        more(|memory| memory.own),
        "MB",
        "memory that the fleet adds to a sidecar with 10 watched names",
    );
    facts.add(
        "resident",
        more(|memory| memory.resident),
        "MB",
        "the same, with pages of the program that it shares with others",
    );
    let name = name(Kind::Again, &names[0]);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in 0..2 {
            // Each is first as often as the other.
            let of = (round + turn) % 2;
            times[of].push(one_by_one(world, &clients[of][0], &name).await);
        }
    }
    let [by_list, by_fleet] = times.map(|rounds| percentile(&sorted(rounds), 50.0));
    facts.add("p50_list", by_list, "µs", "one call to a configured peer, p50");
    facts.add("p50_fleet", by_fleet, "µs", "one call to a provider of the fleet, p50");
    facts.add("latency", by_fleet / by_list, "×", "the second over the first");
    agents.iter().for_each(tokio::task::AbortHandle::abort);
    for mut provider in providers {
        provider.stop().await;
    }
    world.traffic.pause(false);
}

/// The median time of calls, one after the other. **Units:** microseconds.
async fn one_by_one(world: &World, client: &Client, name: &str) -> f64 {
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let begin = Instant::now();
        assert!(world.traffic.call(client, name).await, "a call fails while nothing happens");
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    percentile(&sorted(times), 50.0)
}

/// Calls until there is an answer.
async fn first_answer(world: &World, client: &Client, name: &str) {
    let asking = async {
        while !world.traffic.call(client, name).await {
            sleep(ASK_EVERY).await;
        }
    };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("nobody answers {name}"));
}

/// New sidecars register names that a caller waits for.
pub(super) async fn join(world: &mut World, facts: &mut Facts) {
    newcomers(world, world.sizes.joins, facts).await;
}

/// The same, while virtual members leave and come back all the while.
pub(super) async fn churn(world: &mut World, span: Duration, facts: &mut Facts) {
    let before = world.members.status().await.came_back;
    world.members.churn(CHURN_PER_S).await;
    let begin = Instant::now();
    let rate = world.traffic.rate_during(span).await;
    facts.add("rate", rate, "calls/s", "calls answered meanwhile");
    newcomers(world, world.sizes.joins / 5, facts).await;
    world.members.churn(0.0).await;
    let took_s = begin.elapsed().as_secs_f64();
    let came_back = world.members.status().await.came_back - before;
    facts.add("came_back", came_back as f64 / took_s, "/s", "virtual members that left and came back");
}

/// Each newcomer's name is one that a caller waits for: it calls the name, and calls it again as soon as it hears that nobody
/// serves it.
async fn newcomers(world: &mut World, count: usize, facts: &mut Facts) {
    let setup = world.setup("waits");
    let mut waiting = world.run(setup).await;
    let client = waiting.client().await;
    let (mut times, mut leaving) = (Vec::new(), JoinSet::new());
    for _ in 0..count.max(1) {
        let setup = world.setup("late");
        let of = setup.name.clone();
        let called = name(Kind::Again, &of);
        let mut newcomer = world.run(Setup { serves: true, ..setup }).await;
        // The caller watches the name by then.
        while !world.has_fence(&newcomer) {
            sleep(ASK_EVERY).await;
        }
        assert!(!world.traffic.call(&client, &called).await, "somebody serves {called} already");
        let begin = Instant::now();
        let agent = world.agents.serve_unwritten(&newcomer.socket, &[of]);
        first_answer(world, &client, &called).await;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        leaving.spawn(async move {
            newcomer.stop().await;
            agent.abort();
        });
    }
    while let Some(left) = leaving.join_next().await {
        left.unwrap();
    }
    waiting.stop().await;
    let times = sorted(times);
    for (key, percent) in [("p50", 50.0), ("p99", 99.0), ("slowest", 100.0)] {
        let what = format!("new registration to the first answer, {key}");
        facts.add(key, percentile(&times, percent), "ms", &what);
    }
    facts.add("count", times.len() as f64, "", "new registrations");
}

const CALLERS: usize = 5;
const PROVIDERS: usize = 3;
const NAMES: usize = 10;
const SETTLE: Duration = Duration::from_secs(15);
const ROUNDS: usize = 20;
const CALLS: usize = 200;
/// Members whose registrations change, by the numbers below the watcher's: no virtual member has these.
const CHANGING: u16 = 4;
const WATCHER: u16 = u16::MAX;
/// Longer than the second in which a member makes one change at most.
const CHANGE_EVERY: Duration = Duration::from_millis(1_200);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Virtual members that leave and come back in each second. **Source:** FLEET 8.
const CHURN_PER_S: f64 = 50.0;
const ASK_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);
