//! A few seeds, and one of them twice. The long form is `just sim`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

/// A process of its own for each, as [`quorate_sim::many`] does it.
fn seed(seed: u64) -> (String, String) {
    let told = Command::new(env!("CARGO_BIN_EXE_sim")).arg(seed.to_string()).output().unwrap();
    let story = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "seed {seed}; its story: just sim {seed}\n{}", last(&story));
    let decisions = last(&story).split_whitespace().nth(2).and_then(|number| number.parse::<u64>().ok()).unwrap();
    assert!(decisions > 200, "seed {seed} says little: {}", last(&story));
    (last(&story).to_owned(), story)
}

fn last(story: &str) -> &str {
    story.lines().last().unwrap_or_default()
}

#[test]
fn the_same_seed_is_the_same_story() {
    let (first, second) = (seed(1), seed(1));
    assert!(first.1.lines().count() > 1_000);
    assert_eq!(first, second);
}

#[test]
fn other_seeds_are_other_stories() {
    assert_ne!(seed(2).0, seed(3).0);
}
