//! The state of one key under one policy, and what each algorithm does with it.
//!
//! Everything is integers, exact to the microsecond: balances are held in units so fine that charges, waits and refunds are
//! whole numbers, and only answers are rounded (spans up, counts down). Nothing here reads a clock or fails.
//!
//! Invariants:
//! - Callers pass times that never go back for one state.
//! - A state of another algorithm than the policy's is as good as new (so the law has it for a changed algorithm).
//! - Questions change nothing; a state changes only by a charge, a refund, a settlement or a migration, and then says so.
//!
//! One file for each algorithm; `pace` is the arithmetic that both buckets share, `log` the memory of sliding logs, `exact` the
//! only place that divides.

mod exact;
mod fixed_window;
mod leaky_bucket;
mod log;
mod pace;
mod sliding_counter;
mod sliding_log;
mod token_bucket;
mod undo;

use fixed_window::{FixedWindow, Used};
use leaky_bucket::LeakyBucket;
pub use log::{Entries, SlidingLog};
use pace::Pace;
use sliding_counter::{Counts, SlidingCounter};
use token_bucket::{Filling, TokenBucket};
pub use token_bucket::{HeldBucket, Hold};
pub use undo::{overrun, refund, settle};

use crate::caps::LONGEST_US;
use crate::ids::Position;
use crate::policy::{Algorithm, Policy};
use crate::units::{Cost, Rate, Span, Stamp};

/// What is remembered of one key under one policy.
///
/// ```
/// use quorate_core::{Algorithm, Span, Stamp, State};
/// let algorithm = Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) };
/// assert!(State::new(&algorithm).is_new(&algorithm, Stamp(0)));
/// let used = State::FixedWindow { window: 7, used: 1 };
/// assert!(!used.is_new(&algorithm, Stamp(7_999_999)));
/// assert_eq!(used.as_new_at(&algorithm), Stamp(8_000_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a fixed window.
    FixedWindow {
        /// The window's number: its start is that many windows after the epoch.
        window: i64,
        /// Units used in it; above the limit by debt only, and at most 2^64 - 1.
        used: u64,
    },
    /// Of a sliding counter.
    SlidingCounter {
        /// The current window's number.
        window: i64,
        /// Units used in the window before it.
        prev: u64,
        /// Units used in it.
        curr: u64,
    },
    /// Of a token bucket that holds no reservation.
    TokenBucket {
        /// When it is full, in 1/R microseconds.
        full_at: i128,
    },
    /// Of a leaky bucket.
    LeakyBucket {
        /// When the work queued so far is done, in 1/R microseconds.
        next: i128,
    },
    /// Of a sliding log.
    SlidingLog(Box<SlidingLog>),
    /// Of a token bucket with live reservations.
    HeldBucket(Box<HeldBucket>),
}

/// Whether one limit grants, by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    /// On a denial that time can change.
    pub(crate) retry_after: Option<Span>,
    /// On a leaky bucket's grant.
    pub(crate) delay: Option<Span>,
}

impl Verdict {
    fn granted() -> Verdict {
        Verdict { allowed: true, retry_after: None, delay: None }
    }

    fn denied(retry_after: Option<Span>) -> Verdict {
        Verdict { allowed: false, retry_after, delay: None }
    }
}

/// What a state says of itself at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_after: Span,
}

fn token_bucket(capacity: u64, rate: Rate) -> TokenBucket {
    TokenBucket(Pace { capacity, rate })
}

fn leaky_bucket(queue: u64, rate: Rate) -> LeakyBucket {
    LeakyBucket(Pace { capacity: queue + 1, rate })
}

impl State {
    /// As good as new.
    pub fn new(algorithm: &Algorithm) -> State {
        match algorithm {
            Algorithm::FixedWindow { .. } => State::FixedWindow { window: 0, used: 0 },
            Algorithm::SlidingLog { .. } => State::SlidingLog(Box::default()),
            Algorithm::SlidingCounter { .. } => State::SlidingCounter { window: 0, prev: 0, curr: 0 },
            Algorithm::TokenBucket { .. } => State::TokenBucket { full_at: 0 },
            Algorithm::LeakyBucket { .. } => State::LeakyBucket { next: 0 },
        }
    }

    /// Whether it is as good as new at t: nobody could tell if it were dropped.
    pub fn is_new(&self, algorithm: &Algorithm, t: Stamp) -> bool {
        self.as_new_at(algorithm) <= t
    }

    /// The first microsecond from which it is as good as new if nobody asks again; 0 if it is already, whatever the time.
    /// Where that is beyond 2^62, which no logical time passes, it is 2^62 + 1.
    pub fn as_new_at(&self, algorithm: &Algorithm) -> Stamp {
        Stamp(self.as_new_us(algorithm).min(i128::from(LONGEST_US) + 1) as i64)
    }

