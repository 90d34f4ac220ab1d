//! Matches map members against a table of keys, in one pass without backtracking.

use super::super::program::{Member, TABLE_KEY_BYTES_MAX, TABLE_REST_MAX, Table, TableId};
use super::head::{BREAK, Head};
use super::{Expected, Matched, Miss, Run};

impl Table {
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<(usize, &Member)> {
        if key.len() > TABLE_KEY_BYTES_MAX {
            return None;
        }
        let (from, to) = (usize::from(self.starts[key.len()]), usize::from(self.starts[key.len() + 1]));
        let at = from + self.members[from..to].iter().position(|member| *member.key == *key)?;
        Some((at, &self.members[at]))
    }
}

impl Run<'_> {
    // Kept out of `item`, whose frame stands on the stack once for each level of nesting.
    #[inline(never)]
    pub(super) fn table(&mut self, id: TableId, at: usize, head: &Head, depth: usize) -> Matched {
        let program = self.program;
        let table = &program.tables[id.0 as usize];
        let mut seen: u128 = 0;
        let mut counts = [0u64; TABLE_REST_MAX];
        let mut position = head.next;
        let mut left = head.argument;
        let indefinite = head.is_indefinite();
        loop {
            if indefinite {
                match self.bytes.get(position) {
                    Some(&BREAK) => {
                        position += 1;
                        break;
                    }
                    Some(_) => {}
                    None => return Err(self.stop(at, Expected::WellFormed)),
                }
            } else if left == 0 {
                break;
            }
            left = left.wrapping_sub(1);
            position = self.member(table, position, depth, &mut seen, &mut counts)?;
        }
        let missing = table.required & !seen;
        if missing != 0 {
            let missing = table.members.iter().enumerate().filter(|(slot, _)| missing >> slot & 1 == 1);
            let first = missing.map(|(_, member)| member).min_by_key(|member| member.place);
            self.note(
                position,
                at,
                first.map_or(Expected::Nothing, |member| Expected::Member(member.key_node)),
            );
            return Err(Miss::No);
        }
        if let Some(rest) = table.rest.iter().zip(counts).position(|(rest, count)| count < rest.least) {
            self.note(position, at, Expected::More(id, rest));
            return Err(Miss::No);
        }
        Ok(position)
    }

    /// One member whose key is at `at`; gives the end of its value.
    pub(super) fn member(
        &mut self,
        table: &Table,
        at: usize,
        depth: usize,
        seen: &mut u128,
        counts: &mut [u64; TABLE_REST_MAX],
    ) -> Matched {
        let key = self.head(at)?;
        if key.major == 3 && !key.is_indefinite() {
            let value_at = self.skip(at)?;
            if let Some((slot, member)) = table.find(&self.bytes[key.next..value_at]) {
                return self.slot(table, slot, member, at, value_at, depth, seen, counts);
            }
        } else if key.major == 3 {
            // A chunked key is compared with each: rare, and never written by us.
            let value_at = self.skip(at)?;
            for (slot, member) in table.members.iter().enumerate() {
                self.quiet += 1;
                let fits = self.item(member.key_node, at, depth);
                self.quiet -= 1;
                match fits {
                    Ok(_) => return self.slot(table, slot, member, at, value_at, depth, seen, counts),
                    Err(Miss::No | Miss::Cut) => {}
                    Err(Miss::Stop) => return Err(Miss::Stop),
                }
            }
        }
        self.rest(table, at, depth, counts)
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one pass over one map, passed down once")]
    fn slot(
        &mut self,
        table: &Table,
        slot: usize,
        member: &Member,
        key_at: usize,
        value_at: usize,
        depth: usize,
        seen: &mut u128,
        counts: &mut [u64; TABLE_REST_MAX],
    ) -> Matched {
        if *seen & 1 << slot == 0 {
            match self.item(member.value, value_at, depth) {
                Ok(end) => {
                    *seen |= 1 << slot;
                    return Ok(end);
                }
                Err(Miss::Stop) => return Err(Miss::Stop),
                Err(Miss::No | Miss::Cut) if member.cut => return Err(Miss::No),
                Err(Miss::No | Miss::Cut) => {}
            }
        } else if member.cut {
            // The key came before: `cbor::check` refuses such a map, and no entry is left for it here either.
            self.note(key_at, key_at, Expected::Nothing);
            return Err(Miss::No);
        }
        self.rest(table, key_at, depth, counts)
    }

    /// A member that no named entry took.
    pub(super) fn rest(
        &mut self,
        table: &Table,
        at: usize,
        depth: usize,
        counts: &mut [u64; TABLE_REST_MAX],
    ) -> Matched {
        for (entry, count) in table.rest.iter().zip(counts) {
            self.quiet += 1;
            let key = self.item(entry.key.node, at, depth);
            self.quiet -= 1;
            let value_at = match key {
                Ok(value_at) => value_at,
                Err(Miss::No | Miss::Cut) => continue,
                Err(Miss::Stop) => return Err(Miss::Stop),
            };
            match self.item(entry.value, value_at, depth) {
                Ok(end) => {
                    *count += 1;
                    return Ok(end);
                }
                Err(Miss::No | Miss::Cut) if !entry.key.cut => {}
                Err(Miss::Stop) => return Err(Miss::Stop),
                Err(Miss::No | Miss::Cut) => return Err(Miss::No),
            }
        }
        self.note(at, at, Expected::Nothing);
        Err(Miss::No)
    }
}
