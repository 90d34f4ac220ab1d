//! Finds an array that fits a set of assertions, or proves that there is none.
//!
//! The search chooses items in order, and counts what must hold for a number of items: how many fit a schema of
//! `contains`, and that one breaks what must be broken. It continues from equal counts only once.

use serde_json::Value;

use super::accept::{are_distinct, equals};
use super::literal::Lit;
use super::node::{ArrayAtom, Form, Id};
use super::solve::{Outcome, Solver};

type Rules<'s> = (Lit, &'s [Id], Option<Id>);

/// The arrays that are asked for.
#[derive(Default)]
pub(super) struct Wanted<'s> {
    rules: Vec<Rules<'s>>,
    counts: Vec<Count<'s>>,
    pub(super) least: u64,
    pub(super) most: Option<u64>,
    unique: Option<Lit>,
    repeated: Option<Lit>,
}

/// Items that are counted.
#[derive(Clone, Copy)]
struct Count<'s> {
    what: Counted<'s>,
    least: u64,
    most: Option<u64>,
}

#[derive(Clone, Copy)]
enum Counted<'s> {
    /// Items that fit this.
    Fits(Lit),
    /// Items that break these.
    Breaks(Rules<'s>),
}

/// Most things that are counted at once.
const COUNTS_MAX: usize = 5;

impl<'s> Wanted<'s> {
    fn add(&mut self, atom: &'s ArrayAtom, lit: Lit) {
        match (atom, lit.is_wanted()) {
            (ArrayAtom::Items { prefix, rest }, true) => self.rules.push((lit, prefix, *rest)),
            (ArrayAtom::Items { prefix, rest }, false) => {
                let what = Counted::Breaks((lit, prefix, *rest));
                self.counts.push(Count { what, least: 1, most: None });
            }
            (ArrayAtom::MinItems(least), true) => self.least = self.least.max(*least),
            (ArrayAtom::MaxItems(most), true) => self.lower(*most),
            (ArrayAtom::MinItems(least), false) => match least.checked_sub(1) {
                Some(most) => self.lower(most),
                // Nothing is shorter than 0.
                None => self.least = u64::MAX,
            },
            (ArrayAtom::MaxItems(most), false) => self.least = self.least.max(most.saturating_add(1)),
            (ArrayAtom::MinContains(id, least), true) => self.count(lit.wanted(*id), *least, None),
            (ArrayAtom::MinContains(id, least), false) => {
                self.count(lit.wanted(*id), 0, Some(least.saturating_sub(1)));
            }
            (ArrayAtom::MaxContains(id, most), true) => self.count(lit.wanted(*id), 0, Some(*most)),
            (ArrayAtom::MaxContains(id, most), false) => {
                self.count(lit.wanted(*id), most.saturating_add(1), None);
            }
            (ArrayAtom::Unique, true) => self.unique = Some(lit),
            (ArrayAtom::Unique, false) => self.repeated = Some(lit),
        }
    }

    fn lower(&mut self, most: u64) {
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
    }

    fn count(&mut self, item: Lit, least: u64, most: Option<u64>) {
        let known =
            self.counts.iter_mut().find(|count| matches!(count.what, Counted::Fits(lit) if lit == item));
        match known {
            Some(known) => {
                known.least = known.least.max(least);
                known.most =
                    most.map_or(known.most, |most| Some(known.most.map_or(most, |known| known.min(most))));
            }
            None => self.counts.push(Count { what: Counted::Fits(item), least, most }),
        }
    }

    fn is_crossed(&self) -> bool {
        self.most.is_some_and(|most| most < self.least)
            || self.counts.iter().any(|count| count.most.is_some_and(|most| most < count.least))
            || self.counts.iter().any(|count| self.most.is_some_and(|most| most < count.least))
            || (self.unique.is_some() && self.repeated.is_some())
    }

    /// Ways in which the counts may go up, or not, with one item: a bit each.
    pub(super) fn choices(&self) -> usize {
        1 << self.counts.len()
    }

