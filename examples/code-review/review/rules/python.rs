//! Rules for Python.

use super::super::Severity::{Error, Info, Warning};
use super::super::source::Line;
use super::{Context, Findings, Rule, calls, has_word, squeezed, words};

pub(super) fn check(lines: &[Line], context: Context, review: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.trim();
        exceptions(lines, index, review);
        dangers(line, context, review);
        if comparisons(code) {
            review.add(line.number, &NONE_COMPARISON, "None compared with == or !=");
        }
        if code.starts_with("from ") && code.ends_with("import *") {
            review.add(line.number, &STAR_IMPORT, "import * hides where names come from");
        }
        if (code.starts_with("def ") || code.starts_with("async def ")) && mutable_default(code) {
            review.add(line.number, &MUTABLE_DEFAULT, "a mutable default is shared by all calls");
        }
        if calls(code, "print") && !context.test && !context.tool {
            review.add(line.number, &PRINT, "print() writes to the process's own output");
        }
        if !context.test {
            docs(lines, index, review);
        }
    }
}

fn exceptions(lines: &[Line], index: usize, review: &mut Findings) {
    let line = &lines[index];
    let code = line.code.trim();
    if squeezed(code).starts_with("except:") {
        review.add(line.number, &BARE_EXCEPT, "except: takes KeyboardInterrupt and SystemExit as well");
    }
    let body = code.strip_prefix("except").and_then(|rest| rest.split_once(':')).map(|(_, body)| body.trim());
    let next = lines[index + 1..].iter().find(|line| !line.is_blank()).map(|line| line.code.trim());
    if body.is_some_and(|body| body == "pass" || body.is_empty() && next == Some("pass")) {
        review.add(line.number, &SWALLOWED, "the error is swallowed");
    }
}

fn dangers(line: &Line, context: Context, review: &mut Findings) {
    for name in ["eval", "exec"] {
        if calls(&line.code, name) {
            review.add(line.number, &EVAL, format!("{name}() runs whatever text it is given"));
        }
    }
    let flat = squeezed(&line.code);
    if flat.contains("os.system(") || flat.contains("shell=True") {
        review.add(line.number, &SHELL, "a shell interprets whatever stands in the text");
    }
    for loader in ["pickle.loads(", "pickle.load(", "marshal.loads("] {
        if flat.contains(loader) {
            review.add(line.number, &PICKLE, format!("{loader}) runs code that the data names"));
        }
    }
    if flat.contains("yaml.load(") && !flat.contains("Loader") {
        review.add(line.number, &PICKLE, "yaml.load() without a safe loader builds any object");
    }
    if line.code.trim_start().starts_with("assert ") && context.untrusted {
        review.add(line.number, &ASSERT, "assert is gone under python -O");
    }
}

fn comparisons(code: &str) -> bool {
    words(code, "None").any(|at| {
        let before = code[..at].trim_end();
        let after = code[at + 4..].trim_start();
        before.ends_with("==") || before.ends_with("!=") || after.starts_with("==") || after.starts_with("!=")
    })
}

/// `=[]`, `={}`, `=set()`, `=list()` or `=dict()` among the parameters.
fn mutable_default(def: &str) -> bool {
    let flat = squeezed(def);
    let parameters = flat.split_once('(').map_or("", |(_, rest)| rest);
    ["=[]", "={}", "=set()", "=list()", "=dict()"].iter().any(|default| parameters.contains(default))
}

/// A public function or class whose first line is no docstring.
fn docs(lines: &[Line], index: usize, review: &mut Findings) {
    let line = &lines[index];
    let code = line.code.trim_start().trim_start_matches("async ");
    let Some(name) = code.strip_prefix("def ").or_else(|| code.strip_prefix("class ")) else { return };
    if name.starts_with('_') {
        return;
    }
    let header =
        lines[index..].iter().take(HEADER_LINES_MAX).position(|line| line.code.trim_end().ends_with(':'));
    let Some(end) = header.map(|length| index + length) else { return };
    let body = lines[end + 1..].iter().find(|line| !line.is_blank());
    let documented = body.is_some_and(|line| {
        let text = line.text.trim_start().trim_start_matches(['r', 'u', 'R', 'U']);
        text.starts_with('"') || text.starts_with('\'')
    });
    if !documented && !has_word(code, "lambda") {
        review.add(line.number, &MISSING_DOCSTRING, "public definition without a docstring");
    }
}

/// Lines over which a `def` may go on before its colon.
const HEADER_LINES_MAX: usize = 64;

static BARE_EXCEPT: Rule =
    Rule { name: "python-bare-except", severity: Warning, remedy: "Name the exceptions that are expected." };
static SWALLOWED: Rule = Rule {
    name: "python-swallowed-exception",
    severity: Warning,
    remedy: "Handle the exception, log it, or let it rise.",
};
static EVAL: Rule = Rule {
    name: "python-eval",
    severity: Error,
    remedy: "Parse the text (ast.literal_eval, json) instead of running it.",
};
static SHELL: Rule = Rule {
    name: "python-shell",
    severity: Error,
    remedy: "Call subprocess.run with a list of arguments and no shell.",
};
static PICKLE: Rule = Rule {
    name: "python-unsafe-load",
    severity: Error,
    remedy: "Load data with a format that holds only data, such as JSON or yaml.safe_load.",
};
static ASSERT: Rule =
    Rule { name: "python-assert", severity: Warning, remedy: "Raise an exception where input is checked." };
static NONE_COMPARISON: Rule =
    Rule { name: "python-none-comparison", severity: Warning, remedy: "Compare with `is None`." };
static STAR_IMPORT: Rule =
    Rule { name: "python-star-import", severity: Warning, remedy: "Import the names that are used." };
static MUTABLE_DEFAULT: Rule = Rule {
    name: "python-mutable-default",
    severity: Warning,
    remedy: "Default to None and make the list or dict inside.",
};
static PRINT: Rule = Rule { name: "python-print", severity: Info, remedy: "Use the logging module." };
static MISSING_DOCSTRING: Rule = Rule {
    name: "python-missing-docstring",
    severity: Info,
    remedy: "Say in one sentence what each public name does.",
};
