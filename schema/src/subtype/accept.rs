//! Decides whether a value fits a literal, as far as that is modelled.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::literal::Lit;
use super::node::{ArrayAtom, Form, Id, Members, NumberAtom, ObjectAtom, StringAtom, Types};
use super::number::{Num, Ratio};
use super::solve::Solver;

/// Values held against another that weigh as much as a step of the proof.
const EQUALS_A_STEP: usize = 16;

impl<'s> Solver<'s> {
    /// Whether `value` fits; `None` when that is not known.
    pub(super) fn accepts(&mut self, lit: Lit, value: &Value) -> Option<bool> {
        if !lit.is_wanted() {
            return self.accepts(lit.not(), value).map(|fits| !fits);
        }
        if !self.step(1) || !self.deeper() {
            return None;
        }
        let fits = self.accepts_wanted(lit, value);
        self.back();
        fits
    }

    fn accepts_wanted(&mut self, lit: Lit, value: &Value) -> Option<bool> {
        let kind = Types::of(value);
        let node = self.node(lit);
        if !node.may.has(kind) || node.must.has(kind) {
            return Some(node.must.has(kind));
        }
        match &node.form {
            Form::Type(types) => Some(types.has(kind)),
            Form::All(parts) => self.every(lit, parts, value),
            Form::Any(parts) => self.some(lit, parts, value),
            Form::One(parts) => self.one(lit, parts, value),
            Form::Not(part) => self.accepts(lit.wanted(*part), value).map(|fits| !fits),
            Form::Same(to) => self.accepts(lit.wanted(*to), value),
            Form::Scalars(values) => self
                .step(values.len() / EQUALS_A_STEP)
                .then(|| values.iter().any(|other| equals(value, other))),
            Form::Number(atom) => number(*atom, value),
            Form::String(atom) => Some(self.fits_text(lit, *atom, value.as_str()?)?),
            Form::Array(atom) => self.fits_items(lit, atom, value.as_array()?),
            Form::Object(atom) => {
                let members = value.as_object()?;
                match atom {
                    ObjectAtom::Has(name) => Some(members.contains_key(&**name)),
                    ObjectAtom::MinProperties(least) => Some(members.len() as u64 >= *least),
                    ObjectAtom::MaxProperties(most) => Some(members.len() as u64 <= *most),
                    ObjectAtom::Names(names) => {
                        let each =
                            members.keys().map(|name| (lit.wanted(*names), Value::from(name.as_str())));
                        let each: Vec<_> = each.collect();
                        self.all_fit(each.iter().map(|(lit, name)| (*lit, name)))
                    }
                    ObjectAtom::Members(rules) => {
                        let mut each = Vec::new();
                        for (name, member) in members {
                            let mut found = Vec::new();
                            self.rules_for(lit, rules, name, &mut found);
                            each.extend(found.into_iter().map(|rule| (rule, member)));
                        }
                        self.all_fit(each)
                    }
                }
            }
            Form::Opaque(_) => None,
        }
    }

    /// Adds what `rules` says of a member of this name, wanted.
    pub(super) fn rules_for(&self, lit: Lit, rules: &Members, name: &str, found: &mut Vec<Lit>) {
        let before = found.len();
        found.extend(rules.named(name).map(|id| lit.wanted(id)));
        for (pattern, id) in &rules.patterns {
            if self.matches(lit.wanted(*pattern), name) {
                found.push(lit.wanted(*id));
            }
        }
        if found.len() == before {
            found.extend(rules.rest.map(|id| lit.wanted(id)));
        }
    }

    /// Whether the pattern of a pattern's node is found in `text`.
    pub(super) fn matches(&self, pattern: Lit, text: &str) -> bool {
        match self.node(pattern).form {
            Form::String(StringAtom::Pattern(at)) => {
                self.schema(pattern).patterns[at as usize].automaton.accepts(text)
            }
            _ => false,
        }
    }

    fn fits_text(&mut self, lit: Lit, atom: StringAtom, text: &str) -> Option<bool> {
        let bytes_a_step = if matches!(atom, StringAtom::Format(_)) { 8 } else { 64 };
        if !self.step(text.len() / bytes_a_step) {
            return None;
        }
        match atom {
            StringAtom::MinLength(least) => Some(text.chars().count() as u64 >= least),
            StringAtom::MaxLength(most) => Some(text.chars().count() as u64 <= most),
            StringAtom::Pattern(_) => Some(self.matches(lit, text)),
            StringAtom::Format(format) => format.accepts(text),
        }
    }

