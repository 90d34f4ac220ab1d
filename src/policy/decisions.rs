//! Caches decisions about callers and descriptors until the rules or the descriptors change.
//!
//! A peer's callable capabilities are decided in advance, as its [`View`]: the capabilities here that it may call, by
//! name. The look-up of any other name takes the same path whether or not somebody serves it, and so does a decision
//! about a bare name. So a denied caller learns nothing, neither from the answer nor from its time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::HashMap;
use capd_proto::capability::CapabilityId;
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::decide::{Caller, Subject};
use super::rules::Class;
use super::view::{Allowed, Asker, Slot, View};
use super::{Action, Rules};

/// The rules and what they have decided.
#[derive(Debug)]
pub struct Decisions {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: Arc<Rules>,
    /// The served descriptors.
    served: Vec<Arc<Descriptor>>,
    /// By the DID that the caller calls itself by, and when it was asked about last.
    askers: HashMap<Did, (Arc<Asker>, u64)>,
    /// What the classes of those callers may call. A class goes with the last of its callers.
    classes: HashMap<Class, Weak<Slot>>,
    /// Counts questions, which says whose was the longest ago.
    asked: u64,
    /// What the own agent may do, where rules forbid anything at all.
    own: HashMap<(Action, usize), Own>,
    /// The next set of what a class may call that differs from those before it.
    edition: u64,
    /// How often the rules were replaced.
    generation: u64,
}

/// What was decided of one descriptor for the own agent. The descriptor may go, and nothing else comes to its address.
#[derive(Debug)]
struct Own {
    _descriptor: Weak<Descriptor>,
    provider: Did,
    may: bool,
}

impl Decisions {
    /// Decisions by these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            state: Mutex::new(State {
                rules: Arc::new(rules),
                served: Vec::new(),
                askers: HashMap::default(),
                classes: HashMap::default(),
                asked: 0,
                own: HashMap::default(),
                edition: 1,
                generation: 0,
            }),
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.state).rules)
    }

    /// How often the rules were replaced.
    pub fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// Replaces the rules as a whole for all later questions. Decides here what callers may call, and not when they
    /// ask.
    pub fn replace(&self, rules: Rules) {
        let mut state = lock(&self.state);
        state.rules = Arc::new(rules);
        state.generation += 1;
        state.own.clear();
        state.classes.clear();
        let mut before: Vec<_> = std::mem::take(&mut state.askers).into_values().collect();
        before.sort_unstable_by_key(|(_, asked)| *asked);
        for (asker, _) in before {
            state.meet(asker.caller());
        }
    }

    /// Replaces what the sidecar's own providers serve. Decides here what callers may call of it, and not when they
    /// ask.
    pub fn serve(&self, served: impl FnOnce() -> Vec<Arc<Descriptor>>) {
        let mut state = lock(&self.state);
        state.served = served();
        let edition = state.edition;
        state.edition += 1;
        // Whichever caller of a class it is, the decision is the same.
        let mut decided = HashSet::new();
        for (asker, _) in state.askers.values() {
            if decided.insert(Arc::as_ptr(&asker.slot)) {
                asker.slot.serve(&state.rules, asker.caller(), &state.served, edition);
            }
        }
    }

    /// What a caller may call of what is served here.
    pub fn view(&self, caller: Caller<'_>) -> View {
        let mut state = lock(&self.state);
        let asker = state.meet(caller);
        View { allowed: asker.slot.allowed(), asker }
    }

    /// Whether the sidecar's own agent may do this with what `provider` serves.
    pub fn own_may(&self, own: &Did, action: Action, descriptor: &Arc<Descriptor>, provider: &Did) -> bool {
        let mut state = lock(&self.state);
        if !state.rules.has_forbids() {
            return true;
        }
        let at = (action, Arc::as_ptr(descriptor) as usize);
        if let Some(known) = state.own.get(&at).filter(|known| known.provider == *provider) {
            return known.may;
        }
        let caller = Caller { did: own, alias: None };
        let subject = Subject { provider: provider.as_str(), ..Subject::of(descriptor) };
        let may = state.rules.decide(caller, action, &subject).is_permitted();
        if state.own.len() >= OWN_MAX {
            state.own.clear();
        }
        let known = Own { _descriptor: Arc::downgrade(descriptor), provider: provider.clone(), may };
        state.own.insert(at, known);
        may
    }

    /// Whether the sidecar's own agent may call a capability that is no longer served here, judged by its name and
    /// version.
    pub fn own_may_call_gone(&self, own: &Did, id: &CapabilityId) -> bool {
        let rules = self.rules();
        let caller = Caller { did: own, alias: None };
        !rules.has_forbids()
            || rules.decide(caller, Action::Invoke, &rules.here(Subject::gone(id))).is_permitted()
    }
}

impl State {
    /// The caller, met for the first time or again. Of more than are kept, the one that asked the longest ago goes.
    fn meet(&mut self, caller: Caller<'_>) -> Arc<Asker> {
        self.asked += 1;
        let name = caller.alias.unwrap_or(caller.did);
        if let Some((asker, asked)) = self.askers.get_mut(name)
            && asker.did == *caller.did
        {
            *asked = self.asked;
            return Arc::clone(asker);
        }
        if self.askers.len() >= CALLERS_MAX && !self.askers.contains_key(name) {
            let longest_ago = self.askers.iter().min_by_key(|(_, (_, asked))| *asked);
            if let Some(did) = longest_ago.map(|(did, _)| did.clone()) {
                self.askers.remove(&did);
            }
        }
        let asker = Arc::new(Asker::new(caller, self.slot(caller), Arc::clone(&self.rules)));
        self.askers.insert(name.clone(), (Arc::clone(&asker), self.asked));
        asker
    }

    /// Where callers like this one find what they may call.
    fn slot(&mut self, caller: Caller<'_>) -> Arc<Slot> {
        let class = self.rules.class(caller);
        if let Some(slot) = self.classes.get(&class).and_then(Weak::upgrade) {
            return slot;
        }
        let allowed = Allowed::new(&self.rules, caller, &self.served, self.edition, None);
        self.edition += 1;
        let slot = Arc::new(Slot::new(allowed));
        if self.classes.len() > CALLERS_MAX {
            self.classes.retain(|_, slot| slot.strong_count() > 0);
        }
        self.classes.insert(class, Arc::downgrade(&slot));
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Callers that are kept.
const CALLERS_MAX: usize = 1_024;
/// Descriptors that what the own agent may do is kept for; one more, and all are decided anew.
const OWN_MAX: usize = 65_536;
