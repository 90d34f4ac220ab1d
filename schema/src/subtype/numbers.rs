//! Finds a number that fits a set of assertions, or proves that there is none.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::literal::Lit;
use super::node::{Form, NumberAtom, Types};
use super::number::{EXACT_MAX, Num, Ratio};
use super::solve::{Outcome, Solver};

/// Steps of a whole number's lattice that are tried one after the other.
const TRIED_MAX: usize = 4_096;

/// The numbers that are asked for.
#[derive(Default)]
struct Wanted {
    /// The lower bound, and whether it is itself outside.
    low: Option<(Num, bool)>,
    high: Option<(Num, bool)>,
    steps: Vec<Ratio>,
    /// Steps whose multiples are not wanted.
    not_steps: Vec<Ratio>,
    not_equal: Vec<Num>,
}

impl Wanted {
    fn add(&mut self, atom: NumberAtom, is_wanted: bool) {
        match (atom, is_wanted) {
            (NumberAtom::AtLeast(limit), true) => self.raise(limit, false),
            (NumberAtom::Above(limit), true) => self.raise(limit, true),
            (NumberAtom::AtMost(limit), true) => self.lower(limit, false),
            (NumberAtom::Below(limit), true) => self.lower(limit, true),
            (NumberAtom::AtLeast(limit), false) => self.lower(limit, true),
            (NumberAtom::Above(limit), false) => self.lower(limit, false),
            (NumberAtom::AtMost(limit), false) => self.raise(limit, true),
            (NumberAtom::Below(limit), false) => self.raise(limit, false),
            (NumberAtom::MultipleOf(step), true) => self.steps.push(step),
            (NumberAtom::MultipleOf(step), false) => self.not_steps.push(step),
        }
    }

    fn raise(&mut self, limit: Num, outside: bool) {
        let is_above = |(known, known_outside): (Num, bool)| match limit.order(known) {
            Ordering::Less => false,
            Ordering::Equal => outside && !known_outside,
            Ordering::Greater => true,
        };
        if self.low.is_none_or(is_above) {
            self.low = Some((limit, outside));
        }
    }

    fn lower(&mut self, limit: Num, outside: bool) {
        let is_below = |(known, known_outside): (Num, bool)| match limit.order(known) {
            Ordering::Greater => false,
            Ordering::Equal => outside && !known_outside,
            Ordering::Less => true,
        };
        if self.high.is_none_or(is_below) {
            self.high = Some((limit, outside));
        }
    }

    fn is_crossed(&self) -> bool {
        let (Some((low, low_outside)), Some((high, high_outside))) = (self.low, self.high) else {
            return false;
        };
        match low.order(high) {
            Ordering::Less => false,
            Ordering::Equal => low_outside || high_outside,
            Ordering::Greater => true,
        }
    }

    fn has(&self, number: Num) -> bool {
        let above = |(low, outside): (Num, bool)| match number.order(low) {
            Ordering::Less => false,
            Ordering::Equal => !outside,
            Ordering::Greater => true,
        };
        let below = |(high, outside): (Num, bool)| match number.order(high) {
            Ordering::Less => true,
            Ordering::Equal => !outside,
            Ordering::Greater => false,
        };
        self.low.is_none_or(above)
            && self.high.is_none_or(below)
            && !self.not_equal.iter().any(|other| number.order(*other) == Ordering::Equal)
    }

    /// Whether both bounds keep to where a number's two readings agree.
    fn is_exact(&self) -> bool {
        let exact = |bound: Option<(Num, bool)>| bound.is_some_and(|(limit, _)| limit.is_exact());
        exact(self.low) && exact(self.high)
    }

    /// Whether every multiple of all wanted steps is a multiple of `step`, in the reading of the validating crate too.
    fn implies(&self, step: Ratio, all: Ratio) -> bool {
        self.steps.contains(&step)
            || (step.period_of(all) == Some(1)
                && (self.is_exact()
                    || (step.is_whole() && self.steps.iter().all(|step| step.is_whole()))
                    || (step.over == 1 && is_plain(step.under) && all.is_whole())))
    }
}

/// Whether every whole number, however large, divides by `1/under` in the validating crate; see the test.
fn is_plain(under: i128) -> bool {
    PLAIN.contains(&under)
}

/// Fractions of one that prices, shares and times are counted in.
const PLAIN: &[i128] = &[2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 1_000, 10_000, 100_000, 1_000_000];

