//! Indexes one checked CBOR item: where its larger containers end, and the order of their keys.
//!
//! Values are read in place, so the size of a payload bounds its cost, however many values it has. The index only holds
//! what is slow to find again and what the payload's bytes pay for: a container's end costs [`MARK_PRICE`] of its
//! bytes, the key order of an object [`ORDER_PRICE`] bytes per member. Together they never exceed the size of the
//! payload. Everything else is short, or found by walking.

use capd_proto::cbor::{Error, Head, Kind, Reader, short_bytes};
use capd_proto::limits::CBOR_DEPTH_MAX;

use super::values::{Mark, UNORDERED, Values, by_length};

/// Members from which an object's keys may be kept in order; fewer are found faster one by one.
const ORDERED_COUNT_MIN: u32 = 9;

/// Bytes of a container for each mark in it, its own included, and as many again once; a mark has a quarter of that.
const MARK_PRICE: usize = 4 * size_of::<Mark>();
/// Bytes of an object for each key in it that is kept in order, thrice a key for four.
const ORDER_PRICE: (usize, usize) = (4 * size_of::<u32>(), 3);
/// Keys of one payload that are put in order where they do not stand so, which takes longer than all else that is noted.
const SORTED_MAX: usize = 64 * 1024;
/// Payloads from which what is noted is counted first, so that its memory is taken once and exactly.
const COUNTED_BYTES_MIN: usize = 16 * 1024;
/// Marks, and keys in order, for which memory is kept between payloads.
const KEPT_MAX: usize = 1024;

/// What is known of one payload.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By where they stand.
    marks: Vec<Mark>,
    order: Vec<u32>,
    /// Values of any kind, keys among them.
    count: u64,
    /// Deepest nesting, 0 for a scalar.
    height: usize,
    /// Longest key, in bytes.
    key_bytes: usize,
}

/// The item is not of JSON's data model, or not CBOR.
#[derive(Debug)]
pub(super) struct NotJson;

impl From<Error> for NotJson {
    fn from(_: Error) -> Self {
        Self
    }
}

impl Index {
    /// Notes what `input` holds, which is exactly one item.
    pub(super) fn record(&mut self, input: &[u8]) -> Result<(), NotJson> {
        self.marks.clear();
        self.order.clear();
        (self.count, self.height, self.key_bytes) = (0, 0, 0);
        if input.len() >= COUNTED_BYTES_MIN {
            let mut counts = Self::default();
            let noted = Survey::new(input, &mut counts, false).whole()?;
            self.marks.reserve_exact(noted.marks);
            self.order.reserve_exact(noted.keys);
        }
        Survey::new(input, self, true).whole()?;
        // A container is noted at its end, behind those in it.
        self.marks.sort_unstable_by_key(|mark| mark.at);
        Ok(())
    }

    /// The values, over the input that was recorded.
    pub(super) fn values<'a>(&'a self, input: &'a [u8]) -> Values<'a> {
        Values::new(input, &self.marks, &self.order)
    }

    /// Values of any kind that were recorded, keys among them.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Deepest nesting of what was recorded, 0 for a scalar.
    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// Longest path to a value of what was recorded, in bytes, escapes aside.
    pub(super) fn path_bytes(&self) -> usize {
        self.height * (self.key_bytes + 1)
    }

    /// What is noted, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<Mark>() + self.order.capacity() * size_of::<u32>()
    }

    /// Gives memory back that only an unusually large payload needed.
    pub(super) fn trim(&mut self) {
        if self.marks.capacity() > KEPT_MAX || self.order.capacity() > KEPT_MAX {
            *self = Self::default();
        }
    }
}

/// What was noted.
#[derive(Clone, Copy, Default)]
struct Noted {
    marks: usize,
    keys: usize,
}

/// The one walk over a payload.
struct Survey<'a, 'i> {
    input: &'a [u8],
    /// Where the walk stands.
    at: usize,
    index: &'i mut Index,
    /// What was noted up to there.
    noted: Noted,
    /// Whether what is found is kept, or only counted.
    is_kept: bool,
    /// Keys that may still be put in order.
    sorted_left: usize,
}

/// A container whose items are being walked.
struct Open {
    start: usize,
    /// What was noted before it.
    noted: Noted,
    /// Items or pairs that are left; `None` up to a break.
    left: Option<u64>,
}

impl<'a, 'i> Survey<'a, 'i> {
    fn new(input: &'a [u8], index: &'i mut Index, is_kept: bool) -> Self {
        Self { input, at: 0, index, noted: Noted::default(), is_kept, sorted_left: SORTED_MAX }
    }

    fn whole(mut self) -> Result<Noted, NotJson> {
        position(self.input.len())?;
        self.value(0)?;
        if self.at == self.input.len() { Ok(self.noted) } else { Err(NotJson) }
    }

    #[inline]
    fn value(&mut self, depth: usize) -> Result<(), NotJson> {
        self.index.count += 1;
        match self.input.get(self.at).and_then(|first| short_bytes(*first)) {
            Some(bytes) => {
                // One that ends behind the input is refused where the next look finds nothing.
                self.at += bytes;
                Ok(())
            }
            None => self.any_value(depth),
        }
    }

