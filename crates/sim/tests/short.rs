//! A few seeds, and one of them twice. The long form is `just sim`.

#![allow(clippy::unwrap_used, reason = "a test")]

use quorate_sim::{Options, Outcome, run};

fn seed(seed: u64) -> Outcome {
    let outcome = run(&Options::told(seed));
    assert_eq!(outcome.wrongs, Vec::<String>::new(), "seed {seed}; its story: just sim {seed}");
    assert!(outcome.decisions > 200, "seed {seed} says little: {} decisions", outcome.decisions);
    outcome
}

#[test]
fn the_same_seed_is_the_same_story() {
    let (first, second) = (seed(1), seed(1));
    assert_eq!(first.story, second.story);
    assert_eq!(first.hash, second.hash);
}

#[test]
fn other_seeds_are_other_stories() {
    assert_ne!(seed(2).hash, seed(3).hash);
}
