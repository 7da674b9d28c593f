//! Many seeds, several at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::fired::Fired;
use crate::world::{self, Options, Outcome};

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
    catch_unwind(AssertUnwindSafe(|| world::run(options))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Outcome::failed(options.seed, format!("panic: {text}"))
    })
}

/// Which seeds to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Many {
    /// How many, from the first one's on.
    pub count: u64,
    /// How many at a time.
    pub threads: usize,
    /// Of so many seeds, one is run twice.
    pub again: u64,
    /// Whether no more are begun once one has failed.
    pub until_wrong: bool,
}

/// Runs many seeds, each with `run`.
pub fn many(
    first: &Options,
    seeds: Many,
    run: impl Fn(&Options) -> Outcome + Sync,
    told: impl Fn(&Outcome) + Sync,
) -> Summary {
    let Many { count, threads, again, until_wrong } = seeds;
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
                    let mut outcome = run(&options);
                    if seed % again == 0 {
                        let second = run(&options);
                        if second.hash != outcome.hash {
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
