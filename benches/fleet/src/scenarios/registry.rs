//! What happens to etcd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::Facts;
use crate::world::{World, gauges};

pub(super) async fn outage(world: &mut World, facts: &mut Facts) {
    let before = world.traffic.rate_during(OUTAGE).await;
    world.etcd.kill();
    let during = world.traffic.rate_during(OUTAGE).await;
    world.run_etcd().await;
    facts.add("before", before, "calls/s", "calls answered before");
    facts.add("during", during, "calls/s", "calls answered while etcd is dead");
    facts.add("rate", during / before * 100.0, "%", "the second, of the first");
    back(world, facts).await;
}

/// etcd serves again: how long until everybody has taken that in, and with how many requests.
async fn back(world: &mut World, facts: &mut Facts) {
    let begin = Instant::now();
    world.until_current().await;
    facts.add("current", begin.elapsed().as_secs_f64(), "s", "every real sidecar is current after");
    world.until_registered().await;
    facts.add("registered", begin.elapsed().as_secs_f64(), "s", "every real sidecar is registered after");
    if members_are_back(world, facts).await {
        facts.add("all", begin.elapsed().as_secs_f64(), "s", "every member is registered and current after");
    }
    asked(world, &BTreeMap::new(), facts).await;
}

/// Requests that etcd has had beyond those of before, for each member. Renewals and messages of watches are streams: they
/// are told, and do not count.
async fn asked(world: &World, before: &BTreeMap<String, f64>, facts: &mut Facts) {
    let Some(now) = world.requests().await else { return };
    let more = now.into_iter().map(|(method, count)| (count - before.get(&method).unwrap_or(&0.0), method));
    let each: Vec<_> = more.map(|(count, method)| (count / world.sizes.members() as f64, method)).collect();
    let requests = each.iter().filter(|(_, method)| !STREAMS.contains(&method.as_str()));
    let sum = requests.map(|(count, _)| count).sum();
    facts.add("requests", sum, "", "requests to etcd by then, for each member");
    for (count, method) in each.iter().filter(|(count, _)| *count >= 0.1) {
        facts.add(&format!("requests_{method}"), *count, "", &format!("{method} by then, for each member"));
    }
}

/// Whether every virtual member is registered and current in time.
async fn members_are_back(world: &mut World, facts: &mut Facts) -> bool {
    let count = usize::from(world.sizes.virtual_);
    let begin = Instant::now();
    loop {
        let status = world.members.status().await;
        if (status.registered, status.current) == (count, count) {
            return true;
        }
        if begin.elapsed() >= PATIENCE {
            let back = status.registered.min(status.current);
            let what =
                format!("virtual members that are not registered and current after {} s", PATIENCE.as_secs());
            facts.add("away", (count - back) as f64, "", &what);
            return false;
        }
        sleep(POLL).await;
    }
}

pub(super) async fn wipe(world: &mut World, span: Duration, facts: &mut Facts) {
    world.etcd.stop().await;
    block_in_place(|| world.etcd.wipe("two"));
    world.run_etcd().await;
    back(world, facts).await;
    let rate = world.traffic.rate_during(span).await;
    facts.add("rate", rate, "calls/s", "calls answered after that");
}

pub(super) async fn restore(world: &mut World, span: Duration, facts: &mut Facts) {
    world.etcd.stop().await;
    block_in_place(|| world.etcd.backup());
    world.run_etcd().await;
    world.calm().await;
    // What the backup does not know: leases that were given since, and a rolling restart of some.
    let late = world.choose(world.sizes.real / 10);
    for &at in &late {
        world.touch(at);
        world.real[at].stop().await;
    }
    world.start_again(&late).await;
    world.until_registered().await;
    sleep(span).await;
    world.etcd.stop().await;
    block_in_place(|| world.etcd.restore());
    world.run_etcd().await;
    back(world, facts).await;
    facts.add("late", late.len() as f64, "", "sidecars that restarted since the backup");
}

pub(super) async fn compaction(world: &mut World, span: Duration, facts: &mut Facts) {
    let some = world.choose(world.sizes.real / 10);
    for &at in &some {
        world.touch(at);
        world.real[at].signal(Signal::STOP);
    }
    let begin = Instant::now();
    for _ in 0..PUTS {
        block_in_place(|| world.etcd.ctl(&["put", "elsewhere", "x"]));
    }
    block_in_place(|| {
        let revision = world.etcd.revision().to_string();
        world.etcd.ctl(&["compaction", "--physical", &revision]);
    });
    facts.add("compacted", begin.elapsed().as_secs_f64(), "s", "compacted after");
    let rate = world.traffic.rate_during(span.min(STILL)).await;
    facts.add("rate", rate, "calls/s", "calls answered while some stand still");
    for &at in &some {
        world.real[at].signal(Signal::CONT);
        world.leave_alone(at);
    }
    let begin = Instant::now();
    world.until_current().await;
    facts.add("current", begin.elapsed().as_secs_f64(), "s", "every real sidecar is current after");
}

pub(super) async fn expiry(world: &mut World, facts: &mut Facts) {
    let real: usize = world.sizes.real;
    world.signal_members(Signal::STOP);
    let begin = Instant::now();
    let mut frozen = 0.0_f64;
    // The real ones stay.
    while world.registered().len() > real {
        let count = gauges(&world.real.iter().collect::<Vec<_>>(), "capd_fleet_frozen").await;
        frozen = frozen.max(count.into_iter().flatten().sum());
        assert!(begin.elapsed() < PATIENCE, "leases do not end");
        sleep(Duration::from_secs(1)).await;
    }
    facts.add(
        "expired",
        begin.elapsed().as_secs_f64(),
        "s",
        "every virtual member's registration has ended after",
    );
    facts.add("frozen", frozen, "", "real sidecars that believed none of it (at most at once)");
    let before = world.requests().await;
    world.signal_members(Signal::CONT);
    let begin = Instant::now();
    while world.registered().len() < world.sizes.members() {
        assert!(begin.elapsed() < PATIENCE, "virtual members are not registered again");
        sleep(POLL).await;
    }
    facts.add("registered", begin.elapsed().as_secs_f64(), "s", "all are registered again after");
    if let Some(before) = before {
        asked(world, &before, facts).await;
    }
    let _all = members_are_back(world, facts).await;
}

/// Methods of etcd whose messages are no requests.
const STREAMS: [&str; 2] = ["LeaseKeepAlive", "Watch"];
/// How long etcd is dead.
const OUTAGE: Duration = Duration::from_secs(25);
/// Changes that stopped sidecars have missed.
const PUTS: usize = 20;
/// How long they stand still at most: not as long as a lease lives.
const STILL: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(600);
