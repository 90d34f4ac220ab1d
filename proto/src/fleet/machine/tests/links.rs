//! Candidates, links, and whom a sidecar dials, drops and lets go.

use std::collections::BTreeSet;

use super::*;

fn opened(number: u8) -> Input {
    let fence = Fence { incarnation: 1, journal: journal(number) };
    Input::LinkOpened { agent: agent(number), fence: Some(fence) }
}

fn let_go(sidecar: &mut Sidecar) -> Vec<(Agent, LetGoWhy)> {
    let outputs = sidecar.take().into_iter().filter_map(|output| match output {
        Output::LetGo { agent, why } => Some((agent, why)),
        _ => None,
    });
    outputs.collect()
}

#[test]
fn nobody_is_dialled_whom_no_call_wants() {
    let mut sidecar = Sidecar::watching();
    sidecar.until(100_000);
    assert!(sidecar.dialled().is_empty());
}

#[test]
fn a_wanted_name_dials_three_of_its_members_in_an_order_of_the_callers_own() {
    let members: Vec<u8> = (10..20).collect();
    let sidecar = Sidecar::wanting(&members);
    assert_eq!(sidecar.dialled().len(), 3);
    let other = Config { identity: Arc::new(identity(77)), membership: member(77).into(), ..config() };
    let mut other = Sidecar::of(other);
    other.tell_page(&Prefix::Revocations, page(1, Vec::new()));
    other.handle(Input::Want(name()));
    other.tell_page(&whole_name(), page(1, members.iter().map(|number| item(*number, 1)).collect()));
    assert_eq!(other.dialled().len(), 3);
    assert_ne!(sidecar.dialled(), other.dialled());
}

#[test]
fn one_more_is_dialled_once_all_have_much_to_do() {
    let mut sidecar = Sidecar::wanting(&[10, 11, 12, 13, 14]);
    let first = sidecar.dialled();
    sidecar.handle(Input::Busy(name()));
    sidecar.handle(Input::Busy(name()));
    assert_eq!(sidecar.dialled().len(), 4);
    assert_eq!(sidecar.dialled()[..3], first);
}

#[test]
fn our_own_registration_is_no_candidate() {
    let sidecar = Sidecar::wanting(&[2, 3]);
    assert_eq!(sidecar.known().into_keys().collect::<Vec<_>>(), [agent(3)]);
}

#[test]
fn a_failed_dial_is_tried_elsewhere_at_once_and_there_again_after_a_pause() {
    let mut sidecar = Sidecar::wanting(&[10, 11, 12, 13]);
    let dialled = sidecar.dialled();
    sidecar.take();
    sidecar.handle(Input::DialFailed(dialled[0]));
    let elsewhere = sidecar.dialled();
    assert!(elsewhere.len() == 1 && !dialled.contains(&elsewhere[0]));
    sidecar.handle(Input::DialFailed(elsewhere[0]));
    sidecar.take();
    sidecar.until(1_000);
    assert!(sidecar.dialled().contains(&dialled[0]) || sidecar.dialled().contains(&elsewhere[0]));
}

/// Lets time pass in a fleet where only `alive` answers, and every other dial ends without a word after ten seconds. Returns
/// when the living one was dialled, and how many dials began by then. **Units:** milliseconds.
fn answered_at_ms(sidecar: &mut Sidecar, alive: Agent) -> (u64, usize) {
    let mut pending = BTreeMap::new();
    let mut dials = 0;
    loop {
        for agent in std::mem::take(&mut sidecar.said).into_iter().filter_map(|output| match output {
            Output::Dial { agent, .. } => Some(agent),
            _ => None,
        }) {
            dials += 1;
            if agent == alive {
                return (sidecar.now_ms, dials);
            }
            assert_eq!(
                pending.insert(agent, sidecar.now_ms + 10_000),
                None,
                "one dial for each agent at a time"
            );
        }
        assert!(sidecar.now_ms < 60_000, "nobody dialled the living one");
        sidecar.until(sidecar.now_ms + 100);
        let now_ms = sidecar.now_ms;
        for (agent, _) in pending.extract_if(.., |_, ends_ms| *ends_ms <= now_ms).collect::<Vec<_>>() {
            sidecar.handle(Input::DialFailed(agent));
        }
    }
}

