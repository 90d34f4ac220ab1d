//! Callers and descriptors in; decisions, kept until the rules or the descriptors change, out.
//!
//! What a peer may call is decided once, as its [`View`]: the capabilities here that it may call, by name. A name that is
//! not in it is looked up alike whether somebody serves it or not, and so is what the rules say of a mere name. So a
//! caller that is denied learns nothing from the answer, nor from what it took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::HashMap;
use capd_proto::capability::{CapabilityId, CapabilityName};
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::decide::{Caller, Subject};
use super::{Action, Rules};

/// The rules and what they have decided.
#[derive(Debug)]
pub struct Decisions {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: Arc<Rules>,
    /// By the DID that the caller calls itself by.
    views: HashMap<Did, Arc<View>>,
    /// What the own agent may do, where rules forbid anything at all.
    own: HashMap<(Action, usize), (Arc<Descriptor>, bool)>,
    /// The next view that differs from those before it.
    edition: u64,
    /// How often the rules were replaced.
    generation: u64,
}

/// What one caller may call here.
#[derive(Debug)]
pub struct View {
    did: Did,
    alias: Option<Did>,
    /// Which of the served sets it was made from.
    served: u64,
    edition: u64,
    callable: HashMap<CapabilityName, Vec<Callable>>,
    /// What was decided of each descriptor, by its address, which it keeps while it stands here.
    judged: HashMap<usize, (Arc<Descriptor>, Judgement)>,
    /// What was decided of mere names.
    names: Mutex<HashMap<Box<str>, Judgement>>,
    rules: Arc<Rules>,
}

/// A descriptor that a caller may call.
#[derive(Clone, Debug)]
pub struct Callable {
    /// What is served.
    pub descriptor: Arc<Descriptor>,
    /// Whether the caller may see it listed as well.
    pub is_listed: bool,
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
    /// The descriptors of this name that the caller may call; none where it may call none, or there are none.
    pub fn callable(&self, name: &str) -> &[Callable] {
        self.callable.get(name).map_or(&[], Vec::as_slice)
    }

    /// Everything that the caller may call, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Callable> {
        self.callable.values().flatten()
    }

    /// Whether the caller may call this very descriptor.
    pub fn may_call(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.find(descriptor).is_some()
    }

    /// Whether the caller may see this very descriptor listed, which takes that it may call it.
    pub fn may_see(&self, descriptor: &Arc<Descriptor>) -> bool {
        self.find(descriptor).is_some_and(|callable| callable.is_listed)
    }

    /// Whether the caller may call whatever has this name, for all that a name says; decided before anything looks whether
    /// it is served.
    pub fn may_call_named(&self, name: &str) -> bool {
        self.judge_name(name).may_invoke
    }

    /// Whether the caller may see whatever has this name listed, for all that a name says.
    pub fn may_see_named(&self, name: &str) -> bool {
        let judgement = self.judge_name(name);
        judgement.may_query && judgement.may_invoke
    }

    /// Whether the caller may call what was served and is no more, for all that its name and version say. It is asked for
    /// results that were recorded, so it is not kept.
    pub fn may_call_gone(&self, id: &CapabilityId) -> bool {
        let caller = Caller { did: &self.did, alias: self.alias.as_ref() };
        self.rules.decide(caller, Action::Invoke, &Subject::gone(id)).is_permitted()
    }

    /// A number that is another whenever what the caller may call or see is.
    pub const fn edition(&self) -> u64 {
        self.edition
    }

    fn find(&self, descriptor: &Arc<Descriptor>) -> Option<&Callable> {
        let callable = self.callable(descriptor.id.name.as_str());
        callable.iter().find(|callable| Arc::ptr_eq(&callable.descriptor, descriptor))
    }

    fn judge_name(&self, name: &str) -> Judgement {
        if let Some(known) = lock(&self.names).get(name) {
            return *known;
        }
        let caller = Caller { did: &self.did, alias: self.alias.as_ref() };
        let judgement = Judgement::of(&self.rules, caller, &Subject::named(name));
        let mut names = lock(&self.names);
        // Names are the caller's to choose, and none is worth more than another.
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), judgement);
        judgement
    }
}

impl Decisions {
    /// Decisions by these rules.
    pub fn new(rules: Rules) -> Self {
        let (views, own) = (HashMap::default(), HashMap::default());
        Self { state: Mutex::new(State { rules: Arc::new(rules), views, own, edition: 1, generation: 0 }) }
    }

