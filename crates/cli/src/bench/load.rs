//! The callers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::bench::keys::Keys;
use crate::bench::tally::{self, Tallies};

/// Whoever is asked.
pub trait Ask: Clone + Send + Sync + 'static {
    /// Asks one check for each key; an answer for each.
    fn ask(&self, keys: Vec<String>) -> impl Future<Output = Vec<tally::Result>> + Send;
}

/// How much is asked, and when it ends.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many ask at the same time; at least 1.
    pub callers: usize,
    /// Checks of one call; at least 1.
    pub batch: usize,
    /// Checks a second, of all callers together; none: as many as they can.
    pub rate: Option<u64>,
    /// When to end, at the latest.
    pub duration: Option<Duration>,
    /// Checks of all callers together, at the most.
    pub checks: Option<u64>,
}

/// A run under way.
#[derive(Debug, Default)]
pub struct Run {
    /// What came of it so far.
    pub tallies: Tallies,
    stop: AtomicBool,
    /// Checks that callers have taken on.
    taken: AtomicU64,
}

impl Run {
    /// Lets every caller end after the call that it waits for.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Takes up to `batch` of the checks that are left.
    fn take(&self, plan: &Plan) -> usize {
        let Some(checks) = plan.checks else { return plan.batch };
        let before = self.taken.fetch_add(plan.batch as u64, Ordering::Relaxed);
        usize::try_from(checks.saturating_sub(before)).unwrap_or(usize::MAX).min(plan.batch)
    }
}

/// Runs all callers to the end; how long it took.
pub async fn run(run: &Arc<Run>, plan: &Plan, ask: impl Ask, keys: impl Fn(usize) -> Keys) -> Duration {
    let began = Instant::now();
    let callers: Vec<_> = (0..plan.callers)
        .map(|caller| tokio::spawn(call(Arc::clone(run), plan.clone(), ask.clone(), keys(caller), caller, began)))
        .collect();
    for caller in callers {
        // A caller only ends early by a panic, which has been reported already.
        let _ = caller.await;
    }
    began.elapsed()
}

async fn call(run: Arc<Run>, plan: Plan, ask: impl Ask, mut keys: Keys, caller: usize, began: Instant) {
    let ends = plan.duration.map(|duration| began + duration);
    let mut turn = 0;
    while !run.stop.load(Ordering::Relaxed) {
        let due = match plan.rate {
            None => Instant::now(),
            Some(rate) => began + due(&plan, rate, caller, turn),
        };
        if ends.is_some_and(|ends| due >= ends) {
            return;
        }
        if plan.rate.is_some() {
            tokio::time::sleep_until(due).await;
        }
        let checks = run.take(&plan);
        if checks == 0 {
            return;
        }
        let asked = (0..checks).map(|_| keys.draw()).collect();
        let results = ask.ask(asked).await;
        let took = due.elapsed();
        for result in results {
            run.tallies.add(caller, result, took);
        }
        turn += 1;
    }
}

/// When a caller's turn is due: callers take turns evenly, so that all together ask `rate` checks a second.
fn due(plan: &Plan, rate: u64, caller: usize, turn: u64) -> Duration {
    let call = u128::from(turn) * plan.callers as u128 + caller as u128;
    let nanos = call * plan.batch as u128 * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::keys::Distribution;

    /// Answers after a while, every fourth key denied.
    #[derive(Clone)]
    struct Slow(Duration);

    impl Ask for Slow {
        async fn ask(&self, keys: Vec<String>) -> Vec<tally::Result> {
            tokio::time::sleep(self.0).await;
            let denied = |key: &String| key.ends_with('4');
            keys.iter().map(|key| if denied(key) { tally::Result::Denied } else { tally::Result::Granted }).collect()
        }
    }

    fn ran(plan: Plan, slow: Duration) -> (Arc<Run>, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let under_way = Arc::new(Run::default());
        let keys = |caller| Keys::new("k", 4, Distribution::Uniform, 1.0, caller as u64);
        let took = runtime.block_on(run(&under_way, &plan, Slow(slow), keys));
        (under_way, took)
    }

    const PLAN: Plan = Plan { callers: 4, batch: 1, rate: None, duration: None, checks: None };

    #[test]
    fn exactly_so_many_checks_are_asked() {
        let (run, took) = ran(Plan { checks: Some(103), batch: 5, ..PLAN }, Duration::from_millis(10));
        let total = run.tallies.total();
        assert_eq!(total.decided(), 103);
        assert!(total.denied > 0 && total.granted > total.denied);
        assert_eq!(took, Duration::from_millis(60));
    }

    #[test]
    fn it_ends_in_time() {
        let (run, took) = ran(Plan { duration: Some(Duration::from_secs(1)), ..PLAN }, Duration::from_millis(100));
        assert_eq!(run.tallies.total().decided(), 40);
        assert_eq!(took, Duration::from_secs(1));
    }

    #[test]
    fn a_rate_is_kept_and_a_stall_counts_from_when_a_check_was_due() {
        let plan = Plan { rate: Some(100), duration: Some(Duration::from_secs(1)), ..PLAN };
        let (run, _) = ran(plan.clone(), Duration::from_millis(1));
        assert_eq!(run.tallies.total().decided(), 100);
        let (run, _) = ran(plan, Duration::from_millis(80));
        let total = run.tallies.total();
        assert_eq!(total.decided(), 100);
        assert!(total.latency.max() > 1_000_000_000, "{}", total.latency.max());
    }
}
