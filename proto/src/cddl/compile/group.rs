//! Compiles groups of the syntax tree into groups of a program.

use cddl::ast::{
    GenericArgs, Group as Grammar, GroupEntry, Identifier, MemberKey, Occur, Occurrence, Rule, Type, Type2,
};
use cddl::token::Value;

use super::super::CompileError;
use super::super::program::{Group, GroupId, Key, Literal, Node, NodeId, Scalar, resolved};
use super::{Compiler, NESTING_MAX, Named, Scope, TOO_LARGE, lone_name, parse_rule, single_name};

impl<'a> Compiler<'a> {
    /// Whether a right-hand side is a group. A lone name, with or without parentheses, parses as a type.
    pub(super) fn is_group(
        &mut self,
        alternative: &Rule<'a>,
        scope: &Scope<'a>,
    ) -> Result<bool, CompileError> {
        let Rule::Type { rule, .. } = alternative else { return Ok(true) };
        let Some(ident) = lone_name(&rule.value) else { return Ok(false) };
        match scope.params.get(ident.ident) {
            Some(bound) => Ok(matches!(bound, Named::Group(_))),
            None => self.names_group(&ident.to_string(), scope.nesting),
        }
    }

    fn names_group(&mut self, name: &str, nesting: usize) -> Result<bool, CompileError> {
        let Some(definition) = self.definitions.get(name) else { return Ok(name.starts_with("$$")) };
        if let Some(is_group) = self.are_groups.get(name) {
            return Ok(*is_group);
        }
        let scope = Scope { rule: name.to_owned(), nesting: nesting + 1, ..Scope::default() };
        if nesting > NESTING_MAX {
            return scope.invalid(TOO_LARGE);
        }
        // A circle of lone names is no group; `recursion` reports it.
        self.are_groups.insert(name.to_owned(), false);
        for text in definition.texts.clone() {
            if self.is_group(&parse_rule(name, text)?, &scope)? {
                self.are_groups.insert(name.to_owned(), true);
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn group_choice(&mut self, mut choices: Vec<GroupId>) -> GroupId {
        if choices.len() == 1 {
            return choices.remove(0);
        }
        self.add_group(Group::Choice(choices.into()))
    }

    pub(super) fn group(&mut self, group: &Grammar<'a>, scope: &Scope<'a>) -> Result<GroupId, CompileError> {
        let mut choices = Vec::new();
        for choice in &group.group_choices {
            let entries: Result<Vec<GroupId>, CompileError> =
                choice.group_entries.iter().map(|(entry, _)| self.entry(entry, scope)).collect();
            let mut entries = entries?;
            choices.push(match entries.len() {
                1 => entries.remove(0),
                _ => self.add_group(Group::Sequence(entries.into())),
            });
        }
        Ok(match choices.is_empty() {
            true => self.add_group(Group::Sequence(Box::default())),
            false => self.group_choice(choices),
        })
    }

    pub(super) fn entry(
        &mut self,
        entry: &GroupEntry<'a>,
        scope: &Scope<'a>,
    ) -> Result<GroupId, CompileError> {
        match entry {
            GroupEntry::InlineGroup { occur, group, .. } => {
                let group = self.group(group, scope)?;
                self.occurrence(occur.as_ref(), group, scope)
            }
            GroupEntry::TypeGroupname { ge, .. } => {
                let group = self.named_entry(&ge.name, ge.generic_args.as_ref(), scope)?;
                self.occurrence(ge.occur.as_ref(), group, scope)
            }
            GroupEntry::ValueMemberKey { ge, .. } => {
                let group = match &ge.member_key {
                    None => self.keyless(&ge.entry_type, scope)?,
                    Some(key) => {
                        let key = Some(self.key(key, scope)?);
                        let value = self.type_(&ge.entry_type, scope)?;
                        self.add_group(Group::Member { key, value })
                    }
                };
                self.occurrence(ge.occur.as_ref(), group, scope)
            }
        }
    }

    fn named_entry(
        &mut self,
        ident: &Identifier<'a>,
        args: Option<&GenericArgs<'a>>,
        scope: &Scope<'a>,
    ) -> Result<GroupId, CompileError> {
        Ok(match self.name(ident, args, scope)? {
            Named::Group(group) => group,
            Named::Type(value) => self.add_group(Group::Member { key: None, value }),
        })
    }

    /// An entry without a key: a named group, an unwrapped map or array, or the type of one array element.
    pub(super) fn keyless(&mut self, value: &Type<'a>, scope: &Scope<'a>) -> Result<GroupId, CompileError> {
        if let [choice] = value.type_choices.as_slice() {
            if let Some((ident, args)) = single_name(&choice.type1) {
                return self.named_entry(ident, args, scope);
            }
            if let (Type2::Unwrap { ident, generic_args, .. }, None) =
                (&choice.type1.type2, &choice.type1.operator)
            {
                let named = self.name(ident, generic_args.as_ref(), scope)?;
                if let Some(Named::Group(group)) = self.unwrapped(named) {
                    return Ok(group);
                }
            }
        }
        let value = self.type_(value, scope)?;
        Ok(self.add_group(Group::Member { key: None, value }))
    }

    fn key(&mut self, key: &MemberKey<'a>, scope: &Scope<'a>) -> Result<Key, CompileError> {
        let (literal, cut) = match key {
            MemberKey::Type1 { t1, is_cut, .. } => {
                return Ok(Key { node: self.type1(t1, scope)?, cut: *is_cut });
            }
            MemberKey::Bareword { ident, .. } => {
                if ident.socket.is_some() {
                    return scope.invalid(format!("`{ident}:` is no key; write `{ident} =>`"));
                }
                (Literal::Text(ident.ident.as_bytes().into()), true)
            }
            MemberKey::Value { value, .. } => match value {
                Value::INT(value) => (Literal::Int(*value as i128), true),
                Value::UINT(value) => (Literal::Int(*value as i128), true),
                Value::FLOAT(value) => (Literal::Float(*value), true),
                Value::TEXT(value) => (Literal::Text(value.as_bytes().into()), true),
                Value::BYTE(_) => return scope.unsupported(format!("the key `{value}:`")),
            },
            MemberKey::NonMemberKey { .. } => {
                return scope.unsupported("a key that is no type, bareword or value");
            }
        };
        // RFC 8610 3.5.4: the colon includes the cut.
        Ok(Key { node: self.add(Node::Scalar(Scalar::Literal(literal))), cut })
    }

    fn occurrence(
        &mut self,
        occurrence: Option<&Occurrence<'a>>,
        group: GroupId,
        scope: &Scope<'a>,
    ) -> Result<GroupId, CompileError> {
        let (least, most) = match occurrence.map(|o| o.occur) {
            None => return Ok(group),
            Some(Occur::Optional { .. }) => (0, 1),
            Some(Occur::ZeroOrMore { .. }) => (0, u64::MAX),
            Some(Occur::OneOrMore { .. }) => (1, u64::MAX),
            Some(Occur::Exact { lower, upper, .. }) => {
                (lower.unwrap_or(0) as u64, upper.map_or(u64::MAX, |n| n as u64))
            }
        };
        if least > most {
            return scope.invalid(format!("the occurrence `{least}*{most}` can never be met"));
        }
        Ok(self.add_group(Group::Occurs { least, most, group }))
    }

    /// What stands inside a map, an array or a tag (RFC 8610 3.7).
    pub(super) fn unwrapped(&self, named: Named) -> Option<Named> {
        let Named::Type(node) = named else {
            return None;
        };
        let node = resolved(&self.nodes, node);
        if let Node::Array(group) | Node::Map { group, .. } = node {
            return Some(Named::Group(*group));
        }
        if let Node::Tag { content, .. } = node {
            return Some(Named::Type(*content));
        }
        None
    }

    /// RFC 8610 2.2.2.1: any of the values that the group's entries take.
    pub(super) fn enumeration(&mut self, group: GroupId, scope: &Scope<'a>) -> Result<NodeId, CompileError> {
        let mut values = Vec::new();
        let mut pending = vec![group];
        let mut seen = Vec::new();
        while let Some(group) = pending.pop() {
            if seen.contains(&group) {
                continue;
            }
            seen.push(group);
            match &self.groups[group.0 as usize] {
                Group::Pending => return scope.invalid("enumerates a group that holds it"),
                Group::Never => {}
                Group::Same(group) | Group::Occurs { group, .. } => pending.push(*group),
                Group::Sequence(groups) | Group::Choice(groups) => pending.extend(groups.iter().rev()),
                Group::Member { value, .. } => values.push(*value),
            }
        }
        Ok(self.choice(values))
    }
}
