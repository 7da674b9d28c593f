//! The three algorithms that count within windows.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

use crate::{Time, floor_at_zero, whole};

#[derive(Clone, Debug)]
pub struct FixedWindow {
    limit: u64,
    window: Time,
    k: Time,
    used: u128,
}

impl FixedWindow {
    pub fn new(limit: u64, window: Time) -> Self {
        FixedWindow { limit, window, k: 0, used: 0 }
    }

    pub fn pass(&mut self, t: Time) {
        let k = t / self.window;
        if k != self.k {
            self.k = k;
            self.used = 0;
        }
    }

    pub fn grants(&self, cost: u64, _: Option<Time>) -> bool {
        self.used + u128::from(cost) <= u128::from(self.limit)
    }

    pub fn limit(&self) -> BigInt {
        self.limit.into()
    }

    pub fn remaining(&self) -> BigInt {
        u128::from(self.limit).saturating_sub(self.used).into()
    }

    pub fn is_new(&self) -> bool {
        self.used == 0
    }

    pub fn charge(&mut self, cost: u64) {
        self.used += u128::from(cost);
    }

    pub fn refund(&mut self, at: Time, units: u64) {
        if at / self.window == self.k {
            self.used -= u128::from(units);
        }
    }

    pub fn inherit(&mut self, old: &FixedWindow) {
        self.used = old.used;
    }
}

#[derive(Clone, Debug)]
pub struct SlidingLog {
    limit: u64,
    window: Time,
    now: Time,
    granted: Vec<(Time, u64)>,
}

impl SlidingLog {
    pub fn new(limit: u64, window: Time) -> Self {
        SlidingLog { limit, window, now: 0, granted: Vec::new() }
    }

    pub fn pass(&mut self, t: Time) {
        self.now = t;
        let window = self.window;
        self.granted.retain(|(at, _)| *at > t - window);
    }

    fn sum(&self) -> u64 {
        self.granted.iter().map(|(_, cost)| cost).sum()
    }

    pub fn grants(&self, cost: u64, _: Option<Time>) -> bool {
        self.sum() + cost <= self.limit
    }

    pub fn limit(&self) -> BigInt {
        self.limit.into()
    }

    pub fn remaining(&self) -> BigInt {
        self.limit.saturating_sub(self.sum()).into()
    }

    pub fn is_new(&self) -> bool {
        self.granted.is_empty()
    }

    pub fn charge(&mut self, cost: u64) {
        if cost > 0 {
            self.granted.push((self.now, cost));
        }
    }

    pub fn refund(&mut self, at: Time, mut units: u64) {
        for entry in self.granted.iter_mut().filter(|entry| entry.0 == at) {
            let part = units.min(entry.1);
            entry.1 -= part;
            units -= part;
        }
        self.granted.retain(|entry| entry.1 > 0);
    }

    pub fn inherit(&mut self, old: SlidingLog) {
        self.granted = old.granted;
        self.pass(self.now);
    }
}

#[derive(Clone, Debug)]
pub struct SlidingCounter {
    limit: u64,
    window: Time,
    now: Time,
    k: Time,
    prev: u128,
    curr: u128,
}

impl SlidingCounter {
    pub fn new(limit: u64, window: Time) -> Self {
        SlidingCounter { limit, window, now: 0, k: 0, prev: 0, curr: 0 }
    }

    pub fn pass(&mut self, t: Time) {
        self.now = t;
        let k = t / self.window;
        if k == self.k {
            return;
        }
        self.prev = if k == self.k + 1 { self.curr } else { 0 };
        self.curr = 0;
        self.k = k;
    }

    fn estimate(&self) -> BigRational {
        let e = self.now - self.k * self.window;
        whole(self.prev) * whole(self.window - e) / whole(self.window) + whole(self.curr)
    }

    pub fn grants(&self, cost: u64, _: Option<Time>) -> bool {
        self.estimate() + whole(cost) <= whole(self.limit)
    }

    pub fn limit(&self) -> BigInt {
        self.limit.into()
    }

    pub fn remaining(&self) -> BigInt {
        floor_at_zero(&(whole(self.limit) - self.estimate()))
    }

    pub fn is_new(&self) -> bool {
        self.prev == 0 && self.curr == 0
    }

    pub fn charge(&mut self, cost: u64) {
        self.curr += u128::from(cost);
    }

    pub fn refund(&mut self, at: Time, units: u64) {
        match self.k - at / self.window {
            0 => self.curr -= u128::from(units),
            1 => self.prev -= u128::from(units),
            _ => {}
        }
    }

    pub fn inherit(&mut self, old: &SlidingCounter) {
        if old.window == self.window {
            (self.prev, self.curr) = (old.prev, old.curr);
            return;
        }
        let estimate = old.estimate().ceil().to_integer();
        assert!(estimate >= BigInt::zero());
        self.curr = estimate.try_into().expect("an estimate is a count");
    }
}
