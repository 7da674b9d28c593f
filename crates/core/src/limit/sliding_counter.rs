//! Sliding counters: two aligned windows, the earlier one fading linearly as the later one runs.
//!
//! Invariant: `curr` belongs to the window of that number, `prev` to the one before it. With e microseconds of the window W
//! gone, the estimate is prev (W - e) / W + curr; it is only ever compared after multiplying by W, so nothing is rounded
//! before an answer is given. The counts pass the limit only by debt from settling, and stop at 2^64 - 1.

use super::exact::{div_down, div_up, span};
use super::{Standing, Verdict};
use crate::units::{Cost, Span, Stamp};

/// The rule: at most about `limit` in any window.
#[derive(Clone, Copy)]
pub(super) struct SlidingCounter {
    pub(super) limit: u64,
    pub(super) window: i64,
}

/// What was used, in this window and in the one before.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) window: i64,
    pub(super) prev: u64,
    pub(super) curr: u64,
}

impl SlidingCounter {
    pub(super) fn window_of(self, t: Stamp) -> i64 {
        t.0.div_euclid(self.window)
    }

    /// The state as it is at t: that of t's window.
    fn at(self, state: Counts, t: Stamp) -> Counts {
        let window = self.window_of(t);
        match window - state.window {
            ..=0 => state,
            1 => Counts { window, prev: state.curr, curr: 0 },
            _ => Counts { window, prev: 0, curr: 0 },
        }
    }

    /// What is left of the window, W - e.
    fn left(self, state: Counts, t: Stamp) -> i64 {
        ((state.window + 1) * self.window - t.0).clamp(0, self.window)
    }

    /// The estimate rounded up to a whole unit.
    fn estimate_up(self, state: Counts, t: Stamp) -> u64 {
        let faded = div_up(i128::from(state.prev) * i128::from(self.left(state, t)), i128::from(self.window));
        state.curr.saturating_add(faded as u64)
    }

    pub(super) fn verdict(self, state: Counts, t: Stamp, cost: Cost) -> Verdict {
        if cost == Cost::ZERO {
            return Verdict::granted();
        }
        let state = self.at(state, t);
        // estimate + c <= L holds of the rational exactly if it holds of the estimate rounded up, as c and L are whole.
        if self.estimate_up(state, t).saturating_add(cost.get()) <= self.limit {
            return Verdict::granted();
        }
        Verdict::denied(self.limit.checked_sub(cost.get()).map(|room| self.retry_after(state, t, room)))
    }

    /// The shortest wait until the estimate is at most `room`, given that it is above it now.
    ///
    /// The estimate falls all the time while nobody asks, without a jump between windows: at the boundary, prev has faded to
    /// nothing and curr begins to fade in its place. So it crosses `room` once: in this window if curr leaves room, in the
    /// next otherwise, or, with no room at all, at the next one's end.
    fn retry_after(self, state: Counts, t: Stamp, room: u64) -> Span {
        let (fading, room, before) = match room.checked_sub(state.curr) {
            Some(room) => (state.prev, room, 0),
            None => (state.curr, room, self.window),
        };
        // The fading count has to come down to fading · left / W <= room.
        let left = div_down(i128::from(room) * i128::from(self.window), i128::from(fading.max(1)));
        let begin = i128::from(state.window) * i128::from(self.window) + i128::from(before);
        span(begin + i128::from(self.window) - left - i128::from(t.0))
    }

    pub(super) fn charge(self, state: Counts, t: Stamp, units: u64) -> Counts {
        let state = self.at(state, t);
        Counts { curr: state.curr.saturating_add(units), ..state }
    }

    pub(super) fn standing(self, state: Counts, t: Stamp) -> Standing {
        let state = self.at(state, t);
        Standing {
            limit: self.limit,
            remaining: self.limit.saturating_sub(self.estimate_up(state, t)),
            reset_after: span(self.as_new_us(state) - i128::from(t.0)),
        }
    }

    /// Takes `units` of a charge made at `at` back from the window that it fell in, if that still counts.
    pub(super) fn refund(self, state: Counts, t: Stamp, at: Stamp, units: u64) -> Counts {
        let now = self.at(state, t);
        match now.window - self.window_of(at) {
            0 if now.curr > 0 => Counts { curr: now.curr.saturating_sub(units), ..now },
            1 if now.prev > 0 => Counts { prev: now.prev.saturating_sub(units), ..now },
            _ => state,
        }
    }

    /// In microseconds; 0 if it is as good as new already.
    pub(super) fn as_new_us(self, state: Counts) -> i128 {
        let windows = match state {
            Counts { curr: 0, prev: 0, .. } => return 0,
            Counts { curr: 0, .. } => 1,
            _ => 2,
        };
        (i128::from(state.window) + windows) * i128::from(self.window)
    }

    /// With another window, the estimate rounded up becomes what was used in the new rule's window; else all stays.
    pub(super) fn migrate(self, new: SlidingCounter, state: Counts, t: Stamp) -> Counts {
        let state = self.at(state, t);
        if self.window == new.window {
            return state;
        }
        Counts { window: new.window_of(t), prev: 0, curr: self.estimate_up(state, t) }
    }
}
