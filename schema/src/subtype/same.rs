//! Compares two nodes for literal equality.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash};

use super::compiled::{Compiled, Pattern};
use super::node::{ArrayAtom, Form, Id, Node, NumberAtom, ObjectAtom, Opaque, StringAtom};
use super::number::Num;

/// Feeds what a node says; `false` when that cannot be compared from one document to another.
pub(super) fn hash(form: &Form, nodes: &[Node], patterns: &[Pattern], hasher: &mut DefaultHasher) -> bool {
    std::mem::discriminant(form).hash(hasher);
    let below = |id: &Id, hasher: &mut DefaultHasher| {
        let hash = nodes[*id as usize].hash;
        hash.hash(hasher);
        hash != 0
    };
    match form {
        Form::Type(types) => types.hash(hasher),
        Form::All(parts) | Form::Any(parts) | Form::One(parts) => {
            parts.len().hash(hasher);
            return parts.iter().all(|part| below(part, hasher));
        }
        Form::Not(part) => return below(part, hasher),
        Form::Same(_) | Form::Opaque(Opaque { words: None, .. }) => return false,
        Form::Opaque(Opaque { keyword, words }) => (keyword, words).hash(hasher),
        // What is equal need not be written alike, and `equal` is not asked about it.
        Form::Scalars(values) => values.iter().for_each(|value| value.to_string().hash(hasher)),
        Form::Number(atom) => number(*atom).hash(hasher),
        Form::String(StringAtom::Pattern(at)) => patterns[*at as usize].source.hash(hasher),
        Form::String(atom) => atom.hash(hasher),
        Form::Array(ArrayAtom::Items { prefix, rest }) => {
            prefix.len().hash(hasher);
            return prefix.iter().chain(rest).all(|part| below(part, hasher));
        }
        Form::Array(ArrayAtom::MinContains(part, count)) => {
            (0, count).hash(hasher);
            return below(part, hasher);
        }
        Form::Array(ArrayAtom::MaxContains(part, count)) => {
            (1, count).hash(hasher);
            return below(part, hasher);
        }
        Form::Array(atom) => atom.hash(hasher),
        Form::Object(ObjectAtom::Members(members)) => {
            members.named.iter().for_each(|(name, _)| name.hash(hasher));
            let named = members.named.iter().all(|(_, part)| below(part, hasher));
            let mut pairs = members.patterns.iter().flat_map(|(pattern, part)| [pattern, part]);
            return named
                && pairs.all(|part| below(part, hasher))
                && members.rest.iter().all(|part| below(part, hasher));
        }
        Form::Object(ObjectAtom::Names(part)) => return below(part, hasher),
        Form::Object(atom) => atom.hash(hasher),
    }
    true
}

fn number(atom: NumberAtom) -> (u8, i128, i128) {
    let bits = |limit: Num| match limit {
        Num::Whole(whole) => (0, whole),
        Num::Float(float) => (1, i128::from(float.to_bits())),
    };
    let (kind, (form, value)) = match atom {
        NumberAtom::AtLeast(limit) => (0, bits(limit)),
        NumberAtom::Above(limit) => (1, bits(limit)),
        NumberAtom::AtMost(limit) => (2, bits(limit)),
        NumberAtom::Below(limit) => (3, bits(limit)),
        NumberAtom::MultipleOf(step) => (4, (step.over, step.under)),
    };
    (kind, form, value)
}

/// Whether node `x` of `a` says word for word what node `y` of `b` says; counts the nodes that are compared.
pub(super) fn equal((a, x): (&Compiled, Id), (b, y): (&Compiled, Id), compared: &Cell<usize>) -> bool {
    if std::ptr::eq(a, b) && x == y {
        return true;
    }
    compared.set(compared.get() + 1);
    let (left, right) = (a.node(x), b.node(y));
    if left.hash == 0 || left.hash != right.hash {
        return false;
    }
    let same = |x: Id, y: Id| equal((a, x), (b, y), compared);
    let each = |x: &[Id], y: &[Id]| x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(*x, *y));
    let option = |x: Option<Id>, y: Option<Id>| match (x, y) {
        (Some(x), Some(y)) => same(x, y),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    match (&left.form, &right.form) {
        (Form::Type(x), Form::Type(y)) => x == y,
        (Form::All(x), Form::All(y)) | (Form::Any(x), Form::Any(y)) | (Form::One(x), Form::One(y)) => {
            each(x, y)
        }
        (Form::Not(x), Form::Not(y)) => same(*x, *y),
        (Form::Opaque(x), Form::Opaque(y)) => x.keyword == y.keyword && x.words == y.words,
        (Form::Scalars(x), Form::Scalars(y)) => x == y,
        (Form::Number(x), Form::Number(y)) => number(*x) == number(*y),
        (Form::String(StringAtom::Pattern(x)), Form::String(StringAtom::Pattern(y))) => {
            a.patterns[*x as usize].source == b.patterns[*y as usize].source
        }
        (Form::String(StringAtom::Pattern(_)), _) | (_, Form::String(StringAtom::Pattern(_))) => false,
        (Form::String(x), Form::String(y)) => x == y,
        (Form::Array(x), Form::Array(y)) => match (x, y) {
            (ArrayAtom::Items { prefix: x, rest: p }, ArrayAtom::Items { prefix: y, rest: q }) => {
                each(x, y) && option(*p, *q)
            }
            (ArrayAtom::MinContains(x, p), ArrayAtom::MinContains(y, q))
            | (ArrayAtom::MaxContains(x, p), ArrayAtom::MaxContains(y, q)) => p == q && same(*x, *y),
            (ArrayAtom::MinItems(p), ArrayAtom::MinItems(q))
            | (ArrayAtom::MaxItems(p), ArrayAtom::MaxItems(q)) => p == q,
            (ArrayAtom::Unique, ArrayAtom::Unique) => true,
            _ => false,
        },
        (Form::Object(x), Form::Object(y)) => match (x, y) {
            (ObjectAtom::Members(x), ObjectAtom::Members(y)) => {
                let (named, patterns) = (x.named.iter().zip(&y.named), x.patterns.iter().zip(&y.patterns));
                x.named.len() == y.named.len()
                    && x.patterns.len() == y.patterns.len()
                    && named.into_iter().all(|((name, x), (other, y))| name == other && same(*x, *y))
                    && patterns.into_iter().all(|((p, x), (q, y))| same(*p, *q) && same(*x, *y))
                    && option(x.rest, y.rest)
            }
            (ObjectAtom::Names(x), ObjectAtom::Names(y)) => same(*x, *y),
            (ObjectAtom::Has(x), ObjectAtom::Has(y)) => x == y,
            (ObjectAtom::MinProperties(x), ObjectAtom::MinProperties(y))
            | (ObjectAtom::MaxProperties(x), ObjectAtom::MaxProperties(y)) => x == y,
            _ => false,
        },
        _ => false,
    }
}
