//! What happens to an etcd, and what sidecars make of it.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use capd::fleet::disk::Disk;
use capd::fleet::engine::Engine as _;
use capd_proto::fleet::engine::{Ask, Change, EngineError, Revision, Told};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Fence, Key, Prefix};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::contract;
use super::member::{agent, cell, name, offer};
use super::proxy::Mode;
use super::server::Programs;
use super::tls::{
    a_role_that_is_revoked_loses_nothing, an_agent_can_touch_no_key_of_another,
    rights_that_capctl_prints_are_enough, who_shows_no_certificate_or_anothers_is_not_let_in,
};
use super::world::{TTL_MS, World, seconds, within};

pub type Scenario = fn(Programs) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! scenarios {
    ($($scenario:ident),* $(,)?) => { &[$((stringify!($scenario), |programs| Box::pin($scenario(programs)))),*] };
}

/// Every scenario with its name.
pub const ALL: &[(&str, Scenario)] = scenarios![
    it_is_a_registry_that_a_driver_can_rely_on,
    a_name_with_many_keys_is_listed_in_pages_of_one_revision,
    what_is_compacted_is_said_to_be,
    a_kill_loses_nothing,
    a_stop_for_longer_than_leases_live_loses_nothing,
    a_process_that_stands_still_is_noticed,
    a_wiped_store_is_filled_again,
    another_cluster_in_its_place_is_filled_again,
    a_restored_backup_is_noticed_though_nobody_says_so,
    a_restored_backup_that_has_passed_the_old_revision_is_noticed,
    compaction_while_cut_off_loses_nothing,
    a_slow_etcd_loses_nothing,
    a_connection_that_swallows_everything_is_given_up,
    no_permission_loses_nothing,
    a_full_store_loses_nothing,
    many_who_vanish_at_once_freeze_the_registry,
    a_provider_that_leaves_is_no_candidate,
    the_later_process_of_an_identity_fences_the_earlier_one,
];

/// Those with TLS, which has to be TLS 1.3.
pub const WITH_TLS: &[(&str, Scenario)] = scenarios![
    rights_that_capctl_prints_are_enough,
    an_agent_can_touch_no_key_of_another,
    a_role_that_is_revoked_loses_nothing,
    who_shows_no_certificate_or_anothers_is_not_let_in,
];

async fn it_is_a_registry_that_a_driver_can_rely_on(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let engines = [world.engine(agent(1)).await, world.engine(agent(2)).await];
    contract::holds(|of| engines[usize::from(of != agent(1))].clone()).await;
}

async fn a_name_with_many_keys_is_listed_in_pages_of_one_revision(programs: Programs) {
    const AGENTS: u16 = 1_203;
    let world = World::start(&programs, &[]).await;
    // One connection for all, as those who register do not matter here.
    let engine = world.engine(agent(1)).await;
    let fence = Fence { incarnation: 1, journal: JournalId([1; 16]) };
    assert_eq!(engine.ask(Ask::Claim { fence, read: None }).await, Ok(Told::Done));
    let registered = (0..AGENTS).map(|number| {
        let mut seed = [77; 32];
        seed[..2].copy_from_slice(&number.to_be_bytes());
        let agent = Identity::from_seed(seed).public_key().into();
        let puts = vec![(Key::registration(name(), agent), Bytes::from(vec![1; 600]))];
        engine.ask(Ask::Register { fence, ttl_ms: 600_000, puts })
    });
    let registered: Vec<_> = futures_util::stream::iter(registered).buffer_unordered(32).collect().await;
    assert!(registered.iter().all(Result::is_ok), "{registered:?}");

    let (mut after, mut at, mut found, mut pages) = (None, None, Vec::new(), 0);
    loop {
        let ask = Ask::List { prefix: Prefix::Name(name(), None), after, at, values: true };
        let Ok(Told::Page(page)) = engine.ask(ask).await else { panic!("no page") };
        assert_eq!(page.count > 0, pages == 0 || page.has_more || !page.items.is_empty());
        assert_eq!(at.unwrap_or(page.revision), page.revision);
        pages += 1;
        found.extend(page.items.into_iter().map(|item| item.path));
        (after, at) = (found.last().cloned(), Some(page.revision));
        if pages == 1 {
            world.server.ctl(&["put", &Key::registration(name(), agent(9)).path(&cell()), "late"]);
        }
        if !page.has_more {
            break;
        }
    }
    assert_eq!((found.len(), pages), (usize::from(AGENTS), 3));
    assert!(found.is_sorted());
}