#[test]
fn the_living_one_of_thirty_is_dialled_while_a_call_still_waits() {
    let members: Vec<u8> = (10..40).collect();
    let mut sidecar = Sidecar::wanting(&members);
    let last = sidecar.machine.candidates(&name())[members.len() - 1].registration.agent;
    let (at_ms, dials) = answered_at_ms(&mut sidecar, last);
    assert_eq!(dials, members.len(), "nobody is dialled again before everybody was");
    assert!(at_ms <= 40_000, "the living one was dialled after {at_ms} ms");
}

#[test]
fn dead_members_cost_a_call_a_second_each_time() {
    let members: Vec<u8> = (10..20).collect();
    let mut sidecar = Sidecar::wanting(&members);
    let fifth = sidecar.machine.candidates(&name())[4].registration.agent;
    let (at_ms, _) = answered_at_ms(&mut sidecar, fifth);
    assert!(at_ms <= 1_100, "the living one was dialled after {at_ms} ms");
}

#[test]
fn a_slow_dial_fills_its_place_once_somebody_answers_or_many_are_slow() {
    let members: Vec<u8> = (10..60).collect();
    let mut sidecar = Sidecar::wanting(&members);
    sidecar.until(9_000);
    let without = sidecar.dialled().len();
    assert!((6..=12).contains(&without), "{without} dials are under way");
    let mut sidecar = Sidecar::wanting(&members);
    let first = sidecar.dialled()[0];
    sidecar.handle(Input::LinkOpened { agent: first, fence: None });
    sidecar.until(9_000);
    assert_eq!(sidecar.dialled().len(), 3);
}

fn given_up(sidecar: &mut Sidecar) -> Vec<Agent> {
    let outputs = sidecar.take().into_iter().filter_map(|output| match output {
        Output::GiveUp { agent } => Some(agent),
        _ => None,
    });
    outputs.collect()
}

#[test]
fn dials_are_given_up_once_others_have_filled_all_places() {
    let members: Vec<u8> = (10..20).collect();
    let mut sidecar = Sidecar::wanting(&members);
    sidecar.until(1_000);
    let dialled = sidecar.dialled();
    assert_eq!(dialled.len(), 6);
    sidecar.handle(Input::LinkOpened { agent: dialled[0], fence: None });
    sidecar.handle(Input::LinkOpened { agent: dialled[3], fence: None });
    // A call wants this very one.
    sidecar.handle(Input::Reach { name: name(), agent: dialled[1] });
    assert_eq!(given_up(&mut sidecar), []);
    sidecar.handle(Input::LinkOpened { agent: dialled[4], fence: None });
    let spare: BTreeSet<_> = [dialled[2], dialled[5]].into();
    assert_eq!(given_up(&mut sidecar).into_iter().collect::<BTreeSet<_>>(), spare);
    // It is no failure of theirs: they are the next to be dialled.
    for agent in &spare {
        sidecar.handle(Input::DialFailed(*agent));
    }
    sidecar.handle(Input::DialFailed(dialled[1]));
    sidecar.handle(Input::LinkClosed(dialled[0]));
    let again: BTreeSet<_> = sidecar.dialled().into_iter().collect();
    assert!(again.len() == 1 && again.is_subset(&spare), "{again:?} of {spare:?}");
}

