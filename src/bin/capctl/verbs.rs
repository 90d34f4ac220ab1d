//! Lists the verbs: for each, whether it asks a sidecar, examples, and what its exit codes mean.

mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use table::VERBS;

/// What the help of a verb says besides its arguments.
#[derive(Debug)]
pub(crate) struct Verb {
    /// Its words, such as `policy why`.
    pub(crate) name: &'static str,
    pub(crate) asks: Asks,
    pub(crate) examples: &'static [&'static str],
    /// Exit codes that mean something else, or more, than in [`Asks::codes`].
    codes: &'static [(u8, &'static str)],
}

/// Whether a verb speaks to a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Sidecar,
    /// If its arguments say so.
    Perhaps,
    /// It chooses one, and asks none.
    Chooses,
    Nobody,
}

impl Asks {
    /// The exit codes of all such verbs.
    const fn codes(self) -> &'static [(u8, &'static str)] {
        match self {
            Self::Sidecar | Self::Perhaps => &[DONE, UNEXPECTED, USAGE, REFUSED, UNAVAILABLE],
            Self::Chooses | Self::Nobody => &[DONE, UNEXPECTED, USAGE],
        }
    }

    #[cfg(test)]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sidecar => "yes",
            Self::Perhaps => "if needed",
            Self::Chooses | Self::Nobody => "no",
        }
    }
}

impl Verb {
    /// Each exit code with its meaning, ascending.
    pub(crate) fn codes(&self) -> Vec<(u8, &'static str)> {
        let common =
            self.asks.codes().iter().filter(|(code, _)| self.codes.iter().all(|(own, _)| own != code));
        let mut codes: Vec<_> = self.codes.iter().chain(common).copied().collect();
        codes.sort_unstable();
        codes
    }

    /// What stands below its arguments in its help.
    pub(crate) fn after_help(&self) -> String {
        after_help(self.examples.iter().copied(), self.codes())
    }
}

/// The verb with these words.
pub(crate) fn find(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

/// What stands below the arguments of a group of verbs, such as `policy`: an example of each, and all their exit codes.
pub(crate) fn after_help_of_group(group: &str) -> String {
    let below = || VERBS.iter().filter(|verb| verb.name.split(' ').next() == Some(group));
    let codes: BTreeSet<u8> = below().flat_map(Verb::codes).map(|(code, _)| code).collect();
    let codes = CODES.iter().copied().filter(|(code, _)| codes.contains(code)).collect();
    after_help(below().filter_map(|verb| verb.examples.first().copied()), codes)
}

/// What stands below the list of all verbs.
pub(crate) fn after_help_of_all() -> String {
    format!("{WHICH_SIDECAR}\n\n{}", after_help(EXAMPLES.iter().copied(), CODES.to_vec()))
}

fn after_help<'a>(examples: impl Iterator<Item = &'a str>, codes: Vec<(u8, &str)>) -> String {
    let mut text = "Examples:\n".to_owned();
    for example in examples {
        let _ = writeln!(text, "  {example}");
    }
    text += "\nExit codes:";
    for (code, meaning) in codes {
        let _ = write!(text, "\n  {code:<3}  {meaning}");
    }
    text
}

const WHICH_SIDECAR: &str = "\
Which sidecar: --socket, --address or --context; else the environment's CAPD_SOCKET or CAPD_CONTEXT;
else the current context of $XDG_CONFIG_HOME/capd/contexts.toml.";

const EXAMPLES: [&str; 4] = [
    "capctl ls",
    "capctl describe org.example.upper",
    "capctl call org.example.upper --params '\"hello\"'",
    "capctl doctor",
];

/// What each exit code means, whichever verb ends with it.
pub(crate) const CODES: [(u8, &str); 9] = [
    DONE,
    (1, "something unexpected; a generated file or a configuration that is not current"),
    (2, "usage: the command line, a file it names, or contexts.toml"),
    (3, "refused, or not found: a capability, a peer, a call"),
    (
        4,
        "a schema violation: params (4004, 4904) or result (5901); drift (4902, 4903); a finding of a check; a broken audit chain",
    ),
    (5, "unavailable or out of time: no sidecar, 2xxx, 5002, 5003, 5004"),
    (6, "the call ended with another error result"),
    (7, "not decided: neither proven nor refuted"),
    (130, "interrupted; the running call was cancelled"),
];

