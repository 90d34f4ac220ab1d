//! Turns foreign texts into identifiers that are safe in a language, each unique.

use std::collections::{BTreeMap, BTreeSet};

/// The runs of ASCII letters and digits in a text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// `ReviewPr` of `review-pr`.
pub(super) fn pascal(text: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    shortened(words(text).map(capital).collect())
}

/// `reviewPr` of `review-pr`.
pub(super) fn camel(text: &str) -> String {
    let pascal = pascal(text);
    pascal.get(..1).map_or(String::new(), |first| first.to_ascii_lowercase() + &pascal[1..])
}

/// `review_pr` of `review-pr`, `ReviewPr` or `reviewPR`.
pub(super) fn snake(text: &str) -> String {
    let mut out = String::new();
    for word in words(text) {
        let bytes = word.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| bytes[before]);
            let is_hump = byte.is_ascii_uppercase()
                && before.is_some_and(|before| {
                    !before.is_ascii_uppercase() || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase)
                });
            if (at == 0 || is_hump) && !out.is_empty() {
                out.push('_');
            }
            out.push(byte.to_ascii_lowercase() as char);
        }
    }
    shortened(out)
}

/// A name that a text of any length makes.
fn shortened(mut name: String) -> String {
    name.truncate(NAME_BYTES_MAX);
    name
}

/// The names of one scope.
#[derive(Debug)]
pub(super) struct Names {
    reserved: &'static [&'static [&'static str]],
    taken: BTreeSet<String>,
    /// By the name that was wanted: the number that the next one gets.
    next: BTreeMap<String, usize>,
}

impl Names {
    /// A scope where no name is given that stands in one of these lists.
    pub(super) const fn new(reserved: &'static [&'static [&'static str]]) -> Self {
        Self { reserved, taken: BTreeSet::new(), next: BTreeMap::new() }
    }

    /// Gives the name that is wanted, or one like it.
    ///
    /// A name that begins with a digit gets an `x` in front, in the case of `blank`, which stands for a name without a
    /// letter or digit. A reserved word gets `_` behind it, and a name that is taken gets a number.
    pub(super) fn claim(&mut self, wanted: &str, blank: &str) -> String {
        let mut name = wanted.to_owned();
        // Names are ASCII; a part of a part of a part can have a long one.
        name.truncate(LONGEST_BYTES);
        if name.is_empty() {
            name = blank.to_owned();
        }
        if name.starts_with(|char: char| char.is_ascii_digit()) {
            name.insert(0, if blank.starts_with(|char: char| char.is_ascii_uppercase()) { 'X' } else { 'x' });
        }
        if self.reserved.iter().any(|list| list.contains(&name.as_str())) {
            name.push('_');
        }
        if self.taken.insert(name.clone()) {
            return name;
        }
        let dash = if name.ends_with(|char: char| char.is_ascii_digit()) { "_" } else { "" };
        let next = self.next.entry(name.clone()).or_insert(2);
        loop {
            let numbered = format!("{name}{dash}{next}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// Longest name before what sets it apart.
const LONGEST_BYTES: usize = 240;
/// Longest part of a name that one text makes.
const NAME_BYTES_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_is_between_other_characters() {
        for (text, in_pascal, in_camel, in_snake) in [
            ("review-pr", "ReviewPr", "reviewPr", "review_pr"),
            ("prUrl", "PrUrl", "prUrl", "pr_url"),
            ("HTTPServer", "HTTPServer", "hTTPServer", "http_server"),
            ("2fa", "2fa", "2fa", "2fa"),
            ("v2.0", "V20", "v20", "v2_0"),
            ("größe */", "GrE", "grE", "gr_e"),
            ("", "", "", ""),
            ("日本", "", "", ""),
        ] {
            assert_eq!(
                (pascal(text), camel(text), snake(text)),
                (in_pascal.into(), in_camel.into(), in_snake.into())
            );
        }
    }

    #[test]
    fn each_name_is_given_once_and_no_reserved_word_is() {
        let mut names = Names::new(&[&["class"]]);
        let given: Vec<_> = ["class", "a", "a", "a2", "a", "2fa", "", "", "class"]
            .iter()
            .map(|wanted| names.claim(wanted, "field"))
            .collect();
        assert_eq!(given, ["class_", "a", "a2", "a2_2", "a3", "x2fa", "field", "field2", "class_2"]);
        assert_eq!(names.claim("2fa", "Field"), "X2fa");
    }
}
