//! Finds items that make one of the requested arrays, or proves that none do.

use std::collections::HashSet;

use serde_json::Value;

use super::arrays::Wanted;
use super::literal::Lit;
use super::solve::{Outcome, Solver};

/// One step of the way to an array.
struct Step {
    place: Place,
    before: usize,
    /// The last item; `None` at the start, and for the first of two equal ones until the second is chosen.
    item: Option<Value>,
}

/// Where a way to an array stands.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    /// Items so far.
    length: u64,
    counts: Box<[u64]>,
    /// The counts that the first of two equal items let go up, one bit each.
    first: usize,
}

/// Longest array that is looked for.
const LENGTH_MAX: u64 = 5_000;

impl<'s> Solver<'s> {
    /// An item for a place that lets just these counts go up.
    fn item(&mut self, wanted: &Wanted<'s>, place: usize, counted: usize, used: &[Value]) -> Outcome {
        let Some(more) = wanted.counted_at(place, counted) else { return Outcome::Empty };
        let mut lits = wanted.rules_at(place);
        lits.extend(more);
        self.solve_avoiding(&lits, used)
    }

    /// Chooses items, the shortest way first; those at the two places of `pair`, if there is one, are equal.
    pub(super) fn walk_items(
        &mut self,
        wanted: &Wanted<'s>,
        pair: Option<(u64, u64)>,
        at: Option<Lit>,
    ) -> Outcome {
        if wanted.least > LENGTH_MAX {
            at.into_iter().for_each(|lit| self.doubt_at(lit, "minItems"));
            return Outcome::Unknown;
        }
        let places = wanted.places();
        let mut items: Vec<Option<Outcome>> = vec![None; (places + 1) * wanted.choices()];
        let start = Place { length: 0, counts: wanted.no_counts(), first: 0 };
        let mut seen = HashSet::from([start.clone()]);
        let mut way = vec![Step { place: start, before: 0, item: None }];
        let choices = wanted.choices_in_order();
        let mut is_sure = true;
        let mut at = 0;
        while at < way.len() {
            let place = way[at].place.clone();
            let has_pair = pair.is_none_or(|(_, later)| place.length > later);
            if has_pair && wanted.is_end(place.length, &place.counts) {
                return self.gathered(&way, at, pair);
            }
            if !self.step(choices.len()) {
                return Outcome::Unknown;
            }
            let is_full = wanted.most.is_some_and(|most| place.length >= most);
            for &counted in choices.iter().filter(|_| !is_full) {
                let Some(counts) = wanted.counts_after(&place.counts, counted) else { continue };
                let mut next = Place { length: place.length + 1, counts, first: place.first };
                let here = usize::try_from(place.length).unwrap_or(usize::MAX).min(places);
                let outcome = match pair {
                    Some((earlier, _)) if place.length == earlier => {
                        next.first = counted;
                        None
                    }
                    Some((earlier, later)) if place.length == later => {
                        let earlier = (earlier as usize).min(places);
                        Some(self.equal_items(wanted, (earlier, place.first), (here, counted)))
                    }
                    _ => {
                        let known = &mut items[here * choices.len() + counted];
                        if known.is_none() {
                            *known = Some(self.item(wanted, here, counted, &[]));
                        }
                        match known {
                            Some(Outcome::Found(item)) if !self.pay_for(item) => return Outcome::Unknown,
                            known => known.clone(),
                        }
                    }
                };
                let item = match outcome {
                    None => None,
                    Some(Outcome::Found(item)) => Some(item),
                    Some(Outcome::Empty) => continue,
                    Some(Outcome::Unknown) => {
                        is_sure = false;
                        continue;
                    }
                };
                if seen.insert(wanted.alike(&next, pair)) {
                    way.push(Step { place: next, before: at, item });
                }
            }
            at += 1;
        }
        if is_sure { Outcome::Empty } else { Outcome::Unknown }
    }

