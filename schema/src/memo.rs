//! Chooses the container size above which verdicts are remembered.
//!
//! If references form a cycle, the `jsonschema` crate remembers the verdict of each container under each target for the
//! whole walk, and drops none. For many small containers this table was several times the size of the payload. Only
//! large containers are worth remembering: they take long to check again, and there are few. So containers below a size
//! get no identity to be remembered by. It is the smallest size at which the others fit into the budget.

use capd_proto::cbor::{Error, Kind, Reader};

use super::survey::Levels;

/// Which containers are remembered: those of at least so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memo {
    pub(super) bytes_min: usize,
}

/// Bytes of one verdict in the table: up to three slots, since it is copied into one of twice the slots when seven of
/// eight are taken, and each slot is a target, a value, the verdict and a byte beside them.
const VERDICT_BYTES: usize = 3 * (3 * size_of::<usize>() + 1) * 8 / 7;

impl Memo {
    /// Remembers what has room in so many bytes, of `payload` of `count` values, under `targets` references.
    pub(super) fn within(bytes: usize, payload: &[u8], count: u64, levels: Levels, targets: usize) -> Self {
        // Nothing is remembered where no reference leads back.
        let Levels::EachPayloadLevel(_) = levels else { return Self::default() };
        let containers_max = bytes / (VERDICT_BYTES * targets.max(1));
        if count <= containers_max as u64 {
            return Self::default();
        }
        let mut sizes = Sizes([0; usize::BITS as usize]);
        // It has been checked, so nothing fails here.
        let _checked = sizes.take(&mut Reader::new(payload));
        Self { bytes_min: sizes.least(containers_max) }
    }
}

/// How many containers there are of each size, by the position of the highest bit of their bytes.
struct Sizes([usize; usize::BITS as usize]);

impl Sizes {
    /// Counts the item that is next and all in it; its depth is bounded.
    fn take(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let start = reader.position();
        let kind = reader.kind()?;
        let mut left = match kind {
            Kind::Array => reader.array()?,
            Kind::Map => reader.map()?,
            _ => return reader.skip().map(drop),
        };
        while reader.has_next(&mut left) {
            if kind == Kind::Map {
                reader.skip()?;
            }
            self.take(reader)?;
        }
        self.0[(reader.position() - start).ilog2() as usize] += 1;
        Ok(())
    }

    /// The least size that no more than so many containers reach.
    fn least(&self, containers_max: usize) -> usize {
        let mut containers = 0;
        for (bit, count) in self.0.iter().enumerate().rev() {
            containers += count;
            if containers > containers_max {
                return 2 << bit;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_of_the_largest_containers_are_remembered_as_have_room() {
        // A list of eight lists, each of four empty ones, and of a text.
        let mut payload = vec![0x89];
        for _ in 0..8 {
            payload.extend([0x84, 0x80, 0x80, 0x80, 0xa0]);
        }
        payload.extend([0x61, b'x']);
        let circle = Levels::EachPayloadLevel(1);
        let count = 42;
        let remembered = |containers: usize, targets: usize| {
            Memo::within(containers * targets * VERDICT_BYTES, &payload, count, circle, targets).bytes_min
        };
        assert_eq!([remembered(42, 1), remembered(41, 1), remembered(41, 7)], [0, 0, 0]);
        assert_eq!([remembered(40, 1), remembered(9, 1), remembered(9, 3)], [2, 2, 2]);
        assert_eq!([remembered(8, 1), remembered(1, 1)], [8, 8]);
        assert!(remembered(0, 1) > payload.len());
        assert_eq!(Memo::within(0, &payload, count, Levels::Fixed(3), 1), Memo::default());
    }
}
