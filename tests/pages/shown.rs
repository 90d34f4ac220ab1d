//! Compares what a command prints with what a page shows, where some values differ each time.

use std::fmt::Write as _;

use regex_automata::meta::Regex;

/// Which lines may stand in the output that the page leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps {
    /// Those that a line of the page with nothing but `…` stands for.
    Marked,
    /// Any: the command logs, and the page shows the lines that matter.
    AnyLine,
}

/// The values of a page that are others in each run, such as DIDs: as the page writes them, and as they are.
#[derive(Debug, Default)]
pub(super) struct Values {
    pairs: Vec<(String, String)>,
}

/// What a page writes as an example, and what is taken in its place.
struct Kind {
    written: &'static str,
    taken: &'static str,
    /// Whether the page means the same value wherever it writes the same.
    is_named: bool,
}

const fn named(pattern: &'static str) -> Kind {
    Kind { written: pattern, taken: pattern, is_named: true }
}

const fn any(pattern: &'static str) -> Kind {
    Kind { written: pattern, taken: pattern, is_named: false }
}

const KINDS: [Kind; 11] = [
    // A DID.
    named("did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}"),
    // The id of a call.
    named(r"\b[0-9a-f]{32}\b"),
    // The code of `capd pair`.
    named("[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}@"),
    // An address on loopback.
    named(r"127\.0\.0\.1:[0-9]+"),
    // A folder of `capd dev`.
    named("capd-dev-[0-9]+"),
    // A time.
    any(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?Z"),
    // A duration.
    any(r"\b[0-9]+(?:\.[0-9]+)? (?:ns|µs|ms|s)\b"),
    any(r#"_ms"?[:=] ?[0-9]+"#),
    // What a load generator counts.
    any(r"\b[0-9][0-9,]*(?:\.[0-9]+)? calls(?:/s|,)"),
    // Columns: how far apart they are follows from the values in them.
    any(" {2,}"),
    // Whatever it is.
    Kind { written: "…", taken: ".*?", is_named: false },
];

impl Values {
    /// Takes the values that a command brings up itself for what they are.
    pub(super) fn keep(&mut self, command: &str) {
        for (kind, value) in pieces(command) {
            if kind.is_some_and(|kind| kind.is_named) && self.known(value).is_none() {
                self.pairs.push((value.to_owned(), value.to_owned()));
            }
        }
    }

    /// A command with the values of this run: what a reader types who has read them in the output above.
    pub(super) fn real(&self, command: &str) -> String {
        pieces(command).into_iter().map(|(_, text)| self.known(text).unwrap_or(text)).collect()
    }

    fn known(&self, written: &str) -> Option<&str> {
        self.pairs.iter().find(|(page, _)| page == written).map(|(_, real)| real.as_str())
    }

    /// Compares, and remembers the values that `printed` has for those of the page. **Errors:** both texts.
    pub(super) fn compare(&mut self, shown: &str, printed: &str, gaps: Gaps) -> Result<(), String> {
        let (pattern, unknown) = self.pattern(shown, gaps);
        let regex = Regex::new(&pattern).map_err(|error| format!("{pattern}: {error}"))?;
        let printed: String =
            printed.trim_end().lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let mut captures = regex.create_captures();
        regex.captures(&printed, &mut captures);
        if !captures.is_match() {
            return Err(format!("--- the page shows\n{shown}\n--- it printed\n{printed}"));
        }
        for (at, written) in unknown.iter().enumerate() {
            let span = captures.get_group(at + 1).ok_or("a group of the pattern took nothing")?;
            self.bind(written, &printed[span.range()])?;
        }
        Ok(())
    }

    /// Two values that the page tells apart are two, and one that it writes twice is one.
    fn bind(&mut self, written: &str, real: &str) -> Result<(), String> {
        match self.pairs.iter().find(|(page, known)| page == written || known == real) {
            Some((page, known)) if page == written && known == real => Ok(()),
            Some((page, known)) => {
                Err(format!("{written} is {real}, but the page had {page}, which was {known}"))
            }
            None => {
                self.pairs.push((written.to_owned(), real.to_owned()));
                Ok(())
            }
        }
    }

    /// What the output must match, and the page's values that are not known before it, one for each group.
    fn pattern(&self, shown: &str, gaps: Gaps) -> (String, Vec<String>) {
        let mut pattern = String::from(r"\A");
        let mut unknown = Vec::new();
        for line in shown.trim_end().lines().map(str::trim_end) {
            if gaps == Gaps::AnyLine || line == "…" {
                pattern += r"(?:.*\n)*?";
            }
            if line == "…" {
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            pattern += &line[..indent];
            for (kind, text) in pieces(&line[indent..]) {
                match (kind, self.known(text)) {
                    (Some(kind), None) if kind.is_named => {
                        let _infallible = write!(pattern, "({})", kind.taken);
                        unknown.push(text.to_owned());
                    }
                    (Some(kind), None) => pattern += kind.taken,
                    (_, Some(real)) => escape(real, &mut pattern),
                    (None, None) => escape(text, &mut pattern),
                }
            }
            pattern += r"\n";
        }
        if gaps == Gaps::Marked {
            pattern += r"\z";
        }
        (pattern, unknown)
    }
}

/// A text cut into values of some kind, and what stands between them.
fn pieces(text: &str) -> Vec<(Option<&'static Kind>, &str)> {
    let patterns = KINDS.each_ref().map(|kind| kind.written);
    let regex = Regex::new_many(&patterns).expect("the patterns of KINDS are right");
    let mut pieces = Vec::new();
    let mut end = 0;
    for found in regex.find_iter(text) {
        pieces.push((None, &text[end..found.start()]));
        pieces.push((Some(&KINDS[found.pattern().as_usize()]), &text[found.range()]));
        end = found.end();
    }
    pieces.push((None, &text[end..]));
    pieces
}

fn escape(text: &str, pattern: &mut String) {
    for char in text.chars() {
        // Escaped, these two are the ends of a word.
        if char.is_ascii_punctuation() && !matches!(char, '<' | '>') {
            pattern.push('\\');
        }
        pattern.push(char);
    }
}

#[cfg(test)]
mod tests {
    use super::{Gaps, Values};

    const A: &str = "did:key:z6MkgdVE8znf5WwkgBq96qJLg2i2JzTBQZ9LsvzgBWKdi6vi";
    const B: &str = "did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P";
    const C: &str = "did:key:z6MkrpxxsGF1ezs1AtE6Uu7Zc7meiAc5yqAN92Vx8ZtVt4ZH";

    #[track_caller]
    fn holds(shown: &str, printed: &str, expected: bool) {
        assert_eq!(
            Values::default().compare(shown, printed, Gaps::Marked).is_ok(),
            expected,
            "{shown}\n{printed}"
        );
    }

    #[test]
    fn output_that_differs_is_not_what_the_page_shows() {
        holds("a\nb", "a\nb\n", true);
        holds("a\nb", "a\nb\nc\n", false);
        holds("a.c", "abc", false);
        holds(">=1.0 <2.0", ">=1.0 <2.0", true);
        holds("  a", "   a", false);
        holds("a  b", "a     b", true);
        holds("a b", "a  b", false);
    }

    #[test]
    fn values_of_a_kind_take_the_place_of_those_shown() {
        holds("in 0.26 ms at 2026-11-21T12:20:58Z", "in 13 µs at 2027-01-01T00:00:00Z", true);
        holds("in 0.26 ms", "in vain", false);
        holds("612 calls, 1529.3 calls/s", "7 calls, 12 calls/s", true);
        holds("{\"time_ms\": 12}", "{\"time_ms\": 0}", true);
        holds("12 rules", "13 rules", false);
    }

    #[test]
    fn what_is_left_out_is_marked() {
        holds("a\n…\nd", "a\nb\nc\nd", true);
        holds("a\n…\nd", "a\nd", true);
        holds("a\nd", "a\nb\nd", false);
        holds("head 4b0e…", "head 4b0e2e8f", true);
        holds("head 4b0e…", "head 5b0e2e8f", false);
        let log = "one\ntwo\nthree\n";
        assert!(Values::default().compare("one\nthree", log, Gaps::AnyLine).is_ok());
        assert!(Values::default().compare("three\none", log, Gaps::AnyLine).is_err());
    }

    #[test]
    fn a_value_that_the_page_repeats_is_the_same_each_time() {
        let mut values = Values::default();
        assert!(values.compare(A, C, Gaps::Marked).is_ok());
        assert_eq!(values.real(&format!("capctl ping {A}")), format!("capctl ping {C}"));
        assert!(values.compare(A, B, Gaps::Marked).is_err());
        assert!(values.compare(B, C, Gaps::Marked).is_err(), "the page tells two apart that are one");
        assert!(values.compare(&format!("{A} {A}"), &format!("{C} {C}"), Gaps::Marked).is_ok());
    }

    #[test]
    fn a_value_that_a_command_brings_up_is_that_value() {
        let mut values = Values::default();
        values.keep("capctl context set a --address 127.0.0.1:7003");
        assert!(values.compare("127.0.0.1:7003", "127.0.0.1:7004", Gaps::Marked).is_err());
        assert!(values.compare("127.0.0.1:7003", "127.0.0.1:7003", Gaps::Marked).is_ok());
        assert!(values.compare("127.0.0.1:7005", "127.0.0.1:40001", Gaps::Marked).is_ok());
    }
}
