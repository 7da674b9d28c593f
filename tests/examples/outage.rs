//! How long requests of a protected service take while its cluster is killed, hangs, or has no majority: `just outage`.

#![allow(clippy::print_stdout, reason = "a measurement")]

use std::time::Duration;

use quorate_tests::outage::{By, Ended, Fate, Pace, run};

#[tokio::main]
async fn main() {
    let ended = run(Pace { every: Duration::from_millis(1), requests: 5_000 }).await;
    println!(
        "{:<14} {:>8} {:>10} {:>10} {:>10} {:>12} {:>16}",
        "PHASE", "REQUESTS", "P50", "P99", "MAX", "P99 AFTER 1S", "FIRST BY CLUSTER"
    );
    for phase in ended.chunk_by(|a, b| a.phase == b.phase) {
        let took = |which: &dyn Fn(&&Ended) -> bool| {
            let mut took: Vec<_> = phase.iter().filter(which).map(|one| one.took).collect();
            took.sort_unstable();
            took
        };
        let (all, later) = (took(&|_| true), took(&|one| one.at > Duration::from_secs(1)));
        let by_cluster = |one: &&Ended| matches!(one.fate, Fate::Passed(By::Cluster) | Fate::Denied(By::Cluster));
        let first = phase.iter().filter(by_cluster).map(|one| one.at).min();
        println!(
            "{:<14} {:>8} {:>10.1?} {:>10.1?} {:>10.1?} {:>12.1?} {:>16}",
            format!("{:?}", phase[0].phase),
            all.len(),
            at(&all, 50),
            at(&all, 99),
            at(&all, 100),
            at(&later, 99),
            first.map_or("-".to_owned(), |first| format!("{first:.2?}")),
        );
    }
}

fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
