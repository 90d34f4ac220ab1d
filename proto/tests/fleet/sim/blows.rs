//! A misfortune in, what it does to the world out.

use bytes::Bytes;
use capd_proto::cbor::Writer;
use capd_proto::fleet::machine::Input;
use capd_proto::fleet::{Agent, Fence, Key, Membership, Registration, Revocation, Served, Shard, State};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;

use super::plan::{Blow, Forgery};
use super::process::Disk;
use super::world::{DAY_MS, Event, WALL_MS, World, address, cell, host, name};

pub(super) fn strike(world: &mut World, blow: Blow) {
    let now_ms = world.now_ms;
    match blow {
        Blow::StaleLists { for_ms, behind } => world.stale = (now_ms + for_ms, behind),
        Blow::SlowWatches { for_ms } => world.slow_until_ms = now_ms + for_ms,
        Blow::Repeated { agent } => repeat(world, agent),
        Blow::Silence { agent } => {
            if let Some(pid) = world.process_of(agent) {
                let process = &mut world.processes[pid];
                process.is_stream_dead = !process.watches.is_empty();
            }
        }
        Blow::Ended { agent } => {
            if let Some(pid) = world.process_of(agent) {
                world.end_watches(pid);
            }
        }
        Blow::Compact => world.store.compact(),
        Blow::Restore => {
            let backup = world.backups.last().cloned();
            if let Some(backup) = backup {
                world.store.restore(backup, now_ms);
                end_all_watches(world);
                revoke_again(world);
            }
        }
        Blow::Wipe => {
            world.store.wipe();
            world.backups.clear();
            end_all_watches(world);
            revoke_again(world);
        }
        Blow::LoseLast => {
            world.store.lose_last();
            end_all_watches(world);
            revoke_again(world);
        }
        Blow::ExpireAll => {
            let before = world.store.history.len();
            world.store.end_all_leases();
            world.publish(before);
        }
        Blow::Away { for_ms } => {
            world.away_until_ms = now_ms + for_ms;
            world.store.start_again();
            end_all_watches(world);
        }
        Blow::Full { for_ms } => world.full_until_ms = now_ms + for_ms,
        Blow::WrongLeader { agent } => world.agents[agent].meets_wrong_leader = true,
        Blow::Pause { agent, for_ms } => {
            if let Some(pid) = world.process_of(agent) {
                world.pause(pid, now_ms + for_ms);
            }
        }
        Blow::Restart { agent, after_ms, wiped } => restart(world, agent, after_ms, wiped),
        Blow::Overtake { agent, wakes_ms } => {
            if let Some(pid) = world.process_of(agent) {
                world.pause(pid, now_ms + wakes_ms);
                let (disk, host) = (world.processes[pid].disk, format!("{}-new", host(agent)));
                world.start(agent, disk, &host);
            }
        }
        Blow::Clone { agent } => {
            if let Some(pid) = world.process_of(agent) {
                let copy = world.disks[world.processes[pid].disk].clone();
                world.disks.push(copy);
                let host = format!("{}-copy-{}", host(agent), world.disks.len());
                world.start(agent, world.disks.len() - 1, &host);
            }
        }
        Blow::CutFromRegistry { agent, for_ms } => {
            world.agents[agent].cut_until_ms = now_ms + for_ms;
            for pid in 0..world.processes.len() {
                if world.processes[pid].agent == agent {
                    world.soon(1_000, 15_000, Event::EndWatches { pid });
                }
            }
        }
        Blow::CutPeers { one, other, for_ms } => world.cut_peers.push((one, other, now_ms + for_ms)),
        Blow::Forge { agent, kind } => forge(world, agent, kind),
        Blow::Move { agent } => move_away(world, agent),
        Blow::Drain { agent } => {
            if let Some(pid) = world.process_of(agent) {
                world.processes[pid].offer.state = State::Draining;
                offer(world, pid);
            }
        }
        Blow::Revoke { agent } => {
            world.agents[agent].is_revoked = true;
            revoke(world, agent);
        }
        Blow::Skew { agent, by_ms } => {
            if let Some(pid) = world.process_of(agent) {
                world.processes[pid].skew_ms = by_ms / 2;
            }
        }
    }
}

fn end_all_watches(world: &mut World) {
    for pid in 0..world.processes.len() {
        world.end_watches(pid);
    }
}

/// A known fault of old registries: the change before comes again, behind a later one.
fn repeat(world: &mut World, agent: usize) {
    let Some(pid) = world.process_of(agent) else { return };
    let Some(event) = world.store.history.iter().rev().nth(1).cloned() else { return };
    let of = world.processes[pid].watches.iter();
    let watches: Vec<_> =
        of.filter(|(_, watch)| event.path.starts_with(&watch.prefix)).map(|(id, _)| *id).collect();
    for watch in watches {
        world.report_event(pid, watch, &event);
    }
}

