//! Checks the common items in few steps each, and hands all others to the plain walk.
//!
//! The quick walk refuses nothing and repeats nothing: an array or a map continues after an item that the plain walk
//! accepted.

use super::{Checker, Refused, TagPolicy, is_payload_key, is_plain_key, precedes};
use crate::cbor::checked::Span;
use crate::cbor::item::head_at;
use crate::cbor::short::{Key, Run, ascii_end, leading_bytes, value_bytes};
use crate::limits::{CBOR_CONTAINER_ITEMS_MAX, CBOR_DEPTH_MAX};

impl<'a> Checker<'a> {
    /// Checks the item at `start`, of which nothing is known.
    pub(super) fn any_item(&mut self, start: usize, depth: usize) -> Result<usize, Refused> {
        if let Some(&first) = self.bytes.get(start)
            && self.items_left > 0
            && self.is_quick()
        {
            match first {
                0x78 => return self.text(start, depth),
                0x80..0x98 => return self.array(start, start + 1, usize::from(first & 0x1f), depth),
                0xa0..0xb8 => return self.map(start, start + 1, usize::from(first & 0x1f), depth),
                0x98..=0x99 | 0xb8..=0xb9 => return self.long_container(start, depth),
                _ => {}
            }
        }
        self.other_item(start, depth)
    }

    /// Checks the text at `start`, whose length stands in one byte of its own.
    #[inline(never)]
    fn text(&mut self, start: usize, depth: usize) -> Result<usize, Refused> {
        let Some(end) = ascii_end(self.bytes, start) else { return self.other_item(start, depth) };
        self.items_left -= 1;
        Ok(end)
    }

    /// Checks the item at `start` by the plain walk.
    #[inline(never)]
    fn other_item(&mut self, start: usize, depth: usize) -> Result<usize, Refused> {
        self.plain_item(start, depth).map_err(|error| self.refuse(error))
    }

    /// Checks the array or map at `start`, whose length stands in one or two bytes of its own.
    #[inline(never)]
    fn long_container(&mut self, start: usize, depth: usize) -> Result<usize, Refused> {
        let Ok(head) = head_at(self.bytes, start) else { return self.other_item(start, depth) };
        let (at, count) = (start + head.head_bytes, head.argument as usize);
        if head.major == 4 { self.array(start, at, count, depth) } else { self.map(start, at, count, depth) }
    }

    /// Checks the array at `start` with so many items, of which the first is at `at`.
    #[inline(never)]
    fn array(&mut self, start: usize, at: usize, count: usize, depth: usize) -> Result<usize, Refused> {
        let bytes = self.bytes;
        if count > bytes.len() - at || depth >= CBOR_DEPTH_MAX {
            return self.other_item(start, depth);
        }
        let depth = depth + 1;
        // Payload in a map has to be noted.
        let has_maps = depth < CBOR_DEPTH_MAX && self.tags == TagPolicy::Anywhere;
        self.items_left -= 1;
        let (mut at, mut left) = (at, count);
        while left > 0 {
            if has_maps && matches!(bytes.get(at), Some(0xa0..0xb8)) {
                let run = Run { at, left, items_left: self.items_left }.behind_maps(bytes);
                (at, left, self.items_left) = (run.at, run.left, run.items_left);
                if left == 0 {
                    break;
                }
            }
            at = self.walk(at, depth)?;
            left -= 1;
        }
        Ok(at)
    }

    /// Checks the map at `start` with so many pairs, of which the first is at `at`.
    #[inline(never)]
    fn map(&mut self, start: usize, mut at: usize, count: usize, depth: usize) -> Result<usize, Refused> {
        let bytes = self.bytes;
        if 2 * count > bytes.len() - at || depth >= CBOR_DEPTH_MAX {
            return self.other_item(start, depth);
        }
        let depth = depth + 1;
        let first_key = at;
        let mut last = Last { at, order: 0, is_ascending: true };
        self.items_left -= 1;
        for _ in 0..count {
            if let Some(key) = Key::at(bytes, at, last.order)
                && self.items_left >= 2
            {
                (last.at, last.order) = (at, key.order);
                at += key.bytes;
                if self.tags == TagPolicy::UnderPayloadKeys && key.is_payload() {
                    self.items_left -= 1;
                    at = self.payload_value(at, depth)?;
                } else if let Some(value_bytes) = value_bytes(bytes, at) {
                    self.items_left -= 2;
                    at += value_bytes;
                } else {
                    self.items_left -= 1;
                    at = self.any_item(at, depth)?;
                }
            } else {
                at = self.loose_pair(at, first_key, depth, &mut last)?;
            }
        }
        if !last.is_ascending {
            self.unique_keys(first_key, count).map_err(|error| self.refuse(error))?;
            self.ends.enclose(start, at);
        }
        Ok(at)
    }

    /// Checks the pair at `at`, whose key may be of any kind, and notes whether the keys are still in order.
    #[inline(never)]
    fn loose_pair(
        &mut self,
        at: usize,
        first_key: usize,
        depth: usize,
        last: &mut Last,
    ) -> Result<usize, Refused> {
        let end = self.walk(at, depth)?;
        let key = &self.bytes[at..end];
        // Items do not begin with one another, so that what stands behind the last key does not matter.
        let is_next = at == first_key || precedes(&self.bytes[last.at..], key);
        let is_ascending = last.is_ascending && is_next && is_plain_key(key);
        *last = Last { at, order: leading_bytes(key), is_ascending };
        if self.tags == TagPolicy::UnderPayloadKeys && is_payload_key(key) {
            return self.payload_value(end, depth);
        }
        self.walk(end, depth)
    }

    /// Checks the value at `at` that is payload, where tags may stand, and notes where it is.
    pub(super) fn payload_value(&mut self, at: usize, depth: usize) -> Result<usize, Refused> {
        self.tags = TagPolicy::Anywhere;
        let end = self.walk(at, depth);
        self.tags = TagPolicy::UnderPayloadKeys;
        self.payload = self.payload.or_longer(Span::new(at, end?));
        end
    }
}

/// The last key of a map.
struct Last {
    at: usize,
    /// Its first eight bytes as a number.
    order: u64,
    /// Whether the keys so far are in ascending order.
    is_ascending: bool,
}

const _: () =
    assert!(CBOR_CONTAINER_ITEMS_MAX >= u16::MAX as usize, "a length of two bytes is within the bound");
