//! Finds a shortest string that some automata accept and others reject, within bounds on its length.

use std::collections::{HashMap, HashSet};

use super::pattern::Automaton;

/// What a string must be.
pub(super) struct Walk<'w> {
    /// Each with whether it is to accept.
    pub(super) automata: Vec<(&'w Automaton, bool)>,
    /// Code points.
    pub(super) least: u64,
    /// Code points; `None` is no bound.
    pub(super) most: Option<u64>,
    /// Strings that it must not be.
    pub(super) avoided: Vec<&'w str>,
}

/// What a walk came to.
pub(super) enum Walked {
    Found(String),
    /// There is no such string.
    None,
    /// The steps ran out.
    Spent,
}

/// Longest string that is looked for, in code points.
const LENGTH_MAX: u64 = 20_000;

/// Where a walk stands: how far into a character, how many characters, how far along the avoided strings, and the
/// state of each automaton.
type Place = Box<[u32]>;

const INSIDE: usize = 0;
const COUNT: usize = 1;
const AVOIDED: usize = 2;
const AUTOMATA: usize = 3;

/// The part of the trie of avoided strings that none of them goes through.
const OFF: u32 = u32::MAX;

impl Walk<'_> {
    /// Walks all automata side by side, breadth first; `step` takes the work done and says whether there is more.
    pub(super) fn shortest(&self, mut step: impl FnMut(usize) -> bool) -> Walked {
        if self.most.is_some_and(|most| most < self.least) {
            return Walked::None;
        }
        if self.least > LENGTH_MAX {
            return Walked::Spent;
        }
        let trie = Trie::of(&self.avoided);
        let bytes = self.bytes();
        if !step(bytes.len() + self.avoided.iter().map(|text| text.len()).sum::<usize>()) {
            return Walked::Spent;
        }
        let mut first: Vec<u32> = vec![0, 0, if self.avoided.is_empty() { OFF } else { 0 }];
        first.extend(self.automata.iter().map(|_| Automaton::START));
        let mut seen: HashSet<Place> = HashSet::new();
        let mut way: Vec<(Place, usize, u8)> = Vec::new();
        if self.is_open(&first) {
            seen.insert(first.clone().into());
            way.push((first.into(), 0, 0));
        }
        let mut at = 0;
        while at < way.len() {
            let place = way[at].0.clone();
            if self.is_end(&place, &trie) {
                return spelled(&way, at).map_or(Walked::Spent, Walked::Found);
            }
            if !step(1 + bytes.len() * (1 + self.automata.len()) / 8) {
                return Walked::Spent;
            }
            for &byte in &bytes {
                let Some(next) = self.after(&place, byte, &trie) else { continue };
                if self.is_open(&next) && !seen.contains(&*next) {
                    let next: Place = next.into();
                    seen.insert(next.clone());
                    way.push((next, at, byte));
                }
            }
            at += 1;
        }
        Walked::None
    }

    /// One byte of each class that the automata, UTF-8 and the avoided strings tell apart, pleasant ones first.
    fn bytes(&self) -> Vec<u8> {
        let mut classes = [0_u16; 256];
        let mut count = refine(&mut classes, utf8_class);
        for (automaton, _) in &self.automata {
            count = refine(&mut classes, |byte| automaton.classes[usize::from(byte)]);
        }
        let mut own = [false; 256];
        self.avoided.iter().flat_map(|text| text.bytes()).for_each(|byte| own[usize::from(byte)] = true);
        let pleasant = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'A'..=b'Z').chain(b' '..=b'~');
        let (mut seen, mut taken) = ([false; 256], [false; 256]);
        let mut bytes = Vec::with_capacity(count);
        for byte in pleasant.chain(0..=u8::MAX) {
            let at = usize::from(byte);
            let is_first = !std::mem::replace(&mut taken[at], true);
            // A byte of an avoided string is a class of its own.
            if is_first && (own[at] || !std::mem::replace(&mut seen[usize::from(classes[at])], true)) {
                bytes.push(byte);
            }
        }
        bytes
    }

    /// The place after one more byte; `None` when that is no UTF-8, or too long.
    fn after(&self, place: &[u32], byte: u8, trie: &Trie) -> Option<Vec<u32>> {
        let inside = utf8_after(place[INSIDE], utf8_class(byte))?;
        let mut count = u64::from(place[COUNT]);
        if place[INSIDE] == 0 {
            count += 1;
            match self.most {
                Some(most) if count > most => return None,
                Some(_) => {}
                // Longer than the least is all the same.
                None => count = count.min(self.least),
            }
        }
        let mut next = Vec::with_capacity(place.len());
        next.extend([inside, u32::try_from(count).ok()?, trie.after(place[AVOIDED], byte)]);
        let states = self.automata.iter().zip(&place[AUTOMATA..]);
        next.extend(states.map(|((automaton, _), state)| automaton.step(*state, byte)));
        Some(next)
    }

    /// Whether the automata may still come to what they are to do.
    fn is_open(&self, place: &[u32]) -> bool {
        let mut each = self.automata.iter().zip(&place[AUTOMATA..]);
        each.all(|((automaton, wanted), state)| automaton.may_end(*state, *wanted))
    }

    fn is_end(&self, place: &[u32], trie: &Trie) -> bool {
        let mut each = self.automata.iter().zip(&place[AUTOMATA..]);
        place[INSIDE] == 0
            && u64::from(place[COUNT]) >= self.least
            && !trie.is_end(place[AVOIDED])
            && each.all(|((automaton, wanted), state)| automaton.ends(*state, *wanted))
    }
}

