//! This process's share of a policy: the same policy with smaller numbers, each rounded down.
//!
//! A share is never exceeded, over any span and by any burst, since limits, capacities and places are rounded down to whole
//! units, and rates by stretching their period. So where the share of a limit is less than one unit, nothing is granted: to let
//! each process have one now and then could, all together, grant more than the whole limit.

use quorate_core::{Algorithm, OnUnavailable, Policy, Rate, Span, caps};

/// A fraction of at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    /// As the policy wants it: its own share, or one part for each live client.
    pub(super) fn of(wish: OnUnavailable, live_clients: u64) -> Share {
        match wish {
            OnUnavailable::Local { share_ppm: Some(ppm) } => {
                Share { part: u64::from(ppm).min(1_000_000), whole: 1_000_000 }
            }
            // This process is one of them, whether it was counted or not.
            _ => Share { part: 1, whole: live_clients.max(1) },
        }
    }

    fn units(self, units: u64) -> u64 {
        (u128::from(units) * u128::from(self.part) / u128::from(self.whole)) as u64
    }

    /// None where it is too slow to be a rate.
    fn rate(self, rate: Rate) -> Option<Rate> {
        let period = (rate.period.0 as u128 * u128::from(self.whole)).div_ceil(u128::from(self.part.max(1)));
        match i64::try_from(period) {
            Ok(us) if us <= caps::SPAN_MAX_US && self.part > 0 => Some(Rate { units: rate.units, period: Span(us) }),
            _ => Some(Rate { units: self.units(rate.units), ..rate }).filter(|rate| rate.units > 0),
        }
    }
}

/// The share of a policy.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) policy: Policy,
    /// Nothing that costs anything is granted, whatever the policy above says.
    pub(super) nothing: bool,
}

/// The policy on that share of its limit.
pub(super) fn shared(policy: &Policy, share: Share) -> Shared {
    let (algorithm, nothing) = scaled(policy.algorithm, share);
    // Where nothing is granted, the numbers stay such that what was charged before is still known.
    let algorithm = if nothing { nothing_of(policy.algorithm) } else { algorithm };
    let small = Policy { algorithm, description: String::new(), ..policy.clone() };
    if small.validate_up_to(caps::EXACT_UNITS).is_ok() {
        return Shared { policy: small, nothing };
    }
    let nothing = Policy { algorithm: nothing_of(policy.algorithm), ..small };
    Shared { policy: nothing, nothing: true }
}

fn scaled(algorithm: Algorithm, share: Share) -> (Algorithm, bool) {
    let unchanged = (algorithm, true);
    match algorithm {
        Algorithm::FixedWindow { limit, window } => {
            (Algorithm::FixedWindow { limit: share.units(limit), window }, false)
        }
        Algorithm::SlidingLog { limit, window } => (Algorithm::SlidingLog { limit: share.units(limit), window }, false),
        Algorithm::SlidingCounter { limit, window } => {
            (Algorithm::SlidingCounter { limit: share.units(limit), window }, false)
        }
        Algorithm::TokenBucket { capacity, refill } => share
            .rate(refill)
            .map_or(unchanged, |refill| (Algorithm::TokenBucket { capacity: share.units(capacity), refill }, false)),
        Algorithm::LeakyBucket { queue, rate } => match (share.units(queue.saturating_add(1)), share.rate(rate)) {
            (0, _) | (_, None) => unchanged,
            (places, Some(rate)) => (Algorithm::LeakyBucket { queue: places - 1, rate }, false),
        },
    }
}

/// The same algorithm and pace, and the least that it can be set to.
fn nothing_of(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::FixedWindow { window, .. } => Algorithm::FixedWindow { limit: 0, window },
        Algorithm::SlidingLog { window, .. } => Algorithm::SlidingLog { limit: 0, window },
        Algorithm::SlidingCounter { window, .. } => Algorithm::SlidingCounter { limit: 0, window },
        Algorithm::TokenBucket { refill, .. } => Algorithm::TokenBucket { capacity: 0, refill },
        Algorithm::LeakyBucket { rate, .. } => Algorithm::LeakyBucket { queue: 0, rate },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span(1_000_000);

    fn of(algorithm: Algorithm, ppm: u32) -> (Algorithm, bool) {
        let share = Share::of(OnUnavailable::Local { share_ppm: Some(ppm) }, 7);
        let shared = shared(&Policy::new("p", algorithm), share);
        shared.policy.validate().unwrap();
        (shared.policy.algorithm, shared.nothing)
    }

    #[test]
    fn limits_are_rounded_down_and_rates_slowed_down() {
        let window = |limit| Algorithm::FixedWindow { limit, window: SECOND };
        assert_eq!(of(window(19), 100_000), (window(1), false));
        assert_eq!(of(window(9), 100_000), (window(0), false));
        assert_eq!(of(window(9), 1_000_000), (window(9), false));
        let bucket =
            |capacity, period| Algorithm::TokenBucket { capacity, refill: Rate { units: 7, period: Span(period) } };
        assert_eq!(of(bucket(25, 1_000_000), 100_000), (bucket(2, 10_000_000), false));
        assert_eq!(of(bucket(25, 1_000_000), 300_000), (bucket(7, 3_333_334), false), "rounded towards slow");
        let queue = |queue, period| Algorithm::LeakyBucket { queue, rate: Rate { units: 1, period: Span(period) } };
        assert_eq!(of(queue(20, 1_000), 100_000), (queue(1, 10_000), false), "two of twenty-one places");
        assert_eq!(of(queue(8, 1_000), 100_000), (queue(0, 1_000), true), "less than one place");
    }

    #[test]
    fn a_rate_too_slow_for_its_share_is_slowed_in_units_or_is_none() {
        let year = 366 * 24 * 3600 * 1_000_000;
        let bucket = |capacity, units| Algorithm::TokenBucket { capacity, refill: Rate { units, period: Span(year) } };
        assert_eq!(of(bucket(100, 25), 100_000), (bucket(10, 2), false));
        assert_eq!(of(bucket(100, 5), 100_000), (bucket(0, 5), true));
    }

    #[test]
    fn without_a_share_each_live_client_has_one_part() {
        let local = OnUnavailable::Local { share_ppm: None };
        assert_eq!(Share::of(local, 4).units(11), 2);
        assert_eq!(Share::of(local, 0).units(11), 11, "there is this one");
        assert_eq!(Share::of(OnUnavailable::FailOpen, 3).units(11), 3, "where the check alone asks for it");
        assert_eq!(Share::of(local, u64::MAX).units(u64::MAX - 1), 0);
    }
}
