//! Finds an object that fits a set of assertions, or proves that there is none.
//!
//! Wanted assertions on every member bound each member by itself. An unwanted assertion needs one member that breaks
//! it, under a mentioned name or any other. Other names differ only in the patterns they match.

use std::cell::Cell;

use serde_json::Value;

use super::literal::Lit;
use super::node::{Form, Members, ObjectAtom};
use super::solve::{Outcome, Solver};

/// The objects that are asked for.
#[derive(Default)]
pub(super) struct Wanted<'s> {
    pub(super) rules: Vec<(Lit, &'s Members)>,
    /// One member is to break each of these.
    broken: Vec<Break<'s>>,
    /// Each name is to fit these.
    pub(super) names: Vec<Lit>,
    /// Sorted, as the next two.
    pub(super) has: Vec<&'s str>,
    pub(super) lacks: Vec<&'s str>,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
    /// Names that are spoken of.
    pub(super) known: Vec<&'s str>,
    /// Patterns that names are told apart by, one of each source.
    pub(super) patterns: Vec<Lit>,
}

#[derive(Clone, Copy)]
enum Break<'s> {
    /// By a member's value.
    Value(Lit, &'s Members),
    /// By a member's name, which is to fit this.
    Name(Lit),
}

/// A member's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Key<'s> {
    Known(&'s str),
    /// One that is not spoken of, and matches just those of the patterns that have their bit set.
    Other(usize),
}

/// A member that is needed to break something.
pub(super) struct Slot<'s> {
    pub(super) key: Key<'s>,
    pub(super) value_fits: Vec<Lit>,
    pub(super) name_fits: Vec<Lit>,
    pub(super) value: Value,
}

/// Most patterns that names are told apart by.
const PATTERNS_MAX: usize = 6;

impl<'s> Wanted<'s> {
    fn add(&mut self, atom: &'s ObjectAtom, lit: Lit, solver: &Solver<'s>) {
        match (atom, lit.is_wanted()) {
            (ObjectAtom::Members(rules), is_wanted) => {
                self.known.extend(rules.named.iter().map(|(name, _)| &**name));
                for (pattern, _) in &rules.patterns {
                    // One more than can be told apart is as good as all of them.
                    if self.patterns.len() > PATTERNS_MAX {
                        break;
                    }
                    let pattern = lit.wanted(*pattern);
                    if self.patterns.iter().all(|known| !solver.is_same_pattern(*known, pattern)) {
                        self.patterns.push(pattern);
                    }
                }
                if is_wanted {
                    self.rules.push((lit, rules));
                } else {
                    self.broken.push(Break::Value(lit, rules));
                }
            }
            (ObjectAtom::Has(name), is_wanted) => {
                self.known.push(name);
                if is_wanted { &mut self.has } else { &mut self.lacks }.push(name);
            }
            (ObjectAtom::Names(names), true) => self.names.push(lit.wanted(*names)),
            (ObjectAtom::Names(names), false) => self.broken.push(Break::Name(lit.wanted(*names).not())),
            (ObjectAtom::MinProperties(least), true) => self.least = self.least.max(*least),
            (ObjectAtom::MaxProperties(most), true) => self.lower(*most),
            (ObjectAtom::MinProperties(least), false) => match least.checked_sub(1) {
                Some(most) => self.lower(most),
                // Nothing has fewer than none.
                None => self.least = u64::MAX,
            },
            (ObjectAtom::MaxProperties(most), false) => self.least = self.least.max(most.saturating_add(1)),
        }
    }

    fn lower(&mut self, most: u64) {
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
    }

    fn sort(&mut self) {
        for names in [&mut self.known, &mut self.has, &mut self.lacks] {
            names.sort_unstable();
            names.dedup();
        }
    }

    fn is_crossed(&self) -> bool {
        let needed = self.least.max(self.has.len() as u64);
        self.most.is_some_and(|most| most < needed)
            || self.lacks.iter().any(|name| self.has.binary_search(name).is_ok())
    }

    /// Every name there may be a member of, by its place: those spoken of, then those of each class.
    pub(super) fn key_count(&self) -> usize {
        self.known.len() + (1 << self.patterns.len())
    }

    /// The name at a place; `None` when no member may have it.
    pub(super) fn key(&self, at: usize) -> Option<Key<'s>> {
        match self.known.get(at) {
            Some(name) if self.lacks.binary_search(name).is_ok() => None,
            Some(name) => Some(Key::Known(name)),
            None => Some(Key::Other(at - self.known.len())),
        }
    }
}

impl<'s> Solver<'s> {
    /// Decides assertions on objects.
    pub(super) fn object(&mut self, atoms: &[Lit], avoided: &[Value]) -> Outcome {
        let mut wanted = Wanted::default();
        for &lit in atoms {
            if let Form::Object(atom) = &self.node(lit).form {
                wanted.add(atom, lit, self);
            }
        }
        wanted.sort();
        if wanted.is_crossed() {
            return Outcome::Empty;
        }
        if !self.step(wanted.known.len()) {
            return Outcome::Unknown;
        }
        if wanted.patterns.len() > PATTERNS_MAX {
            self.doubt_at(wanted.patterns[0], "patternProperties");
            return Outcome::Unknown;
        }
        self.break_all(&mut wanted, 0, &mut Vec::new(), avoided)
    }

    fn is_same_pattern(&self, one: Lit, other: Lit) -> bool {
        // A pattern is a node of its own, so that one look is all it takes.
        super::same::equal((self.schema(one), one.id()), (self.schema(other), other.id()), &Cell::new(0))
    }

