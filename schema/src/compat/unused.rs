//! Finds the properties that one schema declares and another does not know.

use std::collections::BTreeSet;

use serde_json::Value;

use super::LOST_MAX;
use super::place::{Place, Step};
use super::work::Work;

/// The ways to the properties that `knowing` declares where `other` declares some and not these.
///
/// Where `other` declares no property at all, or takes any name under a schema of its own, it is not held to know
/// names. At most [`LOST_MAX`], in the order of a walk by name, as far as the work goes.
pub(super) fn ways(knowing: &Value, other: &Value, work: &mut Work) -> Vec<Vec<Step>> {
    let mut walk = Walk { knowing, other, work, met: BTreeSet::new(), way: Vec::new(), found: Vec::new() };
    walk.visit(&Place::root(knowing), &Place::root(other));
    walk.found
}

struct Walk<'s, 'w> {
    knowing: &'s Value,
    other: &'s Value,
    work: &'w mut Work,
    /// Pairs of places that have been walked, by the addresses of their first subschemas.
    met: BTreeSet<(usize, usize)>,
    way: Vec<Step>,
    found: Vec<Vec<Step>>,
}

/// Deepest way that is walked; recursion ends earlier.
const DEPTH_MAX: usize = 32;

impl<'s> Walk<'s, '_> {
    fn visit(&mut self, knowing: &Place<'s>, other: &Place<'s>) {
        let (Some(one), Some(two)) = (address(knowing), address(other)) else { return };
        if self.way.len() >= DEPTH_MAX || self.found.len() >= LOST_MAX || !self.met.insert((one, two)) {
            return;
        }
        let known = other.declared();
        for name in knowing.declared() {
            if !self.work.look(knowing.width() + other.width()) {
                return;
            }
            let step = Step::Declared(name);
            let Step::Declared(name) = &step else { continue };
            let (inner, known_as) = (knowing.after(self.knowing, &step, 0), known.contains(name));
            if inner.schemas().all(|spoken| spoken.schema == &Value::Bool(false)) {
                continue;
            }
            if known_as {
                let behind = other.after(self.other, &step, 0);
                self.way.push(step);
                self.visit(&inner, &behind);
                self.way.pop();
            } else if !known.is_empty() && !other.is_map() && self.found.len() < LOST_MAX {
                self.way.push(step);
                self.found.push(self.way.clone());
                self.way.pop();
            }
        }
        let items = [knowing.after(self.knowing, &Step::Item, 0), other.after(self.other, &Step::Item, 0)];
        let [one, two] = &items;
        self.way.push(Step::Item);
        self.visit(one, two);
        self.way.pop();
    }
}

fn address(place: &Place<'_>) -> Option<usize> {
    place.schemas().next().map(|spoken| std::ptr::from_ref(spoken.schema).addr())
}
