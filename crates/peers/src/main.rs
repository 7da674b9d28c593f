//! `bench-peers`: Quorate beside other limiters, real processes on one machine.
//!
//! Every contender is started, asked, and stopped before the next one starts; then all of it again, several times over, and
//! each figure is the median of its turns. So what else the machine does falls on all alike, and ratios mean something where
//! single figures do not. Same callers, same keys, same bucket for all.
//!
//! ```text
//! round ─► stand: servers started ─► case: callers warm up, then are measured ─► … ─► servers stopped ─► next stand
//! ```
//!
//! Never a gate: nothing here fails for being slow.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report is printed, and how far it is")]

mod cases;
mod echo;
mod machine;
mod measure;
mod plot;
mod quorate;
mod redis;
mod report;
mod resp;
mod servers;
mod texts;
mod throttlecrab;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cases::{Directories, Stand};
use crate::measure::Times;
use crate::report::Report;

/// The same for every contender's client; the nodes run on it, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What `bench-peers` takes.
#[derive(Debug, Parser)]
#[command(about = "Measures Quorate beside Redis, throttlecrab-server and bare gRPC, as processes of this machine")]
struct Args {
    /// Turns of every contender; the report has the medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds for which each case is measured, after a fifth of that to warm up
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many keys there are
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Only these contenders [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Stand>,
    /// Where data directories are made that are on a disk [default: the temporary directory]
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Where data directories are made that are in memory
    #[arg(long, default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// The `quorated` to measure [default: the one beside this program]
    #[arg(long)]
    quorated: Option<PathBuf>,
    /// Write every run and every median there, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a plot there, as SVG
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Serve the echo on that port, and do nothing else
    #[arg(long, hide = true)]
    echo: Option<u16>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.echo {
        Some(port) => echo::serve(port),
        None => run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-peers: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), String> {
    let directories = Directories {
        disk: args.disk.clone().unwrap_or_else(std::env::temp_dir),
        tmpfs: args.tmpfs.clone(),
        quorated: match args.quorated.clone() {
            Some(path) => path,
            None => beside("quorated")?,
        },
    };
    let times = Times { warm: Duration::from_secs(args.seconds) / 5, measured: Duration::from_secs(args.seconds) };
    let stands = if args.only.is_empty() { Stand::ALL.to_vec() } else { args.only.clone() };
    let texts = texts::Texts::drawn(args.keys);
    let mut report = Report::new(args.rounds, args.keys, args.seconds);
    for stand in &stands {
        if let Some(missing) = stand.missing(&directories) {
            eprintln!("{}: left out: {missing}", stand.name());
            report.leave_out(stand.name(), missing);
        }
    }
    let here: Vec<Stand> = stands.into_iter().filter(|stand| !report.is_left_out(stand.name())).collect();
    let ended = (1..=args.rounds).try_for_each(|round| {
        for stand in &here {
            eprintln!("round {round} of {}: {}", args.rounds, stand.name());
            for (case, measured) in stand.run(&directories, &texts, times)? {
                report.add(case, measured);
            }
        }
        Ok(())
    });
    // What was measured until something failed is told all the same.
    println!("{report}");
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report.json()).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &args.plot {
        plot::draw(&report.medians(), path)?;
    }
    ended
}

/// The program of that name in the directory of this one.
fn beside(name: &str) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| format!("cannot tell where this program is: {error}"))?;
    Ok(me.with_file_name(name))
}
