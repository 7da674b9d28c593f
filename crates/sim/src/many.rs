//! Many seeds, on several threads: each world is one thread's alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::fired::Fired;
use crate::world::{Options, Outcome, run};

/// Of so many seeds, one is run twice.
const AGAIN: u64 = 100;
/// What a seed has to come to on average.
const DECISIONS: u64 = 1_000;

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many were run.
    pub seeds: u64,
    /// Checks that were answered with a decision.
    pub decisions: u64,
    /// How long they were together, in their own time.
    pub lasted: Duration,
    /// The faults that struck.
    pub fired: Fired,
    /// Of each seed that failed, what was wrong.
    pub failed: Vec<(u64, Vec<String>)>,
}

impl Summary {
    /// What speaks against the whole run, beside the seeds that failed.
    pub fn shortfalls(&self) -> Vec<String> {
        let mut shortfalls = Vec::new();
        if self.seeds > 0 && self.decisions / self.seeds < DECISIONS {
            shortfalls
                .push(format!("a seed averages {} decisions; it should be {DECISIONS}", self.decisions / self.seeds));
        }
        let never = self.fired.all().into_iter().filter(|(_, times)| *times == 0);
        shortfalls.extend(never.map(|(fault, _)| format!("no seed ever met: {fault}")));
        shortfalls
    }
}

/// Runs a world; a panic in it is something wrong, too.
pub fn guarded(options: &Options) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(options))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Outcome {
            seed: options.seed,
            decisions: 0,
            lasted: Duration::ZERO,
            wrongs: vec![format!("panic: {text}")],
            hash: 0,
            fired: Fired::default(),
            story: Vec::new(),
        }
    })
}

/// Runs that many seeds, from the first one's on. With `until_wrong`, no more are begun once one has failed.
pub fn many(first: &Options, count: u64, threads: usize, until_wrong: bool, told: impl Fn(&Outcome) + Sync) -> Summary {
    let (next, stop) = (AtomicU64::new(first.seed), AtomicBool::new(false));
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.seed + count || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let options = Options { seed, ..first.clone() };
                    let mut outcome = guarded(&options);
                    if seed % AGAIN == 0 {
                        let again = guarded(&options);
                        if again.hash != outcome.hash {
                            outcome.wrongs.push("the same seed came to another story the second time".to_owned());
                        }
                    }
                    if until_wrong && !outcome.wrongs.is_empty() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    told(&outcome);
                    summary.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                }
            });
        }
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.decisions += outcome.decisions;
        self.lasted += outcome.lasted;
        self.fired.merge(&outcome.fired);
        if !outcome.wrongs.is_empty() {
            self.failed.push((outcome.seed, outcome.wrongs));
        }
    }
}
