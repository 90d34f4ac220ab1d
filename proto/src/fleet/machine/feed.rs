//! Pages and changes of one prefix in, what stands under it out: lists, watches, and lists again after any break.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::step::Step;
use super::{AskId, Extent, FeedId, Output, WatchId};
use crate::fleet::engine::{Ask, Change, EngineError, Item, Mark, Page, Revision, StoreId, Told};
use crate::fleet::key::{Key, Prefix};

/// Where a feed stands.
///
/// ```text
///   Resting ──► Listing ──► Fetching ──► Watching
///      ▲          │ values that are new or differ
///      │          ├── more than a few: listed again, with values
///      └──────────┴── no answer, watch ended, revision or store went back
/// ```
///
/// A watch is never taken up again where it ended: after any break keys are listed and held against what is known, so that
/// a store that was restored, or that has compacted what was missed, is no special case. **Source:** FLEET 5.
#[derive(Debug)]
enum State {
    /// Waits to list.
    Resting { until_ms: u64 },
    /// Lists, page by page at the revision of the first.
    Listing(Listing),
    /// Fetches the values that are new or differ, one by one.
    Fetching { listing: Listing, left: VecDeque<String> },
    /// Takes changes of this watch.
    Watching { watch: WatchId, store: StoreId, revision: Revision },
}

#[derive(Debug, Default)]
struct Listing {
    values: bool,
    /// The first page's revision and store.
    at: Option<(Revision, StoreId)>,
    found: BTreeMap<String, Mark>,
}

/// As of when something is known: a revision, and when the list was begun that it follows from. A store that was restored
/// counts anew, so that the revision alone tells nothing of before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AsOf {
    pub(super) revision: Revision,
    pub(super) began_ms: u64,
}

/// What a feed reports to the machine, in order.
#[derive(Debug)]
pub(super) enum News {
    /// A value stands under a key.
    Put { path: String, as_of: AsOf, value: Bytes },
    /// A key is gone.
    Gone { path: String, as_of: AsOf },
    /// What stands is known as of now: so many keys.
    Complete { count: usize, as_of: AsOf },
    /// The first page says that more stands here than one feed should watch.
    TooMany,
}

/// One prefix that is listed and watched.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) prefix: Prefix,
    id: FeedId,
    state: State,
    /// The store that what is known is of, in whichever era.
    store: Option<u64>,
    known: BTreeMap<String, Mark>,
    /// Most keys that the first page may tell of.
    count_max: Option<u64>,
    /// When a whole list was last taken in. **Units:** milliseconds.
    completed_ms: Option<u64>,
    /// When the last list was begun. **Units:** milliseconds.
    began_ms: u64,
    failures: u32,
    asked: u64,
}

impl Feed {
    pub(super) fn begin(prefix: Prefix, id: FeedId, count_max: Option<u64>, step: &mut Step<'_>) -> Self {
        let state = State::Resting { until_ms: step.now.now_ms };
        let known = BTreeMap::new();
        let mut feed = Self {
            prefix,
            id,
            state,
            store: None,
            known,
            count_max,
            completed_ms: None,
            began_ms: 0,
            failures: 0,
            asked: 0,
        };
        feed.timeout(step);
        feed
    }

    pub(super) fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    pub(super) fn completed_ms(&self) -> Option<u64> {
        self.completed_ms
    }

