//! Computes the kinds of values that each node may hold for, and those that it always holds for.

use super::node::{ArrayAtom, Form, Id, Node, NumberAtom, ObjectAtom, Opaque, StringAtom, Types};

/// What may hold and what must, from what is known of the nodes below. **Shape:** too wide, or too narrow, while
/// those are not settled; never wrong.
pub(super) fn of(form: &Form, nodes: &[Node]) -> (Types, Types) {
    let may = |id: &Id| nodes.get(*id as usize).map_or(Types::ALL, |node| node.may);
    let must = |id: &Id| nodes.get(*id as usize).map_or(Types::NONE, |node| node.must);
    match form {
        Form::Type(types) => (*types, *types),
        Form::All(parts) => (
            parts.iter().map(may).fold(Types::ALL, Types::and),
            parts.iter().map(must).fold(Types::ALL, Types::and),
        ),
        Form::Any(parts) => (
            parts.iter().map(may).fold(Types::NONE, Types::or),
            parts.iter().map(must).fold(Types::NONE, Types::or),
        ),
        Form::One(parts) => one(parts, may, must),
        Form::Not(part) => (must(part).not(), may(part).not()),
        Form::Same(to) => (may(to), must(to)),
        Form::Scalars(values) => {
            let types = values.iter().map(Types::of).fold(Types::NONE, Types::or);
            // `null` alone is all of its kind, and so are both booleans.
            let has = |wanted: bool| values.iter().any(|value| value.as_bool() == Some(wanted));
            let whole = if has(true) && has(false) { Types::NULL.or(Types::BOOLEAN) } else { Types::NULL };
            let whole = types.and(whole);
            (types, whole)
        }
        Form::Number(atom) => (Types::ALL, number(*atom)),
        Form::String(StringAtom::MinLength(0)) | Form::Array(ArrayAtom::MinItems(0)) => {
            (Types::ALL, Types::ALL)
        }
        Form::String(_) => (Types::ALL, Types::STRING.not()),
        Form::Array(_) => (Types::ALL, Types::ARRAY.not()),
        Form::Object(ObjectAtom::MinProperties(0)) => (Types::ALL, Types::ALL),
        Form::Object(_) => (Types::ALL, Types::OBJECT.not()),
        Form::Opaque(opaque) => (Types::ALL, opaque.kinds().not()),
    }
}

/// A step of 1 holds of every whole number, and of no other.
fn number(atom: NumberAtom) -> Types {
    match atom {
        NumberAtom::MultipleOf(step) if step.over == 1 && step.under == 1 => Types::FRACTION.not(),
        NumberAtom::MultipleOf(_)
        | NumberAtom::AtLeast(_)
        | NumberAtom::Above(_)
        | NumberAtom::AtMost(_)
        | NumberAtom::Below(_) => Types::NUMBER.not(),
    }
}

fn one(parts: &[Id], may: impl Fn(&Id) -> Types, must: impl Fn(&Id) -> Types) -> (Types, Types) {
    let (mut some, mut certain) = (Types::NONE, Types::NONE);
    for kind in Types::EACH {
        let may_hold = parts.iter().filter(|part| may(part).has(kind)).count();
        let must_hold = parts.iter().filter(|part| must(part).has(kind)).count();
        if may_hold > 0 && must_hold < 2 {
            some = some.or(kind);
        }
        if may_hold == 1 && must_hold == 1 {
            certain = certain.or(kind);
        }
    }
    (some, certain)
}

/// Times that what is known is carried through the references of a document.
const PASSES_MAX: usize = 8;

/// Makes circles of references opaque and carries what is known of nodes to those that refer to them.
pub(super) fn settle(nodes: &mut [Node]) {
    break_circles(nodes);
    for _ in 0..PASSES_MAX {
        let mut changed = false;
        for at in 0..nodes.len() {
            let (may, must) = of(&nodes[at].form, nodes);
            changed |= (may, must) != (nodes[at].may, nodes[at].must);
            (nodes[at].may, nodes[at].must) = (may, must);
        }
        if !changed {
            return;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Unseen,
    Open,
    Done,
}

/// A reference that leads back to itself without a step into the value says nothing that can be worked out.
fn break_circles(nodes: &mut [Node]) {
    let mut marks = vec![Mark::Unseen; nodes.len()];
    for root in 0..nodes.len() {
        let mut way: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((at, part)) = way.pop() {
            if part == 0 {
                if marks[at] != Mark::Unseen {
                    continue;
                }
                marks[at] = Mark::Open;
            }
            let Some(&below) = here(&nodes[at].form).get(part) else {
                marks[at] = Mark::Done;
                continue;
            };
            let below = below as usize;
            if marks[below] == Mark::Open {
                nodes[at].form = Form::Opaque(Opaque::here("$ref"));
                nodes[at].hash = 0;
                marks[at] = Mark::Done;
                continue;
            }
            way.push((at, part + 1));
            if marks[below] == Mark::Unseen {
                way.push((below, 0));
            }
        }
    }
}

/// The nodes that a node holds against the same value.
fn here(form: &Form) -> &[Id] {
    match form {
        Form::All(parts) | Form::Any(parts) | Form::One(parts) => parts,
        Form::Not(part) | Form::Same(part) => std::slice::from_ref(part),
        Form::Type(_)
        | Form::Scalars(_)
        | Form::Number(_)
        | Form::String(_)
        | Form::Array(_)
        | Form::Object(_)
        | Form::Opaque(_) => &[],
    }
}
