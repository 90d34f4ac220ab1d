//! Finds the first rule of a program that refers to itself without consuming input.
//!
//! A run recurses along references. Data bounds that recursion only if each turn consumes some data, so the compiler
//! refuses a cycle that consumes nothing.

use super::super::CompileError;
use super::super::program::{Group, GroupId, Node, NodeId, Program};

pub(super) fn check(program: &Program) -> Result<(), CompileError> {
    let nullable = nullable(program);
    let mut walk = Walk {
        program,
        nullable: &nullable,
        nodes: vec![Mark::New; program.nodes.len()],
        groups: vec![Mark::New; program.groups.len()],
        rule: String::new(),
    };
    for node in 0..program.nodes.len() {
        walk.node(NodeId(node as u32))?;
    }
    for group in 0..program.groups.len() {
        walk.group(GroupId(group as u32))?;
    }
    Ok(())
}

/// Which groups match without consuming anything.
fn nullable(program: &Program) -> Vec<bool> {
    let mut nullable = vec![false; program.groups.len()];
    loop {
        let mut changed = false;
        for (at, group) in program.groups.iter().enumerate() {
            let now = match group {
                Group::Pending | Group::Never | Group::Member { .. } => false,
                Group::Same(group) => nullable[group.0 as usize],
                Group::Sequence(groups) => groups.iter().all(|g| nullable[g.0 as usize]),
                Group::Choice(groups) => groups.iter().any(|g| nullable[g.0 as usize]),
                Group::Occurs { least, group, .. } => *least == 0 || nullable[group.0 as usize],
            };
            changed |= now != nullable[at];
            nullable[at] = now;
        }
        if !changed {
            return nullable;
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    Open,
    Done,
}

struct Walk<'p> {
    program: &'p Program,
    nullable: &'p [bool],
    nodes: Vec<Mark>,
    groups: Vec<Mark>,
    /// The named rule entered last, for the report.
    rule: String,
}

impl Walk<'_> {
    fn circle(&self) -> Result<(), CompileError> {
        Err(CompileError::Invalid {
            rule: self.rule.clone(),
            reason: "refers to itself without consuming input".into(),
        })
    }

    fn node(&mut self, id: NodeId) -> Result<(), CompileError> {
        match self.nodes[id.0 as usize] {
            Mark::Done => return Ok(()),
            Mark::Open => return self.circle(),
            Mark::New => self.nodes[id.0 as usize] = Mark::Open,
        }
        let program = self.program;
        match &program.nodes[id.0 as usize] {
            Node::Rule { name, body } => {
                self.rule.clone_from(&program.names[name.0 as usize]);
                self.node(*body)?;
            }
            Node::Choice(choices) => choices.iter().try_for_each(|choice| self.node(*choice))?,
            Node::Both(left, right) => {
                self.node(*left)?;
                self.node(*right)?;
            }
            Node::Except { target, excluded } => {
                self.node(*target)?;
                self.node(*excluded)?;
            }
            Node::Constrained { target, .. } => self.node(*target)?,
            // These consume a head, or nothing refers onward from them.
            Node::Tag { .. }
            | Node::Array(_)
            | Node::Map { .. }
            | Node::Pending
            | Node::Any
            | Node::Never
            | Node::Major(_)
            | Node::Int
            | Node::Scalar(_) => {}
        }
        self.nodes[id.0 as usize] = Mark::Done;
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> Result<(), CompileError> {
        match self.groups[id.0 as usize] {
            Mark::Done => return Ok(()),
            Mark::Open => return self.circle(),
            Mark::New => self.groups[id.0 as usize] = Mark::Open,
        }
        match &self.program.groups[id.0 as usize] {
            Group::Pending | Group::Never | Group::Member { .. } => {}
            Group::Same(group) | Group::Occurs { group, .. } => self.group(*group)?,
            Group::Choice(groups) => groups.iter().try_for_each(|group| self.group(*group))?,
            Group::Sequence(groups) => {
                for group in groups {
                    self.group(*group)?;
                    if !self.nullable[group.0 as usize] {
                        break;
                    }
                }
            }
        }
        self.groups[id.0 as usize] = Mark::Done;
        Ok(())
    }
}
