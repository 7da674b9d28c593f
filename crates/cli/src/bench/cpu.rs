//! CPU time that processes have used.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What this process has used so far, user and system, all threads.
pub fn own() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

/// What another process of this machine has used so far; none if there is no such process.
pub fn of(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = ticks(&stat)?;
    Some(Duration::from_nanos(ticks.saturating_mul(1_000_000_000) / rustix::param::clock_ticks_per_second().max(1)))
}

/// User and system ticks of a line of `/proc/PID/stat`. The name before them is in brackets, and may hold any.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_the_name() {
        assert_eq!(ticks("7 (a) (b c)) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 1 0 99 1 1"), Some(175));
        assert_eq!(ticks("7 (a"), None);
    }

    #[test]
    fn this_process_is_seen_both_ways() {
        assert!(own() > Duration::ZERO);
        assert!(of(std::process::id()).is_some());
        assert_eq!(of(u32::MAX), None);
    }
}