#[test]
fn whom_a_call_waits_for_is_dialled_again_sooner_than_for_a_place() {
    let mut sidecar = Sidecar::wanting(&[10]);
    let dialled = sidecar.dialled()[0];
    let mut at_ms = Vec::new();
    sidecar.handle(Input::DialFailed(dialled));
    while at_ms.len() < 8 {
        assert!(sidecar.now_ms < 600_000, "dialled only at {at_ms:?}");
        sidecar.until(sidecar.now_ms + 100);
        sidecar.handle(Input::Reach { name: name(), agent: dialled });
        sidecar.handle(Input::Reach { name: name(), agent: dialled });
        if sidecar.take().iter().any(|output| matches!(output, Output::Dial { .. })) {
            at_ms.push(sidecar.now_ms);
            sidecar.handle(Input::DialFailed(dialled));
        }
    }
    let pauses: Vec<_> = at_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| (1_000..=8_100).contains(pause)), "{pauses:?}");
    // Without a call it is a minute by now.
    sidecar.take();
    sidecar.until(sidecar.now_ms + 29_000);
    assert_eq!(sidecar.dialled(), []);
}

#[test]
fn who_vanishes_is_tried_last_and_dropped_once_it_does_not_answer() {
    let mut sidecar = Sidecar::wanting(&[3, 4]);
    sidecar.change(&whole_name(), delete(5, 3));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), false), (agent(4), true)]));
    let last = sidecar.machine.candidates(&name()).last().unwrap().registration.agent;
    assert_eq!(last, agent(3));
    sidecar.handle(Input::DialFailed(agent(3)));
    assert!(sidecar.known().contains_key(&agent(3)), "one failure may be the network's");
    sidecar.handle(Input::DialFailed(agent(3)));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(4), true)]));
}

#[test]
fn who_vanishes_is_dropped_after_ten_minutes_unless_a_link_stands() {
    let mut sidecar = Sidecar::wanting(&[3, 4, 5]);
    sidecar.handle(opened(3));
    sidecar.change(&whole_name(), delete(5, 3));
    sidecar.change(&whole_name(), delete(6, 4));
    for minute in 1..=9 {
        sidecar.until(minute * 60_000);
        sidecar.handle(Input::Want(name()));
        sidecar.change(&whole_name(), Change::Progress { revision: Revision(7) });
    }
    assert!(sidecar.known().contains_key(&agent(4)));
    sidecar.until(606_000);
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), false), (agent(5), true)]));
    // Nothing that the registry says closes a link.
    assert_eq!(let_go(&mut sidecar), []);
}

#[test]
fn when_many_vanish_at_once_nobody_is_dropped_by_the_clock() {
    let members: Vec<u8> = (10..20).collect();
    let mut sidecar = Sidecar::wanting(&members);
    sidecar.take();
    for (at, number) in (10..13).enumerate() {
        sidecar.change(&whole_name(), delete(5 + at as u64, number));
    }
    assert!(!sidecar.machine.is_frozen(), "three may go");
    sidecar.change(&whole_name(), delete(9, 13));
    assert!(sidecar.machine.is_frozen() && sidecar.said.contains(&Output::Frozen));
    // What is new is taken all the same.
    sidecar.change(&whole_name(), put(10, item(20, 10)));
    assert!(sidecar.known().contains_key(&agent(20)));
    sidecar.until(65_000);
    assert!(!sidecar.machine.is_frozen() && sidecar.said.contains(&Output::Thawed));
}

#[test]
fn links_that_stand_are_enough_while_the_registry_fills_again() {
    let mut sidecar = Sidecar::wanting(&[10, 11, 12, 13]);
    let linked = sidecar.dialled();
    for agent in &linked {
        sidecar.handle(Input::LinkOpened { agent: *agent, fence: None });
    }
    sidecar.take();
    for number in 10..14 {
        sidecar.change(&whole_name(), delete(5, number));
    }
    // Others are the first to register again.
    for number in 20..30 {
        sidecar.change(&whole_name(), put(6, item(number, 6)));
    }
    let ttl_ms = config().ttl_ms;
    sidecar.until(sidecar.now_ms + 2 * ttl_ms - 1);
    sidecar.change(&whole_name(), put(7, item(30, 7)));
    assert_eq!(sidecar.dialled(), []);
    sidecar.handle(Input::LinkClosed(linked[0]));
    assert_eq!(sidecar.dialled().len(), 1);
    // Who is not back after two leases' time makes room for those that are.
    sidecar.until(sidecar.now_ms + 1);
    sidecar.handle(Input::Want(name()));
    assert_eq!(sidecar.dialled().len(), 3);
}