/// Tells bytes of a class apart that `of` tells apart; gives how many classes there are.
fn refine(classes: &mut [u16; 256], of: impl Fn(u8) -> u8) -> usize {
    let mut known: Vec<((u16, u8), u16)> = Vec::new();
    let mut last = None;
    for byte in 0..=u8::MAX {
        let class = &mut classes[usize::from(byte)];
        let key = (*class, of(byte));
        // Neighbours are mostly alike.
        let found = match last {
            Some((key_before, found)) if key_before == key => Some(found),
            _ => known.iter().find(|(other, _)| *other == key).map(|(_, found)| *found),
        };
        *class = found.unwrap_or_else(|| {
            known.push((key, known.len() as u16));
            known.len() as u16 - 1
        });
        last = Some((key, *class));
    }
    known.len()
}

fn spelled(way: &[(Place, usize, u8)], mut at: usize) -> Option<String> {
    let mut bytes = Vec::new();
    while at != 0 {
        bytes.push(way[at].2);
        at = way[at].1;
    }
    bytes.reverse();
    String::from_utf8(bytes).ok()
}

/// Strings by their beginnings.
struct Trie {
    after: HashMap<(u32, u8), u32>,
    ends: HashSet<u32>,
}

impl Trie {
    fn of(texts: &[&str]) -> Self {
        let mut trie = Self { after: HashMap::new(), ends: HashSet::new() };
        let mut count = 0;
        for text in texts {
            let mut at = 0;
            for byte in text.bytes() {
                at = *trie.after.entry((at, byte)).or_insert_with(|| {
                    count += 1;
                    count
                });
            }
            trie.ends.insert(at);
        }
        trie
    }

    fn after(&self, at: u32, byte: u8) -> u32 {
        if at == OFF { OFF } else { self.after.get(&(at, byte)).copied().unwrap_or(OFF) }
    }

    fn is_end(&self, at: u32) -> bool {
        at != OFF && self.ends.contains(&at)
    }
}

/// Bytes that UTF-8 tells apart.
const fn utf8_class(byte: u8) -> u8 {
    match byte {
        0x00..=0x7f => 0,
        0x80..=0x8f => 1,
        0x90..=0x9f => 2,
        0xa0..=0xbf => 3,
        0xc2..=0xdf => 4,
        0xe0 => 5,
        0xe1..=0xec | 0xee..=0xef => 6,
        0xed => 7,
        0xf0 => 8,
        0xf1..=0xf3 => 9,
        0xf4 => 10,
        _ => 11,
    }
}

/// How far into a character a byte of this class leads; 0 is between two. **Source:** RFC 3629 section 4.
const fn utf8_after(inside: u32, class: u8) -> Option<u32> {
    Some(match (inside, class) {
        (0, 0) => 0,
        (0, 4) => 1,
        (0, 5) => 4,
        (0, 6) => 2,
        (0, 7) => 5,
        (0, 8) => 6,
        (0, 9) => 3,
        (0, 10) => 7,
        (1, 1..=3) => 0,
        (2, 1..=3) | (4, 3) | (5, 1 | 2) => 1,
        (3, 1..=3) | (6, 2 | 3) | (7, 1) => 2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortest(parts: &[(&str, bool)], least: u64, most: Option<u64>, avoided: &[&str]) -> Option<String> {
        let automata: Vec<_> = parts.iter().map(|(pattern, _)| Automaton::search(pattern).unwrap()).collect();
        let automata =
            automata.iter().zip(parts).map(|(automaton, (_, wanted))| (automaton, *wanted)).collect();
        match (Walk { automata, least, most, avoided: avoided.to_vec() }).shortest(|_| true) {
            Walked::Found(text) => Some(text),
            Walked::None => None,
            Walked::Spent => panic!("steps ran out"),
        }
    }

    #[test]
    fn a_shortest_string_is_found_and_its_absence_is_certain() {
        assert_eq!(shortest(&[("^a+$", true)], 3, None, &[]).unwrap(), "aaa");
        assert_eq!(shortest(&[("^a+$", true), ("^a", false)], 0, None, &[]), None);
        assert_eq!(shortest(&[("^[ab]$", true)], 0, None, &["a"]).unwrap(), "b");
        assert_eq!(shortest(&[("^[ab]$", true)], 0, None, &["a", "b"]), None);
        assert_eq!(shortest(&[("^(ab)+$", true)], 3, Some(3), &[]), None);
    }

    #[test]
    fn length_counts_code_points_and_the_result_is_utf_8() {
        assert_eq!(shortest(&[("^[é]+$", true)], 2, Some(2), &[]).unwrap(), "éé");
        assert_eq!(
            shortest(&[("^.$", true), ("^[\u{0}-\u{ffff}]$", false)], 0, Some(1), &[])
                .unwrap()
                .chars()
                .count(),
            1
        );
        // Surrogates are no characters.
        let around = ["\u{d7ff}", "\u{e000}"];
        assert_eq!(shortest(&[("^[\u{d7ff}-\u{e000}]$", true)], 0, None, &around), None);
    }
}
