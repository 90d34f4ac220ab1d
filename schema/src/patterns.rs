//! Estimates the cost of a schema's regular expressions: to compile them, and to match with them.
//!
//! The engine behind the `jsonschema` crate runs in linear time, but the factor may be ten thousand states per byte: if
//! an automaton has too many states to be kept, the engine follows all paths at once. A pattern is therefore cheap if
//! its automata are small in both directions. Otherwise each byte is charged for all its positions.

use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson;

use super::steps::Match;

/// Bytes that the crate reads to translate a pattern from ECMA 262: once, and once more for each class that it writes
/// anew, which makes the pattern longer each time.
pub(super) fn translated_bytes(pattern: &str) -> usize {
    let (mut rewritten, mut longer, mut classes) = (0_usize, 0_usize, 0_usize);
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            continue;
        }
        let bytes_of_class = match bytes.next() {
            Some(b's' | b'S') => SPACE_BYTES,
            Some(b'w' | b'W') => WORD_BYTES,
            Some(b'd' | b'D' | b'c') => DIGIT_BYTES,
            Some(b'p' | b'P') => {
                classes += CLASS_BYTES;
                continue;
            }
            _ => continue,
        };
        rewritten += 1;
        longer += bytes_of_class;
    }
    if has_flags(pattern) {
        // Each class may be folded.
        let brackets = pattern.bytes().filter(|byte| *byte == b'[').count();
        classes = (classes + brackets * CLASS_BYTES) * FOLDED_TIMES;
    }
    let read = pattern.len().saturating_add(longer).saturating_mul(rewritten + 1);
    read.saturating_add(classes)
}

fn has_flags(pattern: &str) -> bool {
    pattern.as_bytes().windows(3).any(|window| matches!(window, [b'(', b'?', b'a'..=b'z' | b'-']))
}

/// What the costliest of `patterns` takes, of which there are `count` in the document.
pub(super) fn costliest(patterns: &[&str], count: usize) -> Match {
    let bytes_max = (AUTOMATA_BYTES_MAX / count.max(1)).min(AUTOMATON_BYTES_MAX);
    let mut costliest = Match::default();
    for pattern in patterns {
        let Match { once, per_byte } = cost(pattern, bytes_max);
        costliest.once = costliest.once.max(once);
        costliest.per_byte = costliest.per_byte.max(per_byte);
    }
    costliest
}

fn cost(pattern: &str, bytes_max: usize) -> Match {
    match jsonschema_regex::analyze_pattern(pattern) {
        Some(jsonschema_regex::PatternAnalysis::Alternation(texts)) => {
            return Match { once: to_u32(texts.len() / ALTERNATIVES_A_STEP), per_byte: 0 };
        }
        Some(_) => return Match::default(),
        None => {}
    }
    let translated = jsonschema_regex::to_rust_regex(pattern);
    if translated
        .is_ok_and(|pattern| is_small(&pattern, false, bytes_max) && is_small(&pattern, true, bytes_max))
    {
        return Match { once: ENGINE_STEPS, per_byte: 0 };
    }
    Match { once: ENGINE_STEPS, per_byte: to_u32(places(pattern).saturating_mul(PLACE_STEPS)) }
}

/// Whether the whole automaton of a pattern, read in one direction, takes so little that the engine's own keeps all of it.
fn is_small(pattern: &str, reverse: bool, bytes_max: usize) -> bool {
    let config = dense::Config::new()
        .accelerate(false)
        .start_kind(StartKind::Both)
        .dfa_size_limit(Some(bytes_max))
        .determinize_size_limit(Some(bytes_max));
    let nfa = thompson::Config::new().reverse(reverse).nfa_size_limit(Some(bytes_max));
    dense::Builder::new().configure(config).thompson(nfa).build(pattern).is_ok()
}

