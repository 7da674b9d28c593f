//! Leaky buckets: a bounded queue in which each request is given its place.
//!
//! Invariant: `next` is when the work queued so far is done, in 1/R microseconds. One unit is being served, Q wait, so at most
//! Q + 1 are in the bucket.

use super::pace::Pace;
use super::{Standing, Verdict};
use crate::units::{Cost, Span, Stamp};

/// The rule; the pace's capacity is Q + 1.
#[derive(Clone, Copy)]
pub(super) struct LeakyBucket(pub(super) Pace);

impl LeakyBucket {
    pub(super) fn verdict(self, next: i128, t: Stamp, cost: Cost, max_delay: Option<Span>) -> Verdict {
        let pace = self.0;
        if cost == Cost::ZERO {
            return Verdict { delay: Some(Span(0)), ..Verdict::granted() };
        }
        let wait = pace.backlog(next, t);
        let over = wait + pace.work(cost.get()) - pace.work(pace.capacity);
        let late = max_delay.map_or(0, |most| wait - pace.ticks(most));
        if over <= 0 && late <= 0 {
            return Verdict { delay: Some(pace.span(wait)), ..Verdict::granted() };
        }
        // Both shrink by R a microsecond while nobody asks, so both hold when the later one does.
        Verdict::denied((cost.get() <= pace.capacity).then(|| pace.span(over.max(late))))
    }

    pub(super) fn standing(self, next: i128, t: Stamp) -> Standing {
        let wait = self.0.backlog(next, t);
        Standing {
            limit: self.0.capacity,
            remaining: self.0.remaining(i128::from(self.0.capacity), wait),
            reset_after: self.0.span(wait),
        }
    }

    /// Takes the last place given back: `next` is still where that charge left it, and in the future.
    pub(super) fn refund(self, next: i128, t: Stamp, units: u64, mark: Option<i128>) -> i128 {
        let now = self.0.moment(t);
        if mark != Some(next) || next <= now {
            return next;
        }
        now.max(next - self.0.work(units))
    }
}
