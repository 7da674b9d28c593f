//! Fixed windows: a count that starts again at every multiple of the window.
//!
//! Invariant: `used` belongs to the window of that number and to no other; in a later one it counts as 0. `used` passes the
//! limit only by debt from settling, and stops at 2^64 - 1.

use super::{Standing, Verdict};
use crate::units::{Cost, Span, Stamp};

/// The rule: at most `limit` in each window.
#[derive(Clone, Copy)]
pub(super) struct FixedWindow {
    pub(super) limit: u64,
    pub(super) window: i64,
}

/// What was used, and in which window.
#[derive(Clone, Copy)]
pub(super) struct Used {
    pub(super) window: i64,
    pub(super) used: u64,
}

impl FixedWindow {
    pub(super) fn window_of(self, t: Stamp) -> i64 {
        t.0.div_euclid(self.window)
    }

    /// The state as it is at t: that of t's window.
    fn at(self, state: Used, t: Stamp) -> Used {
        let window = self.window_of(t);
        if window > state.window { Used { window, used: 0 } } else { state }
    }

    fn until_next(self, state: Used, t: Stamp) -> Span {
        Span((state.window + 1) * self.window - t.0)
    }

    pub(super) fn verdict(self, state: Used, t: Stamp, cost: Cost) -> Verdict {
        let state = self.at(state, t);
        if cost == Cost::ZERO || state.used.saturating_add(cost.get()) <= self.limit {
            return Verdict::granted();
        }
        Verdict::denied((cost.get() <= self.limit).then(|| self.until_next(state, t)))
    }

    pub(super) fn charge(self, state: Used, t: Stamp, units: u64) -> Used {
        let state = self.at(state, t);
        Used { used: state.used.saturating_add(units), ..state }
    }

    pub(super) fn standing(self, state: Used, t: Stamp) -> Standing {
        let state = self.at(state, t);
        Standing {
            limit: self.limit,
            remaining: self.limit.saturating_sub(state.used),
            reset_after: if state.used == 0 { Span(0) } else { self.until_next(state, t) },
        }
    }

    /// Takes `units` of a charge made at `at` back, if that was in the window that is still current.
    pub(super) fn refund(self, state: Used, t: Stamp, at: Stamp, units: u64) -> Used {
        if self.window_of(at) != self.window_of(t) || state.window != self.window_of(t) {
            return state;
        }
        Used { used: state.used.saturating_sub(units), ..state }
    }

    /// In microseconds; 0 if it is as good as new already.
    pub(super) fn as_new_us(self, state: Used) -> i128 {
        if state.used == 0 { 0 } else { (i128::from(state.window) + 1) * i128::from(self.window) }
    }

    /// What was used in the current window counts as charged at t, in the new rule's window.
    pub(super) fn migrate(self, new: FixedWindow, state: Used, t: Stamp) -> Used {
        Used { window: new.window_of(t), used: self.at(state, t).used }
    }
}
