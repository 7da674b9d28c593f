//! What went wrong in other rate limiters, each as a test of a whole shard: impossible here, and to stay so.
//!
//! Named after what was reported: the project and the number of its report stand at each.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate_core::{
    Algorithm, Answer, Arc, Batch, Charge, Check, Command, Cost, Decision, Fingerprint, Group, Index, Limit,
    LimitAnswer, Policy, PolicyId, PolicySet, PolicyVersion, Rate, Receipt, RingSecret, Shard, ShardId, Span, Stamp,
    TableSecret, Term,
};

const SECOND: i64 = 1_000_000;
const START: i64 = 1_790_000_000 * SECOND;

/// A shard and its policies, asked by number and key.
struct Cluster {
    shard: Shard,
    set: PolicySet,
    index: u64,
}

fn print(policy: u32, key: &str) -> Fingerprint {
    Fingerprint::new(&RingSecret([1; 16]), &TableSecret([2; 16]), PolicyId(policy), key.as_bytes())
}

fn per_second(units: u64) -> Rate {
    Rate { units, period: Span(SECOND) }
}

impl Cluster {
    fn new(algorithms: &[Algorithm]) -> Cluster {
        let mut cluster = Cluster { shard: Shard::new(ShardId(1), Arc::WHOLE), set: PolicySet::default(), index: 0 };
        for algorithm in algorithms {
            let id = cluster.set.policies.len() as u32 + 1;
            let mut policy = Policy::new(format!("p{id}"), *algorithm);
            policy.id = PolicyId(id);
            assert_eq!(policy.validate(), Ok(()));
            cluster.set.policies.push(policy);
        }
        cluster.install(START);
        cluster
    }

    fn apply(&mut self, at: i64, command: Command) -> (Receipt, Answer) {
        self.index += 1;
        let batch = Batch { stamp: Stamp(at), groups: vec![Group { frame: None, commands: vec![(0, command)] }] };
        let applied = self.shard.apply(Term(1), Index(self.index), &batch, true);
        let place = applied.groups.into_iter().flatten().next().unwrap();
        (place.receipt, place.answer)
    }

    fn install(&mut self, at: i64) {
        self.set.version = PolicyVersion(self.set.version.0 + 1);
        assert_eq!(self.apply(at, Command::Install(self.set.clone())).1, Answer::Done);
    }

    fn change(&mut self, at: i64, policy: u32, algorithm: Algorithm) {
        self.set.policies[policy as usize - 1].algorithm = algorithm;
        self.install(at);
    }

    fn check_all(&mut self, at: i64, limits: &[(u32, &str, u64)]) -> (Receipt, Decision) {
        let limit = |&(policy, key, cost)| Limit {
            policy: PolicyId(policy),
            key: print(policy, key),
            cost: Cost::new(cost).unwrap(),
        };
        let check = Check { limits: limits.iter().map(limit).collect(), ..Check::default() };
        match self.apply(at, Command::Check(check)) {
            (receipt, Answer::Decision(decision)) => (receipt, decision),
            (_, other) => panic!("{other:?}"),
        }
    }

    fn check(&mut self, at: i64, cost: u64) -> LimitAnswer {
        self.check_all(at, &[(1, "k", cost)]).1.limits[0].clone()
    }

    fn granted(&mut self, at: i64, cost: u64) -> bool {
        self.check(at, cost).allowed
    }
}

#[test]
fn a_refund_at_zero_lets_the_next_check_through() {
    // Gubernator #156: remaining went back to 1, the status stayed OVER_LIMIT.
    let window = Span(60 * SECOND);
    for algorithm in [
        Algorithm::FixedWindow { limit: 1, window },
        Algorithm::SlidingLog { limit: 1, window },
        Algorithm::SlidingCounter { limit: 1, window },
        Algorithm::TokenBucket { capacity: 1, refill: Rate { units: 1, period: window } },
        Algorithm::LeakyBucket { queue: 0, rate: Rate { units: 1, period: window } },
    ] {
        let mut cluster = Cluster::new(&[algorithm]);
        let (receipt, decision) = cluster.check_all(START, &[(1, "k", 1)]);
        assert_eq!(decision.limits[0].remaining, 0);
        assert!(!cluster.granted(START + 1, 1));
        let charge = Charge { policy: PolicyId(1), key: print(1, "k"), cost: Cost::ONE, mark: decision.limits[0].mark };
        let refund =
            Command::Refund { receipt: receipt.position(), at: receipt.stamp, charges: [charge].into_iter().collect() };
        assert_eq!(cluster.apply(START + 2, refund).1, Answer::Undone(1), "{algorithm:?}");
        // A token bucket had won two millionths back by itself; it is not given more than it lost.
        let peek = cluster.check(START + 2, 0);
        assert_eq!((peek.remaining, peek.reset_after), (1, Span(0)), "{algorithm:?}");
        assert!(cluster.granted(START + 3, 1), "{algorithm:?}");
    }
}

