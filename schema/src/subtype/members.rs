//! Builds an object around required members and members that break something, or proves that there is none.

use serde_json::{Map, Value};

use super::accept::equals;
use super::literal::Lit;
use super::node::Types;
use super::objects::{Key, Slot, Wanted};
use super::solve::{Outcome, Solver};

/// Most members that are added for the sake of their number.
const ADDED_MAX: u64 = 2_000;

impl<'s> Solver<'s> {
    /// A name that is not spoken of and matches just the patterns of its class.
    pub(super) fn name_of(
        &mut self,
        wanted: &Wanted<'s>,
        class: usize,
        fits: &[Lit],
        used: &[Value],
    ) -> Outcome {
        let mut lits: Vec<Lit> = wanted.names.clone();
        lits.extend(fits);
        for (at, pattern) in wanted.patterns.iter().enumerate() {
            lits.push(if class >> at & 1 == 1 { *pattern } else { pattern.not() });
        }
        let mut avoided: Vec<Value> = wanted.known.iter().map(|name| Value::from(*name)).collect();
        avoided.extend(used.iter().cloned());
        if lits.is_empty() {
            let fresh = (used.len()..)
                .map(|n| format!("x{n}"))
                .find(|name| !avoided.iter().any(|known| known == name));
            return fresh.map_or(Outcome::Unknown, |name| Outcome::Found(name.into()));
        }
        self.solve_kind(&lits, Types::STRING, &avoided)
    }

    /// Adds what else an object of these slots needs.
    pub(super) fn complete(
        &mut self,
        wanted: &mut Wanted<'s>,
        slots: &[Slot<'s>],
        avoided: &[Value],
    ) -> Outcome {
        let mut members = Map::new();
        for slot in slots {
            if !self.pay_for(&slot.value) {
                return Outcome::Unknown;
            }
            if let Key::Known(name) = slot.key {
                members.insert(name.to_owned(), slot.value.clone());
            }
        }
        for &name in &wanted.has {
            if members.contains_key(name) {
                continue;
            }
            if self.may_be_named(wanted, name) == Some(false) {
                return Outcome::Empty;
            }
            match self.solve(&self.rules_at(wanted, Key::Known(name))) {
                Outcome::Found(value) => members.insert(name.to_owned(), value),
                none => return none,
            };
        }
        for slot in slots {
            if let Key::Other(class) = slot.key {
                let used: Vec<_> = members.keys().map(|name| Value::from(name.as_str())).collect();
                match self.name_of(wanted, class, &slot.name_fits, &used) {
                    Outcome::Found(Value::String(name)) => members.insert(name, slot.value.clone()),
                    // The names of a class may have gone to a slot that had others to choose from.
                    _ => return Outcome::Unknown,
                };
            }
        }
        if wanted.most.is_some_and(|most| most < members.len() as u64) {
            return Outcome::Empty;
        }
        let mut least = wanted.least;
        for _ in 0..=avoided.len() {
            match self.fill(wanted, &mut members, least) {
                Outcome::Found(object) if avoided.iter().any(|other| equals(other, &object)) => {
                    least = members.len() as u64 + 1;
                }
                // A wider object is one way not to be one of those, not the only one.
                Outcome::Empty if least > wanted.least => return Outcome::Unknown,
                outcome => return outcome,
            }
            if wanted.most.is_some_and(|most| most < least) {
                break;
            }
        }
        Outcome::Unknown
    }

    /// Adds members until there are `least`.
    fn fill(&mut self, wanted: &Wanted<'s>, members: &mut Map<String, Value>, least: u64) -> Outcome {
        let mut is_sure = true;
        for at in 0..wanted.key_count() {
            if members.len() as u64 >= least {
                break;
            }
            if self.is_spent() {
                return Outcome::Unknown;
            }
            let Some(key) = wanted.key(at) else { continue };
            if matches!(key, Key::Known(name) if members.contains_key(name)) {
                continue;
            }
            let value = match self.solve(&self.rules_at(wanted, key)) {
                Outcome::Found(value) => value,
                Outcome::Empty => continue,
                Outcome::Unknown => {
                    is_sure = false;
                    continue;
                }
            };
            match key {
                Key::Known(name) => {
                    if self.may_be_named(wanted, name) != Some(false) {
                        members.insert(name.to_owned(), value);
                    }
                }
                Key::Other(class) => is_sure &= self.fill_class(wanted, class, members, &value, least),
            }
        }
        if members.len() as u64 >= least {
            Outcome::Found(Value::Object(members.clone()))
        } else if is_sure {
            Outcome::Empty
        } else {
            Outcome::Unknown
        }
    }

    /// Adds members under names of one class; `false` when there may be more of them than were added.
    fn fill_class(
        &mut self,
        wanted: &Wanted<'s>,
        class: usize,
        members: &mut Map<String, Value>,
        value: &Value,
        least: u64,
    ) -> bool {
        for _ in 0..ADDED_MAX {
            if members.len() as u64 >= least {
                return true;
            }
            let used: Vec<_> = members.keys().map(|name| Value::from(name.as_str())).collect();
            match self.name_of(wanted, class, &[], &used) {
                Outcome::Found(Value::String(name)) if self.pay_for(value) => {
                    members.insert(name, value.clone())
                }
                Outcome::Empty => return true,
                Outcome::Found(_) | Outcome::Unknown => return false,
            };
            if !self.step(members.len()) {
                return false;
            }
        }
        if let Some((lit, _)) = wanted.rules.first() {
            self.doubt_at(*lit, "minProperties");
        }
        false
    }
}
