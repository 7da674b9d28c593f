//! When a child that ended is started again. Pure: time is passed in as the span that the child lived.

use std::time::Duration;

/// A child that lived this long had started well.
const WELL: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);

/// How often in a row a child has ended soon after its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restarts {
    soon: u32,
}

impl Restarts {
    /// A child has ended after `lived`: how long to wait before the next start. It doubles with each early end.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= WELL {
            self.soon = 0;
            return Duration::ZERO;
        }
        self.soon = self.soon.saturating_add(1);
        match self.soon {
            1 => Duration::ZERO,
            more => Duration::from_secs(1 << (more - 2).min(5)).min(LONGEST),
        }
    }

    /// Whether it has ended early more than once, so that the reason is worth showing.
    pub(super) fn failing(self) -> bool {
        self.soon > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_ends_wait_longer_each_time_and_a_good_life_forgives() {
        let mut restarts = Restarts::default();
        let waits: Vec<u64> = (0..8).map(|_| restarts.after(Duration::from_millis(5)).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert!(restarts.failing());
        assert_eq!(restarts.after(Duration::from_secs(11)), Duration::ZERO);
        assert!(!restarts.failing());
        assert_eq!(restarts.after(Duration::from_secs(1)), Duration::ZERO);
    }
}
