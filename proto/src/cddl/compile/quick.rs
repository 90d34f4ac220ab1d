//! Prepares the first pass of a run, which accepts most items by their first byte.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what has no quick form runs as its node, which is right for any kind of node or group there may be"
)]

use super::super::program::{
    Constraint, Dispatch, Group, GroupId, Key, Literal, Node, NodeId, Program, Quick, QuickKind, Ranges,
    Scalar, Slots, Step, Tail, resolved,
};
use super::plan;

/// Rules and choices within one another that are looked through.
const HOPS_MAX: usize = 16;

/// Works out the quick form of each node; the tables are there already.
pub(super) fn quick(program: &mut Program) {
    let forms = (0..program.nodes.len()).map(|at| {
        let node = body(program, NodeId(at as u32));
        Quick { firsts: firsts(program, node, 0), node, kind: kind(program, node) }
    });
    program.quick = forms.collect();
}

/// The node past the rules that only name it.
fn body(program: &Program, mut id: NodeId) -> NodeId {
    for _ in 0..program.nodes.len() {
        match &program.nodes[id.0 as usize] {
            Node::Rule { body, .. } => id = *body,
            _ => return id,
        }
    }
    id
}

fn kind(program: &Program, id: NodeId) -> QuickKind {
    if let Some(excluded) = texts_but(program, id)
        && !excluded.is_empty()
    {
        return QuickKind::TextBut(excluded);
    }
    match &program.nodes[id.0 as usize] {
        Node::Any => QuickKind::Skip(0xff),
        Node::Major(major) => QuickKind::Skip(1 << major),
        Node::Int => QuickKind::Skip(0b11),
        Node::Scalar(Scalar::Literal(Literal::Text(text))) => QuickKind::Text(text.clone()),
        Node::Constrained { target, constraint: Constraint::Size(sizes) }
            if matches!(resolved(&program.nodes, *target), Node::Major(2)) =>
        {
            QuickKind::Bytes(Ranges(sizes.0.clone()))
        }
        Node::Choice(choices) => QuickKind::Choice(choices.clone(), dispatch(program, choices)),
        Node::Map { table: Some(table), .. } => QuickKind::Table(*table),
        Node::Map { group, table: None } => {
            slots(program, *group).map_or(QuickKind::Item, |slots| QuickKind::Slots(Box::new(slots)))
        }
        Node::Array(group) => elements(program, *group),
        _ => QuickKind::Item,
    }
}

/// `tstr`, `tstr .ne "a"`, `(tstr .ne "a") .ne "b"` and so on: the texts that are excluded.
fn texts_but(program: &Program, id: NodeId) -> Option<Box<[Box<[u8]>]>> {
    let mut excluded = Vec::new();
    let mut node = resolved(&program.nodes, id);
    for _ in 0..HOPS_MAX {
        match node {
            Node::Major(3) => return Some(excluded.into()),
            Node::Except { target, excluded: other } => {
                excluded.push(plan::text_key(program, *other)?.into());
                node = resolved(&program.nodes, *target);
            }
            _ => return None,
        }
    }
    None
}

/// The first bytes, of heads without more bytes, that alone decide that an item of definite length matches.
fn firsts(program: &Program, id: NodeId, hops: usize) -> [u64; 4] {
    if hops > HOPS_MAX {
        return [0; 4];
    }
    if let Some(excluded) = texts_but(program, id) {
        return set(|first| {
            first >> 5 == 3 && excluded.iter().all(|text| text.len() != usize::from(first & 31))
        });
    }
    match &program.nodes[id.0 as usize] {
        Node::Rule { body, .. } => firsts(program, *body, hops + 1),
        Node::Any => set(|first| matches!(first >> 5, 0..=3 | 7)),
        Node::Major(major) if matches!(major, 0..=3 | 7) => set(|first| first >> 5 == *major),
        Node::Int => set(|first| first >> 5 <= 1),
        Node::Scalar(Scalar::Simple(values)) => {
            set(|first| first >> 5 == 7 && values.contain(u64::from(first & 31)))
        }
        Node::Scalar(Scalar::IntRange(low, high)) => set(|first| {
            let argument = i128::from(first & 31);
            let value = if first >> 5 == 0 { argument } else { -1 - argument };
            first >> 5 <= 1 && (*low..=*high).contains(&value)
        }),
        Node::Constrained { target, constraint: Constraint::Size(sizes) }
            if matches!(resolved(&program.nodes, *target), Node::Major(2)) =>
        {
            set(|first| first >> 5 == 2 && sizes.contain(u64::from(first & 31)))
        }
        Node::Choice(choices) => choices.iter().fold([0; 4], |mut all, choice| {
            let one = firsts(program, *choice, hops + 1);
            all.iter_mut().zip(one).for_each(|(all, one)| *all |= one);
            all
        }),
        _ => [0; 4],
    }
}

fn set(takes: impl Fn(u8) -> bool) -> [u64; 4] {
    let mut bits = [0; 4];
    for first in (0..=u8::MAX).filter(|first| first & 31 < 24 && takes(*first)) {
        bits[usize::from(first >> 6)] |= 1 << (first & 63);
    }
    bits
}

