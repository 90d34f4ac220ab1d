//! Judges the output of a process: bytes in; a text fit for the caller, or the verdict on its JSON, out.

use std::cell::Cell;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use capd_proto::limits::{CBOR_CONTAINER_ITEMS_MAX, CBOR_DEPTH_MAX, CBOR_ITEMS_MAX};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::text;

/// The last line of stderr that says something: without control characters and file paths, of bounded length.
pub(super) fn last_line(stderr: &[u8]) -> Option<String> {
    let lines = stderr.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    let mut lines = lines.map(|line| printable(&String::from_utf8_lossy(line)));
    lines.find_map(|line| {
        let line = without_paths(line.trim());
        (!line.is_empty()).then(|| line.chars().take(MESSAGE_CHARS_MAX).collect())
    })
}

/// The end of stderr, as the log has it: bounded, and begun anew where that cuts it.
pub(super) fn log_text(stderr: &[u8]) -> String {
    let end = &stderr[stderr.len().saturating_sub(LOG_BYTES_MAX)..];
    let text = String::from_utf8_lossy(end);
    let text = text.trim_end();
    if end.len() < stderr.len() { format!("… {text}") } else { text.to_owned() }
}

/// How output begins that is not what it must be, escaped for the log.
pub(super) fn excerpt(output: &[u8]) -> String {
    // A character has at most 4 bytes.
    let head = String::from_utf8_lossy(&output[..output.len().min(4 * EXCERPT_CHARS)]);
    let end = head.char_indices().nth(EXCERPT_CHARS).map_or(head.len(), |(at, _)| at);
    let shown = text::logged(&head[..end]);
    if end < head.len() || output.len() > 4 * EXCERPT_CHARS {
        format!("{shown}…")
    } else {
        shown.into_owned()
    }
}

/// How a process ended that failed.
pub(super) fn of_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the provider exited with code {code}"),
        (None, Some(signal)) => format!("the provider was killed by signal {signal}"),
        (None, None) => "the provider ended without a code".to_owned(),
    }
}

