//! Escapes foreign text: the same text out, in visible characters that control no terminal.
//!
//! A terminal obeys control characters, and people trust what they see. Text with reversed or invisible parts says one
//! thing to a program and another to its reader. Such text from a peer, an agent or a command is escaped before it is
//! shown: by [`shown`] and [`line()`] for people, by [`json`] in JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal, ends a line, reverses text, or is invisible.
pub const fn is_hidden(char: char) -> bool {
    matches!(
        char,
        // Control characters: C0, DEL and C1.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Ends of lines and paragraphs.
        | '\u{2028}' | '\u{2029}'
        // Marks, embeddings, overrides and isolates that set the direction of text.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // What has no width: joiners, fillers, invisible operators, annotations, shorthand and musical controls, tags.
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The text made visible, with line ends and tabs unchanged.
///
/// **Shape:** a hidden character becomes `\u{202e}`, its number in hexadecimal digits.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |char, out| match char {
        '\n' | '\t' => out.push(char),
        char => out.extend(char.escape_unicode()),
    })
}

/// The text on one line: line ends and tabs become spaces, the rest is as in [`shown`].
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |char, out| match char {
        '\n' | '\t' => out.push(' '),
        char => out.extend(char.escape_unicode()),
    })
}

/// JSON text made visible; its meaning as JSON is unchanged.
///
/// **Shape:** a hidden character becomes JSON's own escape, `\u202e`, beyond U+FFFF two of them. Line ends and tabs
/// between values stay.
pub fn json(json: &str) -> Cow<'_, str> {
    escaped(json, |char, out| match char {
        // Within a text these are escaped already.
        '\n' | '\r' | '\t' => out.push(char),
        char => {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    })
}

/// The text as the rest of a log line, which it cannot end.
pub fn logged(text: &str) -> Cow<'_, str> {
    escaped(text, |char, out| match char {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        char => out.extend(char.escape_unicode()),
    })
}

/// The one of `known` that was probably meant by `text`, which is none of them. Capitals do not count.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is longer is no slip of the fingers, and would take long to compare.
    let far_max = FAR_MAX.min(text.len() / 3);
    let wanted = text.to_lowercase();
    let far = known
        .into_iter()
        .filter(|known| known.len().abs_diff(text.len()) <= 4 * FAR_MAX)
        .map(|known| (distance(&known.to_lowercase(), &wanted), known));
    far.filter(|(distance, _)| *distance <= far_max).min().map(|(_, known)| known)
}

/// How many letters must be added, removed, changed, or swapped with their neighbour to make one text of the other. **Source:**
/// the distance of optimal string alignment.
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    let (mut above, mut letter_above) = (row.clone(), None);
    for (index, letter) in one.chars().enumerate() {
        let former = row.clone();
        row[0] = index + 1;
        for (at, known) in other.iter().enumerate() {
            let changed = former[at] + usize::from(*known != letter);
            row[at + 1] = changed.min(row[at] + 1).min(former[at + 1] + 1);
            if at > 0 && letter_above == Some(*known) && other[at - 1] == letter {
                row[at + 1] = row[at + 1].min(above[at - 1] + 1);
            }
        }
        (above, letter_above) = (former, Some(letter));
    }
    row.last().copied().unwrap_or_default()
}

/// Letters by which a word may differ from what was meant.
const FAR_MAX: usize = 3;

/// The text with `escape` in place of each hidden character; itself, where there is none.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    // Nearly every text is plain ASCII.
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
    if text.as_bytes().iter().all(is_plain) || !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_hidden(char) { escape(char, &mut out) } else { out.push(char) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_see_stays_as_it_is() {
        for text in ["", "plain", "é漢字 العربية עברית 😀", "\"quoted\" \\u{202e}"] {
            for escape in [shown, line, json, logged] {
                assert!(matches!(escape(text), Cow::Borrowed(same) if same == text), "{text:?}");
            }
        }
    }

    #[test]
    fn a_slip_of_the_fingers_is_nearly_what_was_meant() {
        let known = ["listen.quic", "listen.tcp", "log.level"];
        assert_eq!(nearest("lsiten.quic", known), Some("listen.quic"));
        assert_eq!(nearest("LOG.LEVEL", known), Some("log.level"));
        assert_eq!((nearest("timeouts.frame_ms", known), nearest("", known)), (None, None));
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("a", "a")), (3, 3, 0));
        assert_eq!((distance("rnu", "run"), distance("ab", "ba"), distance("abcd", "badc")), (1, 1, 2));
        assert_eq!((nearest("rnu", ["init", "run"]), nearest("rn", ["run"])), (Some("run"), None));
    }

    #[test]
    fn what_is_hidden_is_told_by_its_number() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}\nb\tc"), "a\\u{1b}[2J\\u{202e}\nb\tc");
        assert_eq!(line("a\r\nb\tc\u{2028}"), "a\\u{d} b c\\u{2028}");
        assert_eq!(logged("a\r\nb\tc\u{85}"), "a\\r\\nb\\tc\\u{85}");
        assert_eq!(json("\"\u{9b}\u{200b}\u{e0041}\"\n"), "\"\\u009b\\u200b\\udb40\\udc41\"\n");
    }

    #[test]
    fn json_says_the_same_as_before() {
        let every: String = ('\0'..=char::MAX).filter(|char| is_hidden(*char)).collect();
        let text = serde_json::json!({ every.as_str(): [every.as_str()] });
        for plain in [text.to_string(), serde_json::to_string_pretty(&text).unwrap()] {
            let escaped = json(&plain);
            assert!(!escaped.chars().any(|char| is_hidden(char) && char != '\n'));
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), text);
        }
    }
}
