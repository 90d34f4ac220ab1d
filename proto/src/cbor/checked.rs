//! Holds an item that passed the strict check, with the facts that the check found on its way.

/// One item that passed [`check`](super::check), for decoders.
///
/// The check has already walked the payload of the message, so a later reader skips it in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    bytes: &'a [u8],
    payload: Span,
}

impl<'a> Checked<'a> {
    /// The item in `bytes`, with the longest payload in it.
    pub(crate) const fn new(bytes: &'a [u8], payload: Span) -> Self {
        Self { bytes, payload }
    }

    /// The item's bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) const fn payload(self) -> Span {
        self.payload
    }
}

impl<'a> From<&'a [u8]> for Checked<'a> {
    /// Bytes that the check has accepted, when nobody kept what it learnt.
    fn from(bytes: &'a [u8]) -> Self {
        Self::new(bytes, Span::NONE)
    }
}

/// Where one item stands, in bytes from the start of those that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// No item: none starts there.
    pub(crate) const NONE: Self = Self { start: usize::MAX, end: usize::MAX };

    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The longer one.
    pub(crate) const fn or_longer(self, other: Self) -> Self {
        if other.end - other.start > self.end - self.start { other } else { self }
    }

    /// The same item among the bytes from `start` to `end` alone, if it stands there.
    pub(crate) const fn within(self, start: usize, end: usize) -> Self {
        if start <= self.start && self.end <= end {
            Self { start: self.start - start, end: self.end - start }
        } else {
            Self::NONE
        }
    }

    /// Where the item ends that starts at `at`, if it is this one.
    #[inline]
    pub(crate) const fn end_from(self, at: usize) -> Option<usize> {
        if self.start == at { Some(self.end) } else { None }
    }
}