    /// What is wanted of a member of this name.
    pub(super) fn rules_at(&self, wanted: &Wanted<'s>, key: Key<'s>) -> Vec<Lit> {
        let mut found = Vec::with_capacity(wanted.rules.len() + 1);
        for (lit, rules) in &wanted.rules {
            self.rules_of(wanted, (*lit, rules), key, &mut found);
        }
        found
    }

    fn rules_of(
        &self,
        wanted: &Wanted<'s>,
        (lit, rules): (Lit, &'s Members),
        key: Key<'s>,
        found: &mut Vec<Lit>,
    ) {
        let class = match key {
            Key::Known(name) => return self.rules_for(lit, rules, name, found),
            Key::Other(class) => class,
        };
        let is_matched = |pattern: Lit| {
            let at = wanted.patterns.iter().position(|known| self.is_same_pattern(*known, pattern));
            at.is_some_and(|at| class >> at & 1 == 1)
        };
        let before = found.len();
        let matched = rules.patterns.iter().filter(|(pattern, _)| is_matched(lit.wanted(*pattern)));
        found.extend(matched.map(|(_, id)| lit.wanted(*id)));
        if found.len() == before {
            found.extend(rules.rest.map(|id| lit.wanted(id)));
        }
    }

    /// Whether a member may have this name; `None` when that is not known.
    pub(super) fn may_be_named(&mut self, wanted: &Wanted<'s>, name: &str) -> Option<bool> {
        if wanted.names.is_empty() {
            return Some(true);
        }
        let name = Value::from(name);
        let verdicts: Vec<_> = wanted.names.iter().map(|lit| self.accepts(*lit, &name)).collect();
        if verdicts.contains(&Some(false)) {
            Some(false)
        } else {
            (!verdicts.contains(&None)).then_some(true)
        }
    }

    /// Breaks what is to be broken from `at` on, in every way there is, and completes the object around it.
    fn break_all(
        &mut self,
        wanted: &mut Wanted<'s>,
        at: usize,
        slots: &mut Vec<Slot<'s>>,
        avoided: &[Value],
    ) -> Outcome {
        let Some(&next) = wanted.broken.get(at) else { return self.complete(wanted, slots, avoided) };
        let mut outcome = Outcome::Empty;
        let mut breaking = Vec::new();
        for key_at in 0..wanted.key_count() {
            if self.is_spent() {
                return Outcome::Unknown;
            }
            let Some(key) = wanted.key(key_at) else { continue };
            breaking.clear();
            let name_fits = match next {
                Break::Value(lit, rules) => {
                    self.rules_of(wanted, (lit, rules), key, &mut breaking);
                    None
                }
                Break::Name(lit) => Some(lit),
            };
            // One of the rules is to be broken, or else the name is.
            for rule in breaking.iter().copied().map(Some).chain(name_fits.map(|_| None)) {
                let value_fits = rule.map(Lit::not);
                // Any slot of the same name, and one of its own under names that nothing tells apart.
                for place in (0..slots.len()).map(Some).chain([None]) {
                    let is_place = match place {
                        Some(place) => slots[place].key == key,
                        None => matches!(key, Key::Other(_)) || slots.iter().all(|slot| slot.key != key),
                    };
                    if !is_place {
                        continue;
                    }
                    match self.break_in(wanted, at, slots, avoided, (key, place, value_fits, name_fits)) {
                        Outcome::Empty => {}
                        found @ Outcome::Found(_) => return found,
                        Outcome::Unknown => outcome = Outcome::Unknown,
                    }
                }
            }
        }
        outcome
    }

    /// Breaks one thing in one place, and the others after it.
    fn break_in(
        &mut self,
        wanted: &mut Wanted<'s>,
        at: usize,
        slots: &mut Vec<Slot<'s>>,
        avoided: &[Value],
        (key, place, value_fits, name_fits): (Key<'s>, Option<usize>, Option<Lit>, Option<Lit>),
    ) -> Outcome {
        let mut fits = self.rules_at(wanted, key);
        fits.extend(value_fits);
        fits.extend(place.iter().flat_map(|place| slots[*place].value_fits.iter().copied()));
        let value = match self.solve(&fits) {
            Outcome::Found(value) => value,
            none => return none,
        };
        let mut names: Vec<Lit> = name_fits.into_iter().collect();
        names.extend(place.iter().flat_map(|place| slots[*place].name_fits.iter().copied()));
        let is_named = match key {
            Key::Known(name) => {
                let name_value = Value::from(name);
                let breaks = name_fits.map_or(Some(true), |lit| self.accepts(lit, &name_value));
                (breaks != Some(false)).then_some(()).and_then(|()| {
                    let allowed = self.may_be_named(wanted, name);
                    (allowed != Some(false)).then_some(())
                })
            }
            Key::Other(class) => match self.name_of(wanted, class, &names, &[]) {
                Outcome::Empty => None,
                Outcome::Found(_) => Some(()),
                Outcome::Unknown => return Outcome::Unknown,
            },
        };
        if is_named.is_none() {
            return Outcome::Empty;
        }
        let slot = Slot { key, value_fits: value_fits.into_iter().collect(), name_fits: names, value };
        match place {
            Some(place) => {
                let mut slot = slot;
                slot.value_fits.extend(slots[place].value_fits.iter().copied());
                let before = std::mem::replace(&mut slots[place], slot);
                let outcome = self.break_all(wanted, at + 1, slots, avoided);
                slots[place] = before;
                outcome
            }
            None => {
                slots.push(slot);
                let outcome = self.break_all(wanted, at + 1, slots, avoided);
                slots.pop();
                outcome
            }
        }
    }
}