    /// The rules that stand.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.state).rules)
    }

    /// How often the rules were replaced.
    pub fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// Puts other rules in place, whole: whoever asks from here on is answered by them.
    pub fn replace(&self, rules: Rules) {
        let rules = Arc::new(rules);
        let mut state = lock(&self.state);
        state.views.clear();
        state.own.clear();
        state.generation += 1;
        state.rules = rules;
    }

    /// What a caller may call of what is served here. `served` is another number whenever that set is another one.
    pub fn view<'a, D>(&self, caller: Caller<'_>, served: u64, descriptors: impl FnOnce() -> D) -> Arc<View>
    where
        D: Iterator<Item = &'a Arc<Descriptor>>,
    {
        let mut state = lock(&self.state);
        let name = caller.alias.unwrap_or(caller.did);
        let known = state.views.get(name).filter(|view| view.did == *caller.did);
        if let Some(view) = known
            && view.served == served
        {
            return Arc::clone(view);
        }
        let view = View::new(&state.rules, caller, served, state.edition, known, descriptors());
        state.edition += 1;
        if state.views.len() >= CALLERS_MAX {
            state.views.clear();
        }
        let view = Arc::new(view);
        state.views.insert(name.clone(), Arc::clone(&view));
        view
    }

    /// Whether the sidecar's own agent may do this.
    pub fn own_may(&self, own: &Did, action: Action, descriptor: &Arc<Descriptor>) -> bool {
        let mut state = lock(&self.state);
        if !state.rules.has_forbids() {
            return true;
        }
        let at = (action, Arc::as_ptr(descriptor) as usize);
        if let Some((_, may)) = state.own.get(&at) {
            return *may;
        }
        let caller = Caller { did: own, alias: None };
        let may = state.rules.decide(caller, action, &Subject::of(descriptor)).is_permitted();
        if state.own.len() >= OWN_MAX {
            state.own.clear();
        }
        // It is kept, so that no other can come to stand at its address.
        state.own.insert(at, (Arc::clone(descriptor), may));
        may
    }

    /// Whether the sidecar's own agent may call what was served and is no more, for all that its name and version say.
    pub fn own_may_call_gone(&self, own: &Did, id: &CapabilityId) -> bool {
        let rules = self.rules();
        let caller = Caller { did: own, alias: None };
        !rules.has_forbids() || rules.decide(caller, Action::Invoke, &Subject::gone(id)).is_permitted()
    }
}

impl View {
    fn new<'a>(
        rules: &Arc<Rules>,
        caller: Caller<'_>,
        served: u64,
        edition: u64,
        before: Option<&Arc<Self>>,
        descriptors: impl Iterator<Item = &'a Arc<Descriptor>>,
    ) -> Self {
        let mut callable: HashMap<CapabilityName, Vec<Callable>> = HashMap::default();
        let mut judged = HashMap::default();
        for descriptor in descriptors {
            let at = Arc::as_ptr(descriptor) as usize;
            let known = before.and_then(|before| before.judged.get(&at)).map(|(_, judgement)| *judgement);
            let judgement = known.unwrap_or_else(|| Judgement::of(rules, caller, &Subject::of(descriptor)));
            judged.insert(at, (Arc::clone(descriptor), judgement));
            if judgement.may_invoke {
                let of_name = callable.entry(descriptor.id.name.clone()).or_default();
                let descriptor = Arc::clone(descriptor);
                of_name.push(Callable { descriptor, is_listed: judgement.may_query });
            }
        }
        // Changes of what the caller may not see are none to it.
        let edition = before
            .filter(|before| is_same(&before.callable, &callable))
            .map_or(edition, |before| before.edition);
        let names = before.map(|before| std::mem::take(&mut *lock(&before.names))).unwrap_or_default();
        let rules = Arc::clone(rules);
        let (did, alias) = (caller.did.clone(), caller.alias.cloned());
        Self { did, alias, served, edition, callable, judged, names: Mutex::new(names), rules }
    }
}

fn is_same(a: &HashMap<CapabilityName, Vec<Callable>>, b: &HashMap<CapabilityName, Vec<Callable>>) -> bool {
    let same =
        |a: &Callable, b: &Callable| Arc::ptr_eq(&a.descriptor, &b.descriptor) && a.is_listed == b.is_listed;
    let all_same =
        |a: &[Callable], b: &[Callable]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    a.len() == b.len() && a.iter().all(|(name, of_a)| b.get(name).is_some_and(|of_b| all_same(of_a, of_b)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Callers whose views are kept; one more, and all are made anew.
const CALLERS_MAX: usize = 1_024;
/// Names of one caller that what is decided of them is kept for; one more, and all are decided anew.
const NAMES_MAX: usize = 1_024;
/// Descriptors that what the own agent may do is kept for; one more, and all are decided anew.
const OWN_MAX: usize = 65_536;
