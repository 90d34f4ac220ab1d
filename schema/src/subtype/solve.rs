//! Finds a value that fits a set of literals, proves that there is none, or leaves it undecided.

use std::cell::Cell;
use std::collections::HashMap;

use serde_json::Value;

use super::budget::{Budget, LEVELS_MAX};
use super::compiled::Compiled;
use super::literal::Lit;
use super::node::{Form, Node, Opaque, Types};
use super::same;

/// What is known of a set of literals.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// No value fits.
    Empty,
    /// This one does, as far as what is modelled goes.
    Found(Value),
    Unknown,
}

/// What kept an answer from being found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) side: usize,
    pub(super) origin: u32,
    pub(super) construct: &'static str,
}

/// One proof: its budget, what it found out, and what it is in the middle of.
pub(super) struct Solver<'s> {
    sides: [&'s Compiled; 2],
    budget: Budget,
    doubt: Option<Doubt>,
    level: usize,
    depth: usize,
    /// Sets that are being solved, outermost first, each with its place.
    open: HashMap<Box<[Lit]>, usize>,
    /// The outermost open set that an answer rested on.
    rested_on: usize,
    known: HashMap<Box<[Lit]>, Outcome>,
}

const NOTHING: usize = usize::MAX;
/// Steps of a validator over one witness.
const JUDGE_STEPS_MAX: u64 = 400_000;
/// Steps of a validator that weigh as much as one of the proof.
const JUDGE_STEPS_A_STEP: usize = 32;
/// Nodes held against each other that weigh as much as a step of the proof.
const COMPARED_A_STEP: usize = 8;
/// Unwanted literals that are gone through one by one.
const UNWANTED_FEW: usize = 8;
/// Calls that a proof nests where schemas or ways of fitting them do; together they stay within 1 MiB of stack.
const DEPTH_MAX: usize = 400;

impl<'s> Solver<'s> {
    /// A fresh proof between two schemas, of at most so many steps.
    pub(super) fn new(a: &'s Compiled, b: &'s Compiled, steps: u64) -> Self {
        Self {
            sides: [a, b],
            budget: Budget::of(steps),
            doubt: None,
            level: 0,
            depth: 0,
            open: HashMap::new(),
            rested_on: NOTHING,
            known: HashMap::new(),
        }
    }

