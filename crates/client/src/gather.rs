//! Where the outcomes of one `check_many` meet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::queue::{Failure, Outcome};

/// A place for each outcome; whoever takes the last one wakes the caller.
#[derive(Debug)]
struct Gather {
    inner: Mutex<Inner>,
    gone: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
    full: Option<oneshot::Sender<()>>,
}

/// One outcome's place. Dropped without one, it takes an error, so that the caller never waits for nothing.
#[derive(Debug)]
pub(crate) struct Seat {
    gather: Arc<Gather>,
    at: usize,
    taken: bool,
}

/// The caller's end: dropped, nobody waits any more.
pub(crate) struct Gathering {
    gather: Arc<Gather>,
    full: oneshot::Receiver<()>,
}

impl Gather {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that can panic runs under the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathering {
    /// As many seats; at least one.
    pub(crate) fn of(seats: usize) -> (Gathering, impl Iterator<Item = Seat>) {
        let (full, wait) = oneshot::channel();
        let outcomes = std::iter::repeat_with(|| None).take(seats).collect();
        let inner = Mutex::new(Inner { outcomes, missing: seats, full: Some(full) });
        let gather = Arc::new(Gather { inner, gone: AtomicBool::new(false) });
        let gathering = Gathering { gather: gather.clone(), full: wait };
        (gathering, (0..seats).map(move |at| Seat { gather: gather.clone(), at, taken: false }))
    }

    /// Every outcome, in the order of the seats.
    pub(crate) async fn outcomes(mut self) -> Vec<Outcome> {
        // The sender is in what `self` holds: it cannot be dropped without having sent.
        drop((&mut self.full).await);
        let outcomes = std::mem::take(&mut self.gather.lock().outcomes);
        outcomes.into_iter().map(|one| one.unwrap_or_else(|| Err(Failure::Final(Error::abandoned())))).collect()
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.gather.gone.store(true, Ordering::Relaxed);
    }
}

impl Seat {
    pub(crate) fn is_awaited(&self) -> bool {
        !self.gather.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn take(mut self, outcome: Outcome) {
        self.put(outcome);
    }

    fn put(&mut self, outcome: Outcome) {
        self.taken = true;
        let mut inner = self.gather.lock();
        let Some(place @ None) = inner.outcomes.get_mut(self.at) else { return };
        *place = Some(outcome);
        inner.missing -= 1;
        if inner.missing == 0
            && let Some(full) = inner.full.take()
        {
            // The caller may have gone.
            let _ = full.send(());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.taken {
            self.put(Err(Failure::Final(Error::abandoned())));
        }
    }
}
