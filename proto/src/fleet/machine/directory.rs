//! News of the registry in, who may serve what out: the half of the machine that reads.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::calm::Calm;
use super::contacts::Contacts;
use super::feed::{Feed, News};
use super::names::{Standing, Wanted, shards};
use super::step::Step;
use super::{Extent, FeedId, LetGoWhy, Offer, Output, own};
use crate::capability::CapabilityName;
use crate::fleet::engine::{Change, EngineError, Told};
use crate::fleet::key::{Key, Prefix, Shard};
use crate::fleet::verify::{Refused, Verifier};
use crate::fleet::{Agent, PathError};

/// The reading half of the machine.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) verifier: Verifier,
    pub(super) wanted: BTreeMap<CapabilityName, Wanted>,
    pub(super) feeds: BTreeMap<FeedId, Feed>,
    feeds_begun: u64,
    pub(super) contacts: Contacts,
    pub(super) calm: Calm,
    revocations: BTreeMap<Agent, Bytes>,
    /// What a former process knew, for names that are wanted later.
    cached: BTreeMap<CapabilityName, Vec<(String, Bytes)>>,
    /// When the registry last said something, and when it was asked to since. **Units:** milliseconds.
    pub(super) heard_ms: u64,
    pub(super) probed_ms: Option<u64>,
    /// When everything that is wanted was last known to be as the registry has it. **Units:** milliseconds.
    pub(super) fresh_ms: Option<u64>,
    /// When the revocations were; before the machine began for those from a cache. **Units:** milliseconds.
    pub(super) denied_ms: Option<i128>,
    pub(super) swept_ms: u64,
    /// Names that have changed in this step.
    pub(super) changed: BTreeSet<CapabilityName>,
}

impl Directory {
    pub(super) fn begin(verifier: Verifier, step: &mut Step<'_>) -> Self {
        let mut directory = Self {
            verifier,
            wanted: BTreeMap::new(),
            feeds: BTreeMap::new(),
            feeds_begun: 0,
            contacts: Contacts::default(),
            calm: Calm::default(),
            revocations: BTreeMap::new(),
            cached: BTreeMap::new(),
            heard_ms: step.now.now_ms,
            probed_ms: None,
            fresh_ms: None,
            denied_ms: None,
            swept_ms: step.now.now_ms,
            changed: BTreeSet::new(),
        };
        directory.feed(Prefix::Revocations, None, step);
        directory
    }