impl Solver<'_> {
    /// Decides assertions on numbers of one kind, with a fraction or without.
    pub(super) fn number(&mut self, atoms: &[Lit], kind: Types, avoided: &[Value]) -> Outcome {
        let mut wanted = Wanted::default();
        for &atom in atoms {
            match &self.node(atom).form {
                Form::Number(number) => wanted.add(*number, atom.is_wanted()),
                Form::Scalars(values) => {
                    wanted.not_equal.extend(values.iter().filter_map(Value::as_number).filter_map(Num::of));
                }
                _ => {}
            }
        }
        wanted.not_equal.extend(avoided.iter().filter_map(Value::as_number).filter_map(Num::of));
        let has_steps = !wanted.steps.is_empty() || !wanted.not_steps.is_empty();
        if wanted.is_crossed() {
            return Outcome::Empty;
        }
        if kind == Types::INTEGER {
            wanted.steps.push(Ratio::ONE);
        } else {
            wanted.not_steps.push(Ratio::ONE);
            // From 2^53 on every number is whole.
            wanted.raise(Num::Whole(-EXACT_MAX), false);
            wanted.lower(Num::Whole(EXACT_MAX), false);
            if wanted.is_crossed() {
                return Outcome::Empty;
            }
        }
        let outcome =
            if wanted.steps.is_empty() { self.between(&wanted) } else { self.on_lattice(&wanted, has_steps) };
        if matches!(outcome, Outcome::Unknown)
            && let Some(&atom) = atoms
                .iter()
                .find(|atom| matches!(self.node(**atom).form, Form::Number(NumberAtom::MultipleOf(_))))
                .or(atoms.first())
        {
            self.doubt_at(atom, "multipleOf");
        }
        outcome
    }

    /// Numbers that are multiples of something.
    fn on_lattice(&mut self, wanted: &Wanted, has_steps: bool) -> Outcome {
        let first = wanted.steps[0];
        let Some(step) = wanted.steps.iter().try_fold(first, |all, step| all.common_multiple(*step)) else {
            return Outcome::Unknown;
        };
        if wanted.not_steps.iter().any(|not| wanted.implies(*not, step)) {
            return Outcome::Empty;
        }
        let Some((first, last)) = range(wanted, step) else { return Outcome::Unknown };
        if let (Some(first), Some(last)) = (first, last)
            && first > last
        {
            return if wanted.is_exact() || !has_steps { Outcome::Empty } else { Outcome::Unknown };
        }
        let periods: Vec<i128> = wanted.not_steps.iter().filter_map(|not| not.period_of(step)).collect();
        if periods.len() < wanted.not_steps.len() {
            return Outcome::Unknown;
        }
        let mut is_blocked = true;
        let work = 1 + wanted.not_equal.len() / 8 + periods.len() / 8;
        for (tried, times) in outwards(first, last).enumerate() {
            if tried == TRIED_MAX + wanted.not_equal.len() || !self.step(work) {
                return Outcome::Unknown;
            }
            if periods.iter().any(|period| times % period == 0) {
                continue;
            }
            let Some(number) = step.times(times) else {
                is_blocked = false;
                break;
            };
            if Num::of(&number).is_some_and(|number| wanted.has(number)) {
                return Outcome::Found(Value::Number(number));
            }
        }
        let all_tried = is_blocked && first.is_some() && last.is_some();
        if all_tried && (wanted.is_exact() || !has_steps) { Outcome::Empty } else { Outcome::Unknown }
    }

    /// Numbers with a fraction, multiples of nothing in particular.
    fn between(&mut self, wanted: &Wanted) -> Outcome {
        let fits = |float: f64| -> Option<Number> {
            let number = Number::from_f64(float)?;
            let value = Num::of(&number)?;
            let over = Ratio::of(&number)?;
            let divides = |not: &Ratio| not.period_of(over) == Some(1);
            let is_one = !value.is_whole() && wanted.has(value) && !wanted.not_steps.iter().any(divides);
            is_one.then_some(number)
        };
        let bound = |limit: Option<(Num, bool)>| match limit {
            Some((Num::Whole(whole), _)) => whole as f64,
            Some((Num::Float(float), _)) => float,
            None => 0.0,
        };
        let (low, high) = (bound(wanted.low), bound(wanted.high));
        let work = 2 + wanted.not_equal.len() / 8 + wanted.not_steps.len();
        let start = if high > 0.0 { low.max(0.0) } else { low.max(high - 1.0) };
        for digits in 1..=17 {
            let scale = 10_f64.powi(digits);
            for more in 0..24 {
                if !self.step(work) {
                    return Outcome::Unknown;
                }
                let float = ((start * scale).ceil() + f64::from(more)) / scale;
                if let Some(number) = fits(float) {
                    return Outcome::Found(Value::Number(number));
                }
            }
        }
        // So narrow that its numbers can be gone through one by one.
        let mut float = low;
        for _ in 0..TRIED_MAX {
            if float > high {
                return Outcome::Empty;
            }
            if !self.step(work) {
                break;
            }
            if let Some(number) = fits(float) {
                return Outcome::Found(Value::Number(number));
            }
            float = float.next_up();
        }
        Outcome::Unknown
    }
}

