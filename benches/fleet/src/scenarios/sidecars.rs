//! What happens to real sidecars.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use super::Facts;
use crate::world::World;

pub(super) async fn kills(world: &mut World, span: Duration, facts: &mut Facts) {
    let victims = world.choose(world.sizes.real / 4);
    for &at in &victims {
        world.touch(at);
        world.real[at].kill().await;
    }
    facts.add("killed", victims.len() as f64, "", "sidecars killed");
    let rate = world.traffic.rate_during(span).await;
    facts.add("rate", rate, "calls/s", "calls answered while they are dead");
    let begin = Instant::now();
    world.start_again(&victims).await;
    facts.add("listening", begin.elapsed().as_secs_f64(), "s", "all listen again after");
    world.until_registered().await;
    facts.add("registered", begin.elapsed().as_secs_f64(), "s", "all are registered again after");
}

pub(super) async fn rolling(world: &mut World, facts: &mut Facts) {
    let begin = Instant::now();
    for at in 0..world.real.len() {
        world.touch(at);
        world.real[at].stop().await;
        world.start_again(&[at]).await;
    }
    let took_s = begin.elapsed().as_secs_f64();
    facts.add("each", took_s / world.real.len() as f64, "s", "each is stopped and listens again after");
    world.until_registered().await;
    facts.add(
        "registered",
        begin.elapsed().as_secs_f64() - took_s,
        "s",
        "all are registered after the last one",
    );
}

pub(super) async fn stop(world: &mut World, facts: &mut Facts) {
    let some = world.choose(world.sizes.real / 10);
    for &at in &some {
        world.touch(at);
        world.real[at].signal(Signal::STOP);
    }
    facts.add("stopped", some.len() as f64, "", "sidecars stopped");
    let rate = world.traffic.rate_during(Duration::from_millis(2 * world.sizes.ttl_ms())).await;
    facts.add("rate", rate, "calls/s", "calls answered meanwhile");
    let gone = world.registered();
    let gone = some.iter().filter(|at| !gone.contains(&world.real[**at].agent.to_string())).count();
    facts.add("gone", gone as f64, "", "of them, registered no longer at the end");
    for &at in &some {
        world.real[at].signal(Signal::CONT);
        world.leave_alone(at);
    }
    let begin = Instant::now();
    world.until_registered().await;
    world.until_current().await;
    facts.add("registered", begin.elapsed().as_secs_f64(), "s", "all are registered and current again after");
}

pub(super) async fn retire(world: &mut World, facts: &mut Facts) {
    let at = world.choose(1)[0];
    world.touch(at);
    let client = world.real[at].client().await;
    let begin = Instant::now();
    let mut most = 0;
    loop {
        let left = client.retire().await.unwrap();
        most = most.max(left.remembered);
        if left.made + left.executing + left.remembered == 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not retire: {left:?}");
        sleep(Duration::from_millis(200)).await;
    }
    facts.add("retired", begin.elapsed().as_secs_f64(), "s", "no caller needs it after");
    facts.add("remembered", most as f64, "", "calls whose results were not fetched, at most");
    // Only now may its memory go.
    world.real[at].stop().await;
    std::fs::remove_dir_all(world.real[at].dir.join("state")).unwrap();
    world.start_again(&[at]).await;
    world.until_registered().await;
    let journal = world.journals()[&world.real[at].agent.to_string()].clone();
    *world.who[at].journal.write().unwrap() = journal;
    facts.add("back", begin.elapsed().as_secs_f64(), "s", "it is registered again with a new journal after");
}

/// Longer than the ttl of any call of ours.
const PATIENCE: Duration = Duration::from_secs(600);
