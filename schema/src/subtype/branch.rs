//! Splits literals into assertions on one kind of value, one way of satisfying the joined nodes at a time.

use serde_json::Value;

use super::literal::Lit;
use super::node::{Form, Types};
use super::solve::{Outcome, Solver};

/// One way of fitting everything, as far as it is laid out.
#[derive(Clone, Default)]
struct Branch {
    /// Assertions on the kind at hand, and opaque nodes.
    atoms: Vec<Lit>,
    /// Joined nodes that are fitted in one of several ways each.
    pending: Vec<Lit>,
}

impl Solver<'_> {
    /// Finds a value of one kind that fits all of `lits` and equals none of `avoided`.
    pub(super) fn of_kind(&mut self, lits: &[Lit], kind: Types, avoided: &[Value]) -> Outcome {
        let mut branch = Branch::default();
        for &lit in lits {
            if !self.lay_out(lit, kind, &mut branch) {
                return Outcome::Empty;
            }
        }
        self.search(branch, kind, avoided)
    }

    /// Adds what a literal says of this kind; `false` when nothing of the kind fits it.
    fn lay_out(&mut self, lit: Lit, kind: Types, branch: &mut Branch) -> bool {
        let (may, must) = self.masks(lit);
        if !may.has(kind) {
            return false;
        }
        if must.has(kind) {
            return true;
        }
        if !self.step(1) || !self.deeper() {
            // Left in place, so that the branch is not taken for one without conditions.
            branch.pending.push(lit);
            return true;
        }
        let fits = self.lay_out_node(lit, kind, branch);
        self.back();
        fits
    }

    fn lay_out_node(&mut self, lit: Lit, kind: Types, branch: &mut Branch) -> bool {
        match (&self.node(lit).form, lit.is_wanted()) {
            (Form::Same(to), _) => self.lay_out(lit.with(*to), kind, branch),
            (Form::Not(part), _) => self.lay_out(lit.with(*part).not(), kind, branch),
            (Form::All(parts), true) | (Form::Any(parts), false) => {
                parts.iter().all(|part| self.lay_out(lit.with(*part), kind, branch))
            }
            (Form::Any(parts), true) | (Form::All(parts), false) => {
                let mut open =
                    parts.iter().map(|part| lit.with(*part)).filter(|way| self.masks(*way).0.has(kind));
                match (open.next(), open.next()) {
                    (None, _) => false,
                    (Some(only), None) => self.lay_out(only, kind, branch),
                    (Some(_), Some(_)) => {
                        branch.pending.push(lit);
                        true
                    }
                }
            }
            (Form::One(_), _) => {
                branch.pending.push(lit);
                true
            }
            // Its masks have decided it.
            (Form::Type(_), _) => true,
            (
                Form::Scalars(_)
                | Form::Number(_)
                | Form::String(_)
                | Form::Array(_)
                | Form::Object(_)
                | Form::Opaque(_),
                _,
            ) => {
                branch.atoms.push(lit);
                true
            }
        }
    }

    /// The ways to fit a joined node: sets of literals.
    fn ways(&mut self, lit: Lit, kind: Types) -> Vec<Vec<Lit>> {
        if let Form::One(parts) = &self.node(lit).form
            && !self.step(parts.len() * parts.len())
        {
            return vec![vec![lit]];
        }
        match (&self.node(lit).form, lit.is_wanted()) {
            (Form::Any(parts), true) | (Form::All(parts), false) => parts
                .iter()
                .map(|part| lit.with(*part))
                .filter(|way| self.masks(*way).0.has(kind))
                .map(|way| vec![way])
                .collect(),
            (Form::One(parts), true) => {
                let all_but = |chosen: usize| {
                    let one = |(at, part): (usize, &u32)| {
                        let part = lit.with(*part);
                        if at == chosen { part } else { part.not() }
                    };
                    parts.iter().enumerate().map(one).collect()
                };
                (0..parts.len()).map(all_but).collect()
            }
            (Form::One(parts), false) => {
                let mut ways = vec![parts.iter().map(|part| lit.with(*part)).collect::<Vec<_>>()];
                for (at, part) in parts.iter().enumerate() {
                    let first = lit.wanted(*part);
                    if self.masks(first).0.has(kind) {
                        ways.extend(parts[at + 1..].iter().map(|second| vec![first, lit.wanted(*second)]));
                    }
                }
                ways
            }
            // Laid out already, but for a budget that was spent.
            _ => vec![vec![lit]],
        }
    }

    /// Decides a branch, splitting it as far as it must be.
    fn search(&mut self, mut branch: Branch, kind: Types, avoided: &[Value]) -> Outcome {
        loop {
            if self.is_spent() || !self.step(1 + branch.atoms.len() / 16) {
                return Outcome::Unknown;
            }
            if self.is_contradiction(&branch.atoms) {
                return Outcome::Empty;
            }
            match branch.pending.len() {
                0 => {
                    let outcome = self.decide(&branch.atoms, kind, avoided);
                    return self.judged(outcome);
                }
                1 => return self.split(&mut branch, 0, kind, avoided),
                _ => match self.narrow(&mut branch, kind, avoided) {
                    Narrowed::Decided(outcome) => return self.judged(outcome),
                    Narrowed::Settled => {}
                    Narrowed::Open(at) => return self.split(&mut branch, at, kind, avoided),
                },
            }
        }
    }

    /// Takes the steps that a copy of a branch is worth; `false` when none are left, so that no way is tried any more.
    fn may_copy(&mut self, branch: &Branch) -> bool {
        self.step((branch.atoms.len() + branch.pending.len()) / COPIED_A_STEP) && !self.is_spent()
    }

    /// Fits the pending node at `at` in each of its ways in turn.
    fn split(&mut self, branch: &mut Branch, at: usize, kind: Types, avoided: &[Value]) -> Outcome {
        if !self.deeper() {
            return Outcome::Unknown;
        }
        let lit = branch.pending.remove(at);
        let mut outcome = Outcome::Empty;
        for way in self.ways(lit, kind) {
            if !self.may_copy(branch) {
                outcome = Outcome::Unknown;
                break;
            }
            let mut next = branch.clone();
            if !way.iter().all(|lit| self.lay_out(*lit, kind, &mut next)) {
                continue;
            }
            match self.search(next, kind, avoided) {
                Outcome::Empty => {}
                found @ Outcome::Found(_) => {
                    outcome = found;
                    break;
                }
                Outcome::Unknown => outcome = Outcome::Unknown,
            }
        }
        self.back();
        outcome
    }

    /// Looks at each pending node by itself, beside the assertions alone: one that cannot be fitted ends the branch, and
    /// one that can be fitted in a single way is laid out.
    fn narrow(&mut self, branch: &mut Branch, kind: Types, avoided: &[Value]) -> Narrowed {
        match self.decide(&branch.atoms, kind, avoided) {
            Outcome::Empty => return Narrowed::Decided(Outcome::Empty),
            Outcome::Found(value) if self.fits(&branch.pending, &value) => {
                return Narrowed::Decided(Outcome::Found(value));
            }
            Outcome::Found(_) | Outcome::Unknown => {}
        }
        let mut fewest = (usize::MAX, 0);
        for at in 0..branch.pending.len() {
            let alone = Branch { atoms: branch.atoms.clone(), pending: Vec::new() };
            let mut open = Vec::new();
            for way in self.ways(branch.pending[at], kind) {
                if !self.may_copy(&alone) {
                    return Narrowed::Decided(Outcome::Unknown);
                }
                let mut next = alone.clone();
                if !way.iter().all(|lit| self.lay_out(*lit, kind, &mut next)) {
                    continue;
                }
                if self.is_contradiction(&next.atoms) {
                    continue;
                }
                match self.decide(&next.atoms, kind, avoided) {
                    Outcome::Empty => continue,
                    Outcome::Found(value) if self.fits(&branch.pending, &value) => {
                        return Narrowed::Decided(Outcome::Found(value));
                    }
                    Outcome::Found(_) | Outcome::Unknown => open.push(next),
                }
                if self.is_spent() {
                    return Narrowed::Decided(Outcome::Unknown);
                }
            }
            match open.len() {
                0 => return Narrowed::Decided(Outcome::Empty),
                1 => {
                    branch.pending.remove(at);
                    let only = open.remove(0);
                    branch.atoms = only.atoms;
                    branch.pending.extend(only.pending);
                    return Narrowed::Settled;
                }
                count => fewest = fewest.min((count, at)),
            }
        }
        Narrowed::Open(fewest.1)
    }

    /// Whether a value fits all of `lits` for sure.
    fn fits(&mut self, lits: &[Lit], value: &Value) -> bool {
        lits.iter().all(|lit| self.accepts(*lit, value) == Some(true))
    }

    /// Decides assertions on one kind of value.
    fn decide(&mut self, atoms: &[Lit], kind: Types, avoided: &[Value]) -> Outcome {
        if !self.step(1 + atoms.len()) {
            return Outcome::Unknown;
        }
        for &atom in atoms {
            if let Some(keyword) = super::solve::opaque(self.node(atom)) {
                self.doubt_at(atom, keyword);
            }
        }
        let listed = atoms.iter().enumerate().find_map(|(at, atom)| match &self.node(*atom).form {
            Form::Scalars(values) if atom.is_wanted() => Some((at, values)),
            _ => None,
        });
        if let Some((at, values)) = listed {
            // They fit the list that they are of.
            let others: Vec<Lit> = [&atoms[..at], &atoms[at + 1..]].concat();
            return self.among(values.iter().filter(|value| Types::of(value) == kind), &others, avoided);
        }
        match kind {
            Types::NULL => self.among([&Value::Null], atoms, avoided),
            Types::BOOLEAN => self.among([&Value::Bool(false), &Value::Bool(true)], atoms, avoided),
            Types::INTEGER | Types::FRACTION => self.number(atoms, kind, avoided),
            Types::STRING => self.string(atoms, avoided),
            Types::ARRAY => self.array(atoms, avoided),
            _ => self.object(atoms, avoided),
        }
    }

    /// The first of a few values that fits.
    fn among<'v>(
        &mut self,
        values: impl IntoIterator<Item = &'v Value>,
        atoms: &[Lit],
        avoided: &[Value],
    ) -> Outcome {
        let mut doubtful = None;
        for value in values {
            if !self.step(1 + avoided.len() / 4) {
                return Outcome::Unknown;
            }
            if avoided.iter().any(|other| super::accept::equals(value, other)) {
                continue;
            }
            let verdicts: Vec<_> = atoms.iter().map(|atom| self.accepts(*atom, value)).collect();
            if verdicts.contains(&Some(false)) {
                continue;
            }
            if !verdicts.contains(&None) {
                return Outcome::Found(value.clone());
            }
            doubtful.get_or_insert(value);
        }
        doubtful.map_or(Outcome::Empty, |value| Outcome::Found(value.clone()))
    }
}

/// Literals whose copies weigh as much as a step of the proof.
const COPIED_A_STEP: usize = 512;

enum Narrowed {
    Decided(Outcome),
    /// Laid out further; to be looked at again.
    Settled,
    /// The pending node to split next.
    Open(usize),
}
