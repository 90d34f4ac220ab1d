//! Rules for JavaScript, and TypeScript's own.

use super::super::Severity::{Error, Info, Warning};
use super::super::source::{Language, Line};
use super::{Context, Findings, Rule, calls, has_word, squeezed, words};

pub(super) fn check(lines: &[Line], language: Language, context: Context, review: &mut Findings) {
    for line in lines {
        dangers(line, review);
        habits(line, context, review);
        if language == Language::TypeScript {
            types(line, review);
        }
    }
}

fn dangers(line: &Line, review: &mut Findings) {
    let flat = squeezed(&line.code);
    if calls(&line.code, "eval") || flat.contains("newFunction(") {
        review.add(line.number, &EVAL, "runs whatever text it is given");
    }
    let assigned = |name: &str| flat.contains(&format!(".{name}=")) && !flat.contains(&format!(".{name}=="));
    if assigned("innerHTML") || assigned("outerHTML") || flat.contains("document.write(") {
        review.add(line.number, &HTML, "text becomes markup, scripts included");
    }
    if flat.contains("catch{}") || flat.contains("catch(") && flat.contains("){}") {
        review.add(line.number, &EMPTY_CATCH, "the error is swallowed");
    }
}

fn habits(line: &Line, context: Context, review: &mut Findings) {
    if loose_equality(&line.code) {
        review.add(line.number, &LOOSE_EQUALITY, "== and != convert their sides first");
    }
    if words(&line.code, "var").any(|at| !line.code[..at].trim_end().ends_with(['.', '$', '-'])) {
        review.add(line.number, &VAR, "var is visible in the whole function");
    }
    if has_word(line.code.trim_start().split(';').next().unwrap_or(""), "debugger") {
        review.add(line.number, &DEBUGGER, "debugger stops whoever has the tools open");
    }
    if squeezed(&line.code).contains("console.log(") && !context.test && !context.tool {
        review.add(line.number, &CONSOLE, "console.log left in");
    }
}

/// `==` or `!=`, except against null, where it means null or undefined on purpose.
fn loose_equality(code: &str) -> bool {
    let operators = code.match_indices("==").chain(code.match_indices("!="));
    operators.into_iter().any(|(at, operator)| {
        let before = code[..at].chars().next_back();
        let rest = &code[at + 2..];
        let strict =
            rest.starts_with('=') || operator == "==" && matches!(before, Some('=' | '!' | '<' | '>'));
        let with_null = rest.trim_start().starts_with("null") || code[..at].trim_end().ends_with("null");
        !strict && !with_null
    })
}

fn types(line: &Line, review: &mut Findings) {
    let flat = squeezed(&line.code);
    let any = [":any", "<any>", "asany", "any[]"].iter().any(|use_of| {
        flat.match_indices(use_of)
            .any(|(at, _)| !flat[at + use_of.len()..].starts_with(|c: char| c.is_alphanumeric()))
    });
    if any && has_word(&line.code, "any") {
        review.add(line.number, &ANY, "any switches the type checker off");
    }
    if ["@ts-ignore", "@ts-nocheck"].iter().any(|mark| line.comment.contains(mark)) {
        review.add(line.number, &TS_IGNORE, "the type checker is told to look away");
    }
}

static EVAL: Rule = Rule {
    name: "js-eval",
    severity: Error,
    remedy: "Parse the text instead of running it: JSON.parse, or a table of functions.",
};
static HTML: Rule = Rule {
    name: "js-raw-html",
    severity: Error,
    remedy: "Set textContent, or build elements; sanitize markup that must be taken.",
};
static EMPTY_CATCH: Rule =
    Rule { name: "js-empty-catch", severity: Warning, remedy: "Handle the error, log it, or let it rise." };
static LOOSE_EQUALITY: Rule =
    Rule { name: "js-loose-equality", severity: Warning, remedy: "Compare with === and !==." };
static VAR: Rule = Rule { name: "js-var", severity: Warning, remedy: "Declare with const, or let." };
static DEBUGGER: Rule =
    Rule { name: "js-debugger", severity: Warning, remedy: "Remove the debugger statement." };
static CONSOLE: Rule =
    Rule { name: "js-console", severity: Info, remedy: "Remove console.log, or use the project's logger." };
static ANY: Rule =
    Rule { name: "ts-any", severity: Warning, remedy: "Name the type, or take unknown and narrow it." };
static TS_IGNORE: Rule = Rule {
    name: "ts-ignore",
    severity: Warning,
    remedy: "Mend the type, or use @ts-expect-error with a reason.",
};
