//! The async runtime that openraft runs on: tokio, with randomness that can be seeded.
//!
//! openraft draws its election timeouts from the runtime's generator. A process that called [`seed_thread`] gets the
//! same draws in the same order from that thread; every other thread draws from the operating system. So a simulator on
//! one thread is deterministic, and what ships is not predictable.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use openraft_rt::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::TokioRuntime;
use rand::{Rng, SeedableRng, TryRng, rngs::SmallRng, rngs::ThreadRng};

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes every draw of this thread a function of `seed`, from now on; `None` goes back to the operating system's.
pub fn seed_thread(seed: Option<u64>) {
    SEED.with(|cell| cell.set(seed));
}

/// Tokio as openraft sees it.
#[derive(Debug)]
pub struct Runtime(TokioRuntime);

/// The generator that [`Runtime::thread_rng`](AsyncRuntime::thread_rng) hands out.
#[derive(Debug)]
pub enum ThreadSource {
    /// Seeded by [`seed_thread`].
    Seeded(SmallRng),
    /// The operating system's, through the thread's own generator.
    System(ThreadRng),
}

impl TryRng for ThreadSource {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(match self {
            ThreadSource::Seeded(rng) => rng.next_u32(),
            ThreadSource::System(rng) => rng.next_u32(),
        })
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(match self {
            ThreadSource::Seeded(rng) => rng.next_u64(),
            ThreadSource::System(rng) => rng.next_u64(),
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        match self {
            ThreadSource::Seeded(rng) => rng.fill_bytes(bytes),
            ThreadSource::System(rng) => rng.fill_bytes(bytes),
        }
        Ok(())
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = ThreadSource;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        join_error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        match SEED.get() {
            Some(seed) => {
                let mut rng = SmallRng::seed_from_u64(seed);
                SEED.set(Some(rng.next_u64()));
                ThreadSource::Seeded(rng)
            }
            #[expect(clippy::disallowed_methods, reason = "this is where the system's generator comes in")]
            None => ThreadSource::System(rand::rng()),
        }
    }

    fn new(threads: usize) -> Self {
        Runtime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seeded_thread_draws_the_same_again() {
        let draw = |seed| {
            seed_thread(Some(seed));
            let drawn: Vec<u64> = (0..4).map(|_| Runtime::thread_rng().next_u64()).collect();
            seed_thread(None);
            drawn
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(7)[0], draw(7)[1]);
        assert!(matches!(Runtime::thread_rng(), ThreadSource::System(_)));
    }
}
