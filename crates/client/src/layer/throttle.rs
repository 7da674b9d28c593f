//! Something at most so often.

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::time::Instant;

use crate::caps;

/// Lets one through each second, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// How many were held back since the last that was let through; none where this one is held back as well.
    pub(super) fn pass(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.last.is_some_and(|last| now < last + caps::LOG_EVERY) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_second_passes() {
        let throttle = Throttle::default();
        assert_eq!([throttle.pass(), throttle.pass(), throttle.pass()], [Some(0), None, None]);
        tokio::time::advance(caps::LOG_EVERY).await;
        assert_eq!([throttle.pass(), throttle.pass()], [Some(2), None]);
    }
}
