//! Randomness, from outside: the operating system's, or a seed's.
//!
//! Secrets and ids are drawn through [`Random`], so that a simulated cluster draws the same ones from the same seed.

use std::fmt::Debug;
use std::sync::Mutex;

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// A source of random bytes.
pub trait Random: Debug + Send + Sync + 'static {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// A number, evenly from all of 64 bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The operating system's, fit for secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        SysRng.try_fill_bytes(bytes).expect("the operating system gives random bytes for as long as it runs");
    }
}

/// A seed's: the same bytes in the same order from the same seed. For simulation; not fit for secrets.
#[derive(Debug)]
pub struct SeededRandom(Mutex<StdRng>);

impl SeededRandom {
    /// A source of its own.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bytes_and_another_gives_others() {
        let draw = |seed| {
            let source = SeededRandom::new(seed);
            [source.next_u64(), source.next_u64()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn the_system_gives_bytes() {
        assert_ne!((SystemRandom.next_u64(), SystemRandom.next_u64()), (0, 0));
    }
}
