//! A listed peer whose schemas and results take long to check in; an honest peer's slowest PINGs beside those when nobody
//! attacks, out.
//!
//! The attackers are another machine's, so they run when neither the sidecar nor the honest peer wants a processor. What the
//! sidecar itself does for them counts.

use crate::support::Setup;
use crate::world::{Crowd, World};
use crate::{Args, Bar};

/// How much slower PINGs may be.
const SLOWER_MAX: f64 = 2.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let time = args.size(20_000, 300).to_string();
    let mut attackers = Crowd::elsewhere("schemas", args.size(usize::MAX, 1));
    let said = attackers.line();
    let (did, address) = said.split_once(' ').expect("DID ADDRESS");
    let setup = Setup::new().peer_serving(did, &[address], &["*"]);
    let world = World::start(setup, std::time::Duration::ZERO);
    let mut honest = Crowd::gather("ping", &world, 1);
    honest.ask(&time);
    let idle = Pings::of(&honest.ask(&time));
    attackers.tell(world.sidecar.socket.to_str().expect("a path of ours"));
    assert_eq!(attackers.line(), "begun");
    let before = attackers.count();
    let attacked = Pings::of(&honest.ask(&time));
    let checked = attackers.count() - before;
    let slower = attacked.p99_us / idle.p99_us;
    vec![Bar {
        what: format!("a peer's {checked} results, each the worst for its schema: p99 of an honest PING"),
        found: format!(
            "{:.0} µs, {slower:.2} times the {:.0} µs when nobody attacks; p50 {:.0} µs beside {:.0} µs; {} and {} PINGs",
            attacked.p99_us, idle.p99_us, attacked.p50_us, idle.p50_us, attacked.count, idle.count
        ),
        bar: "at most 2 times",
        is_met: slower <= SLOWER_MAX,
    }]
}

/// What an honest peer found.
struct Pings {
    p50_us: f64,
    p99_us: f64,
    count: u64,
}

impl Pings {
    fn of(said: &str) -> Self {
        let words: Vec<_> = said.split(' ').collect();
        let [p50, p99, count] = words[..] else { panic!("{said:?}") };
        Self { p50_us: p50.parse().unwrap(), p99_us: p99.parse().unwrap(), count: count.parse().unwrap() }
    }
}