#[test]
fn three_of_four_replicas_are_no_panic_and_four_of_a_hundred_neither() {
    let mut sidecar = Sidecar::wanting(&[10, 11, 12, 13]);
    for number in 10..13 {
        sidecar.change(&whole_name(), delete(5, number));
    }
    assert!(!sidecar.machine.is_frozen());
    let members: Vec<u8> = (100..160).collect();
    let mut sidecar = Sidecar::wanting(&members);
    for number in 100..109 {
        sidecar.change(&whole_name(), delete(5, number));
    }
    assert!(!sidecar.machine.is_frozen(), "9 of 60 are 15 %");
    sidecar.change(&whole_name(), delete(5, 109));
    assert!(sidecar.machine.is_frozen());
}

#[test]
fn nobody_new_is_dialled_while_revocations_are_unknown_or_too_old() {
    let mut sidecar = Sidecar::new();
    sidecar.handle(Input::Want(name()));
    sidecar.tell_page(&whole_name(), page(1, vec![item(3, 1)]));
    assert!(sidecar.dialled().is_empty(), "nobody has read who is revoked");
    assert_eq!(
        sidecar.machine.admit(&member(3), &agent(3), time(0)),
        Err(NotAdmitted::RevocationsTooOld(3_600_000))
    );
    sidecar.tell_page(&Prefix::Revocations, page(1, Vec::new()));
    sidecar.handle(Input::Want(name()));
    assert_eq!(sidecar.dialled(), [agent(3)]);
    assert!(sidecar.machine.admit(&member(3), &agent(3), time(0)).is_ok());
    // The registry goes away for more than an hour.
    sidecar.handle(opened(3));
    sidecar.change(&Prefix::Revocations, Change::Ended);
    sidecar.change(&whole_name(), Change::Ended);
    sidecar.now_ms = 3_600_001;
    assert!(sidecar.machine.admit(&member(3), &agent(3), time(sidecar.now_ms)).is_err());
    sidecar.take();
    sidecar.handle(Input::LinkClosed(agent(3)));
    sidecar.handle(Input::Want(name()));
    assert!(sidecar.dialled().is_empty());
}

#[test]
fn a_revoked_member_is_no_candidate_and_is_not_let_in() {
    let mut sidecar = Sidecar::wanting(&[3, 4]);
    let revocation = Revocation { agent: agent(3), cell: cell(), serial_min: 2, at_ms: WALL_MS };
    let path = Key::Revocation(agent(3)).path(&cell());
    let value = Some(revocation.sign(&authority()).into());
    sidecar.change(&Prefix::Revocations, put(5, Item { path: path.clone(), mark: mark(5), value }));
    assert!(sidecar.take().contains(&Output::Revoked(agent(3))));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(4), true)]));
    let refused = sidecar.machine.admit(&member(3), &agent(3), time(0)).unwrap_err();
    assert_eq!(refused, NotAdmitted::Membership(Refused::Revoked));
    // Whoever has the registry deletes the revocation, and the member registers again.
    sidecar.handle(Input::Missed(name()));
    assert!(sidecar.machine.admit(&member(3), &agent(3), time(0)).is_err());
}

#[test]
fn a_name_that_nobody_calls_is_watched_no_more_and_its_links_are_let_go() {
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.handle(opened(3));
    // Somebody else dialled us.
    sidecar.handle(opened(9));
    sidecar.take();
    for minute in 1..=9 {
        sidecar.until(minute * 60_000);
        sidecar.change_all(minute + 100);
    }
    assert_eq!(let_go(&mut sidecar), []);
    sidecar.until(606_000);
    assert_eq!(sidecar.machine.wanted().count(), 0);
    assert_eq!(let_go(&mut sidecar), [(agent(3), LetGoWhy::Idle)]);
}