    /// A call wants a provider of this name.
    pub(super) fn want(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.used_ms = step.now.now_ms;
            return self.plan(name, step);
        }
        if self.wanted.len() >= WANTED_MAX {
            let oldest = self.wanted.iter().min_by_key(|(_, wanted)| wanted.used_ms);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.unwant(&oldest, step);
            }
        }
        self.wanted.insert(name.clone(), Wanted::new(step.now.now_ms));
        self.take_cached(name, step);
        let feed = self.feed(Prefix::Name(name.clone(), None), Some(SHARDED_ABOVE), step);
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.feeds.push(feed);
        }
        self.plan(name, step);
    }

    /// A call waits for this name, and none of those that are known answers.
    pub(super) fn missed(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        self.want(name, step);
        let Some(wanted) = self.wanted.get(name) else { return };
        let answers = |agent| self.contacts.is_open(agent);
        // FLEET 5: two of 16 shards, and more of them once nobody there answers.
        if let Some(watched) = wanted.shards
            && !wanted.candidates.keys().any(answers)
        {
            self.widen(name, watched.saturating_mul(2), step);
        }
    }

    /// Nobody has called this name for long: it is watched no more, and links that only it needs are let go.
    pub(super) fn unwant(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        let Some(wanted) = self.wanted.remove(name) else { return };
        for id in &wanted.feeds {
            self.end_feed(*id, step);
        }
        for agent in wanted.candidates.keys() {
            let is_needed = self.wanted.values().any(|other| other.candidates.contains_key(agent));
            if !is_needed && self.contacts.is_ours(agent) {
                step.send(Output::LetGo { agent: *agent, why: LetGoWhy::Idle });
            }
        }
        self.changed.insert(name.clone());
    }

    /// FLEET 5: of a name that many register, a part is watched. What is known of it counts as vanished until that part
    /// says it again; nobody has left for it.
    pub(super) fn shard(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        for candidate in wanted.candidates.values_mut().filter(|candidate| candidate.is_listed()) {
            candidate.standing = Standing::Suspect { since_ms: step.now.now_ms };
        }
        for id in std::mem::take(&mut wanted.feeds) {
            self.end_feed(id, step);
        }
        self.widen(name, SHARDS_WATCHED, step);
        self.changed.insert(name.clone());
    }

    fn widen(&mut self, name: &CapabilityName, to: u8, step: &mut Step<'_>) {
        let order = shards(&step.config.agent(), name);
        let Some(wanted) = self.wanted.get(name) else { return };
        let from = usize::from(wanted.shards.unwrap_or_default());
        let to = usize::from(to).min(order.len());
        let added: Vec<_> = order.get(from..to).unwrap_or_default().to_vec();
        let begun: Vec<_> = added
            .into_iter()
            .map(|shard| self.feed(Prefix::Name(name.clone(), Some(shard)), None, step))
            .collect();
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.shards = Some(to as u8);
            wanted.feeds.extend(begun);
        }
    }

    /// Watches exactly our own keys: those of what our agent offers.
    pub(super) fn watch_own(&mut self, offer: &Offer, step: &mut Step<'_>) {
        let agent = step.config.agent();
        let key = |name: &CapabilityName| Prefix::One(Key::registration(name.clone(), agent));
        let wanted: BTreeSet<_> = offer.names.keys().map(key).collect();
        let is_own = |feed: &Feed| matches!(feed.prefix, Prefix::One(_));
        let has: BTreeSet<_> =
            self.feeds.values().filter(|feed| is_own(feed)).map(|feed| feed.prefix.clone()).collect();
        let ended = self.feeds.iter().filter(|(_, feed)| is_own(feed) && !wanted.contains(&feed.prefix));
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_feed(id, step);
        }
        for prefix in wanted.difference(&has) {
            self.feed(prefix.clone(), None, step);
        }
    }

    /// Whether the registry has told of a wanted name.
    pub(super) fn listing(&self, name: &CapabilityName) -> Option<Extent> {
        let wanted = self.wanted.get(name)?;
        let feeds = wanted.feeds.iter().filter_map(|id| self.feeds.get(id));
        // What is awaited comes before what is not answered.
        feeds.map(Feed::listing).min().or(Some(Extent::Listing))
    }

    fn feed(&mut self, prefix: Prefix, count_max: Option<u64>, step: &mut Step<'_>) -> FeedId {
        self.feeds_begun += 1;
        let id = FeedId(self.feeds_begun);
        self.feeds.insert(id, Feed::begin(prefix, id, count_max, step));
        id
    }

    fn end_feed(&mut self, id: FeedId, step: &mut Step<'_>) {
        if let Some(feed) = self.feeds.remove(&id) {
            feed.unwatch(step);
        }
    }

    /// An answer to a list. What it says of our own keys goes to the writing half.
    pub(super) fn told(
        &mut self,
        (id, asked): (FeedId, u64),
        told: Result<Told, EngineError>,
        step: &mut Step<'_>,
    ) -> Vec<own::Input> {
        let Some(feed) = self.feeds.get_mut(&id).filter(|feed| feed.awaits(asked)) else {
            return Vec::new();
        };
        let before = feed.listing();
        let news = feed.told(told, step);
        if feed.listing() != before
            && let Prefix::Name(name, _) = &feed.prefix
        {
            self.changed.insert(name.clone());
        }
        self.take(id, news, step)
    }

    /// A change of a watch.
    pub(super) fn change(
        &mut self,
        watch: super::WatchId,
        change: Change,
        step: &mut Step<'_>,
    ) -> Vec<own::Input> {
        let Some(feed) = self.feeds.get_mut(&watch.feed).filter(|feed| feed.is_of_watch(watch)) else {
            return Vec::new();
        };
        match feed.change(change, step) {
            Some(news) => {
                (self.heard_ms, self.probed_ms) = (step.now.now_ms, None);
                self.take(watch.feed, news, step)
            }
            None => Vec::new(),
        }
    }

    fn take(&mut self, id: FeedId, news: Vec<News>, step: &mut Step<'_>) -> Vec<own::Input> {
        let Some(prefix) = self.feeds.get(&id).map(|feed| feed.prefix.clone()) else { return Vec::new() };
        let mut of_own = Vec::new();
        for news in news {
            match (&prefix, news) {
                (Prefix::Name(name, _), News::TooMany) => self.shard(name, step),
                (Prefix::Name(name, _), News::Put { path, value, .. }) => {
                    self.registered(&prefix, name, path, value, Standing::Listed, step);
                }
                (Prefix::Name(name, _), News::Gone { path, .. }) => self.gone(name, &path, step),
                (Prefix::Revocations, News::Put { path, value, .. }) => self.revoked(path, value, step),
                (Prefix::One(Key::Registration { .. }), News::Put { as_of, value, .. }) => {
                    of_own.push(own::Input::Put { as_of, value });
                }
                (Prefix::One(Key::Registration { name, .. }), News::Gone { as_of, .. })
                | (Prefix::One(Key::Registration { name, .. }), News::Complete { count: 0, as_of }) => {
                    of_own.push(own::Input::Deleted { name: name.clone(), as_of });
                }
                (Prefix::Revocations, News::Complete { .. }) => {
                    self.denied_ms = Some(step.now.now_ms.into());
                }
                // That a list was answered says nothing of the watches.
                (Prefix::Name(..) | Prefix::One(_), News::Complete { .. }) => {}
                // An authority's word stands whatever the registry does with it.
                // Nobody watches all names at once.
                (Prefix::Names, _) => {}
                (Prefix::Revocations, News::Gone { .. } | News::TooMany)
                | (Prefix::One(_), News::Put { .. } | News::Gone { .. } | News::TooMany) => {}
            }
        }
        of_own
    }

    fn registered(
        &mut self,
        prefix: &Prefix,
        name: &CapabilityName,
        path: String,
        value: Bytes,
        standing: Standing,
        step: &mut Step<'_>,
    ) {
        let Some((shard, agent)) = self.key(prefix, &path, step) else { return };
        // FLEET: our own word says nothing to us.
        if agent == step.config.agent() {
            return;
        }
        let now = step.now;
        match self.verifier.registration(name, shard, &agent, &value, now.wall_ms) {
            Ok(registered) => {
                let Some(wanted) = self.wanted.get_mut(name) else { return };
                let word = (registered.registration.fence, registered.registration.generation);
                wanted.put(&step.config.agent(), registered, value, standing, now.now_ms);
                self.contacts.renewed(&agent, word);
                self.changed.insert(name.clone());
            }
            Err(why) => {
                // An older word than the last one takes nothing away from that.
                if why == Refused::Revoked {
                    self.remove(name, &agent);
                } else if why != Refused::Older {
                    self.suspect(name, &agent, step);
                }
                step.send(Output::Refused { path, agent: Some(agent), why });
            }
        }
    }

    /// The agent that a key of this prefix names.
    fn key(&self, prefix: &Prefix, path: &str, step: &mut Step<'_>) -> Option<(Shard, Agent)> {
        match Key::parse(&step.config.cell, path) {
            // Another shard than the agent's own is another key, and says nothing of what stands under the honest one.
            Ok(Key::Registration { shard, agent, .. }) if shard != Shard::of(&agent) => {
                let path = path.to_owned();
                step.send(Output::Refused { path, agent: Some(agent), why: Refused::OtherPlace });
                None
            }
            Ok(key @ Key::Registration { shard, agent, .. }) if prefix.contains(&key) => Some((shard, agent)),
            Ok(_) => None,
            Err(error) => {
                self.refuse_path(path, error, step);
                None
            }
        }
    }

    fn refuse_path(&self, path: &str, error: PathError, step: &mut Step<'_>) {
        let why = Refused::Path(error);
        step.send(Output::Refused { path: path.to_owned(), agent: None, why });
    }

    fn gone(&mut self, name: &CapabilityName, path: &str, step: &mut Step<'_>) {
        if let Ok(Key::Registration { agent, shard, .. }) = Key::parse(&step.config.cell, path)
            && shard == Shard::of(&agent)
        {
            self.suspect(name, &agent, step);
        }
    }

    /// FLEET D2: whoever vanishes from the registry is suspect, and nothing more.
    pub(super) fn suspect(&mut self, name: &CapabilityName, agent: &Agent, step: &mut Step<'_>) {
        let now_ms = step.now.now_ms;
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        if !wanted.suspect(agent, now_ms) {
            return;
        }
        let left_of_name = wanted.listed();
        let left = self.wanted.values().map(Wanted::listed).sum();
        self.changed.insert(name.clone());
        if self.calm.vanish(name, left_of_name, left, now_ms, step.config.ttl_ms) {
            step.send(Output::Frozen);
        }
    }

    pub(super) fn remove(&mut self, name: &CapabilityName, agent: &Agent) {
        if let Some(wanted) = self.wanted.get_mut(name)
            && wanted.candidates.remove(agent).is_some()
        {
            self.changed.insert(name.clone());
        }
    }

    fn revoked(&mut self, path: String, value: Bytes, step: &mut Step<'_>) {
        let agent = match Key::parse(&step.config.cell, &path) {
            Ok(Key::Revocation(agent)) => agent,
            Ok(Key::Fence(_) | Key::Registration { .. }) => return,
            Err(error) => return self.refuse_path(&path, error, step),
        };
        if let Err(why) = self.verifier.revocation(&agent, &value) {
            return step.send(Output::Refused { path, agent: Some(agent), why });
        }
        self.revocations.insert(agent, value);
        let verifier = &self.verifier;
        for (name, wanted) in &mut self.wanted {
            let is_revoked = wanted
                .candidates
                .get(&agent)
                .is_some_and(|candidate| verifier.is_revoked(&agent, candidate.serial));
            if is_revoked {
                wanted.candidates.remove(&agent);
                self.changed.insert(name.clone());
            }
        }
        step.send(Output::Revoked(agent));
    }

    /// FLEET D5: what a former process knew, still signed and still checked. It is suspect until the registry says it too.
    pub(super) fn cached(&mut self, saved_ms: u64, items: Vec<(String, Bytes)>, step: &mut Step<'_>) {
        let age_ms = step.now.wall_ms.saturating_sub(saved_ms);
        if self.denied_ms.is_none() && saved_ms <= step.now.wall_ms {
            self.denied_ms = Some(i128::from(step.now.now_ms) - i128::from(age_ms));
        }
        for (path, value) in items.into_iter().take(CACHED_MAX) {
            match Key::parse(&step.config.cell, &path) {
                Ok(Key::Revocation(_)) => self.revoked(path, value, step),
                Ok(Key::Registration { name, .. }) => {
                    self.cached.entry(name).or_default().push((path, value));
                }
                Ok(Key::Fence(_)) | Err(_) => {}
            }
        }
        for name in self.wanted.keys().cloned().collect::<Vec<_>>() {
            self.take_cached(&name, step);
            self.plan(&name, step);
        }
    }

    fn take_cached(&mut self, name: &CapabilityName, step: &mut Step<'_>) {
        let prefix = Prefix::Name(name.clone(), None);
        for (path, value) in self.cached.remove(name).unwrap_or_default() {
            let is_known = match Key::parse(&step.config.cell, &path) {
                Ok(Key::Registration { agent, .. }) => {
                    self.wanted.get(name).is_some_and(|wanted| wanted.candidates.contains_key(&agent))
                }
                Ok(Key::Fence(_) | Key::Revocation(_)) | Err(_) => true,
            };
            if !is_known {
                let standing = Standing::Suspect { since_ms: step.now.now_ms };
                self.registered(&prefix, name, path, value, standing, step);
            }
        }
    }

    /// What a later process may begin with.
    pub(super) fn to_cache<'a>(
        &'a self,
        cell: &'a crate::fleet::Cell,
    ) -> impl Iterator<Item = (String, &'a Bytes)> + 'a {
        let revocations =
            self.revocations.iter().map(|(agent, value)| (Key::Revocation(*agent).path(cell), value));
        let candidates = self.wanted.iter().flat_map(move |(name, wanted)| {
            wanted.candidates.iter().map(move |(agent, candidate)| {
                (Key::registration(name.clone(), *agent).path(cell), &candidate.value)
            })
        });
        revocations.chain(candidates)
    }

    pub(super) fn feed_states(&self) -> impl Iterator<Item = (&Prefix, &'static str)> {
        self.feeds.values().map(|feed| (&feed.prefix, feed.state_name()))
    }
}

/// Most keys taken of a cache; ours.
const CACHED_MAX: usize = 20_000;
/// Most names watched at once. **Source:** FLEET 5.
const WANTED_MAX: usize = 1_000;
/// Most registrations of a name that are watched as one. **Source:** FLEET 5.
pub(super) const SHARDED_ABOVE: u64 = 64;
/// Shards of a larger name that are watched at first. **Source:** FLEET 5.
const SHARDS_WATCHED: u8 = 2;