    /// Whether what stands under the prefix was ever known whole.
    pub(super) const fn listing(&self) -> Extent {
        match (self.completed_ms, self.failures) {
            (Some(_), _) => Extent::Listed,
            (None, FAILURES_MIN..) => Extent::Unanswered,
            (None, _) => Extent::Listing,
        }
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            State::Resting { .. } => "Resting",
            State::Listing(_) => "Listing",
            State::Fetching { .. } => "Fetching",
            State::Watching { .. } => "Watching",
        }
    }

    pub(super) fn deadline_ms(&self) -> Option<u64> {
        match self.state {
            State::Resting { until_ms } => Some(until_ms),
            State::Listing(_) | State::Fetching { .. } | State::Watching { .. } => None,
        }
    }

    pub(super) fn awaits(&self, asked: u64) -> bool {
        self.asked == asked
    }

    pub(super) fn timeout(&mut self, step: &mut Step<'_>) {
        match self.state {
            State::Resting { until_ms } if step.now.now_ms >= until_ms => {
                self.began_ms = step.now.now_ms;
                // Values at first; later only those that differ, but for a single key.
                let values = self.completed_ms.is_none() || self.is_of_one_key();
                self.list(Listing { values, ..Listing::default() }, None, step);
            }
            State::Resting { .. } | State::Listing(_) | State::Fetching { .. } | State::Watching { .. } => {}
        }
    }

    /// Whoever watches one key is told what stands there by each list: it may have put something itself that the registry has
    /// lost since, so that what was known before stands again.
    const fn is_of_one_key(&self) -> bool {
        matches!(self.prefix, Prefix::One(_))
    }

    /// Ends whatever goes on, and lists again after a pause.
    pub(super) fn break_off(&mut self, step: &mut Step<'_>) {
        self.unwatch(step);
        // FLEET D6: many lose the registry at the same moment.
        self.state = State::Resting { until_ms: step.within(0, RELIST_MS_MAX) };
    }

    /// Ends the watch, if there is one.
    pub(super) fn unwatch(&self, step: &mut Step<'_>) {
        if let State::Watching { watch, .. } = self.state {
            step.send(Output::Unwatch(watch));
        }
    }

    pub(super) fn told(&mut self, told: Result<Told, EngineError>, step: &mut Step<'_>) -> Vec<News> {
        let state = std::mem::replace(&mut self.state, State::Resting { until_ms: step.now.now_ms });
        match (state, told) {
            (State::Listing(listing), Ok(Told::Page(page))) => self.page(listing, page, step),
            (State::Fetching { listing, left }, Ok(Told::Page(page))) => {
                self.fetched(listing, left, page, step)
            }
            // Pages took longer than the store keeps a revision: from the start, and at once the first time.
            (State::Listing(_) | State::Fetching { .. }, Err(EngineError::Compacted))
                if self.failures == 0 =>
            {
                self.failures = 1;
                self.timeout(step);
                Vec::new()
            }
            (State::Listing(_) | State::Fetching { .. }, Ok(_) | Err(_)) => {
                self.fail(step);
                Vec::new()
            }
            (state @ (State::Resting { .. } | State::Watching { .. }), _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// Whether a change is of the watch that stands.
    pub(super) fn is_of_watch(&self, of: WatchId) -> bool {
        matches!(self.state, State::Watching { watch, .. } if watch == of)
    }

    /// Takes in a change of the watch; `None` where the watch is over.
    pub(super) fn change(&mut self, change: Change, step: &mut Step<'_>) -> Option<Vec<News>> {
        let State::Watching { store, revision: last, .. } = &mut self.state else { return None };
        let revision = match &change {
            Change::Started { store: other, .. } if !is_history_of(*store, *other, step) => {
                return self.over(step);
            }
            Change::Started { revision, .. }
            | Change::Put { revision, .. }
            | Change::Delete { revision, .. }
            | Change::Progress { revision } => *revision,
            Change::Ended => return self.over(step),
        };
        // FLEET 5: a response below the last one is a store that went back, or one of etcd's known bugs.
        if revision < *last {
            return self.over(step);
        }
        *last = revision;
        Some(match change {
            Change::Put { item, .. } => self.put(item, revision).into_iter().collect(),
            Change::Delete { path, .. } => {
                let was_known = self.known.remove(&path).is_some();
                was_known.then_some(News::Gone { path, as_of: self.as_of(revision) }).into_iter().collect()
            }
            Change::Started { .. } | Change::Progress { .. } | Change::Ended => Vec::new(),
        })
    }

    /// Lists again after a pause, which grows with each failure.
    fn fail(&mut self, step: &mut Step<'_>) {
        self.failures += 1;
        let pause_ms = step.backoff_ms(self.failures, RELIST_MS_MAX);
        self.state = State::Resting { until_ms: step.now.now_ms + pause_ms };
    }

    const fn as_of(&self, revision: Revision) -> AsOf {
        AsOf { revision, began_ms: self.began_ms }
    }

    fn over(&mut self, step: &mut Step<'_>) -> Option<Vec<News>> {
        #[cfg(feature = "test-hooks")]
        if step.config.breaks.resumes_by_revision
            && let State::Watching { store, revision, .. } = self.state
        {
            let found = BTreeMap::new();
            self.watch(&Listing { values: false, at: Some((revision, store)), found }, step);
            return None;
        }
        self.break_off(step);
        None
    }

    fn put(&mut self, item: Item, revision: Revision) -> Option<News> {
        let value = item.value?;
        if self.known.len() >= KEYS_MAX && !self.known.contains_key(&item.path) {
            return None;
        }
        self.known.insert(item.path.clone(), item.mark);
        Some(News::Put { path: item.path, as_of: self.as_of(revision), value })
    }

    fn page(&mut self, mut listing: Listing, page: Page, step: &mut Step<'_>) -> Vec<News> {
        if listing.at.is_none() && self.count_max.is_some_and(|most| page.count > most) {
            return vec![News::TooMany];
        }
        if listing.at.is_none() && self.store.replace(page.store.id) != Some(page.store.id) {
            // What tells values apart does so within one store only.
            self.known.values_mut().for_each(|mark| *mark = UNKNOWN);
        }
        let (at, store) = *listing.at.get_or_insert((page.revision, page.store));
        if store != page.store {
            return self.begin_again(step);
        }
        // A registry that lies may have no end.
        if listing.found.len() + page.items.len() > KEYS_MAX {
            self.fail(step);
            return Vec::new();
        }
        let last = page.items.last().map(|item| item.path.clone());
        let mut news = Vec::new();
        for item in page.items {
            listing.found.insert(item.path.clone(), item.mark);
            let is_news = self.is_of_one_key() || self.known.get(&item.path) != Some(&item.mark);
            if listing.values && is_news {
                news.extend(self.put(item, at));
            }
        }
        if page.has_more && last.is_some() {
            self.list(listing, last, step);
            return news;
        }
        self.listed(listing, news, step)
    }

    /// Another store answers in the middle of a list, or the same one in another era.
    fn begin_again(&mut self, step: &mut Step<'_>) -> Vec<News> {
        self.timeout(step);
        Vec::new()
    }

    /// All keys are found: what is gone is said, and what differs is fetched.
    fn listed(&mut self, listing: Listing, mut news: Vec<News>, step: &mut Step<'_>) -> Vec<News> {
        let revision = listing.at.map_or(Revision(0), |(revision, _)| revision);
        let gone = self.known.keys().filter(|path| !listing.found.contains_key(*path));
        for path in gone.cloned().collect::<Vec<_>>() {
            self.known.remove(&path);
            news.push(News::Gone { path, as_of: self.as_of(revision) });
        }
        let differs = |path: &String, mark: &Mark| self.known.get(path) != Some(mark);
        let left: VecDeque<_> = listing
            .found
            .iter()
            .filter(|(path, mark)| differs(path, mark))
            .map(|(path, _)| path.clone())
            .collect();
        if left.len() > FETCHED_MAX {
            self.list(Listing { values: true, at: listing.at, found: BTreeMap::new() }, None, step);
            return news;
        }
        self.fetch(listing, left, step, &mut news);
        news
    }

    fn fetch(
        &mut self,
        listing: Listing,
        mut left: VecDeque<String>,
        step: &mut Step<'_>,
        news: &mut Vec<News>,
    ) {
        while let Some(path) = left.pop_front() {
            // What is no key of ours is nothing that a value of it could change.
            let Ok(key) = Key::parse(&step.config.cell, &path) else { continue };
            let at = listing.at.map(|(revision, _)| revision);
            self.asked += 1;
            let ask = Ask::List { prefix: Prefix::One(key), after: None, at, values: true };
            step.ask(AskId::Feed(self.id, self.asked), ask);
            self.state = State::Fetching { listing, left };
            return;
        }
        self.watch(&listing, step);
        let revision = listing.at.map_or(Revision(0), |(revision, _)| revision);
        news.push(News::Complete { count: self.known.len(), as_of: self.as_of(revision) });
    }

    fn fetched(
        &mut self,
        listing: Listing,
        left: VecDeque<String>,
        page: Page,
        step: &mut Step<'_>,
    ) -> Vec<News> {
        if listing.at.is_some_and(|(_, store)| store != page.store) {
            return self.begin_again(step);
        }
        let at = listing.at.map_or(page.revision, |(revision, _)| revision);
        let mut news: Vec<_> = page.items.into_iter().filter_map(|item| self.put(item, at)).collect();
        self.fetch(listing, left, step, &mut news);
        news
    }

    fn watch(&mut self, listing: &Listing, step: &mut Step<'_>) {
        let Some((revision, store)) = listing.at else { return self.break_off(step) };
        self.completed_ms = Some(step.now.now_ms);
        self.failures = 0;
        self.asked += 1;
        let watch = WatchId { feed: self.id, number: self.asked };
        self.state = State::Watching { watch, store, revision };
        step.send(Output::Watch { watch, prefix: self.prefix.clone(), after: revision });
    }

    fn list(&mut self, listing: Listing, after: Option<String>, step: &mut Step<'_>) {
        self.asked += 1;
        let at = listing.at.map(|(revision, _)| revision);
        let ask = Ask::List { prefix: self.prefix.clone(), after, at, values: listing.values };
        step.ask(AskId::Feed(self.id, self.asked), ask);
        self.state = State::Listing(listing);
    }
}

/// Whether what is watched continues what was listed.
fn is_history_of(listed: StoreId, watched: StoreId, step: &Step<'_>) -> bool {
    #[cfg(feature = "test-hooks")]
    if step.config.breaks.resumes_by_revision {
        return listed.id == watched.id;
    }
    let _ = step;
    listed == watched
}

/// Lists in a row without an answer from which on nobody waits for one.
const FAILURES_MIN: u32 = 2;
/// What no value of a store has.
const UNKNOWN: Mark = Mark { created: Revision(0), modified: Revision(0), lease: None };
/// Most keys under one prefix: twice the agents of the largest cell, each of which has one there.
const KEYS_MAX: usize = 20_000;
/// Most values that are fetched one by one.
const FETCHED_MAX: usize = 16;
/// The longest pause before a list. **Units:** milliseconds. **Source:** FLEET D6.
const RELIST_MS_MAX: u64 = 10_000;