fn restart(world: &mut World, agent: usize, after_ms: u64, wiped: bool) {
    let Some(pid) = world.process_of(agent) else { return };
    world.processes[pid].is_alive = false;
    world.processes[pid].watches.clear();
    let disk = world.processes[pid].disk;
    if wiped {
        let journal = JournalId(std::array::from_fn(|_| world.rng.next() as u8));
        world.disks[disk] = Disk { incarnation: 0, journal };
    }
    let at_ms = world.now_ms + after_ms;
    world.at(at_ms, Event::Start { agent, disk, host: host(agent) });
}

/// An agent moves, and another one is where it was.
fn move_away(world: &mut World, agent: usize) {
    let Some(pid) = world.process_of(agent) else { return };
    let old = world.processes[pid].offer.addresses.clone();
    world.processes[pid].offer.addresses = vec![address(&format!("{}-moved", host(agent)))];
    offer(world, pid);
    let other = (agent + 1) % world.agents.len();
    if let Some(other) = world.process_of(other).filter(|other| *other != pid) {
        world.processes[other].offer.addresses = old;
        offer(world, other);
    }
}

fn offer(world: &mut World, pid: usize) {
    let offered = world.processes[pid].offer.clone();
    world.handle(pid, Input::Offered(offered));
}

fn revoke(world: &mut World, agent: usize) {
    let agent = world.agents[agent].agent;
    let revocation = Revocation { agent, cell: cell(), serial_min: 2, at_ms: WALL_MS + world.now_ms };
    let value = revocation.sign(&world.authority);
    put_raw(world, Key::Revocation(agent).path(&cell()), value);
}

/// Whoever wipes or restores a registry writes its revocations anew.
fn revoke_again(world: &mut World) {
    for agent in 0..world.agents.len() {
        if world.agents[agent].is_revoked {
            revoke(world, agent);
        }
    }
}

fn put_raw(world: &mut World, path: String, value: impl Into<Bytes>) {
    let before = world.store.history.len();
    world.store.put_raw(path, value.into());
    world.publish(before);
}

/// Somebody who can write everywhere writes what nobody may believe.
fn forge(world: &mut World, agent: usize, kind: Forgery) {
    let facts = &world.agents[agent];
    let (identity, membership, agent) = (facts.identity.clone(), facts.membership.clone(), facts.agent);
    let key = Key::registration(name(0), agent);
    let wall_ms = WALL_MS + world.now_ms;
    let registration = Registration {
        agent,
        cell: cell(),
        name: name(0),
        fence: Fence { incarnation: 1_000, journal: JournalId([9; 16]) },
        generation: 1,
        addresses: vec![address("rogue")],
        versions: vec![Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: 0 }],
        made_at_ms: wall_ms,
        not_after_ms: wall_ms + DAY_MS,
        zone: None,
        state: State::Serving,
    };
    let rogue = Identity::from_seed([250; 32]);
    let stranger: Agent = rogue.public_key().into();
    let honest = |of: &Registration| of.sign(&identity, &membership).unwrap();
    let (path, value) = match kind {
        Forgery::OtherKey => (key.path(&cell()), registration.sign(&rogue, &membership).unwrap()),
        Forgery::WrongName => (
            key.path(&cell()),
            honest(&Registration { name: "org.example.other".parse().unwrap(), ..registration }),
        ),
        Forgery::WrongShard => {
            let shard = Shard::all().find(|shard| *shard != Shard::of(&agent)).unwrap();
            let key = Key::Registration { name: name(0), shard, agent };
            (key.path(&cell()), honest(&registration))
        }
        Forgery::Expired => {
            let old = Registration {
                made_at_ms: wall_ms - 2 * DAY_MS,
                not_after_ms: wall_ms - DAY_MS,
                ..registration
            };
            (key.path(&cell()), honest(&old))
        }
        Forgery::ForeignMembership => {
            let own = Membership {
                agent: stranger,
                cell: cell(),
                serves: vec!["*".parse().unwrap()],
                not_before_ms: 0,
                not_after_ms: wall_ms + DAY_MS,
                serial: 9,
            };
            let value = Registration { agent: stranger, ..registration };
            let value = value.sign(&rogue, &own.sign(&rogue).unwrap()).unwrap();
            (Key::registration(name(0), stranger).path(&cell()), value)
        }
        Forgery::TooLong => (key.path(&cell()), vec![0; 3_000]),
        Forgery::NotCanonical => {
            let value = honest(&registration);
            let mut long = Vec::new();
            Writer::new(&mut long).raw(&[0x98, 3]).raw(&value[1..]);
            (key.path(&cell()), long)
        }
        Forgery::Replay => {
            let path = key.path(&cell());
            let of = world.store.history.iter().filter(|event| event.path == path);
            let first = of.filter_map(|event| event.item.as_ref()?.value.clone()).next();
            let Some(value) = first else { return };
            (path, value.to_vec())
        }
    };
    put_raw(world, path, value);
}
