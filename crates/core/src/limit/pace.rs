//! The arithmetic that token and leaky buckets share: work that is done at a steady rate.
//!
//! A bucket is held as one moment, `until`: when all that was charged will have been worked off (a token bucket is full then;
//! a leaky bucket's queue is empty). It counts in 1/R microseconds, in which a unit takes exactly P and a microsecond
//! exactly R, so every charge, wait and refund is a whole number and nothing is ever rounded but answers.
//!
//! Bounds: a stamp is below 2^62, R and any count of units below 2^42, P below 2^45; so `until` stays below 2^106.

use super::exact::{div_up, scale_up, span};
use crate::units::{Rate, Span, Stamp};

/// A rate, and the most units that may wait to be worked off.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) capacity: u64,
    pub(super) rate: Rate,
}

impl Pace {
    fn per_us(self) -> i128 {
        i128::from(self.rate.units)
    }

    fn per_unit(self) -> i128 {
        i128::from(self.rate.period.0)
    }

    /// A moment in 1/R microseconds.
    pub(super) fn moment(self, t: Stamp) -> i128 {
        i128::from(t.0) * self.per_us()
    }

    /// A span in 1/R microseconds.
    pub(super) fn ticks(self, span: Span) -> i128 {
        i128::from(span.0) * self.per_us()
    }

    /// How long `units` take, in 1/R microseconds.
    pub(super) fn work(self, units: u64) -> i128 {
        i128::from(units) * self.per_unit()
    }

    /// What is not yet worked off at t, in 1/R microseconds.
    pub(super) fn backlog(self, until: i128, t: Stamp) -> i128 {
        (until - self.moment(t)).max(0)
    }

    /// `until` after a charge of `units` at t.
    pub(super) fn charged(self, until: i128, t: Stamp, units: u64) -> i128 {
        until.max(self.moment(t)) + self.work(units)
    }

    /// A count of 1/R microseconds as a span, rounded up.
    pub(super) fn span(self, ticks: i128) -> Span {
        span(div_up(ticks.max(0), self.per_us()))
    }

    /// The first whole microsecond at or after a moment in 1/R microseconds.
    pub(super) fn microsecond(self, moment: i128) -> i128 {
        div_up(moment.max(0), self.per_us())
    }

    /// A count of 1/R microseconds as units, rounded up.
    pub(super) fn units_up(self, ticks: i128) -> i128 {
        div_up(ticks.max(0), self.per_unit())
    }

    /// How many whole units fit on top of a backlog, of `capacity` in all (which is below 0 where more is held than fits).
    pub(super) fn remaining(self, capacity: i128, backlog: i128) -> u64 {
        (capacity - self.units_up(backlog)).clamp(0, i128::from(u64::MAX)) as u64
    }

    /// `until` under another rate: the same moment, rounded up to that rate's 1/R microseconds.
    pub(super) fn same_moment(self, new: Pace, until: i128) -> i128 {
        scale_up(until, new.per_us(), self.per_us())
    }
}
