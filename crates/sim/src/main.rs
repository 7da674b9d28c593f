//! `sim`: one seed and its story, or many seeds and what they came to.

#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::process::ExitCode;

use clap::Parser;
use quorate_sim::many::{Many, Summary, guarded, many};
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
    /// Of so many seeds, one is run twice, and has to come to the same
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    again: u64,
    /// Plant each fault, or the one of this name, and see in how many seeds it is found
    #[cfg(feature = "planted")]
    #[arg(long, value_name = "FAULT", num_args = 0..=1, default_missing_value = "all")]
    planted: Option<String>,
    /// Only what came of this seed, as a line of JSON
    #[arg(long, requires = "seed", hide = true)]
    outcome: bool,
    /// Also tell what the nodes log: a level, or directives
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl Args {
    fn many(&self) -> Many {
        Many { count: self.seeds, threads: self.threads, again: self.again, until_wrong: false }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(level) = &args.log {
        tracing_subscriber::fmt().with_env_filter(level).without_time().with_writer(std::io::stderr).init();
    }
    match args.seed {
        Some(seed) if args.outcome => return outcome(&args, seed),
        _ => {}
    }
    #[cfg(feature = "planted")]
    if let Some(name) = &args.planted {
        return planted(&args, name);
    }
    match args.seed {
        Some(seed) => one(seed),
        None => all(&args),
    }
}

/// How many seeds a planted fault is given to be found in.
#[cfg(feature = "planted")]
const PLANTED_SEEDS: u64 = 300;

#[cfg(feature = "planted")]
fn planted(args: &Args, name: &str) -> ExitCode {
    use quorate_core::planted::Planted;

    let mut missed = Vec::new();
    let Some(chosen) = Planted::named(name).map(|fault| vec![fault]).or((name == "all").then(|| Planted::ALL.to_vec()))
    else {
        println!("WRONG there is no fault {name} to plant: {:?}", Planted::ALL);
        return ExitCode::FAILURE;
    };
    for fault in chosen {
        let first = Options { seed: args.seed.unwrap_or(args.from), planted: Some(fault), ..Options::default() };
        let summary = many(&first, Many { count: PLANTED_SEEDS, until_wrong: true, ..args.many() }, apart, |_| {});
        match summary.failed.iter().min() {
            Some((seed, wrongs)) => {
                println!("{fault:?}: found in {} seeds: seed {seed}: {}", summary.seeds, wrongs.join("; "));
            }
            None => {
                println!("WRONG {fault:?}: not found in {} seeds", summary.seeds);
                missed.push(fault);
            }
        }
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seed in here, for the process that asked.
fn outcome(args: &Args, seed: u64) -> ExitCode {
    let options = Options {
        seed,
        #[cfg(feature = "planted")]
        planted: args.planted.as_deref().and_then(quorate_core::planted::Planted::named),
        ..Options::default()
    };
    #[cfg(not(feature = "planted"))]
    let _ = args;
    match serde_json::to_string(&guarded(&options)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the seed in a process of its own, so that it comes to what it comes to alone: tokio numbers the tasks of a process, and
/// drops those of a killed node in an order that depends on their numbers.
fn apart(options: &Options) -> Outcome {
    let failed = |problem: String| Outcome::failed(options.seed, problem);
    let Ok(program) = std::env::current_exe() else { return failed("nobody knows where this program is".to_owned()) };
    let mut command = std::process::Command::new(program);
    command.arg("--outcome").arg(options.seed.to_string());
    #[cfg(feature = "planted")]
    command.args(options.planted.iter().flat_map(|fault| ["--planted".to_owned(), format!("{fault:?}")]));
    match command.stderr(std::process::Stdio::inherit()).output() {
        Err(error) => failed(format!("it cannot be run: {error}")),
        Ok(output) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| failed(format!("its process ended with {}", output.status))),
    }
}

fn one(seed: u64) -> ExitCode {
    let outcome = guarded(&Options::told(seed));
    for line in &outcome.story {
        println!("{line}");
    }
    tell(&outcome);
    if outcome.wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all(args: &Args) -> ExitCode {
    let first = Options { seed: args.from, ..Options::default() };
    let summary = many(&first, args.many(), apart, |outcome| {
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
