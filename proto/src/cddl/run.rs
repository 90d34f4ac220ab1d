//! Runs a program: a rule and the bytes of one item in, a verdict out.
//!
//! A first pass accepts most items that match. One function per kind of node checks the others, recursing along the
//! data. The reported failure is the furthest one.

mod array;
mod head;
mod map;
mod quick;
mod report;
mod table;
mod value;

use super::Mismatch;
use super::program::{Node, NodeId, Program, RuleId, TableId};
use crate::cbor::{Checked, Span};
use crate::limits::CBOR_DEPTH_MAX;
use head::{Head, head, skip};

/// Steps that any item may take, however short.
const STEPS_BASE: u64 = 16_384;
/// Steps for each byte. A step is one node held against one item; a linear body takes about one for each item.
const STEPS_PER_BYTE: u64 = 128;
/// Most calls of the group matchers within one another, over all depths of the data; bounds the stack.
const FRAMES_MAX: u32 = 1_024;

pub(super) fn run(program: &Program, rule: RuleId, item: Checked<'_>) -> Result<(), Mismatch> {
    let (bytes, walked) = (item.bytes(), item.payload());
    let steps = STEPS_BASE.saturating_add(STEPS_PER_BYTE.saturating_mul(bytes.len() as u64));
    let mut run = Run { program, bytes, walked, steps, frames: 0, rule: rule.0, quiet: 1, failure: None };
    if run.quick(rule.0, 0, 0) == Ok(bytes.len()) {
        return Ok(());
    }
    // It may still match, by a way that the first pass does not know; if it does not, this one tells why.
    run = Run { program, bytes, walked, steps, frames: 0, rule: rule.0, quiet: 0, failure: None };
    match run.item(rule.0, 0, 0) {
        Ok(end) if end == bytes.len() => return Ok(()),
        Ok(end) => {
            run.stop(end, Expected::End);
        }
        Err(_) => {}
    }
    Err(report::mismatch(&run))
}

struct Run<'p> {
    program: &'p Program,
    bytes: &'p [u8],
    /// An item whose end is known.
    walked: Span,
    steps: u64,
    frames: u32,
    /// The innermost named rule, as its node.
    rule: NodeId,
    /// Above zero while a failure decides which way to go and is none of the body's.
    quiet: u32,
    failure: Option<Failure>,
}

/// Why an item did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Miss {
    /// It is something else; another alternative may take it.
    No,
    /// A cut key's value did not match: nothing else of the same map may.
    Cut,
    /// Malformed, or out of bounds: no alternative can help.
    Stop,
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    /// How far matching had got.
    progress: usize,
    offset: usize,
    rule: NodeId,
    expected: Expected,
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    Node(NodeId),
    /// A member with that key, which is not there.
    Member(NodeId),
    /// At least one more member for that entry of a table.
    More(TableId, usize),
    /// No such member, or element.
    Nothing,
    /// One more element of an array.
    Element,
    WellFormed,
    End,
    /// Less nesting.
    Depth,
    /// Something that can be decided in the steps there are.
    Steps,
}

type Matched = Result<usize, Miss>;

