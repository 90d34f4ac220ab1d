//! One checked CBOR item in; a flat tape of its values in the order they stand out, reused from payload to payload.
//!
//! The tape holds positions, not copies: a text is where its bytes stand in the input. Only what JSON sees in
//! another form than the bytes have it (byte strings, texts in chunks) is written once, to a side buffer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use capd_proto::cbor::{Error, Kind, Reader};

/// One value; a container's members follow it directly, and `end` is the first entry behind them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    /// Bytes `at..at + length` of the input, or of the side buffer when `joined`.
    Text {
        at: u32,
        length: u32,
        joined: bool,
    },
    Array {
        count: u32,
        end: u32,
    },
    /// Keys and values in turn. From [`ORDERED_COUNT_MIN`] members on, `order` is where its keys' entries begin in
    /// the tape's order, by bytes.
    Object {
        count: u32,
        end: u32,
        order: u32,
    },
}

/// Members from which an object's keys are kept in order; fewer are found faster one by one.
pub(super) const ORDERED_COUNT_MIN: u32 = 9;

/// Entries that a tape keeps its memory for between payloads; a larger one gives it back.
const ENTRIES_KEPT_MAX: usize = 64 * 1024;

/// The values of one payload.
#[derive(Debug, Default)]
pub(super) struct Tape {
    entries: Vec<Entry>,
    order: Vec<u32>,
    joined: String,
    /// Deepest nesting, 0 for a scalar.
    height: usize,
    /// Longest key, in bytes.
    key_bytes: usize,
}

/// A tape read beside the input it was made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) input: &'a [u8],
    pub(super) entries: &'a [Entry],
    pub(super) order: &'a [u32],
    pub(super) joined: &'a str,
}

/// The item is not of JSON's data model, or not CBOR.
#[derive(Debug)]
pub(super) struct NotJson;

impl From<Error> for NotJson {
    fn from(_: Error) -> Self {
        Self
    }
}

impl Tape {
    /// Notes the values of `input`, which holds exactly one item.
    pub(super) fn record(&mut self, input: &[u8]) -> Result<(), NotJson> {
        self.entries.clear();
        self.order.clear();
        self.joined.clear();
        self.height = 0;
        self.key_bytes = 0;
        let mut reader = Reader::new(input);
        self.value(&mut reader, input, 0)?;
        if reader.is_at_end() { Ok(()) } else { Err(NotJson) }
    }

    /// The values, over the input that was recorded.
    pub(super) fn values<'a>(&'a self, input: &'a [u8]) -> Values<'a> {
        Values { input, entries: &self.entries, order: &self.order, joined: &self.joined }
    }

    /// Deepest nesting of what was recorded, 0 for a scalar.
    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// Longest path to a value of what was recorded, in bytes, escapes aside.
    pub(super) fn path_bytes(&self) -> usize {
        self.height * (self.key_bytes + 1)
    }

    /// Gives memory back that only an unusually large payload needed.
    pub(super) fn trim(&mut self) {
        if self.entries.capacity() > ENTRIES_KEPT_MAX || self.joined.capacity() > ENTRIES_KEPT_MAX * 16 {
            *self = Self::default();
        }
    }

    fn value(&mut self, reader: &mut Reader<'_>, input: &[u8], depth: usize) -> Result<(), NotJson> {
        let entry = match reader.kind()? {
            Kind::Unsigned => Entry::Unsigned(reader.uint()?),
            Kind::Negative => Entry::Negative(i64::try_from(reader.int()?).map_err(|_| NotJson)?),
            Kind::Text => self.text(reader)?,
            Kind::Bytes => {
                let bytes = reader.bytes()?;
                self.join(|joined| URL_SAFE_NO_PAD.encode_string(bytes, joined))?
            }
            Kind::Bool => Entry::Bool(reader.bool()?),
            Kind::Null => {
                reader.null()?;
                Entry::Null
            }
            Kind::Float => {
                Entry::Float(Some(reader.float()?).filter(|float| float.is_finite()).ok_or(NotJson)?)
            }
            Kind::Array => return self.array(reader, input, depth + 1),
            Kind::Map => return self.object(reader, input, depth + 1),
            Kind::Tag | Kind::Undefined | Kind::Simple | Kind::Break => return Err(NotJson),
        };
        self.entries.push(entry);
        Ok(())
    }

    fn array(&mut self, reader: &mut Reader<'_>, input: &[u8], depth: usize) -> Result<(), NotJson> {
        self.deepen(depth)?;
        let mut left = reader.array()?;
        let start = self.entries.len();
        self.entries.push(Entry::Null);
        let mut count = 0;
        while reader.has_next(&mut left) {
            self.value(reader, input, depth)?;
            count += 1;
        }
        self.entries[start] = Entry::Array { count, end: position(self.entries.len())? };
        Ok(())
    }