    /// Takes an answer to a part of the question as a whole: a value that the validators do not bear out is none.
    pub(super) fn judged(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Found(value) if self.level == 1 && !self.is_borne_out(&value) => Outcome::Unknown,
            outcome => outcome,
        }
    }

    /// Whether both validators say that a witness is one.
    fn is_borne_out(&mut self, value: &Value) -> bool {
        [(0, true), (1, false)].into_iter().all(|(side, wanted)| {
            let (fits, steps) = self.sides[side].validator.judge(value, JUDGE_STEPS_MAX);
            // A step of a validator is a fraction of one of the proof.
            fits == Some(wanted) && self.step(1 + steps as usize / JUDGE_STEPS_A_STEP)
        })
    }

    pub(super) fn schema(&self, lit: Lit) -> &'s Compiled {
        self.sides[lit.side()]
    }

    pub(super) fn node(&self, lit: Lit) -> &'s Node {
        self.schema(lit).node(lit.id())
    }

    /// Kinds of values that may fit, and that all fit.
    pub(super) fn masks(&self, lit: Lit) -> (Types, Types) {
        let node = self.node(lit);
        if lit.is_wanted() { (node.may, node.must) } else { (node.must.not(), node.may.not()) }
    }

    /// Takes steps; `false`, and a doubt, when none are left.
    pub(super) fn step(&mut self, steps: usize) -> bool {
        let is_left = self.budget.take(steps);
        if !is_left {
            self.doubt = Some(Doubt { side: 0, origin: 0, construct: "budget" });
        }
        is_left
    }

    pub(super) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// What is left of it.
    pub(super) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Notes what is not decided; the first such thing is told.
    pub(super) fn doubt_at(&mut self, lit: Lit, construct: &'static str) {
        let origin = self.node(lit).origin;
        self.doubt.get_or_insert(Doubt { side: lit.side(), origin, construct });
    }

    /// The first thing that was not decided.
    pub(super) fn doubt(&self) -> Doubt {
        self.doubt.unwrap_or(Doubt { side: 0, origin: 0, construct: "schema" })
    }

    /// Finds a value that fits all of `lits`.
    ///
    /// Asked from outside, a value that is found was accepted by the validator of the first schema and rejected by that
    /// of the second.
    pub(super) fn solve(&mut self, lits: &[Lit]) -> Outcome {
        self.solve_avoiding(lits, &[])
    }

    /// Finds a value that fits all of `lits` and equals none of `avoided`.
    pub(super) fn solve_avoiding(&mut self, lits: &[Lit], avoided: &[Value]) -> Outcome {
        if !self.step(1 + lits.len() + avoided.len()) {
            return Outcome::Unknown;
        }
        let Some((set, types)) = self.normal(lits) else { return Outcome::Empty };
        if !avoided.is_empty() || types.and(Types::ARRAY.or(Types::OBJECT)).is_empty() {
            return self.each_kind(&set, types, avoided);
        }
        let set: Box<[Lit]> = set.into();
        if let Some(known) = self.known.get(&set) {
            let known = known.clone();
            return if self.pay(&known) { known } else { Outcome::Unknown };
        }
        if let Some(at) = self.open.get(&set) {
            // A value of this set would hold a smaller value of the same set, and so on without end.
            self.rested_on = self.rested_on.min(*at);
            return Outcome::Empty;
        }
        let place = self.open.len();
        self.open.insert(set.clone(), place);
        let outside = std::mem::replace(&mut self.rested_on, NOTHING);
        let outcome = self.each_kind(&set, types, &[]);
        self.open.remove(&set);
        // An answer that rests on a set further out holds only as long as that one is open.
        let rests_outside = self.rested_on < place;
        if (!rests_outside || matches!(outcome, Outcome::Found(_))) && self.pay(&outcome) {
            self.known.insert(set, outcome.clone());
        }
        self.rested_on = if rests_outside { outside.min(self.rested_on) } else { outside };
        outcome
    }

    /// Finds a value of one kind, further in.
    pub(super) fn solve_kind(&mut self, lits: &[Lit], kind: Types, avoided: &[Value]) -> Outcome {
        if !self.step(1 + lits.len() + avoided.len()) {
            return Outcome::Unknown;
        }
        self.level += 1;
        let outcome = self.of_kind(lits, kind, avoided);
        self.level -= 1;
        outcome
    }

    /// The set sorted, without what says nothing, and the kinds of values left; `None` when it contradicts itself.
    fn normal(&mut self, lits: &[Lit]) -> Option<(Vec<Lit>, Types)> {
        let mut types = Types::ALL;
        let mut set = Vec::with_capacity(lits.len());
        for &lit in lits {
            let lit = lit.with(self.schema(lit).target(lit.id()));
            let (may, must) = self.masks(lit);
            types = types.and(may);
            if must != Types::ALL {
                set.push(lit);
            }
        }
        if types.is_empty() {
            return None;
        }
        set.sort_unstable();
        set.dedup();
        (!self.is_contradiction(&set)).then_some((set, types))
    }

    /// Whether what is wanted is, word for word, among what is not.
    pub(super) fn is_contradiction(&mut self, lits: &[Lit]) -> bool {
        let compared = Cell::new(0);
        let is_one = self.has_opposites(lits, &compared);
        // A budget that this ends does not make it less of one.
        self.step(compared.get() / COMPARED_A_STEP);
        is_one
    }

    fn has_opposites(&self, lits: &[Lit], compared: &Cell<usize>) -> bool {
        let unwanted = || lits.iter().filter(|lit| !lit.is_wanted());
        let count = unwanted().count();
        let same = |one: Lit, other: Lit| {
            same::equal((self.schema(one), one.id()), (self.schema(other), other.id()), compared)
        };
        let mut few = [None; UNWANTED_FEW];
        let is_unwanted: &dyn Fn(Lit) -> bool = if count <= UNWANTED_FEW {
            // Picked out once: there may be tens of thousands of the others, and each is asked about.
            few.iter_mut().zip(unwanted()).for_each(|(place, lit)| *place = Some(*lit));
            &|lit| few.iter().flatten().any(|other| same(lit, *other))
        } else {
            let mut by_hash: Vec<(u64, Lit)> = unwanted().map(|lit| (self.node(*lit).hash, *lit)).collect();
            by_hash.sort_unstable();
            &move |lit| {
                let hash = self.node(lit).hash;
                let from = by_hash.partition_point(|(other, _)| *other < hash);
                by_hash[from..]
                    .iter()
                    .take_while(|(other, _)| *other == hash)
                    .any(|(_, other)| same(lit, *other))
            }
        };
        count > 0 && lits.iter().filter(|lit| lit.is_wanted()).any(|lit| is_unwanted(*lit))
    }

    /// Takes the steps that a copy of a value is worth.
    pub(super) fn pay_for(&mut self, value: &Value) -> bool {
        let bytes_a_step = 64;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.step(1),
            Value::String(text) => self.step(1 + text.len() / bytes_a_step),
            Value::Array(items) => self.step(1) && items.iter().all(|item| self.pay_for(item)),
            Value::Object(members) => {
                self.step(1 + members.len()) && members.values().all(|member| self.pay_for(member))
            }
        }
    }

    fn pay(&mut self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Found(value) => self.pay_for(value),
            Outcome::Empty | Outcome::Unknown => true,
        }
    }

    /// Goes one call deeper; `false`, and the end of the proof, where the stack might not hold it.
    pub(super) fn deeper(&mut self) -> bool {
        self.depth += 1;
        self.depth <= DEPTH_MAX || self.step(usize::MAX)
    }

    /// Comes back from where [`Solver::deeper`] went.
    pub(super) fn back(&mut self) {
        self.depth -= 1;
    }

    fn each_kind(&mut self, lits: &[Lit], types: Types, avoided: &[Value]) -> Outcome {
        if self.level >= LEVELS_MAX {
            if let Some(&lit) = lits.first() {
                self.doubt_at(lit, "budget");
            }
            return Outcome::Unknown;
        }
        self.level += 1;
        let mut outcome = Outcome::Empty;
        for kind in Types::EACH.into_iter().filter(|kind| types.has(*kind)) {
            match self.of_kind(lits, kind, avoided) {
                Outcome::Empty => {}
                found @ Outcome::Found(_) => {
                    outcome = found;
                    break;
                }
                Outcome::Unknown => outcome = Outcome::Unknown,
            }
        }
        self.level -= 1;
        outcome
    }
}

/// The form of an opaque node, told when it kept an answer from being found.
pub(super) fn opaque(node: &Node) -> Option<&'static str> {
    match node.form {
        Form::Opaque(Opaque { keyword, .. }) => Some(keyword),
        _ => None,
    }
}
