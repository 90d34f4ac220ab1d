//! Defines a compiled CDDL text: types as nodes, groups, and a table of keys for most maps.

use std::collections::BTreeMap;

use super::regexp::Regexp;
use super::{CompileError, Mismatch, compile, run};
use crate::cbor::Checked;

/// A compiled CDDL text.
#[derive(Debug)]
pub struct Program {
    pub(super) nodes: Vec<Node>,
    pub(super) groups: Vec<Group>,
    pub(super) tables: Vec<Table>,
    /// For each node how the first pass of a run takes it.
    pub(super) quick: Vec<Quick>,
    /// Names of rules, by [`NameId`].
    pub(super) names: Vec<String>,
    pub(super) rules: BTreeMap<String, RuleId>,
    /// The name of the rule that the text begins with.
    pub(super) first: Option<String>,
}

/// One type rule of a [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(pub(super) NodeId);

impl Program {
    /// Parses and compiles a CDDL text.
    ///
    /// **Errors:** [`CompileError`], naming the rule and the construct: syntax, undefined names, constructs that are
    /// not supported, entries that could never match, and rules that refer to themselves without consuming input.
    pub fn compile(text: &str) -> Result<Program, CompileError> {
        compile::compile(text)
    }

    /// The type rule of that name; `None` for groups, generic rules, and unknown names.
    pub fn rule(&self, name: &str) -> Option<RuleId> {
        self.rules.get(name).copied()
    }

    /// The first rule of the text, its root in RFC 8610; `None` if that is a group or generic.
    pub fn root(&self) -> Option<(&str, RuleId)> {
        let name = self.first.as_deref()?;
        Some((name, self.rule(name)?))
    }

    /// The names of all type rules, sorted.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.keys().map(String::as_str)
    }

    /// Matches `bytes`, exactly one item, with `rule`.
    ///
    /// Text is not checked for UTF-8 nor maps for duplicate keys: [`crate::cbor::check`] does that once per message.
    ///
    /// **Errors:** [`Mismatch`], also for malformed bytes that the rule reads, and for bytes that need more work than
    /// their length allows.
    pub fn run(&self, rule: RuleId, bytes: &[u8]) -> Result<(), Mismatch> {
        run::run(self, rule, bytes.into())
    }

    /// The same, of an item whose payload the check has walked already.
    pub(crate) fn run_over(&self, rule: RuleId, item: Checked<'_>) -> Result<(), Mismatch> {
        run::run(self, rule, item)
    }
}

/// The node itself, past the rules that only name it.
pub(super) fn resolved(nodes: &[Node], mut id: NodeId) -> &Node {
    // A circle of names alone is refused; one still being compiled ends in `Node::Pending`.
    for _ in 0..nodes.len() {
        match &nodes[id.0 as usize] {
            Node::Rule { body, .. } => id = *body,
            node @ (Node::Pending
            | Node::Any
            | Node::Never
            | Node::Major(_)
            | Node::Int
            | Node::Scalar(_)
            | Node::Choice(_)
            | Node::Both(..)
            | Node::Except { .. }
            | Node::Constrained { .. }
            | Node::Tag { .. }
            | Node::Array(_)
            | Node::Map { .. }) => return node,
        }
    }
    &Node::Pending
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameId(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableId(pub(super) u32);

/// Unsigned numbers, as inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(pub(super) Box<[(u64, u64)]>);

impl Ranges {
    pub(super) fn contain(&self, value: u64) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&value))
    }
}

/// A single value that a text spells out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Int(i128),
    Float(f64),
    Text(Box<[u8]>),
    Bytes(Box<[u8]>),
}

/// One end of a numeric comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Types that a head, or a head and a string, decide.
#[derive(Debug, PartialEq)]
pub(super) enum Scalar {
    /// Exactly this initial byte, so major type and additional information.
    Initial(u8),
    /// A simple value (major type 7, no float) out of these.
    Simple(Ranges),
    /// A float of any width.
    Float,
    IntRange(i128, i128),
    FloatRange {
        low: f64,
        high: f64,
        inclusive: bool,
    },
    Literal(Literal),
}

/// The part of a control operator that its target leaves to check.
#[derive(Debug)]
pub(super) enum Constraint {
    Size(Ranges),
    Bits(Ranges),
    Compare(Comparison, Number),
    Regexp(Box<Regexp>),
    Cbor(NodeId),
}