    /// Those ways, the ones first that bring the counts closer to where they are to be.
    pub(super) fn choices_in_order(&self) -> Vec<usize> {
        let helpful = |(at, count): (usize, &Count<'_>)| usize::from(count.least > 0) << at;
        let best: usize = self.counts.iter().enumerate().map(helpful).sum();
        let mut choices: Vec<usize> = (0..self.choices()).collect();
        choices.sort_by_key(|choice| (choice ^ best).count_ones());
        choices
    }

    /// Items within which an array is found, if items of every sort can be had without end.
    pub(super) fn enough(&self) -> u64 {
        let counted = self.counts.iter().map(|count| count.least).fold(0, u64::saturating_add);
        self.least.max(self.places() as u64).saturating_add(counted)
    }

    pub(super) fn no_counts(&self) -> Box<[u64]> {
        self.counts.iter().map(|_| 0).collect()
    }

    /// Places that have rules of their own; all further ones are alike.
    pub(super) fn places(&self) -> usize {
        let broken = self.counts.iter().filter_map(|count| match count.what {
            Counted::Breaks(rules) => Some(rules),
            Counted::Fits(_) => None,
        });
        self.rules.iter().copied().chain(broken).map(|(_, prefix, _)| prefix.len()).max().unwrap_or(0)
    }

    /// What is wanted of the item at a place.
    pub(super) fn rules_at(&self, place: usize) -> Vec<Lit> {
        self.rules.iter().filter_map(|rules| rule_at(*rules, place)).collect()
    }

    /// What else is wanted of it when just the counts with their bit set go up; `None` when one of them cannot.
    pub(super) fn counted_at(&self, place: usize, counted: usize) -> Option<Vec<Lit>> {
        let mut lits = Vec::new();
        for (at, count) in self.counts.iter().enumerate() {
            match (count.what, counted >> at & 1 == 1) {
                (Counted::Breaks(rules), true) => lits.push(rule_at(rules, place)?.not()),
                // Counting too few is no harm where only too few are.
                (Counted::Breaks(_), false) => {}
                (Counted::Fits(_), false) if count.most.is_none() => {}
                // Nor is counting too many where only too many are.
                (Counted::Fits(_), true) if count.least == 0 => {}
                (Counted::Fits(lit), true) => lits.push(lit),
                (Counted::Fits(lit), false) => lits.push(lit.not()),
            }
        }
        Some(lits)
    }

    /// The counts after an item; `None` past a bound. From a bound's least on, where there is no most, all are alike.
    pub(super) fn counts_after(&self, counts: &[u64], counted: usize) -> Option<Box<[u64]>> {
        let mut after: Box<[u64]> = counts.into();
        for (at, count) in self.counts.iter().enumerate().filter(|(at, _)| counted >> at & 1 == 1) {
            after[at] += 1;
            match count.most {
                Some(most) if after[at] > most => return None,
                Some(_) => {}
                None => after[at] = after[at].min(count.least),
            }
        }
        Some(after)
    }

    pub(super) fn is_end(&self, length: u64, counts: &[u64]) -> bool {
        length >= self.least && self.counts.iter().zip(counts).all(|(count, so_far)| *so_far >= count.least)
    }
}

/// What rules say of the item at a place, wanted.
fn rule_at((lit, prefix, rest): Rules<'_>, place: usize) -> Option<Lit> {
    prefix.get(place).copied().or(rest).map(|id| lit.wanted(id))
}

impl<'s> Solver<'s> {
    /// Decides assertions on arrays.
    pub(super) fn array(&mut self, atoms: &[Lit], avoided: &[Value]) -> Outcome {
        let mut wanted = Wanted::default();
        for &lit in atoms {
            if let Form::Array(atom) = &self.node(lit).form {
                wanted.add(atom, lit);
            }
        }
        if wanted.is_crossed() {
            return Outcome::Empty;
        }
        let first = atoms.first().copied();
        if wanted.counts.len() > COUNTS_MAX {
            first.into_iter().for_each(|lit| self.doubt_at(lit, "contains"));
            return Outcome::Unknown;
        }
        if !self.each_count_can_go_up(&wanted) {
            return Outcome::Empty;
        }
        let asked = wanted.least;
        for _ in 0..=avoided.len() {
            match self.chosen(&wanted, first) {
                Outcome::Found(found) if avoided.iter().any(|other| equals(other, &found)) => {
                    wanted.least = found.as_array().map_or(0, Vec::len) as u64 + 1;
                }
                // A longer array is one way not to be one of those, not the only one.
                Outcome::Empty if wanted.least > asked => break,
                outcome => return outcome,
            }
            if wanted.is_crossed() {
                break;
            }
        }
        first.into_iter().for_each(|lit| self.doubt_at(lit, "items"));
        Outcome::Unknown
    }

    fn chosen(&mut self, wanted: &Wanted<'s>, first: Option<Lit>) -> Outcome {
        if let Some(lit) = wanted.repeated {
            return self.repeated(wanted, lit);
        }
        match (self.walk_items(wanted, None, first), wanted.unique) {
            (Outcome::Found(Value::Array(items)), Some(lit)) if !are_distinct(&items) => {
                let mut is_sure = true;
                match self.distinct(wanted, &wanted.no_counts(), &mut Vec::new(), &mut is_sure) {
                    Some(items) => Outcome::Found(Value::Array(items)),
                    None if is_sure => Outcome::Empty,
                    None => {
                        self.doubt_at(lit, "uniqueItems");
                        Outcome::Unknown
                    }
                }
            }
            (outcome, _) => outcome,
        }
    }

    /// Whether, for each count that must go up, there is a place where it may. This alone decides most pairs.
    fn each_count_can_go_up(&mut self, wanted: &Wanted<'s>) -> bool {
        for at in (0..wanted.counts.len()).filter(|at| wanted.counts[*at].least > 0) {
            let count = wanted.counts[at];
            let can = |solver: &mut Self, place: usize| {
                let lit = match count.what {
                    Counted::Fits(lit) => Some(lit),
                    Counted::Breaks(rules) => rule_at(rules, place).map(Lit::not),
                };
                let Some(lit) = lit else { return false };
                let mut lits = wanted.rules_at(place);
                lits.push(lit);
                !matches!(solver.solve(&lits), Outcome::Empty)
            };
            let places = (wanted.places() as u64 + 1).min(wanted.most.unwrap_or(u64::MAX)) as usize;
            if !(0..places).any(|place| can(self, place)) {
                return false;
            }
        }
        true
    }
}
