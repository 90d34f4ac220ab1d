//! A snapshot and an event in, the next snapshot out: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

/// A provider of this sidecar's own agent. **Shape:** a number that is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId(pub u64);

/// Who serves a capability. Local ones sort first, peers by their DID, so that choices are the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A provider of this sidecar.
    Local(ProviderId),
    /// A peer, as it answered our query.
    Peer(Did),
}

/// One descriptor and who serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Who serves it.
    pub origin: Origin,
    /// What it promises.
    pub descriptor: Arc<Descriptor>,
}

/// A change of what is served.
#[derive(Clone, Debug)]
pub enum Event {
    /// This is all that `origin` serves; it replaces what it declared before.
    Declared {
        /// Who serves.
        origin: Origin,
        /// Everything it serves.
        descriptors: Vec<Arc<Descriptor>>,
    },
    /// `origin` serves nothing any more.
    Gone(Origin),
}

/// What is served and where, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    number: u64,
    names: BTreeMap<CapabilityName, Vec<Entry>>,
}

impl Snapshot {
    /// The snapshot's number; each change counts one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What this sidecar's own providers serve, names ascending.
    pub fn local(&self) -> impl Iterator<Item = &Arc<Descriptor>> {
        let entries = self.names.values().flatten();
        entries.filter(|entry| matches!(entry.origin, Origin::Local(_))).map(|entry| &entry.descriptor)
    }

    /// Every entry of one name: by origin, then by version ascending.
    pub fn entries(&self, name: &str) -> &[Entry] {
        self.names.get(name).map_or(&[], Vec::as_slice)
    }

    /// All names with their entries, names ascending.
    pub fn names(&self) -> impl Iterator<Item = (&CapabilityName, &[Entry])> {
        self.names.iter().map(|(name, entries)| (name, entries.as_slice()))
    }

    /// All entries of one origin, names ascending.
    pub fn served_by<'a>(&'a self, origin: &'a Origin) -> impl Iterator<Item = &'a Entry> {
        self.names.values().flatten().filter(move |entry| entry.origin == *origin)
    }

    /// The snapshot after `event`, or `None` when the event changes nothing.
    pub fn apply(&self, event: Event) -> Option<Self> {
        let (origin, descriptors) = match event {
            Event::Declared { origin, descriptors } => (origin, descriptors),
            Event::Gone(origin) => (origin, Vec::new()),
        };
        let mut before: Vec<_> = self.served_by(&origin).map(|entry| &entry.descriptor).collect();
        let mut after: Vec<_> = descriptors.iter().collect();
        before.sort_by(|a, b| a.id.cmp(&b.id));
        after.sort_by(|a, b| a.id.cmp(&b.id));
        if before == after {
            return None;
        }
        // What is declared again as it was stays what it is, so that what is known of it holds.
        let known = |descriptor: Arc<Descriptor>| {
            let found = before.binary_search_by(|known| known.id.cmp(&descriptor.id)).ok();
            found.map(|at| before[at]).filter(|known| **known == descriptor).map_or(descriptor, Arc::clone)
        };
        let descriptors: Vec<_> = descriptors.into_iter().map(known).collect();
        let mut names = self.names.clone();
        for entries in names.values_mut() {
            entries.retain(|entry| entry.origin != origin);
        }
        for descriptor in descriptors {
            let entries = names.entry(descriptor.id.name.clone()).or_default();
            entries.push(Entry { origin: origin.clone(), descriptor });
        }
        names.retain(|_, entries| !entries.is_empty());
        for entries in names.values_mut() {
            entries.sort_by(|a, b| {
                a.origin.cmp(&b.origin).then_with(|| a.descriptor.id.version.cmp(&b.descriptor.id.version))
            });
        }
        Some(Self { number: self.number + 1, names })
    }
}