/// A type: what one data item may be.
#[derive(Debug)]
pub(super) enum Node {
    /// Reserved while its rule is being compiled; never met by a run.
    Pending,
    Any,
    /// A socket without plugs.
    Never,
    Rule {
        name: NameId,
        body: NodeId,
    },
    Major(u8),
    Int,
    Scalar(Scalar),
    Choice(Box<[NodeId]>),
    Both(NodeId, NodeId),
    Except {
        target: NodeId,
        excluded: NodeId,
    },
    /// What matches `target` and meets the constraint as well.
    Constrained {
        target: NodeId,
        constraint: Constraint,
    },
    Tag {
        numbers: Option<Ranges>,
        content: NodeId,
    },
    Array(GroupId),
    Map {
        group: GroupId,
        /// Set where the group's shape allows it; else the general matcher runs.
        table: Option<TableId>,
    },
}

/// A group: what a run of array elements or map members may be.
#[derive(Debug)]
pub(super) enum Group {
    /// Reserved while its rule is being compiled; never met by a run.
    Pending,
    /// A socket without plugs.
    Never,
    /// Another group; the indirection lets group rules refer to themselves.
    Same(GroupId),
    Sequence(Box<[GroupId]>),
    Choice(Box<[GroupId]>),
    Occurs {
        least: u64,
        most: u64,
        group: GroupId,
    },
    Member {
        key: Option<Key>,
        value: NodeId,
    },
}

/// The key of a map member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) node: NodeId,
    /// RFC 8610 3.5.4: a member whose key fits belongs to this entry, whatever its value.
    pub(super) cut: bool,
}

/// Most members of a map that a [`Table`] holds; more than that take the general matcher.
pub(super) const TABLE_MEMBERS_MAX: usize = 128;
/// Most entries after the named ones.
pub(super) const TABLE_REST_MAX: usize = 4;
/// Keys up to this many bytes are found through their length.
pub(super) const TABLE_KEY_BYTES_MAX: usize = 64;

/// A map whose entries are text keys, each at most once, followed by entries for all other keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Sorted by length of the key.
    pub(super) members: Box<[Member]>,
    /// `starts[n]..starts[n + 1]` are the members whose key has `n` bytes.
    pub(super) starts: [u8; TABLE_KEY_BYTES_MAX + 2],
    /// One bit for each member that must be there.
    pub(super) required: u128,
    pub(super) rest: Box<[Rest]>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: Box<[u8]>,
    pub(super) key_node: NodeId,
    pub(super) value: NodeId,
    pub(super) cut: bool,
    /// Its place in the text.
    pub(super) place: u8,
}

/// An entry of any number of members, such as `* tstr => any`.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) key: Key,
    pub(super) value: NodeId,
    pub(super) least: u64,
}

/// How the first pass of a run takes items of a node.
#[derive(Debug)]
pub(super) struct Quick {
    /// A bit for each first byte that alone decides that a number, simple value or string matches.
    pub(super) firsts: [u64; 4],
    /// The node past the rules that only name it.
    pub(super) node: NodeId,
    pub(super) kind: QuickKind,
}

#[derive(Debug)]
pub(super) enum QuickKind {
    /// Anything of these major types, a bit each.
    Skip(u8),
    Text(Box<[u8]>),
    /// Any text but these.
    TextBut(Box<[Box<[u8]>]>),
    /// A byte string of one of these lengths.
    Bytes(Ranges),
    Choice(Box<[NodeId]>, Option<Dispatch>),
    Table(TableId),
    Slots(Box<Slots>),
    /// An array of any number of elements, from `least` on.
    Elements {
        least: u64,
        element: NodeId,
    },
    /// As the node itself says.
    Item,
}

/// A key whose value tells the alternatives of a choice between maps apart.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) key: Box<[u8]>,
    /// For each alternative what it wants of the value, if it cannot do without.
    pub(super) values: Box<[Option<NodeId>]>,
}

/// A map of choices and optional groups in which each entry names one text key, then at most one entry for the rest.
#[derive(Debug)]
pub(super) struct Slots {
    /// Each key that an entry names or excludes; its index is its slot.
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) steps: Vec<Step>,
    pub(super) tail: Option<Tail>,
}

impl Slots {
    /// Most keys; the slots taken are bits of a `u32`.
    pub(super) const MAX: usize = 16;
}

/// What [`Slots`] ask of the members, in order.
#[derive(Debug)]
pub(super) enum Step {
    Member {
        slot: u8,
        value: NodeId,
        /// Whether any value will do.
        any: bool,
        cut: bool,
    },
    Sequence(Box<[Step]>),
    /// Each with the bit of the slot that it cannot do without.
    Choice(Box<[(u32, Step)]>),
    Optional(u32, Box<Step>),
}

/// `* text => value` at the end of [`Slots`].
#[derive(Debug)]
pub(super) struct Tail {
    /// A bit for each slot whose key it may take; it may take every other text.
    pub(super) allowed: u32,
    pub(super) value: NodeId,
}
