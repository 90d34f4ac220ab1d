//! Builds the command that repeats a call: the call's command line and id in, the command with `--id` out.

use std::fmt::Write as _;

use capd_proto::envelope::MessageId;

use crate::args::CallArgs;

/// The command that repeats this process's call under its id, ready for a shell.
pub(crate) fn command(args: &CallArgs, id: MessageId) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    command_of(words.collect(), args, id)
}

fn command_of(mut words: Vec<String>, args: &CallArgs, id: MessageId) -> String {
    if args.id.is_none() {
        // Behind `--` everything is a name.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(end..end, ["--id".to_owned(), id.to_string()]);
    }
    let mut text = String::new();
    for word in &words {
        let gap = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{gap}{}", quoted(word));
    }
    if args.params == "-" {
        text.push_str(" (with the same stdin)");
    }
    text
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_@%+=:,./-".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};

    const ID: &str = "0000018d746b37000000000000000001";

    #[track_caller]
    fn holds(line: &[&str], expected: &str) {
        let words: Vec<_> = std::iter::once("capctl").chain(line.iter().copied()).collect();
        let Command::Call(call) = args::parse(words.iter().map(Into::into)).unwrap().command else {
            panic!("{line:?}")
        };
        let words = words.into_iter().map(str::to_owned).collect();
        assert_eq!(command_of(words, &call, ID.parse().unwrap()), expected);
    }

    #[test]
    fn the_command_is_the_same_with_the_id() {
        holds(&["call", "a.b.c", "--timeout", "2m"], &format!("capctl call a.b.c --timeout 2m --id {ID}"));
        holds(&["call", "a.b.c", "--id", ID, "--json"], &format!("capctl call a.b.c --id {ID} --json"));
        holds(&["call", "--json", "--", "a.b.c"], &format!("capctl call --json --id {ID} -- a.b.c"));
    }

    #[test]
    fn what_a_shell_would_read_differently_is_quoted() {
        holds(
            &["call", "a.b.c", "--params", r#"{"it's": $x}"#],
            &format!(r#"capctl call a.b.c --params '{{"it'\''s": $x}}' --id {ID}"#),
        );
        assert_eq!((quoted("").as_str(), quoted("ü").as_str()), ("''", "'ü'"));
    }

    #[test]
    fn params_from_stdin_are_asked_for_again() {
        holds(
            &["call", "a.b.c", "--params", "-"],
            &format!("capctl call a.b.c --params - --id {ID} (with the same stdin)"),
        );
    }
}