const DONE: (u8, &str) = (0, "done");
const UNEXPECTED: (u8, &str) = (1, "something unexpected, such as a full disk");
const USAGE: (u8, &str) = (2, "usage: the command line, or a file that it names");
const REFUSED: (u8, &str) = (3, "refused by the sidecar or a peer");
const UNAVAILABLE: (u8, &str) = (5, "no sidecar answers, or not in time");
const NOT_FOUND: (u8, &str) = (3, "no such capability or peer, or refused");

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::args;

    /// Every verb of the command line, with its words.
    fn leaves() -> Vec<(String, Command)> {
        let mut command = args::command();
        command.build();
        let mut leaves = Vec::new();
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let below = || verb.get_subcommands().filter(|below| below.get_name() != "help");
            let name = verb.get_name();
            leaves.extend(below().map(|below| (format!("{name} {}", below.get_name()), below.clone())));
            if below().next().is_none() {
                leaves.push((name.to_owned(), verb.clone()));
            }
        }
        leaves
    }

    /// The words of the `capctl` in a line of a shell.
    fn words(line: &str) -> Vec<String> {
        let line = line.rsplit(" | ").next().unwrap().split(" > ").next().unwrap();
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for char in line.chars() {
            match char {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                char => words.last_mut().unwrap().push(char),
            }
        }
        words
    }

    #[test]
    fn every_verb_is_described_in_the_order_of_the_help() {
        let names: Vec<_> = leaves().into_iter().map(|(name, _)| name).collect();
        let described: Vec<_> = VERBS.iter().map(|verb| verb.name).collect();
        assert_eq!(names, described);
    }

    #[test]
    fn every_example_parses_and_shows_its_verb() {
        for verb in VERBS {
            assert!(!verb.examples.is_empty(), "{}", verb.name);
            for example in verb.examples {
                let words = words(example);
                assert!(words.join(" ").starts_with(&format!("capctl {}", verb.name)), "{example}");
                if let Err(error) = args::parse(words.into_iter().map(Into::into)) {
                    panic!("{example}: {error}");
                }
            }
        }
        for example in EXAMPLES {
            assert!(args::parse(words(example).into_iter().map(Into::into)).is_ok(), "{example}");
        }
    }

    #[test]
    fn every_help_ends_with_examples_and_exit_codes() {
        for (name, mut verb) in leaves() {
            let help = verb.render_long_help().to_string();
            let verb = find(&name).unwrap();
            assert!(help.trim_end().ends_with(&verb.after_help()), "{name}: {help}");
            for (code, _) in verb.codes() {
                assert!(CODES.iter().any(|(known, _)| *known == code), "{name}: {code}");
            }
        }
    }

    #[test]
    fn what_asks_no_sidecar_has_no_options_of_one() {
        let mut offline = 0;
        for (name, verb) in leaves() {
            let asks = find(&name).unwrap().asks;
            let options: Vec<_> = verb.get_arguments().filter_map(|arg| arg.get_long()).collect();
            for option in ["socket", "address", "context", "token-file", "any-owner"] {
                assert_eq!(options.contains(&option), asks != Asks::Nobody, "{name}: --{option}");
            }
            offline += usize::from(asks == Asks::Nobody);
        }
        assert!(offline > 12, "{offline}");
    }

    #[test]
    fn the_page_has_the_table_of_verbs() {
        let mut table = "| verb | does | sidecar | exit codes |\n| --- | --- | --- | --- |\n".to_owned();
        for (name, command) in leaves() {
            let verb = find(&name).unwrap();
            let codes: Vec<_> = verb.codes().into_iter().map(|(code, _)| code.to_string()).collect();
            let (about, asks) = (command.get_about().unwrap(), verb.asks.as_str());
            writeln!(table, "| `{name}` | {about} | {asks} | {} |", codes.join(", ")).unwrap();
        }
        let page = include_str!("../../../docs/capctl.md");
        assert!(page.contains(&format!("\n\n{table}\n")), "write the table of verbs anew:\n{table}");
    }
}