impl Run<'_> {
    #[cold]
    fn note(&mut self, progress: usize, offset: usize, expected: Expected) {
        self.keep(Failure { progress, offset, rule: self.rule, expected });
    }

    /// Keeps the failure that is to be reported.
    fn keep(&mut self, failure: Failure) {
        // Of two failures at one place the later names the wider choice; that nothing fits there says least.
        let weak = matches!(failure.expected, Expected::Nothing);
        let further =
            |known: Failure| known.progress < failure.progress || known.progress == failure.progress && !weak;
        if self.quiet == 0 && self.failure.is_none_or(further) {
            self.failure = Some(failure);
        }
    }

    #[cold]
    fn no(&mut self, offset: usize, node: NodeId) -> Miss {
        self.note(offset, offset, Expected::Node(node));
        Miss::No
    }

    /// Ends the run: no alternative can make up for this.
    #[cold]
    fn stop(&mut self, offset: usize, expected: Expected) -> Miss {
        self.failure = Some(Failure { progress: usize::MAX, offset, rule: self.rule, expected });
        Miss::Stop
    }

    #[inline]
    fn head(&mut self, at: usize) -> Result<Head, Miss> {
        match head(self.bytes, at) {
            Some(head) => Ok(head),
            None => Err(self.stop(at, Expected::WellFormed)),
        }
    }

    #[inline]
    fn skip(&mut self, at: usize) -> Matched {
        match self.end_of(at) {
            Some(end) => {
                self.spend(at, (end - at) as u64 / 16)?;
                Ok(end)
            }
            None => Err(self.stop(at, Expected::WellFormed)),
        }
    }

    /// The end of the item at `at`; `None` when it is not well-formed.
    #[inline]
    fn end_of(&self, at: usize) -> Option<usize> {
        self.walked.end_from(at).or_else(|| skip(self.bytes, at))
    }

    #[inline]
    fn spend(&mut self, at: usize, steps: u64) -> Result<(), Miss> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(self.stop(at, Expected::Steps)),
        }
    }

    /// Runs `inner` one group matcher deeper.
    #[inline]
    fn deeper<T>(&mut self, at: usize, inner: impl FnOnce(&mut Self) -> Result<T, Miss>) -> Result<T, Miss> {
        if self.frames >= FRAMES_MAX {
            return Err(self.stop(at, Expected::Depth));
        }
        self.frames += 1;
        let result = inner(self);
        self.frames -= 1;
        result
    }

    /// Holds the item at `at` against a node; gives the end of the item.
    fn item(&mut self, id: NodeId, at: usize, depth: usize) -> Matched {
        self.spend(at, 1)?;
        let program = self.program;
        match &program.nodes[id.0 as usize] {
            Node::Any => self.skip(at),
            Node::Major(major) => match self.bytes.get(at) {
                Some(byte) if byte >> 5 == *major => self.skip(at),
                Some(_) => Err(self.no(at, id)),
                None => Err(self.stop(at, Expected::WellFormed)),
            },
            Node::Int => match self.bytes.get(at) {
                Some(byte) if byte >> 5 <= 1 => Ok(self.head(at)?.next),
                Some(_) => Err(self.no(at, id)),
                None => Err(self.stop(at, Expected::WellFormed)),
            },
            Node::Rule { body, .. } => {
                let outer = std::mem::replace(&mut self.rule, id);
                let result = self.item(*body, at, depth);
                self.rule = outer;
                result
            }
            Node::Map { group, table } => {
                let head = self.container(5, id, at, depth)?;
                match table {
                    Some(table) => self.table(*table, at, &head, depth + 1),
                    None => self.map(*group, at, &head, depth + 1),
                }
            }
            Node::Array(group) => {
                let head = self.container(4, id, at, depth)?;
                self.array(*group, at, &head, depth + 1)
            }
            Node::Choice(choices) => {
                for choice in choices {
                    match self.item(*choice, at, depth) {
                        Err(Miss::No) => {}
                        result @ (Ok(_) | Err(Miss::Stop | Miss::Cut)) => return result,
                    }
                }
                Err(self.no(at, id))
            }
            Node::Both(left, right) => {
                self.item(*left, at, depth)?;
                self.item(*right, at, depth)
            }
            Node::Except { target, excluded } => {
                let end = self.item(*target, at, depth)?;
                self.quiet += 1;
                let hit = self.item(*excluded, at, depth);
                self.quiet -= 1;
                match hit {
                    Ok(_) => Err(self.no(at, id)),
                    Err(Miss::No | Miss::Cut) => Ok(end),
                    Err(Miss::Stop) => Err(Miss::Stop),
                }
            }
            Node::Tag { numbers, content } => {
                let head = self.head(at)?;
                if head.major != 6 || numbers.as_ref().is_some_and(|n| !n.contain(head.argument)) {
                    return Err(self.no(at, id));
                }
                if depth >= CBOR_DEPTH_MAX {
                    return Err(self.stop(at, Expected::Depth));
                }
                self.item(*content, head.next, depth + 1)
            }
            Node::Never | Node::Pending => Err(self.no(at, id)),
            Node::Constrained { target, constraint } => {
                let end = self.item(*target, at, depth)?;
                self.constrained(id, constraint, at, end, depth)
            }
            Node::Scalar(scalar) => self.scalar(id, scalar, at),
        }
    }

    /// The head of an array or map at this depth.
    fn container(&mut self, major: u8, id: NodeId, at: usize, depth: usize) -> Result<Head, Miss> {
        let head = self.head(at)?;
        if head.major != major {
            return Err(self.no(at, id));
        }
        if depth >= CBOR_DEPTH_MAX {
            return Err(self.stop(at, Expected::Depth));
        }
        let claimed = if major == 5 { head.argument.saturating_mul(2) } else { head.argument };
        if claimed > (self.bytes.len() - head.next) as u64 {
            return Err(self.stop(at, Expected::WellFormed));
        }
        Ok(head)
    }
}
