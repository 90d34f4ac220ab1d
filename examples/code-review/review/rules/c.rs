//! Rules for C and C++.

use super::super::Severity::{Error, Info, Warning};
use super::super::source::Line;
use super::{Findings, Rule, calls, squeezed};

pub(super) fn check(lines: &[Line], review: &mut Findings) {
    for line in lines {
        if calls(&line.code, "gets") {
            review.add(line.number, &GETS, "gets() writes past any buffer");
        }
        for name in ["strcpy", "strcat", "sprintf", "vsprintf", "stpcpy"] {
            if calls(&line.code, name) {
                review.add(
                    line.number,
                    &UNBOUNDED_COPY,
                    format!("{name}() knows no bound for its destination"),
                );
            }
        }
        if ["scanf", "sscanf", "fscanf"].iter().any(|name| calls(&line.code, name))
            && line.text.contains("%s")
        {
            review.add(line.number, &UNBOUNDED_COPY, "%s without a width knows no bound for its destination");
        }
        for name in ["system", "popen"] {
            if calls(&line.code, name) {
                review.add(line.number, &SYSTEM, format!("{name}() hands its text to a shell"));
            }
        }
        for name in ["atoi", "atol", "atof"] {
            if calls(&line.code, name) {
                review.add(line.number, &ATOI, format!("{name}() cannot tell an error from 0"));
            }
        }
        if calls(&line.code, "alloca") {
            review.add(line.number, &ALLOCA, "alloca() overflows the stack without a word");
        }
        if assigns_in_condition(&line.code) {
            review.add(line.number, &ASSIGNMENT, "= where a condition stands: == is likely meant");
        }
        if calls(&line.code, "printf")
            && squeezed(&line.code).split("printf(").nth(1).is_some_and(is_bare_name)
        {
            review.add(line.number, &FORMAT, "a variable as the format: its % signs are obeyed");
        }
    }
}

fn is_bare_name(arguments: &str) -> bool {
    let name = arguments.split(')').next().unwrap_or("");
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// `if (a = b)`; a second pair of parentheses says that it is meant.
fn assigns_in_condition(code: &str) -> bool {
    let flat = squeezed(code);
    let Some((_, condition)) = flat.split_once("if(") else { return false };
    let mut depth = 1;
    let mut previous = ' ';
    let mut chars = condition.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '=' if depth == 1 && !"=!<>+-*/%&|^".contains(previous) && chars.peek() != Some(&'=') => {
                return true;
            }
            _ => {}
        }
        if depth == 0 {
            return false;
        }
        previous = c;
    }
    false
}

static GETS: Rule =
    Rule { name: "c-gets", severity: Error, remedy: "Read lines with fgets() and the buffer's size." };
static UNBOUNDED_COPY: Rule = Rule {
    name: "c-unbounded-copy",
    severity: Error,
    remedy: "Use the form with a size (snprintf, a checked memcpy), and check for truncation.",
};
static SYSTEM: Rule = Rule {
    name: "c-system",
    severity: Warning,
    remedy: "Start programs with posix_spawn or execv and an argument list.",
};
static ATOI: Rule =
    Rule { name: "c-atoi", severity: Info, remedy: "Use strtol() and check its end pointer." };
static ALLOCA: Rule = Rule {
    name: "c-alloca",
    severity: Warning,
    remedy: "Use a fixed buffer, or the heap with a checked size.",
};
static ASSIGNMENT: Rule = Rule {
    name: "c-assignment-in-condition",
    severity: Warning,
    remedy: "Compare with ==, or move the assignment out of the condition.",
};
static FORMAT: Rule =
    Rule { name: "c-format-string", severity: Error, remedy: "Print variables with \"%s\" as the format." };