    /// An item for two places at once.
    fn equal_items(&mut self, wanted: &Wanted<'s>, one: (usize, usize), other: (usize, usize)) -> Outcome {
        let mut lits = Vec::new();
        for (place, counted) in [one, other] {
            let Some(more) = wanted.counted_at(place, counted) else { return Outcome::Empty };
            lits.extend(wanted.rules_at(place));
            lits.extend(more);
        }
        self.solve(&lits)
    }

    /// Chooses items that all differ, going back where there is none left.
    pub(super) fn distinct(
        &mut self,
        wanted: &Wanted<'s>,
        counts: &[u64],
        items: &mut Vec<Value>,
        is_sure: &mut bool,
    ) -> Option<Vec<Value>> {
        // Items tried for one place before others before it; of a set that is not finite, any does.
        const TRIED_MAX: usize = 16;
        let length = items.len() as u64;
        if wanted.is_end(length, counts) {
            return Some(items.clone());
        }
        let most = wanted.most.unwrap_or(u64::MAX).min(wanted.enough());
        if length >= most {
            *is_sure &= wanted.most == Some(most);
            return None;
        }
        let place = items.len().min(wanted.places());
        for counted in wanted.choices_in_order() {
            let Some(after) = wanted.counts_after(counts, counted) else { continue };
            let mut tried = Vec::new();
            for _ in 0..TRIED_MAX {
                if !self.step(1 + items.len() + tried.len()) {
                    *is_sure = false;
                    return None;
                }
                let before = items.len();
                items.append(&mut tried);
                let outcome = self.item(wanted, place, counted, items);
                tried = items.split_off(before);
                match outcome {
                    Outcome::Found(item) => {
                        if !self.pay_for(&item) {
                            *is_sure = false;
                            return None;
                        }
                        tried.push(item.clone());
                        items.push(item);
                        let found = self.distinct(wanted, &after, items, is_sure);
                        items.pop();
                        if found.is_some() {
                            return found;
                        }
                    }
                    Outcome::Empty => break,
                    Outcome::Unknown => {
                        *is_sure = false;
                        break;
                    }
                }
            }
            *is_sure &= tried.len() < TRIED_MAX;
        }
        None
    }

    /// The items chosen on a way.
    fn gathered(&mut self, way: &[Step], mut at: usize, pair: Option<(u64, u64)>) -> Outcome {
        let mut items = Vec::new();
        let mut equal = Value::Null;
        while at != 0 {
            let step = &way[at];
            let item = step.item.clone().unwrap_or_else(|| equal.clone());
            if !self.pay_for(&item) {
                return Outcome::Unknown;
            }
            if pair.is_some_and(|(_, later)| step.place.length == later + 1) {
                equal = item.clone();
            }
            items.push(item);
            at = step.before;
        }
        items.reverse();
        Outcome::Found(Value::Array(items))
    }

    /// Finds an array with two equal items. Places that have no rules of their own are all alike.
    pub(super) fn repeated(&mut self, wanted: &Wanted<'s>, at: Lit) -> Outcome {
        let mut outcome = Outcome::Empty;
        for later in 1..=wanted.places() as u64 + 1 {
            for earlier in 0..later {
                if self.is_spent() {
                    return Outcome::Unknown;
                }
                match self.walk_items(wanted, Some((earlier, later)), Some(at)) {
                    Outcome::Empty => {}
                    found @ Outcome::Found(_) => return found,
                    Outcome::Unknown => outcome = Outcome::Unknown,
                }
            }
        }
        if matches!(outcome, Outcome::Unknown) {
            self.doubt_at(at, "uniqueItems");
        }
        outcome
    }
}

impl Wanted<'_> {
    /// The place that stands for all from which the ways on are the same.
    fn alike(&self, place: &Place, pair: Option<(u64, u64)>) -> Place {
        let far = (self.places() as u64).max(self.least).max(pair.map_or(0, |(_, later)| later + 1));
        Place { length: place.length.min(far), ..place.clone() }
    }
}
