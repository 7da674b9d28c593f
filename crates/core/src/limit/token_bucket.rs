//! Token buckets: units that come back at a steady rate, up to a capacity.
//!
//! A bucket is the moment at which it is full, in 1/R microseconds, if nobody takes anything: the level is B less what is
//! still to come. While reservations are live it is a [`HeldBucket`], which fills only to B less what they hold, so that what
//! they used can be counted from the moment at which it is known.
//!
//! Invariants: holds are ordered by expiry, then by receipt, and there is at least one; a hold whose expiry has come counts as
//! used in full, from its expiry on. In a held bucket, with h units held, level = (B - h) - backlog / P: a reservation moves
//! its units from the level into h and leaves `full_at` alone, a settlement moves them back and charges what was used.

use super::exact::scale_down;
use super::pace::Pace;
use super::{Standing, Verdict};
use crate::caps::UNITS;
use crate::ids::Position;
use crate::units::{Cost, Span, Stamp};

/// The rule; the pace's capacity is B.
#[derive(Clone, Copy)]
pub(super) struct TokenBucket(pub(super) Pace);

/// Units of a bucket that a reservation holds.
///
/// ```
/// use quorate_core::{Cost, Hold, Position, Stamp};
/// let hold = Hold { id: Position::default(), cost: Cost::ONE, expires: Stamp(5) };
/// assert_eq!(hold.cost.get(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The reservation's receipt.
    pub id: Position,
    /// What it holds.
    pub cost: Cost,
    /// From then on it counts as used in full.
    pub expires: Stamp,
}

/// A token bucket with live reservations.
///
/// ```
/// use quorate_core::HeldBucket;
/// assert!(HeldBucket { full_at: 0, holds: vec![] }.holds.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBucket {
    /// When it has filled to B less what is held, in 1/R microseconds.
    pub full_at: i128,
    /// The live reservations, by expiry, then by receipt.
    pub holds: Vec<Hold>,
}

/// A bucket as it is at some moment: with the holds that are live then.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    full_at: i128,
    live: &'a [Hold],
    held: u64,
}

fn held(holds: &[Hold]) -> u64 {
    holds.iter().map(|hold| hold.cost.get()).sum()
}

impl<'a> Filling<'a> {
    pub(super) fn plain(full_at: i128) -> Self {
        Filling { full_at, live: &[], held: 0 }
    }

    /// The bucket before any of its holds expires.
    pub(super) fn before_expiries(bucket: &'a HeldBucket) -> Self {
        Filling { full_at: bucket.full_at, live: &bucket.holds, held: held(&bucket.holds) }
    }

    /// The live reservations.
    pub(super) fn live(self) -> &'a [Hold] {
        self.live
    }

    pub(super) fn full_at(self) -> i128 {
        self.full_at
    }
}

