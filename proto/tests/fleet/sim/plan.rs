//! A seed in, a fleet and its misfortunes out.

use super::rng::Rng;

/// A part of the rules that is left out, for the oracle to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Registers whoever asks.
    NoFence,
    /// Takes watches up again by revision.
    ResumeByRevision,
    /// Believes older records than it has seen.
    IncarnationUnchecked,
}

/// What befalls a fleet. Numbers are of agents, unless they are times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Lists answer as of some changes ago, for a while.
    StaleLists {
        for_ms: u64,
        behind: u64,
    },
    /// Changes come late, for a while.
    SlowWatches {
        for_ms: u64,
    },
    /// The last change comes twice, behind a later one.
    Repeated {
        agent: usize,
    },
    /// The watches of an agent say nothing more, and do not end.
    Silence {
        agent: usize,
    },
    /// The watches of an agent end.
    Ended {
        agent: usize,
    },
    Compact,
    /// The registry starts again as it was some time ago, and says nothing of it.
    Restore,
    Wipe,
    /// The registry starts again without its last change, which was acknowledged.
    LoseLast,
    /// All leases end at once.
    ExpireAll,
    /// The registry answers nobody, for a while.
    Away {
        for_ms: u64,
    },
    /// The registry refuses to write, for a while.
    Full {
        for_ms: u64,
    },
    /// A renewal is told that its lease is gone, though it lives.
    WrongLeader {
        agent: usize,
    },
    /// A process does nothing for a while, and then goes on.
    Pause {
        agent: usize,
        for_ms: u64,
    },
    /// A process dies, and another starts on its disk after a while.
    Restart {
        agent: usize,
        after_ms: u64,
        wiped: bool,
    },
    /// A process starts on a disk whose former process is paused, and that one wakes up later.
    Overtake {
        agent: usize,
        wakes_ms: u64,
    },
    /// A second process starts on a copy of the disk.
    Clone {
        agent: usize,
    },
    /// An agent reaches no registry, for a while.
    CutFromRegistry {
        agent: usize,
        for_ms: u64,
    },
    /// Two agents reach each other no more, for a while.
    CutPeers {
        one: usize,
        other: usize,
        for_ms: u64,
    },
    /// Somebody writes what it has no right to.
    Forge {
        agent: usize,
        kind: Forgery,
    },
    /// An agent moves, and another one takes its address.
    Move {
        agent: usize,
    },
    Drain {
        agent: usize,
    },
    Revoke {
        agent: usize,
    },
    /// Its clock goes wrong by so much.
    Skew {
        agent: usize,
        by_ms: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    OtherKey,
    WrongName,
    WrongShard,
    Expired,
    ForeignMembership,
    TooLong,
    NotCanonical,
    /// What the agent itself once registered.
    Replay,
}

/// One world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub agents: usize,
    pub names: usize,
    pub blows: Vec<(u64, Blow)>,
    /// Whether a dial that nobody answers may take seconds to end. By the seed itself, so that all other worlds are as they
    /// were before there was this.
    pub has_slow_dials: bool,
    pub breaks: Option<Break>,
}

impl Plan {
    pub fn of(seed: u64, breaks: Option<Break>) -> Self {
        let mut rng = Rng::new(seed);
        let agents = rng.between(3, 6) as usize;
        let names = rng.between(1, 2) as usize;
        let count = rng.between(2, 7);
        let mut blows: Vec<_> =
            (0..count).map(|_| (rng.between(5_000, BLOWS_MS), blow(&mut rng, agents))).collect();
        blows.sort_by_key(|(at_ms, _)| *at_ms);
        Self { agents, names, blows, has_slow_dials: seed % 4 == 3, breaks }
    }
}

fn blow(rng: &mut Rng, agents: usize) -> Blow {
    let agent = rng.index(agents);
    let for_ms = rng.between(2_000, 70_000);
    match rng.index(24) {
        0 => Blow::StaleLists { for_ms, behind: rng.between(1, 8) },
        1 => Blow::SlowWatches { for_ms },
        2 => Blow::Repeated { agent },
        3 => Blow::Silence { agent },
        4 => Blow::Ended { agent },
        5 => Blow::Compact,
        6 => Blow::Restore,
        7 => Blow::Wipe,
        8 => Blow::LoseLast,
        9 => Blow::ExpireAll,
        10 => Blow::Away { for_ms },
        11 => Blow::Full { for_ms },
        12 => Blow::WrongLeader { agent },
        13 => Blow::Pause { agent, for_ms },
        14 => Blow::Restart { agent, after_ms: for_ms / 2, wiped: rng.percent(30) },
        15 => Blow::Overtake { agent, wakes_ms: for_ms },
        16 => Blow::Clone { agent },
        17 => Blow::CutFromRegistry { agent, for_ms },
        18 => Blow::CutPeers { one: agent, other: rng.index(agents), for_ms },
        19 => Blow::Forge { agent, kind: forgery(rng) },
        20 => Blow::Move { agent },
        21 => Blow::Drain { agent },
        22 => Blow::Revoke { agent },
        _ => Blow::Skew { agent, by_ms: rng.between(0, 480_000) as i64 - 240_000 },
    }
}

fn forgery(rng: &mut Rng) -> Forgery {
    match rng.index(8) {
        0 => Forgery::OtherKey,
        1 => Forgery::WrongName,
        2 => Forgery::WrongShard,
        3 => Forgery::Expired,
        4 => Forgery::ForeignMembership,
        5 => Forgery::TooLong,
        6 => Forgery::NotCanonical,
        _ => Forgery::Replay,
    }
}

/// Blows fall until then. **Units:** milliseconds.
pub const BLOWS_MS: u64 = 120_000;
/// All is well from then on.
pub const CALM_MS: u64 = BLOWS_MS + 72_000;
/// And by then every directory has to be right: a silent watch is found after 80 s, and then 2 TTL + 12 s.
pub const END_MS: u64 = CALM_MS + 80_000 + 72_000;
