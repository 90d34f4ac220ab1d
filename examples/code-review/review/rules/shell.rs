//! Rules for shell scripts. Quoted text is blank in a line's code, so a `$` that stands there is unquoted.

use super::super::Severity::{Error, Info, Warning};
use super::super::source::Line;
use super::{Findings, Rule, has_word, squeezed, words};

pub(super) fn check(lines: &[Line], review: &mut Findings) {
    let Some(first) = lines.first() else { return };
    if !first.text.starts_with("#!") {
        review.add(first.number, &SHEBANG, "no #! line: which shell runs this is left to chance");
    }
    let strict = lines.iter().any(|line| {
        let code = line.code.trim_start();
        code.starts_with("set ") && code.split_whitespace().any(|w| w.starts_with('-') && w.contains('e'))
            || code.starts_with("set -o errexit")
    });
    if !strict && lines.iter().filter(|line| !line.is_blank()).count() > 1 {
        review.add(first.number, &STRICT, "the script goes on after a command failed");
    }
    for line in lines {
        commands(line, review);
        expansions(line, review);
    }
}

fn commands(line: &Line, review: &mut Findings) {
    let code = line.code.trim();
    if begins_command(code, "eval") {
        review.add(line.number, &EVAL, "eval runs whatever text it is given");
    }
    let flat = squeezed(code);
    let fetched = has_word(code, "curl") || has_word(code, "wget");
    if fetched && ["|sh", "|bash", "|sudosh", "|sudobash"].iter().any(|pipe| flat.contains(pipe)) {
        review.add(line.number, &PIPE_TO_SHELL, "whatever the server sends is run");
    }
    if code.starts_with("cd ") && !code.contains("||") && !code.contains("&&") {
        review.add(line.number, &CD, "when cd fails, what follows runs in the wrong place");
    }
}

fn expansions(line: &Line, review: &mut Findings) {
    let code = &line.code;
    let unquoted = |text: &str| {
        text.match_indices('$')
            .any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_alphabetic() || c == '{' || c == '_'))
    };
    let removes = words(code, "rm").any(|at| {
        let command = code[at..].split([';', '|', '&']).next().unwrap_or("");
        let recursive = command.split_whitespace().any(|w| w.starts_with('-') && w.contains(['r', 'R']));
        recursive && unquoted(command)
    });
    if removes {
        review.add(
            line.number,
            &RM,
            "rm -r with an unquoted variable: empty or with a space, it removes something else",
        );
    }
    let test = code.find("[ ").filter(|at| !code[..*at].ends_with('[')).map(|at| &code[at..]);
    if test.is_some_and(|test| unquoted(test.split(']').next().unwrap_or(""))) {
        review.add(
            line.number,
            &UNQUOTED,
            "an unquoted variable in [ ]: empty or with a space, the test breaks",
        );
    }
    if code.contains('`') {
        review.add(line.number, &BACKTICKS, "backticks do not nest");
    }
}

/// Whether a command of `code` is `name`.
fn begins_command(code: &str, name: &str) -> bool {
    let commands = code.split([';', '|', '&', '(', '{']);
    commands.into_iter().any(|command| command.split_whitespace().next() == Some(name))
}

static SHEBANG: Rule =
    Rule { name: "shell-shebang", severity: Info, remedy: "Begin with #!/usr/bin/env bash or #!/bin/sh." };
static STRICT: Rule = Rule {
    name: "shell-strict",
    severity: Warning,
    remedy: "Begin with `set -eu` (in bash `set -euo pipefail`).",
};
static EVAL: Rule =
    Rule { name: "shell-eval", severity: Error, remedy: "Use an array for a command and its arguments." };
static PIPE_TO_SHELL: Rule = Rule {
    name: "shell-pipe-to-shell",
    severity: Error,
    remedy: "Download to a file, check its hash, then run it.",
};
static CD: Rule = Rule { name: "shell-unchecked-cd", severity: Info, remedy: "Write `cd … || exit`." };
static RM: Rule = Rule {
    name: "shell-rm-unquoted",
    severity: Error,
    remedy: "Quote the variable, and stop when it is empty: \"${dir:?}\".",
};
static UNQUOTED: Rule =
    Rule { name: "shell-unquoted", severity: Warning, remedy: "Put variables in double quotes." };
static BACKTICKS: Rule =
    Rule { name: "shell-backticks", severity: Info, remedy: "Write $(…) instead of backticks." };