async fn what_is_compacted_is_said_to_be(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let engine = world.engine(agent(1)).await;
    for value in ["a", "b", "c"] {
        world.server.ctl(&["put", "nothing", value]);
    }
    let revision = world.server.revision();
    world.server.ctl(&["compaction", &revision.to_string()]);
    let prefix = Prefix::Name(name(), None);
    let at = Some(Revision(revision - 1));
    let ask = Ask::List { prefix: prefix.clone(), after: None, at, values: true };
    assert_eq!(engine.ask(ask).await, Err(EngineError::Compacted));

    let (to, mut reports) = mpsc::channel(8);
    let reporting = tokio::spawn(std::sync::Arc::clone(&engine).report(to));
    engine.watch(WatchId::numbered(1), prefix.clone(), Revision(revision - 2));
    engine.watch(WatchId::numbered(2), prefix, Revision(revision));
    let (mut ended, mut started) = (false, false);
    while !(ended && started) {
        let report = timeout(Duration::from_secs(30), reports.recv()).await.unwrap().unwrap();
        match report {
            (of, Change::Ended) if of == WatchId::numbered(1) => ended = true,
            (of, Change::Started { .. }) => started |= of == WatchId::numbered(2),
            other => panic!("{other:?}"),
        }
    }
    reporting.abort();
}

async fn a_kill_loses_nothing(programs: Programs) {
    let mut world = World::start(&programs, &[]).await;
    let fleet = world.fleet(5).await;
    for _ in 0..2 {
        world.server.kill();
        fleet.keeps(within("the caller knows that it may be behind", || fleet.is_stale())).await;
        world.run().await;
        fleet.keeps(fleet.recovers()).await;
    }
    is_still_told_of_news(&world, &fleet).await;
}

async fn a_stop_for_longer_than_leases_live_loses_nothing(programs: Programs) {
    let mut world = World::start(&programs, &[]).await;
    let fleet = world.fleet(5).await;
    world.server.stop().await;
    fleet.keeps(seconds(2 * TTL_MS / 1_000 + 1)).await;
    assert!(fleet.is_stale() && fleet.providers.iter().all(|provider| provider.said("Lapsed")));
    let error = fleet.caller.fleet.status().engine.error.clone();
    assert!(error.is_some(), "its health says that etcd does not answer");
    world.run().await;
    fleet.keeps(fleet.recovers()).await;
    is_still_told_of_news(&world, &fleet).await;
}

async fn a_process_that_stands_still_is_noticed(programs: Programs) {
    let mut world = World::start(&programs, &[]).await;
    let fleet = world.fleet(3).await;
    world.server.pause(true);
    fleet.keeps(within("the caller knows that it may be behind", || fleet.is_stale())).await;
    fleet.keeps(seconds(5)).await;
    world.server.pause(false);
    fleet.keeps(fleet.recovers()).await;
    is_still_told_of_news(&world, &fleet).await;
}

async fn a_wiped_store_is_filled_again(programs: Programs) {
    wiped(programs, "one").await;
}

async fn another_cluster_in_its_place_is_filled_again(programs: Programs) {
    wiped(programs, "other").await;
}

async fn wiped(programs: Programs, token: &str) {
    let mut world = World::start(&programs, &[]).await;
    let fleet = world.fleet(5).await;
    let fences: Vec<_> = fleet.providers.iter().map(|provider| provider.fleet.status().fence).collect();
    world.server.stop().await;
    world.server.wipe(token);
    world.run().await;
    fleet.keeps(within("everybody is registered again", || (2..7).all(|number| world.has(number)))).await;
    fleet.keeps(fleet.recovers()).await;
    let since: Vec<_> = fleet.providers.iter().map(|provider| provider.fleet.status().fence).collect();
    assert_eq!(fences, since, "a lost lease is no new process");
    is_still_told_of_news(&world, &fleet).await;
}

async fn a_restored_backup_is_noticed_though_nobody_says_so(programs: Programs) {
    restored(programs, 0).await;
}

async fn a_restored_backup_that_has_passed_the_old_revision_is_noticed(programs: Programs) {
    restored(programs, 40).await;
}

