//! Sliding logs: every grant is remembered until it is a window old.
//!
//! Entries that no longer count are dropped from the [`SlidingLog`] when something is charged, and passed over until then, so
//! that a question changes nothing. The sum passes the limit only by debt from settling.

use super::exact::span;
use super::log::SlidingLog;
use super::{Standing, Verdict};
use crate::units::{Cost, Span, Stamp};

/// The rule: at most `limit` in any window.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) limit: u64,
    pub(super) window: i64,
}

impl Rule {
    /// An entry counts while it is later than this.
    fn gone(self, t: Stamp) -> Stamp {
        Stamp(t.0 - self.window)
    }

    pub(super) fn verdict(self, log: &SlidingLog, t: Stamp, cost: Cost) -> Verdict {
        if cost == Cost::ZERO || log.sum_after(self.gone(t)) + u128::from(cost.get()) <= u128::from(self.limit) {
            return Verdict::granted();
        }
        // Enough of the oldest have to go for what is left to leave room.
        let wait = |room| span(i128::from(log.leaves(room).0) + i128::from(self.window) - i128::from(t.0));
        Verdict::denied(self.limit.checked_sub(cost.get()).map(wait))
    }

    pub(super) fn charge(self, log: &mut SlidingLog, t: Stamp, units: u64) {
        log.prune(self.gone(t));
        log.push(t, units);
    }

    pub(super) fn standing(self, log: &SlidingLog, t: Stamp) -> Standing {
        let sum = log.sum_after(self.gone(t));
        let remaining = u128::from(self.limit).saturating_sub(sum) as u64;
        let until = if sum == 0 { Span(0) } else { Span(log.newest().0 + self.window - t.0) };
        Standing { limit: self.limit, remaining, reset_after: until }
    }

    /// Takes `units` of the entry of time `at` away, if it still counts; whether it did.
    pub(super) fn refund(self, log: &mut SlidingLog, t: Stamp, at: Stamp, units: u64) -> bool {
        at > self.gone(t) && log.take(at, units)
    }

    /// In microseconds; 0 if it is as good as new already.
    pub(super) fn as_new_us(self, log: &SlidingLog) -> i128 {
        if log.is_empty() { 0 } else { i128::from(log.newest().0) + i128::from(self.window) }
    }

    /// What still counts at t stays, and counts by the new window from then on.
    pub(super) fn migrate(self, log: &mut SlidingLog, t: Stamp) {
        log.prune(self.gone(t));
    }
}
