//! Decides what a caller may call and see, before it asks.
//!
//! Callers that no rule distinguishes are one [`Class`](super::rules::Class), and share decisions. Decisions are made
//! when the served capabilities change, never within a caller's own request. A denied caller must not learn, from an
//! answer or from its time, that something hidden exists, appeared or went.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::HashMap;
use capd_proto::capability::{CapabilityId, CapabilityName, CapabilityPattern};
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::decide::{Caller, Subject};
use super::{Action, Rules};

/// The capabilities that one caller may call here.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) asker: Arc<Asker>,
    pub(super) allowed: Arc<Allowed>,
}

/// A descriptor that a caller may call.
#[derive(Clone, Debug)]
pub struct Callable {
    /// The descriptor.
    pub descriptor: Arc<Descriptor>,
    /// Whether the caller may also see it listed.
    pub is_listed: bool,
}

/// One caller, and what was decided for it of mere names.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) did: Did,
    pub(super) alias: Option<Did>,
    pub(super) slot: Arc<Slot>,
    rules: Arc<Rules>,
    names: Mutex<HashMap<Box<str>, Judgement>>,
}

/// Where the callers of one class find what they may call.
#[derive(Debug)]
pub(super) struct Slot(Mutex<Arc<Allowed>>);

/// What the callers of one class may call of what is served.
#[derive(Debug)]
pub(super) struct Allowed {
    edition: u64,
    callable: BTreeMap<CapabilityName, Vec<Callable>>,
    /// The decision about each descriptor, by its address, which is stable while it is kept here.
    judged: HashMap<usize, (Arc<Descriptor>, Judgement)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judgement {
    may_invoke: bool,
    may_query: bool,
}

impl Judgement {
    fn of(rules: &Rules, caller: Caller<'_>, subject: &Subject<'_>) -> Self {
        let may = |action| rules.decide(caller, action, subject).is_permitted();
        Self { may_invoke: may(Action::Invoke), may_query: may(Action::Query) }
    }
}

impl View {
    /// The descriptors of this name that the caller may call; none if it may call none, or if there are none.
    pub fn callable(&self, name: &str) -> &[Callable] {
        self.allowed.callable.get(name).map_or(&[], Vec::as_slice)
    }

    /// Everything that the caller may call, names ascending.
    pub fn all(&self) -> impl Iterator<Item = &Callable> {
        self.allowed.callable.values().flatten()
    }

    /// What the caller may call among the names of a pattern, names ascending.
    ///
    /// It walks only what the caller may call, so its time reveals nothing hidden.
    pub fn matching<'a>(
        &'a self,
        pattern: &'a CapabilityPattern,
    ) -> impl Iterator<Item = (&'a CapabilityName, &'a [Callable])> {
        let names = self.allowed.callable.iter().filter(|(name, _)| pattern.matches(name.as_str()));
        names.map(|(name, callable)| (name, callable.as_slice()))
    }

    /// Whether the caller may call this descriptor.
    pub fn may_call(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.find(descriptor).is_some()
    }

    /// Whether the caller may see this descriptor listed, which requires that it may call it.
    pub fn may_see(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.find(descriptor).is_some_and(|callable| callable.is_listed)
    }

    /// Whether the caller may call this name, judged by the name alone; decided before any check whether it is served.
    pub fn may_call_named(&self, name: &str) -> bool {
        self.asker.judge_name(name).may_invoke
    }

    /// Whether the caller may see this name listed, judged by the name alone.
    pub fn may_see_named(&self, name: &str) -> bool {
        let judgement = self.asker.judge_name(name);
        judgement.may_query && judgement.may_invoke
    }

    /// Whether the caller may call a capability that is no longer served, judged by its name and version. Asked for
    /// recorded results only, so it is not cached.
    pub fn may_call_gone(&self, id: &CapabilityId) -> bool {
        let rules = &self.asker.rules;
        rules.decide(self.asker.caller(), Action::Invoke, &rules.here(Subject::gone(id))).is_permitted()
    }

    /// A number that changes whenever what the caller may call or see changes.
    pub fn edition(&self) -> u64 {
        self.allowed.edition
    }

    fn find(&self, descriptor: &Arc<Descriptor>) -> Option<&Callable> {
        let callable = self.callable(descriptor.id.name.as_str());
        callable.iter().find(|callable| Arc::ptr_eq(&callable.descriptor, descriptor))
    }
}

impl Asker {
    pub(super) fn new(caller: Caller<'_>, slot: Arc<Slot>, rules: Arc<Rules>) -> Self {
        let (did, alias) = (caller.did.clone(), caller.alias.cloned());
        Self { did, alias, slot, rules, names: Mutex::default() }
    }

    pub(super) const fn caller(&self) -> Caller<'_> {
        Caller { did: &self.did, alias: self.alias.as_ref() }
    }

    fn judge_name(&self, name: &str) -> Judgement {
        if let Some(known) = lock(&self.names).get(name) {
            return *known;
        }
        let judgement = Judgement::of(&self.rules, self.caller(), &self.rules.here(Subject::named(name)));
        let mut names = lock(&self.names);
        // Names are the caller's to choose, and none is worth more than another.
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), judgement);
        judgement
    }
}

impl Slot {
    pub(super) fn new(allowed: Allowed) -> Self {
        Self(Mutex::new(Arc::new(allowed)))
    }

    pub(super) fn allowed(&self) -> Arc<Allowed> {
        Arc::clone(&lock(&self.0))
    }

    /// Decides what is new of what is served.
    pub(super) fn serve(&self, rules: &Rules, caller: Caller<'_>, served: &[Arc<Descriptor>], edition: u64) {
        let allowed = Allowed::new(rules, caller, served, edition, Some(&self.allowed()));
        *lock(&self.0) = Arc::new(allowed);
    }
}

impl Allowed {
    /// Decides what `caller`, as any other of its class, may call. What `before` has decided is not decided again.
    pub(super) fn new(
        rules: &Rules,
        caller: Caller<'_>,
        served: &[Arc<Descriptor>],
        edition: u64,
        before: Option<&Self>,
    ) -> Self {
        let mut callable: BTreeMap<CapabilityName, Vec<Callable>> = BTreeMap::new();
        let mut judged = HashMap::default();
        for descriptor in served {
            let at = Arc::as_ptr(descriptor) as usize;
            let known = before.and_then(|before| before.judged.get(&at)).map(|(_, judgement)| *judgement);
            let judgement =
                known.unwrap_or_else(|| Judgement::of(rules, caller, &rules.here(Subject::of(descriptor))));
            judged.insert(at, (Arc::clone(descriptor), judgement));
            if judgement.may_invoke {
                let of_name = callable.entry(descriptor.id.name.clone()).or_default();
                let descriptor = Arc::clone(descriptor);
                of_name.push(Callable { descriptor, is_listed: judgement.may_query });
            }
        }
        // Changes of what the caller may not see are none to it.
        let same = before.filter(|before| is_same(&before.callable, &callable));
        let edition = same.map_or(edition, |before| before.edition);
        Self { edition, callable, judged }
    }
}

fn is_same(a: &BTreeMap<CapabilityName, Vec<Callable>>, b: &BTreeMap<CapabilityName, Vec<Callable>>) -> bool {
    let same =
        |a: &Callable, b: &Callable| Arc::ptr_eq(&a.descriptor, &b.descriptor) && a.is_listed == b.is_listed;
    let all_same =
        |a: &[Callable], b: &[Callable]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && all_same(a.1, b.1))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of one caller that what is decided of them is kept for; one more, and all are decided anew.
const NAMES_MAX: usize = 1_024;
