//! Source text and its language in; lines that tell code, comment and literal apart out.
//!
//! Rules look for code only in [`Line::code`], where comments and the insides of literals are spaces, so that a
//! `"call eval()"` in a message or a `// no unsafe here` is never mistaken for code.

/// A language whose comments and literals are told apart; anything else is read as plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    JavaScript,
    TypeScript,
    C,
    Shell,
    Text,
}

impl Language {
    /// The language of a name as people and editors write it; unknown names are plain text.
    pub(crate) fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "rust" | "rs" => Self::Rust,
            "python" | "python3" | "py" => Self::Python,
            "javascript" | "js" | "jsx" | "mjs" | "node" => Self::JavaScript,
            "typescript" | "ts" | "tsx" => Self::TypeScript,
            "c" | "h" | "c++" | "cpp" | "cc" | "hpp" => Self::C,
            "shell" | "sh" | "bash" | "zsh" => Self::Shell,
            _ => Self::Text,
        }
    }

    fn has_slash_comments(self) -> bool {
        matches!(self, Self::Rust | Self::JavaScript | Self::TypeScript | Self::C)
    }

    /// Whether blocks stand in braces.
    pub(crate) fn has_braces(self) -> bool {
        self.has_slash_comments() || self == Self::Shell
    }
}

/// One line of the source. `code` has as many characters as `text`.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Counted from 1.
    pub(crate) number: usize,
    /// As it stands, without its line end.
    pub(crate) text: String,
    /// The code alone: comments and the insides of literals are spaces, quotes stay.
    pub(crate) code: String,
    /// The comment's text, marker included; empty without one.
    pub(crate) comment: String,
    /// Whether the line begins inside a literal, so that its spaces belong to the program.
    pub(crate) in_literal: bool,
}

impl Line {
    /// Columns of white space in front.
    pub(crate) fn indent(&self) -> usize {
        self.text.chars().take_while(|c| c.is_whitespace()).count()
    }

    /// Whether the line holds no code, only blanks or comment.
    pub(crate) fn is_blank(&self) -> bool {
        self.code.trim().is_empty() && !self.in_literal
    }
}