    #[inline(never)]
    fn any_value(&mut self, depth: usize) -> Result<(), NotJson> {
        let head = self.reader().head()?;
        match head.kind() {
            Kind::Array => return self.array(head, depth + 1),
            Kind::Map => return self.object(head, depth + 1),
            Kind::Text | Kind::Bytes => return self.string(head),
            Kind::Negative if i64::try_from(head.argument).is_err() => return Err(NotJson),
            Kind::Float if !self.reader().float()?.is_finite() => return Err(NotJson),
            Kind::Unsigned | Kind::Negative | Kind::Float | Kind::Bool | Kind::Null => {}
            Kind::Tag | Kind::Undefined | Kind::Simple | Kind::Break => return Err(NotJson),
        }
        self.at += head.head_bytes;
        Ok(())
    }

    /// Moves over the string that `head` opens.
    fn string(&mut self, head: Head) -> Result<(), NotJson> {
        if head.is_indefinite() {
            let mut reader = self.reader();
            reader.skip()?;
            self.at = reader.position();
            return Ok(());
        }
        let start = self.at + head.head_bytes;
        let bytes = usize::try_from(head.argument).map_err(|_| NotJson)?;
        self.at = start.checked_add(bytes).filter(|end| *end <= self.input.len()).ok_or(NotJson)?;
        Ok(())
    }

    fn array(&mut self, head: Head, depth: usize) -> Result<(), NotJson> {
        let mut array = self.open(head, depth)?;
        let mut count = 0;
        while self.has_next(&mut array) {
            self.value(depth)?;
            count += 1;
        }
        self.close(&array, count, UNORDERED)
    }

    fn object(&mut self, head: Head, depth: usize) -> Result<(), NotJson> {
        let mut object = self.open(head, depth)?;
        let mut count = 0;
        while self.has_next(&mut object) {
            self.key()?;
            self.value(depth)?;
            count += 1;
        }
        let order = if count < ORDERED_COUNT_MIN { UNORDERED } else { self.order(&object, count)? };
        self.close(&object, count, order)
    }

    #[inline]
    fn key(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        match self.input.get(start) {
            Some(first @ 0x60..0x78) => self.at += 1 + usize::from(*first & 0x1f),
            _ => {
                let head = self.reader().head()?;
                if head.kind() != Kind::Text {
                    return Err(NotJson);
                }
                self.string(head)?;
            }
        }
        self.index.count += 1;
        self.index.key_bytes = self.index.key_bytes.max(self.at - start);
        Ok(())
    }

    /// Puts the keys of an object in order, if it is long enough for that, and says where they begin.
    fn order(&mut self, object: &Open, count: u32) -> Result<u32, NotJson> {
        let (price, part) = ORDER_PRICE;
        let keys = self.noted.keys - object.noted.keys + count as usize;
        if price * keys > part * (self.at - object.start) || !self.is_marked(object) {
            return Ok(UNORDERED);
        }
        self.noted.keys += count as usize;
        let order = self.index.order.len();
        if self.is_kept {
            let mut again = Reader::new(self.input);
            again.set_position(object.start);
            let mut left = again.map()?;
            while again.has_next(&mut left) {
                self.index.order.push(position(again.position())?);
                again.skip()?;
                again.skip()?;
            }
            let values = Values::new(self.input, &[], &[]);
            let compare = |a: &u32, b: &u32| by_length(&values.key(*a), &values.key(*b));
            let keys = &mut self.index.order[order..];
            if !keys.is_sorted_by(|a, b| compare(a, b).is_le()) {
                let Some(left) = self.sorted_left.checked_sub(keys.len()) else {
                    self.index.order.truncate(order);
                    return Ok(UNORDERED);
                };
                self.sorted_left = left;
                keys.sort_unstable_by(compare);
            }
        }
        position(order)
    }

    fn open(&mut self, head: Head, depth: usize) -> Result<Open, NotJson> {
        self.index.height = self.index.height.max(depth);
        if depth > CBOR_DEPTH_MAX {
            return Err(NotJson);
        }
        let left = if head.is_indefinite() { None } else { Some(head.argument) };
        let open = Open { start: self.at, noted: self.noted, left };
        self.at += head.head_bytes;
        Ok(open)
    }

    #[inline]
    fn has_next(&mut self, open: &mut Open) -> bool {
        let mut reader = self.reader();
        let has_next = reader.has_next(&mut open.left);
        self.at = reader.position();
        has_next
    }

    /// Notes where a container ends, if it is long enough for what is noted in it already.
    fn close(&mut self, open: &Open, count: u32, order: u32) -> Result<(), NotJson> {
        if self.is_marked(open) {
            self.noted.marks += 1;
            if self.is_kept {
                let mark = Mark { at: position(open.start)?, end: position(self.at)?, count, order };
                self.index.marks.push(mark);
            }
        }
        Ok(())
    }

    /// Whether a container pays for its mark. The first one costs twice as much, which leaves the rest to what it stands
    /// in.
    fn is_marked(&self, open: &Open) -> bool {
        MARK_PRICE * (self.noted.marks - open.noted.marks + 2) <= self.at - open.start
    }

    fn reader(&self) -> Reader<'a> {
        let mut reader = Reader::new(self.input);
        reader.set_position(self.at);
        reader
    }
}

fn position(offset: usize) -> Result<u32, NotJson> {
    u32::try_from(offset).map_err(|_| NotJson)
}
