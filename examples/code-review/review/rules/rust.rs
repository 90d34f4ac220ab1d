//! Rules for Rust.

use super::super::Severity::{Error, Info, Warning};
use super::super::blocks::Block;
use super::super::source::Line;
use super::{Context, Findings, Rule, calls_method, has_word, squeezed, words};

pub(super) fn check(lines: &[Line], blocks: &[Block], context: Context, review: &mut Findings) {
    let in_tests = test_lines(lines.len(), blocks);
    for (index, line) in lines.iter().enumerate() {
        if !context.test && !in_tests[index] {
            panics(line, context, review);
            leftovers(line, context, review);
            casts(line, context, review);
            docs(lines, index, context, review);
        }
        dangers(lines, index, review);
    }
}

/// For each line, whether it stands in a test function or a test module.
fn test_lines(count: usize, blocks: &[Block]) -> Vec<bool> {
    let marks = ["#[test]", "#[cfg(test)]", "::test]", "#[cfg(all(test", "::test("];
    let mut depth_changes = vec![0_isize; count + 2];
    for block in blocks {
        let header = squeezed(&block.header);
        if marks.iter().any(|mark| header.contains(mark)) {
            depth_changes[block.first] += 1;
            depth_changes[block.last + 1] -= 1;
        }
    }
    let depths = depth_changes.iter().scan(0, |depth, change| {
        *depth += change;
        Some(*depth > 0)
    });
    depths.skip(1).take(count).collect()
}

fn panics(line: &Line, context: Context, review: &mut Findings) {
    let severity = if context.untrusted { Error } else { Warning };
    if calls_method(&line.code, "unwrap") {
        review.weigh(line.number, &UNWRAP, severity, "unwrap() panics without saying why");
    }
    if calls_method(&line.code, "expect") {
        review.add(line.number, &EXPECT, "expect() panics; its text should state why it cannot");
    }
    for name in ["panic", "todo", "unimplemented"] {
        if words(&line.code, name).any(|at| line.code[at + name.len()..].starts_with('!')) {
            review.weigh(line.number, &PANIC, severity, format!("{name}! ends the thread"));
        }
    }
}

fn leftovers(line: &Line, context: Context, review: &mut Findings) {
    let macros = [("dbg", Warning), ("println", Info), ("print", Info), ("eprintln", Info), ("eprint", Info)];
    for (name, severity) in macros {
        let printed = words(&line.code, name).any(|at| line.code[at + name.len()..].starts_with('!'));
        if printed && (name == "dbg" || !context.tool) {
            let severity = if context.library { Warning } else { severity };
            review.weigh(
                line.number,
                &PRINT,
                severity,
                format!("{name}! writes to the process's own output"),
            );
        }
    }
    if line.code.contains("== true") || line.code.contains("== false") {
        review.add(line.number, &BOOL_COMPARISON, "a comparison with a boolean literal");
    }
}

/// Casts that may lose bits or sign without a word.
fn casts(line: &Line, context: Context, review: &mut Findings) {
    for at in words(&line.code, "as") {
        let target: String =
            line.code[at + 2..].trim_start().chars().take_while(|c| c.is_alphanumeric()).collect();
        if ["u8", "u16", "u32", "i8", "i16", "i32", "usize", "isize", "f32"].contains(&target.as_str()) {
            let severity = if context.untrusted { Warning } else { Info };
            review.weigh(line.number, &CAST, severity, format!("`as {target}` cuts off what does not fit"));
        }
    }
}