/// Leaves out terminal sequences (`ESC [ … letter`), and what steers a terminal or is not seen.
fn printable(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                chars.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            '\t' => out.push(' '),
            c if text::is_hidden(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// PROTOCOL 9: messages never quote file paths. An absolute path is cut down to its last part.
fn without_paths(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut previous = None;
    while let Some(c) = rest.chars().next() {
        let starts_word =
            previous.is_none_or(|p: char| !p.is_alphanumeric() && !matches!(p, '/' | '.' | '_'));
        if c == '/' && starts_word && !rest.starts_with("//") {
            let end = rest.find(|c: char| c.is_whitespace() || "\"'`:,;()<>[]{}|".contains(c));
            let (path, after) = rest.split_at(end.unwrap_or(rest.len()));
            out.push_str(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
            previous = path.chars().next_back();
            rest = after;
        } else {
            out.push(c);
            previous = Some(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Whether the bytes are exactly one JSON document that has a place in a message; no tree is built.
///
/// **Errors:** what is wrong, with line and column.
pub(super) fn check_document(bytes: &[u8]) -> Result<(), String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".to_owned());
    }
    let items_left = Cell::new(ITEMS_MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let whole = Value { items_left: &items_left, depth_left: DEPTH_MAX };
    whole.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(|error| error.to_string())
}

/// Any JSON value, read through to its end. Unlike `IgnoredAny` it has every text decoded and every number read, and
/// it keeps the bounds that PROTOCOL 5 sets for the message that the value will stand in.
#[derive(Clone, Copy)]
struct Value<'a> {
    items_left: &'a Cell<usize>,
    depth_left: usize,
}

impl Value<'_> {
    fn take<E: Error>(self) -> Result<(), E> {
        let left = self.items_left.get().checked_sub(1);
        self.items_left.set(left.ok_or_else(|| E::custom(format!("more than {ITEMS_MAX} items")))?);
        Ok(())
    }

    /// What stands inside this value, which is a container.
    fn inside<E: Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(E::custom(format!("nested deeper than {DEPTH_MAX}"))),
        }
    }
}

/// Counts one more element or member of a container.
fn count_one<E: Error>(count: &mut usize) -> Result<(), E> {
    *count += 1;
    match *count > CBOR_CONTAINER_ITEMS_MAX {
        true => Err(E::custom(format!("more than {CBOR_CONTAINER_ITEMS_MAX} items in one container"))),
        false => Ok(()),
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        let mut count = 0;
        while items.next_element_seed(inside)?.is_some() {
            count_one(&mut count)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        let mut count = 0;
        while members.next_key_seed(inside)?.is_some() {
            members.next_value_seed(inside)?;
            count_one(&mut count)?;
        }
        Ok(())
    }
}

/// Deepest nesting of a result: PROTOCOL 5's, less what the envelope, the body and an error's details put around it.
const DEPTH_MAX: usize = CBOR_DEPTH_MAX - 8;
/// Most values in a result: PROTOCOL 5's, less ample room for the envelope around it.
const ITEMS_MAX: usize = CBOR_ITEMS_MAX - 1_000;
/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 512;
/// Characters of unusable output in the log.
const EXCERPT_CHARS: usize = 200;
/// Most of stderr in one line of the log.
const LOG_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_that_says_something_is_the_message() {
        assert_eq!(last_line(b"first\nthe disk is full\n\n  \r\n").as_deref(), Some("the disk is full"));
        assert_eq!(last_line(b" \n\n"), None);
        assert_eq!(last_line(b""), None);
    }

    #[test]
    fn control_characters_and_terminal_sequences_are_left_out() {
        assert_eq!(
            last_line(b"\x1b[1;31merror\x1b[0m:\tbad\x07 \xff").as_deref(),
            Some("error: bad \u{fffd}")
        );
        assert_eq!(last_line("a\u{202e}b".as_bytes()).as_deref(), Some("ab"));
    }

    #[test]
    fn log_has_the_end_of_a_long_complaint_and_all_of_a_short_one() {
        assert_eq!(log_text(b"first\nsecond\n"), "first\nsecond");
        assert_eq!(log_text(b" \n"), "");
        let long = log_text(format!("{}\nthe end", "x".repeat(2 * LOG_BYTES_MAX)).as_bytes());
        assert!(long.starts_with("… x") && long.ends_with("\nthe end"));
        assert!(long.len() <= LOG_BYTES_MAX + "… ".len());
    }

    #[test]
    fn unusable_output_is_shown_to_its_200th_character_without_control_characters() {
        assert_eq!(excerpt(b"Loading\x1b[1m model\r\n"), "Loading\\u{1b}[1m model\\r\\n");
        let shown = excerpt("é".repeat(201).as_bytes());
        assert_eq!((shown.chars().count(), shown.ends_with("é…")), (201, true));
        assert_eq!(excerpt("é".repeat(200).as_bytes()).chars().count(), 200);
        assert!(excerpt(&b"x".repeat(10_000)).ends_with("x…"));
    }

    #[test]
    fn message_is_bounded() {
        let line = "é".repeat(MESSAGE_CHARS_MAX * 3);
        assert_eq!(last_line(line.as_bytes()).map(|m| m.chars().count()), Some(MESSAGE_CHARS_MAX));
    }

    #[test]
    fn file_paths_are_cut_to_their_last_part() {
        let cases = [
            ("/bin/sh: 1: nope: not found", "sh: 1: nope: not found"),
            ("open '/home/ada/secret/key.pem': denied", "open 'key.pem': denied"),
            ("at (/srv/app/main.js:3)", "at (main.js:3)"),
            ("see https://example.org/a/b", "see https://example.org/a/b"),
            ("3/4 and/or", "3/4 and/or"),
        ];
        for (line, expected) in cases {
            assert_eq!(without_paths(line), expected);
        }
    }

    #[test]
    fn one_document_passes_and_nothing_else() {
        for good in ["{}", " [1, -2, 3.5e3, \"a\\u00e9\", null, true, {\"a\": [[]]}]\n", "\"x\"", "0"] {
            assert_eq!(check_document(good.as_bytes()), Ok(()), "{good}");
        }
        let bad: [&[u8]; 9] =
            [b"", b"\n", b"{} {}", b"{\"a\":}", b"nul", b"\"\xff\"", b"\"\\ud800\"", b"1e999", b"{1: 2}"];
        for bad in bad {
            assert!(check_document(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        assert!(check_document("[".repeat(100_000).as_bytes()).is_err());
    }
    #[test]
    fn document_that_no_message_could_carry_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check_document(nested(DEPTH_MAX).as_bytes()), Ok(()));
        assert!(
            check_document(nested(DEPTH_MAX + 1).as_bytes()).is_err_and(|error| error.contains("nested"))
        );
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert_eq!(check_document(list(CBOR_CONTAINER_ITEMS_MAX).as_bytes()), Ok(()));
        let long = check_document(list(CBOR_CONTAINER_ITEMS_MAX + 1).as_bytes());
        assert!(long.is_err_and(|error| error.contains("container")));
        let wide = format!("[{}0]", format!("{},", list(CBOR_CONTAINER_ITEMS_MAX)).repeat(16));
        assert!(check_document(wide.as_bytes()).is_err_and(|error| error.contains("items")));
    }
}
