//! Every state of a feed against every input, and what comes of lists and watches.

use std::fmt::Write as _;

use super::super::feed::{Feed, News};
use super::super::step::{Dice, Step};
use super::*;

const INPUTS: &[&str] = &[
    "Page nothing",
    "Page 3",
    "Page 3, 4",
    "Page 4, more",
    "Page 3 anew",
    "Page of another store",
    "Page of 65",
    "Page of 17 anew",
    "Compacted",
    "Lost",
    "Started",
    "Started, other store",
    "Put 5",
    "Put 3 below",
    "Delete 3",
    "Delete 9",
    "Progress",
    "Progress below",
    "Ended",
    "Timeout 10s",
    "Break",
];

const STATES: &[(&str, &[&str])] = &[
    ("Listing values", &[]),
    ("Listing values, compacted before", &["Compacted"]),
    ("Listing values, second page", &["Page 4, more"]),
    ("Resting at first", &["Lost"]),
    ("Watching", &["Page 3"]),
    ("Resting later", &["Page 3", "Ended"]),
    ("Listing keys", &["Page 3", "Ended", "Timeout 10s"]),
    ("Fetching", &["Page 3", "Ended", "Timeout 10s", "Page 3 anew"]),
    ("Listing values again", &["Page 3", "Ended", "Timeout 10s", "Page of 17 anew"]),
];

fn of_members(revision: u64, numbers: std::ops::Range<u8>) -> Page {
    page(revision, numbers.map(|number| bare(number, revision)).collect())
}

/// A key without its value, as most of these tests need it.
fn bare(number: u8, revision: u64) -> Item {
    let value = Some(Bytes::from(vec![number]));
    Item { path: path(number), mark: mark(revision), value }
}

struct Reader {
    config: Config,
    feed: Feed,
    now_ms: u64,
    said: VecDeque<Output>,
    news: Vec<String>,
}

impl Reader {
    fn after(steps: &[&str]) -> Self {
        let config = config();
        let mut said = VecDeque::new();
        let mut step = Step { config: &config, now: time(0), dice: Dice(0), out: &mut said };
        let feed = Feed::begin(whole_name(), FeedId(1), Some(64), &mut step);
        let mut reader = Self { config, feed, now_ms: 0, said, news: Vec::new() };
        for name in steps {
            reader.handle(name);
        }
        reader
    }

    fn handle(&mut self, name: &str) {
        self.said.clear();
        self.now_ms += if name == "Timeout 10s" { 10_000 } else { 0 };
        let now = time(self.now_ms);
        let mut step = Step { config: &self.config, now, dice: Dice(0), out: &mut self.said };
        let told = |page| Ok(Told::Page(page));
        let revision = |revision| Revision(revision);
        let mut change = |change| self.feed.change(change, &mut step).unwrap_or_default();
        let news = match name {
            "Started" => change(Change::Started { store: STORE, revision: revision(10) }),
            "Started, other store" => {
                change(Change::Started { store: StoreId { id: 2, era: 1 }, revision: revision(10) })
            }
            "Put 5" => change(put(11, bare(5, 11))),
            "Put 3 below" => change(put(9, bare(3, 9))),
            "Delete 3" => change(delete(11, 3)),
            "Delete 9" => change(delete(11, 9)),
            "Progress" => change(Change::Progress { revision: revision(10) }),
            "Progress below" => change(Change::Progress { revision: revision(9) }),
            "Ended" => change(Change::Ended),
            "Page nothing" => self.feed.told(told(page(10, Vec::new())), &mut step),
            "Page 3" => self.feed.told(told(of_members(10, 3..4)), &mut step),
            "Page 3, 4" => self.feed.told(told(of_members(10, 3..5)), &mut step),
            "Page 4, more" => {
                let page = Page { has_more: true, count: 2, ..of_members(10, 4..5) };
                self.feed.told(told(page), &mut step)
            }
            "Page 3 anew" => self.feed.told(told(of_members(12, 3..4)), &mut step),
            "Page of another store" => {
                let page = Page { store: StoreId { id: 2, era: 1 }, ..of_members(10, 3..4) };
                self.feed.told(told(page), &mut step)
            }
            "Page of 65" => self.feed.told(told(Page { count: 65, ..of_members(10, 3..4) }), &mut step),
            "Page of 17 anew" => self.feed.told(told(of_members(12, 3..20)), &mut step),
            "Compacted" => self.feed.told(Err(EngineError::Compacted), &mut step),
            "Lost" => self.feed.told(Err(EngineError::Lost), &mut step),
            "Timeout 10s" => {
                self.feed.timeout(&mut step);
                Vec::new()
            }
            "Break" => {
                self.feed.break_off(&mut step);
                Vec::new()
            }
            other => panic!("no such input: {other}"),
        };
        self.news = news.iter().map(told_of).collect();
    }