    fn object(&mut self, reader: &mut Reader<'_>, input: &[u8], depth: usize) -> Result<(), NotJson> {
        self.deepen(depth)?;
        let mut left = reader.map()?;
        let start = self.entries.len();
        self.entries.push(Entry::Null);
        let mut count = 0;
        while reader.has_next(&mut left) {
            if reader.kind()? != Kind::Text {
                return Err(NotJson);
            }
            let key = self.text(reader)?;
            if let Entry::Text { length, .. } = key {
                self.key_bytes = self.key_bytes.max(length as usize);
            }
            self.entries.push(key);
            self.value(reader, input, depth)?;
            count += 1;
        }
        let order = self.order.len();
        if count >= ORDERED_COUNT_MIN {
            let values = Values { input, entries: &self.entries, order: &[], joined: &self.joined };
            self.order.extend(Members { values, next: position(start + 1)?, left: count });
            // Keys in deterministic order stand nearly so already, which the sort uses.
            self.order[order..].sort_by(|a, b| values.text(*a).cmp(values.text(*b)));
        }
        self.entries[start] =
            Entry::Object { count, end: position(self.entries.len())?, order: position(order)? };
        Ok(())
    }

    fn deepen(&mut self, depth: usize) -> Result<(), NotJson> {
        self.height = self.height.max(depth);
        if depth > capd_proto::limits::CBOR_DEPTH_MAX { Err(NotJson) } else { Ok(()) }
    }

    fn text(&mut self, reader: &mut Reader<'_>) -> Result<Entry, NotJson> {
        let head = reader.head()?;
        if head.is_indefinite() {
            let text = reader.text()?;
            return self.join(|joined| joined.push_str(&text));
        }
        // The checked input is UTF-8 already; reading the text here would look at every byte once more.
        let at = reader.position() + head.head_bytes;
        reader.skip()?;
        Ok(Entry::Text { at: position(at)?, length: position(reader.position() - at)?, joined: false })
    }

    fn join(&mut self, write: impl FnOnce(&mut String)) -> Result<Entry, NotJson> {
        let at = self.joined.len();
        write(&mut self.joined);
        Ok(Entry::Text { at: position(at)?, length: position(self.joined.len() - at)?, joined: true })
    }
}

fn position(offset: usize) -> Result<u32, NotJson> {
    u32::try_from(offset).map_err(|_| NotJson)
}

impl<'a> Values<'a> {
    /// The entry behind the value at `index`.
    pub(super) fn after(self, index: u32) -> u32 {
        match self.entries[index as usize] {
            Entry::Array { end, .. } | Entry::Object { end, .. } => end,
            Entry::Null
            | Entry::Bool(_)
            | Entry::Unsigned(_)
            | Entry::Negative(_)
            | Entry::Float(_)
            | Entry::Text { .. } => index + 1,
        }
    }

    /// The bytes of the text at `index`; none for anything else.
    pub(super) fn text(self, index: u32) -> &'a [u8] {
        match self.entries[index as usize] {
            Entry::Text { at, length, joined } => {
                let bytes = if joined { self.joined.as_bytes() } else { self.input };
                &bytes[at as usize..at as usize + length as usize]
            }
            Entry::Null
            | Entry::Bool(_)
            | Entry::Unsigned(_)
            | Entry::Negative(_)
            | Entry::Float(_)
            | Entry::Array { .. }
            | Entry::Object { .. } => &[],
        }
    }

    /// The key entries of the object at `index`, in the order they stand.
    pub(super) fn members(self, index: u32, count: u32) -> Members<'a> {
        Members { values: self, next: index + 1, left: count }
    }

    /// The value entry of the object at `index` under `key`.
    pub(super) fn member(self, index: u32, key: &[u8]) -> Option<u32> {
        let Entry::Object { count, order, .. } = self.entries[index as usize] else { return None };
        let found = if count < ORDERED_COUNT_MIN {
            self.members(index, count).find(|member| self.text(*member) == key)
        } else {
            let keys = &self.order[order as usize..][..count as usize];
            keys.binary_search_by(|member| self.text(*member).cmp(key)).ok().map(|at| keys[at])
        };
        found.map(|member| member + 1)
    }
}

/// The key entries of one object.
#[derive(Clone, Debug)]
pub(super) struct Members<'a> {
    values: Values<'a>,
    next: u32,
    left: u32,
}

impl Iterator for Members<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let member = self.next;
        self.next = self.values.after(member + 1);
        Some(member)
    }
}
