//! Compiles a schema's regular expression into a total automaton over bytes that accepts every text with a match.

use std::collections::HashMap;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Largest automaton of one pattern, in bytes, while it is made and afterwards.
const AUTOMATON_BYTES_MAX: usize = 256 * 1024;
/// Most states of one pattern's automaton.
const STATES_MAX: usize = 2_048;

/// A deterministic automaton; a string is in its language when the state after its last byte accepts.
#[derive(Debug)]
pub(super) struct Automaton {
    /// The class of each byte.
    pub(super) classes: Box<[u8; 256]>,
    class_count: usize,
    /// The state after each state and class.
    next: Vec<u32>,
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    accepts: bool,
    /// Whether some way on ends in a state that accepts.
    may_accept: bool,
    /// Whether some way on ends in a state that does not.
    may_reject: bool,
}

impl Automaton {
    /// The state before the first byte.
    pub(super) const START: u32 = 0;

    /// Compiles a pattern as the validating crate reads it: ECMA 262, searched for anywhere.
    ///
    /// `None` when it is no regular language, or too large.
    pub(super) fn search(pattern: &str) -> Option<Self> {
        let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
        Self::of(&translated, true)
    }

    /// Compiles a format's expression, which stands for whole strings.
    pub(super) fn whole(expression: &str) -> Option<Self> {
        Self::of(&format!(r"\A(?:{expression})\z"), true)
    }

    fn of(expression: &str, unicode: bool) -> Option<Self> {
        let config = dense::Config::new()
            .accelerate(false)
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(AUTOMATON_BYTES_MAX))
            .determinize_size_limit(Some(AUTOMATON_BYTES_MAX));
        let dfa = dense::Builder::new()
            .configure(config)
            .syntax(syntax::Config::new().unicode(unicode))
            .thompson(thompson::Config::new().nfa_size_limit(Some(AUTOMATON_BYTES_MAX)))
            .build(expression)
            .ok()?;
        Self::total(&dfa)
    }

    /// Walks the states of `dfa`. Its match states come one byte late and end a search, so one of them stands for
    /// having matched whatever follows.
    fn total(dfa: &dense::DFA<Vec<u32>>) -> Option<Self> {
        let mut classes = Box::new([0_u8; 256]);
        let mut representatives: Vec<u8> = Vec::new();
        let mut seen: HashMap<u8, u8> = HashMap::new();
        for byte in 0..=u8::MAX {
            let class = *seen.entry(dfa.byte_classes().get(byte)).or_insert_with(|| {
                representatives.push(byte);
                u8::try_from(representatives.len() - 1).unwrap_or(u8::MAX)
            });
            classes[usize::from(byte)] = class;
        }
        let class_count = representatives.len();
        let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::No)).ok()?;
        let mut ids: HashMap<StateID, u32> = HashMap::from([(start, Self::START)]);
        let mut order = vec![start];
        let (mut next, mut states) = (Vec::new(), Vec::new());
        while let Some(&state) = order.get(states.len()) {
            if order.len() > STATES_MAX || dfa.is_quit_state(state) {
                return None;
            }
            let matched = dfa.is_match_state(state);
            states.push(State {
                accepts: matched || dfa.is_match_state(dfa.next_eoi_state(state)),
                ..State::default()
            });
            for &byte in &representatives {
                let to = if matched { state } else { dfa.next_state(state, byte) };
                let known = u32::try_from(ids.len()).ok()?;
                next.push(*ids.entry(to).or_insert_with(|| {
                    order.push(to);
                    known
                }));
            }
        }
        let mut automaton = Self { classes, class_count, next, states };
        automaton.look_ahead();
        Some(automaton)
    }

    /// Finds, backwards from the states that accept and those that do not, which are still in reach.
    fn look_ahead(&mut self) {
        let mut before = vec![Vec::new(); self.states.len()];
        for (at, to) in self.next.iter().enumerate() {
            before[*to as usize].push(at / self.class_count);
        }
        for wanted in [true, false] {
            let mut open: Vec<usize> =
                (0..self.states.len()).filter(|at| self.states[*at].accepts == wanted).collect();
            while let Some(at) = open.pop() {
                let state = &mut self.states[at];
                let known = if wanted { &mut state.may_accept } else { &mut state.may_reject };
                if !std::mem::replace(known, true) {
                    open.extend(&before[at]);
                }
            }
        }
    }

    /// The state after `state` and one byte.
    pub(super) fn step(&self, state: u32, byte: u8) -> u32 {
        self.next[state as usize * self.class_count + usize::from(self.classes[usize::from(byte)])]
    }

    /// Whether a string that ends here is in the language, or outside it when `wanted` is false.
    pub(super) fn ends(&self, state: u32, wanted: bool) -> bool {
        self.states[state as usize].accepts == wanted
    }

    /// Whether a string that goes on from here may be in the language, or outside it when `wanted` is false.
    pub(super) fn may_end(&self, state: u32, wanted: bool) -> bool {
        let state = self.states[state as usize];
        if wanted { state.may_accept } else { state.may_reject }
    }

    /// Whether `text` is in the language.
    pub(super) fn accepts(&self, text: &str) -> bool {
        let end = text.bytes().fold(Self::START, |state, byte| self.step(state, byte));
        self.ends(end, true)
    }

    /// States it has.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_searched_for_anywhere() {
        let automaton = Automaton::search("b+").unwrap();
        assert!(automaton.accepts("abc") && automaton.accepts("b") && !automaton.accepts("ac"));
        let anchored = Automaton::search("^b+$").unwrap();
        assert!(anchored.accepts("bb") && !anchored.accepts("bb\n") && !anchored.accepts("abb"));
        assert!(Automaton::search("").unwrap().accepts("é"));
    }

    #[test]
    fn classes_are_those_of_ecma_262() {
        let digits = Automaton::search(r"^\d$").unwrap();
        assert!(digits.accepts("7") && !digits.accepts("\u{0967}"));
        let space = Automaton::search(r"^\s$").unwrap();
        assert!(space.accepts("\u{feff}") && !space.accepts("x"));
    }

    #[test]
    fn what_is_not_regular_or_too_large_is_left_alone() {
        for pattern in [r"(a)\1", "a(?=b)", "(", r"^[^x]{900}[a-z]{900}$"] {
            assert!(Automaton::search(pattern).is_none(), "{pattern}");
        }
    }
}
