//! Lines, blocks and context in; findings out. One file a language, and what holds for all of them in [`text`] and
//! [`structure`].

mod c;
mod javascript;
mod python;
mod rust;
mod shell;
mod structure;
mod text;

use super::Severity;
use super::blocks::Block;
use super::source::{Language, Line, is_word};

/// A rule: its name, how much a finding matters, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) remedy: &'static str,
}

/// A rule that applies to a line.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) line: usize,
    pub(crate) rule: &'static Rule,
    /// The rule's own, unless the context weighs it differently.
    pub(crate) severity: Severity,
    pub(crate) message: String,
}

/// What the text is for, as far as it changes how rules are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Test code may fail loudly.
    pub(crate) test: bool,
    /// Input from strangers: whatever can fail or wrap silently matters more.
    pub(crate) untrusted: bool,
    /// Other people build on it: what is public wants docs, and printing is not its business.
    pub(crate) library: bool,
    /// A program for a terminal may print.
    pub(crate) tool: bool,
}

impl Context {
    /// Reads the words that matter out of a free text.
    pub(crate) fn read(text: &str) -> Self {
        let text = text.to_lowercase();
        let has = |words: &[&str]| {
            text.split(|c: char| !c.is_alphanumeric()).any(|word| words.iter().any(|w| word.starts_with(w)))
        };
        Self {
            test: has(&["test", "fixture"]),
            untrusted: has(&["untrusted", "parser", "network", "protocol", "peer", "hostile"]),
            library: has(&["library", "crate", "public", "sdk", "package"]),
            tool: has(&["cli", "command", "tool", "script", "example"]),
        }
    }
}

/// All findings, in no particular order.
pub(crate) fn findings(
    lines: &[Line],
    blocks: &[Block],
    language: Language,
    context: Context,
) -> Vec<Finding> {
    let mut review = Findings { list: Vec::new() };
    text::check(lines, &mut review);
    structure::check(lines, blocks, &mut review);
    match language {
        Language::Rust => rust::check(lines, blocks, context, &mut review),
        Language::Python => python::check(lines, context, &mut review),
        Language::JavaScript | Language::TypeScript => {
            javascript::check(lines, language, context, &mut review);
        }
        Language::C => c::check(lines, &mut review),
        Language::Shell => shell::check(lines, &mut review),
        Language::Text => {}
    }
    review.list
}

/// The findings so far.
struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, line: usize, rule: &'static Rule, message: impl Into<String>) {
        self.weigh(line, rule, rule.severity, message);
    }

    fn weigh(&mut self, line: usize, rule: &'static Rule, severity: Severity, message: impl Into<String>) {
        self.list.push(Finding { line, rule, severity, message: message.into() });
    }
}

/// Byte offsets at which `word` stands as a whole word.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn has_word(code: &str, word: &str) -> bool {
    words(code, word).next().is_some()
}

/// Whether `name` is called as a function of its own: not as a method, not declared here.
fn calls(code: &str, name: &str) -> bool {
    words(code, name).any(|at| {
        let before = code[..at].trim_end();
        let declared = ["def", "fn", "function"].iter().any(|word| before.ends_with(word));
        !declared && !before.ends_with('.') && code[at + name.len()..].trim_start().starts_with('(')
    })
}

/// Whether `.name(` stands in `code`.
fn calls_method(code: &str, name: &str) -> bool {
    words(code, name).any(|at| {
        code[..at].trim_end().ends_with('.') && code[at + name.len()..].trim_start().starts_with('(')
    })
}

/// `code` without any white space: for patterns whose spacing is free.
fn squeezed(code: &str) -> String {
    code.chars().filter(|c| !c.is_whitespace()).collect()
}
