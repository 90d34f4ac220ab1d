//! Draws random bytes that nobody can predict, or from a seed bytes that can be drawn again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The source of a process's ids, ephemeral keys and jitter. Clones draw from one source.
///
/// An identity's key never comes from here: it always comes from the system.
#[derive(Clone)]
pub struct Random(Source);

#[derive(Clone)]
enum Source {
    System(Arc<Mutex<Reserve>>),
    Seeded(Arc<Mutex<u64>>),
}

/// Bytes drawn from the system and not yet given out: a system call gives many as fast as few.
struct Reserve {
    bytes: [u8; RESERVE_BYTES],
    /// How many are left, at the end.
    left: usize,
}

impl Reserve {
    /// Fills `into`, which is no longer than the whole reserve.
    fn take(&mut self, into: &mut [u8]) -> Result<(), getrandom::Error> {
        if self.left < into.len() {
            self.left = 0;
            getrandom::fill(&mut self.bytes)?;
            self.left = RESERVE_BYTES;
        }
        let start = RESERVE_BYTES - self.left;
        // First, so that nothing is ever given twice.
        self.left -= into.len();
        let given = &mut self.bytes[start..start + into.len()];
        into.copy_from_slice(given);
        // It is a secret of whoever has it.
        given.fill(0);
        Ok(())
    }
}

impl Random {
    /// The system's source.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(Mutex::new(Reserve { bytes: [0; RESERVE_BYTES], left: 0 }))))
    }

    /// The same bytes for the same seed, for simulations: the seed reveals every byte.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(seed))))
    }

    /// Fresh bytes. **Errors:** the system has no randomness.
    pub fn bytes<const N: usize>(&self) -> Result<[u8; N], getrandom::Error> {
        let mut bytes = [0; N];
        match &self.0 {
            Source::System(_) if N > RESERVE_BYTES => getrandom::fill(&mut bytes)?,
            // A panic while it is held loses bytes at worst.
            Source::System(reserve) => {
                reserve.lock().unwrap_or_else(PoisonError::into_inner).take(&mut bytes)?;
            }
            Source::Seeded(state) => {
                // The state changes in single steps, so a panic leaves none half done.
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                for chunk in bytes.chunks_mut(size_of::<u64>()) {
                    chunk.copy_from_slice(&split_mix(&mut state).to_be_bytes()[..chunk.len()]);
                }
            }
        }
        Ok(bytes)
    }

    /// A fresh number, uniformly distributed. **Errors:** the system has none.
    pub fn u32(&self) -> Result<u32, getrandom::Error> {
        self.bytes().map(u32::from_be_bytes)
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System(_) => "Random(system)",
            Source::Seeded(_) => "Random(seeded)",
        })
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): each state gives another number, none the same twice in 2⁶⁴.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bytes drawn from the system at once: ids for some thirty messages.
const RESERVE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_gives_its_bytes_again_and_another_seed_others() {
        let drawn = |seed| {
            let random = Random::seeded(seed);
            let ids: Vec<[u8; 16]> = (0..4).map(|_| random.clone().bytes().unwrap()).collect();
            ids
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert_ne!(drawn(7)[0], drawn(7)[1], "clones draw on, not anew");
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // The first outputs for the seed 1234567, as the reference implementation in C prints them.
        let mut state = 1_234_567;
        let drawn: Vec<_> = (0..3).map(|_| split_mix(&mut state)).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_system_gives_other_bytes_each_time() {
        let random = Random::system();
        // Of a size that does not divide the reserve, from two owners, through many reserves.
        let sources = [random.clone(), random.clone()];
        let drawn: HashSet<[u8; 15]> =
            (0..1_000).map(|number: usize| sources[number % 2].bytes().unwrap()).collect();
        assert_eq!(drawn.len(), 1_000);
        assert!(drawn.iter().all(|bytes| *bytes != [0; 15]), "what was given out is never given again");
        let long = random.bytes::<{ RESERVE_BYTES + 1 }>().unwrap();
        assert!(long.chunks(16).all(|chunk| chunk.len() < 16 || *chunk != [0; 16]));
    }
}
