//! Work done in; an end to it out, the same for the same input on every machine.

/// Steps that one proof may take, each well below a microsecond, and levels it may nest.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

/// Steps of one proof.
///
/// A step is a literal looked at, an edge of an automaton walked, or a candidate tried. The longest proofs of the
/// tests end within 50 ms by a wide margin, and memory grows by at most a few hundred bytes a step.
const STEPS_MAX: u64 = 60_000;

/// Levels of values that one proof follows; a deeper difference is not looked for.
pub(super) const LEVELS_MAX: usize = 40;

impl Budget {
    /// A full one.
    pub(super) const fn new() -> Self {
        Self { left: STEPS_MAX }
    }

    /// Takes `steps`; `false` when there are not so many left, and from then on.
    pub(super) fn take(&mut self, steps: usize) -> bool {
        match self.left.checked_sub(steps as u64) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.left = 0;
                false
            }
        }
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}
