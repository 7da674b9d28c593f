//! A ceiling that finds its own height: lower while work takes longer than it used to, higher while it does not.
//!
//! What is learned from is how long places are held, by Gradient2: the latest against the long-term mean. This file only makes
//! the places as many as it says. A place too many is taken away when it is given back, so nobody is interrupted.
//!
//! Invariant: `total` is the number of places that are out or free.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_resilience_adaptive::{ConcurrencyAlgorithm as _, Gradient2};

use crate::error::Error;

pub(super) struct Adaptive {
    /// Changed by one at a time.
    learner: Mutex<Gradient2>,
    places: Arc<Semaphore>,
    total: Arc<AtomicUsize>,
}

impl fmt::Debug for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("total", &self.total).finish_non_exhaustive()
    }
}

impl Adaptive {
    /// It begins with the `least`, which `places` and `total` hold already.
    pub(super) fn new(
        least: usize,
        most: usize,
        places: Arc<Semaphore>,
        total: Arc<AtomicUsize>,
    ) -> Result<Adaptive, Error> {
        let learner = Gradient2::builder().initial_limit(least).min_limit(least).max_limit(most).build();
        let learner = learner.map_err(|error| Error::invalid(format!("no adaptive ceiling: {error}")))?;
        Ok(Adaptive { learner: Mutex::new(learner), places, total })
    }

    /// A place is given back that was held so long.
    pub(super) fn held(&self, permit: OwnedSemaphorePermit, span: Duration) {
        let learner = self.learner.lock().unwrap_or_else(PoisonError::into_inner);
        let total = self.total.load(Ordering::Relaxed);
        learner.record_success_with_load(span, total.saturating_sub(self.places.available_permits()));
        let wanted = learner.limit();
        if wanted > total {
            self.places.add_permits(wanted - total);
            self.total.store(wanted, Ordering::Relaxed);
        } else if wanted < total {
            permit.forget();
            let free = self.places.forget_permits(total - 1 - wanted);
            self.total.store(total - 1 - free, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use crate::ceiling::Ceiling;
    use crate::error::ErrorKind;

    /// As many at once as may be, again and again, each for so long.
    async fn work(ceiling: &Ceiling, span: Duration, rounds: usize) {
        for _ in 0..rounds {
            let mut places = Vec::new();
            while let Some(place) = ceiling.try_enter() {
                places.push(place);
            }
            assert_eq!(ceiling.in_flight(), ceiling.limit());
            assert!((4..=64).contains(&places.len()), "{}", places.len());
            sleep(span).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_rises_while_work_is_quick_and_falls_while_it_is_slow() {
        let ceiling = Ceiling::adaptive(4, 64, 0).unwrap();
        assert_eq!(ceiling.limit(), 4);
        work(&ceiling, Duration::from_millis(10), 60).await;
        assert_eq!((ceiling.limit(), ceiling.in_flight()), (64, 0));
        work(&ceiling, Duration::from_millis(200), 2).await;
        assert!(ceiling.limit() < 32, "{}", ceiling.limit());
        let refused = {
            let _all: Vec<_> = std::iter::from_fn(|| ceiling.try_enter()).collect();
            ceiling.enter(Duration::ZERO).await.unwrap_err()
        };
        assert_eq!(refused.kind(), ErrorKind::Ceiling);
    }

    #[test]
    fn bounds_that_cannot_be_are_refused() {
        for (least, most) in [(0, 4), (5, 4), (1, 1 << 21)] {
            assert_eq!(Ceiling::adaptive(least, most, 0).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