/// The key that tells alternatives apart: each that has it must have it, with a text of its own.
fn dispatch(program: &Program, choices: &[NodeId]) -> Option<Dispatch> {
    let required = |choice: &NodeId, key: Option<&[u8]>| {
        let Node::Map { table: Some(table), .. } = resolved(&program.nodes, *choice) else { return None };
        let table = &program.tables[table.0 as usize];
        table.members.iter().enumerate().find_map(|(slot, member)| {
            let text = plan::text_key(program, member.value).is_some()
                || texts_but(program, member.value).is_some_and(|excluded| !excluded.is_empty());
            let fits = member.cut && table.required >> slot & 1 == 1 && text;
            (fits && key.is_none_or(|key| *member.key == *key)).then_some((&*member.key, member.value))
        })
    };
    let (key, _) = choices.iter().find_map(|choice| required(choice, None))?;
    let values: Box<[Option<NodeId>]> =
        choices.iter().map(|choice| required(choice, Some(key)).map(|(_, value)| value)).collect();
    let several = values.iter().flatten().count() > 1;
    several.then(|| Dispatch { key: key.into(), values })
}

/// `[* type]` and `[n* type]`.
fn elements(program: &Program, group: GroupId) -> QuickKind {
    let Group::Occurs { least, most: u64::MAX, group } = lone(program, group) else {
        return QuickKind::Item;
    };
    match lone(program, *group) {
        Group::Member { value, .. } => QuickKind::Elements { least: *least, element: *value },
        _ => QuickKind::Item,
    }
}

/// The group itself, past those that hold nothing but it.
fn lone(program: &Program, mut group: GroupId) -> &Group {
    for _ in 0..program.groups.len() {
        match &program.groups[group.0 as usize] {
            Group::Same(inner) => group = *inner,
            Group::Sequence(groups) if groups.len() == 1 => group = groups[0],
            other => return other,
        }
    }
    &Group::Pending
}

fn slots(program: &Program, group: GroupId) -> Option<Slots> {
    let Group::Sequence(groups) = lone(program, group) else { return None };
    let mut slots = Slots { keys: Vec::new(), steps: Vec::new(), tail: None };
    let (last, rest) = groups.split_last()?;
    let mut steps = Vec::new();
    for group in rest {
        steps.push(step(program, *group, &mut slots.keys, 0)?);
    }
    match tail(program, *last) {
        Some((key, value)) => {
            let excluded = texts_but(program, key.node)?;
            for text in &excluded {
                slot(&mut slots.keys, text);
            }
            let allowed = slots.keys.iter().enumerate().filter(|(_, key)| !excluded.contains(key));
            let allowed = allowed.fold(0, |bits, (at, _)| bits | 1u32.checked_shl(at as u32).unwrap_or(0));
            slots.tail = Some(Tail { allowed, value });
        }
        None => steps.push(step(program, *last, &mut slots.keys, 0)?),
    }
    slots.steps = steps;
    (slots.keys.len() <= Slots::MAX).then_some(slots)
}

/// `* key => value` without a cut.
fn tail(program: &Program, group: GroupId) -> Option<(Key, NodeId)> {
    let Group::Occurs { least: 0, most: u64::MAX, group } = lone(program, group) else { return None };
    match lone(program, *group) {
        Group::Member { key: Some(key), value } if !key.cut => Some((*key, *value)),
        _ => None,
    }
}

fn slot(keys: &mut Vec<Box<[u8]>>, text: &[u8]) -> usize {
    let known = keys.iter().position(|key| **key == *text);
    known.unwrap_or_else(|| {
        keys.push(text.into());
        keys.len() - 1
    })
}

fn step(program: &Program, group: GroupId, keys: &mut Vec<Box<[u8]>>, hops: usize) -> Option<Step> {
    if hops > HOPS_MAX {
        return None;
    }
    match &program.groups[group.0 as usize] {
        Group::Same(group) => step(program, *group, keys, hops + 1),
        Group::Sequence(groups) => {
            let steps: Option<Box<[Step]>> =
                groups.iter().map(|group| step(program, *group, keys, hops + 1)).collect();
            Some(Step::Sequence(steps?))
        }
        Group::Choice(groups) => {
            let steps: Option<Box<[(u32, Step)]>> = groups
                .iter()
                .map(|group| step(program, *group, keys, hops + 1).map(|step| (first(&step), step)))
                .collect();
            Some(Step::Choice(steps?))
        }
        Group::Occurs { least: 0, most: 1, group } => {
            let step = step(program, *group, keys, hops + 1)?;
            Some(Step::Optional(first(&step), Box::new(step)))
        }
        Group::Member { key: Some(key), value } => {
            let slot = slot(keys, plan::text_key(program, key.node)?);
            let any = matches!(resolved(&program.nodes, *value), Node::Any);
            Some(Step::Member { slot: slot as u8, value: *value, any, cut: key.cut })
        }
        Group::Pending | Group::Never | Group::Occurs { .. } | Group::Member { key: None, .. } => None,
    }
}

/// The bit of the slot that is looked at first, where nothing goes on without it; else 0.
fn first(step: &Step) -> u32 {
    match step {
        Step::Member { slot, .. } => 1u32.checked_shl(u32::from(*slot)).unwrap_or(0),
        Step::Sequence(steps) => steps.first().map_or(0, first),
        Step::Choice(_) | Step::Optional(..) => 0,
    }
}
