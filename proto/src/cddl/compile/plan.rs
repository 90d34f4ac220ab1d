//! Plans map checks: a program's maps in, a table of keys for each map whose shape allows one out.
//!
//! A table needs entries whose order does not matter: distinct text keys, each used at most once, followed by entries
//! without an upper bound. Every other map keeps its group and uses the general matcher.

use super::super::CompileError;
use super::super::program::{
    Group, GroupId, Key, Literal, Member, Node, NodeId, Program, Rest, Scalar, TABLE_KEY_BYTES_MAX,
    TABLE_MEMBERS_MAX, TABLE_REST_MAX, Table, TableId, resolved,
};

/// `maps` are the map nodes, each with the rule that holds it.
pub(super) fn tables(program: &mut Program, maps: &[(NodeId, String)]) -> Result<(), CompileError> {
    for (NodeId(at), rule) in maps {
        let at = *at as usize;
        let Node::Map { group, .. } = program.nodes[at] else {
            continue;
        };
        if !keys_everywhere(program, group) {
            let reason = "an entry without a key stands in a map, where it can never match".into();
            return Err(CompileError::Invalid { rule: rule.clone(), reason });
        }
        let mut entries = Vec::new();
        if !flatten(program, group, 1, 1, &mut entries, 0) {
            continue;
        }
        if let Some(built) = table(program, &entries) {
            program.tables.push(built);
            let id = TableId(program.tables.len() as u32 - 1);
            program.nodes[at] = Node::Map { group, table: Some(id) };
        }
    }
    Ok(())
}

/// RFC 8610 appendix C: an entry without a key matches array elements only, so in a map it is a mistake.
fn keys_everywhere(program: &Program, group: GroupId) -> bool {
    let mut pending = vec![group];
    let mut seen = vec![false; program.groups.len()];
    while let Some(group) = pending.pop() {
        if std::mem::replace(&mut seen[group.0 as usize], true) {
            continue;
        }
        match &program.groups[group.0 as usize] {
            Group::Pending | Group::Never | Group::Member { key: Some(_), .. } => {}
            Group::Same(group) | Group::Occurs { group, .. } => pending.push(*group),
            Group::Sequence(groups) | Group::Choice(groups) => pending.extend(groups.iter()),
            Group::Member { key: None, .. } => return false,
        }
    }
    true
}

struct Entry {
    key: Key,
    value: NodeId,
    least: u64,
    most: u64,
}

/// Writes the entries of a plain sequence of members; false where the group is more than that.
fn flatten(
    program: &Program,
    group: GroupId,
    least: u64,
    most: u64,
    out: &mut Vec<Entry>,
    hops: usize,
) -> bool {
    if hops > program.groups.len() {
        return false;
    }
    match &program.groups[group.0 as usize] {
        Group::Pending | Group::Never | Group::Choice(_) | Group::Member { key: None, .. } => false,
        Group::Same(group) => flatten(program, *group, least, most, out, hops + 1),
        Group::Sequence(groups) if (least, most) == (1, 1) || groups.len() == 1 => {
            groups.iter().all(|group| flatten(program, *group, least, most, out, hops + 1))
        }
        Group::Sequence(_) => false,
        Group::Occurs { least: inner_least, most: inner_most, group } => {
            (least, most) == (1, 1) && flatten(program, *group, *inner_least, *inner_most, out, hops + 1)
        }
        Group::Member { key: Some(key), value } => {
            out.push(Entry { key: *key, value: *value, least, most });
            true
        }
    }
}

fn table(program: &Program, entries: &[Entry]) -> Option<Table> {
    let mut members = Vec::new();
    let mut rest = Vec::new();
    for entry in entries {
        match text_key(program, entry.key.node) {
            // Keys of a map are distinct, so an entry for one text takes one member at most.
            Some(key)
                if members.len() < TABLE_MEMBERS_MAX
                    && entry.least <= 1
                    && entry.most >= 1
                    && rest.is_empty() =>
            {
                let member = Member {
                    key: key.into(),
                    key_node: entry.key.node,
                    value: entry.value,
                    cut: entry.key.cut,
                    place: members.len() as u8,
                };
                members.push((member, entry.least == 1));
            }
            None if entry.most == u64::MAX => {
                rest.push(Rest { key: entry.key, value: entry.value, least: entry.least })
            }
            Some(_) | None => return None,
        }
    }
    if rest.len() > TABLE_REST_MAX {
        return None;
    }
    members.sort_by(|(a, _), (b, _)| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    if members.windows(2).any(|pair| pair[0].0.key == pair[1].0.key)
        || members.iter().any(|(m, _)| m.key.len() > TABLE_KEY_BYTES_MAX)
    {
        return None;
    }
    let required = members
        .iter()
        .enumerate()
        .filter(|(_, (_, required))| *required)
        .fold(0, |bits, (at, _)| bits | 1 << at);
    let mut starts = [0; TABLE_KEY_BYTES_MAX + 2];
    for (length, start) in starts.iter_mut().enumerate() {
        *start = members.iter().filter(|(member, _)| member.key.len() < length).count() as u8;
    }
    Some(Table {
        members: members.into_iter().map(|(member, _)| member).collect(),
        starts,
        required,
        rest: rest.into(),
    })
}

/// The text that a type stands for, if it stands for one.
pub(super) fn text_key(program: &Program, node: NodeId) -> Option<&[u8]> {
    if let Node::Scalar(Scalar::Literal(Literal::Text(text))) = resolved(&program.nodes, node) {
        return Some(text);
    }
    None
}
