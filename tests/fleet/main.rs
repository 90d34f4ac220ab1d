//! Fleets of real drivers over one simulated registry, in virtual time: members find each other, and nothing that the
//! registry does takes away what they know.

#![allow(clippy::unwrap_used, reason = "whatever a test is made of fails it")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]

#[path = "../../proto/tests/fleet/sim/store.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod store;

mod contract;
mod member;
mod simulated;

use std::time::Duration;

use capd::fleet::Event;
use capd::fleet::disk::Disk;
use capd_proto::fleet::machine::NotAdmitted;
use capd_proto::fleet::{Key, Refused, Revocation};
use tokio::time::sleep;

use member::{Member, agent, authority, cell, membership, name, offer, until};
use simulated::Registry;

/// A registry whose leases end.
fn registry() -> Registry {
    let registry = Registry::new(cell());
    tokio::spawn(registry.clone().expire());
    registry
}

async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn the_simulated_registry_is_one_that_a_driver_can_rely_on() {
    let registry = registry();
    contract::holds(|agent| registry.engine(agent)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_wants_a_name_is_told_to_dial_who_serves_it() {
    let registry = registry();
    let (caller, provider) = (Member::start(1, &registry), Member::start(2, &registry));
    assert!(caller.fleet.want(&name()).is_none(), "nobody wanted it before");
    until(|| caller.fleet.want(&name()).is_some_and(|of| of.is_empty())).await;
    provider.fleet.offer(offer(2));
    until(|| caller.dialled() == [agent(2)]).await;
    let candidates = caller.fleet.candidates(&name()).unwrap();
    assert_eq!(candidates[0].registration.addresses, offer(2).addresses);
    assert!(provider.said("Registered") && provider.said("Claimed"));
    let inspection = caller.fleet.inspect().await.unwrap();
    assert!(inspection.feeds.iter().all(|(_, state)| *state == "Watching"), "{inspection:?}");
    assert_eq!(inspection.status.candidates, 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_registry_takes_nothing_away() {
    let registry = registry();
    let (caller, provider) = (Member::start(1, &registry), Member::start(2, &registry));
    provider.fleet.offer(offer(2));
    caller.fleet.want(&name());
    until(|| caller.dialled() == [agent(2)]).await;
    caller.fleet.link_opened(agent(2), None);
    registry.set_away(true);
    until(|| caller.fleet.status().stale_since_ms.is_some()).await;
    seconds(1_200).await;
    // What it registered may be gone, and is for its owner to know.
    assert!(provider.said("Lapsed"));
    assert_eq!(caller.fleet.want(&name()).unwrap().len(), 1);
    assert!(!caller.said("LetGo"), "{:?}", caller.events());
    assert_eq!(caller.fleet.status().engine.error.as_deref(), Some("away"));
    registry.set_away(false);
    until(|| caller.fleet.status().stale_since_ms.is_none()).await;
    until(|| caller.fleet.candidates(&name()).unwrap()[0].is_listed()).await;
    assert_eq!(caller.dialled(), [agent(2)], "the link stood all the time");
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_is_wiped_or_restored_is_filled_again() {
    let registry = registry();
    let (caller, provider) = (Member::start(1, &registry), Member::start(2, &registry));
    caller.fleet.want(&name());
    until(|| provider.said("Claimed")).await;
    let before = registry.backup();
    provider.fleet.offer(offer(2));
    until(|| caller.dialled() == [agent(2)]).await;
    caller.fleet.link_opened(agent(2), None);
    let path = Key::registration(name(), agent(2)).path(&cell());
    // As etcd does, it says nothing of either to those who watch.
    registry.restore(before);
    until(|| registry.has(&path)).await;
    registry.wipe();
    until(|| registry.has(&path)).await;
    until(|| caller.fleet.status().stale_since_ms.is_none()).await;
    assert!(!caller.said("LetGo"));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_vanishes_at_once_is_kept_as_it_was() {
    let registry = registry();
    let caller = Member::start(1, &registry);
    caller.fleet.want(&name());
    let providers: Vec<_> = (2..8).map(|number| Member::start(number, &registry)).collect();
    (2..).zip(&providers).for_each(|(number, provider)| provider.fleet.offer(offer(number)));
    let candidates = || caller.fleet.candidates(&name()).unwrap_or_default();
    until(|| candidates().len() == 6).await;
    providers.iter().for_each(Member::crash);
    until(|| candidates().iter().all(|candidate| !candidate.is_listed())).await;
    assert!(caller.said("Frozen") && caller.fleet.status().is_frozen);
    assert_eq!(candidates().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_dies_in_silence_is_noticed_and_read_again() {
    let registry = registry();
    let (caller, provider) = (Member::start(1, &registry), Member::start(2, &registry));
    caller.fleet.want(&name());
    until(|| caller.fleet.status().watching == 2).await;
    registry.set_silent(true);
    provider.fleet.offer(offer(2));
    until(|| provider.said("Registered")).await;
    // The list is answered though the stream is dead.
    until(|| caller.fleet.candidates(&name()).is_some_and(|of| of.len() == 1)).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_withdraws_and_the_driver_ends() {
    let registry = registry();
    let provider = Member::start(2, &registry);
    provider.fleet.offer(offer(2));
    until(|| provider.said("Registered")).await;
    let path = Key::registration(name(), agent(2)).path(&cell());
    assert!(registry.has(&path));
    provider.fleet.leave().await;
    assert!(!registry.has(&path));
    assert_eq!(provider.fleet.status().registered, None);
    assert!(provider.fleet.inspect().await.is_none());
    // A second time there is nothing to wait for.
    provider.fleet.leave().await;
}

#[tokio::test(start_paused = true)]
async fn leaving_waits_two_seconds_for_a_registry_that_does_not_answer() {
    let registry = registry();
    let provider = Member::start(2, &registry);
    provider.fleet.offer(offer(2));
    until(|| provider.said("Registered")).await;
    registry.set_away(true);
    let begin = tokio::time::Instant::now();
    provider.fleet.leave().await;
    assert_eq!(begin.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_later_process_of_an_identity_fences_the_earlier_one() {
    let registry = registry();
    let first = Member::start(2, &registry);
    first.fleet.offer(offer(2));
    until(|| first.said("Registered")).await;
    let second =
        Member::start_with(2, &registry, Disk::Memory(first.fleet.status().fence.unwrap().incarnation));
    second.fleet.offer(offer(2));
    until(|| first.said("Fenced")).await;
    let status = first.fleet.status();
    assert_eq!((status.state, status.registered), ("Fenced", None));
    until(|| status.fenced_by == second.fleet.status().fence).await;
    until(|| second.said("Registered")).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_knew_serves_while_the_registry_is_away() {
    let registry = registry();
    let folder = tempfile::tempdir().unwrap();
    let disk = || Disk::Folder(folder.path().to_owned());
    let provider = Member::start(2, &registry);
    provider.fleet.offer(offer(2));
    let first = Member::start_with(1, &registry, disk());
    first.fleet.want(&name());
    until(|| first.dialled() == [agent(2)]).await;
    let fence = first.fleet.status().fence.unwrap();
    assert_eq!(disk().incarnation().unwrap(), fence.incarnation);
    registry.set_away(true);
    first.fleet.leave().await;

    let second = Member::start_with(1, &registry, disk());
    second.fleet.want(&name());
    until(|| second.dialled() == [agent(2)]).await;
    assert!(second.fleet.admit(&membership(2, 1), &agent(2)).is_ok());
    // Each restart would make the revocations young again if it counted from then on.
    seconds(1_800).await;
    second.fleet.leave().await;
    let third = Member::start_with(1, &registry, disk());
    seconds(1_790).await;
    assert!(third.fleet.admit(&membership(2, 1), &agent(2)).is_ok());
    seconds(20).await;
    let refused = third.fleet.admit(&membership(2, 1), &agent(2));
    assert_eq!(refused, Err(NotAdmitted::RevocationsTooOld(3_600_000)));
    registry.set_away(false);
    until(|| third.fleet.admit(&membership(2, 1), &agent(2)).is_ok()).await;
    until(|| third.fleet.status().fence.is_some_and(|later| later.incarnation > fence.incarnation)).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_revoked_is_let_in_no_more() {
    let registry = registry();
    let caller = Member::start(1, &registry);
    let refused = caller.fleet.admit(&membership(2, 1), &agent(2));
    assert_eq!(refused, Err(NotAdmitted::RevocationsTooOld(3_600_000)), "nothing is read yet");
    until(|| caller.fleet.admit(&membership(2, 1), &agent(2)).is_ok()).await;
    let revocation = Revocation { agent: agent(2), cell: cell(), serial_min: 2, at_ms: 1 };
    registry.put(Key::Revocation(agent(2)).path(&cell()), revocation.sign(&authority()));
    until(|| caller.said("Revoked")).await;
    let refused = caller.fleet.admit(&membership(2, 1), &agent(2));
    assert_eq!(refused, Err(NotAdmitted::Membership(Refused::Revoked)));
    assert!(caller.fleet.admit(&membership(2, 2), &agent(2)).is_ok(), "a later membership counts");
    assert!(caller.fleet.admit(&membership(3, 1), &agent(2)).is_err(), "another's does not");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_the_incarnation_is_on_disk() {
    let registry = registry();
    let folder = tempfile::tempdir().unwrap();
    let provider = Member::start_with(2, &registry, Disk::Folder(folder.path().join("missing")));
    provider.fleet.offer(offer(2));
    until(|| provider.said("Disk")).await;
    assert_eq!(registry.asked("claim"), 0);
    std::fs::create_dir(folder.path().join("missing")).unwrap();
    until(|| provider.said("Registered")).await;
    let told = provider.events().into_iter().find_map(|event| match event {
        Event::Disk(error) => Some(error.to_string()),
        _ => None,
    });
    assert!(told.unwrap().contains("fleet.incarnation: write: "));
}

#[tokio::test(start_paused = true)]
async fn a_denied_or_full_registry_is_asked_again_and_never_in_a_rush() {
    let registry = registry();
    let provider = Member::start(2, &registry);
    provider.fleet.offer(offer(2));
    until(|| provider.said("Registered")).await;
    for error in
        [capd_proto::fleet::engine::EngineError::Denied, capd_proto::fleet::engine::EngineError::Full]
    {
        registry.set_error(Some(error));
        let before = registry.asked("renew") + registry.asked("register") + registry.asked("read");
        seconds(120).await;
        let asked = registry.asked("renew") + registry.asked("register") + registry.asked("read") - before;
        assert!((4..=40).contains(&asked), "{asked} questions in two minutes");
        registry.set_error(None);
        let path = Key::registration(name(), agent(2)).path(&cell());
        until(|| registry.has(&path) && provider.fleet.status().registered.is_some()).await;
    }
}