/// Splits `text` into lines, with code, comment and literal told apart.
pub(crate) fn lines(text: &str, language: Language) -> Vec<Line> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        language,
        states: vec![State::Code { close: None, depth: 0 }],
        heredoc: None,
        line: Line { number: 1, ..Line::default() },
        lines: Vec::new(),
    };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    if !lexer.line.text.is_empty() {
        lexer.end_line();
    }
    lexer.lines
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Code; inside a `$(…)` or `${…}` of a literal it ends at its own `close`.
    Code {
        close: Option<char>,
        depth: usize,
    },
    LineComment,
    BlockComment {
        depth: usize,
    },
    Literal(Literal),
    Regex {
        in_class: bool,
    },
    Heredoc {
        word: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Literal {
    quote: char,
    /// How many quotes close it.
    quotes: usize,
    /// How many `#` close a raw string after its quote.
    hashes: usize,
    escapes: bool,
    multiline: bool,
    /// The character that opens code after `$`: `(` in a shell, `{` in a template.
    substitution: Option<char>,
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Code,
    Comment,
    Inside,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    language: Language,
    states: Vec<State>,
    heredoc: Option<String>,
    line: Line,
    lines: Vec<Line>,
}

impl Lexer {
    fn step(&mut self) {
        if self.chars[self.at] == '\n' {
            self.at += 1;
            return self.end_line();
        }
        match self.state().clone() {
            State::Code { close, depth } => self.code(close, depth),
            State::LineComment => self.take(1, Class::Comment),
            State::BlockComment { depth } => self.block_comment(depth),
            State::Literal(literal) => self.literal(literal),
            State::Regex { in_class } => self.regex(in_class),
            State::Heredoc { word } => self.heredoc_line(&word),
        }
    }

    fn state(&mut self) -> &mut State {
        self.states.last_mut().expect("the bottom state is code and is never popped")
    }

    fn leave(&mut self) {
        if self.states.len() > 1 {
            self.states.pop();
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn is_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    /// The character before this one on the line.
    fn before(&self) -> Option<char> {
        self.line.text.chars().next_back()
    }

    fn take(&mut self, count: usize, class: Class) {
        for _ in 0..count {
            let Some(c) = self.peek(0).filter(|c| *c != '\n') else { return };
            self.at += 1;
            self.line.text.push(c);
            self.line.code.push(if class == Class::Code { c } else { ' ' });
            if class == Class::Comment {
                self.line.comment.push(c);
            }
        }
    }

    fn end_line(&mut self) {
        if self.line.text.ends_with('\r') {
            self.line.text.pop();
            self.line.code.pop();
        }
        let continued = self.line.text.ends_with('\\');
        match self.state().clone() {
            State::LineComment | State::Regex { .. } => self.leave(),
            State::Literal(literal) if !literal.multiline && !continued => self.leave(),
            _ => {}
        }
        if let Some(word) = self.heredoc.take() {
            self.states.push(State::Heredoc { word });
        }
        let in_literal = matches!(self.state(), State::Literal(_) | State::Heredoc { .. });
        let next = Line { number: self.line.number + 1, in_literal, ..Line::default() };
        self.lines.push(std::mem::replace(&mut self.line, next));
    }

    fn code(&mut self, close: Option<char>, depth: usize) {
        let c = self.chars[self.at];
        if self.opens_comment() || self.opens_literal() {
            return;
        }
        match (close, c) {
            (Some(end), c) if c == end && depth == 0 => self.leave(),
            (Some(end), c) if c == end => *self.state() = State::Code { close, depth: depth - 1 },
            (Some(')'), '(') | (Some('}'), '{') => *self.state() = State::Code { close, depth: depth + 1 },
            _ => {}
        }
        // A shell's backslash takes the next character's meaning away.
        let escaped = self.language == Language::Shell && c == '\\';
        self.take(if escaped { 2 } else { 1 }, Class::Code);
    }

    fn opens_comment(&mut self) -> bool {
        let word_start = self.before().is_none_or(|c| c.is_whitespace() || ";(&|".contains(c));
        if self.language.has_slash_comments() && self.is_at("//")
            || self.language == Language::Python && self.is_at("#")
            || self.language == Language::Shell && self.is_at("#") && word_start
        {
            self.states.push(State::LineComment);
            self.take(1, Class::Comment);
            return true;
        }
        if self.language.has_slash_comments() && self.is_at("/*") {
            self.states.push(State::BlockComment { depth: 1 });
            self.take(2, Class::Comment);
            return true;
        }
        false
    }

    fn block_comment(&mut self, depth: usize) {
        if self.is_at("*/") {
            self.take(2, Class::Comment);
            match depth {
                1 => self.leave(),
                _ => *self.state() = State::BlockComment { depth: depth - 1 },
            }
        } else if self.language == Language::Rust && self.is_at("/*") {
            *self.state() = State::BlockComment { depth: depth + 1 };
            self.take(2, Class::Comment);
        } else {
            self.take(1, Class::Comment);
        }
    }

    fn opens_literal(&mut self) -> bool {
        let c = self.chars[self.at];
        let plain =
            Literal { quote: c, quotes: 1, hashes: 0, escapes: true, multiline: false, substitution: None };
        let literal = match (self.language, c) {
            (Language::Rust, 'r') => {
                let Some(hashes) = self.raw_string_hashes() else { return false };
                self.take(1 + hashes, Class::Code);
                Literal { quote: '"', hashes, escapes: false, multiline: true, ..plain }
            }
            (Language::Rust, '"') => Literal { multiline: true, ..plain },
            (Language::Rust, '\'') => {
                // A lifetime has no closing quote.
                if self.peek(1) != Some('\\') && self.peek(2) != Some('\'') {
                    return false;
                }
                plain
            }
            (Language::Python, '"' | '\'') => {
                let triple = self.peek(1) == Some(c) && self.peek(2) == Some(c);
                Literal { quotes: if triple { 3 } else { 1 }, multiline: triple, ..plain }
            }
            (Language::JavaScript | Language::TypeScript, '`') => {
                Literal { multiline: true, substitution: Some('{'), ..plain }
            }
            (Language::JavaScript | Language::TypeScript, '/') if self.may_begin_regex() => {
                self.states.push(State::Regex { in_class: false });
                self.take(1, Class::Code);
                return true;
            }
            (Language::JavaScript | Language::TypeScript | Language::C, '"' | '\'') => plain,
            (Language::Shell, '\'') => Literal { escapes: false, multiline: true, ..plain },
            (Language::Shell, '"') => Literal { multiline: true, substitution: Some('('), ..plain },
            (Language::Shell, '<') => return self.opens_heredoc(),
            _ => return false,
        };
        self.take(literal.quotes, Class::Code);
        self.states.push(State::Literal(literal));
        true
    }

    /// How many `#` stand between `r` and `"`, when this `r` begins a raw string.
    fn raw_string_hashes(&self) -> Option<usize> {
        let mut before = self.line.text.chars().rev();
        let previous = match before.next() {
            Some('b' | 'c') => before.next(),
            other => other,
        };
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        let begins = !previous.is_some_and(is_word) && self.peek(1 + hashes) == Some('"');
        begins.then_some(hashes)
    }

    fn literal(&mut self, literal: Literal) {
        if literal.escapes && self.is_at("\\") {
            return self.take(2, Class::Inside);
        }
        if let Some(open) = literal.substitution
            && self.is_at("$")
            && self.peek(1) == Some(open)
        {
            self.take(2, Class::Code);
            let close = if open == '(' { ')' } else { '}' };
            return self.states.push(State::Code { close: Some(close), depth: 0 });
        }
        let closed = (0..literal.quotes).all(|ahead| self.peek(ahead) == Some(literal.quote))
            && (0..literal.hashes).all(|ahead| self.peek(literal.quotes + ahead) == Some('#'));
        if closed {
            self.take(literal.quotes + literal.hashes, Class::Code);
            self.leave();
        } else {
            self.take(1, Class::Inside);
        }
    }

    /// Division stands behind a value; a regular expression cannot.
    fn may_begin_regex(&self) -> bool {
        let code = self.line.code.trim_end();
        let word = code.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        match code.chars().next_back() {
            None => true,
            Some(c) if is_word(c) => matches!(word, "return" | "typeof" | "case" | "in" | "of"),
            Some(c) => !")]}\"'`".contains(c),
        }
    }

    fn regex(&mut self, in_class: bool) {
        match self.chars[self.at] {
            '\\' => return self.take(2, Class::Inside),
            '[' => *self.state() = State::Regex { in_class: true },
            ']' => *self.state() = State::Regex { in_class: false },
            '/' if !in_class => {
                self.leave();
                return self.take(1, Class::Code);
            }
            _ => {}
        }
        self.take(1, Class::Inside);
    }

    /// `<<WORD`, `<<-WORD`, `<<'WORD'`: the lines after this one up to WORD are a literal.
    fn opens_heredoc(&mut self) -> bool {
        if !self.is_at("<<") || self.is_at("<<<") {
            return false;
        }
        let rest = self.chars[self.at + 2..].iter().copied().take_while(|c| *c != '\n');
        let mut rest = rest.skip_while(|c| "- \t'\"\\".contains(*c)).peekable();
        if !rest.peek().is_some_and(|c| c.is_alphabetic() || *c == '_') {
            return false;
        }
        self.heredoc = Some(rest.take_while(|c| is_word(*c)).collect());
        self.take(2, Class::Code);
        true
    }

    fn heredoc_line(&mut self, word: &str) {
        let rest = &self.chars[self.at..];
        let length = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
        let line: String = rest[..length].iter().collect();
        if line.trim() == word {
            self.leave();
        }
        self.take(length, Class::Inside);
    }
}

/// Whether `c` can stand in a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, language: Language) -> Vec<String> {
        lines(text, language).into_iter().map(|line| line.code.trim_end().to_owned()).collect()
    }

    #[test]
    fn rust_comments_nest_and_literals_are_blank() {
        let text = "a /* x /* y */ z */ b // c\nlet s = \"un\\\"safe\"; d";
        assert_eq!(code(text, Language::Rust), ["a                   b", "let s = \"        \"; d"]);
    }

    #[test]
    fn rust_lifetime_is_no_literal_and_a_character_is() {
        assert_eq!(code("fn f<'a>(x: &'a str) { '\"' }", Language::Rust), ["fn f<'a>(x: &'a str) { ' ' }"]);
        assert_eq!(code(r"'\'' + b'{'", Language::Rust), ["'  ' + b' '"]);
    }

    #[test]
    fn rust_raw_string_ends_at_its_own_hashes() {
        assert_eq!(code("r#\"a \" b\"# c", Language::Rust), ["r#\"     \"# c"]);
        assert_eq!(code("for\"x\" y", Language::Rust), ["for\" \" y"]);
    }

    #[test]
    fn python_docstring_is_a_literal_over_lines() {
        let parsed = lines("\"\"\"one\neval(x) # no\n\"\"\"\ny # z", Language::Python);
        assert!(parsed[1].in_literal && parsed[1].code.trim().is_empty() && parsed[1].comment.is_empty());
        assert_eq!((parsed[3].code.trim(), parsed[3].comment.as_str()), ("y", "# z"));
    }

    #[test]
    fn template_literal_holds_code_in_its_substitution() {
        assert_eq!(code("`a ${ f({x}) } b` + c", Language::JavaScript), ["`  ${ f({x}) }  ` + c"]);
    }

    #[test]
    fn regular_expression_with_quotes_opens_no_string() {
        assert_eq!(
            code("x = /[\"'/]/g; y = a / b / c", Language::JavaScript),
            ["x = /     /g; y = a / b / c"]
        );
    }

    #[test]
    fn shell_quotes_nest_in_substitutions_and_heredocs_are_literals() {
        assert_eq!(code("a=\"$(cat \"$f\")\" $g", Language::Shell), ["a=\"$(cat \"  \")\" $g"]);
        assert_eq!(code("cat <<EOF\neval $x\nEOF\nls # b", Language::Shell), ["cat <<EOF", "", "", "ls"]);
        assert_eq!(code("echo $# ${#x}", Language::Shell), ["echo $# ${#x}"]);
    }

    #[test]
    fn unclosed_literals_never_lose_a_line() {
        for language in [
            Language::Rust,
            Language::Python,
            Language::JavaScript,
            Language::C,
            Language::Shell,
            Language::Text,
        ] {
            for text in ["\"a\nb\nc", "'a\nb\nc", "/* a\nb\nc", "`a\n${b\nc", "r##\"a\nb\nc", "x <<E\nb\nc"] {
                let parsed = lines(text, language);
                assert_eq!(parsed.iter().map(|l| l.number).collect::<Vec<_>>(), [1, 2, 3], "{text:?}");
                assert!(parsed.iter().all(|l| l.text.chars().count() == l.code.chars().count()));
                let joined: Vec<&str> = parsed.iter().map(|l| l.text.as_str()).collect();
                assert_eq!(joined.join("\n"), text);
            }
        }
    }
}
