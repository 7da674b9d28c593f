//! A ceiling of this process's own, enforced whatever the cluster says: so many at once, so many that wait, and everybody else is
//! refused at once.
//!
//! It protects the process, not the limit: the cluster may be away, slow, or generous. So no failure policy has a say in it.
//!
//! Invariants: never more than [`Ceiling::limit`] places are given out; never more than `queue` wait; who waits is let in in the order
//! of coming.

#[cfg(feature = "adaptive")]
mod adaptive;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::caps;
use crate::error::{Error, ErrorKind};
use crate::observe;

/// A bound on what is under way at once. Clones share it.
///
/// A client has one for its own calls ([`ClientBuilder::max_in_flight`](crate::ClientBuilder::max_in_flight)); make another
/// to bound the requests that a service works on, and hold the [`Place`] while it does.
///
/// ```
/// # async fn f() -> Result<(), quorate_client::Error> {
/// use std::time::Duration;
/// use quorate_client::{Ceiling, ErrorKind};
/// let ceiling = Ceiling::new(1, 0)?;
/// let place = ceiling.enter(Duration::from_millis(10)).await?;
/// let refused = ceiling.enter(Duration::from_millis(10)).await.unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Ceiling);
/// drop(place);
/// assert!(ceiling.enter(Duration::ZERO).await.is_ok());
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Ceiling {
    places: Arc<Semaphore>,
    /// Places that are out or free.
    total: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    queue: usize,
    #[cfg(feature = "adaptive")]
    adaptive: Option<Arc<adaptive::Adaptive>>,
}

/// A place under a [`Ceiling`], free again when it is dropped.
///
/// ```
/// use quorate_client::Ceiling;
/// # fn f() -> Result<(), quorate_client::Error> {
/// let ceiling = Ceiling::new(8, 0)?;
/// assert_eq!(ceiling.in_flight(), 0);
/// # Ok(()) }
/// # f().unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub struct Place {
    /// There until it is dropped.
    permit: Option<OwnedSemaphorePermit>,
    #[cfg(feature = "adaptive")]
    learns: Option<(Arc<adaptive::Adaptive>, Instant)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        #[cfg(feature = "adaptive")]
        if let (Some((adaptive, since)), Some(permit)) = (&self.learns, self.permit.take()) {
            adaptive.held(permit, since.elapsed());
        }
        self.permit = None;
    }
}

