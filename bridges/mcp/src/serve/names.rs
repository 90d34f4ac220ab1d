//! Names tools: a capability's name in; the name of its tool, which every client takes, out.

use sha2::{Digest as _, Sha256};

/// The tool of a capability: letters, digits, `_` and `-`, at most 64 of them.
///
/// Names of capabilities have dots and no `_`, so no two short ones meet; a long one ends with a part of its hash.
pub(super) fn tool_name(capability: &str) -> String {
    let plain = capability.replace('.', "_");
    if plain.len() <= TOOL_NAME_MAX {
        return plain;
    }
    let digest = Sha256::digest(capability);
    let tail: String = digest.iter().take(TAIL_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{tail}", &plain[..TOOL_NAME_MAX - 1 - tail.len()])
}

/// Of `names` the one that somebody may have meant by `text`.
pub(super) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.take(NEAREST_AMONG_MAX).map(|name| (distance(text, name), name));
    let (edits, name) = distances.min()?;
    (edits <= (text.len() / 4).clamp(1, 4)).then_some(name)
}

/// How many bytes must be put in, taken out or changed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (&a.as_bytes()[..a.len().min(COMPARED_MAX)], &b.as_bytes()[..b.len().min(COMPARED_MAX)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, byte) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (other_at, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(byte != other);
            diagonal = row[other_at + 1];
            row[other_at + 1] = changed.min(diagonal + 1).min(row[other_at] + 1);
        }
    }
    row[b.len()]
}

/// Longest name of a tool that all known clients take.
pub(super) const TOOL_NAME_MAX: usize = 64;
/// Bytes of the hash at the end of a long name.
const TAIL_BYTES: usize = 8;
/// Bytes of a name that are compared.
const COMPARED_MAX: usize = 128;
/// Names that are looked at for a suggestion.
const NEAREST_AMONG_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_enough_for_every_client_and_never_meet() {
        assert_eq!(tool_name("org.example.to-do"), "org_example_to-do");
        let long = |end: &str| tool_name(&format!("org.example.{}{end}", "x".repeat(80)));
        assert_eq!(long("a").len(), TOOL_NAME_MAX);
        assert_ne!(long("a"), long("b"));
        let bound = format!("org.example.{}", "x".repeat(TOOL_NAME_MAX - 12));
        assert_eq!(tool_name(&bound), bound.replace('.', "_"));
    }

    #[test]
    fn a_misspelled_name_is_recognised_and_another_one_not() {
        let names = || ["org_example_words", "org_example_letters"].into_iter();
        assert_eq!(nearest("org_example_word", names()), Some("org_example_words"));
        assert_eq!(nearest("org.example.words", names()), Some("org_example_words"));
        assert_eq!(nearest("something_else", names()), None);
    }
}
