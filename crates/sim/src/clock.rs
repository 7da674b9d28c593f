//! A machine's clocks: the monotonic one is the runtime's virtual time, the wall clock may be set wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quorate_node::clock::{Clock, Monotonic, Wall};
use tokio::time::Instant;

/// What a right wall clock says when a world begins: microseconds since the Unix epoch.
pub const EPOCH: i64 = 1_790_000_000_000_000;

/// How long a node believes what it heard of another's clock.
const REMEMBERED: i64 = quorate_node::caps::CLOCK_SAMPLE_LIFE.0 + 2_000_000;

/// How wrong a machine's wall clock is, in microseconds. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Error(Arc<Wrong>);

#[derive(Debug, Default)]
struct Wrong {
    us: AtomicI64,
    /// When it was last wrong, in the world's time; 0 if it never was.
    last: AtomicI64,
}

impl Error {
    /// From now on, that wrong.
    pub fn set(&self, us: i64, now: i64) {
        if self.get() != 0 || us != 0 {
            self.0.last.store(now, Ordering::Relaxed);
        }
        self.0.us.store(us, Ordering::Relaxed);
    }

    /// How wrong.
    pub fn get(&self) -> i64 {
        self.0.us.load(Ordering::Relaxed)
    }

    /// Whether it is wrong, or was a moment ago, so that others may still believe it.
    pub fn is_remembered(&self, now: i64) -> bool {
        let last = self.0.last.load(Ordering::Relaxed);
        self.get() != 0 || (last > 0 && now < last + REMEMBERED)
    }
}

/// The clocks of a machine since it was started.
#[derive(Clone, Debug)]
pub struct MachineClock {
    started: Instant,
    /// The world's time then.
    started_at: i64,
    error: Error,
}

impl MachineClock {
    /// The clocks of a machine that starts now, at that time of the world. Has to be called on the machine's runtime.
    pub fn new(started_at: i64, error: Error) -> MachineClock {
        MachineClock { started: Instant::now(), started_at, error }
    }

    fn now(&self) -> i64 {
        self.started_at + Instant::now().saturating_duration_since(self.started).as_micros() as i64
    }
}

impl Clock for MachineClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.now())
    }

    fn wall(&self) -> Wall {
        Wall(EPOCH + self.now() + self.error.get())
    }
}