#[test]
fn a_link_to_an_older_process_than_the_registry_knows_is_let_go() {
    let mut sidecar = Sidecar::watching();
    sidecar.handle(Input::Want(name()));
    let newer = value(&registration(3, 8, 1), 3);
    let items = vec![Item { value: Some(newer), ..item(3, 1) }];
    sidecar.tell_page(&whole_name(), page(1, items));
    sidecar.take();
    let fence = |incarnation| Some(Fence { incarnation, journal: journal(3) });
    sidecar.handle(Input::LinkOpened { agent: agent(3), fence: fence(7) });
    assert_eq!(let_go(&mut sidecar), [(agent(3), LetGoWhy::OldProcess { before: 8 })]);
    sidecar.handle(Input::LinkClosed(agent(3)));
    sidecar.handle(Input::LinkOpened { agent: agent(3), fence: fence(8) });
    assert_eq!(let_go(&mut sidecar), []);
}

#[test]
fn two_journals_of_one_agent_at_once_are_a_split() {
    let mut sidecar = Sidecar::wanting(&[3]);
    let with = |number| Input::LinkOpened {
        agent: agent(3),
        fence: Some(Fence { incarnation: 1, journal: journal(number) }),
    };
    sidecar.handle(with(3));
    sidecar.handle(with(3));
    assert!(!sidecar.machine.is_split(&agent(3)));
    sidecar.handle(with(4));
    assert!(sidecar.machine.is_split(&agent(3)));
    let journals = [journal(3), journal(4)];
    let split = Output::Split { agent: agent(3), journals, until_ms: 60_000, is_new: true };
    assert!(sidecar.said.contains(&split));
    sidecar.until(60_000);
    sidecar.handle(heard(4));
    assert!(!sidecar.machine.is_split(&agent(3)), "after two lives of a lease with one journal alone");
}

fn heard(number: u8) -> Input {
    Input::LinkHeard { agent: agent(3), journal: Some(journal(number)) }
}

/// What was said of splits: until when, and whether it was found just then.
fn splits(sidecar: &mut Sidecar) -> Vec<(u64, bool)> {
    let split = |output| match output {
        Output::Split { until_ms, is_new, .. } => Some((until_ms, is_new)),
        _ => None,
    };
    sidecar.take().into_iter().filter_map(split).collect()
}

#[test]
fn a_split_lasts_while_both_journals_live_and_is_found_once() {
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.handle(Input::LinkOpened { agent: agent(3), fence: None });
    // A process that the registry does not know names a journal all the same.
    sidecar.handle(heard(3));
    sidecar.handle(heard(4));
    assert_eq!(splits(&mut sidecar), [(60_000, true)]);
    for second in [20, 40, 60, 80, 100] {
        sidecar.until(second * 1_000);
        sidecar.handle(heard(3));
        sidecar.handle(heard(4));
        let said = splits(&mut sidecar);
        assert!(said.iter().all(|(_, is_new)| !is_new), "{said:?}");
        assert_eq!(said.last(), Some(&(second * 1_000 + 60_000, false)));
    }
    // One of them is gone.
    for second in [120, 140, 159] {
        sidecar.until(second * 1_000);
        sidecar.handle(heard(4));
        assert!(sidecar.machine.is_split(&agent(3)), "at {second} s");
    }
    sidecar.until(160_000);
    sidecar.handle(heard(4));
    assert!(!sidecar.machine.is_split(&agent(3)));
    assert_eq!(splits(&mut sidecar), []);
    // It comes back.
    sidecar.handle(heard(3));
    assert_eq!(splits(&mut sidecar), [(220_000, true)]);
}

