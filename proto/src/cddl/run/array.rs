//! Matches array elements against a group, in order.

use super::super::program::{Group, GroupId};
use super::head::{BREAK, Head};
use super::{Expected, Matched, Miss, Run};

/// A place among the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cursor {
    /// Where the array starts.
    array: usize,
    at: usize,
    /// Elements to come; `None` where a break ends them.
    left: Option<u64>,
}

impl Run<'_> {
    // Kept out of `item`, whose frame stands on the stack once for each level of nesting.
    #[inline(never)]
    pub(super) fn array(&mut self, group: GroupId, at: usize, head: &Head, depth: usize) -> Matched {
        let start =
            Cursor { array: at, at: head.next, left: (!head.is_indefinite()).then_some(head.argument) };
        let end = self.elements(group, start, depth)?;
        if !self.at_end(end)? {
            self.note(end.at, end.at, Expected::Nothing);
            return Err(Miss::No);
        }
        Ok(end.at + usize::from(end.left.is_none()))
    }

    fn at_end(&mut self, cursor: Cursor) -> Result<bool, Miss> {
        match (cursor.left, self.bytes.get(cursor.at)) {
            (Some(left), _) => Ok(left == 0),
            (None, Some(byte)) => Ok(*byte == BREAK),
            (None, None) => Err(self.stop(cursor.array, Expected::WellFormed)),
        }
    }

    fn elements(&mut self, group: GroupId, cursor: Cursor, depth: usize) -> Result<Cursor, Miss> {
        self.spend(cursor.at, 1)?;
        let program = self.program;
        match &program.groups[group.0 as usize] {
            Group::Pending | Group::Never => {
                self.note(cursor.at, cursor.at, Expected::Nothing);
                Err(Miss::No)
            }
            Group::Same(group) => self.deeper(cursor.at, |run| run.elements(*group, cursor, depth)),
            Group::Sequence(groups) => self.deeper(cursor.at, |run| {
                groups.iter().try_fold(cursor, |cursor, group| run.elements(*group, cursor, depth))
            }),
            Group::Choice(groups) => self.deeper(cursor.at, |run| {
                for group in groups {
                    match run.elements(*group, cursor, depth) {
                        Err(Miss::No) => {}
                        result @ (Ok(_) | Err(Miss::Cut | Miss::Stop)) => return result,
                    }
                }
                Err(Miss::No)
            }),
            Group::Occurs { least, most, group } => {
                self.deeper(cursor.at, |run| run.repeated(*least, *most, *group, cursor, depth))
            }
            Group::Member { value, .. } => {
                if self.at_end(cursor)? {
                    self.note(cursor.at, cursor.array, Expected::Element);
                    return Err(Miss::No);
                }
                let at = self.item(*value, cursor.at, depth)?;
                Ok(Cursor { at, left: cursor.left.map(|left| left - 1), ..cursor })
            }
        }
    }

    /// RFC 8610 3.2: as often as it goes, up to `most`.
    fn repeated(
        &mut self,
        least: u64,
        most: u64,
        group: GroupId,
        mut cursor: Cursor,
        depth: usize,
    ) -> Result<Cursor, Miss> {
        let mut count = 0;
        while count < most {
            match self.elements(group, cursor, depth) {
                // What matches nothing does so any number of times.
                Ok(next) if next == cursor => return Ok(cursor),
                Ok(next) => cursor = next,
                Err(Miss::No) if count >= least => return Ok(cursor),
                Err(miss) => return Err(miss),
            }
            count += 1;
        }
        Ok(cursor)
    }
}
