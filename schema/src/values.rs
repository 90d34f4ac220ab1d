//! Reads the values of an indexed payload in place.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use capd_proto::cbor::{Head, Kind, Reader, short_bytes};

/// A container whose end is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Where its head stands.
    pub(super) at: u32,
    /// The offset behind it.
    pub(super) end: u32,
    /// Elements or members.
    pub(super) count: u32,
    /// Where its keys begin in the index's order, [`by_length`]; [`UNORDERED`] if they are not kept.
    pub(super) order: u32,
}

/// The order of keys that are not kept in order.
pub(super) const UNORDERED: u32 = u32::MAX;

/// An index read beside the input it was made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    input: &'a [u8],
    marks: &'a [Mark],
    order: &'a [u32],
    /// Whether the input is the bytes of one text, and no CBOR.
    is_bare: bool,
}

impl<'a> Values<'a> {
    /// The values of `input`, of which `marks` and `order` are known.
    pub(super) const fn new(input: &'a [u8], marks: &'a [Mark], order: &'a [u32]) -> Self {
        Self { input, marks, order, is_bare: false }
    }

    /// One text.
    pub(super) const fn bare(text: &'a str) -> Self {
        Self { input: text.as_bytes(), marks: &[], order: &[], is_bare: true }
    }

    /// The whole payload.
    pub(super) const fn input(&self) -> &'a [u8] {
        self.input
    }

    /// The head of the value at `at`.
    #[inline]
    pub(super) fn head(&self, at: u32) -> Head {
        // What was recorded has a head wherever a value stands.
        self.reader(at).head().unwrap_or(NULL)
    }

    /// Bytes of the value at `at`.
    #[inline]
    pub(super) fn bytes(&self, at: u32) -> u64 {
        if self.is_bare { self.input.len() as u64 } else { u64::from(self.after(at) - at) }
    }

    /// The kind of the value at `at`.
    #[inline]
    pub(super) fn kind(&self, at: u32) -> Kind {
        if self.is_bare {
            return Kind::Text;
        }
        self.input.get(at as usize).map_or(Kind::Null, |first| Kind::of(*first))
    }

    /// A reader at `at`.
    #[inline]
    pub(super) fn reader(&self, at: u32) -> Reader<'a> {
        let mut reader = Reader::new(self.input);
        reader.set_position(at as usize);
        reader
    }

    fn mark(&self, at: u32) -> Option<&'a Mark> {
        self.marks.binary_search_by_key(&at, |mark| mark.at).ok().map(|found| &self.marks[found])
    }

    /// The offset behind the value at `at`.
    #[inline]
    pub(super) fn after(&self, at: u32) -> u32 {
        match self.input.get(at as usize).and_then(|first| short_bytes(*first)) {
            Some(bytes) => at + bytes as u32,
            None => self.after_any(at),
        }
    }

    #[inline(never)]
    fn after_any(&self, at: u32) -> u32 {
        let mut next = at as usize;
        let mut left = 1;
        while left > 0
            && let Some(first) = self.input.get(next)
        {
            left -= 1;
            if let Some(bytes) = short_bytes(*first) {
                next += bytes;
                continue;
            }
            let head = self.head(next as u32);
            match head.major {
                _ if head.is_indefinite() => next = self.after_indefinite(next as u32),
                2 | 3 => next = (next + head.head_bytes).saturating_add(head.argument as usize),
                4 | 5 => match self.mark(next as u32) {
                    Some(mark) => next = mark.end as usize,
                    None => {
                        left += head.argument * u64::from(head.major - 3);
                        next += head.head_bytes;
                    }
                },
                _ => next += head.head_bytes,
            }
        }
        next.min(self.input.len()) as u32
    }

    fn after_indefinite(&self, at: u32) -> usize {
        if !matches!(self.kind(at), Kind::Array | Kind::Map) {
            let mut reader = self.reader(at);
            // A head that were none would end the walk.
            return reader.skip().map_or(self.input.len(), |_| reader.position());
        }
        if let Some(mark) = self.mark(at) {
            return mark.end as usize;
        }
        let mut items = self.items(at);
        while items.next().is_some() {}
        items.at as usize
    }

    /// Where the elements of the array at `at` stand, or keys and values in turn of an object.
    #[inline]
    pub(super) fn items(&self, at: u32) -> Items<'_> {
        let head = self.head(at);
        let left = match head.major {
            4 | 5 if head.is_indefinite() => None,
            4 => Some(head.argument),
            5 => Some(2 * head.argument),
            _ => Some(0),
        };
        Items { values: self, at: at + head.head_bytes as u32, is_given: false, left }
    }

    /// Where the keys and values of the object at `at` stand.
    #[inline]
    pub(super) fn members(&self, at: u32) -> Members<'_> {
        Members(self.items(at))
    }

    /// Elements or members of the container at `at`.
    #[inline]
    pub(super) fn count(&self, at: u32) -> usize {
        let head = self.head(at);
        match head.major {
            4 | 5 if !head.is_indefinite() => head.argument as usize,
            4 | 5 => match self.mark(at) {
                Some(mark) => mark.count as usize,
                None => self.items(at).count() / usize::from(head.major - 3),
            },
            _ => 0,
        }
    }

    /// The bytes of the text at `at`, as JSON has it: byte strings are base64url.
    #[inline]
    pub(super) fn text(&self, at: u32) -> Cow<'a, str> {
        match self.key(at) {
            // Checked input is UTF-8, so this borrows.
            Cow::Borrowed(bytes) => {
                str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
            }
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The same as bytes, of which a definite text needs no look at every one.
    #[inline]
    pub(super) fn key(&self, at: u32) -> Cow<'a, [u8]> {
        if self.is_bare {
            return Cow::Borrowed(self.input);
        }
        let head = self.head(at);
        if head.major == 3 && !head.is_indefinite() {
            let start = at as usize + head.head_bytes;
            let end = start.saturating_add(head.argument as usize);
            return Cow::Borrowed(self.input.get(start..end).unwrap_or_default());
        }
        self.rewritten(at)
    }

    /// The bytes of a string that JSON has in another form than it stands there.
    #[inline(never)]
    fn rewritten(&self, at: u32) -> Cow<'a, [u8]> {
        let mut reader = self.reader(at);
        match self.kind(at) {
            Kind::Bytes => reader
                .bytes()
                .map_or(Cow::Borrowed(&[]), |bytes| Cow::Owned(URL_SAFE_NO_PAD.encode(&bytes).into_bytes())),
            Kind::Text => {
                reader.text().map_or(Cow::Borrowed(&[]), |text| Cow::Owned(text.into_owned().into_bytes()))
            }
            _ => Cow::Borrowed(&[]),
        }
    }

    /// The value of the object at `at` under `key`, and how many keys were compared with it.
    pub(super) fn member(&self, at: u32, key: &[u8]) -> (Option<u32>, u64) {
        let mut looks = 0;
        let mut compared = |member: u32| {
            looks += 1;
            self.key(member)
        };
        let found = match self.mark(at).filter(|mark| mark.order != UNORDERED) {
            Some(mark) => {
                let keys = &self.order[mark.order as usize..][..mark.count as usize];
                let found = keys.binary_search_by(|member| by_length(&compared(*member), key)).ok();
                found.map(|found| self.after(keys[found]))
            }
            None => {
                let mut members = self.members(at);
                members.find(|(member, _)| *compared(*member) == *key).map(|(_, value)| value)
            }
        };
        (found, looks)
    }
}

/// The order of keys in deterministic CBOR (RFC 8949 4.2.1), in which they mostly stand already: shorter ones first.
pub(super) fn by_length(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Where items of a container stand.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    values: &'a Values<'a>,
    /// The item that was given last, or else the next one; behind a break, what stands there.
    at: u32,
    is_given: bool,
    /// Items that are still to be given; `None` up to a break.
    left: Option<u64>,
}

impl Iterator for Items<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.left == Some(0) {
            return None;
        }
        if self.is_given {
            self.at = self.values.after(self.at);
        }
        self.is_given = true;
        match &mut self.left {
            Some(left) => *left -= 1,
            None => {
                let mut reader = self.values.reader(self.at);
                if reader.take_break() || reader.is_at_end() {
                    (self.at, self.left) = (reader.position() as u32, Some(0));
                    return None;
                }
            }
        }
        Some(self.at)
    }
}

/// Where the keys and values of one object stand.
#[derive(Clone, Debug)]
pub(super) struct Members<'a>(Items<'a>);

impl Iterator for Members<'_> {
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        let key = self.0.next()?;
        Some((key, self.0.next()?))
    }
}

/// What stands where nothing does.
const NULL: Head = Head { major: 7, info: 22, argument: 0, head_bytes: 1 };