/// One that waits, counted until it is dropped.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ceiling {
    /// At most `max_in_flight` at once, 1 to 1,048,576, and at most `queue` that wait, up to as many.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where a number is out of these bounds.
    pub fn new(max_in_flight: usize, queue: usize) -> Result<Ceiling, Error> {
        if max_in_flight == 0 || max_in_flight > caps::CEILING || queue > caps::CEILING {
            return Err(Error::invalid(format!(
                "a ceiling of {max_in_flight} in flight and {queue} waiting is none; allowed are 1 to {most} and 0 to {most}",
                most = caps::CEILING
            )));
        }
        Ok(Ceiling {
            places: Arc::new(Semaphore::new(max_in_flight)),
            total: Arc::new(AtomicUsize::new(max_in_flight)),
            waiting: Arc::default(),
            queue,
            #[cfg(feature = "adaptive")]
            adaptive: None,
        })
    }

    /// A ceiling that finds its own height between `least`, with which it begins, and `most`: it learns from how long places are
    /// held, and is lowered while they are held longer than they used to be. For the requests of a service rather than for
    /// checks, whose time says nothing of what the service can bear. With the feature `adaptive`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where a number is out of the bounds of [`new`](Self::new), or `least` is above `most`.
    ///
    /// ```
    /// use quorate_client::Ceiling;
    /// let ceiling = Ceiling::adaptive(8, 512, 32)?;
    /// assert_eq!(ceiling.limit(), 8);
    /// # Ok::<(), quorate_client::Error>(())
    /// ```
    #[cfg(feature = "adaptive")]
    pub fn adaptive(least: usize, most: usize, queue: usize) -> Result<Ceiling, Error> {
        drop(Ceiling::new(most, queue)?);
        let mut ceiling = Ceiling::new(least, queue)?;
        let (places, total) = (Arc::clone(&ceiling.places), Arc::clone(&ceiling.total));
        ceiling.adaptive = Some(Arc::new(adaptive::Adaptive::new(least, most, places, total)?));
        Ok(ceiling)
    }

    /// Takes a place, or waits for one, for so long at most, if the queue has room.
    ///
    /// # Errors
    /// [`ErrorKind::Ceiling`] where it has none, or no place was free in time.
    pub async fn enter(&self, within: Duration) -> Result<Place, Error> {
        match self.try_enter() {
            Some(place) => Ok(place),
            None => self.wait(Instant::now() + within.min(caps::DEADLINE_MAX))?.await,
        }
    }

    /// How many may be under way at once now; it changes only where the ceiling is adaptive.
    pub fn limit(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// How many are under way now.
    pub fn in_flight(&self) -> usize {
        self.limit().saturating_sub(self.places.available_permits())
    }

    pub(crate) fn try_enter(&self) -> Option<Place> {
        Some(self.place(Arc::clone(&self.places).try_acquire_owned().ok()?))
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        Place {
            permit: Some(permit),
            #[cfg(feature = "adaptive")]
            learns: self.adaptive.as_ref().map(|adaptive| (Arc::clone(adaptive), Instant::now())),
        }
    }

    /// Waits in the queue for a place; an error at once where the queue is full.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<BoxFuture<'static, Result<Place, Error>>, Error> {
        let waiting = Waiting(Arc::clone(&self.waiting));
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.queue {
            observe::refused_by_ceiling();
            return Err(self.refused("as many as may wait do so"));
        }
        let ceiling = self.clone();
        let wait = async move {
            let _waiting = waiting;
            match timeout_at(deadline, Arc::clone(&ceiling.places).acquire_owned()).await {
                Ok(Ok(permit)) => Ok(ceiling.place(permit)),
                _ => {
                    observe::refused_by_ceiling();
                    Err(ceiling.refused("no place was free before the deadline"))
                }
            }
        };
        Ok(wait.boxed())
    }

    fn refused(&self, why: &str) -> Error {
        let text = format!(
            "this process's own ceiling of {} in flight and {} waiting is reached: {why}; nothing was asked of the cluster: shed load, or raise max_in_flight",
            self.limit(),
            self.queue
        );
        Error::new(ErrorKind::Ceiling, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_enter_and_no_more_than_so_many_wait() {
        let ceiling = Ceiling::new(2, 1).unwrap();
        let (first, _second) = (ceiling.enter(SOON).await.unwrap(), ceiling.enter(SOON).await.unwrap());
        let mut third = Box::pin(ceiling.enter(SOON));
        assert!((&mut third).now_or_never().is_none());
        let fourth = ceiling.enter(SOON).now_or_never().unwrap().unwrap_err();
        assert_eq!((fourth.kind(), fourth.may_have_charged()), (ErrorKind::Ceiling, false));
        assert!(fourth.to_string().contains("2 in flight and 1 waiting"), "{fourth}");
        drop(first);
        let third = third.await.unwrap();
        assert_eq!(ceiling.in_flight(), 2);

        let before = Instant::now();
        assert_eq!(ceiling.enter(SOON).await.unwrap_err().kind(), ErrorKind::Ceiling);
        assert_eq!(before.elapsed(), SOON);
        let mut gone = Box::pin(ceiling.enter(SOON));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        drop(third);
        assert!(ceiling.enter(SOON).now_or_never().unwrap().is_ok(), "who gave up waits no more");
    }

    #[test]
    fn a_ceiling_of_nothing_is_refused() {
        for (calls, queue) in [(0, 1), (caps::CEILING + 1, 0), (1, caps::CEILING + 1)] {
            assert_eq!(Ceiling::new(calls, queue).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
