//! The law of `docs/semantics.md`, once more and as dumbly as possible: exact rationals, no cleverness, no speed, and of the
//! implementation nothing but how a policy is written down. Where the two differ, one of them is wrong.
//!
//! A [`Limiter`] is one key under one rule. It is told the time with `pass` before anything is asked of it, and never an
//! earlier one. Waits are not computed here: whoever claims one can be checked by letting a copy of the key sit idle until then.
//!
//! ```
//! use quorate_law::{Limiter, Rule};
//! let mut key = Limiter::new(Rule::FixedWindow { limit: 1, window: 60 });
//! key.pass(100);
//! assert!(key.grants(1, None));
//! key.charge(100, 0, 1, None);
//! assert!(!key.grants(1, None) && key.idle_until(120).grants(1, None));
//! ```

mod buckets;
mod windows;

use buckets::{LeakyBucket, TokenBucket};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use quorate_core::Algorithm;
use windows::{FixedWindow, SlidingCounter, SlidingLog};

/// Microseconds.
pub type Time = i128;

/// An algorithm with its numbers; rates are `units` a `period`.
///
/// ```
/// use quorate_law::{Limiter, Rule};
/// assert_eq!(Limiter::new(Rule::LeakyBucket { queue: 4, units: 1, period: 9 }).limit(), 5.into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the words of the algorithms")]
pub enum Rule {
    FixedWindow { limit: u64, window: Time },
    SlidingLog { limit: u64, window: Time },
    SlidingCounter { limit: u64, window: Time },
    TokenBucket { capacity: u64, units: u64, period: Time },
    LeakyBucket { queue: u64, units: u64, period: Time },
}

impl From<&Algorithm> for Rule {
    /// The one thing that is taken from the implementation: how a policy writes its algorithm down.
    fn from(algorithm: &Algorithm) -> Rule {
        match *algorithm {
            Algorithm::FixedWindow { limit, window } => Rule::FixedWindow { limit, window: window.0.into() },
            Algorithm::SlidingLog { limit, window } => Rule::SlidingLog { limit, window: window.0.into() },
            Algorithm::SlidingCounter { limit, window } => Rule::SlidingCounter { limit, window: window.0.into() },
            Algorithm::TokenBucket { capacity, refill } => {
                Rule::TokenBucket { capacity, units: refill.units, period: refill.period.0.into() }
            }
            Algorithm::LeakyBucket { queue, rate } => {
                Rule::LeakyBucket { queue, units: rate.units, period: rate.period.0.into() }
            }
        }
    }
}

impl Rule {
    /// Whether what was charged under this rule is still there under the other.
    pub fn is_same_course_as(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::FixedWindow { window: a, .. }, Rule::FixedWindow { window: b, .. })
            | (Rule::SlidingLog { window: a, .. }, Rule::SlidingLog { window: b, .. })
            | (Rule::SlidingCounter { window: a, .. }, Rule::SlidingCounter { window: b, .. }) => a == b,
            (Rule::TokenBucket { units: a, period: b, .. }, Rule::TokenBucket { units: c, period: d, .. })
            | (Rule::LeakyBucket { units: a, period: b, .. }, Rule::LeakyBucket { units: c, period: d, .. }) => {
                (a, b) == (c, d)
            }
            _ => false,
        }
    }
}

/// What was charged, as whoever wants it back remembers it.
///
/// ```
/// use quorate_law::{Limiter, Rule};
/// let mut key = Limiter::new(Rule::SlidingLog { limit: 2, window: 60 });
/// let charge = key.charge(0, 0, 2, None);
/// assert_eq!(key.remaining(), 0.into());
/// key.refund(&charge);
/// assert!(key.is_new());
/// ```
#[derive(Clone, Debug)]
pub struct Charge {
    /// Tells it from others of its key.
    pub id: u64,
    /// When it was made.
    pub at: Time,
    /// What it took.
    pub cost: u64,
    /// For a reservation.
    pub expires: Option<Time>,
    /// Where a leaky bucket's charge left its `next`.
    pub left_next: Option<BigRational>,
}

/// A key under a rule.
///
/// ```
/// use quorate_law::{Limiter, Rule};
/// assert!(Limiter::new(Rule::TokenBucket { capacity: 3, units: 1, period: 9 }).is_new());
/// ```
#[derive(Clone, Debug)]
#[allow(missing_docs, private_interfaces, reason = "a state of each rule")]
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

pub(crate) fn whole(n: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(n.into())
}

pub(crate) fn floor_at_zero(x: &BigRational) -> BigInt {
    let floor = x.floor().to_integer();
    if floor.is_negative() { BigInt::zero() } else { floor }
}

impl Limiter {
    /// A key that nothing was charged to.
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

    /// Lets time pass until `t`.
    pub fn pass(&mut self, t: Time) {
        each!(self, it => it.pass(t));
    }

    /// The key as it would be at `t` if nobody asked anything until then.
    pub fn idle_until(&self, t: Time) -> Limiter {
        let mut later = self.clone();
        later.pass(t);
        later
    }

    /// Whether that much would be granted now, for a leaky bucket within that wait.
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

    /// How many unit-cost requests would be granted now.
    pub fn remaining(&self) -> BigInt {
        each!(self, it => it.remaining())
    }

    /// Whether it is as if nothing had ever been charged.
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

    /// Gives a charge back, as far as time has not.
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