    fn fits_items(&mut self, lit: Lit, atom: &'s ArrayAtom, items: &[Value]) -> Option<bool> {
        match atom {
            ArrayAtom::MinItems(least) => Some(items.len() as u64 >= *least),
            ArrayAtom::MaxItems(most) => Some(items.len() as u64 <= *most),
            ArrayAtom::Unique => self.step(items.len() / 4).then(|| are_distinct(items)),
            ArrayAtom::Items { prefix, rest } => {
                let rules = prefix.iter().copied().map(Some).chain(std::iter::repeat(*rest));
                let each: Vec<_> =
                    items.iter().zip(rules).filter_map(|(item, id)| Some((lit.wanted(id?), item))).collect();
                self.all_fit(each)
            }
            ArrayAtom::MinContains(id, count) | ArrayAtom::MaxContains(id, count) => {
                let (mut sure, mut unsure) = (0_u64, 0_u64);
                for item in items {
                    match self.accepts(lit.wanted(*id), item) {
                        Some(fits) => sure += u64::from(fits),
                        None => unsure += 1,
                    }
                }
                let is_least = matches!(atom, ArrayAtom::MinContains(..));
                let holds = |found: u64| if is_least { found >= *count } else { found <= *count };
                (holds(sure) == holds(sure + unsure)).then_some(holds(sure))
            }
        }
    }

    fn every(&mut self, lit: Lit, parts: &[Id], value: &Value) -> Option<bool> {
        self.all_fit(parts.iter().map(|part| (lit.wanted(*part), value)))
    }

    fn all_fit<'v>(&mut self, each: impl IntoIterator<Item = (Lit, &'v Value)>) -> Option<bool> {
        let mut known = Some(true);
        for (lit, value) in each {
            match self.accepts(lit, value) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => known = None,
            }
        }
        known
    }

    fn some(&mut self, lit: Lit, parts: &[Id], value: &Value) -> Option<bool> {
        let mut known = Some(false);
        for part in parts {
            match self.accepts(lit.wanted(*part), value) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => known = None,
            }
        }
        known
    }

    fn one(&mut self, lit: Lit, parts: &[Id], value: &Value) -> Option<bool> {
        let (mut sure, mut is_sure) = (0, true);
        for part in parts {
            match self.accepts(lit.wanted(*part), value) {
                Some(fits) => sure += usize::from(fits),
                None => is_sure = false,
            }
            if sure > 1 {
                return Some(false);
            }
        }
        is_sure.then_some(sure == 1)
    }
}

fn number(atom: NumberAtom, value: &Value) -> Option<bool> {
    let written = value.as_number()?;
    let number = Num::of(written)?;
    Some(match atom {
        NumberAtom::AtLeast(limit) => number.order(limit) != Ordering::Less,
        NumberAtom::Above(limit) => number.order(limit) == Ordering::Greater,
        NumberAtom::AtMost(limit) => number.order(limit) != Ordering::Greater,
        NumberAtom::Below(limit) => number.order(limit) == Ordering::Less,
        NumberAtom::MultipleOf(step) => {
            if matches!(number, Num::Whole(0)) {
                return Some(true);
            }
            // Further out the two readings of a number part, unless it is an integer as written.
            let is_integer = written.is_u64() || written.is_i64();
            if !(number.is_exact() || is_integer && step.is_whole()) {
                return None;
            }
            step.period_of(Ratio::of(written)?)? == 1
        }
    })
}

/// Equality as JSON Schema has it: numbers by value.
pub(super) fn equals(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (Num::of(one), Num::of(other)) {
            (Some(one), Some(other)) => one.order(other) == Ordering::Equal,
            _ => false,
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equals(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| equals(one, other)))
        }
        _ => one == other,
    }
}

/// Whether no two of `items` are equal.
pub(super) fn are_distinct(items: &[Value]) -> bool {
    // Few enough to be held against each other.
    const FEW: usize = 16;
    if items.len() <= FEW {
        return items.iter().enumerate().all(|(at, one)| !items[..at].iter().any(|other| equals(one, other)));
    }
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| seen.insert(spelled(item).to_string()))
}

/// The value with each number in one spelling, so that equal values have equal texts.
fn spelled(value: &Value) -> Value {
    match value {
        Value::Number(number) => Num::of(number).and_then(Num::to_json).map_or(Value::Null, Value::Number),
        Value::Array(items) => items.iter().map(spelled).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), spelled(value))).collect::<Map<_, _>>().into()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