    fn shown(&self) -> String {
        let due = self.feed.deadline_ms().map_or("never".to_owned(), |due_ms| due_ms.to_string());
        let said: Vec<_> = self.said.iter().map(shown).chain(self.news.iter().cloned()).collect();
        format!("→ {:<8} due {due:<5}  {}", self.feed.state_name(), said.join("; "))
    }
}

fn shown(output: &Output) -> String {
    match output {
        Output::Ask { ask: Ask::List { prefix, after, at, values }, .. } => {
            let what = if matches!(prefix, Prefix::One(_)) { "get one" } else { "list" };
            let values = if *values { "values" } else { "keys" };
            let after = if after.is_some() { " behind" } else { "" };
            format!("{what} {values}{after} at {:?}", at.map(|Revision(at)| at))
        }
        Output::Watch { after: Revision(after), .. } => format!("watch after {after}"),
        Output::Unwatch(_) => "unwatch".to_owned(),
        other => format!("{other:?}"),
    }
}

fn told_of(news: &News) -> String {
    let number = |path: &str| (1..20).find(|number| self::path(*number) == path);
    match news {
        News::Put { path, .. } => format!("+{}", number(path).unwrap()),
        News::Gone { path, .. } => format!("-{}", number(path).unwrap()),
        News::Complete { count, .. } => format!("complete, {count}"),
        News::TooMany => "too many".to_owned(),
    }
}

#[test]
fn every_state_meets_every_input() {
    let mut table = String::new();
    for (state, steps) in STATES {
        writeln!(table, "{state}").unwrap();
        let start = Reader::after(steps);
        assert!(state.starts_with(start.feed.state_name()), "{state} is {}", start.feed.state_name());
        for name in INPUTS {
            let mut reader = Reader::after(steps);
            reader.handle(name);
            writeln!(table, "    {name:<21} {}", reader.shown()).unwrap();
        }
        writeln!(table).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_watch_is_never_taken_up_again_by_its_revision() {
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.change(&whole_name(), put(50, item(4, 50)));
    sidecar.change(&whole_name(), Change::Ended);
    sidecar.take();
    // The registry was restored meanwhile: it is behind where it was, and nobody says so.
    sidecar.until(10_000);
    let (_, ask) = sidecar.listed(&whole_name()).expect("listed after at most ten seconds");
    assert_eq!(ask, Ask::List { prefix: whole_name(), after: None, at: None, values: false });
    sidecar.tell_page(&whole_name(), page(20, vec![item(3, 1)]));
    assert_eq!(sidecar.watched(&whole_name()).map(|(_, after)| after), Some(Revision(20)));
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true), (agent(4), false)]));
}

#[test]
fn a_value_put_anew_while_nobody_watched_is_fetched_alone() {
    let mut sidecar = Sidecar::wanting(&[3, 4]);
    sidecar.change(&whole_name(), Change::Ended);
    sidecar.until(10_000);
    let anew = Registration { addresses: vec![address(99)], ..registration(4, 2, 1) };
    let moved = Item { path: path(4), mark: mark(8), value: Some(value(&anew, 4)) };
    sidecar.tell_page(&whole_name(), page(9, vec![item(3, 1), Item { value: None, ..moved.clone() }]));
    let one = Prefix::One(Key::registration(name(), agent(4)));
    let (_, ask) = sidecar.listed(&one).expect("fetched");
    assert_eq!(ask, Ask::List { prefix: one.clone(), after: None, at: Some(Revision(9)), values: true });
    sidecar.tell_page(&one, page(9, vec![moved]));
    let candidates = sidecar.machine.candidates(&name());
    let moved = candidates.iter().find(|candidate| candidate.registration.agent == agent(4)).unwrap();
    assert_eq!(moved.registration.addresses, [address(99)]);
}