    fn as_new_us(&self, algorithm: &Algorithm) -> i128 {
        match (algorithm, self) {
            (&Algorithm::FixedWindow { limit, window }, State::FixedWindow { .. }) => {
                FixedWindow { limit, window: window.0 }.as_new_us(self.used())
            }
            (&Algorithm::SlidingCounter { limit, window }, State::SlidingCounter { .. }) => {
                SlidingCounter { limit, window: window.0 }.as_new_us(self.counts())
            }
            (&Algorithm::SlidingLog { limit, window }, State::SlidingLog(log)) => {
                sliding_log::Rule { limit, window: window.0 }.as_new_us(log)
            }
            (&Algorithm::TokenBucket { capacity, refill }, State::TokenBucket { full_at }) => {
                token_bucket(capacity, refill).0.microsecond(*full_at)
            }
            (&Algorithm::TokenBucket { capacity, refill }, State::HeldBucket(bucket)) => {
                let rule = token_bucket(capacity, refill);
                rule.0.microsecond(rule.full_at_last(Filling::before_expiries(bucket)))
            }
            (&Algorithm::LeakyBucket { queue, rate }, State::LeakyBucket { next }) => {
                leaky_bucket(queue, rate).0.microsecond(*next)
            }
            _ => 0,
        }
    }

    /// How many reservations are live at t.
    pub fn holds(&self, t: Stamp) -> usize {
        match self {
            State::HeldBucket(bucket) => bucket.holds.iter().filter(|hold| hold.expires > t).count(),
            _ => 0,
        }
    }

    /// Bytes of memory besides the state itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            State::SlidingLog(log) => size_of::<SlidingLog>() + log.heap_bytes(),
            State::HeldBucket(bucket) => size_of::<HeldBucket>() + bucket.holds.capacity() * size_of::<Hold>(),
            _ => 0,
        }
    }

    /// Whether this limit alone would grant `cost` at t.
    pub(crate) fn verdict(&self, algorithm: &Algorithm, t: Stamp, cost: Cost, max_delay: Option<Span>) -> Verdict {
        match *algorithm {
            Algorithm::FixedWindow { limit, window } => {
                FixedWindow { limit, window: window.0 }.verdict(self.used(), t, cost)
            }
            Algorithm::SlidingCounter { limit, window } => {
                SlidingCounter { limit, window: window.0 }.verdict(self.counts(), t, cost)
            }
            Algorithm::SlidingLog { limit, window } => {
                let rule = sliding_log::Rule { limit, window: window.0 };
                if let State::SlidingLog(log) = self {
                    return rule.verdict(log, t, cost);
                }
                rule.verdict(&SlidingLog::default(), t, cost)
            }
            Algorithm::TokenBucket { capacity, refill } => {
                let rule = token_bucket(capacity, refill);
                rule.verdict(self.filling(rule, t), t, cost)
            }
            Algorithm::LeakyBucket { queue, rate } => {
                leaky_bucket(queue, rate).verdict(self.next(), t, cost, max_delay)
            }
        }
    }

    /// What it says of itself at t.
    pub(crate) fn standing(&self, algorithm: &Algorithm, t: Stamp) -> Standing {
        match *algorithm {
            Algorithm::FixedWindow { limit, window } => {
                FixedWindow { limit, window: window.0 }.standing(self.used(), t)
            }
            Algorithm::SlidingCounter { limit, window } => {
                SlidingCounter { limit, window: window.0 }.standing(self.counts(), t)
            }
            Algorithm::SlidingLog { limit, window } => {
                let rule = sliding_log::Rule { limit, window: window.0 };
                if let State::SlidingLog(log) = self {
                    return rule.standing(log, t);
                }
                rule.standing(&SlidingLog::default(), t)
            }
            Algorithm::TokenBucket { capacity, refill } => {
                let rule = token_bucket(capacity, refill);
                rule.standing(self.filling(rule, t), t)
            }
            Algorithm::LeakyBucket { queue, rate } => leaky_bucket(queue, rate).standing(self.next(), t),
        }
    }

    /// Takes `cost` at t without asking; a token bucket holds it until it is settled, if a hold is named. Answers the mark that
    /// a refund has to bring.
    pub(crate) fn charge(
        &mut self,
        algorithm: &Algorithm,
        t: Stamp,
        cost: Cost,
        hold: Option<(Position, Stamp)>,
    ) -> Option<i128> {
        if cost == Cost::ZERO {
            return None;
        }
        match *algorithm {
            Algorithm::FixedWindow { limit, window } => {
                *self = FixedWindow { limit, window: window.0 }.charge(self.used(), t, cost.get()).into();
            }
            Algorithm::SlidingCounter { limit, window } => {
                *self = SlidingCounter { limit, window: window.0 }.charge(self.counts(), t, cost.get()).into();
            }
            Algorithm::SlidingLog { limit, window } => {
                sliding_log::Rule { limit, window: window.0 }.charge(self.log(), t, cost.get());
            }
            Algorithm::TokenBucket { capacity, refill } => {
                let rule = token_bucket(capacity, refill);
                let filling = self.filling(rule, t);
                let Some((id, expires)) = hold else {
                    let full_at = rule.0.charged(filling.full_at(), t, cost.get());
                    self.refill(full_at, filling.live().len());
                    return None;
                };
                let mut bucket = HeldBucket { full_at: filling.full_at(), holds: filling.live().to_vec() };
                bucket.hold(Hold { id, cost, expires });
                *self = State::HeldBucket(Box::new(bucket));
            }
            Algorithm::LeakyBucket { queue, rate } => {
                let next = leaky_bucket(queue, rate).0.charged(self.next(), t, cost.get());
                *self = State::LeakyBucket { next };
                return Some(next);
            }
        }
        None
    }

    fn used(&self) -> Used {
        match *self {
            State::FixedWindow { window, used } => Used { window, used },
            _ => Used { window: 0, used: 0 },
        }
    }

    fn counts(&self) -> Counts {
        match *self {
            State::SlidingCounter { window, prev, curr } => Counts { window, prev, curr },
            _ => Counts { window: 0, prev: 0, curr: 0 },
        }
    }

    fn next(&self) -> i128 {
        match *self {
            State::LeakyBucket { next } => next,
            _ => 0,
        }
    }

    fn log(&mut self) -> &mut SlidingLog {
        if !matches!(self, State::SlidingLog(_)) {
            *self = State::SlidingLog(Box::default());
        }
        match self {
            State::SlidingLog(log) => log,
            _ => unreachable!("it was made one just above"),
        }
    }

    /// A token bucket as it is at t.
    fn filling(&self, rule: TokenBucket, t: Stamp) -> Filling<'_> {
        match self {
            State::TokenBucket { full_at } => Filling::plain(*full_at),
            State::HeldBucket(bucket) => rule.at(bucket, t),
            _ => Filling::plain(0),
        }
    }

    /// Sets a token bucket's moment, and keeps the last `live` of its holds.
    fn refill(&mut self, full_at: i128, live: usize) {
        match self {
            State::HeldBucket(bucket) if live > 0 => {
                bucket.full_at = full_at;
                bucket.holds.drain(..bucket.holds.len() - live);
            }
            _ => *self = State::TokenBucket { full_at },
        }
    }
}

