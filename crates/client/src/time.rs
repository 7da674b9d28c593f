//! The cluster's logical time, as far as answers tell: so that windows that are decided in this process begin and end with
//! the cluster's.
//!
//! Every decision carries its stamp, and a stamp is no later than the moment at which its answer came. So the largest
//! difference between the two that was ever seen is the nearest to the truth. No clock but tokio's is read.

use std::sync::atomic::{AtomicI64, Ordering};

use quorate_core::Stamp;
use tokio::time::Instant;

/// What is to be added to the time since the client was born.
#[derive(Debug)]
pub(crate) struct ClusterTime {
    born: Instant,
    offset: AtomicI64,
}

impl ClusterTime {
    pub(crate) fn new() -> Self {
        ClusterTime { born: Instant::now(), offset: AtomicI64::new(0) }
    }

    /// An answer that has just come was decided then.
    pub(crate) fn saw(&self, stamp: Stamp, now: Instant) {
        self.offset.fetch_max(stamp.0.saturating_sub(self.age(now)), Ordering::Relaxed);
    }

    /// Microseconds since the client was born.
    pub(crate) fn age(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.born).as_micros()).unwrap_or(i64::MAX)
    }

    /// The logical time at which the client was born; 0 where no answer has told.
    pub(crate) fn birth(&self) -> Stamp {
        Stamp(self.offset.load(Ordering::Relaxed).max(0))
    }
}
