//! Rules for any text: line ends, indentation, marks left behind, characters and keys that do not belong.

use super::super::Severity::{Error, Info, Warning};
use super::super::source::Line;
use super::{Findings, Rule, words};

pub(super) fn check(lines: &[Line], review: &mut Findings) {
    let mut style = None;
    for line in lines {
        let length = line.text.chars().count();
        if length > LINE_CHARS_MAX {
            review.add(
                line.number,
                &LINE_TOO_LONG,
                format!("{length} characters, {LINE_CHARS_MAX} are readable"),
            );
        }
        if line.text.ends_with([' ', '\t']) && !line.in_literal {
            review.add(line.number, &TRAILING_WHITESPACE, "white space at the end of the line");
        }
        if !line.in_literal && !line.text.trim().is_empty() {
            indentation(line, &mut style, review);
        }
        marks(line, review);
        characters(line, review);
        secrets(line, review);
    }
}

/// The first indented line sets the style; a `*` of a block comment may stand one column further in.
fn indentation(line: &Line, style: &mut Option<char>, review: &mut Findings) {
    let indent: String = line.text.chars().take_while(|c| matches!(c, ' ' | '\t')).collect();
    let is_aligned_comment = line.text.trim_start().starts_with('*');
    let Some(first) = indent.chars().next().filter(|_| !is_aligned_comment) else { return };
    let expected = *style.get_or_insert(first);
    let name = |c| if c == '\t' { "tabs" } else { "spaces" };
    if indent.contains(" \t") {
        review.add(
            line.number,
            &MIXED_INDENTATION,
            "a tab after spaces: its width depends on the reader's editor",
        );
    } else if first != expected {
        let message = format!("indented with {}, the lines before with {}", name(first), name(expected));
        review.add(line.number, &MIXED_INDENTATION, message);
    }
}

fn marks(line: &Line, review: &mut Findings) {
    for (mark, severity) in [("FIXME", Warning), ("XXX", Warning), ("TODO", Info), ("HACK", Info)] {
        if words(&line.comment, mark).next().is_some() {
            review.weigh(line.number, &OPEN_MARK, severity, format!("{mark} left in a comment"));
        }
    }
    let conflict = ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|mark| line.text.starts_with(mark));
    if conflict || line.text == "=======" {
        review.add(line.number, &CONFLICT_MARKER, "a merge conflict that was never resolved");
    }
}

fn characters(line: &Line, review: &mut Findings) {
    for c in line.text.chars() {
        let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if hidden || c.is_control() && !matches!(c, '\t' | '\u{c}') {
            let message = format!("U+{:04X}: readers and compilers see different texts", u32::from(c));
            review.add(line.number, &HIDDEN_CHARACTER, message);
        }
    }
}

fn secrets(line: &Line, review: &mut Findings) {
    let private_key = line.text.contains("-----BEGIN") && line.text.contains("PRIVATE KEY-----");
    let access_key = line.text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        (word.starts_with("AKIA") || word.starts_with("ASIA"))
            && word.len() == 20
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    });
    let token = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| {
        ["ghp_", "github_pat_", "xoxb_"].iter().any(|prefix| word.starts_with(prefix)) && word.len() >= 36
    });
    if private_key || access_key || token {
        review.add(line.number, &SECRET, "looks like a key; whoever reads the source can use it");
    }
}

const LINE_CHARS_MAX: usize = 120;

static LINE_TOO_LONG: Rule =
    Rule { name: "line-too-long", severity: Info, remedy: "Break long lines where the thought breaks." };
static TRAILING_WHITESPACE: Rule = Rule {
    name: "trailing-whitespace",
    severity: Info,
    remedy: "Let the editor remove white space at line ends.",
};
static MIXED_INDENTATION: Rule = Rule {
    name: "mixed-indentation",
    severity: Warning,
    remedy: "Indent with tabs or with spaces, not with both.",
};
static OPEN_MARK: Rule =
    Rule { name: "open-mark", severity: Info, remedy: "Do what the marks in the comments ask, or file it." };
static CONFLICT_MARKER: Rule =
    Rule { name: "conflict-marker", severity: Error, remedy: "Resolve the merge conflict." };
static HIDDEN_CHARACTER: Rule = Rule {
    name: "hidden-character",
    severity: Error,
    remedy: "Remove invisible characters, or write them as escapes.",
};
static SECRET: Rule = Rule {
    name: "secret-in-source",
    severity: Error,
    remedy: "Revoke the key, and read it from the environment or a secret store.",
};
