//! The two algorithms that work at a rate.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

use crate::{Charge, Time, floor_at_zero, whole};

fn lowest() -> BigRational {
    whole(-1_000_000_000_000_i64)
}

#[derive(Clone, Debug)]
pub struct TokenBucket {
    capacity: u64,
    units: u64,
    period: Time,
    now: Time,
    /// `None` until first touched: full.
    level: Option<BigRational>,
    /// Reservations that are neither settled nor expired: (expiry, id, units).
    held: Vec<(Time, u64, u64)>,
}

impl TokenBucket {
    pub fn new(capacity: u64, units: u64, period: Time) -> Self {
        TokenBucket { capacity, units, period, now: 0, level: None, held: Vec::new() }
    }

    fn rate(&self) -> BigRational {
        whole(self.units) / whole(self.period)
    }

    /// What the bucket fills to.
    fn top(&self) -> BigRational {
        whole(self.capacity) - whole(self.held.iter().map(|(_, _, units)| u128::from(*units)).sum::<u128>())
    }

    fn level(&self) -> BigRational {
        self.level.clone().unwrap_or_else(|| self.top())
    }

    fn fill_until(&mut self, t: Time) {
        if let Some(level) = &self.level {
            let filled = level + whole(t - self.now) * self.rate();
            self.level = Some(filled.min(self.top()));
        }
        self.now = t;
    }

    pub fn pass(&mut self, t: Time) {
        self.held.sort();
        while let Some((expires, _, _)) = self.held.first().copied().filter(|(expires, _, _)| *expires <= t) {
            let level = self.level();
            self.level = Some(level);
            self.fill_until(expires);
            // All of it was used: the level stays as it is, and the bucket may fill higher again.
            self.held.remove(0);
        }
        self.fill_until(t);
    }

    pub fn grants(&self, cost: u64, _: Option<Time>) -> bool {
        self.level() >= whole(cost)
    }

    pub fn limit(&self) -> BigInt {
        self.capacity.into()
    }

    pub fn remaining(&self) -> BigInt {
        floor_at_zero(&self.level())
    }

    pub fn is_new(&self) -> bool {
        self.held.is_empty() && self.level() == whole(self.capacity)
    }

    pub fn charge(&mut self, charge: &Charge) {
        let level = self.level() - whole(charge.cost);
        self.level = Some(level);
        if let Some(expires) = charge.expires.filter(|_| charge.cost > 0) {
            self.held.push((expires, charge.id, charge.cost));
            // A reservation whose time is up at once has been used at once.
            self.pass(self.now);
        }
    }

    pub fn refund(&mut self, charge: &Charge) {
        if self.held.iter().any(|held| held.1 == charge.id) {
            return self.settle(charge, 0);
        }
        let back = whole(charge.cost) - whole(self.now - charge.at) * self.rate();
        if back > BigRational::zero() {
            self.level = Some((self.level() + back).min(self.top()));
        }
    }

    pub fn settle(&mut self, charge: &Charge, actual: u64) {
        let level = self.level();
        let before = self.held.len();
        self.held.retain(|held| held.1 != charge.id);
        if self.held.len() == before {
            return self.owe(actual.saturating_sub(charge.cost));
        }
        self.level = Some((level + whole(charge.cost) - whole(actual)).max(lowest()));
    }

    /// Charges without asking, down to the lowest level that there is.
    pub fn owe(&mut self, units: u64) {
        if units > 0 {
            self.level = Some((self.level() - whole(units)).max(lowest()));
        }
    }

    pub fn inherit(&mut self, old: TokenBucket) {
        let level = old.level();
        self.held = old.held;
        let parts = whole(self.period);
        let level = (level * &parts).floor() / parts;
        self.level = Some(level.min(self.top()));
    }
}

#[derive(Clone, Debug)]
pub struct LeakyBucket {
    queue: u64,
    units: u64,
    period: Time,
    now: Time,
    next: BigRational,
}

impl LeakyBucket {
    pub fn new(queue: u64, units: u64, period: Time) -> Self {
        LeakyBucket { queue, units, period, now: 0, next: BigRational::zero() }
    }

    pub fn pass(&mut self, t: Time) {
        self.now = t;
    }

    pub fn wait(&self) -> BigRational {
        (&self.next - whole(self.now)).max(BigRational::zero())
    }

    fn backlog(&self) -> BigRational {
        self.wait() * whole(self.units) / whole(self.period)
    }

    fn takes(&self, cost: u64) -> BigRational {
        whole(cost) * whole(self.period) / whole(self.units)
    }

    pub fn grants(&self, cost: u64, max_delay: Option<Time>) -> bool {
        self.backlog() + whole(cost) <= whole(self.queue) + whole(1)
            && max_delay.is_none_or(|most| self.wait() <= whole(most))
    }

    pub fn limit(&self) -> BigInt {
        BigInt::from(self.queue) + 1
    }

    pub fn remaining(&self) -> BigInt {
        floor_at_zero(&(whole(self.queue) + whole(1) - self.backlog()))
    }

    pub fn is_new(&self) -> bool {
        self.wait().is_zero()
    }

    pub fn charge(&mut self, cost: u64) -> Option<BigRational> {
        if cost > 0 {
            self.next = self.next.clone().max(whole(self.now)) + self.takes(cost);
        }
        Some(self.next.clone())
    }

    pub fn refund(&mut self, charge: &Charge) {
        if charge.left_next.as_ref() == Some(&self.next) && self.next > whole(self.now) {
            self.next = whole(self.now).max(&self.next - self.takes(charge.cost));
        }
    }

    pub fn inherit(&mut self, old: &LeakyBucket) {
        let parts = whole(self.units);
        self.next = (&old.next * &parts).ceil() / parts;
    }
}