/// The first and the last multiple of `step` inside the bounds, as counts of it; `None` where there is no bound.
fn range(wanted: &Wanted, step: Ratio) -> Option<(Option<i128>, Option<i128>)> {
    let count = |limit: Num, up: bool| -> Option<Option<i128>> {
        let at = match limit {
            Num::Whole(whole) => whole.checked_mul(step.under)?,
            Num::Float(float) if step.under == 1 => match (limit.floor(), up) {
                (Some(floor), false) => floor,
                (Some(floor), true) => floor + 1,
                // Beyond all numbers kept exactly: no bound on this side of zero, and none found on the other.
                (None, _) => return if (float > 0.0) == up { None } else { Some(None) },
            },
            Num::Float(float) => {
                let limit = Ratio::of(&Number::from_f64(float)?)?;
                let over = limit.over.checked_mul(step.under)?;
                let signed = if float < 0.0 { -over } else { over };
                let under = limit.under.checked_mul(step.over)?;
                return Some(Some(if up { -(-signed).div_euclid(under) } else { signed.div_euclid(under) }));
            }
        };
        Some(Some(if up { -(-at).div_euclid(step.over) } else { at.div_euclid(step.over) }))
    };
    let first = match wanted.low {
        Some((limit, _)) => count(limit, true)?,
        None => None,
    };
    let last = match wanted.high {
        Some((limit, _)) => count(limit, false)?,
        None => None,
    };
    Some((first, last))
}

/// The counts from `first` to `last`, those nearest to zero first.
fn outwards(first: Option<i128>, last: Option<i128>) -> impl Iterator<Item = i128> {
    let start = first.map_or(0, |first| first.max(0)).min(last.unwrap_or(i128::MAX));
    let up =
        (0..).map(move |more| start + more).map(move |at| last.is_none_or(|last| at <= last).then_some(at));
    let down = (1..)
        .map(move |less| start - less)
        .map(move |at| first.is_none_or(|first| at >= first).then_some(at));
    up.zip(down)
        .take_while(|(up, down)| up.is_some() || down.is_some())
        .flat_map(|(up, down)| [up, down])
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_outwards_and_end() {
        assert_eq!(outwards(Some(-1), Some(2)).collect::<Vec<_>>(), [0, -1, 1, 2]);
        assert_eq!(outwards(Some(5), Some(6)).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(outwards(Some(-6), Some(-5)).collect::<Vec<_>>(), [-5, -6]);
        assert_eq!(outwards(None, None).take(4).collect::<Vec<_>>(), [0, -1, 1, -2]);
    }

    #[test]
    fn every_whole_number_divides_by_a_plain_fraction_in_the_validating_crate() {
        for under in PLAIN {
            let step = 1.0 / *under as f64;
            let validator = jsonschema::validator_for(&serde_json::json!({ "multipleOf": step })).unwrap();
            let mut whole = 1.0_f64;
            for _ in 0..1_020 {
                for float in [
                    whole,
                    whole.next_up().ceil(),
                    whole * 1.7,
                    whole * 1.234_567_890_123_45,
                    f64::MAX / whole,
                ] {
                    let value = Value::from(float.ceil());
                    assert!(validator.is_valid(&value), "{value} by {step}");
                }
                whole *= 2.0;
            }
            for value in [u64::MAX, u64::MAX - 1, (1 << 53) + 1, 123_456_789_012_345_679] {
                assert!(validator.is_valid(&Value::from(value)), "{value} by {step}");
            }
            assert!(validator.is_valid(&Value::from(i64::MIN)));
        }
    }
}
