//! The bytes of an envelope on their way out, and a large item among them that nobody has copied.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// An encoded envelope: its bytes, of which one large item may lie apart, as it came.
///
/// What is passed on is mostly somebody's params or result within a few new fields. Copying a large one would hold it twice.
#[derive(Clone, Debug)]
pub enum Encoded {
    /// All of it, one piece.
    Whole(Bytes),
    /// The fields, and an item. Shared, so that the many that are whole are no larger for it.
    Apart(Arc<Apart>),
}

/// An encoded envelope and an item that it lacks.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Everything but the item.
    fields: Bytes,
    /// Where in `fields` the item belongs.
    at: usize,
    item: Bytes,
}

impl Encoded {
    /// Length of an item from which on it lies apart: what is smaller may pin a buffer much larger than itself.
    pub const APART_BYTES_MIN: usize = 64 * 1024;

    /// `fields` with `item` at an offset of them, which is no larger than their length.
    pub fn apart(fields: Bytes, at: usize, item: Bytes) -> Self {
        Self::Apart(Arc::new(Apart { fields, at, item }))
    }

    /// Its length. **Units:** bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Apart(apart) => apart.fields.len() + apart.item.len(),
        }
    }

    /// Whether there is nothing of it.
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

    /// All of it as one piece; copies what lies apart.
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