/// Places of a pattern that a match may be at, at most: its characters and classes, repeated as often as they may be.
fn places(pattern: &str) -> usize {
    // What was counted in each group that is open, and in the last part of it, which may be repeated.
    let mut groups = vec![(0_usize, 0_usize)];
    let mut chars = pattern.chars().peekable();
    let part = |groups: &mut Vec<(usize, usize)>, places: usize| {
        if let Some((sum, last)) = groups.last_mut() {
            *sum = sum.saturating_add(*last);
            *last = places;
        }
    };
    while let Some(char) = chars.next() {
        match char {
            '(' => groups.push((0, 0)),
            ')' if groups.len() > 1 => {
                let (sum, last) = groups.pop().unwrap_or_default();
                part(&mut groups, sum.saturating_add(last));
            }
            '[' => {
                let mut is_first = true;
                while let Some(char) = chars.next() {
                    match char {
                        '\\' => drop(chars.next()),
                        ']' if !is_first => break,
                        _ => {}
                    }
                    is_first = char == '^' && is_first;
                }
                part(&mut groups, 1);
            }
            '{' => {
                let bounds: String = std::iter::from_fn(|| chars.next_if(|char| *char != '}')).collect();
                chars.next();
                let number = |text: &str| text.trim().parse::<usize>().ok();
                let times = match bounds.split_once(',') {
                    Some((least, most)) => number(most).or_else(|| number(least).map(|least| least + 1)),
                    None => number(&bounds),
                };
                if let (Some((_, last)), Some(times)) = (groups.last_mut(), times) {
                    *last = last.saturating_mul(times.max(1));
                }
            }
            '\\' => {
                if chars.next().is_some_and(|escaped| matches!(escaped, 'p' | 'P' | 'x' | 'u'))
                    && chars.next_if_eq(&'{').is_some()
                {
                    chars.by_ref().find(|char| *char == '}');
                }
                part(&mut groups, 1);
            }
            '*' | '+' | '?' | '|' | '^' | '$' => {}
            _ => part(&mut groups, 1),
        }
    }
    groups.iter().fold(1, |all: usize, (sum, last)| all.saturating_add(*sum).saturating_add(*last))
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Bytes of the longest classes that stand for `\s`, `\w` and `\d`.
const SPACE_BYTES: usize = 190;
const WORD_BYTES: usize = 16;
const DIGIT_BYTES: usize = 8;
/// Bytes of a pattern that take as long as a class of Unicode, and how much longer one takes that is folded.
const CLASS_BYTES: usize = 200;
const FOLDED_TIMES: usize = 10;
/// Bytes that the automata of one pattern may take, and those of a document, while they are made.
const AUTOMATON_BYTES_MAX: usize = 256 * 1024;
const AUTOMATA_BYTES_MAX: usize = 1024 * 1024;
/// Steps of starting the engine.
const ENGINE_STEPS: u32 = 8;
/// Texts that are compared in one step.
const ALTERNATIVES_A_STEP: usize = 2;
/// Steps of one place at one byte.
const PLACE_STEPS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_costs_by_its_places_unless_its_automata_are_small() {
        let per_byte = |pattern: &str| cost(pattern, AUTOMATON_BYTES_MAX).per_byte;
        for pattern in [
            "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
            r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z$",
            "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$",
            "^[^@ ]+@[^@ ]+$",
            r"^\p{L}+$",
            "^x-",
        ] {
            assert_eq!(per_byte(pattern), 0, "{pattern}");
        }
        assert!(per_byte("[ab]*a[ab]{900}c") >= 900 * PLACE_STEPS as u32);
        // Its reverse is the large one.
        assert!(per_byte("^[ab]{900}a[ab]*$") >= 900 * PLACE_STEPS as u32);
    }

    #[test]
    fn places_are_counted_in_groups_and_by_their_repetitions() {
        for (pattern, least) in [
            ("abc", 3),
            ("[ab]{30}", 30),
            ("(([ab]{1,30}){1,30}){1,5}c", 4_501),
            ("(a|bc){4}", 12),
            (r"\p{L}{7}\x{61}", 8),
            ("[]a]{9}", 9),
            ("[^]a]{9}", 9),
            ("a{3,}", 4),
            ("(a{99999}){99999}", 9_999_800_001),
            ("((((", 1),
            ("a{", 1),
            ("))a", 2),
        ] {
            let places = places(pattern);
            assert!((least..=least + 2).contains(&places), "{pattern}: {places}");
        }
    }

    #[test]
    fn each_class_that_is_written_anew_reads_the_pattern_once_more() {
        assert_eq!(translated_bytes("^abc$"), 5);
        assert!(translated_bytes(&r"\w".repeat(2_000)) > 2_000 * 2_000 * 16);
        assert!(translated_bytes(&format!("(?i){}", "[^a]".repeat(100))) > 100 * FOLDED_TIMES * CLASS_BYTES);
        assert!(translated_bytes(&r"\p{L}".repeat(100)) > 100 * CLASS_BYTES);
    }
}
