//! The conformance scenarios of `sdk/conformance`, played over the binary link: a scripted sidecar and `capd-client`.
//!
//! The scenarios are written as exchanges of HTTP. The scripted sidecar takes each message of the link as the request that
//! means the same, and says the reply in messages: `scripted`, `calls` and `provide` have the one-to-one table. Scenarios
//! about HTTP alone are named in `scenario`, each with its reason. `CAPD_SDK_RESULTS` names a file for the results, as
//! `run.py --matrix` reads them.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]

mod agent;
mod calls;
mod driver;
mod matching;
mod provide;
mod scenario;
mod scripted;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capd_client::Endpoint;
use capd_net::local::{self, Token};
use capd_net::{Host, Seed, Settings, System};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use driver::Driver;
use scenario::Scenario;
use scripted::{Ear, Sidecar};
use world::World;

#[tokio::test]
async fn every_scenario_that_the_link_has_a_place_for_passes() {
    let scenarios = scenario::all();
    for (name, _) in scenario::OF_HTTP_ALONE {
        assert!(scenarios.iter().any(|scenario| scenario.name == name), "there is no scenario {name}");
    }
    let only = std::env::var("CAPD_SCENARIO").unwrap_or_default();
    let (mut playing, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for (at, scenario) in scenarios.into_iter().enumerate().filter(|(_, it)| it.name.starts_with(&only)) {
        let places = Arc::clone(&places);
        playing.spawn(async move {
            let _place = places.acquire_owned().await;
            (at, played(scenario).await)
        });
    }
    let mut results = playing.join_all().await;
    results.sort_by_key(|(at, _)| *at);
    let results: Vec<_> = results.into_iter().map(|(_, result)| result).collect();
    if let Ok(file) = std::env::var("CAPD_SDK_RESULTS") {
        let report = json!({"language": "Rust", "results": results});
        std::fs::write(file, format!("{report}\n")).unwrap();
    }
    let failed: Vec<_> = results.iter().filter(|result| result["verdict"] == "failed").collect();
    let passed = results.iter().filter(|result| result["verdict"] == "passed").count();
    assert!(failed.is_empty(), "{} failed, {passed} passed:\n{:#}", failed.len(), json!(failed));
    let count = |verdict: &str| results.iter().filter(|result| result["verdict"] == verdict).count();
    println!("{passed} passed, {} of HTTP alone", count("elsewhere"));
}

/// Plays one scenario; what came of it.
async fn played(scenario: Scenario) -> Value {
    let Scenario { feature, name, document } = scenario;
    if let Some(why) = scenario::unplayed(&name) {
        return json!({"feature": feature, "name": name, "verdict": "elsewhere", "problems": [why]});
    }
    let world = Arc::new(World::new(document));
    let seed = Seed::new([7; 32]);
    let sidecar = Sidecar::new(Arc::clone(&world), seed.identity());
    let ear = Arc::new(Ear(Arc::clone(&sidecar)));
    let host = Host::sidecar(Settings::default(), &seed, ear, System::real()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let endpoint = if world.scenario["transport"] == "tcp" {
        listen_tcp(&host, &world).await
    } else {
        listen_unix(&host, &world, folder.path().join("capd.sock"))
    };
    let seen = timeout(STEPS_TIME, Driver::new(Arc::clone(&sidecar), endpoint).run()).await;
    let seen = seen.unwrap_or_else(|_| {
        world.problem("the driver did not end");
        serde_json::Map::new()
    });
    // The last message may be on its way still.
    let is_said = timeout(SETTLE_TIME, async {
        while world.is_waited_for() {
            tokio::task::yield_now().await;
        }
    });
    let _ = is_said.await;
    host.shut_down();
    let (problems, requests) = world.verdict(&seen);
    if problems.is_empty() {
        return json!({"feature": feature, "name": name, "verdict": "passed"});
    }
    json!({"feature": feature, "name": name, "verdict": "failed", "problems": problems, "requests": requests})
}

/// Waits as long as the scenario says before anybody listens.
async fn until_listening(world: &World) {
    let later = &world.scenario["listen"];
    if let Some(signal) = later["after"].as_str() {
        let _is_set = world.wait(signal).await;
        // Nobody can see a connection that failed, so time has to do: too little of it lets a scenario pass that should not,
        // and never fails one.
        sleep(Duration::from_millis(later["then_ms"].as_u64().unwrap_or(0))).await;
    }
}

fn listen_unix(host: &Arc<Host>, world: &Arc<World>, path: PathBuf) -> Endpoint {
    let endpoint = Endpoint::Unix(path.clone());
    let (host, world) = (Arc::clone(host), Arc::clone(world));
    let is_later = world.scenario["listen"].is_object();
    let at_once = (!is_later).then(|| UnixListener::bind(&path).unwrap());
    tokio::spawn(async move {
        let listener = match at_once {
            Some(listener) => listener,
            None => {
                until_listening(&world).await;
                // The scenario may be over, and its folder gone.
                let Ok(listener) = UnixListener::bind(path) else { return };
                listener
            }
        };
        let mut cut = world.scenario["cut_connections"].as_u64().unwrap_or(0);
        while let Ok((stream, _)) = listener.accept().await {
            if cut > 0 {
                cut -= 1;
                continue;
            }
            local::serve_stream(&host, stream);
        }
    });
    endpoint
}

/// A port where nobody listens until the scenario says so, before the sidecar's own.
async fn listen_tcp(host: &Arc<Host>, world: &Arc<World>) -> Endpoint {
    let token = world.scenario["token"].as_str().unwrap().as_bytes().to_vec();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let own = local::listen_tcp(host, any, Token::new(token.clone())).await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(any).unwrap();
    let endpoint = Endpoint::Tcp { addr: socket.local_addr().unwrap(), token };
    let world = Arc::clone(world);
    let is_later = world.scenario["listen"].is_object();
    let (socket, at_once) =
        if is_later { (Some(socket), None) } else { (None, Some(socket.listen(64).unwrap())) };
    tokio::spawn(async move {
        let listener = match (at_once, socket) {
            (Some(listener), _) => listener,
            (None, socket) => {
                until_listening(&world).await;
                socket.expect("it is one of both").listen(64).unwrap()
            }
        };
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(own).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    endpoint
}

/// Scenarios that are played at once.
const AT_ONCE: usize = 16;
/// Longest time for the steps of one scenario.
const STEPS_TIME: Duration = Duration::from_secs(40);
/// Longest time for what follows the last step; only a failing scenario takes so long.
const SETTLE_TIME: Duration = Duration::from_secs(5);
