//! `sim`: one seed and its story, or many seeds and what they came to.

#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::process::ExitCode;

use clap::Parser;
use quorate_sim::many::{Summary, guarded, many};
use quorate_sim::{Options, Outcome};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs whole clusters in one thread, on virtual time, each from one seed.
#[derive(Debug, Parser)]
struct Args {
    /// Tell the story of this seed
    seed: Option<u64>,
    /// How many seeds to run, where none is named
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many at a time
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Also tell what the nodes log: a level, or directives
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(level) = &args.log {
        tracing_subscriber::fmt().with_env_filter(level).without_time().with_writer(std::io::stderr).init();
    }
    match args.seed {
        Some(seed) => one(seed),
        None => all(&args),
    }
}

fn one(seed: u64) -> ExitCode {
    let outcome = guarded(&Options { seed, told: true });
    for line in &outcome.story {
        println!("{line}");
    }
    tell(&outcome);
    if outcome.wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all(args: &Args) -> ExitCode {
    let summary = many(args.from, args.seeds, args.threads, false, |outcome| {
        if !outcome.wrongs.is_empty() {
            tell(outcome);
        }
    });
    told(&summary)
}

fn tell(outcome: &Outcome) {
    let Outcome { seed, decisions, lasted, hash, .. } = outcome;
    println!("seed {seed}: {decisions} decisions in {lasted:?}, story {hash:016x}");
    for wrong in &outcome.wrongs {
        println!("  WRONG {wrong}");
    }
    if !outcome.wrongs.is_empty() {
        println!("  repeat it: just sim {seed}");
    }
}

fn told(summary: &Summary) -> ExitCode {
    let Summary { seeds, decisions, lasted, failed, .. } = summary;
    println!("{seeds} seeds, {decisions} decisions, {} simulated seconds; {} failed", lasted.as_secs(), failed.len());
    for (fault, times) in summary.fired.all() {
        println!("{times:>9} × {fault}");
    }
    let shortfalls = summary.shortfalls();
    shortfalls.iter().for_each(|shortfall| println!("WRONG {shortfall}"));
    if failed.is_empty() && shortfalls.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
