//! What came of the checks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies are kept in nanoseconds up to this, to three digits; longer ones count as this.
const LONGEST_NS: u64 = 600_000_000_000;

/// Counts of one run.
#[derive(Debug)]
pub struct Tally {
    /// Checks that were allowed.
    pub granted: u64,
    /// Checks that were denied.
    pub denied: u64,
    /// Checks without a decision, by the kind of error.
    pub failures: BTreeMap<&'static str, u64>,
    /// Nanoseconds of every check that was decided.
    pub latency: Histogram<u64>,
}

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// Allowed.
    Granted,
    /// Denied.
    Denied,
    /// No decision: the kind of error.
    Failed(&'static str),
}

/// An empty histogram of nanoseconds.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are valid")
}

impl Default for Tally {
    fn default() -> Self {
        Tally { granted: 0, denied: 0, failures: BTreeMap::new(), latency: latencies() }
    }
}

impl Tally {
    /// Counts one check.
    pub fn add(&mut self, result: Result, took: Duration) {
        match result {
            Result::Granted => self.granted += 1,
            Result::Denied => self.denied += 1,
            Result::Failed(kind) => *self.failures.entry(kind).or_default() += 1,
        }
        if !matches!(result, Result::Failed(_)) {
            self.latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST_NS).max(1));
        }
    }

    /// Checks without a decision.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Checks with one.
    pub fn decided(&self) -> u64 {
        self.granted + self.denied
    }

    fn merge(&mut self, other: &Tally) {
        self.granted += other.granted;
        self.denied += other.denied;
        for (kind, count) in &other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
    }
}

/// A tally that many callers share: in a few parts, so that callers on several threads seldom wait for each other.
#[derive(Debug)]
pub struct Tallies {
    parts: [Mutex<Tally>; 8],
    decided: AtomicU64,
    failed: AtomicU64,
}

impl Default for Tallies {
    fn default() -> Self {
        Tallies { parts: Default::default(), decided: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }
}

impl Tallies {
    /// Counts one check of a caller.
    pub fn add(&self, caller: usize, result: Result, took: Duration) {
        let live = if matches!(result, Result::Failed(_)) { &self.failed } else { &self.decided };
        live.fetch_add(1, Ordering::Relaxed);
        let part = &self.parts[caller % self.parts.len()];
        part.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(result, took);
    }

    /// Checks decided and failed so far.
    pub fn so_far(&self) -> (u64, u64) {
        (self.decided.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// All parts together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for part in &self.parts {
            total.merge(&part.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        let tallies = Tallies::default();
        for caller in 0..20 {
            tallies.add(caller, Result::Granted, Duration::from_micros(10));
            tallies.add(caller, Result::Denied, Duration::from_micros(30));
        }
        tallies.add(3, Result::Failed("deadline"), Duration::from_secs(1));
        let total = tallies.total();
        assert_eq!((total.granted, total.denied, total.failed(), total.decided()), (20, 20, 1, 40));
        assert_eq!(tallies.so_far(), (40, 1));
        assert_eq!(total.latency.max() / 1000, 30);
        assert_eq!(total.latency.len(), 40);
    }
}