#[test]
fn a_leaky_bucket_polled_often_leaks_steadily_not_to_full_at_each_period() {
    // Gubernator #118: 3 a second, polled every 100 ms.
    let mut cluster = Cluster::new(&[Algorithm::LeakyBucket { queue: 2, rate: per_second(3) }]);
    let granted = (0..100).filter(|tenth| cluster.granted(START + tenth * SECOND / 10, 1)).count();
    // Three at once, then three a second for 9.9 seconds.
    assert_eq!(granted, 3 + 29);
}

#[test]
fn a_long_idle_time_gives_at_most_the_burst() {
    // Gubernator #87, bucket4j #51: negative, or far too many.
    let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: 5, refill: per_second(1_000_000) }]);
    assert!(cluster.granted(START, 5));
    let later = START + 100 * 366 * 86_400 * SECOND;
    assert_eq!(cluster.check(later, 0).remaining, 5);
    assert!(!cluster.granted(later, 6) && cluster.granted(later, 5) && !cluster.granted(later, 1));
}

#[test]
fn a_lowered_limit_applies_at_once_and_remaining_is_not_negative() {
    // Gubernator #37, Limitador #522.
    let window = Span(60 * SECOND);
    let refill = Rate { units: 1, period: window };
    for (high, low) in [
        (Algorithm::FixedWindow { limit: 100, window }, Algorithm::FixedWindow { limit: 10, window }),
        (Algorithm::SlidingLog { limit: 100, window }, Algorithm::SlidingLog { limit: 10, window }),
        (Algorithm::SlidingCounter { limit: 100, window }, Algorithm::SlidingCounter { limit: 10, window }),
        (Algorithm::TokenBucket { capacity: 100, refill }, Algorithm::TokenBucket { capacity: 10, refill }),
        (Algorithm::LeakyBucket { queue: 99, rate: refill }, Algorithm::LeakyBucket { queue: 9, rate: refill }),
    ] {
        let mut cluster = Cluster::new(&[high]);
        assert!(cluster.granted(START, 100));
        cluster.change(START + 1, 1, low);
        let answer = cluster.check(START + 2, 1);
        assert_eq!((answer.allowed, answer.limit, answer.remaining), (false, 10, 0), "{low:?}");
        let then = START + 2 + answer.retry_after.unwrap().0;
        assert!(!cluster.granted(then - 1, 1) && cluster.granted(then, 1), "{low:?}");
    }
}

#[test]
fn a_raised_limit_helps_at_once_and_what_was_denied_was_never_counted() {
    // envoyproxy/ratelimit #185.
    let window = Span(60 * SECOND);
    let mut cluster = Cluster::new(&[Algorithm::FixedWindow { limit: 10, window }]);
    assert!(cluster.granted(START, 10));
    assert_eq!((0..1000).filter(|i| cluster.granted(START + i, 1)).count(), 0);
    cluster.change(START + 1000, 1, Algorithm::FixedWindow { limit: 20, window });
    assert_eq!(cluster.check(START + 1001, 0).remaining, 10);
    assert_eq!((0..1000).filter(|i| cluster.granted(START + 1001 + i, 1)).count(), 10);
}

#[test]
fn a_check_denied_by_a_narrow_limit_takes_nothing_from_the_broader_one() {
    // envoyproxy/ratelimit #1060.
    let window = Span(60 * SECOND);
    let mut cluster =
        Cluster::new(&[Algorithm::FixedWindow { limit: 2, window }, Algorithm::FixedWindow { limit: 100, window }]);
    for i in 0..50 {
        cluster.check_all(START + i, &[(1, "narrow", 1), (2, "broad", 1)]);
    }
    let (_, decision) = cluster.check_all(START + 50, &[(2, "broad", 0)]);
    assert_eq!(decision.limits[0].remaining, 98);
}

#[test]
fn the_stricter_of_two_limits_is_enforced() {
    // Limitador #513.
    let window = Span(60 * SECOND);
    for limits in [[3, 7], [7, 3]] {
        let mut cluster = Cluster::new(&limits.map(|limit| Algorithm::FixedWindow { limit, window }));
        let granted = (0..20).filter(|i| cluster.check_all(START + i, &[(1, "k", 1), (2, "k", 1)]).1.allowed).count();
        assert_eq!(granted, 3);
    }
}

#[test]
fn huge_costs_do_not_wrap_and_what_never_fits_is_never() {
    // redis #14826: 1 a day, cost 2 × 10^8. redis #15113, throttlecrab: cost 10 of 5 "in 30 s".
    let day = Rate { units: 1, period: Span(86_400 * SECOND) };
    for cost in [200_000_000, 1 << 32, 1_000_000_000_000] {
        let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: 1, refill: day }]);
        let answer = cluster.check(START, cost);
        assert_eq!((answer.allowed, answer.retry_after, answer.remaining), (false, None, 1));
    }
    let mut cluster =
        Cluster::new(&[Algorithm::TokenBucket { capacity: 5, refill: Rate { units: 1, period: Span(6 * SECOND) } }]);
    assert!(cluster.granted(START, 5));
    let answer = cluster.check(START, 10);
    assert_eq!((answer.allowed, answer.retry_after), (false, None));
}

