//! Time. Nothing else in the node reads a clock, but for the timers of the runtime.
//!
//! ```text
//! Clock ── own monotonic and wall time ──► Estimator ── median of the voters' ──► ClusterClock ──► Stamper, one a led shard
//!   real, or turned by hand                  pure; fed by a loop that asks the voters                slews; never goes back
//! ```
//!
//! Invariants: a replica never reads any of this to apply an entry; only a leader stamps. Monotonic time counts suspension,
//! so that a machine that slept does not take an old promise for a fresh one.

mod cluster;
mod estimate;
mod stamper;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quorate_core::Span;

pub use cluster::{AskClock, ClockStatus, ClusterClock, clock_from_wire, clock_to_wire, keep_sampling};
pub use estimate::{Estimate, Estimator, Sample};
pub use stamper::Stamper;

/// A moment of a node's own monotonic clock: microseconds since some moment of its own. Counts suspension; never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(pub i64);

/// What a node's wall clock says: microseconds since the Unix epoch. May jump, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub i64);

impl Monotonic {
    /// How long it has been since `earlier`; nothing if that is later.
    pub fn since(self, earlier: Monotonic) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0))
    }
}

/// A node's own clocks.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The monotonic one.
    fn monotonic(&self) -> Monotonic;
    /// The wall clock.
    fn wall(&self) -> Wall;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    fn read(id: rustix::time::ClockId) -> i64 {
        let time = rustix::time::clock_gettime(id);
        time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(Self::read(rustix::time::ClockId::Boottime))
    }

    fn wall(&self) -> Wall {
        Wall(Self::read(rustix::time::ClockId::Realtime))
    }
}

/// Clocks that are turned by hand. Clones share them.
///
/// ```
/// use quorate_core::Span;
/// use quorate_node::clock::{Clock as _, HandClock, Wall};
/// let clock = HandClock::at(Wall(1_000));
/// clock.advance(Span(5));
/// assert_eq!(clock.wall(), Wall(1_005));
/// clock.set_wall(Wall(0));
/// assert_eq!(clock.monotonic().0, 5);
/// ```
#[derive(Clone, Debug, Default)]
pub struct HandClock(Arc<Hands>);

#[derive(Debug, Default)]
struct Hands {
    monotonic: AtomicI64,
    wall: AtomicI64,
}

impl HandClock {
    /// A clock whose wall clock says that, and whose monotonic one begins at 0.
    pub fn at(wall: Wall) -> HandClock {
        let clock = HandClock::default();
        clock.set_wall(wall);
        clock
    }

    /// Lets time pass on both.
    pub fn advance(&self, span: Span) {
        self.0.monotonic.fetch_add(span.0, Ordering::Relaxed);
        self.0.wall.fetch_add(span.0, Ordering::Relaxed);
    }

    /// Makes the wall clock jump.
    pub fn set_wall(&self, wall: Wall) {
        self.0.wall.store(wall.0, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.monotonic.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Wall {
        Wall(self.0.wall.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_clocks() {
        let (earlier, later) = (SystemClock.monotonic(), SystemClock.monotonic());
        assert!(earlier <= later);
        assert!(SystemClock.wall() > Wall(1_600_000_000_000_000), "this machine's wall clock is before 2020");
    }
}
