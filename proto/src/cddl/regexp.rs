//! Compiles an XSD regular expression into an anchored linear-time matcher (RFC 8610 3.8.3).
//!
//! An XSD expression (XML Schema part 2, appendix F) matches the whole text and has no anchors. Outside classes `^` and
//! `$` are literals, and classes subtract as in `[a-z-[aeiou]]`. This module translates the rest for `regex-automata`.

use std::fmt::Write as _;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// Bytes that a compiled expression may take.
const SIZE_BYTES_MAX: usize = 1 << 20;
/// Characters of an expression; the respelling recurses along nested classes.
const LENGTH_MAX: usize = 4_096;

#[derive(Debug)]
pub(super) struct Regexp {
    regex: Regex,
    text: String,
}

impl Regexp {
    /// **Errors:** what the expression uses that is not XSD's, or not supported, in words.
    pub(super) fn compile(text: &str) -> Result<Regexp, String> {
        if text.len() > LENGTH_MAX {
            return Err("it is too long".into());
        }
        let mut respelling = Respelling { rest: text.chars().collect(), at: 0, out: String::new() };
        respelling.expression()?;
        let config = Regex::config().nfa_size_limit(Some(SIZE_BYTES_MAX)).utf8_empty(false);
        let regex = Regex::builder()
            .configure(config)
            .build(&format!("(?s-m)\\A(?:{})\\z", respelling.out))
            .map_err(|error| error.to_string())?;
        Ok(Regexp { regex, text: text.into() })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(Input::new(text).anchored(Anchored::Yes).earliest(true))
    }
}

struct Respelling {
    rest: Vec<char>,
    at: usize,
    out: String,
}

/// XSD's `\w`, as the inside of a negated class.
const NO_WORD: &str = "\\p{P}\\p{Z}\\p{C}";
/// XSD's `\s`.
const SPACE: &str = " \\t\\n\\r";

impl Respelling {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn expression(&mut self) -> Result<(), String> {
        let mut open = 0usize;
        // Whether an atom stands before, so that a quantifier may follow.
        let mut atom = false;
        while let Some(c) = self.next() {
            atom = match c {
                '(' if self.peek() == Some('?') => return Err("it has a `(?`".into()),
                '(' => {
                    open += 1;
                    self.out.push_str("(?:");
                    false
                }
                ')' => {
                    open = open.checked_sub(1).ok_or("it has an unbalanced `)`")?;
                    self.out.push(')');
                    true
                }
                '|' => {
                    self.out.push('|');
                    false
                }
                '[' => {
                    self.class()?;
                    true
                }
                ']' | '}' => return Err(format!("it has a `{c}` that closes nothing")),
                '.' => {
                    self.out.push_str("[^\\n\\r]");
                    true
                }
                '\\' => {
                    self.escape(false)?;
                    true
                }
                '?' | '*' | '+' | '{' if !atom => return Err(format!("it has a `{c}` that follows nothing")),
                '?' | '*' | '+' => {
                    self.out.push(c);
                    false
                }
                '{' => {
                    self.quantity()?;
                    false
                }
                other => {
                    self.plain(other);
                    true
                }
            };
        }
        if open > 0 { Err("it has an unbalanced `(`".into()) } else { Ok(()) }
    }

    fn plain(&mut self, c: char) {
        if c.is_ascii_punctuation() {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    fn quantity(&mut self) -> Result<(), String> {
        let mut text = String::new();
        while let Some(c) = self.next() {
            if c == '}' {
                let (least, most) = text.split_once(',').unwrap_or((&text, ""));
                let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
                if least.is_empty() || !digits(least) || !digits(most) {
                    return Err(format!("it has the quantity {{{text}}}"));
                }
                let _ = write!(self.out, "{{{text}}}");
                return Ok(());
            }
            text.push(c);
        }
        Err("it has an unbalanced `{`".into())
    }

    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let c = self.next().ok_or("it ends in `\\`")?;
        let (open, close) = if in_class { ("", "") } else { ("[", "]") };
        match c {
            'n' | 'r' | 't' | 'd' | 'D' => {
                self.out.push('\\');
                self.out.push(c);
            }
            's' => self.out.extend([open, SPACE, close]),
            'S' => self.out.extend(["[^", SPACE, "]"]),
            'w' => self.out.extend(["[^", NO_WORD, "]"]),
            'W' => self.out.extend([open, NO_WORD, close]),
            'p' | 'P' => self.property(c)?,
            '\\' | '|' | '.' | '-' | '^' | '?' | '*' | '+' | '{' | '}' | '(' | ')' | '[' | ']' | '$'
            | '/' | '@' => {
                self.out.push('\\');
                self.out.push(c);
            }
            _ => return Err(format!("it has the escape `\\{c}`")),
        }
        Ok(())
    }

    /// `\p{L}` and the like; XSD's blocks (`\p{IsGreek}`) are not supported.
    fn property(&mut self, negation: char) -> Result<(), String> {
        let mut name = String::new();
        if self.next() != Some('{') {
            return Err("it has a `\\p` without `{…}`".into());
        }
        while let Some(c) = self.next() {
            if c == '}' {
                if name.len() > 2 || name.is_empty() {
                    return Err(format!("it has the block `{name}`"));
                }
                let _ = write!(self.out, "\\{negation}{{{name}}}");
                return Ok(());
            }
            name.push(c);
        }
        Err("it has an unbalanced `{`".into())
    }

    /// The rest of a class after its `[`, with the class that is subtracted from it.
    fn class(&mut self) -> Result<(), String> {
        let start = self.out.len();
        self.out.push('[');
        if self.peek() == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut empty = true;
        loop {
            match self.next().ok_or("it has an unbalanced `[`")? {
                ']' if empty => return Err("it has an empty class".into()),
                ']' => break,
                '[' => return Err("it has a `[` within a class".into()),
                '-' if self.peek() == Some('[') && !empty => {
                    self.at += 1;
                    self.out.push_str("]--");
                    self.class()?;
                    // The class so far and the subtracted one become one class.
                    self.out.insert(start, '[');
                    if self.next() != Some(']') {
                        return Err("a subtraction is not the end of its class".into());
                    }
                    break;
                }
                '-' => {
                    // First, last, or before the end it is itself; else it makes a range.
                    let itself = empty || self.peek() == Some(']');
                    self.out.push_str(if itself { "\\-" } else { "-" });
                }
                '\\' => self.escape(true)?,
                other => self.plain(other),
            }
            empty = false;
        }
        self.out.push(']');
        Ok(())
    }
}
