//! Matches map members against any group: the general matcher, for choices, groups and keys that are not text.
//!
//! Entries take members out of a pool. The rest of the match is a chain of frames on the stack, so an entry that fits
//! several members can try each against everything that follows. The step limit of the run bounds the tries.

use std::cell::Cell;

use super::super::program::{Group, GroupId, Key, Literal, Node, NodeId, Scalar, resolved};
use super::head::{BREAK, Head};
use super::{Expected, Matched, Miss, Run};

/// Members that are held without allocating.
const INLINE: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    key_at: usize,
    /// Where the text of the key starts, if the key is a text of definite length; else 0.
    text_at: usize,
    value_at: usize,
    taken: bool,
}

/// The members of one map, and which entries have taken which.
struct Pool<'m> {
    members: &'m mut [Member],
    taken: usize,
    /// Where the map starts and ends.
    at: usize,
    end: usize,
    /// Nesting of the members.
    depth: usize,
}

/// What is left to match after the current group.
#[derive(Clone, Copy)]
enum Frame<'f> {
    Done,
    Sequence {
        groups: &'f [GroupId],
        next: &'f Frame<'f>,
    },
    /// A choice or repetition that has matched here is not tried another way (RFC 8610 appendix A).
    Commit {
        done: &'f Cell<bool>,
        next: &'f Frame<'f>,
    },
    Again {
        turn: Turn,
        next: &'f Frame<'f>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    group: GroupId,
    least: u64,
    most: u64,
    count: u64,
    /// Members taken before the turn that ends here.
    taken: usize,
}

impl Turn {
    fn first(group: GroupId, least: u64, most: u64) -> Turn {
        Turn { group, least, most, count: 0, taken: usize::MAX }
    }
}