#[test]
fn links_that_alternate_between_two_processes_are_one_finding() {
    let mut sidecar = Sidecar::wanting(&[3]);
    for second in 0..50 {
        sidecar.until(second * 1_000);
        let fence = Some(Fence { incarnation: 1, journal: journal(3 + (second % 3) as u8) });
        sidecar.handle(Input::LinkOpened { agent: agent(3), fence });
    }
    let said = splits(&mut sidecar);
    assert_eq!(said.iter().filter(|(_, is_new)| *is_new).count(), 1, "{said:?}");
}

#[test]
fn a_provider_that_drains_keeps_its_place_in_the_list_and_gets_no_link() {
    let mut sidecar = Sidecar::watching();
    sidecar.handle(Input::Want(name()));
    let draining = Registration { state: State::Draining, ..registration(3, 1, 1) };
    let items = vec![Item { value: Some(value(&draining, 3)), ..item(3, 1) }, item(4, 1)];
    sidecar.tell_page(&whole_name(), page(1, items));
    assert_eq!(sidecar.known().len(), 2);
    assert_eq!(sidecar.dialled(), [agent(4)]);
}

#[test]
fn our_own_zone_comes_first_if_two_are_there() {
    let ranked = |zones: &[(u8, &str)]| {
        let mut sidecar = Sidecar::of(Config { zone: Some("a".to_owned()), ..config() });
        sidecar.tell_page(&Prefix::Revocations, page(1, Vec::new()));
        sidecar.handle(Input::Want(name()));
        let items = zones.iter().map(|(number, zone)| {
            let zoned = Registration { zone: Some((*zone).to_owned()), ..registration(*number, 1, 1) };
            Item { value: Some(value(&zoned, *number)), ..item(*number, 1) }
        });
        sidecar.tell_page(&whole_name(), page(1, items.collect()));
        let candidates = sidecar.machine.candidates(&name()).into_iter();
        candidates.map(|candidate| candidate.registration.zone.clone().unwrap()).collect::<Vec<_>>()
    };
    let near = ranked(&[(10, "b"), (11, "a"), (12, "b"), (13, "a"), (14, "b")]);
    assert_eq!(near[..2], ["a", "a"]);
    let orders = (20..40).map(|number| ranked(&[(number, "a"), (41, "b"), (42, "b")]));
    assert!(orders.into_iter().any(|order| order[0] == "b"), "one alone would carry all of its zone");
}

#[test]
fn a_cache_lets_calls_begin_while_the_registry_is_away() {
    let before = Sidecar::wanting(&[3, 4]);
    let items: Vec<_> = before.machine.to_cache().map(|(path, value)| (path, value.clone())).collect();
    assert_eq!(items.len(), 2);
    let restarted = |saved_ms| {
        let mut sidecar = Sidecar::new();
        sidecar.handle(Input::Cached { saved_ms, items: items.clone() });
        sidecar.handle(Input::Want(name()));
        sidecar
    };
    let mut sidecar = restarted(WALL_MS - 60_000);
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), false), (agent(4), false)]));
    assert_eq!(sidecar.dialled().len(), 2);
    // The registry is back and has only one of them.
    sidecar.tell_page(&whole_name(), page(1, vec![item(3, 1)]));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true), (agent(4), false)]));
    // Revocations fail closed.
    let sidecar = restarted(WALL_MS - 3_600_001);
    assert!(sidecar.known().len() == 2 && sidecar.dialled().is_empty());
}

#[test]
fn a_forged_value_is_refused_and_takes_the_place_of_nobody() {
    let mut sidecar = Sidecar::wanting(&[3]);
    let stranger = Identity::from_seed([200; 32]);
    let membership = Membership {
        agent: stranger.public_key().into(),
        cell: cell(),
        serves: vec!["*".parse().unwrap()],
        not_before_ms: 0,
        not_after_ms: WALL_MS * 2,
        serial: 1,
    };
    let forged = Registration { agent: stranger.public_key().into(), ..registration(3, 1, 1) };
    let value = forged.sign(&stranger, &membership.sign(&stranger).unwrap()).unwrap();
    let path = Key::registration(name(), forged.agent).path(&cell());
    let item = Item { path, mark: mark(5), value: Some(value.into()) };
    sidecar.take();
    sidecar.change(&whole_name(), put(5, item));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true)]));
    let refused = sidecar.take().into_iter().find_map(|output| match output {
        Output::Refused { why, .. } => Some(why.why()),
        _ => None,
    });
    assert_eq!(refused, Some("membership"));
}

