//! Writes the few forms of protobuf that OTLP needs: fields in, their bytes appended.
//!
//! **Source:** the protobuf encoding guide; field numbers are those of `opentelemetry-proto` 1.x.

/// Appends fields of one message.
pub(super) struct Message<'a>(pub(super) &'a mut Vec<u8>);

impl Message<'_> {
    /// A string or bytes.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.tag(field, LENGTH_DELIMITED);
        varint(self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// An enum or an integer that is not negative.
    pub(super) fn uint(&mut self, field: u32, number: u64) -> &mut Self {
        self.tag(field, VARINT);
        varint(self.0, number);
        self
    }

    pub(super) fn fixed32(&mut self, field: u32, number: u32) -> &mut Self {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn fixed64(&mut self, field: u32, number: u64) -> &mut Self {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) -> &mut Self {
        self.tag(field, LENGTH_DELIMITED);
        let start = self.0.len();
        write(&mut Message(self.0));
        // The length stands before what it counts. Most are short, so the rest seldom moves by more than a byte.
        let mut length = Vec::with_capacity(VARINT_BYTES_MAX);
        varint(&mut length, (self.0.len() - start) as u64);
        self.0.splice(start..start, length);
        self
    }

    fn tag(&mut self, field: u32, kind: u64) {
        varint(self.0, (u64::from(field) << 3) | kind);
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number in a varint at the start of `bytes`, and what comes behind it.
pub(super) fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// The value of one field of a message, wherever it stands; of several the last. A field of another kind is none.
pub(super) fn field(mut message: &[u8], wanted: u32) -> Option<Field<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let (tag, rest) = read_varint(message)?;
        let (value, rest) = match tag & 7 {
            VARINT => read_varint(rest).map(|(number, rest)| (Field::Number(number), rest))?,
            LENGTH_DELIMITED => {
                let (length, rest) = read_varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Field::Bytes(bytes), rest)
            }
            FIXED64 => (Field::Number(0), rest.split_at_checked(8)?.1),
            FIXED32 => (Field::Number(0), rest.split_at_checked(4)?.1),
            _ => return None,
        };
        if tag >> 3 == u64::from(wanted) {
            found = Some(value);
        }
        message = rest;
    }
    found
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;
/// Most bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_again_and_nothing_is_read_past_an_end() {
        let mut out = Vec::new();
        let mut message = Message(&mut out);
        message.uint(1, 300).fixed64(2, 7).fixed32(3, 8).bytes(4, b"text");
        message.message(5, |inner| {
            inner.bytes(1, &[7; 200]);
        });
        assert_eq!(field(&out, 1), Some(Field::Number(300)));
        assert_eq!(field(&out, 4), Some(Field::Bytes(b"text")));
        let Some(Field::Bytes(inner)) = field(&out, 5) else { panic!("{out:?}") };
        assert_eq!(field(inner, 1), Some(Field::Bytes(&[7; 200])));
        assert_eq!(field(&out, 6), None);
        for end in 1..out.len() {
            assert_eq!(field(&out[..end], 9), None);
        }
        for wrong in
            [&[0x80; 11][..], &[0x0b, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]]
        {
            assert_eq!(field(wrong, 1), None, "{wrong:?}");
        }
    }
}
