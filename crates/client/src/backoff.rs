//! How long to wait before trying again: capped, exponential, with full jitter, so that clients that failed together do not
//! come back together.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::caps;

/// The client's only source of chance, seeded from outside: waits, and where to begin.
#[derive(Debug)]
pub(crate) struct Chance(SmallRng);

impl Chance {
    pub(crate) fn seeded(seed: u64) -> Self {
        Chance(SmallRng::seed_from_u64(seed))
    }

    /// From 0 up to what the failures in a row (at least one) allow.
    pub(crate) fn wait(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let most = (caps::BACKOFF_FIRST * (1 << doublings)).min(caps::BACKOFF_MAX);
        Duration::from_micros(self.0.random_range(0..=most.as_micros() as u64))
    }

    /// A whole number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    /// A seed for another.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_cap_and_begin_at_nothing() {
        let mut chance = Chance::seeded(1);
        for failures in 1..100 {
            let most = (0..1000).map(|_| chance.wait(failures)).max().unwrap();
            let bound = (caps::BACKOFF_FIRST * (1 << (failures - 1).min(16))).min(caps::BACKOFF_MAX);
            assert!(most <= bound && most > bound * 9 / 10, "{failures}: {most:?} of {bound:?}");
        }
    }
}
