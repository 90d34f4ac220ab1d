//! Parses YAML into one bounded tree of nodes with their lines, resolved by YAML 1.2's core schema.
//!
//! An alias counts as a copy of what it refers to, so no text grows past [`NODES_MAX`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::iter::Peekable;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

/// One value and the line it begins at.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// An integer of 64 bits, with or without sign.
    Integer(i128),
    /// A finite number and its text.
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Keys in the file's order, none twice.
    Map(Vec<(Key, Node)>),
}

/// A mapping's key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) line: usize,
    pub(super) name: String,
}

/// Why a text is no tree.
#[derive(Clone, Debug)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Most nodes of one document, aliases expanded; ours.
const NODES_MAX: usize = 100_000;
/// Deepest nesting; ours, and what JSON readers take.
const DEPTH_MAX: usize = 100;

/// Reads a text of one document.
pub(super) fn parse(text: &str) -> Result<Node, Malformed> {
    // A comment is no node, and the parser would otherwise keep many of them at once.
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let events = Parser::new_from_str_with_options(text, options).peekable();
    let mut tree = Tree { events, anchors: BTreeMap::new(), nodes: 0 };
    let root = loop {
        let (event, span) = tree.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => return Err(malformed(&span, "an empty document")),
            event => break tree.node(event, &span, 0)?,
        }
    };
    loop {
        let (event, span) = tree.next()?;
        match event {
            Event::DocumentEnd => {}
            Event::StreamEnd => return Ok(root),
            _ => return Err(malformed(&span, "a second document")),
        }
    }
}

struct Tree<'a> {
    events: Peekable<Parser<'a, StrInput<'a>>>,
    anchors: BTreeMap<usize, Anchored>,
    nodes: usize,
}

/// What an alias stands for, and how much that is.
struct Anchored {
    value: Value,
    nodes: usize,
    height: usize,
}

impl<'a> Tree<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Malformed> {
        match self.events.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(scan_error(&error)),
            None => Err(Malformed { line: 0, problem: "the text ends early".into() }),
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Malformed> {
        let line = span.start.line();
        if depth > DEPTH_MAX {
            return Err(malformed(span, &format!("nested deeper than {DEPTH_MAX}")));
        }
        let before = self.nodes;
        self.count(1, span)?;
        let tagged = || malformed(span, "a tag");
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let (nodes, height) = match self.anchors.get(&anchor) {
                    None => return Err(malformed(span, "an alias inside its own anchor")),
                    Some(anchored) => (anchored.nodes, anchored.height),
                };
                if depth + height > DEPTH_MAX {
                    return Err(malformed(
                        span,
                        &format!("nested deeper than {DEPTH_MAX}, aliases expanded"),
                    ));
                }
                self.count(nodes, span)?;
                return Ok(Node { line, value: self.anchors[&anchor].value.clone() });
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => return Err(tagged()),
            Event::Scalar(text, style, anchor, None) => (scalar(&text, style, span)?, anchor),
            Event::SequenceStart(_, anchor, None) => (self.list(depth)?, anchor),
            Event::MappingStart(_, anchor, None) => (self.map(depth)?, anchor),
            _ => return Err(malformed(span, "no value where one is needed")),
        };
        let node = Node { line, value };
        if anchor != 0 {
            // The kept copy counts as well, so that nested anchors cannot multiply the memory.
            let nodes = self.nodes - before;
            self.count(nodes, span)?;
            self.anchors.insert(anchor, Anchored { value: node.value.clone(), nodes, height: node.height() });
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Malformed> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::List(items));
            }
            items.push(self.node(event, &span, depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Malformed> {
        let mut members: Vec<(Key, Node)> = Vec::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Value::Map(members));
            }
            let key = self.node(event, &span, depth + 1)?;
            let Value::Text(name) = key.value else {
                return Err(malformed(&span, "a key that is no text (quote it)"));
            };
            if let Some(first) = lines.insert(name.clone(), key.line) {
                let problem =
                    format!("the key {} is a duplicate; the first is in line {first}", quoted(&name));
                return Err(malformed(&span, &problem));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            members.push((Key { line: key.line, name }, value));
        }
    }

    fn count(&mut self, nodes: usize, span: &Span) -> Result<(), Malformed> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(malformed(span, &format!("more than {NODES_MAX} values, aliases expanded")));
        }
        Ok(())
    }
}

