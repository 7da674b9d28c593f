//! Randomness from a seed, and random rules that lean to the edges of what is allowed.

use quorate_core::{Algorithm, Policy, Rate, Span, caps};

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `most`, both included.
    pub fn up_to(&mut self, most: u64) -> u64 {
        if most == u64::MAX { self.next() } else { self.next() % (most + 1) }
    }

    /// Once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.up_to(n - 1) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.up_to(from.len() as u64 - 1) as usize]
    }

    /// A number whose size, not whose value, is evenly spread; 0 to `most`.
    pub fn spread(&mut self, most: u64) -> u64 {
        let bits = self.up_to(u64::from(64 - most.leading_zeros()));
        let number = if bits == 0 { 0 } else { self.next() >> (64 - bits) };
        number.min(most)
    }
}

/// How a history is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    FixedWindow,
    SlidingLog,
    SlidingCounter,
    TokenBucket,
    LeakyBucket,
}

pub const KINDS: [Kind; 5] =
    [Kind::FixedWindow, Kind::SlidingLog, Kind::SlidingCounter, Kind::TokenBucket, Kind::LeakyBucket];

fn units(random: &mut Random) -> u64 {
    match random.up_to(9) {
        0 if random.one_in(4) => 0,
        0 => random.pick(&[1, 2, 1 << 32, (1 << 32) + 1, 2_000_000_000, caps::UNITS - 1, caps::UNITS]),
        1 => random.spread(caps::UNITS),
        2 => random.up_to(caps::UNITS),
        3 => random.pick(&[97, 997, 9_973, 999_999_937]),
        _ => random.pick(&[1, 2, 3, 5, 7, 10, 12, 60, 100, 1000]),
    }
}

fn span(random: &mut Random) -> Span {
    match random.up_to(5) {
        0 => Span((random.spread(caps::SPAN_MAX_US as u64) as i64).max(caps::SPAN_MIN_US)),
        1 => Span(random.pick(&[caps::SPAN_MIN_US, caps::SPAN_MAX_US, caps::SPAN_MIN_US + 1, caps::SPAN_MAX_US - 1])),
        _ => Span::parse(random.pick(&["1ms", "7ms", "100ms", "1s", "3s", "10s", "1m", "3m", "1h", "1d", "30d"]))
            .unwrap(),
    }
}

fn rate(random: &mut Random) -> Rate {
    Rate { units: units(random).max(1), period: span(random) }
}

/// The most units that the rate works off in 2^62 microseconds, which is the edge of what a policy may be.
fn edge(rate: Rate) -> u64 {
    let most = (i128::from(caps::LONGEST_US) * i128::from(rate.units)) / i128::from(rate.period.0);
    most.min(i128::from(caps::UNITS)) as u64
}

pub fn algorithm(random: &mut Random, kind: Kind) -> Algorithm {
    match kind {
        Kind::FixedWindow => Algorithm::FixedWindow { limit: units(random), window: span(random) },
        Kind::SlidingCounter => Algorithm::SlidingCounter { limit: units(random), window: span(random) },
        Kind::SlidingLog => {
            let limit = units(random).min(caps::SLIDING_LOG_LIMIT);
            Algorithm::SlidingLog { limit, window: span(random) }
        }
        Kind::TokenBucket => {
            let refill = rate(random);
            let capacity = if random.one_in(8) { edge(refill) } else { units(random).min(edge(refill)) };
            Algorithm::TokenBucket { capacity, refill }
        }
        Kind::LeakyBucket => {
            let rate = rate(random);
            let most = edge(rate).max(1) - 1;
            let queue = if random.one_in(8) { most } else { units(random).min(most) };
            Algorithm::LeakyBucket { queue, rate }
        }
    }
}

/// The same algorithm with some of its numbers changed.
pub fn changed(random: &mut Random, old: Algorithm, kind: Kind) -> Algorithm {
    let fresh = algorithm(random, kind);
    let near = |random: &mut Random, units: u64| match random.up_to(4) {
        0 => units.saturating_sub(1),
        1 => units + 1,
        2 => units * 2,
        3 => units / 2,
        _ => units,
    };
    let new = match (old, fresh, random.up_to(2)) {
        (Algorithm::FixedWindow { limit, .. }, Algorithm::FixedWindow { window, .. }, 0) => {
            Algorithm::FixedWindow { limit, window }
        }
        (Algorithm::FixedWindow { limit, window }, _, 1) => {
            Algorithm::FixedWindow { limit: near(random, limit), window }
        }
        (Algorithm::SlidingLog { limit, .. }, Algorithm::SlidingLog { window, .. }, 0) => {
            Algorithm::SlidingLog { limit, window }
        }
        (Algorithm::SlidingLog { limit, window }, _, 1) => Algorithm::SlidingLog { limit: near(random, limit), window },
        (Algorithm::SlidingCounter { limit, .. }, Algorithm::SlidingCounter { window, .. }, 0) => {
            Algorithm::SlidingCounter { limit, window }
        }
        (Algorithm::SlidingCounter { limit, window }, _, 1) => {
            Algorithm::SlidingCounter { limit: near(random, limit), window }
        }
        (Algorithm::TokenBucket { capacity, .. }, Algorithm::TokenBucket { refill, .. }, 0) => {
            Algorithm::TokenBucket { capacity, refill }
        }
        (Algorithm::TokenBucket { capacity, refill }, _, 1) => {
            Algorithm::TokenBucket { capacity: near(random, capacity), refill }
        }
        (Algorithm::LeakyBucket { queue, .. }, Algorithm::LeakyBucket { rate, .. }, 0) => {
            Algorithm::LeakyBucket { queue, rate }
        }
        (Algorithm::LeakyBucket { queue, rate }, _, 1) => Algorithm::LeakyBucket { queue: near(random, queue), rate },
        _ => fresh,
    };
    if Policy::new("p", new).validate().is_ok() { new } else { fresh }
}
