//! The algorithms against the law, over random histories: nothing may differ by one.
//!
//! The short form runs with every `cargo test`. The long one, at least 10^6 events for each algorithm:
//! `QUORATE_LONG=1 cargo test -p quorate-core --test model`. A failure prints its seed and the command that repeats it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(missing_docs, unreachable_pub, reason = "nobody else uses it")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures, and how to repeat a failure")]
#![allow(clippy::too_many_arguments, reason = "a check has that many parts")]

mod history;
mod random;
mod subject;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use history::{History, Tally};
use random::{KINDS, Kind, Random};
use subject::{Functions, Subject, Whole};

/// Events of one history: enough to run into the limit, few enough to read when it fails.
const EVENTS_PER_HISTORY: u64 = 250;
const SHORT: u64 = 20_000;
const LONG: u64 = 1_000_000;

fn run<S: Subject>(test: &str, events: u64, kinds: impl Fn(&mut Random) -> Vec<Kind>, modes: bool) -> Tally {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = number("QUORATE_SEED");
    let events = if number("QUORATE_LONG").is_some_and(|long| long > 0) { events.max(LONG) } else { events };
    let mut tally = Tally::default();
    let mut seed = only.unwrap_or(1);
    while tally.events < events {
        let mut history = History::<S>::new(seed, &kinds(&mut Random(!seed)), modes);
        for _ in 0..EVENTS_PER_HISTORY {
            let step = catch_unwind(AssertUnwindSafe(|| history.step(&mut tally)));
            if let Err(panic) = step {
                let story = history.story.join("\n  ");
                eprintln!("the history of seed {seed}:\n  {story}");
                eprintln!("repeat it: QUORATE_SEED={seed} cargo test -p quorate-core --test model {test}");
                resume_unwind(panic);
            }
        }
        if only.is_some() {
            return tally;
        }
        seed += 1;
    }
    println!("{test}: {tally:?}");
    let share = 100 * tally.denied / tally.asked;
    assert!((5..=95).contains(&share), "{share} % were denied: the histories say little");
    assert!(tally.waits > 100 && tally.never > 10 && tally.refunds_that_changed > 100, "{tally:?}");
    tally
}

#[test]
fn fixed_window() {
    run::<Functions>("fixed_window", SHORT, |_| vec![Kind::FixedWindow], false);
}

#[test]
fn sliding_log() {
    run::<Functions>("sliding_log", SHORT, |_| vec![Kind::SlidingLog], false);
}

#[test]
fn sliding_counter() {
    run::<Functions>("sliding_counter", SHORT, |_| vec![Kind::SlidingCounter], false);
}

#[test]
fn token_bucket() {
    let tally = run::<Functions>("token_bucket", SHORT, |_| vec![Kind::TokenBucket], false);
    assert!(std::env::var_os("QUORATE_SEED").is_some() || tally.debts > 50, "{tally:?}");
}

#[test]
fn leaky_bucket() {
    run::<Functions>("leaky_bucket", SHORT, |_| vec![Kind::LeakyBucket], false);
}

#[test]
fn several_limits_in_one_check() {
    let kinds = |random: &mut Random| (0..2 + random.up_to(2)).map(|_| random.pick(&KINDS)).collect();
    run::<Functions>("several_limits_in_one_check", SHORT, kinds, true);
}

#[test]
fn one_limit_in_any_mode() {
    run::<Functions>("one_limit_in_any_mode", SHORT, |random| vec![random.pick(&KINDS)], true);
}

#[test]
fn a_whole_shard() {
    let kinds = |random: &mut Random| (0..1 + random.up_to(3)).map(|_| random.pick(&KINDS)).collect();
    run::<Whole>("a_whole_shard", SHORT, kinds, true);
}