impl TokenBucket {
    /// The bucket with every hold that has expired by t counted as used.
    pub(super) fn at(self, bucket: &HeldBucket, t: Stamp) -> Filling<'_> {
        let (mut full_at, mut live) = (bucket.full_at, bucket.holds.as_slice());
        while let Some((hold, rest)) = live.split_first().filter(|(hold, _)| hold.expires <= t) {
            full_at = self.0.charged(full_at, hold.expires, hold.cost.get());
            live = rest;
        }
        Filling { full_at, live, held: held(live) }
    }

    /// What the bucket fills to, in units; below 0 only where the capacity was lowered under what is held.
    fn room(self, filling: Filling<'_>) -> i128 {
        i128::from(self.0.capacity) - i128::from(filling.held)
    }

    /// How far `cost` is from being there at t, in 1/R microseconds of refill; at most 0 if it is there.
    fn missing(self, filling: Filling<'_>, t: Stamp, cost: Cost) -> i128 {
        let pace = self.0;
        pace.backlog(filling.full_at, t) + pace.work(cost.get()) - self.room(filling) * i128::from(pace.rate.period.0)
    }

    pub(super) fn verdict(self, filling: Filling<'_>, t: Stamp, cost: Cost) -> Verdict {
        if cost == Cost::ZERO || self.missing(filling, t, cost) <= 0 {
            return Verdict::granted();
        }
        Verdict::denied((cost.get() <= self.0.capacity).then(|| self.retry_after(filling, t, cost)))
    }

    /// The shortest wait until `cost` is there, given that it is not now and fits the empty bucket.
    ///
    /// Alone, the level only rises; but it stops at B less what is held until the next hold expires. So each stretch between
    /// two expiries is tried in turn.
    fn retry_after(self, mut filling: Filling<'_>, t: Stamp, cost: Cost) -> Span {
        let mut from = t;
        while let Some((next, rest)) = filling.live.split_first() {
            if i128::from(cost.get()) <= self.room(filling) {
                let wait = self.0.span(self.missing(filling, from, cost));
                if from.saturating_add(wait) <= next.expires {
                    return Span(from.0 - t.0 + wait.0);
                }
            }
            from = next.expires;
            let full_at = self.0.charged(filling.full_at, next.expires, next.cost.get());
            filling = Filling { full_at, live: rest, held: filling.held - next.cost.get() };
        }
        let wait = self.0.span(self.missing(filling, from, cost));
        super::exact::span(i128::from(from.0) - i128::from(t.0) + i128::from(wait.0))
    }

    pub(super) fn standing(self, filling: Filling<'_>, t: Stamp) -> Standing {
        let backlog = self.0.backlog(filling.full_at, t);
        Standing {
            limit: self.0.capacity,
            remaining: self.0.remaining(self.room(filling), backlog),
            reset_after: self.0.span(self.full_at_last(filling) - self.0.moment(t)),
        }
    }

    /// When the bucket is full if every live hold expires, in 1/R microseconds.
    pub(super) fn full_at_last(self, filling: Filling<'_>) -> i128 {
        let used = |full_at, hold: &Hold| self.0.charged(full_at, hold.expires, hold.cost.get());
        filling.live.iter().fold(filling.full_at, used)
    }

    /// `full_at` after a settlement at t: the units held are free again, and what was used is charged, at most to 10^12 below 0.
    pub(super) fn settled(self, filling: Filling<'_>, t: Stamp, actual: Cost) -> i128 {
        let lowest = (self.room(filling) + i128::from(UNITS)) * i128::from(self.0.rate.period.0);
        let now = self.0.moment(t);
        let after = self.0.charged(filling.full_at, t, actual.get());
        after.min(now + lowest).max(filling.full_at)
    }

    /// `full_at` after a refund at t of `units` taken at `at`: less what has come back since.
    pub(super) fn refunded(self, full_at: i128, t: Stamp, at: Stamp, units: u64) -> i128 {
        let back = self.0.work(units) - self.0.ticks(Span((t.0 - at.0).max(0)));
        let now = self.0.moment(t);
        if back <= 0 || full_at <= now { full_at } else { now.max(full_at - back) }
    }

    /// `full_at` under another rule: the level rounded down to that rule's 1/P units, cut to what that bucket fills to.
    pub(super) fn migrate(self, new: TokenBucket, filling: Filling<'_>, t: Stamp) -> i128 {
        let (old_period, new_period) = (i128::from(self.0.rate.period.0), i128::from(new.0.rate.period.0));
        let level = self.room(filling) * old_period - self.0.backlog(filling.full_at, t);
        let level = scale_down(level, new_period, old_period);
        new.0.moment(t) + (new.room(filling) * new_period - level).max(0)
    }
}

impl HeldBucket {
    /// Puts a hold in its place.
    pub(super) fn hold(&mut self, hold: Hold) {
        let place = self.holds.partition_point(|other| (other.expires, other.id) <= (hold.expires, hold.id));
        self.holds.insert(place, hold);
    }
}
