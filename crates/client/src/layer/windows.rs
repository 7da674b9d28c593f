//! How long a policy's limit lasts, for the headers that tell it.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use quorate_core::{Algorithm, Policy, PolicyVersion, Rate};

use crate::client::Client;

/// Seconds by policy name, of one policy set.
#[derive(Debug, Default)]
pub(super) struct Windows {
    version: PolicyVersion,
    seconds: HashMap<String, u64>,
}

impl Windows {
    /// Those of the newest policy set known. `cache` is filled anew where a decision was made under a newer one.
    pub(super) fn current(cache: &ArcSwap<Windows>, client: &Client, decided: PolicyVersion) -> Arc<Windows> {
        let known = cache.load();
        if decided <= known.version {
            return known.clone();
        }
        let set = client.policies();
        let seconds = set.policies.iter().map(|policy| (policy.name.clone(), window(policy))).collect();
        let newer = Arc::new(Windows { version: set.version, seconds });
        cache.store(newer.clone());
        newer
    }

    pub(super) fn seconds(&self, policy: &str) -> Option<u64> {
        self.seconds.get(policy).copied()
    }
}

/// Seconds, rounded up, in which a whole limit comes back: a window, the time a bucket takes to fill, or a queue to drain.
fn window(policy: &Policy) -> u64 {
    let span = |units: u64, rate: Rate| {
        let micros = u128::from(units) * u128::from(rate.period.0.unsigned_abs());
        micros.div_ceil(u128::from(rate.units.max(1)))
    };
    let micros = match policy.algorithm {
        Algorithm::FixedWindow { window, .. }
        | Algorithm::SlidingLog { window, .. }
        | Algorithm::SlidingCounter { window, .. } => u128::from(window.0.unsigned_abs()),
        Algorithm::TokenBucket { capacity, refill } => span(capacity, refill),
        Algorithm::LeakyBucket { queue, rate } => span(queue.saturating_add(1), rate),
    };
    u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use quorate_core::Span;

    use super::*;

    #[test]
    fn a_window_is_what_a_whole_limit_takes() {
        let second = Span(1_000_000);
        let seconds = |algorithm| window(&Policy::new("p", algorithm));
        assert_eq!(seconds(Algorithm::FixedWindow { limit: 9, window: Span(60 * 1_000_000) }), 60);
        assert_eq!(seconds(Algorithm::SlidingLog { limit: 9, window: Span(1_000) }), 1, "never 0");
        assert_eq!(seconds(Algorithm::SlidingCounter { limit: 9, window: Span(1_000_001) }), 2, "rounded up");
        let rate = |units| Rate { units, period: second };
        assert_eq!(seconds(Algorithm::TokenBucket { capacity: 200, refill: rate(3) }), 67);
        assert_eq!(seconds(Algorithm::LeakyBucket { queue: 20, rate: rate(5) }), 5);
        let year = Rate { units: 1, period: Span(366 * 86_400 * 1_000_000) };
        assert!(seconds(Algorithm::TokenBucket { capacity: 1_000_000_000_000, refill: year }) > 1 << 60);
    }
}
