//! Holds the bytes of an outgoing envelope, and a large item among them without copying it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// An encoded envelope. One large item of it may be kept apart, as received.
///
/// A relayed message is mostly received params or a result, within a few new fields. Copying a large item would hold it
/// twice.
#[derive(Clone, Debug)]
pub enum Encoded {
    /// All of it, one piece.
    Whole(Bytes),
    /// The fields, and an item. Shared, so that this variant does not enlarge the other.
    Apart(Arc<Apart>),
}

/// An encoded envelope without one item, and that item.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Everything but the item.
    fields: Bytes,
    /// Where in `fields` the item belongs.
    at: usize,
    item: Bytes,
}

impl Encoded {
    /// The length from which an item is kept apart: a smaller one could pin a buffer much larger than itself.
    pub const APART_BYTES_MIN: usize = 64 * 1024;

    /// `fields` with `item` at offset `at`, which must be within them.
    pub fn apart(fields: Bytes, at: usize, item: Bytes) -> Self {
        Self::Apart(Arc::new(Apart { fields, at, item }))
    }

    /// `item` of `message`, to keep or pass on: copied if it would pin a large message that is mostly something else.
    pub fn item_of(message: &Bytes, item: &Bytes) -> Bytes {
        if message.len() >= Self::APART_BYTES_MIN && item.len() < message.len() / 2 {
            Bytes::copy_from_slice(item)
        } else {
            item.clone()
        }
    }

    /// Its length. **Units:** bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Apart(apart) => apart.fields.len() + apart.item.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its pieces in order, without copying.
    pub fn pieces(&self) -> [Bytes; 3] {
        match self {
            Self::Whole(bytes) => [bytes.clone(), Bytes::new(), Bytes::new()],
            Self::Apart(apart) => {
                let Apart { fields, at, item } = &**apart;
                [fields.slice(..*at), item.clone(), fields.slice(*at..)]
            }
        }
    }

    /// All of it as one piece; copies an item that is apart.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Apart(apart) => {
                let Apart { fields, at, item } = &*apart;
                let mut bytes = BytesMut::with_capacity(fields.len() + item.len());
                for piece in [&fields[..*at], item, &fields[*at..]] {
                    bytes.extend_from_slice(piece);
                }
                bytes.freeze()
            }
        }
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }
}

/// The same bytes are the same envelope, in however many pieces.
impl PartialEq for Encoded {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |encoded: &Self| encoded.pieces().into_iter().flatten();
        self.len() == other.len() && bytes(self).eq(bytes(other))
    }
}

impl Eq for Encoded {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_in_pieces_is_the_envelope() {
        let item = Bytes::from(vec![7; 3]);
        let whole = Encoded::from([&b"head"[..], &item, b"tail"].concat());
        let apart = Encoded::apart("headtail".into(), 4, item.clone());
        assert_eq!(apart, whole);
        assert_eq!((apart.len(), apart.is_empty()), (11, false));
        assert_eq!(apart.pieces()[1].as_ptr(), item.as_ptr());
        assert_eq!(apart.into_bytes(), whole.clone().into_bytes());
        assert_ne!(whole, Encoded::apart("headtail".into(), 3, item));
    }

    #[test]
    fn an_item_keeps_no_large_message_that_is_mostly_something_else() {
        let message = Bytes::from(vec![7; Encoded::APART_BYTES_MIN]);
        let is_copied = |length| {
            let item = message.slice(..length);
            let kept = Encoded::item_of(&message, &item);
            assert_eq!(kept, item);
            kept.as_ptr() != item.as_ptr()
        };
        assert!(is_copied(message.len() / 2 - 1));
        assert!(!is_copied(message.len() / 2));
        let small = message.slice(..message.len() - 1);
        assert_eq!(Encoded::item_of(&small, &small.slice(..9)).as_ptr(), small.as_ptr());
    }
}
