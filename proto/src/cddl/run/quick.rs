//! Runs the first pass: the same verdict as the nodes, in fewer steps and without a reason.
//!
//! The first pass only accepts. The second pass decides and explains everything else, so a shortcut here may leave an
//! item to the nodes, but must never contradict them.

use super::super::program::{Dispatch, NodeId, QuickKind, Slots, Step, TABLE_REST_MAX, Table, TableId};
use super::head::{Head, string_end};
use super::{Expected, Matched, Miss, Run};

/// The members of one map by the slot of their key.
struct Found {
    values: [u32; Slots::MAX],
    present: u32,
    depth: usize,
}

impl Run<'_> {
    /// As [`Run::item`].
    #[inline]
    pub(super) fn quick(&mut self, id: NodeId, at: usize, depth: usize) -> Matched {
        let firsts = &self.program.quick[id.0 as usize].firsts;
        if let Some(&first) = self.bytes.get(at)
            && firsts[usize::from(first >> 6)] >> (first & 63) & 1 == 1
        {
            let end = at + 1 + if first >> 6 == 1 { usize::from(first & 31) } else { 0 };
            if end <= self.bytes.len() {
                return Ok(end);
            }
        }
        self.quick_any(id, at, depth)
    }

    fn quick_any(&mut self, id: NodeId, at: usize, depth: usize) -> Matched {
        let program = self.program;
        let form = &program.quick[id.0 as usize];
        match &form.kind {
            QuickKind::Skip(majors) => match self.bytes.get(at) {
                Some(first) if majors >> (first >> 5) & 1 == 1 => self.skip(at),
                Some(_) => Err(Miss::No),
                None => Err(self.stop(at, Expected::WellFormed)),
            },
            QuickKind::Text(wanted) => match self.short_text(at) {
                Some(text) if *text == **wanted => Ok(at + 1 + text.len()),
                Some(_) => Err(Miss::No),
                None => self.item(form.node, at, depth),
            },
            QuickKind::TextBut(excluded) => match self.short_text(at) {
                Some(text) if excluded.iter().any(|other| **other == *text) => Err(Miss::No),
                Some(text) => Ok(at + 1 + text.len()),
                None => self.item(form.node, at, depth),
            },
            QuickKind::Bytes(sizes) => {
                let head = self.head(at)?;
                if head.major != 2 {
                    return Err(Miss::No);
                }
                if head.is_indefinite() {
                    return self.item(form.node, at, depth);
                }
                let Some(end) = string_end(self.bytes, &head) else {
                    return Err(self.stop(at, Expected::WellFormed));
                };
                if sizes.contain(head.argument) { Ok(end) } else { Err(Miss::No) }
            }
            QuickKind::Choice(choices, dispatch) => {
                self.spend(at, 1)?;
                self.quick_choice(choices, dispatch.as_ref(), at, depth)
            }
            QuickKind::Table(table) => match self.definite(5, form.node, at, depth)? {
                Some(head) => self.quick_table(*table, &head, depth + 1),
                None => self.item(form.node, at, depth),
            },
            QuickKind::Slots(slots) => match self.definite(5, form.node, at, depth)? {
                Some(head) => match self.quick_slots(slots, &head, depth + 1)? {
                    Some(end) => Ok(end),
                    None => self.item(form.node, at, depth),
                },
                None => self.item(form.node, at, depth),
            },
            QuickKind::Elements { least, element } => match self.definite(4, form.node, at, depth)? {
                Some(head) if head.argument >= *least => {
                    let mut position = head.next;
                    for _ in 0..head.argument {
                        position = self.quick(*element, position, depth + 1)?;
                    }
                    Ok(position)
                }
                Some(_) => Err(Miss::No),
                None => self.item(form.node, at, depth),
            },
            QuickKind::Item => self.item(form.node, at, depth),
        }
    }

    /// The content of a text whose length stands in its first byte.
    #[inline]
    fn short_text(&self, at: usize) -> Option<&[u8]> {
        let first = *self.bytes.get(at)?;
        if !(0x60..0x78).contains(&first) {
            return None;
        }
        self.bytes.get(at + 1..at + 1 + usize::from(first & 31))
    }

    /// The head of a container; `None` for one that a break ends.
    fn definite(&mut self, major: u8, id: NodeId, at: usize, depth: usize) -> Result<Option<Head>, Miss> {
        self.spend(at, 1)?;
        let head = self.container(major, id, at, depth)?;
        Ok((!head.is_indefinite()).then_some(head))
    }

    #[inline]
    fn quick_choice(
        &mut self,
        choices: &[NodeId],
        dispatch: Option<&Dispatch>,
        at: usize,
        depth: usize,
    ) -> Matched {
        let told = dispatch.and_then(|dispatch| Some((dispatch, self.locate(&dispatch.key, at)?)));
        for (nth, choice) in choices.iter().enumerate() {
            if let Some((dispatch, value_at)) = &told
                && let Some(value) = dispatch.values[nth]
            {
                // The table wants this member and its cut is final, so without it the alternative cannot match.
                match value_at.map(|value_at| self.tells(value, value_at, depth + 1)) {
                    Some(Ok(true)) => {}
                    Some(Err(miss)) => return Err(miss),
                    Some(Ok(false)) | None => continue,
                }
            }
            match self.quick(*choice, at, depth) {
                Err(Miss::No) => {}
                result @ (Ok(_) | Err(Miss::Stop | Miss::Cut)) => return result,
            }
        }
        Err(Miss::No)
    }

    /// Whether the value that tells alternatives apart is what one of them wants.
    #[inline]
    fn tells(&mut self, wanted: NodeId, at: usize, depth: usize) -> Result<bool, Miss> {
        let kind = &self.program.quick[wanted.0 as usize].kind;
        if let (QuickKind::Text(wanted), Some(text)) = (kind, self.short_text(at)) {
            return Ok(**wanted == *text);
        }
        match self.quick(wanted, at, depth) {
            Ok(_) => Ok(true),
            Err(Miss::Stop) => Err(Miss::Stop),
            Err(Miss::No | Miss::Cut) => Ok(false),
        }
    }

    /// Where the first member with that key has its value, if there is one; `None` where that takes more than a look.
    fn locate(&mut self, key: &[u8], at: usize) -> Option<Option<usize>> {
        let head = self.head(at).ok()?;
        if head.major != 5 || head.is_indefinite() {
            return None;
        }
        let mut position = head.next;
        for _ in 0..head.argument {
            let text = self.short_text(position)?;
            let value_at = position + 1 + text.len();
            if *text == *key {
                return Some(Some(value_at));
            }
            position = self.end_of(value_at)?;
        }
        Some(None)
    }

    // Kept out of `quick_any`, whose frame stands on the stack once for each level of nesting.
    #[inline(never)]
    fn quick_table(&mut self, id: TableId, head: &Head, depth: usize) -> Matched {
        let program = self.program;
        let table: &Table = &program.tables[id.0 as usize];
        let mut seen: u128 = 0;
        let mut counts = [0u64; TABLE_REST_MAX];
        let mut position = head.next;
        for _ in 0..head.argument {
            let bytes = self.bytes;
            let text = match bytes.get(position) {
                Some(first @ 0x60..0x78) => bytes.get(position + 1..position + 1 + usize::from(first & 31)),
                Some(_) | None => None,
            };
            let Some(text) = text else {
                position = self.member(table, position, depth, &mut seen, &mut counts)?;
                continue;
            };
            let value_at = position + 1 + text.len();
            position = match table.find(text) {
                Some((slot, member)) if seen >> slot & 1 == 0 => {
                    match self.quick(member.value, value_at, depth) {
                        Ok(end) => {
                            seen |= 1 << slot;
                            end
                        }
                        Err(Miss::No | Miss::Cut) if member.cut => return Err(Miss::No),
                        Err(Miss::No | Miss::Cut) => self.rest(table, position, depth, &mut counts)?,
                        Err(Miss::Stop) => return Err(Miss::Stop),
                    }
                }
                Some(_) => self.member(table, position, depth, &mut seen, &mut counts)?,
                None => self.quick_rest(table, position, depth, &mut counts)?,
            };
        }
        let complete = table.rest.iter().zip(counts).all(|(rest, count)| count >= rest.least);
        if complete && table.required & !seen == 0 { Ok(position) } else { Err(Miss::No) }
    }

    #[inline]
    fn quick_rest(
        &mut self,
        table: &Table,
        at: usize,
        depth: usize,
        counts: &mut [u64; TABLE_REST_MAX],
    ) -> Matched {
        if let Some(rest) = table.rest.first()
            && let Ok(value_at) = self.quick(rest.key.node, at, depth)
            && let Ok(end) = self.quick(rest.value, value_at, depth)
        {
            counts[0] += 1;
            return Ok(end);
        }
        self.rest(table, at, depth, counts)
    }

    /// `None` where the general matcher has to look: keys that are no short text, or stand twice.
    #[inline(never)]
    fn quick_slots(&mut self, slots: &Slots, head: &Head, depth: usize) -> Result<Option<usize>, Miss> {
        if u32::try_from(self.bytes.len()).is_err() {
            return Ok(None);
        }
        let mut found = Found { values: [0; Slots::MAX], present: 0, depth };
        let mut position = head.next;
        for _ in 0..head.argument {
            let Some(text) = self.short_text(position) else { return Ok(None) };
            let value_at = position + 1 + text.len();
            match slots.find(text) {
                Some(slot) if found.present >> slot & 1 == 1 => return Ok(None),
                Some(slot) => {
                    found.present |= 1 << slot;
                    found.values[slot] = value_at as u32;
                    position = self.skip(value_at)?;
                }
                None => match &slots.tail {
                    Some(tail) => position = self.quick(tail.value, value_at, depth)?,
                    None => return Err(Miss::No),
                },
            }
        }
        let mut taken = 0;
        for step in &slots.steps {
            if let Step::Optional(first, _) = step
                && first & !(found.present & !taken) != 0
            {
                continue;
            }
            taken = self.step(step, &found, taken).map_err(cut_is_final)?;
        }
        let left = found.present & !taken;
        let Some(tail) = &slots.tail else {
            return if left == 0 { Ok(Some(position)) } else { Err(Miss::No) };
        };
        if left & !tail.allowed != 0 {
            return Err(Miss::No);
        }
        for slot in (0..slots.keys.len()).filter(|slot| left >> slot & 1 == 1) {
            self.quick(tail.value, found.values[slot] as usize, depth)?;
        }
        Ok(Some(position))
    }

    /// The members that are taken after this step, of which `taken` were before. Each key names one member at most, so
    /// there is nothing to go back to: a choice is decided where it stands.
    fn step(&mut self, step: &Step, found: &Found, taken: u32) -> Result<u32, Miss> {
        match step {
            Step::Member { slot, value, any, cut } => {
                let bit = 1u32 << slot;
                if found.present & !taken & bit == 0 {
                    return Err(Miss::No);
                }
                if *any {
                    return Ok(taken | bit);
                }
                match self.quick(*value, found.values[usize::from(*slot)] as usize, found.depth) {
                    Ok(_) => Ok(taken | bit),
                    Err(Miss::Stop) => Err(Miss::Stop),
                    Err(Miss::No | Miss::Cut) => Err(if *cut { Miss::Cut } else { Miss::No }),
                }
            }
            Step::Sequence(steps) => {
                let mut taken = taken;
                for step in steps {
                    taken = self.step(step, found, taken)?;
                }
                Ok(taken)
            }
            Step::Choice(steps) => {
                for (first, step) in steps {
                    if first & !(found.present & !taken) != 0 {
                        continue;
                    }
                    match self.step(step, found, taken) {
                        Err(Miss::No) => {}
                        result @ (Ok(_) | Err(Miss::Stop | Miss::Cut)) => return result,
                    }
                }
                Err(Miss::No)
            }
            Step::Optional(first, _) if first & !(found.present & !taken) != 0 => Ok(taken),
            Step::Optional(_, inner) => match self.step(inner, found, taken) {
                Err(Miss::No) => Ok(taken),
                result @ (Ok(_) | Err(Miss::Stop | Miss::Cut)) => result,
            },
        }
    }
}

impl Slots {
    /// The slot of a key. Few keys share both a length and a first byte, so most are passed without a call.
    #[inline]
    fn find(&self, text: &[u8]) -> Option<usize> {
        self.keys.iter().position(|key| {
            key.len() == text.len() && key.first() == text.first() && key.get(1..) == text.get(1..)
        })
    }
}

/// RFC 8610 3.5.4: outside its map a cut is a miss like any other.
fn cut_is_final(miss: Miss) -> Miss {
    match miss {
        Miss::Stop => Miss::Stop,
        Miss::No | Miss::Cut => Miss::No,
    }
}
