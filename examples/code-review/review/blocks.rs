//! Lines in; the blocks that they form, with what stands in front of each, out.

use super::source::{Language, Line, is_word};

/// A block of code: braces, or an indented suite in Python.
#[derive(Debug)]
pub(crate) struct Block {
    /// What stands in front of it, attributes included: `#[test] fn f()`, `if x`.
    pub(crate) header: String,
    /// Line on which the header begins.
    pub(crate) first: usize,
    /// Line of its end.
    pub(crate) last: usize,
    /// Blocks of control flow around it, within the same function, and itself if it is one.
    pub(crate) nesting: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Function,
    Control,
    Other,
}

/// The blocks in the order in which they end.
pub(crate) fn blocks(lines: &[Line], language: Language) -> Vec<Block> {
    match language {
        Language::Python => indented(lines),
        language if language.has_braces() => braced(lines, language),
        _ => Vec::new(),
    }
}

fn braced(lines: &[Line], language: Language) -> Vec<Block> {
    let mut open: Vec<Block> = Vec::new();
    let mut closed = Vec::new();
    let mut header = String::new();
    let mut first = 1;
    for line in lines {
        for c in line.code.chars() {
            match c {
                '{' => {
                    let kind = kind(&header, language);
                    let nesting = nesting(open.last(), kind);
                    let header = std::mem::take(&mut header);
                    open.push(Block { header, first, last: line.number, nesting, kind });
                }
                '}' => {
                    header.clear();
                    closed.extend(open.pop().map(|block| Block { last: line.number, ..block }));
                }
                ';' => header.clear(),
                c => {
                    if header.is_empty() {
                        if c.is_whitespace() {
                            continue;
                        }
                        first = line.number;
                    }
                    header.push(c);
                }
            }
        }
        if !header.is_empty() {
            header.push(' ');
        }
        // A header longer than this is data, not a header.
        if header.len() > HEADER_BYTES_MAX {
            header.clear();
        }
    }
    closed
}

fn indented(lines: &[Line]) -> Vec<Block> {
    let mut open: Vec<(usize, Block)> = Vec::new();
    let mut closed = Vec::new();
    let mut last_code = 0;
    for line in lines.iter().filter(|line| !line.is_blank() && !line.in_literal) {
        let indent = line.indent();
        while let Some((_, block)) = open.pop_if(|(column, _)| *column >= indent) {
            closed.push(Block { last: last_code, ..block });
        }
        last_code = line.number;
        let header = line.code.trim();
        let kind = kind(header, Language::Python);
        if kind != Kind::Other || header.starts_with("class ") {
            let nesting = nesting(open.last().map(|(_, block)| block), kind);
            let block = Block { header: header.to_owned(), first: line.number, last: 0, nesting, kind };
            open.push((indent, block));
        }
    }
    closed.extend(open.into_iter().rev().map(|(_, block)| Block { last: last_code, ..block }));
    closed
}

fn nesting(around: Option<&Block>, kind: Kind) -> usize {
    let outside = around.map_or(0, |block| block.nesting);
    match kind {
        Kind::Function => 0,
        Kind::Control => outside + 1,
        Kind::Other => outside,
    }
}

fn kind(header: &str, language: Language) -> Kind {
    let first = header.split(|c| !is_word(c)).find(|word| !word.is_empty()).unwrap_or_default();
    let has = |word: &str| header.split(|c| !is_word(c)).any(|other| other == word);
    let control =
        ["if", "else", "for", "while", "loop", "match", "switch", "try", "catch", "do", "with", "elif"];
    let words = header.split(|c| !is_word(c));
    let item = words.into_iter().find(|word| ["fn", "impl", "trait", "struct", "enum", "mod"].contains(word));
    let is_control = match language {
        // `impl X for Y` is no loop.
        Language::Rust if item.is_some() => false,
        Language::Python => control.contains(&first) || matches!(first, "except" | "finally"),
        _ => control.iter().any(|word| has(word)),
    };
    let is_function = match language {
        Language::Rust => item == Some("fn"),
        Language::Python => header.starts_with("def ") || header.starts_with("async def "),
        Language::JavaScript | Language::TypeScript => has("function") || header.trim_end().ends_with("=>"),
        Language::C => !is_control && header.trim_end().ends_with(')'),
        Language::Shell => header.trim_end().ends_with("()") || first == "function",
        Language::Text => false,
    };
    match (is_function, is_control) {
        (true, _) => Kind::Function,
        (false, true) => Kind::Control,
        (false, false) => Kind::Other,
    }
}

/// Longest text in front of a `{` that is kept.
const HEADER_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::super::source::lines;
    use super::*;

    fn shape(text: &str, language: Language) -> Vec<(Kind, usize, usize, usize)> {
        let lines = lines(text, language);
        let blocks = blocks(&lines, language);
        blocks.into_iter().map(|b| (b.kind, b.first, b.last, b.nesting)).collect()
    }

    #[test]
    fn header_reaches_over_lines_and_holds_attributes() {
        let lines = lines("#[test]\nfn f(\n  a: u8,\n) {\n  g();\n}\n", Language::Rust);
        let blocks = blocks(&lines, Language::Rust);
        assert_eq!((blocks[0].first, blocks[0].last), (1, 6));
        assert!(blocks[0].header.starts_with("#[test] fn f("));
    }

    #[test]
    fn nesting_counts_control_flow_and_begins_again_in_a_function() {
        let text = "if a {\n for x in y {\n fn g() { if b { S { c } } }\n }\n}\n";
        let kinds = shape(text, Language::Rust);
        let nestings: Vec<usize> = kinds.iter().map(|(.., nesting)| *nesting).collect();
        assert_eq!(nestings, [1, 1, 0, 2, 1]);
    }

    #[test]
    fn python_suites_end_where_the_indentation_does() {
        let text = "def f():\n    if a:\n        b\n\n    c\nd\n";
        assert_eq!(shape(text, Language::Python), [(Kind::Control, 2, 3, 1), (Kind::Function, 1, 5, 0)]);
    }

    #[test]
    fn impl_for_is_neither_loop_nor_function() {
        let text = "impl<F: Fn()> A for fn() {\n fn g() -> impl B { }\n}\n";
        assert_eq!(shape(text, Language::Rust), [(Kind::Function, 2, 2, 0), (Kind::Other, 1, 3, 0)]);
    }

    #[test]
    fn braces_that_never_close_or_never_open_are_no_blocks() {
        assert_eq!(shape("} } {{{", Language::C), []);
    }
}
