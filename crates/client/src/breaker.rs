//! Keeps a shard that does not answer from costing every check its deadline.
//!
//! One for each shard, since it is shards that fail: without a leader while all nodes are up, or on while a node is down. A
//! breaker by node would wait for nodes that cannot help, and would shut out shards that have moved to another.
//!
//! ```text
//!            5 checks in a row not answered in time, over at least 100 ms
//!   closed ───────────────────────────────────────────────────────────────► open ◄──┐ not answered, or late:
//!     ▲                                                                      │      │ the next one after a backoff
//!     └──────────────── anything answered within the client's deadline ──── probe ──┘ with full jitter
//! ```
//!
//! Probes are the engine's own: none of the callers waits for one, and one shard has one under way at most. What waits in line
//! already stays there, so that a caller who said that it has more time than the client's deadline is served as soon as the
//! shard is back.
//!
//! The engine keeps the [`Breaker`]; callers look at the [`Gate`], which costs them one load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quorate_core::ShardId;
use tokio::time::Instant;

use crate::caps;
use crate::error::Error;
use crate::observe;

/// Counts what is not answered. Closed when it is new.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// An answer within this is in time.
    patience: Duration,
    open: bool,
    /// Checks in a row that were not answered in time, and when the first of them was given up.
    missed: u32,
    since: Option<Instant>,
}

impl Breaker {
    pub(crate) fn new(patience: Duration) -> Breaker {
        Breaker { patience, open: false, missed: 0, since: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// So many more checks were given up; whether it opens now.
    pub(crate) fn missed(&mut self, checks: u32, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.missed = self.missed.saturating_add(checks);
        let opens = !self.open && self.missed >= caps::BREAKER_FAILURES && now >= since + caps::BREAKER_WINDOW;
        self.open |= opens;
        opens
    }

    /// Something was answered, so long after it was sent; whether it closes now.
    pub(crate) fn answered(&mut self, took: Duration) -> bool {
        if took > self.patience {
            return false;
        }
        (self.missed, self.since) = (0, None);
        std::mem::take(&mut self.open)
    }

    pub(crate) fn reset(&mut self) {
        *self = Breaker::new(self.patience);
    }
}

/// What callers see of a shard's breaker: shut while it is open.
#[derive(Debug)]
pub(crate) struct Gate {
    shard: ShardId,
    shut: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl Gate {
    pub(crate) fn new(shard: ShardId) -> Gate {
        Gate { shard, shut: AtomicBool::new(false), why: Mutex::new(None) }
    }

    /// Why nothing is to be put in line; none where it is.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if !self.shut.load(Ordering::Acquire) {
            return None;
        }
        self.why.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Error::again)
    }

    pub(crate) fn shut(&self, why: Error) {
        tracing::warn!(shard = %self.shard, %why, "the breaker of this shard opens");
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        if !self.shut.swap(true, Ordering::Release) {
            observe::breaker(true);
        }
    }

    pub(crate) fn open(&self) {
        if self.shut.swap(false, Ordering::Release) {
            tracing::info!(shard = %self.shard, "the breaker of this shard closes");
            observe::breaker(false);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // What is gone is not counted as open.
        if *self.shut.get_mut() {
            observe::breaker(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const PATIENCE: Duration = Duration::from_millis(50);

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_enough_failures_over_long_enough() {
        let (mut breaker, start) = (Breaker::new(PATIENCE), Instant::now());
        assert!(!breaker.missed(1_000, start), "one hiccup");
        assert!(!breaker.missed(1, start + caps::BREAKER_WINDOW - Duration::from_micros(1)));
        assert!(breaker.missed(1, start + caps::BREAKER_WINDOW));
        assert!(!breaker.missed(1, start + caps::BREAKER_WINDOW), "it opens once");

        let mut breaker = Breaker::new(PATIENCE);
        for miss in 1..caps::BREAKER_FAILURES {
            assert!(!breaker.missed(1, start + caps::BREAKER_WINDOW * miss), "{miss} in a row");
        }
        assert!(!breaker.answered(PATIENCE), "it was not open");
        assert!(!breaker.missed(1, start + caps::BREAKER_WINDOW * 9), "what was answered ends the row");
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_in_time_closes_it() {
        let (mut breaker, start) = (Breaker::new(PATIENCE), Instant::now());
        breaker.missed(caps::BREAKER_FAILURES, start);
        assert!(breaker.missed(1, start + caps::BREAKER_WINDOW));
        assert!(!breaker.answered(PATIENCE + Duration::from_micros(1)) && breaker.is_open());
        assert!(breaker.answered(PATIENCE) && !breaker.is_open());
        assert!(!breaker.missed(caps::BREAKER_FAILURES, start + caps::BREAKER_WINDOW * 2), "it counts from none again");
    }

    #[test]
    fn a_gate_tells_why_it_is_shut() {
        let gate = Gate::new(ShardId(3));
        assert!(gate.refusal().is_none());
        gate.shut(Error::new(ErrorKind::NoLeader, "nobody leads"));
        let error = gate.refusal().unwrap();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NoLeader, "nobody leads"));
        gate.open();
        assert!(gate.refusal().is_none());
    }
}
