//! The law of `docs/semantics.md`, once more and as dumbly as possible: exact rationals, no cleverness, no speed, and nothing of
//! the implementation. Where the two differ, one of them is wrong.
//!
//! A [`Limiter`] is one key under one rule. It is told the time with `pass` before anything is asked of it, and never an
//! earlier one. Waits are not computed here: whoever claims one can be checked by letting a copy of the key sit idle until then.

mod buckets;
mod windows;

use buckets::{LeakyBucket, TokenBucket};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use windows::{FixedWindow, SlidingCounter, SlidingLog};

pub type Time = i128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    FixedWindow { limit: u64, window: Time },
    SlidingLog { limit: u64, window: Time },
    SlidingCounter { limit: u64, window: Time },
    TokenBucket { capacity: u64, units: u64, period: Time },
    LeakyBucket { queue: u64, units: u64, period: Time },
}

/// What was charged, as whoever wants it back remembers it.
#[derive(Clone, Debug)]
pub struct Charge {
    pub id: u64,
    pub at: Time,
    pub cost: u64,
    /// For a reservation.
    pub expires: Option<Time>,
    /// Where a leaky bucket's charge left its `next`.
    pub left_next: Option<BigRational>,
}

#[derive(Clone, Debug)]
pub enum Limiter {
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
}

macro_rules! each {
    ($limiter:expr, $it:ident => $do:expr) => {
        match $limiter {
            Limiter::FixedWindow($it) => $do,
            Limiter::SlidingLog($it) => $do,
            Limiter::SlidingCounter($it) => $do,
            Limiter::TokenBucket($it) => $do,
            Limiter::LeakyBucket($it) => $do,
        }
    };
}

pub fn whole(n: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(n.into())
}

pub fn floor_at_zero(x: &BigRational) -> BigInt {
    let floor = x.floor().to_integer();
    if floor.is_negative() { BigInt::zero() } else { floor }
}

impl Limiter {
    pub fn new(rule: Rule) -> Limiter {
        match rule {
            Rule::FixedWindow { limit, window } => Limiter::FixedWindow(FixedWindow::new(limit, window)),
            Rule::SlidingLog { limit, window } => Limiter::SlidingLog(SlidingLog::new(limit, window)),
            Rule::SlidingCounter { limit, window } => Limiter::SlidingCounter(SlidingCounter::new(limit, window)),
            Rule::TokenBucket { capacity, units, period } => {
                Limiter::TokenBucket(TokenBucket::new(capacity, units, period))
            }
            Rule::LeakyBucket { queue, units, period } => Limiter::LeakyBucket(LeakyBucket::new(queue, units, period)),
        }
    }

    pub fn pass(&mut self, t: Time) {
        each!(self, it => it.pass(t));
    }

    /// The key as it would be at `t` if nobody asked anything until then.
    pub fn idle_until(&self, t: Time) -> Limiter {
        let mut later = self.clone();
        later.pass(t);
        later
    }

    pub fn grants(&self, cost: u64, max_delay: Option<Time>) -> bool {
        if cost == 0 {
            return true;
        }
        match self {
            Limiter::LeakyBucket(it) => it.grants(cost, max_delay),
            other => each!(other, it => it.grants(cost, None)),
        }
    }

    /// The most unit-cost requests that an idle key could be granted at once.
    pub fn limit(&self) -> BigInt {
        each!(self, it => it.limit())
    }

    pub fn remaining(&self) -> BigInt {
        each!(self, it => it.remaining())
    }

    pub fn is_new(&self) -> bool {
        each!(self, it => it.is_new())
    }

    /// How long a request granted now is held back, rounded up; for leaky buckets.
    pub fn delay(&self, cost: u64) -> Option<BigInt> {
        match self {
            Limiter::LeakyBucket(it) => Some(if cost == 0 { BigInt::zero() } else { it.wait().ceil().to_integer() }),
            _ => None,
        }
    }

    /// Charges without asking.
    pub fn charge(&mut self, now: Time, id: u64, cost: u64, expires: Option<Time>) -> Charge {
        let mut charge = Charge { id, at: now, cost, expires, left_next: None };
        match self {
            Limiter::TokenBucket(it) => it.charge(&charge),
            Limiter::LeakyBucket(it) => charge.left_next = it.charge(cost),
            Limiter::FixedWindow(it) => it.charge(cost),
            Limiter::SlidingLog(it) => it.charge(cost),
            Limiter::SlidingCounter(it) => it.charge(cost),
        }
        charge
    }

    pub fn refund(&mut self, charge: &Charge) {
        match self {
            Limiter::FixedWindow(it) => it.refund(charge.at, charge.cost),
            Limiter::SlidingLog(it) => it.refund(charge.at, charge.cost),
            Limiter::SlidingCounter(it) => it.refund(charge.at, charge.cost),
            Limiter::TokenBucket(it) => it.refund(charge),
            Limiter::LeakyBucket(it) => it.refund(charge),
        }
    }

    /// A charge that is gone has nothing to give back; what was used beyond it is charged all the same.
    pub fn settle(&mut self, now: Time, charge: &Charge, actual: u64, gone: bool) {
        if charge.expires.is_none_or(|expires| now >= expires) {
            return;
        }
        if gone && actual <= charge.cost {
            return;
        }
        let (less, more) = (charge.cost.saturating_sub(actual), actual.saturating_sub(charge.cost));
        match self {
            Limiter::TokenBucket(it) if gone => it.owe(more),
            Limiter::TokenBucket(it) => it.settle(charge, actual),
            // It cannot be reserved; but a policy may have become one.
            Limiter::LeakyBucket(_) => {}
            Limiter::FixedWindow(it) => {
                it.refund(charge.at, less);
                it.charge(more);
            }
            Limiter::SlidingLog(it) => {
                it.refund(charge.at, less);
                it.charge(more);
            }
            Limiter::SlidingCounter(it) => {
                it.refund(charge.at, less);
                it.charge(more);
            }
        }
    }

    /// A new version of its policy comes into force now.
    pub fn change(self, now: Time, rule: Rule) -> Limiter {
        let mut new = Limiter::new(rule);
        new.pass(now);
        if self.is_new() {
            return new;
        }
        match (self, &mut new) {
            (Limiter::FixedWindow(old), Limiter::FixedWindow(new)) => new.inherit(&old),
            (Limiter::SlidingLog(old), Limiter::SlidingLog(new)) => new.inherit(old),
            (Limiter::SlidingCounter(old), Limiter::SlidingCounter(new)) => new.inherit(&old),
            (Limiter::TokenBucket(old), Limiter::TokenBucket(new)) => new.inherit(old),
            (Limiter::LeakyBucket(old), Limiter::LeakyBucket(new)) => new.inherit(&old),
            _ => {}
        }
        new
    }
}