#[test]
fn a_registration_that_runs_out_is_suspect_and_a_membership_that_does_is_the_end() {
    let mut sidecar = Sidecar::watching();
    sidecar.handle(Input::Want(name()));
    let short = Registration { not_after_ms: WALL_MS + 20_000, ..registration(3, 1, 1) };
    let until = Membership {
        agent: agent(4),
        cell: cell(),
        serves: vec!["*".parse().unwrap()],
        not_before_ms: 0,
        not_after_ms: WALL_MS + 20_000,
        serial: 1,
    };
    let ended = registration(4, 1, 1).sign(&identity(4), &until.sign(&authority()).unwrap()).unwrap();
    let items = vec![
        Item { value: Some(value(&short, 3)), ..item(3, 1) },
        Item { value: Some(ended.into()), ..item(4, 1) },
    ];
    sidecar.tell_page(&whole_name(), page(1, items));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true), (agent(4), true)]));
    sidecar.until(26_000);
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), false)]));
}

#[test]
fn a_forged_key_under_a_wrong_shard_says_nothing_of_its_honest_agent() {
    let mut sidecar = Sidecar::wanting(&[3]);
    let honest = crate::fleet::Shard::of(&agent(3));
    let shard = crate::fleet::Shard::all().find(|shard| *shard != honest).unwrap();
    let path = Key::Registration { name: name(), shard, agent: agent(3) }.path(&cell());
    sidecar.take();
    let forged = Item { path: path.clone(), ..item(3, 5) };
    sidecar.change(&whole_name(), put(5, forged));
    let refused = sidecar.take();
    assert!(refused.iter().any(|output| matches!(output, Output::Refused { why: Refused::OtherPlace, .. })));
    sidecar.change(&whole_name(), Change::Delete { revision: Revision(6), path });
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true)]));
}

#[test]
fn a_second_name_of_one_registration_does_not_end_the_pause_before_the_next_dial() {
    let other: CapabilityName = "org.example.b".parse().unwrap();
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.handle(Input::DialFailed(agent(3)));
    sidecar.take();
    sidecar.handle(Input::Want(other.clone()));
    let same = Registration { name: other.clone(), ..registration(3, 1, 1) };
    let path = Key::registration(other.clone(), agent(3)).path(&cell());
    let of_other = |registration: &Registration, revision| Item {
        path: path.clone(),
        mark: mark(revision),
        value: Some(value(registration, 3)),
    };
    let prefix = Prefix::Name(other.clone(), None);
    sidecar.tell_page(&prefix, page(2, vec![of_other(&same, 2)]));
    assert!(sidecar.dialled().is_empty());
    // A later word is a reason to try.
    let later = Registration { generation: 2, ..same };
    sidecar.change(&prefix, put(3, of_other(&later, 3)));
    assert_eq!(sidecar.dialled(), [agent(3)]);
}

#[test]
fn a_dial_that_fails_takes_nothing_away_from_a_link_that_the_agent_opened_meanwhile() {
    let mut sidecar = Sidecar::wanting(&[3]);
    assert_eq!(sidecar.dialled(), [agent(3)]);
    sidecar.handle(opened(3));
    sidecar.change(&whole_name(), delete(5, 3));
    sidecar.take();
    sidecar.handle(Input::DialFailed(agent(3)));
    sidecar.handle(Input::DialFailed(agent(3)));
    sidecar.handle(Input::Want(name()));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), false)]));
    assert!(sidecar.dialled().is_empty(), "the link stands");
}
