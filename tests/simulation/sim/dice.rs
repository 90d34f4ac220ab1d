//! A seed in, choices out: the same choices for the same seed.

use std::ops::Range;

use capd::net::Random;

/// One stream of choices.
#[derive(Clone)]
pub struct Dice(Random);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Random::seeded(seed))
    }

    /// Another stream, so that one part's choices do not move another's.
    pub fn fork(&self) -> Self {
        Self::new(self.u64())
    }

    pub fn u64(&self) -> u64 {
        u64::from_be_bytes(self.0.bytes().expect("a seeded source always has bytes"))
    }

    /// One of `range`, each as likely.
    pub fn within(&self, range: Range<u64>) -> u64 {
        // The bias of a modulus is far below what any world could show.
        range.start + self.u64() % (range.end - range.start).max(1)
    }

    /// True in so many cases of a thousand.
    pub fn chance(&self, permille: u64) -> bool {
        self.within(0..1_000) < permille
    }

    /// One of these.
    pub fn pick<T: Copy>(&self, choices: &[T]) -> T {
        let index = self.within(0..choices.len() as u64);
        choices[usize::try_from(index).expect("an index of a slice")]
    }
}
