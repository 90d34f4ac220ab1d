//! Defines a literal: a node of one of two schemas, wanted or unwanted.

use super::node::Id;

/// A node that a value is to fit, or is not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lit(u32);

const SIDE: u32 = 1 << 31;
const UNWANTED: u32 = 1 << 30;

impl Lit {
    /// Node `id` of the first schema, or of the second, which a value is to fit.
    pub(super) const fn new(side: usize, id: Id) -> Self {
        // A document of 256 KiB has far fewer nodes than would reach the flags.
        Self(if side == 0 { id } else { id | SIDE })
    }

    /// Which schema it is of, 0 or 1.
    pub(super) const fn side(self) -> usize {
        (self.0 >> 31) as usize
    }

    pub(super) const fn id(self) -> Id {
        self.0 & !(SIDE | UNWANTED)
    }

    /// Whether a value is to fit it.
    pub(super) const fn is_wanted(self) -> bool {
        self.0 & UNWANTED == 0
    }

    /// The opposite.
    pub(super) const fn not(self) -> Self {
        Self(self.0 ^ UNWANTED)
    }

    /// Another node of the same schema, as much wanted.
    pub(super) const fn with(self, id: Id) -> Self {
        Self(self.0 & (SIDE | UNWANTED) | id)
    }

    /// Another node of the same schema, wanted.
    pub(super) const fn wanted(self, id: Id) -> Self {
        Self(self.0 & SIDE | id)
    }
}
