//! Stamps a leader's batches: one of these for each term of a led shard.
//!
//! Two rules. The clock that the stamps follow is slewed: when the cluster's clock is estimated anew, the old one is corrected
//! by at most a tenth of the time that passes; on taking office it is taken as it is. And a stamp is never before the last
//! one of the shard: where that lies ahead of the clock (a former leader's clock was), logical time goes on at half pace until
//! the two meet, rather than standing still, which would deny everybody.
//!
//! Pure: fed with estimates and moments, it reads no clock.

use quorate_core::{Stamp, caps};

use super::{Estimate, Monotonic};

/// Corrections go by at most one part in so many of the time that passes.
const SLEW: i64 = 10;

/// Gives a led shard's batches their stamps.
#[derive(Clone, Debug)]
pub struct Stamper {
    /// The slewed clock less the monotonic one.
    offset: i64,
    /// Up to when it was slewed.
    slewed: Monotonic,
    last: Stamp,
    /// When and from what stamp half pace began; none while the clock leads.
    behind: Option<(Monotonic, Stamp)>,
}

impl Stamper {
    /// Takes office over a shard whose last stamp is `last`.
    pub fn new(estimate: &Estimate, now: Monotonic, last: Stamp) -> Stamper {
        Stamper { offset: estimate.offset, slewed: now, last, behind: None }
    }

    /// The stamp of what is proposed now: no earlier than any before.
    pub fn stamp(&mut self, estimate: &Estimate, now: Monotonic) -> Stamp {
        let room = now.since(self.slewed).0 / SLEW;
        if room > 0 || estimate.offset == self.offset {
            // Less than a correction's microsecond is kept for the next time.
            self.offset += estimate.offset.saturating_sub(self.offset).clamp(-room, room);
            self.slewed = self.slewed.max(now);
        }
        let clock = Stamp(now.0.saturating_add(self.offset).clamp(0, caps::LONGEST_US));
        let (since, from) = self.behind.unwrap_or((now, self.last));
        let half = Stamp(from.0.saturating_add(now.since(since).0 / 2).min(caps::LONGEST_US));
        self.behind = (clock < half).then_some((since, from));
        self.last = self.last.max(clock).max(half);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn estimate(offset: i64) -> Estimate {
        Estimate { offset, trusted: true, ..Estimate::default() }
    }

    #[test]
    fn on_taking_office_the_estimate_is_taken_as_it_is() {
        let mut stamper = Stamper::new(&estimate(500), Monotonic(10), Stamp(0));
        assert_eq!(stamper.stamp(&estimate(500), Monotonic(10)), Stamp(510));
    }

    #[test]
    fn corrections_go_by_a_tenth() {
        let mut stamper = Stamper::new(&estimate(0), Monotonic(0), Stamp(0));
        // The estimate jumps ten seconds ahead: after one second, a tenth of one is made good.
        assert_eq!(stamper.stamp(&estimate(10 * SECOND), Monotonic(SECOND)), Stamp(SECOND + SECOND / 10));
        // Back again: the clock goes on, slower.
        assert_eq!(stamper.stamp(&estimate(0), Monotonic(2 * SECOND)), Stamp(2 * SECOND));
        // Many small steps are worth as much as one large one.
        for step in 1..=1_000 {
            stamper.stamp(&estimate(10 * SECOND), Monotonic(2 * SECOND + step * 1_003));
        }
        let end = 2 * SECOND + 1_003_000;
        let stamp = stamper.stamp(&estimate(10 * SECOND), Monotonic(end)).0;
        assert!((100_000..=100_300).contains(&(stamp - end)), "{}", stamp - end);
    }

    #[test]
    fn the_clock_meets_a_last_stamp_ahead_of_it_at_half_pace() {
        let mut stamper = Stamper::new(&estimate(0), Monotonic(0), Stamp(10 * SECOND));
        let mut stamp = |now| stamper.stamp(&estimate(0), Monotonic(now)).0;
        assert_eq!(stamp(0), 10 * SECOND);
        assert_eq!(stamp(4 * SECOND), 12 * SECOND);
        // An odd microsecond is not lost.
        assert_eq!(stamp(4 * SECOND + 1), 12 * SECOND);
        assert_eq!(stamp(4 * SECOND + 2), 12 * SECOND + 1);
        assert_eq!(stamp(20 * SECOND), 20 * SECOND);
        assert_eq!(stamp(30 * SECOND), 30 * SECOND);
    }

    proptest! {
        #[test]
        fn stamps_never_go_back_and_run_at_a_sane_pace(
            last in 0..1_000 * SECOND,
            steps in prop::collection::vec((0..10 * SECOND, -3_600 * SECOND..3_600 * SECOND), 1..50),
        ) {
            let mut now = 100 * SECOND;
            let mut stamper = Stamper::new(&estimate(0), Monotonic(now), Stamp(last));
            let mut before = stamper.stamp(&estimate(0), Monotonic(now));
            prop_assert!(before >= Stamp(last));
            for (passed, offset) in steps {
                now += passed;
                let stamp = stamper.stamp(&estimate(offset), Monotonic(now));
                let gone = stamp.0 - before.0;
                prop_assert!(gone >= 0);
                prop_assert!(gone <= passed + passed / 10 + 1, "{} in {}", gone, passed);
                prop_assert!(gone >= passed / 2 - passed / 20 - 1 , "{} in {}", gone, passed);
                before = stamp;
            }
        }
    }
}