impl Run<'_> {
    // Kept out of `item`, whose frame stands on the stack once for each level of nesting.
    #[inline(never)]
    pub(super) fn map(&mut self, group: GroupId, at: usize, head: &Head, depth: usize) -> Matched {
        let mut inline = [Member::default(); INLINE];
        let mut heap = Vec::new();
        let (count, end) = self.members(at, head, &mut inline, &mut heap)?;
        let members = if heap.is_empty() { &mut inline[..count] } else { &mut heap[..] };
        let mut pool = Pool { members, taken: 0, at, end, depth };
        match self.group(group, &Frame::Done, &mut pool) {
            Ok(()) => Ok(end),
            Err(Miss::Cut | Miss::No) => Err(Miss::No),
            Err(Miss::Stop) => Err(Miss::Stop),
        }
    }

    /// Finds the members; all of them are in `heap` if they are too many for `inline`.
    fn members(
        &mut self,
        at: usize,
        head: &Head,
        inline: &mut [Member; INLINE],
        heap: &mut Vec<Member>,
    ) -> Result<(usize, usize), Miss> {
        let mut position = head.next;
        let mut count = 0;
        loop {
            if head.is_indefinite() {
                match self.bytes.get(position) {
                    Some(&BREAK) => return Ok((count, position + 1)),
                    Some(_) => {}
                    None => return Err(self.stop(at, Expected::WellFormed)),
                }
            } else if count as u64 == head.argument {
                return Ok((count, position));
            }
            let key = self.head(position)?;
            let value_at = self.skip(position)?;
            let text_at = if key.major == 3 && !key.is_indefinite() { key.next } else { 0 };
            let member = Member { key_at: position, text_at, value_at, taken: false };
            position = self.skip(value_at)?;
            if count < INLINE {
                inline[count] = member;
            } else {
                if count == INLINE {
                    heap.extend_from_slice(inline);
                }
                heap.push(member);
            }
            count += 1;
        }
    }

    fn follow(&mut self, frame: &Frame<'_>, pool: &mut Pool<'_>) -> Result<(), Miss> {
        match *frame {
            Frame::Done => match pool.members.iter().find(|member| !member.taken) {
                None => Ok(()),
                Some(left) => {
                    self.note(left.key_at, left.key_at, Expected::Nothing);
                    Err(Miss::No)
                }
            },
            Frame::Sequence { mut groups, next } => {
                // With no member left, what may be absent is.
                while pool.taken == pool.members.len()
                    && let [first, rest @ ..] = groups
                    && matches!(self.program.groups[first.0 as usize], Group::Occurs { least: 0, .. })
                {
                    groups = rest;
                }
                match groups {
                    [] => self.follow(next, pool),
                    [group, groups @ ..] => self.group(*group, &Frame::Sequence { groups, next }, pool),
                }
            }
            Frame::Commit { done, next } => {
                done.set(true);
                self.follow(next, pool)
            }
            Frame::Again { turn, next } => self.again(turn, next, pool),
        }
    }

    /// Matches a group and then all that `next` holds; leaves the pool as it was when that fails.
    fn group(&mut self, group: GroupId, next: &Frame<'_>, pool: &mut Pool<'_>) -> Result<(), Miss> {
        self.spend(pool.at, 1)?;
        let program = self.program;
        self.deeper(pool.at, |run| match &program.groups[group.0 as usize] {
            Group::Pending | Group::Never | Group::Member { key: None, .. } => Err(Miss::No),
            Group::Same(group) => run.group(*group, next, pool),
            Group::Sequence(groups) => run.follow(&Frame::Sequence { groups, next }, pool),
            Group::Choice(groups) => {
                for group in groups {
                    let done = Cell::new(false);
                    match run.group(*group, &Frame::Commit { done: &done, next }, pool) {
                        Err(Miss::No) if !done.get() => {}
                        result @ (Ok(()) | Err(Miss::No | Miss::Cut | Miss::Stop)) => return result,
                    }
                }
                Err(Miss::No)
            }
            Group::Member { key: Some(key), value } => run.pick(*key, *value, next, pool),
            Group::Occurs { least, most, group } => match run.lone_member(*group) {
                Some((key, value)) => run.take(key, value, Turn::first(*group, *least, *most), next, pool),
                None => run.again(Turn::first(*group, *least, *most), next, pool),
            },
        })
    }

    fn lone_member(&self, group: GroupId) -> Option<(Key, NodeId)> {
        match &self.program.groups[group.0 as usize] {
            Group::Member { key: Some(key), value } => Some((*key, *value)),
            Group::Same(group) => self.lone_member(*group),
            Group::Sequence(groups) => match groups.as_ref() {
                [group] => self.lone_member(*group),
                _ => None,
            },
            Group::Pending
            | Group::Never
            | Group::Choice(_)
            | Group::Occurs { .. }
            | Group::Member { key: None, .. } => None,
        }
    }

    /// Whether the key of a member fits that of an entry.
    #[inline]
    fn key_fits(&mut self, key: Key, member: Member, depth: usize) -> Result<bool, Miss> {
        let program = self.program;
        if member.text_at > 0
            && let Node::Scalar(Scalar::Literal(Literal::Text(wanted))) = &program.nodes[key.node.0 as usize]
        {
            return Ok(self.bytes[member.text_at..member.value_at] == **wanted);
        }
        self.quiet += 1;
        let matched = self.item(key.node, member.key_at, depth);
        self.quiet -= 1;
        match matched {
            Ok(_) => Ok(true),
            Err(Miss::No | Miss::Cut) => Ok(false),
            Err(Miss::Stop) => Err(Miss::Stop),
        }
    }

    /// Whether a member fits an entry.
    fn fits(
        &mut self,
        key: Key,
        value: NodeId,
        member: Member,
        pool: &Pool<'_>,
        key_fits: &mut bool,
    ) -> Result<bool, Miss> {
        if !self.key_fits(key, member, pool.depth)? {
            return Ok(false);
        }
        *key_fits = true;
        if !key.cut {
            return match self.item(value, member.value_at, pool.depth) {
                Ok(_) => Ok(true),
                Err(Miss::No | Miss::Cut) => Ok(false),
                Err(Miss::Stop) => Err(Miss::Stop),
            };
        }
        let before = self.failure.take();
        match self.item(value, member.value_at, pool.depth) {
            Ok(_) => {
                let within = self.failure.take();
                self.failure = before;
                if let Some(within) = within {
                    self.keep(within);
                }
                Ok(true)
            }
            // RFC 8610 3.5.4: the cut locks the member in, so the map as a whole does not match, and this is why.
            Err(Miss::No | Miss::Cut) => {
                match &mut self.failure {
                    Some(failure) => failure.progress = failure.progress.max(pool.end),
                    None => self.failure = before,
                }
                Err(Miss::Cut)
            }
            Err(Miss::Stop) => Err(Miss::Stop),
        }
    }

    /// One member for one entry: each that fits, until the rest matches as well.
    fn pick(&mut self, key: Key, value: NodeId, next: &Frame<'_>, pool: &mut Pool<'_>) -> Result<(), Miss> {
        let mut key_fits = false;
        for at in 0..pool.members.len() {
            let member = pool.members[at];
            if member.taken || !self.fits(key, value, member, pool, &mut key_fits)? {
                continue;
            }
            pool.members[at].taken = true;
            pool.taken += 1;
            match self.follow(next, pool) {
                Err(Miss::No) => {}
                result @ (Ok(()) | Err(Miss::Cut | Miss::Stop)) => return result,
            }
            pool.members[at].taken = false;
            pool.taken -= 1;
        }
        if !key_fits {
            self.note(pool.end, pool.at, Expected::Member(key.node));
        }
        Err(Miss::No)
    }

    /// Members for an entry that takes as many as it can.
    fn take(
        &mut self,
        key: Key,
        value: NodeId,
        turn: Turn,
        next: &Frame<'_>,
        pool: &mut Pool<'_>,
    ) -> Result<(), Miss> {
        let taken = pool.taken;
        // Which members fit: a bit each, and a list for those beyond.
        let mut mine = [0u64; 2];
        let mut more = Vec::new();
        let mut count = 0u64;
        let mut key_fits = false;
        for at in 0..pool.members.len() {
            let member = pool.members[at];
            if member.taken || !self.fits(key, value, member, pool, &mut key_fits)? {
                continue;
            }
            count += 1;
            if at < 64 * mine.len() {
                mine[at / 64] |= 1 << (at % 64);
            } else {
                more.push(at);
            }
            if self.is_literal(key.node) {
                break;
            }
        }
        if count > turn.most {
            // More fit than may be taken: which ones, the rest decides.
            return self.again(turn, next, pool);
        }
        if count < turn.least {
            if !key_fits {
                self.note(pool.end, pool.at, Expected::Member(key.node));
            }
            return Err(Miss::No);
        }
        let mark = |pool: &mut Pool<'_>, taken: bool| {
            for at in 0..pool.members.len().min(64 * mine.len()) {
                if mine[at / 64] >> (at % 64) & 1 == 1 {
                    pool.members[at].taken = taken;
                }
            }
            more.iter().for_each(|at| pool.members[*at].taken = taken);
        };
        mark(pool, true);
        pool.taken += count as usize;
        let result = self.follow(next, pool);
        if result.is_err() {
            mark(pool, false);
            pool.taken = taken;
        }
        result
    }

    /// The next turn of a repeated group.
    fn again(&mut self, turn: Turn, next: &Frame<'_>, pool: &mut Pool<'_>) -> Result<(), Miss> {
        self.deeper(pool.at, |run| {
            // What matches nothing does so any number of times.
            if turn.taken == pool.taken {
                return run.follow(next, pool);
            }
            if turn.count < turn.most {
                let done = Cell::new(false);
                let following = Turn { count: turn.count + 1, taken: pool.taken, ..turn };
                let again = Frame::Again { turn: following, next };
                match run.group(turn.group, &Frame::Commit { done: &done, next: &again }, pool) {
                    Err(Miss::No) if !done.get() => {}
                    result @ (Ok(()) | Err(Miss::No | Miss::Cut | Miss::Stop)) => return result,
                }
            }
            if turn.count < turn.least {
                return Err(Miss::No);
            }
            run.follow(next, pool)
        })
    }

    /// Whether a key fits one member at most.
    fn is_literal(&self, node: NodeId) -> bool {
        matches!(
            resolved(&self.program.nodes, node),
            Node::Scalar(Scalar::Literal(Literal::Text(_) | Literal::Bytes(_) | Literal::Int(_)))
        )
    }
}