/// etcd comes back with what it knew before half of the fleet was there, under the same id, and with a smaller revision; or,
/// by the time that anybody looks, with a larger one.
async fn restored(programs: Programs, puts: u32) {
    let mut world = World::start(&programs, &[]).await;
    let early = world.fleet(3).await;
    let before = world.server.revision();
    world.server.stop().await;
    world.server.backup();
    world.run().await;
    early.recovers().await;
    let mut fleet = early;
    for number in 5..8 {
        let provider = world.member(number).await;
        provider.fleet.offer(offer(number));
        fleet.providers.push(provider);
    }
    within("the later ones are listed", || fleet.listed() == 6).await;
    for number in 5..8 {
        fleet.caller.fleet.link_opened(agent(number), None);
    }
    let after = world.server.revision();
    world.proxy.set(Mode::Cut);
    world.server.stop().await;
    world.server.restore();
    world.run().await;
    let restored = world.server.revision();
    assert!(before <= restored && restored < after, "revision {before}, later {after}, restored {restored}");
    assert!(!world.has(5), "the backup is older than this provider");
    for _ in 0..puts {
        world.server.ctl(&["put", "elsewhere", "x"]);
    }
    assert_eq!(puts > 0, world.server.revision() > after);
    world.proxy.set(Mode::Through);
    fleet.keeps(within("everybody is registered again", || (2..8).all(|number| world.has(number)))).await;
    fleet.keeps(fleet.recovers()).await;
    is_still_told_of_news(&world, &fleet).await;
}

async fn compaction_while_cut_off_loses_nothing(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let mut fleet = world.fleet(3).await;
    // Compaction under a living watch is nothing to it.
    world.server.ctl(&["compaction", &world.server.revision().to_string()]);
    is_still_told_of_news(&world, &fleet).await;
    world.proxy.set(Mode::Cut);
    within("the caller knows that it may be behind", || fleet.is_stale()).await;
    for _ in 0..10 {
        world.server.ctl(&["put", "elsewhere", "x"]);
    }
    let revision = world.server.revision().to_string();
    world.server.ctl(&["compaction", "--physical", &revision]);
    world.proxy.set(Mode::Through);
    fleet.keeps(fleet.recovers()).await;
    let late = world.member(9).await;
    late.fleet.offer(offer(9));
    fleet.providers.push(late);
    within("a later one is listed", || fleet.listed() == 4).await;
}

async fn a_slow_etcd_loses_nothing(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let fleet = world.fleet(3).await;
    world.proxy.set(Mode::Late(Duration::from_secs(10)));
    fleet.keeps(within("leases lapse", || fleet.providers.iter().all(|of| of.said("Lapsed")))).await;
    fleet.keeps(seconds(15)).await;
    world.proxy.set(Mode::Through);
    fleet.keeps(fleet.recovers()).await;
    is_still_told_of_news(&world, &fleet).await;
}

async fn a_connection_that_swallows_everything_is_given_up(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let fleet = world.fleet(3).await;
    for mode in [Mode::Lost, Mode::Mute] {
        world.proxy.set(mode);
        fleet.keeps(within("the caller knows that it may be behind", || fleet.is_stale())).await;
        world.proxy.set(Mode::Through);
        fleet.keeps(fleet.recovers()).await;
    }
    is_still_told_of_news(&world, &fleet).await;
}

async fn no_permission_loses_nothing(programs: Programs) {
    let mut world = World::start(&programs, &[]).await;
    let mut fleet = world.fleet(3).await;
    world.server.ctl(&["user", "add", "root:secret"]);
    world.server.try_ctl(&["role", "add", "root"]);
    world.server.ctl(&["user", "grant-role", "root", "root"]);
    world.server.ctl(&["auth", "enable"]);
    world.server.login = vec!["--user=root:secret".into()];
    // etcd goes on with streams that are open: who comes later is told.
    let late = world.member(9).await;
    late.fleet.offer(offer(9));
    let is_told = || {
        let error = late.fleet.status().engine.error.clone();
        error.is_some_and(|error| error.contains("user name is empty"))
    };
    fleet.keeps(within("its health says so", is_told)).await;
    fleet.keeps(seconds(2 * TTL_MS / 1_000)).await;
    world.server.ctl(&["auth", "disable"]);
    world.server.login.clear();
    fleet.providers.push(late);
    fleet.recovers().await;
    assert!(!fleet.caller.said("LetGo"));
}

