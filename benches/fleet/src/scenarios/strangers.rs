//! Who should not be there.

use std::time::{Duration, Instant};

use capd_proto::fleet::{Cell, Key};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::Facts;
use crate::agents::Who;
use crate::calls::{Kind, name};
use crate::oracle::executions;
use crate::sidecar::{Setup, Sidecar};
use crate::virtuals::CELL;
use crate::world::{World, gauges};

/// A sidecar whose membership another authority signed registers every called name, with good signatures of its own. Beside it,
/// somebody who can write to etcd puts bytes under the keys of others.
pub(super) async fn rogue(world: &mut World, span: Duration, facts: &mut Facts) {
    let before = refused(world).await;
    let setup = world.setup("rogue");
    let mut stranger = world.run(Setup { serves: true, is_rogue: true, ..setup }).await;
    let who = Who { did: stranger.did.clone(), journal: std::sync::Arc::default() };
    let names: Vec<_> = (0..world.sizes.called()).map(|number| number.to_string()).collect();
    let agent = world.agents.serve(&stranger.socket, &who, &names);
    let begin = Instant::now();
    while !world.registered().contains(&stranger.agent.to_string()) {
        assert!(begin.elapsed() < PATIENCE, "the rogue is not registered");
        sleep(Duration::from_millis(100)).await;
    }
    let cell: Cell = CELL.parse().unwrap();
    let (mut put, mut left) = (0, Vec::new());
    for (at, of) in names.iter().enumerate().take(NAMES_MAX) {
        // The first one serves it, and finds its registration replaced; the second one does not, unless all do.
        for (kind, of_real) in [(Kind::Again, at), (Kind::Once, at + 1)] {
            let agent = world.real[of_real % world.real.len()].agent;
            let key = Key::registration(name(kind, of).parse().unwrap(), agent).path(&cell);
            block_in_place(|| world.etcd.ctl(&["put", &key, "no registration"]));
            put += 1;
            if of_real != at && names.len() > 1 {
                left.push(key);
            }
        }
    }
    let rate = world.traffic.rate_during(span).await;
    facts.add("rate", rate, "calls/s", "calls answered meanwhile");
    facts.add("put", f64::from(put), "", "values put under the keys of others");
    facts.add("refused", refused(world).await - before, "", "values that real sidecars refused");
    let ran = executions(&world.executions());
    let strangers = ran.iter().filter(|execution| execution.did == stranger.did).count();
    facts.add("strangers", strangers as f64, "", "calls that the rogue got");
    agent.abort();
    stranger.stop().await;
    for key in left {
        block_in_place(|| world.etcd.ctl(&["del", &key]));
    }
}

async fn refused(world: &World) -> f64 {
    let sidecars: Vec<_> = world.real.iter().collect();
    gauges(&sidecars, "capd_fleet_refused_total").await.into_iter().flatten().sum()
}

/// The later process of an identity fences the earlier one, whose files it has.
pub(super) async fn clone(world: &mut World, span: Duration, facts: &mut Facts) {
    let at = world.choose(1)[0];
    world.touch(at);
    let dir = world.folder().join("cloned");
    let mut cloned = world.real[at].clone_into(&dir).await;
    let begin = Instant::now();
    // Its agent was copied with it. Once it registers, the earlier process finds another one's word under its keys.
    let names = [(at % world.sizes.called()).to_string()];
    let agent = world.agents.serve(&cloned.socket, &world.who[at].clone(), &names);
    while !is_fenced(&world.real[at]).await {
        assert!(begin.elapsed() < PATIENCE, "the earlier process is not fenced");
        sleep(Duration::from_millis(50)).await;
    }
    facts.add("fenced", begin.elapsed().as_secs_f64(), "s", "the earlier process is fenced after");
    let rate = world.traffic.rate_during(span).await;
    facts.add("rate", rate, "calls/s", "calls answered while both live");
    // As its owner is told to do: one of the two is stopped, and the other one started again.
    agent.abort();
    cloned.kill().await;
    world.real[at].stop().await;
    world.start_again(&[at]).await;
    world.until_registered().await;
    facts.add("registered", begin.elapsed().as_secs_f64(), "s", "the earlier one is registered again after");
    drop(std::fs::remove_dir_all(dir));
}

async fn is_fenced(sidecar: &Sidecar) -> bool {
    gauges(&[sidecar], "capd_fleet_fenced").await == [Some(1.0)]
}

/// Names of which values are put.
const NAMES_MAX: usize = 20;
const PATIENCE: Duration = Duration::from_secs(120);
