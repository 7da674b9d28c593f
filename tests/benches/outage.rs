//! What an outage costs the requests of a service behind `RateLimitLayer`, and how soon it is over: `just outage`.
//!
//! The cluster is taken away and given back as in `src/outage.rs`, on processes of this machine and with the client's own
//! deadline of 50 ms. Times are those of a request through the layer to a service that does nothing, from when it was made.

#![allow(clippy::print_stdout, reason = "a measurement")]

use std::time::Duration;

use quorate_tests::outage::{Form, Phase, Run};
use quorate_tests::service::{Answer, Pace};
use tokio::time::Instant;

const FORM: Form = Form { pace: Pace { rate: 1_000, keys: 24 }, deadline: Duration::from_millis(50), times: 70 };

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let run = runtime.expect("a runtime can be made").block_on(Run::of(FORM));
    println!(
        "{} requests in {:.1} s, {} each second, of {} keys; deadline {:?}; times in ms",
        run.answers.len(),
        run.took.as_secs_f64(),
        FORM.pace.rate,
        3 * FORM.pace.keys,
        FORM.deadline
    );
    println!(
        "{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>12}",
        "", "requests", "without", "p50", "p99", "max", "open", "p99 open"
    );
    for (number, phase) in run.phases.iter().enumerate() {
        let answers: Vec<&Answer> = run.of_phase(number).collect();
        print(&name(&run, number), phase, &answers);
    }
    println!();
    println!("{:<22}{:>14}{:>14}{:>14}", "back, after", "first answer", "every key", "every leader");
    for (number, phase) in run.phases.iter().enumerate().filter(|(_, phase)| phase.recovered.is_some()) {
        let [first, all] = answered(&run, number).map(|at| since(phase, at));
        println!("{:<22}{first:>14}{all:>14}{:>14}", name(&run, number), since(phase, phase.recovered));
    }
}

fn name(run: &Run, number: usize) -> String {
    match (run.phases[number].away, number.checked_sub(1).and_then(|before| run.phases[before].away)) {
        (Some(away), _) => away.name().to_owned(),
        (None, Some(before)) => format!("after {}", before.name()),
        (None, None) => "well".to_owned(),
    }
}

fn print(name: &str, phase: &Phase, answers: &[&Answer]) {
    let without = answers.iter().filter(|answer| answer.is_without_cluster()).count();
    let [p50, p99, max] = [50, 99, 100].map(|percent| millis(percentile(answers, percent)));
    let open = phase.all_open.map(|open| answers.iter().copied().filter(|answer| answer.asked > open).collect());
    let p99_open = open.map(|answers: Vec<&Answer>| percentile(&answers, 99));
    println!(
        "{name:<22}{:>9}{without:>9}{p50:>9}{p99:>9}{max:>9}{:>10}{:>12}",
        answers.len(),
        since(phase, phase.all_open),
        p99_open.map_or("-".to_owned(), millis)
    );
}

/// When the cluster's first answer came, and when it had answered every key of every policy.
fn answered(run: &Run, number: usize) -> [Option<Instant>; 2] {
    let began = run.phases[number].began;
    let mut firsts = std::collections::BTreeMap::<(usize, usize), Instant>::new();
    for answer in run.answers.iter().filter(|answer| answer.is_of_cluster() && answer.at() >= began) {
        let first = firsts.entry((answer.policy, answer.key)).or_insert_with(|| answer.at());
        *first = answer.at().min(*first);
    }
    [firsts.values().min().copied(), firsts.values().max().copied()]
}

/// Milliseconds since a phase began.
fn since(phase: &Phase, at: Option<Instant>) -> String {
    at.map_or("-".to_owned(), |at| millis(at.saturating_duration_since(phase.began)))
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

fn percentile(answers: &[&Answer], percent: usize) -> Duration {
    let mut times: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}