#[test]
fn very_high_rates_are_enforced() {
    // redis-cell #80; throttlecrab switches off.
    for units in [2_000, 2_000_000_000] {
        let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: units, refill: per_second(units) }]);
        assert!(cluster.granted(START, units) && !cluster.granted(START, 1));
        assert!(!cluster.granted(START + SECOND - 1, units) && cluster.granted(START + SECOND, units));
    }
}

#[test]
fn a_burst_of_one_an_hour_grants_one_of_a_thousand() {
    // throttlecrab grants all.
    let hour = Rate { units: 1, period: Span(3_600 * SECOND) };
    let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: 1, refill: hour }]);
    assert_eq!((0..1000).filter(|i| cluster.granted(START + i * 1000, 1)).count(), 1);
}

#[test]
fn a_burst_above_32_bits_is_enforced() {
    let burst = (1 << 32) + 1;
    let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: burst, refill: per_second(1) }]);
    assert!(cluster.granted(START, burst) && !cluster.granted(START, 1));
    assert_eq!(cluster.check(START, burst).retry_after, Some(Span(burst as i64 * SECOND)));
}

#[test]
fn a_clock_that_goes_back_an_hour_locks_nobody_out() {
    // go-limiter #41; throttlecrab: a wait of 3,620 s on a window of 60.
    let window = Span(60 * SECOND);
    for algorithm in [
        Algorithm::FixedWindow { limit: 1, window },
        Algorithm::SlidingLog { limit: 1, window },
        Algorithm::TokenBucket { capacity: 1, refill: Rate { units: 1, period: window } },
        Algorithm::LeakyBucket { queue: 0, rate: Rate { units: 1, period: window } },
    ] {
        let mut cluster = Cluster::new(&[algorithm]);
        assert!(cluster.granted(START, 1));
        let answer = cluster.check(START - 3_600 * SECOND, 1);
        assert!(!answer.allowed && answer.retry_after.unwrap() <= window, "{algorithm:?}: {answer:?}");
        assert!(cluster.granted(START + answer.retry_after.unwrap().0, 1));
    }
}

#[test]
fn names_and_keys_are_not_joined_into_one() {
    // Gubernator and Envoy join with `_`, so ("a_b", "c") was ("a", "b_c"). Here it is the policy's number and the whole key.
    let window = Span(60 * SECOND);
    let mut cluster =
        Cluster::new(&[Algorithm::FixedWindow { limit: 1, window }, Algorithm::FixedWindow { limit: 1, window }]);
    for (policy, key) in [(1, "a_b"), (1, "b"), (1, "_b"), (2, "a_b"), (2, "b"), (1, "a:b"), (1, "a"), (1, "")] {
        assert!(cluster.check_all(START, &[(policy, key, 1)]).1.allowed, "{policy} {key}");
        assert!(!cluster.check_all(START, &[(policy, key, 1)]).1.allowed, "{policy} {key}");
    }
}

#[test]
fn a_wait_under_a_second_is_not_zero() {
    // throttlecrab reports whole seconds, rounded down.
    let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: 1, refill: per_second(3) }]);
    assert!(cluster.granted(START, 1));
    let answer = cluster.check(START, 1);
    assert_eq!(answer.retry_after, Some(Span(333_334)));
}

#[test]
fn refill_goes_on_when_the_limit_is_lowered_below_what_is_used_up() {
    // resilience4j #2489.
    let mut cluster = Cluster::new(&[Algorithm::TokenBucket { capacity: 100, refill: per_second(10) }]);
    assert!(cluster.granted(START, 100));
    cluster.change(START, 1, Algorithm::TokenBucket { capacity: 5, refill: per_second(10) });
    assert!(!cluster.granted(START, 1));
    assert!(cluster.granted(START + SECOND / 10, 1));
    assert_eq!(cluster.check(START + 2 * SECOND, 0).remaining, 5);
}

#[test]
fn every_state_has_an_end() {
    // Upstash #95: keys without expiry.
    let (window, rate) = (Span(60 * SECOND), per_second(1));
    let mut cluster = Cluster::new(&[
        Algorithm::FixedWindow { limit: 10, window },
        Algorithm::SlidingLog { limit: 10, window },
        Algorithm::SlidingCounter { limit: 10, window },
        Algorithm::TokenBucket { capacity: 10, refill: rate },
        Algorithm::LeakyBucket { queue: 10, rate },
    ]);
    for policy in 1..=5 {
        for key in 0..200 {
            assert!(cluster.check_all(START, &[(policy, &key.to_string(), 7)]).1.allowed);
        }
    }
    assert_eq!(cluster.shard.keys(), 1000);
    let mut at = START + 121 * SECOND;
    while cluster.shard.awaits_expiry() && at < START + 181 * SECOND {
        cluster.apply(at, Command::Tick);
        at += SECOND / 10;
    }
    assert_eq!(cluster.shard.keys(), 0);
}