impl From<Used> for State {
    fn from(state: Used) -> State {
        State::FixedWindow { window: state.window, used: state.used }
    }
}

impl From<Counts> for State {
    fn from(state: Counts) -> State {
        State::SlidingCounter { window: state.window, prev: state.prev, curr: state.curr }
    }
}

/// The state under a policy's new version, which comes into force at t.
///
/// First it is brought up to t under the old version; as good as new there, it becomes new. With another algorithm it becomes
/// new anyway. Else each algorithm carries over what it can, so that a raised limit helps and a lowered one holds at once.
///
/// ```
/// use quorate_core::{migrate, Algorithm, Policy, Span, Stamp, State};
/// let old = Policy::new("p", Algorithm::FixedWindow { limit: 5, window: Span(1_000_000) });
/// let new = Policy::new("p", Algorithm::FixedWindow { limit: 9, window: Span(5_000_000) });
/// let state = migrate(&old, &new, State::FixedWindow { window: 7, used: 3 }, Stamp(7_500_000));
/// assert_eq!(state, State::FixedWindow { window: 1, used: 3 });
/// ```
pub fn migrate(old: &Policy, new: &Policy, state: State, t: Stamp) -> State {
    if old.algorithm == new.algorithm {
        return state;
    }
    if state.is_new(&old.algorithm, t) {
        return State::new(&new.algorithm);
    }
    match (&old.algorithm, &new.algorithm, state) {
        (
            &Algorithm::FixedWindow { limit, window },
            &Algorithm::FixedWindow { limit: new_limit, window: new_window },
            state,
        ) => {
            let (old, new) =
                (FixedWindow { limit, window: window.0 }, FixedWindow { limit: new_limit, window: new_window.0 });
            old.migrate(new, state.used(), t).into()
        }
        (
            &Algorithm::SlidingCounter { limit, window },
            &Algorithm::SlidingCounter { limit: new_limit, window: new_window },
            state,
        ) => {
            let (old, new) =
                (SlidingCounter { limit, window: window.0 }, SlidingCounter { limit: new_limit, window: new_window.0 });
            old.migrate(new, state.counts(), t).into()
        }
        (&Algorithm::SlidingLog { limit, window }, Algorithm::SlidingLog { .. }, State::SlidingLog(mut log)) => {
            sliding_log::Rule { limit, window: window.0 }.migrate(&mut log, t);
            State::SlidingLog(log)
        }
        (
            &Algorithm::TokenBucket { capacity, refill },
            &Algorithm::TokenBucket { capacity: new_capacity, refill: new_refill },
            mut state,
        ) => {
            let (old, new) = (token_bucket(capacity, refill), token_bucket(new_capacity, new_refill));
            let filling = state.filling(old, t);
            let (full_at, live) = (old.migrate(new, filling, t), filling.live().len());
            state.refill(full_at, live);
            state
        }
        (
            &Algorithm::LeakyBucket { queue, rate },
            &Algorithm::LeakyBucket { queue: new_queue, rate: new_rate },
            State::LeakyBucket { next },
        ) => {
            let (old, new) = (leaky_bucket(queue, rate).0, leaky_bucket(new_queue, new_rate).0);
            State::LeakyBucket { next: old.same_moment(new, next) }
        }
        _ => State::new(&new.algorithm),
    }
}
