//! The fake cluster's time: turned by hand, and, where that is wanted, carried along by tokio's.

use std::time::Duration;

use quorate_core::Stamp;
use tokio::time::Instant;

/// When every fake cluster begins: 2027-01-15 08:00:00 UTC, the start of a whole hour and of a whole minute.
pub(super) const BEGINS: Stamp = Stamp(1_800_000_000_000_000);

#[derive(Debug)]
pub(super) struct Clock {
    born: Instant,
    turned: Duration,
    follows_tokio: bool,
}

impl Clock {
    pub(super) fn new(follows_tokio: bool) -> Clock {
        Clock { born: Instant::now(), turned: Duration::ZERO, follows_tokio }
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.turned = self.turned.saturating_add(by);
    }

    /// The moment of this clock that a client takes `now` for.
    pub(super) fn at(&self, now: Instant) -> Instant {
        (if self.follows_tokio { now } else { self.born }) + self.turned
    }

    pub(super) fn stamp(&self) -> Stamp {
        let passed = self.at(Instant::now()).saturating_duration_since(self.born);
        Stamp(BEGINS.0.saturating_add(i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_unless_it_is_turned_or_follows() {
        let (mut by_hand, mut follows) = (Clock::new(false), Clock::new(true));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((by_hand.stamp().0 - BEGINS.0, follows.stamp().0 - BEGINS.0), (0, 2_000_000));
        by_hand.advance(Duration::from_millis(1_500));
        follows.advance(Duration::from_millis(1_500));
        assert_eq!((by_hand.stamp().0 - BEGINS.0, follows.stamp().0 - BEGINS.0), (1_500_000, 3_500_000));
        assert_eq!(BEGINS.0 % 3_600_000_000, 0);
    }
}
