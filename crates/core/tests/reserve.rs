//! Reservations, by example: what is held, what a settlement gives back, what an expiry takes, and debt.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate_core::{
    Algorithm, Asked, Cost, Decision, Index, LimitAnswer, Policy, Position, Rate, Span, Stamp, State, decide, migrate,
    refund, settle,
};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

struct Key {
    policy: Policy,
    state: State,
    receipts: u64,
}

/// A reservation's receipt, its time, its expiry, its cost.
type Reserved = (Position, Stamp, Stamp, Cost);

fn units(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

impl Key {
    fn new(algorithm: Algorithm) -> Key {
        Key { policy: Policy::new("p", algorithm), state: State::new(&algorithm), receipts: 0 }
    }

    fn ask(&mut self, t: i64, cost: u64, hold: Option<(Position, Stamp)>) -> LimitAnswer {
        let asked = Asked { policy: &self.policy, state: &mut self.state, cost: units(cost), ordinal: 0 };
        let Decision { limits, .. } = decide(&mut [asked], Stamp(t), false, None, hold);
        limits[0].clone()
    }

    fn check(&mut self, t: i64, cost: u64) -> LimitAnswer {
        self.ask(t, cost, None)
    }

    fn reserve(&mut self, t: i64, cost: u64, ttl: i64) -> Reserved {
        self.receipts += 1;
        let (receipt, expires) = (Position { index: Index(self.receipts), place: 0 }, Stamp(t + ttl));
        assert!(self.ask(t, cost, Some((receipt, expires))).charged);
        (receipt, Stamp(t), expires, units(cost))
    }

    fn settle(&mut self, t: i64, (receipt, at, expires, cost): Reserved, actual: u64) -> bool {
        settle(&self.policy, &mut self.state, Stamp(t), receipt, at, expires, cost, units(actual))
    }
}

fn bucket() -> Key {
    Key::new(Algorithm::TokenBucket { capacity: 10, refill: Rate { units: 1, period: Span(SECOND) } })
}

#[test]
fn a_bucket_fills_only_to_what_is_not_held() {
    let mut key = bucket();
    key.reserve(0, 6, HOUR);
    assert_eq!(key.check(0, 0).remaining, 4);
    assert_eq!(key.check(1_000 * SECOND, 0).remaining, 4);
    // What does not fit beside it has to wait for the expiry, and then for the refill of what it used.
    let answer = key.check(1_000 * SECOND, 5);
    assert_eq!((answer.allowed, answer.retry_after), (false, Some(Span(HOUR - 1_000 * SECOND + SECOND))));
    assert_eq!(answer.reset_after, Span(HOUR - 1_000 * SECOND + 6 * SECOND));
    assert!(!key.check(HOUR + SECOND - 1, 5).allowed);
    assert!(key.check(HOUR + SECOND, 5).allowed);
}

#[test]
fn a_settlement_gives_back_what_was_held_and_counts_what_was_used_from_then_on() {
    let mut key = bucket();
    let reserved = key.reserve(0, 6, HOUR);
    assert!(key.settle(100 * SECOND, reserved, 2));
    let answer = key.check(100 * SECOND, 0);
    assert_eq!((answer.remaining, answer.reset_after), (8, Span(2 * SECOND)));
    assert!(matches!(key.state, State::TokenBucket { .. }), "with no hold left, it is a plain bucket");
    assert!(!key.settle(101 * SECOND, reserved, 2), "once");
}

#[test]
fn an_expired_reservation_was_used_in_full_at_its_expiry() {
    let mut key = bucket();
    let reserved = key.reserve(0, 6, 60 * SECOND);
    assert_eq!(key.check(60 * SECOND - 1, 0).remaining, 4);
    assert!(!key.settle(60 * SECOND, reserved, 0), "too late");
    assert_eq!(key.check(60 * SECOND, 0).remaining, 4);
    assert_eq!(key.check(63 * SECOND, 0).remaining, 7);
    assert!(key.state.is_new(&key.policy.algorithm, Stamp(66 * SECOND)));
    assert!(!key.state.is_new(&key.policy.algorithm, Stamp(66 * SECOND - 1)));
}

#[test]
fn a_refunded_reservation_is_a_settlement_at_nothing() {
    let mut key = bucket();
    let (receipt, at, _, cost) = key.reserve(0, 6, HOUR);
    assert!(refund(&key.policy, &mut key.state, Stamp(SECOND), receipt, at, cost, None));
    assert_eq!(key.check(SECOND, 0).remaining, 10);
}

#[test]
fn debt_is_charged_without_asking_and_ends_at_its_floor() {
    let mut key = bucket();
    let (first, second) = (key.reserve(0, 1, HOUR), key.reserve(0, 1, HOUR));
    assert!(key.settle(0, first, 1_000_000_000_000));
    let answer = key.check(0, 1);
    // 10 - 10^12, and one unit held: the unit asked for is there when the level is 1.
    assert_eq!((answer.allowed, answer.remaining), (false, 0));
    assert_eq!(answer.retry_after, Some(Span((1_000_000_000_000 - 9 + 1) * SECOND)));
    assert!(key.settle(0, second, 1_000_000_000_000));
    assert_eq!(key.check(0, 1).retry_after, Some(Span((1_000_000_000_000 + 1) * SECOND)), "the level stays at -10^12");
}

#[test]
fn windows_give_back_the_difference_and_charge_the_rest() {
    let window = Span(10 * SECOND);
    for algorithm in [
        Algorithm::FixedWindow { limit: 10, window },
        Algorithm::SlidingLog { limit: 10, window },
        Algorithm::SlidingCounter { limit: 10, window },
    ] {
        let mut key = Key::new(algorithm);
        let (less, more) = (key.reserve(0, 4, HOUR), key.reserve(0, 4, HOUR));
        assert!(key.settle(SECOND, less, 1));
        assert_eq!(key.check(SECOND, 0).remaining, 5, "{algorithm:?}");
        assert!(key.settle(2 * SECOND, more, 20));
        assert_eq!(key.check(2 * SECOND, 0).remaining, 0, "{algorithm:?}");
        assert!(!key.check(2 * SECOND, 1).allowed, "{algorithm:?}");
    }
}

#[test]
fn a_reservation_of_nothing_can_say_afterwards_what_it_used() {
    let mut key = bucket();
    let reserved = key.reserve(0, 0, HOUR);
    assert_eq!(key.check(0, 0).reset_after, Span(0), "it holds nothing");
    assert!(key.settle(SECOND, reserved, 3));
    assert_eq!(key.check(SECOND, 0).remaining, 7);
}

#[test]
fn holds_stay_under_a_changed_policy() {
    let mut key = bucket();
    let reserved = key.reserve(0, 6, HOUR);
    let mut smaller = key.policy.clone();
    smaller.algorithm = Algorithm::TokenBucket { capacity: 5, refill: Rate { units: 1, period: Span(2 * SECOND) } };
    key.state = migrate(&key.policy, &smaller, key.state, Stamp(SECOND));
    key.policy = smaller;
    // Six of five are held: the bucket fills to less than nothing until they are settled.
    let answer = key.check(SECOND, 1);
    assert_eq!((answer.allowed, answer.limit, answer.remaining), (false, 5, 0));
    assert!(key.settle(SECOND, reserved, 1));
    assert_eq!(key.check(SECOND, 0).remaining, 4);
}
