//! Applies an event to a snapshot, and returns the next snapshot, without side effects.

use std::collections::BTreeSet;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::latency::Latency;
use super::persistent::Map;

/// A provider of this sidecar's own agent. **Shape:** a number that is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId(pub u64);

/// The origin of a capability. Local ones sort first, peers by their DID, so choices are the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A provider of this sidecar.
    Local(ProviderId),
    /// A peer, as it answered our query.
    Peer(Did),
}

/// One descriptor and its origin.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its origin.
    pub origin: Origin,
    /// Its descriptor.
    pub descriptor: Arc<Descriptor>,
    /// How fast its calls are answered; kept for as long as the origin declares the same.
    pub latency: Arc<Latency>,
}

/// A change of what is served.
#[derive(Clone, Debug)]
pub enum Event {
    /// `origin` serves exactly this; it replaces its earlier declaration.
    Declared {
        /// The origin.
        origin: Origin,
        /// Everything it serves.
        descriptors: Vec<Arc<Descriptor>>,
    },
    /// `origin` serves nothing from here on.
    Gone(Origin),
}

/// What is served and where, at one moment in time.
///
/// It shares unchanged parts with the snapshots before and after it, so the cost of an event depends on its changes
/// only. Its two maps hold the same entries.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    number: u64,
    /// Of each name: by origin, then by version ascending.
    by_name: Map<CapabilityName, Arc<[Entry]>>,
    /// Of each origin: by id.
    by_origin: Map<Origin, Arc<[Entry]>>,
}

impl Snapshot {
    /// The snapshot's number; each change counts one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The descriptors of this sidecar's own providers, provider by provider, names ascending.
    pub fn local(&self) -> impl Iterator<Item = &Arc<Descriptor>> {
        // Local origins sort first.
        let of_local = self.by_origin.iter().take_while(|(origin, _)| matches!(origin, Origin::Local(_)));
        of_local.flat_map(|(_, entries)| &**entries).map(|entry| &entry.descriptor)
    }

    /// Every entry of one name: by origin, then by version ascending.
    pub fn entries(&self, name: &str) -> &[Entry] {
        self.by_name.get(name).map_or(&[], |entries| entries)
    }

    /// All names with their entries, names ascending.
    pub fn names(&self) -> impl Iterator<Item = (&CapabilityName, &[Entry])> {
        self.by_name.iter().map(|(name, entries)| (name, &**entries))
    }

    /// All entries of one origin, names ascending.
    pub fn served_by(&self, origin: &Origin) -> &[Entry] {
        self.by_origin.get(origin).map_or(&[], |entries| entries)
    }

    /// The snapshot after `event`, or `None` when the event changes nothing.
    pub fn apply(&self, event: Event) -> Option<Self> {
        let (origin, descriptors) = match event {
            Event::Declared { origin, descriptors } => (origin, descriptors),
            Event::Gone(origin) => (origin, Vec::new()),
        };
        let before = self.served_by(&origin);
        // What is declared again as it was stays what it is, so that what is known of it holds.
        let known = |descriptor: Arc<Descriptor>| {
            let found = before.binary_search_by(|known| known.descriptor.id.cmp(&descriptor.id)).ok();
            let known = found.map(|at| &before[at]).filter(|known| *known.descriptor == *descriptor);
            let new = || Entry { origin: origin.clone(), descriptor, latency: Arc::default() };
            known.cloned().unwrap_or_else(new)
        };
        let mut after: Vec<_> = descriptors.into_iter().map(known).collect();
        after.sort_by(|a, b| a.descriptor.id.cmp(&b.descriptor.id));
        if is_same(before, &after) {
            return None;
        }
        let mut next = Self { number: self.number + 1, ..self.clone() };
        let names = before.iter().chain(&after).map(|entry| &entry.descriptor.id.name);
        for name in names.collect::<BTreeSet<_>>() {
            let now = of_name(&after, name);
            if !is_same(of_name(before, name), now) {
                next.replace(name, &origin, now);
            }
        }
        if after.is_empty() {
            next.by_origin.remove(&origin);
        } else {
            next.by_origin.insert(origin, after.into());
        }
        Some(next)
    }

    /// Puts `now` in the place of what an origin served of a name.
    fn replace(&mut self, name: &CapabilityName, origin: &Origin, now: &[Entry]) {
        let before = self.entries(name.as_str());
        let start = before.partition_point(|entry| entry.origin < *origin);
        let end = before.partition_point(|entry| entry.origin <= *origin);
        let entries: Arc<[Entry]> = [&before[..start], now, &before[end..]].concat().into();
        if entries.is_empty() {
            self.by_name.remove(name);
        } else {
            self.by_name.insert(name.clone(), entries);
        }
    }
}

/// Of one origin's entries, by id, those of one name.
fn of_name<'a>(entries: &'a [Entry], name: &CapabilityName) -> &'a [Entry] {
    let start = entries.partition_point(|entry| entry.descriptor.id.name < *name);
    let end = entries.partition_point(|entry| entry.descriptor.id.name <= *name);
    &entries[start..end]
}

/// Whether the same is served, by one origin.
fn is_same(a: &[Entry], b: &[Entry]) -> bool {
    let same =
        |(a, b): (&Entry, &Entry)| Arc::ptr_eq(&a.descriptor, &b.descriptor) || a.descriptor == b.descriptor;
    a.len() == b.len() && a.iter().zip(b).all(same)
}
