//! Something at most so often.

use tokio::time::Instant;

use crate::caps;

/// Lets one through each [`caps::LOG_EVERY`], and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// How many were held back since the last that was let through; none where this one is held back as well.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + caps::LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_second_passes() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let mut at = |ms| throttle.pass(start + Duration::from_millis(ms));
        assert_eq!(
            [at(0), at(500), at(999), at(1_000), at(1_001), at(3_000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
