//! Taking a charge back, and correcting it to what was really used.
//!
//! Neither ever gives back what time has given back already. Whether a charge is still there to be undone (no reset since, no
//! change of algorithm, window or rate) is for the caller to know: it needs positions in the log, not times.

use super::{FixedWindow, SlidingCounter, State, leaky_bucket, sliding_log, token_bucket};
use crate::ids::Position;
use crate::policy::{Algorithm, Policy};
use crate::units::{Cost, Stamp};

/// Undoes a charge of `cost` made at `at` by the check of that receipt; whether that changed anything.
///
/// `mark` is what the charge's answer brought ([`LimitAnswer::mark`](crate::LimitAnswer::mark)): a leaky bucket's place can be
/// given back only while it is the last. A live reservation that is refunded counts as settled with nothing used.
///
/// ```
/// use quorate_core::{refund, Algorithm, Cost, Policy, Position, Span, Stamp, State};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// let mut state = State::FixedWindow { window: 7, used: 3 };
/// assert!(refund(&policy, &mut state, Stamp(7_900_000), Position::default(), Stamp(7_100_000), Cost::ONE, None));
/// assert_eq!(state, State::FixedWindow { window: 7, used: 2 });
/// assert!(!refund(&policy, &mut state, Stamp(8_000_000), Position::default(), Stamp(7_100_000), Cost::ONE, None));
/// ```
pub fn refund(
    policy: &Policy,
    state: &mut State,
    t: Stamp,
    receipt: Position,
    at: Stamp,
    cost: Cost,
    mark: Option<i128>,
) -> bool {
    match policy.algorithm {
        Algorithm::TokenBucket { .. } if is_held(state, t, receipt) => release(policy, state, t, receipt, Cost::ZERO),
        _ => take_back(policy, state, t, at, cost, mark),
    }
}

/// Corrects a reservation of `cost`, made at `at` under that receipt and good until `expires`, to what was really used; whether
/// that changed anything.
///
/// From its expiry on, all of it was used and nothing is corrected. What goes over is charged at t without asking; what falls
/// short is given back: all of it by a token bucket, which has held it, and by the others what a refund would give. For a
/// charge that is gone there is [`overrun`].
///
/// ```
/// use quorate_core::{settle, Algorithm, Cost, Policy, Position, Span, Stamp, State};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// let mut state = State::FixedWindow { window: 7, used: 3 };
/// let (at, expires, used) = (Stamp(7_100_000), Stamp(9_000_000), Cost::new(9).unwrap());
/// assert!(settle(&policy, &mut state, Stamp(7_500_000), Position::default(), at, expires, Cost::ONE, used));
/// assert_eq!(state, State::FixedWindow { window: 7, used: 11 });
/// ```
#[allow(
    clippy::too_many_arguments,
    reason = "a charge and its correction have that many parts; the caller has them loose"
)]
pub fn settle(
    policy: &Policy,
    state: &mut State,
    t: Stamp,
    receipt: Position,
    at: Stamp,
    expires: Stamp,
    cost: Cost,
    actual: Cost,
) -> bool {
    let in_time = t < expires && !matches!(policy.algorithm, Algorithm::LeakyBucket { .. });
    match policy.algorithm {
        Algorithm::TokenBucket { .. } if in_time && is_held(state, t, receipt) => {
            release(policy, state, t, receipt, actual)
        }
        Algorithm::TokenBucket { .. } => overrun(policy, state, t, expires, cost, actual),
        _ if in_time && actual < cost => take_back(policy, state, t, at, cost.saturating_sub(actual), None),
        _ => overrun(policy, state, t, expires, cost, actual),
    }
}

/// What a settlement still does when the reservation's charge is gone, by a reset or a change of its policy: nothing is left
/// to give back, but what was used beyond it is charged at t without asking. Whether it changed anything.
///
/// ```
/// use quorate_core::{overrun, Algorithm, Cost, Policy, Span, Stamp, State};
/// let policy = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// let mut state = State::new(&policy.algorithm);
/// let (now, expires, used) = (Stamp(7_500_000), Stamp(9_000_000), Cost::new(9).unwrap());
/// assert!(overrun(&policy, &mut state, now, expires, Cost::ONE, used));
/// assert_eq!(state, State::FixedWindow { window: 7, used: 8 });
/// ```
pub fn overrun(policy: &Policy, state: &mut State, t: Stamp, expires: Stamp, cost: Cost, actual: Cost) -> bool {
    let over = actual.saturating_sub(cost);
    match policy.algorithm {
        _ if t >= expires || over == Cost::ZERO => return false,
        Algorithm::LeakyBucket { .. } => return false,
        Algorithm::TokenBucket { capacity, refill } => {
            let rule = token_bucket(capacity, refill);
            let filling = state.filling(rule, t);
            let (full_at, live) = (rule.settled(filling, t, over), filling.live().len());
            state.refill(full_at, live);
        }
        _ => {
            state.charge(&policy.algorithm, t, over, None);
        }
    }
    true
}

fn take_back(policy: &Policy, state: &mut State, t: Stamp, at: Stamp, cost: Cost, mark: Option<i128>) -> bool {
    if cost == Cost::ZERO {
        return false;
    }
    let units = cost.get();
    let after = match policy.algorithm {
        Algorithm::FixedWindow { limit, window } => {
            FixedWindow { limit, window: window.0 }.refund(state.used(), t, at, units).into()
        }
        Algorithm::SlidingCounter { limit, window } => {
            SlidingCounter { limit, window: window.0 }.refund(state.counts(), t, at, units).into()
        }
        Algorithm::SlidingLog { limit, window } => {
            return sliding_log::Rule { limit, window: window.0 }.refund(state.log(), t, at, units);
        }
        Algorithm::TokenBucket { capacity, refill } => {
            let rule = token_bucket(capacity, refill);
            let filling = state.filling(rule, t);
            let (full_at, live) = (filling.full_at(), filling.live().len());
            let after = rule.refunded(full_at, t, at, units);
            if after == full_at {
                return false;
            }
            state.refill(after, live);
            return true;
        }
        Algorithm::LeakyBucket { queue, rate } => {
            State::LeakyBucket { next: leaky_bucket(queue, rate).refund(state.next(), t, units, mark) }
        }
    };
    let changed = after != *state;
    *state = after;
    changed
}

fn is_held(state: &State, t: Stamp, receipt: Position) -> bool {
    match state {
        State::HeldBucket(bucket) => bucket.holds.iter().any(|hold| hold.id == receipt && hold.expires > t),
        _ => false,
    }
}

/// Ends a token bucket's live hold at t, with `actual` used of it.
fn release(policy: &Policy, state: &mut State, t: Stamp, receipt: Position, actual: Cost) -> bool {
    let Algorithm::TokenBucket { capacity, refill } = policy.algorithm else { return false };
    let rule = token_bucket(capacity, refill);
    // First what has expired is counted as used, then the hold goes, then what it used is charged.
    let filling = state.filling(rule, t);
    let (full_at, live) = (filling.full_at(), filling.live().len());
    state.refill(full_at, live);
    if let State::HeldBucket(bucket) = state {
        bucket.holds.retain(|hold| hold.id != receipt);
    }
    let filling = state.filling(rule, t);
    let (full_at, live) = (rule.settled(filling, t, actual), filling.live().len());
    state.refill(full_at, live);
    true
}