async fn a_full_store_loses_nothing(programs: Programs) {
    let world = World::start(&programs, &["--quota-backend-bytes=8388608"]).await;
    let mut fleet = world.fleet(3).await;
    let large = "x".repeat(100_000);
    let mut filled = 0;
    while world.server.try_ctl(&["put", &format!("fill/{filled}"), &large]).status.success() {
        filled += 1;
        assert!(filled < 1_000, "it is never full");
        // `etcdctl` holds this thread up, and leases are to be renewed.
        sleep(Duration::from_millis(5)).await;
    }
    assert!(world.server.ctl(&["alarm", "list"]).contains("NOSPACE"));
    // What is registered stays registered: a lease is renewed without space.
    fleet.keeps(seconds(2 * TTL_MS / 1_000)).await;
    assert!(fleet.listed() == 3 && fleet.is_current(), "{:?}", fleet.told());
    let late = world.member(9).await;
    late.fleet.offer(offer(9));
    within("its health says so", || {
        let error = late.fleet.status().engine.error.clone();
        error.is_some_and(|error| error.contains("database space exceeded"))
    })
    .await;
    world.server.ctl(&["del", "--prefix", "fill/"]);
    let revision = world.server.revision().to_string();
    world.server.ctl(&["compaction", "--physical", &revision]);
    world.server.ctl(&["defrag"]);
    world.server.ctl(&["alarm", "disarm"]);
    fleet.providers.push(late);
    within("it is listed once there is space", || fleet.listed() == 4).await;
    assert!(!fleet.caller.said("LetGo"));
}

async fn many_who_vanish_at_once_freeze_the_registry(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let fleet = world.fleet(6).await;
    let fences: Vec<_> = fleet.providers.iter().map(|of| of.fleet.status().fence.unwrap()).collect();
    fleet.providers.iter().for_each(super::member::Member::crash);
    fleet.keeps(within("it freezes", || fleet.caller.fleet.status().is_frozen)).await;
    assert!(fleet.caller.said("Frozen"));
    fleet.keeps(within("every lease ends", || fleet.listed() == 0)).await;
    let mut providers = Vec::new();
    for (number, fence) in (2..).zip(fences) {
        let provider = world.member_with(number, Disk::Memory(fence.incarnation)).await;
        provider.fleet.offer(offer(number));
        providers.push(provider);
    }
    let fleet = super::world::Fleet { caller: fleet.caller, providers };
    fleet.keeps(fleet.recovers()).await;
    fleet.keeps(within("it thaws", || !fleet.caller.fleet.status().is_frozen)).await;
    assert!(fleet.caller.said("Thawed"));
}

async fn a_provider_that_leaves_is_no_candidate(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let fleet = world.fleet(2).await;
    fleet.providers[0].fleet.leave().await;
    assert!(!world.has(2) && world.has(3));
    within("the caller knows", || fleet.listed() == 1).await;
    // Its link stands for as long as it answers.
    fleet.lost_nothing();
}

async fn the_later_process_of_an_identity_fences_the_earlier_one(programs: Programs) {
    let world = World::start(&programs, &[]).await;
    let first = world.member(2).await;
    first.fleet.offer(offer(2));
    within("it registers", || first.said("Registered")).await;
    let incarnation = first.fleet.status().fence.unwrap().incarnation;
    let second = world.member_with(2, Disk::Memory(incarnation)).await;
    second.fleet.offer(offer(2));
    within("the earlier one is fenced", || first.said("Fenced")).await;
    within("the later one registers", || second.said("Registered")).await;
    assert_eq!(first.fleet.status().fenced_by, second.fleet.status().fence);
}

/// A member that registers is told of at once.
async fn is_still_told_of_news(world: &World, fleet: &super::world::Fleet) {
    let before = fleet.listed();
    let newcomer = world.member(99).await;
    newcomer.fleet.offer(offer(99));
    within("a newcomer is listed", || fleet.listed() == before + 1).await;
    newcomer.fleet.leave().await;
    within("and is not once it has left", || fleet.listed() == before).await;
    // It never had a link, so that nothing is left of it in time.
    fleet.caller.fleet.dial_failed(agent(99));
    fleet.caller.fleet.dial_failed(agent(99));
    within("nothing is left of it", || {
        fleet.caller.fleet.candidates(&name()).is_some_and(|of| of.len() == before)
    })
    .await;
}
