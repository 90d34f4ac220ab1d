//! Counts work and ends it at a limit, the same for the same input on every machine.

/// Steps that one proof, or several together, may take, each well below a microsecond.
#[derive(Debug)]
pub struct Budget {
    left: u64,
    /// How often steps were requested and refused; this reveals code that continues regardless.
    refused: u64,
}

/// Steps of one proof.
///
/// A step is a literal looked at, an edge of an automaton walked, or a candidate tried. The longest proofs of the
/// tests end within 50 ms by a wide margin, and memory grows by at most a few hundred bytes a step.
pub(super) const STEPS_MAX: u64 = 60_000;

/// Levels of values that one proof follows; a deeper difference is not looked for.
pub(super) const LEVELS_MAX: usize = 40;

impl Budget {
    /// A budget of this many steps.
    pub const fn of(steps: u64) -> Self {
        Self { left: steps, refused: 0 }
    }

    /// Takes `steps`; returns `false` if fewer are left, and from then on.
    pub fn take(&mut self, steps: usize) -> bool {
        match self.left.checked_sub(steps as u64) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.left = 0;
                self.refused += 1;
                false
            }
        }
    }

    /// Steps that are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// How often steps were requested and refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether nothing is left.
    pub const fn is_spent(&self) -> bool {
        self.left == 0
    }
}