fn malformed(span: &Span, problem: &str) -> Malformed {
    Malformed { line: span.start.line(), problem: problem.to_owned() }
}

fn scan_error(error: &ScanError) -> Malformed {
    Malformed { line: error.marker().line(), problem: format!("not YAML: {}", error.info()) }
}

/// A plain scalar by YAML 1.2 core schema; a quoted or block one is text.
fn scalar(text: &str, style: ScalarStyle, span: &Span) -> Result<Value, Malformed> {
    if style != ScalarStyle::Plain {
        return Ok(Value::Text(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match number(text) {
            Some(Ok(value)) => value,
            Some(Err(problem)) => return Err(malformed(span, &format!("{}: {problem}", quoted(text)))),
            None => Value::Text(text.to_owned()),
        },
    })
}

/// The number that a plain scalar is, if it looks like one.
fn number(text: &str) -> Option<Result<Value, &'static str>> {
    let radix = [("0x", 16), ("0o", 8)]
        .into_iter()
        .find_map(|(prefix, radix)| text.strip_prefix(prefix).map(|digits| (digits, radix)))
        .filter(|(digits, radix)| !digits.is_empty() && digits.chars().all(|c| c.is_digit(*radix)));
    if let Some((digits, radix)) = radix {
        return Some(
            u64::from_str_radix(digits, radix).map(|n| Value::Integer(n.into())).map_err(|_| TOO_LARGE),
        );
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Err("JSON has no such number"));
    }
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !unsigned.is_empty() && digits(unsigned) {
        let integer =
            text.parse::<i128>().ok().filter(|n| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(n));
        return Some(integer.map(Value::Integer).ok_or(TOO_LARGE));
    }
    let (mantissa, exponent) =
        unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    if !(digits(whole) && digits(fraction) && exponent) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    match text.parse::<f64>() {
        Ok(float) if float.is_finite() => Some(Ok(Value::Float(float))),
        _ => Some(Err("beyond a 64-bit float")),
    }
}

const TOO_LARGE: &str = "beyond 64 bits";

/// `text` in quotes, cut to a bounded length.
pub(super) fn quoted(text: &str) -> String {
    const BYTES_MAX: usize = 80;
    let mut end = text.len().min(BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let dots = if end < text.len() { "…" } else { "" };
    format!("{:?}{dots}", &text[..end])
}

impl Node {
    /// What it is, for a message.
    pub(super) fn is_a(&self) -> String {
        match &self.value {
            Value::Null => "the value is empty".into(),
            Value::Bool(truth) => format!("{truth} is a boolean"),
            Value::Integer(number) => format!("{number} is an integer"),
            Value::Float(number) => format!("{number:?} is a float"),
            Value::Text(text) => format!("{} is a text", quoted(text)),
            Value::List(_) => "this is a list".into(),
            Value::Map(_) => "this is a mapping".into(),
        }
    }

    /// Levels below this one.
    fn height(&self) -> usize {
        match &self.value {
            Value::List(items) => 1 + items.iter().map(Self::height).max().unwrap_or(0),
            Value::Map(members) => 1 + members.iter().map(|(_, value)| value.height()).max().unwrap_or(0),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 0,
        }
    }

    /// Writes the node as compact JSON, keys in the file's order.
    pub(super) fn write_json(&self, out: &mut String) {
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Integer(number) => write!(out, "{number}").expect("writing to a String does not fail"),
            Value::Float(number) => write!(out, "{number:?}").expect("writing to a String does not fail"),
            Value::Text(text) => write_text(text, out),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Value::Map(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(&key.name, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a text is always JSON"));
}
