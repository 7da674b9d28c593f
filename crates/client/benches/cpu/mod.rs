//! CPU time, in which a busy machine shows less than in time on the wall.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process.
pub(crate) fn used() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

/// Nanoseconds of CPU time that each of so many times takes.
pub(crate) async fn each<F: Future<Output = ()>>(times: u32, mut once: impl FnMut() -> F) -> u64 {
    let began = used();
    for _ in 0..times {
        once().await;
    }
    ((used() - began).as_nanos() / u128::from(times)) as u64
}
