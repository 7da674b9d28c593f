//! Which key each check asks for.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

/// How checks are spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// Each key equally often.
    Uniform,
    /// A few keys most of the time: the n-th is asked n^-s as often as the first, where s is the skew.
    Zipf,
}

/// Draws keys, the same ones for the same seed.
#[derive(Debug)]
pub struct Keys {
    prefix: String,
    keys: u64,
    zipf: Option<Zipf<f64>>,
    random: SmallRng,
}

impl Keys {
    /// Keys `{prefix}1` to `{prefix}{keys}`; at least one. `skew` is more than 0 and finite.
    pub fn new(prefix: &str, keys: u64, distribution: Distribution, skew: f64, seed: u64) -> Keys {
        let keys = keys.max(1);
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf => Zipf::new(keys as f64, skew).ok(),
        };
        Keys { prefix: prefix.into(), keys, zipf, random: SmallRng::seed_from_u64(seed) }
    }

    /// The next key.
    pub fn draw(&mut self) -> String {
        let number = match &self.zipf {
            None => self.random.random_range(1..=self.keys),
            Some(zipf) => (zipf.sample(&mut self.random) as u64).clamp(1, self.keys),
        };
        format!("{}{number}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn drawn(distribution: Distribution, seed: u64) -> HashMap<String, u32> {
        let mut keys = Keys::new("k", 100, distribution, 1.0, seed);
        let mut counts = HashMap::new();
        for _ in 0..10_000 {
            *counts.entry(keys.draw()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn a_seed_draws_the_same_again() {
        assert_eq!(drawn(Distribution::Zipf, 3), drawn(Distribution::Zipf, 3));
        assert_ne!(drawn(Distribution::Uniform, 3), drawn(Distribution::Uniform, 4));
    }

    #[test]
    fn zipf_favours_the_first_and_uniform_nobody() {
        let zipf = drawn(Distribution::Zipf, 1);
        assert!(zipf["k1"] > 1_500 && zipf["k1"] > 5 * zipf["k10"]);
        let uniform = drawn(Distribution::Uniform, 1);
        assert_eq!(uniform.len(), 100);
        assert!(uniform.values().all(|count| (50..200).contains(count)));
    }
}