/// A public item without a doc comment above its attributes.
fn docs(lines: &[Line], index: usize, context: Context, review: &mut Findings) {
    let line = &lines[index];
    let Some(item) = line.code.trim_start().strip_prefix("pub ") else { return };
    let mut words = item.split_whitespace().skip_while(|word| matches!(*word, "unsafe" | "async" | "extern"));
    let kind = match (words.next(), words.next()) {
        (Some("const"), Some("fn")) => "fn",
        (Some(kind), _) => kind,
        (None, _) => return,
    };
    if !["fn", "struct", "enum", "trait", "type", "const", "static", "union"].contains(&kind) {
        return;
    }
    let above = lines[..index].iter().rev().take(ATTRIBUTE_LINES_MAX);
    let mut above = above.skip_while(|line| {
        let code = line.code.trim();
        code.starts_with("#[") || !code.is_empty() && (code.ends_with(")]") || code.ends_with(','))
    });
    let documented = above.next().is_some_and(|line| {
        let text = line.text.trim_start();
        text.starts_with("///")
            || text.starts_with("#[doc")
            || text.starts_with("//!")
            || text.ends_with("*/")
    });
    if !documented {
        let severity = if context.library { Warning } else { Info };
        review.weigh(line.number, &MISSING_DOC, severity, format!("public {kind} without a doc comment"));
    }
}

fn dangers(lines: &[Line], index: usize, review: &mut Findings) {
    let line = &lines[index];
    let opens = words(&line.code, "unsafe").any(|at| {
        let rest = line.code[at + 6..].trim_start();
        rest.is_empty() || rest.starts_with('{') || rest.starts_with("impl")
    });
    if opens {
        let above =
            lines[..index].iter().rev().take_while(|line| line.is_blank() && !line.comment.is_empty());
        let explained =
            line.comment.contains("SAFETY") || above.into_iter().any(|l| l.comment.contains("SAFETY"));
        if explained {
            review.weigh(line.number, &UNSAFE, Info, "unsafe: check that the SAFETY comment still holds");
        } else {
            review.add(line.number, &UNSAFE, "unsafe without a SAFETY comment that says why it is sound");
        }
    }
    if words(&line.code, "static")
        .any(|at| has_word(line.code[at + 6..].split(':').next().unwrap_or(""), "mut"))
    {
        review.add(line.number, &STATIC_MUT, "static mut is a data race waiting for a second thread");
    }
    if has_word(&line.code, "transmute") {
        review.add(line.number, &TRANSMUTE, "transmute takes any bytes for a value");
    }
}

/// Lines above an item among which its doc comment is looked for.
const ATTRIBUTE_LINES_MAX: usize = 32;

static UNWRAP: Rule = Rule {
    name: "rust-unwrap",
    severity: Warning,
    remedy: "Return an error with `?` instead of unwrap(), or state with expect() why it cannot fail.",
};
static EXPECT: Rule = Rule {
    name: "rust-expect",
    severity: Info,
    remedy: "Check that each expect() names an invariant that the code around it keeps.",
};
static PANIC: Rule =
    Rule { name: "rust-panic", severity: Warning, remedy: "Return an error where the caller can act on it." };
static PRINT: Rule =
    Rule { name: "rust-print", severity: Info, remedy: "Remove debugging output, or log it with a level." };
static BOOL_COMPARISON: Rule =
    Rule { name: "rust-bool-comparison", severity: Info, remedy: "Use the boolean itself, or `!`." };
static CAST: Rule = Rule {
    name: "rust-cast",
    severity: Info,
    remedy: "Convert with From or TryFrom where the value may not fit.",
};
static MISSING_DOC: Rule = Rule {
    name: "rust-missing-doc",
    severity: Info,
    remedy: "Say in one sentence what each public item is.",
};
static UNSAFE: Rule = Rule {
    name: "rust-unsafe",
    severity: Error,
    remedy: "Write above each unsafe block why it is sound, or do without it.",
};
static STATIC_MUT: Rule =
    Rule { name: "rust-static-mut", severity: Error, remedy: "Use an atomic, a Mutex or a OnceLock." };
static TRANSMUTE: Rule = Rule {
    name: "rust-transmute",
    severity: Error,
    remedy: "Use from_ne_bytes, a cast or a safe conversion crate instead of transmute.",
};
