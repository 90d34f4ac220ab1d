//! Finds a string that fits a set of assertions, or proves that there is none.

use serde_json::Value;

use super::format::Format;
use super::literal::Lit;
use super::node::{Form, StringAtom};
use super::pattern::Automaton;
use super::solve::{Outcome, Solver};
use super::walk::{Walk, Walked};

/// The strings that are asked for.
struct Wanted<'w> {
    least: u64,
    most: Option<u64>,
    patterns: Vec<(&'w Automaton, bool)>,
    formats: Vec<(Format, bool)>,
    avoided: Vec<&'w str>,
    /// What names the format to tell when it is not decided.
    format_at: Option<Lit>,
}

impl<'w> Wanted<'w> {
    fn add(&mut self, atom: StringAtom, lit: Lit, solver: &Solver<'w>) {
        match (atom, lit.is_wanted()) {
            (StringAtom::MinLength(least), true) => self.least = self.least.max(least),
            (StringAtom::MaxLength(most), true) => self.lower(most),
            // Nothing is shorter than 0.
            (StringAtom::MinLength(least), false) => match least.checked_sub(1) {
                Some(most) => self.lower(most),
                None => self.least = u64::MAX,
            },
            (StringAtom::MaxLength(most), false) => self.least = self.least.max(most.saturating_add(1)),
            (StringAtom::Pattern(at), wanted) => {
                self.patterns.push((&solver.schema(lit).patterns[at as usize].automaton, wanted));
            }
            (StringAtom::Format(format), wanted) => {
                self.formats.push((format, wanted));
                self.format_at.get_or_insert(lit);
            }
        }
    }

    fn lower(&mut self, most: u64) {
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
    }

    /// Whether one format is wanted and another, which holds of all of its strings, is not.
    fn has_formats_against_each_other(&self) -> bool {
        let is_against = |(one, wanted): (Format, bool)| {
            wanted && self.formats.iter().any(|(other, wanted)| !wanted && one.is_within(*other))
        };
        self.formats.iter().copied().any(is_against)
    }

    /// A walk whose formats are taken as a reading has them.
    fn walk(&self, reading: Reading) -> Walk<'w> {
        let mut automata = self.patterns.clone();
        for &(format, wanted) in &self.formats {
            let automaton = match (reading, wanted) {
                (Reading::Narrow | Reading::Far, true) => format.below().map(|below| (below, true)),
                (Reading::Far, false) if format.never().is_some() => {
                    format.never().map(|never| (never, true))
                }
                (Reading::Narrow | Reading::Far, false) => format.above().map(|above| (above, false)),
                (Reading::Wide, true) => format.above().map(|above| (above, true)),
                (Reading::Wide, false) => format.below().map(|below| (below, false)),
            };
            automata.extend(automaton);
        }
        Walk { automata, least: self.least, most: self.most, avoided: self.avoided.clone() }
    }
}

/// How formats are taken that no automaton is exact for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// What surely fits.
    Narrow,
    /// What surely fits, with formats that are not wanted missed by far.
    Far,
    /// All that may fit.
    Wide,
}

impl<'s> Solver<'s> {
    /// Decides assertions on strings.
    pub(super) fn string(&mut self, atoms: &[Lit], avoided: &[Value]) -> Outcome {
        let mut wanted = Wanted {
            least: 0,
            most: None,
            patterns: Vec::new(),
            formats: Vec::new(),
            avoided: avoided.iter().filter_map(Value::as_str).collect(),
            format_at: None,
        };
        for &lit in atoms {
            match &self.node(lit).form {
                Form::String(atom) => wanted.add(*atom, lit, self),
                Form::Scalars(values) => wanted.avoided.extend(values.iter().filter_map(Value::as_str)),
                _ => {}
            }
        }
        if wanted.most.is_some_and(|most| most < wanted.least) || wanted.has_formats_against_each_other() {
            return Outcome::Empty;
        }
        if wanted.patterns.is_empty() && wanted.formats.is_empty() {
            return self.any_string(&wanted, atoms);
        }
        let outcome = self.walked(&wanted);
        if matches!(outcome, Outcome::Unknown) {
            let keyword = if wanted.format_at.is_some() { "format" } else { "pattern" };
            if let Some(lit) = wanted.format_at.or(atoms.first().copied()) {
                self.doubt_at(lit, keyword);
            }
        }
        outcome
    }

    fn walked(&mut self, wanted: &Wanted<'_>) -> Outcome {
        if wanted.formats.is_empty() {
            return match wanted.walk(Reading::Wide).shortest(|steps| self.step(steps)) {
                Walked::Found(text) => Outcome::Found(text.into()),
                Walked::None => Outcome::Empty,
                Walked::Spent => Outcome::Unknown,
            };
        }
        for reading in [Reading::Narrow, Reading::Far, Reading::Wide] {
            match wanted.walk(reading).shortest(|steps| self.step(steps)) {
                Walked::Found(text) => {
                    let mut formats = wanted.formats.iter();
                    if formats.all(|(format, wanted)| format.accepts(&text) == Some(*wanted)) {
                        return Outcome::Found(text.into());
                    }
                }
                Walked::None if reading == Reading::Wide => return Outcome::Empty,
                Walked::None => {}
                Walked::Spent => return Outcome::Unknown,
            }
        }
        Outcome::Unknown
    }

    /// A string of which only the length is asked.
    fn any_string(&mut self, wanted: &Wanted<'_>, atoms: &[Lit]) -> Outcome {
        // Longest witness of nothing but a length, in code points.
        const LENGTH_MAX: u64 = 20_000;
        if wanted.least == 0 && !wanted.avoided.contains(&"") {
            return Outcome::Found(String::new().into());
        }
        if wanted.most == Some(0) {
            return Outcome::Empty;
        }
        let least = wanted.least.max(1);
        if least > LENGTH_MAX || !self.step(wanted.avoided.len() + least as usize / 64) {
            if let Some(&lit) = atoms.first() {
                self.doubt_at(lit, "minLength");
            }
            return Outcome::Unknown;
        }
        let start = "a".repeat(least as usize - 1);
        let last = ('a'..='z').chain('A'..='Z').chain('\u{100}'..='\u{d7ff}');
        // One more than those to avoid is always among them, or the budget has ended.
        for last in last.take(wanted.avoided.len() + 1) {
            let text = format!("{start}{last}");
            if !self.step(1 + wanted.avoided.len() / 16) {
                return Outcome::Unknown;
            }
            if !wanted.avoided.contains(&&*text) {
                return Outcome::Found(text.into());
            }
        }
        Outcome::Unknown
    }
}
