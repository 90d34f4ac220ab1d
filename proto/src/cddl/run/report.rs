//! Describes a failed run as a `Mismatch`; only a reported failure pays for names, path and words.

use std::fmt::Write as _;

use super::super::Mismatch;
use super::super::program::{Comparison, Constraint, Literal, Node, NodeId, Number, Program, Ranges, Scalar};
use super::head::{BREAK, chunks, head, skip};
use super::{Expected, Run};

/// Alternatives that are named before the rest is left out.
const ALTERNATIVES_MAX: usize = 6;

pub(super) fn mismatch(run: &Run<'_>) -> Mismatch {
    let program = run.program;
    let Some(failure) = run.failure else {
        // A miss without a note comes from a socket without plugs.
        let expected = "something that no rule allows".into();
        return Mismatch { rule: rule_name(program, run.rule), path: String::new(), offset: 0, expected };
    };
    let expected = match failure.expected {
        Expected::Node(node) => describe(program, node, 0),
        Expected::Member(key) => format!("a member {}", describe(program, key, 0)),
        Expected::More(table, rest) => {
            let rest = &program.tables[table.0 as usize].rest[rest];
            format!("at least {} members {}", rest.least, describe(program, rest.key.node, 0))
        }
        Expected::Nothing => "nothing more that is of this kind".into(),
        Expected::Element => "one more element".into(),
        Expected::WellFormed => "a well-formed item".into(),
        Expected::End => "the end of the item".into(),
        Expected::Depth => "less nesting".into(),
        Expected::Steps => "an item that takes fewer steps to decide".into(),
    };
    Mismatch {
        rule: rule_name(program, failure.rule),
        path: path(run.bytes, failure.offset),
        offset: failure.offset,
        expected,
    }
}

fn rule_name(program: &Program, node: NodeId) -> String {
    if let Node::Rule { name, .. } = &program.nodes[node.0 as usize] {
        return program.names[name.0 as usize].clone();
    }
    String::new()
}

fn describe(program: &Program, node: NodeId, nested: usize) -> String {
    let part = |node: &NodeId| describe(program, *node, nested + 1);
    match &program.nodes[node.0 as usize] {
        Node::Any => "any".into(),
        Node::Never | Node::Pending => "nothing (an empty socket)".into(),
        Node::Rule { name, body } => {
            // A name says more than a list of its alternatives, but not more than a value or a core type.
            let plain =
                matches!(&program.nodes[body.0 as usize], Node::Scalar(_) | Node::Major(_) | Node::Int);
            if plain { part(body) } else { program.names[name.0 as usize].clone() }
        }
        Node::Major(major) => ["uint", "nint", "bstr", "tstr", "an array", "a map", "a tag", "#7"]
            [usize::from(*major & 7)]
        .into(),
        Node::Int => "int".into(),
        Node::Scalar(scalar) => scalar_text(scalar),
        Node::Choice(_) if nested > 1 => "…".into(),
        Node::Choice(choices) => {
            let mut parts: Vec<String> = choices.iter().take(ALTERNATIVES_MAX).map(part).collect();
            if choices.len() > ALTERNATIVES_MAX {
                parts.push("…".into());
            }
            parts.join(" / ")
        }
        Node::Both(left, right) => format!("{} .and {}", part(left), part(right)),
        Node::Except { target, excluded } => format!("{} .ne {}", part(target), part(excluded)),
        Node::Constrained { target, constraint } => match constraint {
            Constraint::Size(sizes) => format!("{} .size {}", part(target), numbers(sizes)),
            Constraint::Bits(bits) => format!("{} .bits {}", part(target), numbers(bits)),
            Constraint::Compare(comparison, bound) => {
                let operator = match comparison {
                    Comparison::Less => ".lt",
                    Comparison::LessOrEqual => ".le",
                    Comparison::Greater => ".gt",
                    Comparison::GreaterOrEqual => ".ge",
                };
                let bound = match bound {
                    Number::Int(value) => value.to_string(),
                    Number::Float(value) => value.to_string(),
                };
                format!("{} {operator} {bound}", part(target))
            }
            Constraint::Regexp(regexp) => format!("{} .regexp \"{}\"", part(target), regexp.text()),
            Constraint::Cbor(content) => format!("{} .cbor {}", part(target), part(content)),
        },
        Node::Tag { numbers: None, content } => format!("#6({})", part(content)),
        Node::Tag { numbers: Some(tags), content } => format!("#6.{}({})", numbers(tags), part(content)),
        Node::Array(_) => "an array".into(),
        Node::Map { .. } => "a map".into(),
    }
}