#[test]
fn changes_of_a_watch_that_is_over_say_nothing() {
    let mut sidecar = Sidecar::wanting(&[3]);
    let (old, _) = sidecar.watched(&whole_name()).unwrap();
    sidecar.change(&whole_name(), Change::Ended);
    sidecar.until(10_000);
    sidecar.tell_page(&whole_name(), page(60, vec![item(3, 1)]));
    sidecar.handle(Input::Change { watch: old, change: delete(61, 3) });
    assert_eq!(sidecar.known(), BTreeMap::from([(agent(3), true)]));
}

#[test]
fn a_silent_registry_is_asked_and_then_listed_again() {
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.until(59_999);
    sidecar.take();
    sidecar.until(60_000);
    assert_eq!(sidecar.take(), [Output::Probe]);
    sidecar.until(70_000);
    assert_eq!(sidecar.machine.stale_since_ms(), Some(0));
    sidecar.until(80_000);
    assert!(sidecar.listed(&whole_name()).is_some() && sidecar.listed(&Prefix::Revocations).is_some());
    sidecar.tell_page(&Prefix::Revocations, page(70, Vec::new()));
    sidecar.tell_page(&whole_name(), page(70, vec![item(3, 1)]));
    assert_eq!(sidecar.machine.stale_since_ms(), None);
}

#[test]
fn an_answer_to_the_probe_keeps_every_watch() {
    let mut sidecar = Sidecar::wanting(&[3]);
    sidecar.until(60_000);
    sidecar.change(&whole_name(), Change::Progress { revision: Revision(5) });
    sidecar.take();
    sidecar.until(110_000);
    assert!(sidecar.listed(&whole_name()).is_none() && !sidecar.said.contains(&Output::Probe));
}

#[test]
fn of_a_large_name_two_shards_are_watched_and_more_once_nobody_answers() {
    let mut sidecar = Sidecar::watching();
    sidecar.handle(Input::Want(name()));
    let first = Page { count: 65, has_more: true, ..page(1, vec![item(3, 1)]) };
    sidecar.tell_page(&whole_name(), first);
    let shards = |sidecar: &Sidecar| {
        let feeds = sidecar.machine.feeds().map(|(prefix, _)| prefix.clone());
        feeds.filter(|prefix| matches!(prefix, Prefix::Name(_, Some(_)))).count()
    };
    assert_eq!(shards(&sidecar), 2);
    assert!(sidecar.known().is_empty(), "what the abandoned list said is listed again by shard");
    for watched in [4, 8, 16, 16] {
        sidecar.handle(Input::Missed(name()));
        assert_eq!(shards(&sidecar), watched);
    }
}

#[test]
fn a_name_that_has_grown_large_is_watched_in_part_and_nobody_leaves_for_that() {
    let mut sidecar = Sidecar::wanting(&(100..150).collect::<Vec<_>>());
    for number in 0..100 {
        sidecar.change(&whole_name(), put(2, item(number, 2)));
    }
    let linked = sidecar.dialled();
    for agent in &linked {
        sidecar.handle(Input::LinkOpened { agent: *agent, fence: None });
    }
    sidecar.until(6_000);
    let shards: Vec<_> = sidecar.machine.feeds().map(|(prefix, _)| prefix.clone()).collect();
    assert_eq!(shards.iter().filter(|prefix| matches!(prefix, Prefix::Name(_, Some(_)))).count(), 2);
    assert!(!shards.contains(&whole_name()));
    assert!(linked.iter().all(|agent| sidecar.known().contains_key(agent)));
    assert!(!sidecar.machine.is_frozen());
    assert!(!sidecar.said.iter().any(|output| matches!(output, Output::LetGo { .. })));
}

#[test]
fn a_list_without_an_end_is_given_up() {
    let mut sidecar = Sidecar::new();
    let mut listed = 0;
    loop {
        let bare = |number| Item { path: format!("/{number:09}"), mark: mark(1), value: None };
        let items = (listed..listed + 5_000).map(bare).collect();
        listed += 5_000;
        sidecar.take();
        let id = AskId::Feed(FeedId(1), listed / 5_000);
        let page = Page { has_more: true, ..page(1, items) };
        sidecar.handle(Input::Told { id, told: Ok(Told::Page(page)) });
        if sidecar.listed(&Prefix::Revocations).is_none() {
            break;
        }
    }
    assert_eq!(listed, 25_000);
    assert_eq!(sidecar.machine.feeds().map(|(_, state)| state).collect::<Vec<_>>(), ["Resting"]);
    assert_eq!(sidecar.machine.revocations_age_ms(0), None, "who is revoked is not known");
}