fn scalar_text(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Initial(0xf9) => "float16".into(),
        Scalar::Initial(0xfa) => "float32".into(),
        Scalar::Initial(0xfb) => "float64".into(),
        Scalar::Initial(other) => format!("#{}.{}", other >> 5, other & 31),
        Scalar::Simple(values) => match values.0.as_ref() {
            [(20, 20)] => "false".into(),
            [(21, 21)] => "true".into(),
            [(20, 21)] => "bool".into(),
            [(22, 22)] => "null".into(),
            [(23, 23)] => "undefined".into(),
            _ => format!("#7.<{}>", numbers(values)),
        },
        Scalar::Float => "float".into(),
        Scalar::IntRange(low, high) => format!("{low}..{high}"),
        Scalar::FloatRange { low, high, inclusive } => {
            format!("{low}{}{high}", if *inclusive { ".." } else { "..." })
        }
        Scalar::Literal(literal) => literal_text(literal),
    }
}

fn numbers(ranges: &Ranges) -> String {
    let parts: Vec<String> = ranges
        .0
        .iter()
        .map(|(low, high)| if low == high { low.to_string() } else { format!("{low}..{high}") })
        .collect();
    parts.join(" / ")
}

fn literal_text(literal: &Literal) -> String {
    match literal {
        Literal::Int(value) => value.to_string(),
        Literal::Float(value) => format!("{value:?}"),
        Literal::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Literal::Bytes(bytes) => format!("h'{}'", hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The JSON pointer of the innermost item that holds the byte at `offset`. A key counts as its member.
fn path(bytes: &[u8], offset: usize) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < offset {
        let Some(container) = head(bytes, at) else { break };
        let inner = match container.major {
            4 => element(
                bytes,
                container.next,
                container.argument,
                container.is_indefinite(),
                offset,
                &mut out,
            ),
            5 => {
                member(bytes, container.next, container.argument, container.is_indefinite(), offset, &mut out)
            }
            6 => Some(container.next),
            _ => None,
        };
        match inner {
            Some(inner) => at = inner,
            None => break,
        }
    }
    out
}

fn element(
    bytes: &[u8],
    mut at: usize,
    count: u64,
    indefinite: bool,
    offset: usize,
    out: &mut String,
) -> Option<usize> {
    for index in 0..if indefinite { u64::MAX } else { count } {
        if bytes.get(at) == Some(&BREAK) {
            return None;
        }
        // The last item may be cut short; what follows its start belongs to it.
        if skip(bytes, at).is_none_or(|end| offset < end) {
            let _ = write!(out, "/{index}");
            return Some(at);
        }
        at = skip(bytes, at)?;
    }
    None
}

fn member(
    bytes: &[u8],
    mut at: usize,
    count: u64,
    indefinite: bool,
    offset: usize,
    out: &mut String,
) -> Option<usize> {
    for _ in 0..if indefinite { u64::MAX } else { count } {
        if bytes.get(at) == Some(&BREAK) {
            return None;
        }
        let key_at = at;
        let value_at = skip(bytes, at)?;
        if skip(bytes, value_at).is_none_or(|end| offset < end) {
            out.push('/');
            out.push_str(&key_text(bytes, key_at, value_at).replace('~', "~0").replace('/', "~1"));
            return (offset >= value_at).then_some(value_at);
        }
        at = skip(bytes, value_at)?;
    }
    None
}

/// A key as a path segment: texts and integers as themselves, all else as the hexadecimal of its bytes.
fn key_text(bytes: &[u8], at: usize, end: usize) -> String {
    match head(bytes, at) {
        Some(head) if head.major == 3 => {
            let text: Vec<u8> = chunks(bytes, at).flatten().copied().collect();
            String::from_utf8_lossy(&text).into_owned()
        }
        Some(head) if head.major == 0 => head.argument.to_string(),
        Some(head) if head.major == 1 => (-1 - i128::from(head.argument)).to_string(),
        Some(_) | None => format!("h'{}'", hex(&bytes[at..end])),
    }
}
